"""Products whose sums are rounded once, and places that are converted once."""

import numpy as np

from dnnc.codegen import ops
from dnnc.codegen.scalars import contraction
from dnnc.mlir import arith, ir, llvm
from tests.codegen.kernels import THREADS, applied

ALMOST_ONE = 1 - 2.0**-24


def test_sums_of_products_are_rounded_once():
    """x * x - (1 - 2**-24), which keeps what rounding the square would lose."""

    def rest(x):
        square = arith.MulFOp(x, x).result
        one = arith.ConstantOp(ir.F32Type.get(), ir.FloatAttr.get(ir.F32Type.get(), ALMOST_ONE))
        op = arith.SubFOp(one.result, one.result).operation  # of scalars, as bodies have it
        made = contraction.contracted(op, [square, ops.splat(one.result, 2)])
        assert made is not None
        return made

    values, found = applied(rest, 1 + np.arange(1, 9) * 2.0**-20)
    exact = (values.astype(np.float64) ** 2 - ALMOST_ONE).astype(np.float32)
    twice = values * values - np.float32(ALMOST_ONE)
    np.testing.assert_array_equal(found, exact)
    assert (found != twice).any()


def places(first, step):
    """Fragments of the integers first - thread and first - thread + step, as a region's `sitofp`
    of a difference has them."""
    thread = ops.splat(ops.thread_id(), 2)
    given = ops.from_elements([ops.value_of(ops.add(first, i * step)) for i in range(2)])
    return arith.SubIOp(given, thread).result


def converted(value):
    op = arith.SIToFPOp(ops.f32_type(), ops.extract(value, 0)).operation
    return contraction.contracted(op, [value])


def test_places_are_converted_once_and_moved():
    """One conversion serves the whole fragment; further ones by other numbers are equal."""

    def of_places(x):
        made = converted(places(ops.block_id(), 8))
        assert made is not None
        assert made.owner.operation.name == "arith.addf"
        return made

    _, found = applied(of_places, np.zeros(4 * THREADS))
    block, thread, element = np.indices((2, THREADS, 2))
    np.testing.assert_array_equal(found, (block + 8 * element - thread).ravel())


def test_large_constants_of_places_are_added_in_integers():
    """Large constants that cancel are not rounded, though 2**24 + 1 is no float."""

    def far(x):
        value = places(ops.add(ops.block_id(), 2**24 + 1), 2**20)
        off = ops.splat(ops.opaque(ops.const(2**24)), 2)
        return converted(arith.SubIOp(value, off).result)

    _, found = applied(far, np.zeros(2 * THREADS))
    thread, element = np.indices((THREADS, 2))
    np.testing.assert_array_equal(found, (1 + 2**20 * element - thread).ravel())


def test_what_does_not_count_places_is_converted_as_it_is():
    def loaded(x):
        word = ops.vector_type(ops.i32_type(), 2)
        value = llvm.BitcastOp(word, x).result
        assert converted(value) is None
        assert converted(arith.AddIOp(places(1, 2), value).result) is None
        return x

    values, found = applied(loaded, np.arange(8))
    np.testing.assert_array_equal(found, values)
