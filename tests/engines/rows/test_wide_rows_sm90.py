"""Reductions of rows that lie in several blocks of a cluster, and flow on, by matmul_sm90.

As code of "sm_90a".
"""

import pytest

from dnnc import dtypes
from dnnc.errors import cudnnGraphNotSupportedError

from ..product.test_matmul_sm80 import strides
from ..product.test_matmul_sm90 import SMALL, new_graph, run, softmax


def wide(columns, blocks, **knobs):
    return {**SMALL, "TILE_N": columns, "TILE_CGA_N": blocks, **knobs}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("n", "columns", "blocks"), [(128, 64, 2), (100, 32, 4), (33, 16, 4)])
@pytest.mark.parametrize("rows", [64, 128])
def test_softmax(n, columns, blocks, rows):
    """A block may have a part of its columns only, or none."""
    g = new_graph(dtypes.bf16)
    a, b = g.tensor([2, 70, 48]), g.tensor([1, 48, n], strides(48, n, "column"))
    softmax(g, g.matmul(a, b), [2, 70, 1]).set_output()
    plan = run(g, knobs=wide(columns, blocks, TILE_M=rows), slack=3.0)
    assert "mapa.shared::cluster" in plan.blobs[1].decode()


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.exchange
def test_many_tiles_and_two_blocks_of_rows():
    """Buffers and barriers are used again from tile to tile."""
    g = new_graph(dtypes.f16)
    a, b = g.tensor([5, 260, 16]), g.tensor([1, 16, 48], strides(16, 48, "column"))
    softmax(g, g.matmul(a, b), [5, 260, 1]).set_output()
    run(g, knobs=wide(32, 2, TILE_M=256), slack=3.0, seed=3)


def test_rms_norm_with_statistics_and_a_residual():
    g = new_graph(dtypes.bf16)
    a, b = g.tensor([1, 130, 64]), g.tensor([1, 64, 128], strides(64, 128, "column"))
    y = g.add(g.matmul(a, b), g.tensor([1, 130, 128]))
    mean = g.reduction(g.mul(y, y), "avg").set_dim([1, 130, 1]).set_output()
    mean.set_data_type(dtypes.f32)
    scale = g.rsqrt(g.add(mean, 1e-3))
    g.mul(g.mul(y, scale), g.tensor([1, 1, 128])).set_output()
    run(g, knobs=wide(64, 2, TILE_M=128), slack=4.0)


def test_one_reduction_that_is_an_output_alone_needs_no_cluster():
    g = new_graph(dtypes.f16)
    a, b = g.tensor([1, 64, 32]), g.tensor([1, 32, 128], strides(32, 128, "column"))
    g.reduction(g.matmul(a, b), "max").set_dim([1, 64, 1]).set_output()
    plan = run(g, knobs=wide(64, 2))
    assert len(plan.programs[0].variants[0].steps) == 2


@pytest.mark.in_turn
def test_the_engine_chooses_tiles_that_hold_the_row():
    for n in (200, 700):
        g = new_graph(dtypes.bf16)
        a, b = g.tensor([1, 8, 16]), g.tensor([1, 16, n], strides(16, n, "column"))
        softmax(g, g.matmul(a, b), [1, 8, 1]).set_output()
        plan = run(g, knobs={}, slack=3.0)
        knobs = plan.programs[0].fusions[0].knobs
        assert knobs["TILE_N"] * knobs["TILE_CGA_N"] >= n


def test_rows_that_no_cluster_holds_are_refused():
    g = new_graph(dtypes.bf16)
    a, b = g.tensor([1, 8, 16]), g.tensor([1, 16, 776], strides(16, 776, "column"))
    softmax(g, g.matmul(a, b), [1, 8, 1]).set_output()
    with pytest.raises(cudnnGraphNotSupportedError, match="rows of up to 768 elements"):
        run(g, knobs={})
    g = new_graph(dtypes.bf16)
    b = g.tensor([1, 16, 100], strides(16, 100, "column"))
    softmax(g, g.matmul(g.tensor([1, 8, 16]), b), [1, 8, 1]).set_output()
    with pytest.raises(cudnnGraphNotSupportedError, match="2 side by side, for rows of 100"):
        run(g, knobs=wide(32, 2))
    with pytest.raises(cudnnGraphNotSupportedError, match="TILE_CGA_M=1"):
        run(g, knobs=wide(64, 2, TILE_CGA_M=2))
