"""Statistics of whole layers' channels at conv_sm90's exit, against torch in float64."""

import pytest

import dnnc
from dnnc import dtypes, worker
from dnnc.options import Options
from tests.engines.conv.test_sm90 import N, around, image, new_graph

from ..test_large import assert_close, fresh
from .large_convs import last

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.sm90

# (X without N, W, parameters).
LAYERS = {
    "56x56x64 3x3": ([64, 56, 56], [64, 64, 3, 3], around(1)),
    "56x56x64->256 1x1": ([64, 56, 56], [256, 64, 1, 1], around(0)),
    "56x56x256->512 1x1 s2": ([256, 56, 56], [512, 256, 1, 1], around(0, 2)),
    "7x7x512 3x3": ([512, 7, 7], [512, 512, 3, 3], around(1)),
    "odd": ([72, 29, 23], [104, 72, 3, 3], around(1)),
}
FORMS = {
    "chosen": {},
    "rows": {"SWAP_AB": 0, "TILE_ROWS": 0, "TILE_M": 128, "TILE_N": 128},
    "swapped": {"SWAP_AB": 1, "TILE_ROWS": 0, "TILE_M": 128, "TILE_N": 128},
}


def statistics(layer):
    """The sum and the sum of squares of each channel, and the largest value of all."""
    (c, *spatial), w, parameters = layer
    g = new_graph(dtypes.f16)
    y = g.conv_fprop(image(g, [N, c, *spatial], name="x"), image(g, w, name="w"), **parameters)
    g.identity(y).set_output().set_name("y")
    for total, name in zip(g.genstats(y), ("sum", "squares"), strict=True):
        total.set_output().set_name(name).set_data_type(dtypes.f32)
    most = g.reduction(y, "amax").set_dim([1, 1, 1, 1]).set_output()
    most.set_name("amax").set_data_type(dtypes.f32)
    return g.graph.finalize()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LAYERS)
def test_statistics_of_layers(name, form):
    layer = (c, *_), w_dims, parameters = LAYERS[name]
    knobs = tuple(FORMS[form].items())
    options = Options(engine="conv_sm90", knobs=knobs)
    plan = dnnc.load(worker.compile_graph(statistics(layer), "sm_90a", options))
    for n in (1, 37):
        x = last([n, *layer[0]], fresh)
        depth = c * 9
        w = last(w_dims, fresh, low=-((3 / depth) ** 0.5), high=(3 / depth) ** 0.5)
        exact = torch.nn.functional.conv2d(
            x.double(), w.double(), None, parameters["stride"], parameters["padding"]
        )
        k = w_dims[0]
        totals = {name: torch.full([1, k, 1, 1], float("nan"), device="cuda")
                  for name in ("sum", "squares")}  # fmt: skip
        most = torch.full([1, 1, 1, 1], float("nan"), device="cuda")
        y = last(list(exact.shape), torch.empty, dtype=torch.float16, device="cuda")
        pack = {"x": x, "w": w, "y": y, "amax": most, **totals}
        needed = plan.workspace_size(plan.sizes(pack, {"N": n}))
        workspace = torch.full([needed], 0xFF, dtype=torch.uint8, device="cuda")
        plan.execute(pack, workspace, sizes={"N": n})
        torch.cuda.synchronize()
        axes = (0, 2, 3)
        scale = exact.abs().sum(axes, keepdim=True)
        assert float(((totals["sum"] - exact.sum(axes, keepdim=True)).abs() / scale).max()) < 1e-5
        squares = (exact * exact).sum(axes).view(1, -1)
        assert_close(totals["squares"].view(1, -1), squares, torch.float32, allowance=1e-5)
        assert_close(most.view(1, 1), exact.abs().max().view(1, 1), torch.float32, allowance=1e-5)
        first = {name: total.clone() for name, total in (*totals.items(), ("amax", most))}
        workspace.fill_(0x5A)
        plan.execute(pack, workspace, sizes={"N": n})
        torch.cuda.synchronize()
        for name_, value in first.items():
            assert torch.equal(value, pack[name_]), f"{name_} differs from run to run"
