"""A convolution's gradients: the references, what is inferred, what is asked for and refused."""

import itertools
from functools import cache

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.ops import ConvDgrad, ConvWgrad
from dnnc.errors import DnncError, Status

from .conv_gradient_examples import FORWARD, GRADIENTS, PEERS, dgrad_of, new_graph, wgrad_of

CASES = {name: case for name, case in (FORWARD | PEERS).items() if name != "symbols"}
INPUTS = {"conv_dgrad": "yw", "conv_wgrad": "xy"}


def arrays_of(name, rng):
    """x, w and an array of y's dims, and the result of the forward convolution of x and w."""
    x, w, parameters = CASES[name]
    drawn = {"x": rng.standard_normal(x), "w": rng.standard_normal(w)}
    y = forward(name, drawn)
    return {**drawn, "y": rng.standard_normal(y.shape)}, parameters


@cache
def forward_graph(name):
    g = new_graph(dtypes.f64)
    x, w, parameters = CASES[name]
    return finished(g, g.conv_fprop(g.tensor(x), g.tensor(w), **parameters))


def forward(name, drawn):
    return referenced(forward_graph(name), "xw", drawn)


def gradient(op, name, drawn):
    g = new_graph(dtypes.f64)
    x, w, parameters = CASES[name]
    return referenced(finished(g, GRADIENTS[op](g, x, w, **parameters)), INPUTS[op], drawn)


def referenced(graph, keys, drawn):
    inputs = {t.uid: drawn[key] for t, key in zip(graph.inputs, keys, strict=True)}
    (found,) = dnnc.reference(graph, inputs, exact_outputs=True).values()
    return found


def finished(g, made):
    made.set_output()
    return g.graph.finalize()


@pytest.mark.parametrize("name", CASES)
def test_references_are_the_sums_over_every_pair_of_pixel_and_tap(name):
    """One product at a time, of every output, filter, channel of its group and tap."""
    drawn, parameters = arrays_of(name, np.random.default_rng(0))
    x, w, y = (drawn[key] for key in "xwy")
    spatial = x.ndim - 2
    pre = parameters.get("pre_padding", parameters.get("padding", [0] * spatial))
    stride, dilation = (parameters.get(n, [1] * spatial) for n in ("stride", "dilation"))
    is_transposed = parameters.get("convolution_mode") == "CONVOLUTION"
    k_group = len(w) // (x.shape[1] // w.shape[1])
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for k, c, *tap in itertools.product(*map(range, w.shape)):
        channel = k // k_group * w.shape[1] + c
        lies = [n - 1 - t if is_transposed else t for t, n in zip(tap, w.shape[2:], strict=True)]
        for n, *output in itertools.product(range(len(y)), *map(range, y.shape[2:])):
            pixel = [
                o * s - p + t * d
                for o, s, p, t, d in zip(output, stride, pre, lies, dilation, strict=True)
            ]
            if all(0 <= i < size for i, size in zip(pixel, x.shape[2:], strict=True)):
                dx[n, channel, *pixel] += w[k, c, *tap] * y[n, k, *output]
                dw[k, c, *tap] += x[n, channel, *pixel] * y[n, k, *output]
    np.testing.assert_allclose(gradient("conv_dgrad", name, drawn), dx, 1e-12, 1e-12)
    np.testing.assert_allclose(gradient("conv_wgrad", name, drawn), dw, 1e-12, 1e-12)


@pytest.mark.parametrize(("op", "key"), [("conv_dgrad", "x"), ("conv_wgrad", "w")])
@pytest.mark.parametrize("name", ["strided, dilated, uneven groups", "flipped"])
def test_references_are_what_the_forward_result_changes_by(op, key, name):
    """Central differences of sum(y * forward), of every element."""
    drawn, _ = arrays_of(name, np.random.default_rng(1))
    found, step = gradient(op, name, drawn), 0.5
    for at in np.ndindex(found.shape):
        changed = []
        for sign in (1, -1):
            moved = drawn[key].copy()
            moved[at] += sign * step
            changed.append(np.sum(forward(name, {**drawn, key: moved}) * drawn["y"]))
        assert found[at] == pytest.approx((changed[0] - changed[1]) / (2 * step), abs=1e-9)


