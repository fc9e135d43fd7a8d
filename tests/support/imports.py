"""Imports between the Python files of a repository, read from their text."""

import ast
import heapq
from collections import defaultdict
from pathlib import Path

FOLDERS = ("dnnc", "tests", "benchmarks", "demo", "docs", "examples")

# The steps of an import that no statement names: a text does, or it is that of a parent package.
IMPLIED = 4


def imported_modules(nodes, path, root):
    """(module, line) of each import among a file's syntax nodes; relative ones made absolute."""
    package = path.relative_to(root).parts[:-1]
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            name = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            yield name, node.lineno
            for alias in node.names:
                yield f"{name}.{alias.name}", node.lineno


def _run_nodes(tree):
    """The syntax nodes of a file, without what only type checkers read."""
    found = [tree]
    for node in found:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                found.append(value)
            elif isinstance(value, list) and not (name == "body" and _is_for_types(node)):
                found += [item for item in value if isinstance(item, ast.AST)]
    return found


def _is_for_types(node):
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


class ImportGraph:
    """Which files below `root` import which.  Paths are relative to it, with slashes.

    A package's dictionary of names that are loaded when used, name -> module, counts for the files
    that use the name.  A text that is a module's name counts as an import of it, in a package one
    such as ".name".
    """

    def __init__(self, root):
        self.root = root
        self.paths = sorted(
            path.relative_to(root).as_posix()
            for folder in FOLDERS
            for path in (root / folder).rglob("*.py")
        )
        self._by_module = {_module_of(path): path for path in self.paths}
        self._importers = defaultdict(dict)  # path -> file that imports it -> steps
        self._lazy = {}  # dotted name of a package's name -> module
        for path in self.paths:
            if path.endswith("/__init__.py"):
                self._lazy |= dict(self._lazy_names(_module_of(path), self._nodes(path)))
        for path in self.paths:
            self._read(path, self._nodes(path))
            if path.endswith("/conftest.py"):
                below = path.removesuffix("conftest.py")
                tests = [p for p in self.paths if p.startswith(below) and p != path]
                self._importers[path].update(dict.fromkeys(tests, IMPLIED))

    def _nodes(self, path):
        """Kept no longer than needed: a million nodes cost the garbage collector seconds."""
        return _run_nodes(ast.parse((self.root / path).read_text()))

    def _lazy_names(self, package, nodes):
        for node in nodes:
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                        for module in (str(value.value), f"{package}.{value.value}"):
                            if module in self._by_module:
                                yield f"{package}.{key.value}", module

    def _read(self, path, nodes):
        is_package = path.endswith("/__init__.py")
        names = {name for name, _ in imported_modules(nodes, self.root / path, self.root)}
        names |= {_dotted(node) for node in nodes if isinstance(node, ast.Attribute)} - {None}
        texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        for name in names:
            self._add(path, name, 1)
        if is_package:
            texts = {_module_of(path) + text for text in texts if text.startswith(".")}
        for name in names | texts:
            words = name.split(".")
            for count in range(1, len(words) + 1):
                self._add(path, ".".join(words[:count]), IMPLIED)

    def _add(self, path, name, steps):
        imported = self._by_module.get(self._lazy.get(name, name))
        if imported not in (None, path):
            known = self._importers[imported].get(path, steps)
            self._importers[imported][path] = min(steps, known)

    def steps_to(self, changed):
        """path -> steps from it to the nearest of the changed files, for all that reach one."""
        steps = dict.fromkeys(changed, 0)
        queue = [(0, path) for path in steps]
        while queue:
            so_far, path = heapq.heappop(queue)
            for importer, length in self._importers[path].items():
                if so_far + length < steps.get(importer, so_far + length + 1):
                    steps[importer] = so_far + length
                    heapq.heappush(queue, (so_far + length, importer))
        return steps


def _dotted(node):
    """`a.b.c` of an attribute, None where it is one of something else."""
    words = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(words)]) if isinstance(node, ast.Name) else None


def _module_of(path):
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_mirror(test, path):
    """Whether the folder of a test file mirrors that of another file: tests/a/b and dnnc/a/b."""
    tests, folder = Path(test).parent.parts, Path(path).parent.parts
    return len(folder) > 1 and tests[:1] == ("tests",) and tests[1:] == folder[1:]
