"""Functions of attention's scores: their errors, and what they make of special values."""

import numpy as np
import pytest

from dnnc.codegen import math, ops
from dnnc.mlir import arith, ir
from dnnc.mlir import math as mlir_math
from tests.codegen.kernels import TARGET, applied


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
