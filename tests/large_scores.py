"""How random attention of large scores is compared: see `random_large_attention`.

Scores are exact.  Exponentials of a row are relative to one rounded number, which cancels in what
is divided by their sum; what is left of a result's error is the rounding of weights and of the
result.  The bound of one unit of the type alone has no room for the rounding of weights, which
may be all alike: it is one unit of each, and since columns of values differ, and so do the result's
roundings, the root of their squares.  Of statistics: see `assert_statistics_close`.
"""

import numpy as np

from dnnc.dialect.reference import single_steps
from dnnc.rounding import widen
from tests.support.compare import UNIT, assert_close

_EXPONENTIAL = 2.0**-20  # approximate ones, shares, logarithms and quotients, a few of each
_SUM = 2.0**-23 / 16  # of each key: sixteen are added up at once


def assert_result_close(given, wanted, dtype, weights, keys, unit=0.0):
    """weights: the type that a kernel rounds them to.  keys: of a head.  unit: of the coarsest type
    that a graph rounds results to on their way, where they may come out as a neighbour."""
    own = UNIT[dtype.name]
    both = np.hypot(max(own, unit), UNIT[weights.name]) + _EXPONENTIAL + keys * _SUM
    assert_close(given, wanted, dtype, allowance=both - own)


def units_on_the_way(graph):
    """Tensor made of results -> the largest unit of the types of what it is made of, and of its
    own."""
    ops = list(graph.live_ops)
    last = max(i for i, op in enumerate(ops) if op.op_name == "matmul")
    units = {ops[last].results[0]: 0.0}
    for op in ops[last + 1 :]:
        before = [units[tensor] for tensor in op.operands if tensor in units]
        if before:
            own = (UNIT.get(tensor.type.name, 0.0) for tensor in op.results)
            units |= {
                tensor: max(*before, unit) for tensor, unit in zip(op.results, own, strict=True)
            }
    return units


def assert_statistics_close(given, wanted, maxima, keys, *, is_sum):
    """Asserts that statistics of rows are as close as their rounding allows.

    A sum is of exponentials relative to a product by log2(e) that is rounded, half a unit of f32 of
    it: that is off by 2^-24 of the maximum.  So is its logarithm; the maximum and it are rounded by
    as much of themselves, and again where they are multiplied, to be in powers of two.
    """
    given, size = widen(np.asarray(given)), np.abs(np.where(np.isfinite(maxima), maxima, 0.0))
    np.testing.assert_array_equal(np.isnan(given), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(given), np.isinf(wanted))
    others = np.isfinite(wanted)
    own = _EXPONENTIAL + keys * _SUM
    bound = own + 3 * 2.0**-24 * np.maximum(size, np.abs(np.where(others, wanted, 0.0)))
    if is_sum:
        bound = (own + 2.0**-24 * size) * np.where(others, wanted, 0.0)
    off = np.where(others, given, 0.0) - np.where(others, wanted, 0.0)
    worst = np.max(np.abs(off) / np.maximum(bound, 2.0**-126), initial=0.0)
    assert worst <= 1, f"a statistic is off by {worst:.3g} of its bound"


def maxima_of(graph, inputs, sizes, tensor):
    """The maximum of each row, which its exponentials are relative to."""
    for step in single_steps(graph, inputs, sizes=sizes):
        for result, exact, _ in step.results:
            if result is tensor:
                return exact
    raise AssertionError("no such tensor")
