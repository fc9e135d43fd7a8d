"""Depthwise convolutions that are too large for the interpreter, against torch in float64."""

import pytest

import dnnc
from dnnc import worker
from dnnc.dialect.fusion import partition
from dnnc.engines.conv_depthwise import CONV_DEPTHWISE
from dnnc.options import Options
from dnnc.target import of
from tests.engines.test_conv_sm90 import around, image, new_graph
from tests.support import device

from .test_large import TYPES, assert_close, fresh, poisoned

torch = pytest.importorskip("torch")

from .test_large_conv import last  # noqa: E402

N = dnnc.Dim("N", max=512)

# (X without N, W, parameters): layers of MobileNetV2 and EfficientNet, and what they lack.
LAYERS = {
    "112x112x32 3x3": ([32, 112, 112], [32, 1, 3, 3], around(1)),
    "112x112x96 3x3 s2": ([96, 112, 112], [96, 1, 3, 3], around(1, 2)),
    "56x56x144 3x3": ([144, 56, 56], [144, 1, 3, 3], around(1)),
    "28x28x192 5x5": ([192, 28, 28], [192, 1, 5, 5], around(2)),
    "14x14x576 5x5 s2": ([576, 14, 14], [576, 1, 5, 5], around(2, 2)),
    "7x7x960 3x3": ([960, 7, 7], [960, 1, 3, 3], around(1)),
    "56x56x96 7x7": ([96, 56, 56], [96, 1, 7, 7], around(3)),
    "31x29x40 31x31": ([40, 31, 29], [40, 1, 31, 31], around(15)),
    "odd": ([37, 29, 23], [37, 1, 3, 3], around(1)),
    "odd, dilated": ([72, 31, 27], [72, 1, 5, 3], {
        "padding": [2, 1], "stride": [2, 3], "dilation": [1, 2]}),
    "two outputs a channel": ([64, 28, 28], [128, 1, 3, 3], around(1)),
    "four channels a group": ([64, 28, 28], [64, 4, 3, 3], around(1)),
    "three channels": ([3, 112, 112], [32, 3, 3, 3], around(1, 2)),
    "3D": ([48, 9, 13, 11], [48, 1, 3, 3, 3], around(1, spatial=3)),
    "1D": ([96, 1001], [96, 1, 7], around(3, 2, spatial=1)),
}  # fmt: skip


def fused(layer, dtype):
    """relu(conv * scale + bias + residual) of a batch that is an argument."""
    (c, *spatial), w, parameters = layer
    g = new_graph(TYPES[dtype])
    y = g.conv_fprop(image(g, [N, c, *spatial], name="x"), image(g, w, name="w"), **parameters)
    one = [1, w[0], *[1] * len(spatial)]
    scaled = g.mul(y, g.tensor(one, name="scale"))
    biased = g.add(scaled, g.tensor(one, name="bias"))
    residual = image(g, y.get_dim(), name="residual")
    g.relu(g.add(biased, residual)).set_output().set_name("y")
    return g.graph.finalize()


def run(layer, dtype, batches, knobs=()):
    options = Options(engine="conv_depthwise", knobs=tuple(knobs))
    plan = dnnc.load(worker.compile_graph(fused(layer, dtype), device.target(), options))
    for n in batches:
        check_batch(plan, layer, dtype, n)


def check_batch(plan, layer, dtype, n):
    x_dims, w_dims, parameters = layer
    x = last([n, *x_dims], fresh, dtype=dtype)
    taps = w_dims[1]
    for extent in w_dims[2:]:
        taps *= extent
    limit = (3 / taps) ** 0.5
    w = last(w_dims, fresh, dtype=dtype, low=-limit, high=limit)
    one = [1, w_dims[0], *[1] * (len(w_dims) - 2)]
    scale, bias = fresh(*one, dtype=dtype, low=0.5), fresh(*one, dtype=dtype)
    convolve = [torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d]
    exact = convolve[len(w_dims) - 3](
        x.double(), w.double(), None, parameters["stride"], parameters["padding"],
        parameters["dilation"], x_dims[0] // w_dims[1],
    )  # fmt: skip
    residual = last(list(exact.shape), fresh, dtype=dtype)
    y = last(list(exact.shape), poisoned, dtype=dtype)
    pack = {"x": x, "w": w, "scale": scale, "bias": bias, "residual": residual, "y": y}
    sizes = {"N": n}
    plan.execute(pack, None, sizes=sizes)
    torch.cuda.synchronize()
    exact = torch.relu(exact * scale.double() + bias.double() + residual.double())
    pixels, exact = y.movedim(1, -1), exact.movedim(1, -1)
    assert_close(pixels, exact, dtype, slack=3.0)
    first = y.clone()
    plan.execute(pack, None, sizes=sizes)
    torch.cuda.synchronize()
    assert torch.equal(first, y), "runs differ"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_with_the_knobs_that_are_chosen(name, dtype):
    run(LAYERS[name], dtype, (1, 5, 32))


def _candidates():
    """Of a layer whose rows and columns most tiles do not divide."""
    graph = fused(LAYERS["28x28x192 5x5"], torch.float16)
    (fusion,) = partition(graph, [graph.live_ops])
    return [dict(knobs) for knobs in CONV_DEPTHWISE.candidates(fusion, of("sm_90"))]


@pytest.mark.parametrize(
    "knobs", _candidates(), ids=lambda knobs: "_".join(map(str, knobs.values()))
)
def test_every_candidate(knobs):
    run(LAYERS["28x28x192 5x5"], torch.float16, (3,), knobs.items())
