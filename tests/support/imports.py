"""Imports between the Python files of a repository, read from their text."""

import ast
import hashlib
import heapq
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

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


def _telling_nodes(tree):
    """The syntax nodes of a file that say what it uses, without what only type checkers read."""
    found, rest = [], [tree]
    for node in rest:
        if isinstance(node, _TELLING):
            found.append(node)
        for name, value in vars(node).items():
            if isinstance(value, list):
                if not (name == "body" and _is_for_types(node)):
                    rest += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                rest.append(value)
    return found


_TELLING = (ast.Import, ast.ImportFrom, ast.Attribute, ast.Constant, ast.Dict)
_LEAVES = (ast.expr_context, ast.operator, ast.Name)  # half of a million nodes


def _is_for_types(node):
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


class Uses(NamedTuple):
    """Names of others in one file.

    names: dotted, of import statements and of attributes.  texts: those that may be a module's
    name, in a package such as ".name".  pairs: of a package's dictionaries of texts.
    """

    names: list[str]
    texts: list[str]
    pairs: list[tuple[str, str]]


def uses_of(path, text):
    """The uses of a file.  path: below the repository's root; text: what is in it."""
    nodes = _telling_nodes(ast.parse(text))
    names = {name for name, _ in imported_modules(nodes, Path(path), Path())}
    names |= {_dotted(node) for node in nodes if isinstance(node, ast.Attribute)} - {None}
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    names = {name for name in names if name.split(".")[0] in FOLDERS}
    if not path.endswith("/__init__.py"):
        return Uses(sorted(names), sorted(t for t in texts if t.split(".")[0] in FOLDERS), [])
    package = _module_of(path)
    inside = {package + text for text in texts if text.startswith(".")}
    return Uses(sorted(names), sorted(inside), list(_pairs(nodes)))


def _pairs(nodes):
    for node in nodes:
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                    yield str(key.value), str(value.value)


class ImportGraph:
    """Which files below `root` import which.  Paths are relative to it, with slashes.

    A package's dictionary of names that are loaded when used, name -> module, counts for the files
    that use the name.  A text that is a module's name counts as an import of it, in a package one
    such as ".name".
    kept: a file for what was read, by hashes of texts and of this one: only changes are parsed.
    """

    def __init__(self, root, kept=None):
        self.root = root
        self.paths = sorted(
            path.relative_to(root).as_posix()
            for folder in FOLDERS
            for path in (root / folder).rglob("*.py")
        )
        self._by_module = {_module_of(path): path for path in self.paths}
        self._importers = defaultdict(dict)  # path -> file that imports it -> steps
        self._lazy = {}  # dotted name of a package's name -> module
        uses = self._read(kept)
        for path in self.paths:
            for name, value in uses[path].pairs:
                package = _module_of(path)
                for module in (value, f"{package}.{value}"):
                    if module in self._by_module:
                        self._lazy[f"{package}.{name}"] = module
        for path in self.paths:
            self._follow(path, uses[path])
            if path.endswith("/conftest.py"):
                below = path.removesuffix("conftest.py")
                tests = [p for p in self.paths if p.startswith(below) and p != path]
                self._importers[path].update(dict.fromkeys(tests, IMPLIED))

    def _read(self, kept):
        known = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
        own, found = Path(__file__).read_bytes(), {}
        for path in self.paths:
            text = (self.root / path).read_bytes()
            key = f"{path} {hashlib.sha256(own + text).hexdigest()}"
            found[key] = Uses(*known[key]) if key in known else uses_of(path, text.decode())
        if kept is not None and found.keys() != known.keys():
            kept.parent.mkdir(parents=True, exist_ok=True)
            whole = kept.with_name(f"{kept.name}.{os.getpid()}")
            whole.write_text(json.dumps(found))
            whole.replace(kept)
        return dict(zip(self.paths, found.values(), strict=True))

    def _follow(self, path, uses):
        for name in uses.names:
            self._add(path, name, 1)
        for name in {*uses.names, *uses.texts}:
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
