"""The references of resample against loops that follow the definition, and its calls."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.reference import reference
from dnnc.errors import DnncError
from tests.support import linalg_cpu

from .example_parts import finish, new_graph

# (pre, post, stride, window) along one dim of 7 elements.
POOLINGS = [(0, 0, 1, 1), (1, 1, 2, 3), (2, 1, 1, 3), (0, 1, 3, 2), (3, 3, 5, 4)]
HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)
UPSAMPLINGS = [
    (0, 0, HALF, HALF),
    (HALF, 1, HALF, 2),
    (3 * QUARTER, 3 * QUARTER, HALF, 2),
    (0, 0, Fraction(1, 3), Fraction(1, 3)),
    (Fraction(7, 2), 4, QUARTER, 2),
    (2, Fraction(5, 2), 3 * QUARTER, 1),
    (0, 0, HALF, 6),
]


def outputs_of(extent, pre, post, stride, window):
    return math.floor((extent + pre + post - window) / stride) + 1


def resampled(x, mode, where):
    """A naive resample of [N, C, ...] by exact fractions: (Y, index)."""
    dims = x.shape[2:]
    counts = [outputs_of(n, *w) for n, w in zip(dims, where, strict=True)]
    y, index = np.zeros((*x.shape[:2], *counts)), np.zeros((*x.shape[:2], *counts), int)
    for at in np.ndindex(*y.shape):
        place = at[2:]
        y[at], index[at] = of_window(x[at[:2]], mode, place, where)
    return y, index


def of_window(x, mode, place, where):
    starts = [o * stride - pre for o, (pre, _, stride, _) in zip(place, where, strict=True)]
    sizes = [window for *_, window in where]
    if mode in ("BILINEAR", "NEAREST"):
        centres = [start + Fraction(size) / 2 for start, size in zip(starts, sizes, strict=True)]
        return (linear if mode == "BILINEAR" else nearest)(x, centres), 0
    found = []
    for number, tap in enumerate(itertools.product(*map(range, sizes))):
        i = tuple(start + t for start, t in zip(starts, tap, strict=True))
        if all(0 <= k < n for k, n in zip(i, x.shape, strict=True)):
            found.append((x[i], number))
    if mode == "MAXPOOL":
        best = max(found, key=lambda pair: (pair[0], -pair[1]))
        return best
    total = sum(value for value, _ in found)
    return total / (len(found) if mode == "AVGPOOL_EXCLUDE_PADDING" else math.prod(sizes)), 0


def nearest(x, centres):
    at = tuple(min(max(math.floor(c), 0), n - 1) for c, n in zip(centres, x.shape, strict=True))
    return x[at]


def linear(x, centres):
    """The value between the centres of elements, which are at 1/2, 3/2, ..."""
    total = 0.0
    for corner in itertools.product((0, 1), repeat=x.ndim):
        at, weight = [], 1.0
        for side, centre, extent in zip(corner, centres, x.shape, strict=True):
            place = centre - HALF
            base = math.floor(place)
            weight *= float(place - base if side else 1 - (place - base))
            at.append(min(max(base + side, 0), extent - 1))
        total += weight * x[tuple(at)]
    return total


def graph_of(dims, mode, where, **options):
    g = new_graph(io_data_type=dtypes.f64)
    pre, post, stride, window = (list(values) for values in zip(*where, strict=True))
    y, index = g.resample(g.tensor(dims), mode, pre, post, stride, window, **options)
    return finish(g, *(t for t in (y, index) if t is not None)), y, index


@pytest.mark.parametrize(
    ("mode", "where"),
    [
        *itertools.product(
            ("MAXPOOL", "AVGPOOL_INCLUDE_PADDING", "AVGPOOL_EXCLUDE_PADDING"), POOLINGS
        ),
        *itertools.product(("BILINEAR", "NEAREST"), UPSAMPLINGS),
    ],
    ids=str,
)
def test_one_dim(mode, where):
    x = np.random.default_rng(0).permutation(14).reshape(1, 2, 7) / 4
    g, y, _ = graph_of([1, 2, 7], mode, [where], compute_data_type=dtypes.f64)
    wanted, _ = resampled(x, mode, [where])
    assert y.get_dim() == list(wanted.shape)
    found = reference(g.graph, {g.graph.finalize().inputs[0].uid: x})[y.uid]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("mode", ["MAXPOOL", "AVGPOOL_EXCLUDE_PADDING", "BILINEAR", "NEAREST"])
def test_three_dims(mode):
    is_pool = "POOL" in mode
    where = [POOLINGS[1], POOLINGS[3], POOLINGS[2]] if is_pool else UPSAMPLINGS[:3]
    dims = [2, 1, 4, 3, 5]
    x = np.random.default_rng(1).uniform(-1, 1, dims)
    g, y, _ = graph_of(dims, mode, where, compute_data_type=dtypes.f64)
    found = reference(g.graph, {g.graph.finalize().inputs[0].uid: x})[y.uid]
    np.testing.assert_allclose(found, resampled(x, mode, where)[0], rtol=1e-12)


def test_index_of_two_dims():
    where, dims = [POOLINGS[1], POOLINGS[2]], [2, 3, 5, 4]
    x = np.random.default_rng(2).integers(0, 3, dims).astype(float)
    g, y, index = graph_of(dims, "MAXPOOL", where, generate_index=True)
    found = reference(g.graph, {g.graph.finalize().inputs[0].uid: x})
    wanted = resampled(x, "MAXPOOL", where)
    np.testing.assert_array_equal(found[y.uid], wanted[0])
    np.testing.assert_array_equal(found[index.uid], wanted[1])
    assert index.get_data_type() == dtypes.i8


@pytest.mark.parametrize(
    ("mode", "where"),
    [
        *itertools.product(
            ("MAXPOOL", "AVGPOOL_INCLUDE_PADDING", "AVGPOOL_EXCLUDE_PADDING"), POOLINGS
        ),
        *itertools.product(("BILINEAR", "NEAREST"), UPSAMPLINGS),
    ],
    ids=str,
)
def test_backward_is_the_derivative(mode, where):
    """Each element of DX is how much the sum of Y * DY grows with an element of X."""
    rng = np.random.default_rng(3)
    x = rng.permutation(7).reshape(1, 1, 7).astype(float)
    y, _ = resampled(x, mode, [where])
    dy = rng.uniform(-1, 1, y.shape)
    wanted = np.zeros(x.shape)
    for i in range(7):
        moved = x.copy()
        moved[0, 0, i] += 1e-3  # below the distance of two elements, so that maxima stay
        wanted[0, 0, i] = np.sum((resampled(moved, mode, [where])[0] - y) * dy) / 1e-3
    pre, post, stride, window = ([value] for value in where)
    g = new_graph(io_data_type=dtypes.f64)
    loss, image = g.tensor(list(y.shape)), g.tensor([1, 1, 7])
    dx = g.resample_backward(loss, mode, pre, post, stride, window, input=image)
    graph = finish(g, dx).graph.finalize()
    found = reference(graph, {loss.uid: dy, image.uid: x})[dx.uid]
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_every_nan_is_above_all():
    """A NaN whose sign bit is set is too, which an order of integers would have below all."""
    g, y, index = graph_of([1, 1, 5], "MAXPOOL", [(0, 0, 1, 2)], generate_index=True)
    graph = linalg_cpu.with_sizes(g.graph, {})
    x = np.array([1.0, -np.nan, 2.0, np.nan, -np.nan]).reshape(1, 1, 5)
    assert np.signbit(x).any()
    found = linalg_cpu.run(graph, {graph.inputs[0].uid: x})
    np.testing.assert_array_equal(found[y.uid].ravel(), [np.nan] * 4)
    assert found[index.uid].ravel().tolist() == [1, 0, 1, 0]


# ---- calls


def test_enumerators_and_the_padding_that_goes_with_a_mode():
    g = new_graph()
    y, index = g.resample(
        g.tensor([1, 8, 6, 6]),
        dnnc.resample_mode.MAXPOOL,
        [0, 0],
        [0, 0],
        [2, 2],
        [2, 2],
        dnnc.padding_mode.NEG_INF_PAD,
        generate_index=True,
        name="pool",
    )
    assert (y.get_dim(), y.get_stride()) == ([1, 8, 3, 3], [72, 1, 24, 8])
    assert (y.get_name(), index.get_name()) == ("pool::Y", "pool::INDEX")
    assert g.graph.ops[0].padding_mode == "NEG_INF_PAD"
    _, none = g.resample(g.tensor([1, 8, 6]), "AVGPOOL_INCLUDE_PADDING", [0], [0], [2], [2])
    assert none is None
    assert g.graph.ops[1].padding_mode == "ZERO_PAD"


@pytest.mark.parametrize("half", [0.5, Fraction(1, 2), (1, 2)], ids=str)
def test_fractions(half):
    g = new_graph()
    y, _ = g.resample(g.tensor([1, 1, 5]), "BILINEAR", [half], [1], [half], [2])
    op = g.graph.ops[0]
    assert y.get_dim() == [1, 1, 10]
    assert (op.pre_padding, op.post_padding, op.stride, op.window) == ((1,), (2,), (1,), (4,))
    assert op.denominator == 2


def test_bilinear_of_the_guides_parameters_is_what_cudnn_computes():
    """Y of one-hot X, a row for each element: measured of cuDNN 9.19 on an H100."""
    g = new_graph()
    x = g.tensor([1, 1, 4, 4], name="x")
    y, _ = g.resample(x, "BILINEAR", [0.5] * 2, [1] * 2, [0.5] * 2, [2] * 2)
    y.set_output()
    measured = np.array(
        [
            [1, 0.5, 0, 0, 0, 0, 0, 0],
            [0, 0.5, 1, 0.5, 0, 0, 0, 0],
            [0, 0, 0, 0.5, 1, 0.5, 0, 0],
            [0, 0, 0, 0, 0, 0.5, 1, 1],
        ]
    )
    for row, column in itertools.product(range(4), range(4)):
        image = np.zeros((1, 1, 4, 4), np.float32)
        image[..., row, column] = 1
        (got,) = dnnc.reference(g, {"x": image}).values()
        assert np.array_equal(got[0, 0], np.outer(measured[row], measured[column]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": [0.5]}, "whole numbers for pooling"),
        ({"pre_padding": [2]}, "paddings below the window"),
        ({"window": [0]}, "values of at least 1"),
        ({"padding_mode": "EDGE_VAL_PAD"}, "NEG_INF_PAD"),
        ({"resample_mode": "LANCZOS"}, "MAXPOOL, AVGPOOL_INCLUDE_PADDING"),
        ({"window": [9]}, "dims of at least 1"),
        ({"generate_index": True, "compute_data_type": dtypes.f64}, "accepted: FLOAT"),
    ],
    ids=str,
)
def test_refusals(options, message):
    parameters = {
        "resample_mode": "MAXPOOL",
        "pre_padding": [0],
        "post_padding": [0],
        "stride": [1],
        "window": [2],
    }
    g = new_graph()
    x = g.tensor([1, 1, 7])
    with pytest.raises(DnncError, match=message):
        finish(g, g.resample(x, **{**parameters, **options})[0]).validate()


def test_an_index_that_its_type_does_not_hold_is_refused():
    g = new_graph()
    y, index = g.resample(
        g.tensor([1, 1, 200]), "MAXPOOL", [0], [0], [1], [129], generate_index=True
    )
    assert index.get_data_type() == dtypes.i32
    index.set_data_type(dtypes.i8)
    with pytest.raises(DnncError, match="accepted: i32"):
        finish(g, y, index).validate()
