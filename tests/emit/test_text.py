"""The text of headers and sources: strict C99, C++, names, determinism, what is refused."""

import dataclasses
import os
import re
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


# ---- names that headers have


HEADERS = ("cuda.h", "math.h", "stddef.h", "stdint.h", "stdlib.h", "string.h")
# What users include beside them.
OTHERS = (
    *("assert.h", "complex.h", "ctype.h", "endian.h", "errno.h", "fcntl.h", "float.h"),
    *("inttypes.h", "limits.h", "locale.h", "pthread.h", "signal.h", "stdio.h", "sys/stat.h"),
    *("sys/types.h", "sys/wait.h", "time.h", "unistd.h", "wchar.h"),
)
KEYWORDS = """
    alignas alignof and asm auto bool break case catch char char8_t char16_t class compl concept
    const consteval constexpr constinit const_cast continue co_await decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new noexcept not nullptr operator or private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast
    struct switch template this thread_local throw true try typedef typeid typename typeof union
    unsigned using virtual void volatile wchar_t while xor xor_eq _Bool _Complex _Generic _Atomic
    int64_t size_t CUdeviceptr CUstream RAND_MAX BIG_ENDIAN WNOHANG INFINITY NAN
    check_sizes workspace_0 run_0 codes spans launch outside args sizes s error net_run net_t
""".split()


def preprocessed(option, standard, headers):
    """The preprocessor's output of headers."""
    found = subprocess.run(
        [c_compiler.compiler("cc", "gcc"), standard, "-E", *option, "-isystem",
         str(c_compiler.include()), "-x", "c", "-"],
        input="".join(f"#include <{name}>\n" for name in headers),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return found.stdout


def macros(standard, headers=HEADERS):
    return set(re.findall(r"#define (\w+)", preprocessed(["-dM"], standard, headers)))


@pytest.fixture(scope="module")
def known():
    """Macros that are there where a plan's source is compiled."""
    return macros("-std=c99") | macros("-std=gnu17")


def test_no_name_is_a_macros(known):
    every = known | macros("-std=gnu17", (*HEADERS, *OTHERS))
    taken = {name for name in every if not name.startswith("_") and names.identifier(name) in every}
    assert {"RAND_MAX", "BIG_ENDIAN", "WNOHANG", "linux", "stdin"} <= every
    assert taken == set()


def test_dollars_are_no_marks(tmp_path):
    """In the names of plans, targets, kernels and tensors."""
    x, *others = WHOLE.tensors
    first = WHOLE.programs[1]
    (variant,) = first.variants
    launch = dataclasses.replace(variant.steps[0].launch, kernel="$load")
    variant = dataclasses.replace(
        variant, steps=(dataclasses.replace(variant.steps[0], launch=launch),)
    )
    kernel = dataclasses.replace(first.kernels[0], name="$load")
    program = dataclasses.replace(first, target="$plan", kernels=(kernel,), variants=(variant,))
    tensors = (dataclasses.replace(x, name="$x"), *others)
    plan = dataclasses.replace(WHOLE, name="a$b", tensors=tensors, programs=(program,))
    _, source = write_c(tmp_path / "net", plan)
    c_compiler.c("-c", source, "-o", tmp_path / "net.o")
    assert r'{"\044load", 0' in source.read_text()


def test_ordinary_names_stay():
    kept = "x y bias seq_len_q dY Wq W_q W1 X_1 M N K Q tokens x2 softmax_scale Bias qk inputs"
    assert [names.identifier(name) for name in kept.split()] == kept.split()


def test_every_keyword_and_macro_of_the_headers_compiles(known, tmp_path):
    words = sorted({*KEYWORDS, *known})
    symbols = [word for word in words if re.fullmatch(r"[A-Za-z_]\w*", word)]
    reserved = ("sm_count", "and")
    plan = named(words, ["M", *(word for word in symbols[::7] if word not in reserved)])
    header, source = write_c(tmp_path / "net", plan)
    for standard in ("-std=c99", "-std=gnu17"):
        options = (standard, "-Wshadow", *c_compiler.STRICT[1:])
        c_compiler.c("-O0", "-c", source, "-o", tmp_path / "net.o", options=options)
    user = tmp_path / "user.cpp"
    user.write_text(f'#include "{header.name}"\nint main() {{ return NET_SUCCESS; }}\n')
    c_compiler.cpp("-c", user, "-o", tmp_path / "user.o")


def test_no_prefix_gives_names_that_headers_have(known):
    text = preprocessed([], "-std=gnu17", HEADERS) + " ".join(known)
    every = set(re.findall(r"[A-Za-z_]\w*", text))
    header, _ = c_text(WHOLE, "p")
    own = {word[1:] for word in re.findall(r"\b[pP]_\w+", header)}
    found = {
        made
        for word in every
        for suffix in own
        if word.endswith(suffix) and word != suffix
        for prefix in [names.prefix(word.removesuffix(suffix))]
        for made in (prefix + suffix, prefix.upper() + suffix)
        if made in every and (suffix.isupper() == made.isupper())
    }
    assert found == set()


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