@pytest.mark.parametrize("op", GRADIENTS)
def test_integers_wrap_as_those_of_a_product_do(op):
    g = new_graph(dtypes.i32)
    types = (dtypes.i32, dtypes.i32)
    made = GRADIENTS[op](g, [1, 1, 1], [1, 1, 1], types, compute_data_type=dtypes.i32)
    factors = zip(INPUTS[op], (65537, 65536), strict=True)
    drawn = {key: [[[factor]]] for key, factor in factors}
    found = referenced(finished(g, made), INPUTS[op], drawn)
    assert found.tolist() == [[[65536]]]


# ---- the pygraph door


def test_the_names_are_those_of_the_frontend():
    g = new_graph()
    dy, w, x = g.tensor([2, 6, 5, 4]), g.tensor([6, 3, 3, 3]), g.tensor([2, 3, 5, 4])
    parameters = {
        "pre_padding": [1, 1], "post_padding": [1, 1], "stride": [1, 1], "dilation": [1, 1],
        "convolution_mode": dnnc.convolution_mode.CROSS_CORRELATION,
        "compute_data_type": dnnc.data_type.FLOAT,
    }  # fmt: skip
    dx = g.conv_dgrad(loss=dy, filter=w, **parameters, name="dgrad").set_dim([2, 3, 5, 4])
    dw = g.conv_wgrad(image=x, loss=dy, **parameters, name="wgrad").set_dim([6, 3, 3, 3])
    dx.set_output()
    dw.set_output()
    g.validate()
    # Channels last, as the frontend has what it infers.
    assert (dx.get_stride(), dw.get_stride()) == ([60, 1, 12, 3], [27, 1, 9, 3])
    of_data, of_filter = g.graph.ops
    assert isinstance(of_data, ConvDgrad)
    assert isinstance(of_filter, ConvWgrad)
    assert [op.name for op in g.graph.ops] == ["dgrad", "wgrad"]


def test_dims_that_do_not_follow_are_asked_for():
    g = new_graph()
    g.conv_wgrad(*(g.tensor(dims) for dims in ([2, 4, 7, 7], [2, 6, 5, 5]))).set_output()
    with pytest.raises(DnncError, match="the dims of DW are not set") as caught:
        g.validate()
    assert "set_dim" in caught.value.supported
    assert "conv_wgrad" in caught.value.where


def test_the_smallest_image_of_a_response():
    """11 pixels give 5 windows of 3, two apart; 12 do too."""
    g = new_graph()
    dy, w = g.tensor([2, 6, 5, 5]), g.tensor([6, 4, 3, 3])
    dx = g.conv_dgrad(dy, w, padding=[0, 1], stride=[2, 2]).set_output()
    g.validate()
    assert dx.get_dim() == [2, 4, 11, 9]


@pytest.mark.parametrize(
    ("of", "changes", "status", "what"),
    [
        (dgrad_of, {"x": [2, 4, 8, 7]}, Status.BAD_PARAM_SHAPE_MISMATCH,
         r"DY has dims \[2, 6, 5, 5\]; accepted: \[2, 6, 6, 5\]"),
        (dgrad_of, {"x": [1, 4, 7, 7]}, Status.BAD_PARAM_SHAPE_MISMATCH, "DY has dims"),
        (dgrad_of, {"x": [2, 6, 7, 7]}, Status.BAD_PARAM_SHAPE_MISMATCH, r"C = 6, W \[6, 4"),
        (wgrad_of, {"w": [6, 4, 3, 2]}, Status.BAD_PARAM_SHAPE_MISMATCH, "DY has dims"),
        (wgrad_of, {"w": [6, 8, 3, 3]}, Status.BAD_PARAM_SHAPE_MISMATCH, r"C = 4, DW \[6, 8"),
        (wgrad_of, {"w": [6, 4, 3]}, Status.BAD_PARAM_SHAPE_MISMATCH, "X .*, DW"),
        (wgrad_of, {"padding": [1, 1], "pre_padding": [1, 1]}, Status.BAD_PARAM, "padding and"),
        (dgrad_of, {"types": (dtypes.i8, dtypes.f16), "compute_data_type": dtypes.i32},
         Status.NOT_SUPPORTED_DATA_TYPE, "INT32 for i8 and f16"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(of, changes, status, what):
    g = new_graph()
    fitting = {"x": [2, 4, 7, 7], "w": [6, 4, 3, 3], "y": [2, 6, 5, 5]}
    with pytest.raises(DnncError, match=what) as caught:
        finished(g, of(g, **{**fitting, **changes}))
    assert caught.value.status is status
