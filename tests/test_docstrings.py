"""A docstring's first words say what is returned or done; they don't lean on the name above."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Beginnings that hide it: "What a kernel reads", "Of a tile", "Those of a row", "The same of f16".
AVOIDED = ("What", "Of", "Those", "The same")


def begins_badly(docstring):
    return any(docstring.startswith((f"{words} ", f"{words},")) for words in AVOIDED)


def docstrings(source):
    """(line, docstring) of a module, its classes and its functions."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and (found := ast.get_docstring(node)):
            yield node.body[0].lineno, found


def test_docstrings_begin_with_what_is_returned_or_done():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {found.splitlines()[0]}"
        for path in sorted((ROOT / "dnnc").rglob("*.py"))
        for line, found in docstrings(path.read_text())
        if begins_badly(found)
    ]
    assert not wrong, "\n".join(wrong)


def test_what_the_check_finds():
    source = (
        '"""Of a module."""\nclass A:\n    """Fits."""\n    def f(self):\n        """What it is."""'
    )
    found = [line for line, text in docstrings(source) if begins_badly(text)]
    assert found == [1, 5]
    bad = ["What it is.", "Of a tile.", "Those, of a row.", "The same in f32."]
    good = ["Whatever fits.", "Offsets of a tile.", "The sameness of two.", "Bytes of a tile."]
    assert [text for text in bad + good if begins_badly(text)] == bad
