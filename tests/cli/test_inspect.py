"""`dnnc inspect`: plans, bundles, stages, cubins; and files that are truncated or altered."""

import json
import sys

import pytest

from dnnc import tools
from dnnc.plan import format
from tests.plan.plans import WHOLE

from .commands import SPLIT, dnnc, error_of

# ---- plans


def test_a_plan(plan):
    result = dnnc("inspect", plan)
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "plan 'ffn'" in lines
    assert "size M: 1 to 4096" in lines
    assert "1 x input f16 [1, M, 64] [M*64, 64, 1] 16 B" in lines
    assert "6 y output f16 [1, M, 128] [M*128, 128, 1] 16 B" in lines
    rule = (
        "program sm_80: cubin for compute capability 8.0 and later 8.x; PTX for later architectures"
    )
    assert rule in lines
    assert "program sm_90a: cubin for compute capability 9.0 alone" in lines
    assert "variant 0 for any size: workspace 0 B" in lines
    kernel = format.read(plan).programs[0].kernels[0]
    assert f"{kernel.name} {kernel.threads} {kernel.registers} 0 B 0 B 0 B 0 B" in lines
    fusion = next(line for line in lines if line.startswith("0 any matmul_sm80 (4)"))
    assert "TILE_M=" in fusion
    assert "TENSOR_CORE" in fusion
    assert fusion.endswith("matmul 'mm', pointwise:add, pointwise:relu_fwd")


def test_one_target_of_a_plan(plan):
    result = dnnc("inspect", plan, "--target", "sm_90a")
    assert "program sm_90a" in result.stdout
    assert "program sm_80" not in result.stdout
    said = error_of(dnnc("inspect", plan, "--target", "sm_120"))
    assert said == (
        "NOT_SUPPORTED_ARCH_MISMATCH: plan 'ffn': the plan has no code for sm_120; "
        "accepted: sm_80, sm_90a"
    )


def test_everything_that_a_plan_may_hold(here):
    format.write("whole.dnnplan", WHOLE)
    lines = [
        " ".join(line.split()) for line in dnnc("inspect", "whole.dnnplan").stdout.splitlines()
    ]
    assert "size M: 1 to 4096, a multiple of 8" in lines
    assert "in place output uid 2 may be the buffer of input uid 1" in lines
    assert "3 s input f32 [1] [1] by value 0.5" in lines
    assert "variant 0 for M <= 64: workspace 0 B" in lines
    assert "variant 1 for other sizes: workspace M*256 + N*401408 + 512 B" in lines
    assert "step 0 M*4 B of 0 at &workspace + 256" in lines
    assert "split no engine takes the graph as one fusion" in lines
    main = next(line for line in lines if "main cooperative programmatic" in line)
    assert "[ceildiv(M, 128)*sm_count, 1, 2] [384, 1, 1] [2, 1, 1]" in main
    assert (
        "step 1 tiled map of x, im2col map of workspace, &y + M*2, &workspace + 256, "
        "&y of rank 1, i32 M*64, i64 magic(M), f32 s, bytes"
    ) in lines


def test_a_bundle(plan, folder, here):
    (here / "twice.py").write_text(SPLIT)
    assert dnnc("compile", "twice.py", "-t", "sm_80").exit_code == 0
    format.write("both.dnnplan", [format.read(plan), format.read("twice.dnnplan")])
    lines = [" ".join(line.split()) for line in dnnc("inspect", "both.dnnplan").stdout.splitlines()]
    assert lines[0] == "bundle of 2 plans (--plan NAME shows one)"
    assert lines[2].startswith("ffn sm_80,sm_90a x, w, b y ")
    assert lines[3].startswith("twice sm_80 x, w y ")
    one = dnnc("inspect", "both.dnnplan", "--plan", "twice").stdout
    assert "plan 'twice'" in one
    assert "workspace 256 B" in one
    assert "fusion0_" in one
    said = error_of(dnnc("inspect", "both.dnnplan", "--plan", "thrice"))
    assert "no plan 'thrice'; accepted: one of ffn, twice" in said
    assert "2 plans, and no name" in error_of(dnnc("inspect", "both.dnnplan", "--ptx"))


def test_its_parts(plan):
    made = format.read(plan)
    assert json.loads(dnnc("inspect", plan, "--graph").stdout) == made.graph
    assert json.loads(dnnc("inspect", plan, "--json").stdout)["key"] == made.key
    one = dnnc("inspect", plan, "--ptx", "--target", "sm_90a").stdout
    assert one == made.blobs[3].decode()
    both = dnnc("inspect", plan, "--ptx").stdout
    assert both.count(".visible .entry") == 2
    assert both.startswith("// ----- sm_80\n")
    assert dnnc("inspect", plan, "--ptx", "--json").exit_code == 2


# ---- machine code


def test_machine_code_without_a_disassembler(plan, monkeypatch):

    monkeypatch.setattr(tools, "nvidia_folders", list)
    monkeypatch.setenv("PATH", "")
    said = error_of(dnnc("inspect", plan, "--sass"))
    assert said.startswith("NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING: --sass: no disassembler")
    assert said.endswith("(or nvidia-cuda-cuobjdump, or the CUDA toolkit)")


