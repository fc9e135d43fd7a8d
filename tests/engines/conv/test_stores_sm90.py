"""Outputs of conv_sm90 that L2 gives up first: which, and that they are right."""

import pytest

from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.engines.conv import tiling_sm90
from tests.support.checked import check

from .convs import around
from .test_pattern import convolved, new_graph

pytestmark = pytest.mark.sm90


def graph_of(x, w, stride=1, **options):
    g = new_graph(target="sm_90a", **options)
    y = convolved(g, x, w, **around(w[2] // 2, stride))
    return g, y


def hints(g):
    """Stores with a policy, and policies."""
    plan = compile_graph(g.graph.finalize(), "sm_90a")
    assert plan.programs[0].fusions[0].engine == "conv_sm90"
    ptx = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    return ptx.count("bulk_group.L2::cache_hint"), ptx.count("createpolicy")


def test_what_is_mostly_written():
    g, _ = graph_of([256, 64, 56, 56], [256, 64, 1, 1])
    stores, policies = hints(g)
    assert stores > 0
    assert policies == 1


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("x", "w", "stride"),
    [
        ([32, 64, 56, 56], [256, 64, 1, 1], 1),  # L2 has room for it
        ([256, 256, 56, 56], [512, 256, 1, 1], 2),  # as much is read
        ([512, 32, 56, 56], [200, 32, 1, 1], 1),  # the end of a pixel is half of a sector
    ],
    ids=["small", "read", "parts of sectors"],
)
def test_what_is_not(x, w, stride):
    g, _ = graph_of(x, w, stride)
    assert hints(g) == (0, 0)


@pytest.mark.in_turn
def test_a_residual_is_read():
    g, y = graph_of([256, 64, 56, 56], [256, 64, 1, 1])
    y.set_output(False)
    g.add(y, g.tensor(y.get_dim(), y.get_stride())).set_output()
    assert hints(g) == (0, 0)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("swaps", [0, 1])
def test_they_are_right(swaps, monkeypatch):
    monkeypatch.setattr(tiling_sm90, "LARGE_BYTES", 0)
    monkeypatch.setattr(tiling_sm90, "_MOST_SHARE", 1)
    g, y = graph_of([2, 64, 9, 15], [256, 64, 1, 1])
    y.set_output(False)
    g.relu(y).set_output().set_data_type(dtypes.f16)
    plan = check(g, target="sm_90a", engine="conv_sm90", knobs={"SWAP_AB": swaps})
    ptx = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    assert "bulk_group.L2::cache_hint" in ptx
