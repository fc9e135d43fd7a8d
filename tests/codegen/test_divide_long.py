"""Divisions of 64 bits by a number that the host knows: exact, and no call."""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.codegen import ops
from dnnc.codegen.memory.tensors import GlobalTensor
from dnnc.codegen.walk.index import Index
from dnnc.expr import Expr
from tests.codegen.kernels import plan_of, tensor
from tests.support import machine

COUNT = 256


def quotients(numbers, divisor, factor=1):
    """floor(number * factor / divisor) of each, by one thread a number."""
    x, y = tensor(1, dtypes.i64, (COUNT,)), tensor(2, dtypes.i32, (COUNT,))

    def emit(output):
        kernel = output.kernel("", COUNT)
        with kernel.body():
            at = [Index(ops.thread_id())]
            number = ops.mul(GlobalTensor(kernel, x).load(at, 1), factor)
            GlobalTensor(kernel, y).store(at, kernel.divide_long(number, Expr.of(divisor)))
        output.launch(kernel, (1, 1, 1))

    plan = plan_of(emit, [x], [y])
    assert b"div." not in plan.blobs[1]
    return machine.current().run(plan, {1: numbers})[2]


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 512, 1000, 65537, 2**20 + 1, 2**31 - 1, 2**33 + 5])
def test_quotients_are_exact(divisor):
    rng = np.random.default_rng(divisor)
    whole = np.append(rng.integers(0, 2**30, 80), [0, 1, 2, 2**30 - 1, 2**30])
    whole = whole[whole * divisor < 2**61]
    ends = np.concatenate([whole * divisor, whole * divisor + divisor - 1, whole * divisor - 1])
    numbers = np.maximum(np.resize(ends, COUNT), 0)
    assert (quotients(numbers, divisor) == numbers // divisor).all()


def test_a_factor_of_the_divisor_is_left_out():
    numbers = np.arange(COUNT, dtype=np.int64) * 99991
    assert (quotients(numbers, 64, factor=192) == numbers * 3).all()
