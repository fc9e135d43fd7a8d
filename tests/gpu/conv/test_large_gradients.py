"""Gradients of a volume that libraries gave wrong results for, by its size (pytorch #163539).

Beside torch in float64: the filter has one tap in depth, so that each slice is an image of its own.
"""

import pytest

from dnnc.options import Options
from tests.engines.conv.convs import around
from tests.engines.conv.test_sm90 import image, new_graph

from ..test_large import TYPES, assert_close, execute, fresh, poisoned
from .large_convs import last

torch = pytest.importorskip("torch")

X, W, Y = [1, 16, 124, 1282, 722], [16, 16, 1, 3, 3], [1, 16, 124, 1280, 720]
DTYPE = torch.bfloat16
DEPTHS = (0, 71, 72, 73, 123)  # byte 2^31 of X is in slice 72


def by_both(prefix):
    """An engine of any device, and that of Hopper's tensor cores, each with its target."""
    hopper = pytest.param(f"{prefix}_sm90", "sm_90a", marks=pytest.mark.sm90)
    return pytest.mark.parametrize(("engine", "target"), [(f"{prefix}_sm80", ""), hopper])


def image_gradient(x, w, y, io):
    g = new_graph(io)
    dy, taps = image(g, y, name="dy"), image(g, w, name="w")
    g.conv_dgrad(dy, taps, **around(0, spatial=3)).set_dim(x).set_output().set_name("dx")
    return g


def filter_gradient(x, w, y, io):
    g = new_graph(io)
    pixels, dy = image(g, x, name="x"), image(g, y, name="dy")
    g.conv_wgrad(pixels, dy, **around(0, spatial=3)).set_dim(w).set_output().set_name("dw")
    return g


@by_both("conv")
def test_gradient_of_a_large_volume(engine, target):
    dy, w = (last(dims, fresh, dtype=DTYPE) for dims in (Y, W))
    dx = last(X, poisoned, dtype=DTYPE)
    graph = image_gradient(X, W, Y, TYPES[DTYPE]).graph.finalize()
    execute(graph, {"dy": dy, "w": w, "dx": dx}, Options(engine=engine), target=target)
    dims, taps = X[:2] + X[3:], w[:, :, 0].double()
    for depth in DEPTHS:
        exact = torch.nn.grad.conv2d_input(dims, taps, dy[:, :, depth].double())
        found = dx[:, :, depth]
        assert_close(found.movedim(1, -1), exact.movedim(1, -1), DTYPE, slack=3.0, least=1.0)


@by_both("conv_wgrad")
def test_gradient_of_a_large_volumes_filter(engine, target):
    x, dy = (last(dims, fresh, dtype=DTYPE) for dims in (X, Y))
    dw = last(W, poisoned, dtype=DTYPE)
    graph = filter_gradient(X, W, Y, TYPES[DTYPE]).graph.finalize()
    execute(graph, {"x": x, "dy": dy, "dw": dw}, Options(engine=engine), target=target)
    dims = W[:2] + W[3:]
    exact = torch.zeros(dims, dtype=torch.float64, device="cuda")
    for depth in range(X[2]):
        pixels, loss = (t[:, :, depth].double() for t in (x, dy))
        exact += torch.nn.grad.conv2d_weight(pixels, dims, loss)
    # Each part sums a million products in f32, which tensor cores truncate.
    assert_close(dw[:, :, 0].flatten(1), exact.flatten(1), DTYPE, slack=3.0, allowance=2.0**-8)
