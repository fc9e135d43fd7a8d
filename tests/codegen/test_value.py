"""Operators on a kernel's values."""

import numpy as np
import pytest

from dnnc.codegen import ops
from dnnc.codegen.value import wrapped
from dnnc.mlir import arith, ir
from tests.codegen.kernels import WARP, results_of


def test_integers():
    """Each function gives of a kernel's values what it gives of NumPy's numbers."""
    functions = [
        lambda t: t * 3 + 5 - t // 2,
        lambda t: 40 - t,
        lambda t: 7 + 2 * t % 5,
        lambda t: -t,
        lambda t: (t ^ 3) & 14 | 16,
        lambda t: (t << 2) + (1 << t % 8) + (t >> 1),
    ]
    conditions = [
        lambda t: (t >= 3) & (t < 9),
        lambda t: 5 > t,
        lambda t: (t <= 4) | (t > 20),
    ]

    def emit(thread):
        chosen = [ops.select(holds(thread), 1, 0) for holds in conditions]
        same = [ops.select(made, 1, 0) for made in ((thread % 3).eq(1), (thread % 3).ne(1))]
        return [*(function(thread) for function in functions), *chosen, *same]

    threads = np.arange(WARP, dtype=np.int32)
    wanted = [function(threads) for function in (*functions, *conditions)]
    wanted += [threads % 3 == 1, threads % 3 != 1]
    np.testing.assert_array_equal(results_of(emit), np.stack(wanted))


def test_operators_of_floats_and_vectors():
    def emit(thread):
        number = wrapped(arith.SIToFPOp(ops.f32_type(), thread))
        pair = ops.splat(number, 2) * 2.0 - number / 4
        total = ops.extract(pair, 0) + -ops.extract(pair, 1) * 3
        rounded = wrapped(arith.FPToSIOp(ops.i32_type(), total))
        lanes = ops.from_elements([thread, thread + 1]) * 2 + thread
        is_more = ops.from_elements([number, number + 1]) > number
        more = wrapped(arith.ExtUIOp(ops.vector_type(ops.i32_type(), 2), is_more))
        return [rounded, *ops.elements(lanes), *ops.elements(more)]

    t = np.arange(WARP)
    wanted = [(-3.5 * t).astype(int), 3 * t, 3 * t + 2, 0 * t, 0 * t + 1]
    np.testing.assert_array_equal(results_of(emit), np.stack(wanted))


def test_what_has_no_meaning_raises():
    def emit(thread):
        number = wrapped(arith.SIToFPOp(ops.f32_type(), thread))
        wide = ops.to_i64(thread)
        byte = wrapped(arith.TruncIOp(ir.IntegerType.get_signless(8), thread))
        assert (thread + wide).type == ops.i64_type()
        for wrong in (
            lambda: thread + number,
            lambda: thread * 1.5,
            lambda: thread < number,
            lambda: byte + thread,
            lambda: number // 2,
            lambda: number & 1,
        ):
            with pytest.raises(TypeError):
                wrong()
        for has_truth in (lambda: bool(thread < 3), lambda: 0 < thread < 3, lambda: not thread):
            with pytest.raises(TypeError, match="no truth"):
                has_truth()
        assert thread == wrapped(thread)
        assert thread != thread + 1
        return [thread]

    results_of(emit)
