"""Functions of attention's scores: their errors, and what they make of special values."""

import math as python_math

import numpy as np
import pytest

from dnnc.codegen import ops
from dnnc.codegen.scalars import math
from dnnc.mlir import arith, ir
from dnnc.mlir import math as mlir_math
from tests.codegen.kernels import TARGET, applied


def tanh_of_scores(flags):
    """A product by a number, as scores have it."""

    def function(x):
        number = arith.ConstantOp(ir.F32Type.get(), ir.FloatAttr.get(ir.F32Type.get(), 0.5))
        x = arith.MulFOp(x, ops.splat(number.result, 2)).result
        op = mlir_math.TanhOp(x, fastmath=ir.Attribute.parse(f"#arith.fastmath<{flags}>"))
        return math.lower(TARGET, op.operation, [ops.f32_type()], [x], 2)

    return function


@pytest.mark.parametrize(("flags", "bound"), [("arcp", 2.4e-7), ("arcp,contract", 2.6e-6)])
def test_tanh_of_scores_is_within_what_is_said(flags, bound):
    rng = np.random.default_rng(0)
    near, far = np.linspace(-40, 40, 40_001), 10 ** rng.uniform(-30, 37, 2000)
    values, found = applied(tanh_of_scores(flags), np.concatenate([near, far, -far]))
    error = np.abs(found - np.tanh(0.5 * values.astype(np.float64)))
    assert error[0::2].max() < 2.4e-7  # by a reciprocal
    assert error[1::2].max() < bound  # by multiply-adds
    assert error.max() > 0


@pytest.mark.parametrize(("flags", "bound"), [("arcp", 2.4e-7), ("arcp,contract", 2.6e-6)])
def test_tanh_of_scores_at_the_ends(flags, bound):
    ends = np.repeat([np.inf, -np.inf, np.nan, 0.0, 200.0, -200.0], 2)
    _, found = applied(tanh_of_scores(flags), ends)
    wanted = np.repeat([1, -1, np.nan, 0, 1, -1], 2)
    np.testing.assert_allclose(found[: len(ends)], wanted, atol=bound)


def erf(flags):
    def function(x):
        op = mlir_math.ErfOp(x, fastmath=ir.Attribute.parse(f"#arith.fastmath<{flags}>"))
        return math.lower(TARGET, op.operation, [ops.f32_type()], [x], 2)

    return function


def test_erf_is_within_what_is_said():
    """Arguments of all sizes, subnormals too, and dense where the series ends."""
    sizes = np.concatenate([np.geomspace(1e-42, 8, 4001), np.linspace(0.11, 0.14, 4001)])
    values, found = applied(erf("afn"), np.concatenate([sizes, -sizes]))
    wanted = np.vectorize(python_math.erf)(values.astype(np.float64))
    error = np.abs(found - wanted)
    assert (error <= np.maximum(3.5e-6 * np.abs(wanted), 2e-45)).all()
    assert error.max() < 4e-7


def test_erf_beside_1_is_within_what_is_said():
    values, found = applied(erf("afn,contract"), np.linspace(-6, 6, 8001))
    wanted = np.vectorize(python_math.erf)(values.astype(np.float64))
    assert 1e-7 < np.abs(found - wanted).max() < 4.5e-7  # 4.3e-7 on a device


@pytest.mark.parametrize("flags", ["afn", "afn,contract"])
def test_erf_at_the_ends(flags):
    ends = np.repeat([np.inf, -np.inf, np.nan, 0.0, -0.0], 2)
    _, found = applied(erf(flags), ends)
    np.testing.assert_allclose(found[: len(ends)], np.repeat([1, -1, np.nan, 0, 0], 2), atol=2e-9)


def tanh_of_a_block(factor, is_capped):
    """Products by a number, which the powers have in them."""

    def function(x):
        number = arith.ConstantOp(ir.F32Type.get(), ir.FloatAttr.get(ir.F32Type.get(), factor))
        given = arith.MulFOp(x, ops.splat(number.result, 2)).result
        return math.tanh_together([given], is_capped=is_capped)[0]

    return function


