"""Convolutions of sizes that the interpreter is too slow for, against torch in float64."""

import pytest

import dnnc
from dnnc import worker
from dnnc.dialect.fusion import partition
from dnnc.engines.conv_sm90 import CONV_SM90
from dnnc.options import Options
from dnnc.target import of
from tests.engines.test_conv_sm90 import around, image, new_graph

from .test_large import TYPES, assert_close, fresh, poisoned

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.sm90

TARGET = "sm_90a"
N = dnnc.Dim("N", max=512)

# (X without N, W, parameters): odd sizes, and layers of ResNet-50.
LAYERS = {
    "odd": ([72, 29, 23], [104, 72, 3, 3], around(1)),
    "odd, with stride": ([136, 31, 27], [72, 136, 5, 3], {
        "padding": [2, 1], "stride": [2, 3], "dilation": [1, 2]}),
    "56x56x64 3x3": ([64, 56, 56], [64, 64, 3, 3], around(1)),
    "56x56x64->256 1x1": ([64, 56, 56], [256, 64, 1, 1], around(0)),
    "28x28x128 3x3": ([128, 28, 28], [128, 128, 3, 3], around(1)),
    "14x14x256 3x3": ([256, 14, 14], [256, 256, 3, 3], around(1)),
    "7x7x512 3x3": ([512, 7, 7], [512, 512, 3, 3], around(1)),
    "56x56x256->512 1x1 s2": ([256, 56, 56], [512, 256, 1, 1], around(0, 2)),
    "28x28x128 5x5 of groups": ([128, 28, 28], [128, 16, 5, 5], around(2)),
    "dilation 2": ([64, 40, 41], [96, 64, 3, 3], around(2, dilation=2)),
    "3D": ([32, 9, 13, 11], [40, 32, 3, 3, 3], around(1, spatial=3)),
    "1D": ([96, 1001], [200, 96, 7], around(3, 2, spatial=1)),
}  # fmt: skip


def last(dims, make, **options):
    """A torch tensor [n, c, ...] with the channels last."""
    n, c, *spatial = dims
    return make(n, *spatial, c, **options).movedim(-1, 1)


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


def run(layer, dtype, batches, knobs=(), engine="conv_sm90"):
    options = Options(engine=engine, knobs=tuple(knobs))
    plan = dnnc.load(worker.compile_graph(fused(layer, dtype), TARGET, options))
    for n in batches:
        check_batch(plan, layer, dtype, n)


def check_batch(plan, layer, dtype, n):
    x_dims, w_dims, parameters = layer
    x = last([n, *x_dims], fresh, dtype=dtype)
    depth = x_dims[0] * 9
    w = last(w_dims, fresh, dtype=dtype, low=-((3 / depth) ** 0.5), high=(3 / depth) ** 0.5)
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
    needed = plan.workspace_size(plan.sizes(pack, sizes))
    workspace = torch.empty(needed, dtype=torch.uint8, device="cuda") if needed else None
    plan.execute(pack, workspace, sizes=sizes)
    torch.cuda.synchronize()
    exact = torch.relu(exact * scale.double() + bias.double() + residual.double())
    # A pixel has enough channels for one that ReLU leaves.
    pixels, exact = y.movedim(1, -1), exact.movedim(1, -1)
    assert_close(pixels, exact, dtype, slack=3.0, allowance=2.0**-18)
    first = y.clone()
    plan.execute(pack, workspace, sizes=sizes)
    torch.cuda.synchronize()
    assert torch.equal(first, y), "runs differ"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_with_the_knobs_that_are_chosen(name, dtype):
    run(LAYERS[name], dtype, (1, 5, 32))


STEMS = {
    "224x224x3 7x7 s2": ([3, 224, 224], [64, 3, 7, 7], around(3, 2)),
    "160x160x3 3x3 s2": ([3, 161, 160], [40, 3, 3, 3], around(1, 2)),
    "four channels": ([4, 37, 78], [104, 4, 5, 5], around(2)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [128, 256])
@pytest.mark.parametrize("name", STEMS)
def test_first_layers(name, rows, dtype):
    run(STEMS[name], dtype, (1, 33), {"TILE_M": rows}.items(), "conv_stem_sm90")


def _candidates():
    """Each tile and cluster once, of two layers."""
    for name in ("28x28x128 3x3", "56x56x64 3x3"):
        graph = fused(LAYERS[name], torch.float16)
        (fusion,) = partition(graph, [graph.live_ops])
        for knobs in CONV_SM90.candidates(fusion, of(TARGET)):
            if name == "28x28x128 3x3" or knobs["TILE_ROWS"]:
                yield name, dict(knobs)


def _name(part):
    return part if isinstance(part, str) else "_".join(map(str, part.values()))


@pytest.mark.parametrize(("name", "knobs"), list(_candidates()), ids=_name)
def test_every_candidate(name, knobs):
    run(LAYERS[name], torch.float16, (3,), knobs.items())


@pytest.mark.parametrize("knobs", [{"STREAM_K": 1}, {"SCHED_POLICY": 1}], ids=str)
def test_other_ways_through_the_tiles(knobs):
    run(LAYERS["14x14x256 3x3"], torch.bfloat16, (32, 77), knobs.items())
