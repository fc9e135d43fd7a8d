"""The text of headers and sources: strict C99, C++, names, determinism, what is refused."""

import dataclasses
import os
import subprocess
import sys

import pytest

import dnnc
from dnnc.emit import c_text, names, write_c
from dnnc.emit.header import number
from dnnc.errors import DnncError, Status
from dnnc.plan.plan import Arg, Symbol, TensorRecord
from tests.plan.plans import TILED, WHOLE

from . import c_compiler


def includes():
    """cuda.h of CUDA, where the package that has it is installed, and of the tests."""
    missing = pytest.mark.skipif(
        c_compiler.cuda_include() is None, reason="nvidia-cuda-runtime is not installed: no cuda.h"
    )
    return [
        pytest.param(c_compiler.cuda_include(), id="cuda", marks=missing),
        pytest.param(c_compiler.OWN_INCLUDE, id="tests"),
    ]


@pytest.mark.parametrize("folder", includes())
def test_strict_c99_and_a_header_of_cpp(folder, tmp_path):
    header, source = write_c(tmp_path / "whole", WHOLE)
    for level in ("-O0", "-O2"):
        c_compiler.c(level, "-Wshadow", "-c", source, "-o", tmp_path / "whole.o", folder=folder)
    user = tmp_path / "user.cpp"
    user.write_text(f'#include "{header.name}"\nint main() {{ return WHOLE_SUCCESS; }}\n')
    c_compiler.cpp("-c", user, "-o", tmp_path / "user.o", folder=folder)
    c_compiler.cpp("-x", "c++", "-c", source, "-o", tmp_path / "as_cpp.o", folder=folder)


@pytest.mark.parametrize("standard", ["-std=c11", "-std=c17", "-std=gnu99"])
def test_later_standards(standard, tmp_path):
    _, source = write_c(tmp_path / "whole", WHOLE)
    options = (standard, *c_compiler.STRICT[1:])
    c_compiler.c("-c", source, "-o", tmp_path / "whole.o", options=options)


def test_the_header_says_what_tensors_are():
    header, _ = c_text(WHOLE, "whole")
    assert "input 'x' (uid 1): bf16 [M, 64], strides [64, 1], aligned to 16 bytes" in header
    assert "output 'y' (uid 2): bf16 [M, 64], strides [64, 1], aligned to 32 bytes" in header
    assert "number 's' (uid 3), f32" in header
    assert "size M: 1 to 4096, a multiple of 8" in header
    assert "its address on the device of rank 1" in header
    assert "#define WHOLE_DEFAULT_S 0.5f" in header


def test_equal_plans_have_equal_text(tmp_path):
    code = "from tests.plan.plans import WHOLE\nfrom dnnc.emit import c_text\nimport sys\n"
    code += "sys.stdout.write(''.join(c_text(WHOLE, 'whole')))"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert done.stdout == "".join(c_text(WHOLE, "whole"))


# ---- files


@pytest.mark.parametrize("path", ["net", "net.c", "net.h"])
def test_names_of_files(path, tmp_path):
    assert dnnc.write_c(tmp_path / path, WHOLE) == (tmp_path / "net.h", tmp_path / "net.c")
    assert '#include "net.h"' in (tmp_path / "net.c").read_text()
    assert "net_error_t net_load(net_t **out);" in (tmp_path / "net.h").read_text()


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("ffn", "ffn"),
        ("my-net.v2", "my_net_v2"),
        ("2nd", "dnnc_2nd"),
        ("_x", "dnnc_x"),
        ("size", "size_plan"),
        ("uint8", "uint8_plan"),
        ("cuda", "cuda_plan"),
        ("int", "int_plan"),
        ("größe", "gr__e"),
    ],
)
def test_prefixes(name, prefix, tmp_path):
    assert names.prefix(name) == prefix
    _, source = write_c(tmp_path / name, WHOLE)
    assert source.name == f"{prefix}.c"
    c_compiler.c("-c", source, "-o", tmp_path / "made.o")


@pytest.mark.parametrize("path", [3, None])
def test_what_is_no_path(path):
    with pytest.raises(DnncError, match="a path, then a plan"):
        dnnc.write_c(path, WHOLE)


def test_what_can_not_be_written(tmp_path):
    with pytest.raises(DnncError, match="can't be written"):
        dnnc.write_c(tmp_path / "no" / "folder", WHOLE)
    with pytest.raises(DnncError, match="a path with a name"):
        dnnc.write_c("", WHOLE)
    with pytest.raises(DnncError, match="a path, then a plan"):
        dnnc.write_c(tmp_path / "net", "plan")


def test_an_output_that_is_read_says_so(tmp_path):
    x, y, *others = WHOLE.tensors
    read = dataclasses.replace(y, prior=7)
    header, _ = write_c(tmp_path / "net", dataclasses.replace(WHOLE, tensors=(x, read, *others)))
    assert "/* output whose contents are read first 'y' (uid 2): bf16 [M, 64]" in header.read_text()


