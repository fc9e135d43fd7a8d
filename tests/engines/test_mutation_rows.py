"""Every wait of engine rows matters."""

import pytest

from dnnc import dtypes
from tests.support import multiprocessors

from .elementwise.test_pointwise import new_graph
from .elementwise.test_reduction import reduce
from .removed_waits import (
    HOPPER_WAITS,
    ONE_WARP,
    removed,
    survivors,
)

# ---- rows


def rows_of_warps():
    """Two levels; rows of two warps each."""
    g = new_graph(dtypes.f32)
    x = g.tensor([3, 200])
    e = g.exp(g.sub(x, reduce(g, x, "max", (1,))))
    g.div(e, reduce(g, e, "add", (1,))).set_output()
    return g, ROWS | {"TILE_COLS": 64, "ARRAY_SIZE_PER_THREAD": 4}


def rows_of_a_cluster():
    g, knobs = rows_of_warps()
    return g, knobs | {"TILE_COLS": 32, "TILE_CGA": 2}


def rows_of_a_ring():
    """One level, four rows for each of two blocks of two stages, sums of columns."""
    g = new_graph(dtypes.f32)
    x = g.tensor([8, 68])
    mean = reduce(g, x, "avg", (1,))
    g.sub(x, mean).set_output()
    reduce(g, x, "add", (0,)).set_output()
    return g, ROWS | {"TILE_COLS": 128, "ARRAY_SIZE_PER_THREAD": 4, "CTA_COUNT": 1, "STAGES": 2}


def rows_of_rings(threads=128, columns=68, **knobs):
    """Rows less their means and a number each, and sums of columns; stages are used four times.

    It has one level: of a second one, all have taken the totals when they give the next row's.
    """
    g = new_graph(dtypes.f32)
    rows = 8 if threads > 32 else 32
    x = g.tensor([rows, columns])
    mean = g.add(reduce(g, x, "avg", (1,)), g.tensor([rows, 1]))
    g.sub(x, g.mul(mean, g.tensor([1, columns]))).set_output()
    reduce(g, x, "add", (0,)).set_output()
    own = {"TILE_COLS": threads, "CTA_COUNT": 1, "STAGES": 2, "KERNEL_CFG": 2}
    return g, ROWS | own | knobs


def rows_with_extremes():
    """Each of a warp: the warps of a block meet for what is of all rows alone."""
    g = new_graph(dtypes.f32)
    x = g.tensor([8, 68])
    y = g.sub(x, reduce(g, x, "avg", (1,))).set_output()
    for mode in ("amax", "min"):
        reduce(g, y, mode, (0, 1)).set_output()
    return g, ROWS


def rows_of_rings_of_warps():
    return rows_of_rings(32)


def rows_of_rings_of_a_cluster():
    return rows_of_rings(64, 264, TILE_CGA=2)


ROWS = {
    "TILE_COLS": 32, "TILE_ROWS": 0, "ARRAY_SIZE_PER_THREAD": 4, "TILE_CGA": 1,
    "CTA_COUNT": 0, "STAGES": 0, "KERNEL_CFG": 0,
}  # fmt: skip
ROWS_CASES = {
    "warps": rows_of_warps,
    "cluster": rows_of_a_cluster,
    "extremes": rows_with_extremes,
    "ring": rows_of_a_ring,
    "shared rings": rows_of_rings,
    "rings of warps": rows_of_rings_of_warps,
    "rings of a cluster": rows_of_rings_of_a_cluster,
}
_NO_MORE_WRITES = "no block writes to another after it; it ends what the last exchange began"
ROWS_UNOBSERVABLE = {
    "cluster": {("barrier", -1): _NO_MORE_WRITES},
    "ring": {("bar", place): ONE_WARP for place in (-5, -4, -1)},
    "shared rings": {("bar", place): ONE_WARP for place in (-3, -2, -1)},
    "rings of warps": {("bar", place): ONE_WARP for place in range(-8, -2)},
    "rings of a cluster": {
        **{("bar", place): ONE_WARP for place in (-5, -4, -3)},
        ("barrier", -1): _NO_MORE_WRITES,
    },
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n == "rings of a cluster" else ())
        for n in ROWS_CASES
    ],
)
def test_each_wait_of_rows_is_needed(name, monkeypatch):
    multiprocessors.few(monkeypatch, 2)
    found, alive = survivors(
        ROWS_CASES[name], "rows", "sm_90a", lambda *of: removed(*of, HOPPER_WAITS)
    )
    assert found
    assert alive == set(ROWS_UNOBSERVABLE.get(name, {}))
