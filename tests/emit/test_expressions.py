"""Size expressions and guards in C and in Python, on random ones of random sizes."""

import ctypes
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dnnc.emit.arithmetic import arithmetic
from dnnc.emit.expressions import Printer, literal
from dnnc.errors import DnncError
from dnnc.expr import (
    Dim,
    Expr,
    Guard,
    ceildiv,
    device_dim,
    magic,
    magic_shift,
    maximum,
    minimum,
    parse,
    parse_guard,
)

from . import c_compiler

M = Dim("M", min=0, max=65536, multiple_of=8)
N = Dim("N", min=2, max=100)
H = Dim("H", min=0, max=1 << 40)
SM = device_dim("sm_count")
DIMS = (M, N, H, SM)
NAMES = {dim.name: f"s->{dim.name}" for dim in DIMS}
LIMIT = 1 << 63


class Sizes(ctypes.Structure):
    _fields_ = (*((dim.name, ctypes.c_int64) for dim in DIMS), ("is_bad", ctypes.c_int))


def compiled(texts, folder):
    """A library with a function f0, f1, ... for each expression in C."""
    members = "".join(f"int64_t {dim.name}; " for dim in DIMS)
    functions = "".join(
        f"int64_t f{i}(struct sizes *s);\nint64_t f{i}(struct sizes *s)\n"
        f"{{\n    (void)s;\n    return {text};\n}}\n"
        for i, text in enumerate(texts)
    )
    source = Path(folder, "expressions.c")
    source.write_text(
        f"#include <stdint.h>\n#include <string.h>\nstruct sizes {{ {members}int is_bad; }};\n"
        + arithmetic(functions)
        + functions
    )
    library = source.with_suffix(".so")
    c_compiler.c("-O1", "-shared", "-fPIC", source, "-o", library)
    found = ctypes.CDLL(str(library))
    made = [getattr(found, f"f{i}") for i in range(len(texts))]
    for function in made:
        function.restype = ctypes.c_int64
    return made


def value_in_c(function, sizes):
    """(value, whether it noted an overflow or a bad divisor)"""
    s = Sizes(**sizes)
    return function(ctypes.byref(s)), bool(s.is_bad)


def reach(value, sizes):
    """A bound that no number on the way to a value is larger than; a division by 0 is past all."""
    total = 0
    for monomial, coefficient in value.terms:
        size = most = max(1, abs(coefficient))
        for atom in monomial:
            if isinstance(atom, Dim):
                own = sizes[atom.name]
            else:
                most = max(most, *(reach(arg, sizes) for arg in atom.args))
                try:
                    own = abs(Expr((((atom,), 1),)).evaluate(sizes))
                except DnncError:
                    return LIMIT
            size *= max(1, own)
        total += size
        total = max(total, most)
    return total


def assert_same(value, function, sizes):
    found, is_bad = value_in_c(function, sizes)
    if is_bad:
        assert reach(value, sizes) >= LIMIT, f"{value} at {sizes}"
    else:
        assert found == value.evaluate(sizes), f"{value} at {sizes}"


def folded(function):
    """A strategy's combination that is left out where constants can't be combined."""

    def combine(pair):
        try:
            return function(*pair)
        except DnncError:
            return Expr.of(1)

    return combine


CONSTANTS = st.one_of(
    st.integers(-20, 20),
    st.sampled_from([1 << 31, -(1 << 31), 1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 64, 10**12]),
)
LEAVES = st.one_of(CONSTANTS.map(Expr.of), st.sampled_from([Expr.of(dim) for dim in DIMS]))