# ---- names of arguments


def named(tensors, symbols=()):
    """A plan whose tensors and symbols have these names."""
    records = tuple(
        TensorRecord(uid, name, ("8",), ("1",), "f32", "input" if uid > 1 else "output")
        for uid, name in enumerate(tensors, 1)
    )
    symbols = tuple(Symbol(name, 1, 9, 1) for name in symbols)
    return dataclasses.replace(
        WHOLE, name="net", tensors=records, symbols=symbols, programs=WHOLE.programs[1:],
        may_alias=(),
    )  # fmt: skip


STRANGE = [
    "x", "x", "X", "x_1", "", "int", "class", "NULL", "a/b.c", "9", "*/ #error", "workspace",
    "plan", "args", "stream", "CUdevice", "INT64_MAX", "naïve", "_y", "__line__", "M", "error",
    'say "hi"??/', "line\nbreak", "$load", "sizes", "s", "out",
]  # fmt: skip


def test_any_names_make_a_struct(tmp_path):
    symbols = ("M", "m", "x", "if", "plan", "s", "out", "sizes", "error", "bytes", "spans")
    plan = named(STRANGE, symbols)
    variant = plan.programs[0].variants[0]
    steps = variant.steps
    guard = " and ".join(f"{name} <= 8" for name in symbols)
    program = dataclasses.replace(
        plan.programs[0],
        variants=(dataclasses.replace(variant, guard=guard, steps=steps),),
    )
    plan = dataclasses.replace(plan, programs=(program,))
    header, source = write_c(tmp_path / "net", plan)
    c_compiler.c("-Wshadow", "-c", source, "-o", tmp_path / "net.o")
    user = tmp_path / "user.cpp"
    user.write_text(f'#include "{header.name}"\nint main() {{ return NET_SUCCESS; }}\n')
    c_compiler.cpp("-c", user, "-o", tmp_path / "user.o")


def test_equal_names_are_told_apart():
    from dnnc.emit import Interface

    found = {a.name: (a.tensor and a.tensor.uid) for a in Interface(
        named(["x", "x", "X", "x_1", "M"], ["M"]), "net").arguments}  # fmt: skip
    assert found == {"x_1_": 1, "x_2": 2, "X": 3, "x_1": 4, "M_5": 5, "M": None}


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (0.5, "float", "0.5f"),
        (-0.1, "double", "(-0.1)"),
        (3.0, "int64_t", "3"),
        (-3.0, "int32_t", "(-3)"),
        (float("-inf"), "float", "(-INFINITY)"),
        (1e-300, "double", "1e-300"),
    ],
)
def test_values_of_numbers(value, type_, text):
    assert number(value, type_) == text


def test_an_infinite_value_compiles(tmp_path):
    tensors = (*WHOLE.tensors[:2], dataclasses.replace(WHOLE.tensors[2], value=float("-inf")))
    write_c(tmp_path / "net", dataclasses.replace(WHOLE, tensors=tensors))
    user = tmp_path / "user.c"
    user.write_text('#include "net.h"\nfloat f(void);\nfloat f(void) { return NET_DEFAULT_S; }\n')
    c_compiler.c("-c", user, "-o", tmp_path / "user.o")


# ---- what has no form in C


def with_arg(arg, **changes):
    plan = dataclasses.replace(WHOLE, **changes)
    variant = plan.programs[1].variants[0]
    launch = dataclasses.replace(variant.steps[0].launch, args=(arg,))
    step = dataclasses.replace(variant.steps[0], launch=launch)
    variant = dataclasses.replace(variant, steps=(step,))
    program = dataclasses.replace(plan.programs[1], variants=(variant,))
    return dataclasses.replace(plan, programs=(program,))


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (dataclasses.replace(WHOLE, tensors=()), "has no tensors"),
        (with_arg(Arg.by_value(3, "f16")), "a number of type f32 that a kernel takes as f16"),
        (with_arg(Arg.pointer(-1)), "no tensor has uid -1"),
        (with_arg(Arg.pointer(3)), "the address of by-value tensor 3"),
        (with_arg(Arg("sound")), "argument kind 'sound'"),
        (
            with_arg(Arg("tensor_map", tensor_map=dataclasses.replace(TILED, dtype="i1"))),
            "a tensor map of i1",
        ),
        (
            with_arg(Arg("tensor_map", tensor_map=dataclasses.replace(TILED, mode="round"))),
            "map mode 'round'",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals(plan, said, tmp_path):
    with pytest.raises(DnncError, match=said):
        write_c(tmp_path / "net", plan)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_has_a_status():
    with pytest.raises(DnncError) as caught:
        c_text(with_arg(Arg.by_value(3, "f16")), "net")
    assert caught.value.status is Status.NOT_SUPPORTED_DATA_TYPE