def test_machine_code_with_one(plan, here, monkeypatch):
    """A stand-in for nvdisasm that prints the size of the file it is given."""

    tool = here / "nvdisasm"
    script = "import os, sys; print('SASS of', os.path.getsize(sys.argv[2]))"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{script}" $1 $2\n')
    tool.chmod(0o755)
    monkeypatch.setattr(tools, "nvidia_folders", list)
    monkeypatch.setenv("PATH", str(here), prepend=":")
    made = format.read(plan)
    result = dnnc("inspect", plan, "--sass", "-t", "sm_80")
    assert result.stdout == f"SASS of {len(made.blobs[0])}\n"
    (here / "x.cubin").write_bytes(made.blobs[2])
    assert dnnc("inspect", "x.cubin", "--sass").stdout == f"SASS of {len(made.blobs[2])}\n"


def test_a_cubin(plan, here):
    made = format.read(plan)
    (here / "x.cubin").write_bytes(made.blobs[0])
    stdout = dnnc("inspect", "x.cubin").stdout
    assert stdout.startswith(f"x.cubin: stage cubin, {len(made.blobs[0]):,} bytes\n")
    assert made.programs[0].kernels[0].name in stdout
    (here / "x.cubin").write_bytes(made.blobs[0][:1000])
    assert "not a cubin, or a truncated one" in error_of(dnnc("inspect", "x.cubin"))
    said = error_of(dnnc("inspect", "x.cubin", "--graph"))
    assert said == "BAD_PARAM: x.cubin: --graph of a cubin; accepted: a plan (.dnnplan)"


# ---- stages


@pytest.mark.parametrize(
    ("stage", "row"),
    [
        ("graph", "graph ffn "),
        ("fused", "fusion ffn_fusion0 "),
        ("linalg", "anchor ffn_fusion0_anchor0 "),
        ("kernel", "kernel fusion0_matmul_sm80 "),
        ("nvvm", "program 1 step: fusion0_matmul_sm80"),
        ("ptx", "kernel fusion0_matmul_sm80"),
    ],
)
def test_a_stage(stage, row, ffn, here):
    text = dnnc("compile", ffn, "--emit", stage, "-t", "sm_80").stdout
    name = "x.ptx" if stage == "ptx" else "x.mlir"
    (here / name).write_text(text)
    result = dnnc("inspect", name)
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == f"graph 'ffn' at stage {stage} for sm_80"
    assert "4 mm::C virtual f32 [1, M, 128] [M*128, 128, 1] 16 B" in lines
    assert "matmul 'mm' x, w mm::C f32" in lines
    assert any(line.startswith(row) for line in lines)


def test_parts_of_stages(ffn, here):
    text = dnnc("compile", ffn, "--emit", "ptx").stdout
    (here / "x.ptx").write_text(text)
    assert dnnc("inspect", "x.ptx", "--ptx").stdout == text.partition("//! ")[0]
    assert json.loads(dnnc("inspect", "x.ptx", "--graph").stdout)["name"] == "ffn"
    assert "--ptx of a file at stage graph" in error_of(dnnc("inspect", ffn, "--ptx"))
    assert "--sass of a file at stage graph" in error_of(dnnc("inspect", ffn, "--sass"))


# ---- broken files


def test_a_truncated_plan(plan, here):
    data = plan.read_bytes()
    for length in (0, 4, 12, 40, 60, len(data) // 2, len(data) - 1):
        (here / "cut.dnnplan").write_bytes(data[:length])
        said = error_of(dnnc("inspect", "cut.dnnplan"))
        assert said.startswith("BAD_PARAM: cut.dnnplan: truncated, altered or no plan: ")
        assert "; accepted: " in said


def test_an_altered_plan(plan, here):
    data = plan.read_bytes()
    for place in range(0, len(data), max(1, len(data) // 40)):
        altered = bytearray(data)
        altered[place] ^= 0x10
        (here / "bad.dnnplan").write_bytes(altered)
        said = error_of(dnnc("inspect", "bad.dnnplan"))
        assert said.startswith(("BAD_PARAM: bad.dnnplan: ", "SERIALIZATION_VERSION_MISMATCH: bad"))


def test_a_plan_of_a_later_format(plan, here):
    data = bytearray(plan.read_bytes())
    data[8] = 9
    (here / "later.dnnplan").write_bytes(data)
    assert error_of(dnnc("inspect", "later.dnnplan")) == (
        "SERIALIZATION_VERSION_MISMATCH: later.dnnplan: format version 9, flags 0; "
        "accepted: version 1, flags 0"
    )


def test_a_file_that_is_no_plan(here):
    (here / "no.dnnplan").write_bytes(b"PK\3\4 something else that is long enough for a header" * 2)
    said = error_of(dnnc("inspect", "no.dnnplan"))
    assert said.endswith("; accepted: a file that dnnc wrote")
