import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnc import expr
from dnnc.errors import DnncError
from dnnc.expr import Dim, Expr, ceildiv, maximum, minimum, parse, parse_guard

M = Dim("M", multiple_of=8)
N = Dim("N", min=2, max=100)
DIMS = {"M": M, "N": N}


def test_equal_products_and_sums_are_equal():
    assert M * N == N * M
    assert (M + 1) * (M - 1) == M * M - 1
    assert M * 384 // 384 == Expr.of(M)
    assert M * N // M == Expr.of(N)
    assert (M * 12 + 8) % 4 == Expr.of(0)
    assert M // 3 != M // 4


def test_values_under_sizes():
    sizes = {"M": 16, "N": 7}
    assert (M * N + 3).evaluate(sizes) == 115
    assert (M // 3 % 4).evaluate(sizes) == 1
    assert ceildiv(M, 5).evaluate(sizes) == 4
    assert minimum(M, N).evaluate(sizes) == 7
    assert maximum(M, N, 40).evaluate(sizes) == 40


def test_missing_size_is_named():
    with pytest.raises(DnncError, match="size N is not given"):
        (M * N).evaluate({"M": 8})


def test_known_divisors():
    assert (M * 3).known_divisor() == 24
    assert (M * 4 + 6).known_divisor() == 2
    assert Expr.of(0).known_divisor() == 0
    assert (M // 2).known_divisor() == 1


def test_whole_parts_are_taken_out_of_divisions():
    assert (N - 2) // 2 == N // 2 - 1
    assert (M * 4 + N + 6) // 2 == M * 2 + N // 2 + 3
    assert (M * 4 + N + 6) % 2 == N % 2
    assert (N + 5) // 2 != N // 2 + 2


def test_bounds_of_products_of_differences():
    """Bounds of the rest of an image without padding, written out: N * M - 2 * N - 2 * M + 4."""
    m = Dim("m", min=4, max=10)
    assert ((N - 2) * (m - 3) * 8).bounds() == (0, 98 * 7 * 8)
    assert ((N - 1) * (N - 1)).bounds() == (1, 99 * 99)
    assert ((N - 10) * (m - 2)).bounds()[0] <= -8 * 8


def test_bounds_of_a_symbol_are_multiples():
    assert Expr.of(Dim("K", max=100, multiple_of=16)).bounds() == (16, 96)
    assert Expr.of(Dim("K", min=0, max=100, multiple_of=16)).bounds() == (0, 96)
    assert (Dim("K", min=17, max=40, multiple_of=16) * 2).bounds() == (64, 64)


def test_text_and_back():
    for value in (M * N * 4 + 3, ceildiv(M, 128) * 3 - N // 2 % 5, minimum(M, N) * 2, -Expr.of(M)):
        assert parse(str(value), DIMS) == value


@pytest.mark.parametrize(
    "text",
    ["M*", "M N", "__import__('os')", "M ** 2", "Q + 1", "M <", "max(M)", "1.5", "(M", "M;N", ""],
)
def test_what_is_outside_the_grammar_is_refused(text):
    with pytest.raises(DnncError, match="size expression"):
        parse(text, DIMS)


def test_size_and_depth_are_bounded():
    with pytest.raises(DnncError, match="characters"):
        parse("1+" * 3000 + "1")
    with pytest.raises(DnncError, match="deep"):
        parse("(" * 100 + "1" + ")" * 100)
    with pytest.raises(DnncError, match="a sum of 2048 products"):
        expr.product(Dim(f"a{i}") + Dim(f"b{i}") for i in range(20))


def chained(value, count):
    for place in range(count):
        value = -(value // (place + 2) + 1)
    return value


HOSTILE = {
    "digits": ("9" * 400, "a number of 400 digits"),
    "large number": ("99999999999999999999", "a number of over 64 bits"),
    "large product": ("*".join(["9999999999"] * 100), "a number of over 64 bits"),
    "minus": ("-" * 4000 + "M + Q", "unexpected 'Q'"),
    "chain": ("M" + "//3" * 1300, "over 32 calls in each other"),
    "nested calls": ("min(M, " * 66 + "N" + ")" * 66, "over 65 deep"),
    "power": ("*".join("M" * 2000), "a product of over 32 sizes"),
    "products of sums": ("*".join(["(M + N + 1)"] * 340), "too many products of sums"),
    "wide products": (
        "*".join(f"({'+'.join(f'{name}//{i}' for i in range(3, 35))})" for name in "MN"),
        "too many products of sums",
    ),
    "signs": (f"({'+'.join(f'M//{i}' for i in range(3, 350))})" + "*-1" * 450, "too many products"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_refused_soon(text, said):
    began = time.process_time()
    with pytest.raises(DnncError, match=said):
        parse(text, DIMS)
    assert time.process_time() - began < 0.5


def test_a_long_sum_is_read_soon():
    began = time.process_time()
    text = "+".join(f"M//{i}" for i in range(3, 600))
    assert len(parse(text, DIMS).terms) == 597
    assert time.process_time() - began < 0.5


def test_calls_in_calls_have_an_end_in_python_too():
    deep = chained(M, 32)
    assert parse(str(deep), DIMS) == deep
    with pytest.raises(DnncError, match="over 32 calls"):
        chained(M, 33)


@pytest.mark.parametrize("text", ["M != 3", "M < 3", "M == 3 and M"])
def test_a_condition_is_no_size(text):
    with pytest.raises(DnncError, match="unexpected"):
        parse(text, DIMS)


def test_division_by_zero_is_refused():
    with pytest.raises(DnncError, match="divides by 0"):
        parse("4 // 0")
    with pytest.raises(DnncError, match="divides by 0"):
        (M % N).evaluate({"M": 8, "N": 0})


def test_guards():
    guard = parse_guard("M <= 64 and N % 2 == 0", DIMS)
    assert guard.holds({"M": 64, "N": 4})
    assert not guard.holds({"M": 65, "N": 4})
    assert not guard.holds({"M": 64, "N": 5})
    assert parse_guard("1").holds({})
    assert parse_guard(str(guard), DIMS) == guard
    for sizes in ({"M": 64, "N": 4}, {"M": 65, "N": 4}, {"M": 64, "N": 5}):
        assert guard.compiled()(sizes) == guard.holds(sizes)
    assert parse_guard("1").compiled()({})


def test_device_variables_are_names_of_their_own():
    assert parse("sm_count * 2").evaluate({"sm_count": 132}) == 264
    with pytest.raises(DnncError, match="reserved"):
        Dim("sm_count")


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "1M"},
        {"name": "M", "min": 3, "max": 2},
        {"name": "M", "multiple_of": 0},
        {"name": "M", "min": 1, "max": 10, "multiple_of": 16},
    ],
)
def test_bad_dims_are_refused(arguments):
    with pytest.raises(DnncError):
        Dim(**arguments)


SMALL = st.integers(-20, 20)
TREES = st.recursive(
    st.one_of(SMALL.map(Expr.of), st.sampled_from([Expr.of(M), Expr.of(N)])),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, st.integers(1, 9)).map(lambda p: p[0] // p[1]),
        st.tuples(inner, st.integers(1, 9)).map(lambda p: p[0] % p[1]),
        st.tuples(inner, inner).map(lambda p: minimum(*p)),
    ),
    max_leaves=8,
)


@given(TREES, st.integers(0, 50), st.integers(2, 100))
def test_bounds_divisors_and_text_hold(tree, eighth, n):
    m = max(8, eighth * 8)
    value = tree.evaluate({"M": m, "N": n})
    low, high = tree.bounds()
    assert low <= value <= high
    divisor = tree.known_divisor()
    assert value % divisor == 0 if divisor else value == 0
    assert parse(str(tree), DIMS).evaluate({"M": m, "N": n}) == value
    assert expr.compiled(tree)({"M": m, "N": n}) == value


@given(st.integers(1, (1 << 31) - 1), st.integers(0, (1 << 31) - 1))
def test_division_by_multiplication_is_exact(divisor, number):
    factor, shift = expr.magic(divisor).constant, expr.magic_shift(divisor).constant
    assert factor < 1 << 32
    for value in {number, divisor - 1, number // divisor * divisor, (1 << 31) - 1}:
        assert (value * factor) >> shift == value // divisor


def test_magic_of_a_symbol_is_evaluated_late():
    quotient = (123456 * expr.magic(M).evaluate({"M": 24})) >> expr.magic_shift(M).evaluate(
        {"M": 24}
    )
    assert quotient == 123456 // 24


def test_compiled_expressions_refuse_to_divide_by_nothing():
    for text in ("100 // (M - 8)", "ceildiv(100, M - 8)", "magic(M - 8)"):
        quotient = expr.compiled(parse(text, DIMS))
        assert quotient({"M": 16}) == parse(text, DIMS).evaluate({"M": 16})
        with pytest.raises(DnncError, match="divides by 0"):
            quotient({"M": 8})


@pytest.mark.parametrize("name", [7, None, "", "a b", "1st"])
def test_a_name_is_an_identifier(name):
    with pytest.raises(DnncError, match="a Python identifier"):
        Dim(name, max=4)
