"""`dnnc opt`: what lit does not see of it (test/lit runs its passes), and expected errors."""

import json
import re

import pytest

from dnnc import mlir
from dnnc.cli.diagnostics import Diagnostic, differences, expected_in

from .commands import FFN, dnnc, error_of

GOOD = """\
func.func @good(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp",
    operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
BAD = """\
func.func @bad(%x: tensor<4xf32>) {
  "dnn.nothing"(%x) : (tensor<4xf32>) -> ()
  return
}
"""


KERNELS = "fuse,select-engine,prepare-fusions,lower-to-linalg,tile,lower-to-kernels"


def test_parts_after_one_with_an_error_are_printed(here):
    (here / "g.mlir").write_text(f"{GOOD}// -----\n{BAD}// -----\n{GOOD}")
    result = dnnc("opt", "g.mlir", "--split-input-file")
    assert result.exit_code == 1
    assert [part.count("@good") for part in result.stdout.split("// -----\n")] == [1, 1]
    assert result.stderr.startswith("error: g.mlir:8:3: unregistered operation 'dnn.nothing'")


def test_without_splitting_the_separator_is_a_comment(here):
    (here / "g.mlir").write_text(f"{GOOD}// -----\n{GOOD.replace('good', 'other')}")
    result = dnnc("opt", "g.mlir")
    assert result.exit_code == 0
    assert "@other" in result.stdout


def test_what_it_prints_it_reads(ffn):
    """The stages one by one, each by a command of its own, end where one command does."""
    once = dnnc("opt", ffn, "-p", KERNELS)
    text = dnnc("opt", ffn).stdout
    for name in KERNELS.split(","):
        text = dnnc("opt", "-", "-p", name, stdin=text).stdout
    assert text == once.stdout


def test_compile_runs_the_passes_that_it_lists(ffn):
    listed = dnnc("opt", "--list-passes").stdout
    (pipeline,) = [line.strip() for line in listed.splitlines() if "," in line.split(" ")[-1]]
    assert pipeline.startswith(KERNELS)
    by_passes = dnnc("opt", ffn, "-t", "sm_80", "-p", pipeline).stdout
    assert by_passes == dnnc("compile", ffn, "-t", "sm_80", "--emit", "nvvm").stdout


def test_the_target_decides(ffn):
    for name in ("sm_80", "sm_120"):
        result = dnnc("opt", ffn, "-t", name, "-p", KERNELS)
        assert f'chip = "{name}"' in result.stdout
    assert error_of(dnnc("opt", ffn, "-t", "sm_70")).startswith("NOT_SUPPORTED_ARCH_MISMATCH")


@pytest.mark.parametrize("pipeline", ["fuse,select-engine", KERNELS])
def test_what_it_makes_for_no_target_is_compiled(pipeline, ffn, here):
    """Each pass takes sm_90a then, of which the text says nothing."""
    (here / "made.mlir").write_text(dnnc("opt", ffn, "-p", pipeline).stdout)
    made = dnnc("compile", "made.mlir", "--emit", "ptx")
    wanted = dnnc("compile", ffn, "-t", "sm_90a", "--emit", "ptx")
    assert made.exit_code == 0, made.stderr
    assert ".target sm_90a" in made.stdout
    assert code_of(made.stdout) == code_of(wanted.stdout)


def code_of(text):
    """The lines of PTX that are no comments, without the places of the file."""
    code = text.partition("// host")[0]
    lines = [line.partition("//")[0].rstrip() for line in code.splitlines()]
    return [line for line in lines if line and not re.match(r"\s*\.(loc|file)\b", line)]


def test_a_device_is_a_target_too(ffn, here):
    device = {
        "dnnc_device": 1,
        "name": "part",
        "capability": [9, 0],
        "max_dynamic_smem_bytes": 232448,
    }
    passes = ("-p", "fuse,select-engine")
    knobs = {}
    for sm_count in (16, 132):
        (here / "device.json").write_text(json.dumps({**device, "sm_count": sm_count}))
        result = dnnc("opt", ffn, "-t", "device.json", *passes)
        assert 'dnn.target = "sm_90a"' in result.stdout, result.output
        knobs[sm_count] = re.search("dnn.knobs = {.*?}", result.stdout).group()
    assert knobs[16] != knobs[132]  # it is ranked for the SMs that there are
    by_option = dnnc("opt", ffn, "-t", "sm_90a", "-p", "fuse,select-engine{sm_count=16}")
    assert knobs[16] in by_option.stdout
    assert "a number" in error_of(dnnc("opt", ffn, "-p", "fuse{sm_count=many}"))
    assert "accepted: one: --target NAME" in error_of(dnnc("opt", ffn, "-t", "sm_80,sm_90"))


def test_what_a_graph_names_is_its_target(here):
    (here / "named.py").write_text(FFN.replace('"ffn", ', '"ffn", target="sm_90a", '))
    assert 'dnn.target = "sm_90a"' in dnnc("opt", "named.py").stdout
    assert 'dnn.target = "sm_80"' in dnnc("opt", "named.py", "-t", "sm_80").stdout


def test_modules_between_passes_go_to_stderr(ffn):
    quiet, loud = (
        dnnc("opt", ffn, "-p", "fuse"),
        dnnc("opt", ffn, "-p", "fuse", "--print-between-passes"),
    )
    assert loud.stdout == quiet.stdout
    assert loud.stderr.startswith("// ----- after fuse\n#map")
    assert quiet.stdout in loud.stderr + "\n"


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("no-such-pass", "pass 'no-such-pass': "),
        ("fuse{partition}", "option 'partition' of pass fuse; accepted: modes=..., partition=..."),
        ("verify{a=1}", "option 'a=1' of pass verify; accepted: no options"),
        ("fuse,select-engine{choices=pointwize}", "engine 'pointwize'; accepted: pointwise,"),
        ("fuse,select-engine{choices=fallback|fallback}", "choices for 2 fusions; accepted: for 1"),
        ("assign-workspace", "accepted: one at stage kernel, as lower-to-kernels makes it"),
        (
            "fuse,prepare-fusions,lower-to-linalg,tile",
            "@ffn_fusion0 has no dnn.engine; accepted: select-engine first",
        ),
        (
            "fuse,select-engine,lower-to-linalg",
            "@ffn_fusion0 has no dnn.prepared; accepted: prepare-fusions first",
        ),
    ],
)
def test_pipelines_that_can_not_be(pipeline, said, ffn):
    assert said in error_of(dnnc("opt", ffn, "-p", pipeline))


def test_graph_files_of_other_kinds(here):
    (here / "g.py").write_text(FFN)
    (here / "g.json").write_text(dnnc("inspect", "g.py", "--graph").stdout)
    assert dnnc("opt", "g.json").stdout == dnnc("opt", "g.py").stdout


# ---- expected errors


def test_where_expected_errors_are():
    lines = (
        "a // expected-error {{one}}",
        "// expected-error@+2 {{two}}",
        "",
        "b",
        "// expected-error@-1{{three}}",
    )
    wanted = [Diagnostic(1, "one"), Diagnostic(4, "two"), Diagnostic(4, "three")]
    assert expected_in("\n".join(lines)) == wanted


@pytest.mark.parametrize(
    ("expected", "actual", "wrong"),
    [
        ([], [], []),
        ([(1, "is odd")], [(1, "3 is odd")], []),
        ([(1, "is odd")], [(2, "3 is odd")], ["expected error", "unexpected error"]),
        ([(1, "is odd")], [(1, "3 is even")], ["expected error", "unexpected error"]),
        ([(1, "a"), (1, "a")], [(1, "a")], ["expected error"]),
        ([(1, "a")], [(1, "a"), (1, "a")], ["unexpected error"]),
    ],
)
def test_differences(expected, actual, wrong):
    found = differences([Diagnostic(*e) for e in expected], [Diagnostic(*a) for a in actual])
    assert [" ".join(d.text.split()[:2]).rstrip(":") for d in found] == wrong


def test_the_dialect_in_irdl_loads_elsewhere():
    """Where nothing else knows the dialect, a text parses, and operands are counted."""
    said = dnnc("opt", "--print-irdl")
    assert said.exit_code == 0
    square = "tensor<4x4xf32, #dnn.layout<affine_map<() -> (4, 4, 4, 1)>>>"
    text = f"""
        func.func @f(%x: {square}, %y: {square}) -> {square} {{
          %0 = "dnn.matmul"(%x, %y) {{compute_type = f32}} : ({square}, {square}) -> {square}
          return %0 : {square}
        }}"""
    with mlir.context():
        with pytest.raises(mlir.ir.MLIRError, match="dnn"):
            mlir.ir.Module.parse(text)
        mlir._load("dialects.irdl").load_dialects(mlir.ir.Module.parse(said.stdout))
        assert '"dnn.matmul"(%arg0, %arg1)' in str(mlir.ir.Module.parse(text))
        with pytest.raises(mlir.ir.MLIRError, match="expects exactly 2 operands"):
            mlir.ir.Module.parse(text.replace("%x, %y)", "%x)").replace(f"({square}, ", "("))


def test_locations_and_the_generic_form_are_printed_as_by_mlir_opt_and_read_again(ffn):
    lowered = ("-p", "fuse,select-engine,prepare-fusions,lower-to-linalg")
    plain = dnnc("opt", ffn, *lowered).stdout
    made = dnnc("opt", ffn, *lowered, "--mlir-print-debuginfo", "--mlir-print-op-generic").stdout
    assert '"linalg.generic"(' in made
    assert re.search(r'loc\("(pointwise|matmul)', made)
    assert "loc(" not in plain
    assert dnnc("opt", "-", stdin=made).stdout == plain
