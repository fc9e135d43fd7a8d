"""How results are compared: the bounds of docs/numerics.md, in one place."""

import numpy as np

from dnnc.rounding import round_to, widen

UNIT = {
    "bf16": 2.0**-8,
    "f16": 2.0**-11,
    "f8E4M3FN": 2.0**-3,
    "f8E5M2": 2.0**-2,
    "f32": 2.0**-23,
    "f64": 2.0**-52,
}
SMALLEST = {"f16": 2.0**-14, "f8E4M3FN": 2.0**-6, "f8E5M2": 2.0**-14, "f32": 2.0**-126}  # normal


def relative_error(actual, expected, smallest):
    """||actual - expected|| / ||expected||, Frobenius, over the finite places.

    smallest: what ||expected|| counts as at least, as of `assert_rows_close`.
    """
    finite = np.isfinite(expected)
    difference = np.linalg.norm(actual[finite] - expected[finite])
    size = max(np.linalg.norm(expected[finite]), smallest)
    return difference / size


def assert_close(actual, expected, dtype, *, slack=1.0, allowance=0.0, loses=False):
    """Stored `actual` against exact `expected` (float64, int64, bool) of a data type.

    slack: factor on the type's unit, for graphs of several roundings.  allowance: added to it.
    loses: see `assert_rows_close`.
    """
    actual, expected = widen(np.asarray(actual)), np.asarray(expected)
    assert actual.shape == expected.shape
    if not dtype.is_float:
        np.testing.assert_array_equal(actual, expected)
        return
    expected = widen(expected)
    rounded = widen(round_to(expected, dtype))
    expected = np.where(np.isinf(rounded), rounded, expected)  # what the type can't hold
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(np.isinf(actual) & ~infinite, False)
    np.testing.assert_array_equal(actual[infinite], expected[infinite])
    bound = UNIT[dtype.name] * slack + allowance
    smallest = max(SMALLEST.get(dtype.name, 0.0), SMALLEST["f32"])
    error = relative_error(actual, expected, smallest)
    assert error <= bound, f"relative error {error:.3g} > {bound:.3g} of {dtype}"
    assert_rows_close(actual, expected, 8 * bound, smallest=smallest, loses=loses)


def assert_rows_close(actual, expected, bound, *, smallest=SMALLEST["f32"], loses=False):
    """No element is off by more than `bound` times its row's largest magnitude.

    A row is along the last axis of several elements: of statistics [1, c, 1, 1], the channels.
    smallest: what a row's largest counts as at least: the type's smallest normal number, below
    which its step is the same.
    One element alone has no other to be measured by where its sum nearly cancels; nor has one
    beside zeros, nor those beside NaN and infinities: what is usual among all measures them.
    loses: so it does rows of zeros, where a graph may clip all of a row, or round it to nothing,
    that an error leaves something of; else these are zeros.
    """
    if expected.ndim == 0 or expected.size == 0:
        return
    while expected.ndim > 1 and expected.shape[-1] == 1:
        actual, expected = actual[..., 0], expected[..., 0]
    finite = np.where(np.isfinite(expected), expected, 0.0)
    largest = np.max(np.abs(finite), axis=-1, keepdims=True)
    off = np.abs(np.where(np.isfinite(expected), actual, 0.0) - finite)
    is_broken = ~np.isfinite(expected).all(axis=-1, keepdims=True)
    count = np.count_nonzero(finite, axis=-1, keepdims=True)
    is_broken |= (count == 1) | (loses & (count == 0))
    usual = 0.0
    if is_broken.any() and np.isfinite(expected).any():
        usual = np.sqrt(np.mean(finite**2, where=np.isfinite(expected)))
    largest = np.where(is_broken, np.maximum(largest, usual), largest)
    worst = np.max(off / np.maximum(largest, smallest))
    assert worst <= bound, f"an element is off by {worst:.3g} of its row's largest, > {bound:.3g}"
