"""Graph files that are wrong, each an error that names the file and what would be accepted."""

import re
from pathlib import Path

import pytest

from .commands import FFN, dnnc, error_of

NO_BUILD = "a function build() that returns a dnnc.pygraph when it is called without arguments"

PYTHON = {
    "no build()": ("import dnnc\n", f"BAD_PARAM: g.py: no function build(); accepted: {NO_BUILD}"),
    "build() with arguments": (
        "def build(m):\n    pass\n",
        "BAD_PARAM: g.py: TypeError: build() missing 1 required positional argument: 'm'",
    ),
    "build() that returns nothing": (
        "def build():\n    pass\n",
        "BAD_PARAM: g.py: build(): a NoneType; accepted: a pygraph,",
    ),
    "an exception": (
        "def build():\n    return 1 / 0\n",
        f"BAD_PARAM: g.py:2: ZeroDivisionError: division by zero; accepted: {NO_BUILD}",
    ),
    "a syntax error": ("\ndef build(:\n", "BAD_PARAM: g.py:2: SyntaxError: invalid syntax"),
    "a keyword that no method has": (
        FFN.replace('name="mm"', 'nam="mm"'),
        "BAD_PARAM: g.py:11: TypeError: pygraph.matmul() has no keyword 'nam' (did you mean "
        "'name'?); accepted: A, B, compute_data_type, name",
    ),
    "a bad argument": (
        FFN.replace("[1, M, hidden]", "[1, 1.5, hidden]"),
        "BAD_PARAM: g.py:9: tensor 'x': a dim of 1.5; accepted: an integer or a dnnc.Dim",
    ),
    "what only the whole graph shows": (
        FFN.replace("    return g", "    g.tensor([2], uid=3), g.tensor([2], uid=3)\n    return g"),
        "BAD_PARAM_DUPLICATED_ENTRIES: g.py:12: tensor with uid 3: uid 3 is also that of ''",
    ),
    "a graph that is wrong": (
        FFN.replace("g.tensor([1, hidden, inner]", "g.tensor([1, 3, inner]"),
        "BAD_PARAM_SHAPE_MISMATCH: g.py:11: matmul 'mm' (C2) of A 'x' [1, M, 64], B 'w' "
        "[1, 3, 128]: K of A is 64, K of B is 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PYTHON)
def test_python(case, here):
    text, said = PYTHON[case]
    (here / "g.py").write_text(text)
    result = dnnc("inspect", "g.py")
    assert error_of(result).startswith(said)
    if found := re.search(r"g\.py:(\d+)", said):
        code = text.splitlines()[int(found[1]) - 1].strip()
        assert f"\n  g.py:{found[1]}: {code}\n" in result.stderr


def test_the_line_of_a_file_that_a_python_file_imports(here):
    """The innermost of the user's own functions, wherever it is."""
    (here / "parts").mkdir()
    (here / "parts" / "layer.py").write_text(
        "def layer(g, x):\n    w = g.tensor([1, 3, 128], name='w')\n    return g.matmul(x, w)\n"
    )
    text = FFN.replace("import dnnc\n", "import dnnc\nfrom parts.layer import layer\n")
    (here / "g.py").write_text(text.replace('g.matmul(x, w, name="mm")', "layer(g, x)"))
    result = dnnc("inspect", "g.py")
    assert error_of(result).startswith("BAD_PARAM_SHAPE_MISMATCH: layer.py:3: matmul (C2) of A 'x'")
    assert result.stderr.endswith(f"\n  {Path('parts/layer.py')}:3: return g.matmul(x, w)\n")


def test_a_python_file_may_import_what_lies_beside_it(here):
    (here / "sizes_beside.py").write_text("HIDDEN = 32\n")
    text = FFN.replace("import dnnc\n", "import dnnc\nfrom sizes_beside import HIDDEN\n")
    (here / "g.py").write_text(text.replace("hidden=64", "hidden=HIDDEN"))
    assert "[1, M, 32]" in dnnc("inspect", "g.py").stdout


def test_a_pygraphs_target_is_the_default(here):
    (here / "g.py").write_text(FFN.replace('"ffn",', '"ffn", target="sm_86",'))
    assert 'dnn.target = "sm_86"' in dnnc("compile", "g.py", "--emit", "graph").stdout


JSON = {
    "": "BAD_PARAM: g.json: not JSON: Expecting value",
    "[]": "BAD_PARAM: g.json: graph JSON: graph: []; accepted: an object",
    '{"dnnc_graph": 2}': "BAD_PARAM: g.json: graph JSON: graph: dnnc_graph = 2; accepted: 1",
    '{"dnnc_graph": 1, "symbols": [], "tensors": [], "ops": [{"op": "fft"}]}': (
        "BAD_PARAM: g.json: graph JSON: op: op = 'fft'; accepted: matmul,"
    ),
}


@pytest.mark.parametrize("text", JSON)
def test_json(text, here):
    (here / "g.json").write_text(text)
    assert error_of(dnnc("engines", "g.json")).startswith(JSON[text])


MLIR = {
    "func.func @f( {": "BAD_PARAM: g.mlir:1:14: not a valid module: expected",
    "": "BAD_PARAM: g.mlir: 0 functions with dnn.graph; accepted: one func.func of them",
    '\n\nfunc.func @f(%x: tensor<2xf32>) {\n  "dnn.reshape"(%x) {reshape_mode = "LOGICAL"} : '
    "(tensor<2xf32>) -> tensor<3xf32>\n  return\n}": (
        "BAD_PARAM: g.mlir:4:3: not a valid module: 'dnn.reshape' op "
        "BAD_PARAM_SHAPE_MISMATCH: reshape (C1): [2] has 2 elements, [3] has 3"
    ),
}


@pytest.mark.parametrize("text", MLIR)
def test_mlir(text, here):
    (here / "g.mlir").write_text(text)
    assert error_of(dnnc("compile", "g.mlir")).startswith(MLIR[text])


@pytest.mark.parametrize(
    ("command", "name", "said"),
    [
        ("compile", "g.onnx", "suffix '.onnx'; accepted: .mlir, .ptx, .json, .py"),
        ("engines", "g", "suffix ''; accepted: .mlir, .ptx, .json, .py"),
        ("run", "g.npz", "suffix '.npz'; accepted: .dnnplan, .mlir, .ptx, .json, .py"),
        ("inspect", "g.txt", "suffix '.txt'; accepted: .dnnplan, .cubin, .mlir, .ptx, .json, .py"),
        ("opt", "g.ptx", "suffix '.ptx'; accepted: .mlir, .json, .py"),
    ],
)
def test_other_suffixes(command, name, said, here):
    assert error_of(dnnc(command, name)) == f"BAD_PARAM: {name}: {said}"


@pytest.mark.parametrize("name", ["g.py", "g.json", "g.mlir", "g.dnnplan", "g.cubin"])
def test_files_that_are_not_there(name, here):
    said = error_of(dnnc("inspect", name))
    assert said.startswith(f"BAD_PARAM: {name}: can't be read: No such file or directory")
    (here / name).mkdir()
    assert "Is a directory" in error_of(dnnc("inspect", name))


def test_bytes_that_are_no_text(here):
    (here / "g.mlir").write_bytes(b"\xff\xfe\x00")
    said = error_of(dnnc("inspect", "g.mlir"))
    assert (
        said
        == "BAD_PARAM: g.mlir: can't be read: not UTF-8 text; accepted: a text file that exists"
    )