def trees(inner):
    pair = st.tuples(inner, inner)
    divided = st.tuples(inner, st.one_of(st.integers(1, 9), inner))
    return st.one_of(
        pair.map(lambda p: p[0] + p[1]),
        pair.map(lambda p: p[0] - p[1]),
        pair.map(folded(lambda a, b: a * b)),
        divided.map(folded(lambda a, b: a // b)),
        divided.map(folded(lambda a, b: a % b)),
        divided.map(folded(ceildiv)),
        pair.map(lambda p: minimum(*p)),
        pair.map(lambda p: maximum(*p)),
        inner.map(lambda a: folded(lambda d: magic(d))((a,))),
        inner.map(lambda a: folded(lambda d: magic_shift(d))((a,))),
    )


TREES = st.recursive(LEAVES, trees, max_leaves=8)
SIZES = st.fixed_dictionaries(
    {
        "M": st.integers(0, 8192).map(lambda eighth: 8 * eighth),
        "N": st.integers(2, 100),
        "H": st.one_of(st.integers(0, 9), st.integers(0, 1 << 40)),
        "sm_count": st.integers(1, 200),
    }
)


# An example is many expressions, which are compiled together.
SLOW = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


@settings(max_examples=12, **SLOW)
@given(st.lists(TREES, min_size=20, max_size=60), st.lists(SIZES, min_size=5, max_size=20))
def test_random_expressions(values, many):
    printer = Printer(NAMES)
    with tempfile.TemporaryDirectory() as folder:
        functions = compiled([printer.expression(value) for value in values], folder)
        for value, function in zip(values, functions, strict=True):
            for sizes in many:
                assert_same(value, function, sizes)


RELATIONS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
GUARDS = st.lists(st.tuples(RELATIONS, TREES, TREES), max_size=3).map(lambda c: Guard(tuple(c)))


@settings(max_examples=6, **SLOW)
@given(st.lists(GUARDS, min_size=10, max_size=30), st.lists(SIZES, min_size=5, max_size=10))
def test_random_guards(guards, many):
    printer = Printer(NAMES)
    with tempfile.TemporaryDirectory() as folder:
        functions = compiled([printer.guard(guard) for guard in guards], folder)
        for guard, function in zip(guards, functions, strict=True):
            for sizes in many:
                found, is_bad = value_in_c(function, sizes)
                if is_bad:
                    sides = [side for _, *pair in guard.comparisons for side in pair]
                    assert max(reach(side, sizes) for side in sides) >= LIMIT
                else:
                    assert found == guard.holds(sizes)


ROUNDING = [
    (a, b) for a in (-9, -8, -7, -1, 0, 1, 7, 8, 9, -(1 << 40)) for b in (1, 2, 3, 8, 1 << 33)
]


def test_roundings_of_both_signs(tmp_path):
    """Division and rest round to minus infinity, ceildiv up."""
    wide = Dim("H", min=0, max=1 << 41)
    moved = Expr.of(wide) - (1 << 40)  # from -2**40 up
    values = [
        function(moved, divisor)
        for divisor in (1, 2, 3, 8, 1 << 33)
        for function in (lambda a, b: a // b, lambda a, b: a % b, ceildiv)
    ]
    functions = compiled([Printer(NAMES).expression(value) for value in values], tmp_path)
    for a, _ in ROUNDING:
        sizes = {"M": 0, "N": 2, "H": a + (1 << 40), "sm_count": 1}
        for value, function in zip(values, functions, strict=True):
            assert value_in_c(function, sizes) == (value.evaluate(sizes), False)


def test_magic_of_every_size(tmp_path):
    wide = Dim("H", min=0, max=(1 << 62) + 1)
    functions = compiled(
        [Printer(NAMES).expression(f(wide)) for f in (magic, magic_shift)], tmp_path
    )
    numbers = [d for e in range(63) for d in ((1 << e) - 1, 1 << e, (1 << e) + 1) if d > 0]
    for number in numbers:
        sizes = {"M": 0, "N": 2, "H": number, "sm_count": 1}
        for make, function in zip((magic, magic_shift), functions, strict=True):
            assert value_in_c(function, sizes) == (make(wide).evaluate(sizes), False), number
    for function in functions:
        assert value_in_c(function, {**sizes, "H": 0})[1]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("N*384 + 3", "s->N * 384 + 3"),
        ("ceildiv(N, 128)*24", "((s->N + 127) / 128) * 24"),
        ("N // 2 % 5 - M", "((s->N / 2) % 5) - s->M"),
        ("(N - 50) // 4", "floor_div(s, s->N - 50, 4)"),
        ("H*H", "checked_mul(s, s->H, s->H)"),
        ("M // (N - 2)", "floor_div(s, s->M, s->N - 2)"),
        ("min(M, sm_count)", "minimum(s->M, s->sm_count)"),
        ("0", "0"),
        ("-M", "-s->M"),
        (str(1 << 40), f"INT64_C({1 << 40})"),
    ],
)
def test_text(text, printed):
    """Plain operators where the ranges of the symbols allow them."""
    dims = {dim.name: dim for dim in (M, N, H)}
    assert Printer(NAMES).expression(parse(text, dims)) == printed


def test_text_of_guards():
    dims = {dim.name: dim for dim in (M, N, H)}
    printer = Printer(NAMES)
    assert printer.guard(parse_guard("M <= 64 and N % 2 == 0", dims)) == (
        "s->M <= 64 && (s->N % 2) == 0"
    )
    assert printer.guard(parse_guard("1")) == "1"
    assert printer.guard(parse_guard("2 < 1 and M <= 64", dims)) == "0"
    assert printer.guard(parse_guard("M <= 64 and 2 < 1", dims)) == "s->M <= 64 && 0"
    assert literal(-(1 << 63)) == "INT64_MIN"


def test_a_chain_of_divisions_is_printed_soon():
    chain = "M" + "//3" * 31
    began = time.process_time()
    assert Printer(NAMES).expression(parse(chain, {"M": M})).count(" / 3") == 31
    nested = "M"
    for place in range(2, 33):
        nested = f"ceildiv({nested}, {place})"
    assert "s->M" in Printer(NAMES).expression(parse(nested, {"M": M}))
    assert time.process_time() - began < 0.5
