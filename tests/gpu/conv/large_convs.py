"""Convolutions of an engine on the device against torch in float64, for sizes that the interpreter
is too slow for."""

import math

import dnnc
from dnnc import worker
from dnnc.options import Options
from tests.engines.conv.convs import packed
from tests.engines.conv.test_sm90 import new_graph
from tests.engines.elementwise.test_resample import channels_last
from tests.support import device

from ..test_large import TYPES, assert_close, fresh, poisoned, torch

N = dnnc.Dim("N", max=512)


def last(dims, make, **options):
    """A torch tensor [n, c, ...] with the channels last."""
    n, c, *spatial = dims
    return make(n, *spatial, c, **options).movedim(-1, 1)


def laid(dims, make, layout, **options):
    """A torch tensor [n, c, ...] with the channels "last" or "first"."""
    return make(*dims, **options) if layout == "first" else last(dims, make, **options)


def fused(layer, dtype, layout="last"):
    """relu(conv * scale + bias + residual) of a batch that is an argument."""
    (c, *spatial), w, parameters = layer
    g = new_graph(TYPES[dtype])

    def tensor(dims, **options):
        return g.tensor(dims, strides(dims, layout), **options)

    y = g.conv_fprop(tensor([N, c, *spatial], name="x"), tensor(w, name="w"), **parameters)
    one = [1, w[0], *[1] * len(spatial)]
    scaled = g.mul(y, g.tensor(one, name="scale"))
    biased = g.add(scaled, g.tensor(one, name="bias"))
    dims = y.get_dim()
    out = g.relu(g.add(biased, tensor(dims, name="residual")))
    out.set_output().set_name("y").set_stride(strides(dims, layout))
    return g.graph.finalize()


def strides(dims, layout):
    return packed(dims) if layout == "first" else channels_last(dims)


def run(engine, layer, dtype, batches, knobs=(), *, target="", allowance=0.0, layout="last"):
    """One plan for all batches; target: the device's by default."""
    options = Options(engine=engine, knobs=tuple(knobs))
    graph = fused(layer, dtype, layout)
    compiled = worker.compile_graph(graph, target or device.target(), options)
    plan = dnnc.load(compiled)
    for n in batches:
        check_batch(plan, layer, dtype, n, allowance, layout)


def check_batch(plan, layer, dtype, n, allowance=0.0, layout="last"):
    x_dims, w_dims, parameters = layer
    x = laid([n, *x_dims], fresh, layout, dtype=dtype)
    limit = (3 / math.prod(w_dims[1:])) ** 0.5
    w = laid(w_dims, fresh, layout, dtype=dtype, low=-limit, high=limit)
    one = [1, w_dims[0], *[1] * (len(w_dims) - 2)]
    scale, bias = fresh(*one, dtype=dtype, low=0.5), fresh(*one, dtype=dtype)
    convolve = [torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d]
    exact = convolve[len(w_dims) - 3](
        x.double(), w.double(), None, parameters["stride"], parameters["padding"],
        parameters["dilation"], x_dims[0] // w_dims[1],
    )  # fmt: skip
    residual = laid(list(exact.shape), fresh, layout, dtype=dtype)
    y = laid(list(exact.shape), poisoned, layout, dtype=dtype)
    pack = {"x": x, "w": w, "scale": scale, "bias": bias, "residual": residual, "y": y}
    sizes = {"N": n}
    needed = plan.workspace_size(plan.sizes(pack, sizes))
    workspace = torch.empty(needed, dtype=torch.uint8, device="cuda") if needed else None
    plan.execute(pack, workspace, sizes=sizes)
    torch.cuda.synchronize()
    exact = torch.relu(exact * scale.double() + bias.double() + residual.double())
    pixels, exact = y.movedim(1, -1), exact.movedim(1, -1)
    # All of a few channels may be next to zero.
    least = 1.0 if w_dims[0] < 8 else 0.0
    assert_close(pixels, exact, dtype, slack=3.0, allowance=allowance, least=least)
    first = y.clone()
    plan.execute(pack, workspace, sizes=sizes)
    torch.cuda.synchronize()
    assert torch.equal(first, y), "runs differ"
