"""A docstring's first words say what is returned or done; they don't lean on the name above."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "demo", "dnnc", "docs", "examples", "tests")

# Beginnings that hide it: "What a kernel reads", "Of a tile", "Those of a row", "As `f`, of rows".
_AVOIDED = (
    r"(What|Of|Those|The same|With the same|As|By|And|But|So|Then|Also|Nor|Else|Whose|Before|After"
    r"|Not|Even)[\s,]"
)
# After a quotation mark: a file without it needs no parsing, which takes most of the time.
_QUOTED = re.compile(rf"[\"']\s*{_AVOIDED}")


def begins_badly(docstring):
    return re.match(_AVOIDED, docstring) is not None


def bad_docstrings(source):
    """(line, docstring) of a module, its classes and its functions, those that begin badly."""
    if not _QUOTED.search(source):
        return
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and (found := ast.get_docstring(node)):
            if begins_badly(found):
                yield node.body[0].lineno, found


def test_docstrings_begin_with_what_is_returned_or_done():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {found.splitlines()[0]}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, found in bad_docstrings(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def test_what_the_check_finds():
    source = (
        '"""Of a module."""\nclass A:\n    """Fits."""\n    def f(self):\n        """What it is."""'
    )
    found = [line for line, _ in bad_docstrings(source)]
    assert found == [1, 5]
    bad = [
        "What it is.", "Of a tile.", "Those, of a row.", "The same in f32.", "As `run`, of rows.",
        "By one thread.", "And none twice.", "Before the first step.", "With the same rows.",
    ]  # fmt: skip
    good = [
        "Whatever fits.", "Offsets of a tile.", "The sameness of two.", "Bytes of a tile.",
        "By-value numbers.", "Ask for more.",
    ]  # fmt: skip
    assert [text for text in bad + good if begins_badly(text)] == bad
