"""Errors and locations name the file, line and column of the text or program that was given."""

import re

import pytest

from .commands import FFN, dnnc, error_of

TWO = """\
func.func @one(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp",
    operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
OTHER = """
func.func @other() { return }
"""


def place_in(text, operation, beside=""):
    """line:column of the first operation of these words, on a line that has others beside it."""
    for number, line in enumerate(text.splitlines(), 1):
        at = line.find(operation)
        if at >= 0 and beside in line:
            return f"{number}:{at + 1}"
    raise AssertionError(f"no {operation}")


@pytest.fixture
def texts(ffn):
    """Stage -> the text of a product with a bias and an activation at it."""
    stages = ("graph", "fused", "linalg", "ptx")
    return {stage: dnnc("compile", ffn, "-t", "sm_80", "--emit", stage).stdout for stage in stages}


def test_a_verifiers_error_is_at_the_operation(here):
    (here / "models").mkdir()
    for rest in ("", OTHER):
        bad = TWO.replace('"exp"', '"nothing"') + rest
        (here / "models/g.mlir").write_text(bad)
        at = place_in(bad, '"dnn.pointwise"')
        said = dnnc("opt", "models/g.mlir").stderr
        assert said.startswith(f"error: models/g.mlir:{at}: 'dnn.pointwise' op BAD_PARAM: "), said
        said = error_of(dnnc("compile", "models/g.mlir"))
        assert said.startswith(f"BAD_PARAM: g.mlir:{at}: not a valid module: 'dnn.pointwise'")
        assert dnnc("opt", "-", stdin=bad).stderr.startswith(f"error: stdin:{at}: ")


def test_the_line_itself_is_shown(here):
    (here / "g.mlir").write_text(TWO.replace('"exp"', '"nothing"'))
    said = dnnc("compile", "g.mlir").stderr
    assert '  g.mlir:2:8: %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "nothing",' in said


def test_debug_information_names_the_file(here):
    (here / "g.mlir").write_text(TWO + OTHER)
    printed = dnnc("opt", "g.mlir", "--mlir-print-debuginfo").stdout
    assert 'loc("g.mlir":2:8)' in printed
    assert 'loc("g.mlir":1:16)' in printed  # the argument
    assert '"-"' not in printed
    steps = "fuse,select-engine,prepare-fusions,lower-to-linalg,tile"
    later = dnnc("opt", "g.mlir", "-p", steps, "-t", "sm_80", "--mlir-print-debuginfo").stdout
    (body,) = re.findall(r"math.exp .* loc\((#loc\d*)\)", later)
    (name,) = re.findall(rf'^{body} = loc\("pointwise:exp"\((#loc\d*)\)\)', later, re.MULTILINE)
    assert f'{name} = loc("g.mlir":2:8)' in later


def test_debug_information_names_the_line_of_a_program(here):
    (here / "g.py").write_text(FFN)
    line = next(n for n, code in enumerate(FFN.splitlines(), 1) if ".matmul(" in code)
    printed = dnnc("opt", "g.py", "--mlir-print-debuginfo").stdout
    assert f'{here / "g.py"}":{line}:0)' in printed


def test_locations_of_a_text_are_its_own(here):
    """Errors are at the places that debug information in the text names, maybe of another file."""
    named = TWO.replace("-> tensor<4xf32>\n  return", '-> tensor<4xf32> loc("a.py":7:2)\n  return')
    (here / "g.mlir").write_text(named)
    assert 'loc("a.py":7:2)' in dnnc("opt", "g.mlir", "--mlir-print-debuginfo").stdout
    (here / "g.mlir").write_text(named.replace('"exp"', '"nothing"'))
    assert dnnc("opt", "g.mlir").stderr.startswith("error: a.py:7:2: 'dnn.pointwise' op")


def test_a_fusion_that_an_engine_declines_is_at_its_operation(here, texts):
    (here / "g.mlir").write_text(texts["graph"])
    at = place_in(texts["graph"], '"dnn.matmul"')
    said = dnnc("opt", "g.mlir", "-p", "fuse,select-engine{choices=transpose}").stderr
    assert said.startswith(f"error: g.mlir:{at}: NOT_SUPPORTED"), said
    said = error_of(dnnc("compile", "g.mlir", "--engine", "transpose"))
    assert re.match(rf"NOT_SUPPORTED\w*: g.mlir:{at}: ", said), said


def test_a_part_of_a_split_file_is_at_its_line(here):
    (here / "g.mlir").write_text(f"{TWO}// -----\n{TWO}")
    said = dnnc(
        "opt", "g.mlir", "--split-input-file", "-p", "fuse,select-engine{choices=conv_sm80}"
    )
    assert [line.split(": ")[1] for line in said.stderr.splitlines()] == [
        "g.mlir:2:8",
        "g.mlir:8:8",
    ]


@pytest.mark.parametrize(
    ("stage", "found", "put", "operation"),
    [
        ("fused", 'role = "anchor"', 'role = "anchor", strange = 1', '"dnn.matmul"'),
        ("linalg", "fma %4, %5, %out", "fma %4, %4, %out", "math.fma"),
        ("linalg", "dnn.tile = {", "dnn.tile = {strange = 1, ", "func.func private"),
        ("linalg", "dnn.engine = ", "dnn.strange = ", "func.func private"),
        ("ptx", "compute_type = f32", "compute_type = f32, strange = 1", '"dnn.matmul"'),
    ],
)
def test_an_edit_that_is_refused_is_at_its_operation(stage, found, put, operation, here, texts):
    assert found in texts[stage], texts[stage]
    edited = texts[stage].replace(found, put, 1)
    name = "g.ptx" if stage == "ptx" else "g.mlir"
    (here / name).write_text(edited)
    at = place_in(edited, operation, put)
    said = error_of(dnnc("compile", name))
    assert re.match(rf"BAD_PARAM: {name}:{at}: ", said), (at, said)
    if stage != "ptx":
        assert dnnc("opt", name).stderr.startswith(f"error: {name}:{at}: ")
