"""Integer arithmetic that is folded where operations before it say what it comes to."""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.codegen import ops
from dnnc.codegen.memory.tensors import GlobalTensor
from dnnc.codegen.walk.index import Index
from dnnc.mlir import ir
from tests.codegen.kernels import plan_of, tensor
from tests.support import machine

THREADS = 64


def of_threads(function):
    """(function(thread) of every thread of a block, how its number was made)."""
    y = tensor(1, dtypes.i32, [THREADS])

    def emit(output):
        kernel = output.kernel("", THREADS)
        with kernel.body():
            thread = ops.thread_id()
            made = function(thread)
            GlobalTensor(kernel, y).store([Index.of(thread)], ops.value_of(made))
            kinds.append(type_of(made))
        output.launch(kernel, (1, 1, 1))

    kinds = []
    found = machine.current().run(plan_of(emit, [], [y]), {})[1]
    return found, kinds[0]


def type_of(number):
    """How a number was made: the operation's name, "int", or "" of a thread's number."""
    if isinstance(number, int):
        return "int"
    owner = number.owner
    return "" if isinstance(owner, ir.Block) else owner.operation.name


@pytest.mark.parametrize(
    ("factor", "added", "divisor"), [(4, 6, 2), (2, 1, 2), (6, 7, 3), (8, -3, 4), (2, 3, 4)]
)
def test_quotients_and_rests(factor, added, divisor):
    """Quotients of (thread + 2) * factor + added, which is never negative."""

    def number(thread):
        return ops.add(ops.mul(ops.add(thread, 2), factor), added)

    threads = np.arange(THREADS)
    quotients, made = of_threads(lambda thread: ops.div(number(thread), divisor))
    np.testing.assert_array_equal(quotients, ((threads + 2) * factor + added) // divisor)
    rests, rest = of_threads(lambda thread: ops.rem(number(thread), divisor))
    np.testing.assert_array_equal(rests, ((threads + 2) * factor + added) % divisor)
    is_folded = factor % divisor == 0
    assert (made != "arith.divui") == is_folded
    assert (rest == "int") == is_folded


def test_differences_of_what_differs_by_a_constant():
    def twice(thread, added):
        return ops.add(ops.mul(thread, 2), added)

    found, made = of_threads(lambda thread: ops.sub(twice(thread, 7), twice(thread, 3)))
    assert made == "int"
    assert (found == 4).all()
    found, made = of_threads(lambda thread: ops.sub(twice(thread, 7), ops.mul(thread, 3)))
    assert made == "arith.subi"
    np.testing.assert_array_equal(found, 7 - np.arange(THREADS))
