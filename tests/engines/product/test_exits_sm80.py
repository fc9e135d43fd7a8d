"""Reductions and packed masks at the exit of matmul_sm80."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.fusion import partition
from dnnc.engines.product.matmul_sm80 import MATMUL_SM80
from dnnc.target import of
from tests.support import machine
from tests.support.checked import check, random_inputs

from .test_matmul_sm80 import new_graph

SMALL = {"TILE_M": 32, "TILE_N": 64}
M = dnnc.Dim("M", max=4096)


def product(m, n, batch=(1,), operand=dtypes.f16, k=24):
    g = new_graph(operand)
    return g, g.matmul(g.tensor([*batch, m, k]), g.tensor([*batch, k, n]))


def reduced(g, x, mode, dims, dtype=dtypes.f32):
    return g.reduction(x, mode).set_dim(dims).set_output().set_data_type(dtype)


def mask(g, c, strides=None):
    found = g.cmp_gt(c, 0).set_output().set_data_type(dtypes.i1)
    return found if strides is None else found.set_stride(strides)


def run(g, sizes=None, **options):
    """Operands are whole numbers, so that no comparison depends on the order of sums."""
    graph = g.graph.finalize()
    inputs = {
        uid: np.rint(value) if value.dtype.kind == "f" else value
        for uid, value in random_inputs(graph, sizes or {}).items()
    }
    options = {"engine": "matmul_sm80", "knobs": SMALL, "slack": 8.0, **options}
    return check(g, sizes, inputs=inputs, **options)


# ---- reductions


@pytest.mark.in_turn
@pytest.mark.feature
def test_over_rows_columns_matrices_and_all():
    g, c = product(37, 45, (2, 3))
    c.set_output()
    reduced(g, c, "add", [2, 3, 1, 45])
    reduced(g, c, "max", [2, 3, 37, 1])
    reduced(g, c, "add", [1, 1, 37, 1])
    reduced(g, c, "norm2", [2, 1, 1, 1])
    reduced(g, c, "amax", [1, 1, 1, 1])
    run(g)


@pytest.mark.in_turn
def test_over_matrices_alone():
    """Each element of a tile is a partial."""
    g, c = product(37, 45, (2, 3))
    reduced(g, c, "add", [1, 3, 37, 45])
    reduced(g, c, "avg", [1, 1, 37, 45])
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("tile", [(256, 128), (128, 64)], ids=str)
def test_tiles(tile):
    g, c = product(tile[0] + 3, tile[1] + 8)
    reduced(g, g.relu(c), "add", [1, 1, tile[1] + 8])
    reduced(g, c, "min", [1, tile[0] + 3, 1])
    run(g, knobs={"TILE_M": tile[0], "TILE_N": tile[1], "TILEK": 32, "STAGES": 3})


@pytest.mark.in_turn
def test_one_plan_serves_every_size_and_what_follows():
    g, c = product(M, 72)
    c.set_output()
    g.mul(g.reduction(c, "add").set_dim([1, 1, 72]), 0.5).set_output().set_data_type(dtypes.f32)
    plan = run(g, {"M": 33})
    run(g, {"M": 100}, plan=plan)


@pytest.mark.in_turn
def test_integers():
    g, c = product(40, 72, operand=dtypes.i8)
    c.set_output().set_data_type(dtypes.i32)
    reduced(g, c, "max", [1, 1, 72], dtypes.i32)
    run(g)


# ---- masks


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("stored", ["f16", "f32", "none"])
def test_relu_and_its_mask(stored):
    g, c = product(M, 72, (2,))
    mask(g, c)
    if stored != "none":
        g.relu(c).set_output().set_data_type(dtypes.of(stored))
    run(g, {"M": 37})


@pytest.mark.in_turn
def test_mask_of_contiguous_columns_beside_rows_and_sums():
    g, c = product(40, 37, (2,))
    mask(g, c, [40 * 37, 1, 40])
    g.relu(c).set_output()
    reduced(g, c, "add", [1, 1, 37])
    run(g)


# ---- refusals


def refused(g):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return {r.clause: r.what for r in MATMUL_SM80.supports(fusion, of(machine.current().target))}


def test_masks_whose_bytes_have_several_writers():
    g, c = product(40, 36)
    mask(g, c)
    assert "[1, 40, 36]" in refused(g)["boolean output"]
    g, c = product(40, 40)
    mask(g, g.reduction(c, "add").set_dim([1, 1, 40]))
    assert "[1, 1, 40]" in refused(g)["boolean output"]


def test_reductions_that_flow_on():
    g, c = product(40, 40)
    g.sub(c, g.reduction(c, "max").set_dim([1, 40, 1])).set_output()
    assert "used by what follows" in refused(g)["operations"]
