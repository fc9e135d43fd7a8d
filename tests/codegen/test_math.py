"""Functions of attention's scores, and products whose sums are rounded once."""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.codegen import math, ops
from dnnc.codegen.index import Index
from dnnc.codegen.memory import GlobalTensor
from dnnc.mlir import arith, ir, llvm
from dnnc.mlir import math as mlir_math
from tests.codegen.kernels import TARGET, plan_of, tensor
from tests.support import machine

THREADS = 256
ALMOST_ONE = 1 - 2.0**-24


def applied(function, values):
    """function(fragment of two) of every value, by one thread a pair."""
    values = np.resize(values, -(-len(values) // (2 * THREADS)) * 2 * THREADS).astype(np.float32)
    x, y = tensor(1, dtypes.f32, values.shape), tensor(2, dtypes.f32, values.shape)

    def emit(output):
        kernel = output.kernel("", THREADS)
        with kernel.body():
            pair = ops.add(ops.mul(ops.block_id(), THREADS), ops.thread_id())
            at = [Index(ops.mul(pair, 2), 1, 2)]
            found = function(GlobalTensor(kernel, x).load(at, 2))
            GlobalTensor(kernel, y).store(at, found)
        output.launch(kernel, (len(values) // (2 * THREADS), 1, 1))

    found = machine.current().run(plan_of(emit, [x], [y]), {1: values})[2]
    return values, found


def tanh_of_scores(flags):
    """Of a product by a number, as scores have it."""

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


def test_sums_of_products_are_rounded_once():
    """x * x - (1 - 2**-24), which keeps what rounding the square would lose."""

    def rest(x):
        square = arith.MulFOp(x, x).result
        one = arith.ConstantOp(ir.F32Type.get(), ir.FloatAttr.get(ir.F32Type.get(), ALMOST_ONE))
        op = arith.SubFOp(one.result, one.result).operation  # of scalars, as bodies have it
        made = math.contracted(op, [square, ops.splat(one.result, 2)])
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
    return math.contracted(op, [value])


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
    """What cancels leaves no rounding: 2**24 + 1 is no float."""

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