# In order most warps are near 0 or far from it as a whole; a factor of 2**-20 is always far.
@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("factor", [0.5, -0.002, 2.0**-20, 3000.0])
@pytest.mark.parametrize(("is_capped", "bound"), [(False, 2.4e-7), (True, 2.6e-6)])
def test_tanh_of_a_block_is_within_what_is_said(is_capped, bound, factor, is_sorted):
    rng = np.random.default_rng(0)
    given = np.linspace(-2, 2, 20_000) / factor
    far = 10 ** rng.uniform(-30, 37, 64)
    given = np.concatenate([given, far, -far])
    if not is_sorted:
        rng.shuffle(given)
    values, found = applied(tanh_of_a_block(factor, is_capped), given)
    error = np.abs(found - np.tanh(np.float32(factor) * values.astype(np.float64)))
    assert error.max() < bound


def test_fragments_of_a_block_have_factors_of_their_own():
    """Both of a number that is computed, and of constants that differ."""

    def function(x):
        first, second = ops.part(x, 0, 1), ops.part(x, 1, 1)
        small, large = (
            arith.ConstantOp(ir.F32Type.get(), ir.FloatAttr.get(ir.F32Type.get(), number)).result
            for number in (0.01, 2.0)
        )
        given = [
            arith.MulFOp(ops.splat(first, 2), ops.splat(small, 2)).result,
            arith.MulFOp(ops.splat(second, 2), ops.splat(large, 2)).result,
            arith.MulFOp(ops.splat(large, 2), ops.splat(second, 2)).result,
        ]
        found = math.tanh_together(given, is_capped=False)
        return ops.from_elements([ops.extract(found[0], 0), ops.extract(found[1], 1)])

    values, found = applied(function, np.linspace(-3, 3, 4096))
    wanted = np.tanh(values.astype(np.float64) * np.tile([0.01, 2.0], 2048))
    assert np.abs(found - wanted).max() < 2.4e-7


def test_tanh_of_a_block_at_the_ends():
    """A NaN leaves the block's other elements as they are; infinities give the limits."""
    for special, wanted in ((np.nan, np.nan), (np.inf, 1.0), (-np.inf, -1.0)):
        given = np.linspace(-1, 1, 64)
        given[11] = special
        values, found = applied(tanh_of_a_block(0.5, True), given)
        expected = np.tanh(0.5 * values)
        expected[11] = wanted
        np.testing.assert_allclose(found, expected, atol=3e-6)


def quotient_by(count):
    """A function that divides by an integer constant, as `avg` does."""

    def function(x):
        number = arith.ConstantOp(ir.IntegerType.get_signless(32), count).result
        wide = arith.ExtSIOp(ir.IntegerType.get_signless(64), number).result
        divisor = arith.SIToFPOp(ir.F32Type.get(), wide).result
        made = math.quotient(x, ops.splat(divisor, 2))
        assert (made.owner.name == "arith.divf") == (count & (count - 1) == 0)
        return made

    return function


@pytest.mark.parametrize("count", [3, 7, 64, 12288, 100_000, (1 << 24) - 3])
def test_quotients_by_counts_are_to_nearest(count):
    rng = np.random.default_rng(count)
    normal = rng.uniform(1, 2, 4000) * 2.0 ** rng.integers(-90, 127, 4000)
    largest = float(np.finfo(np.float32).max)
    ends = np.repeat([np.inf, -np.inf, np.nan, 0.0, -0.0, largest, -largest, 3.0 * count], 2)
    values, found = applied(quotient_by(count), np.concatenate([normal, -normal, ends]))
    wanted = values.astype(np.float32) / np.float32(count)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def test_subnormal_quotients_by_counts_are_one_of_their_neighbours():
    small = np.arange(1, 2001) * float(np.finfo(np.float32).smallest_subnormal)
    values, found = applied(quotient_by(7), small)
    exact = values.astype(np.float64) / 7
    assert np.all(np.abs(found - exact) < np.finfo(np.float32).smallest_subnormal)
