"""Norms and softmax of rows of a hundred thousand to a million elements, which no block holds.

What is chosen for them, its registers, and its kernels on rows that the interpreter goes through
several times in the same way; `tests/gpu/test_large.py` has the rows themselves.
"""

import pytest

from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.engines.rows.engine import ROWS
from dnnc.engines.rows.grid import GRID
from dnnc.target import of
from tests.support import multiprocessors
from tests.support.checked import check

from ..assembling import assert_fits
from .test_engine import ACROSS, layernorm, new_graph, softmax

LENGTHS = (100_001, 1_000_000)
TARGET = "sm_90a"


def rmsnorm(rows, columns, io=dtypes.bf16):
    g = new_graph(io)
    x, scale = g.tensor([rows, columns]), g.tensor([1, columns])
    y, inverse = g.rmsnorm("TRAINING", x, scale, epsilon=g.tensor_scalar(1e-3))
    y.set_output().set_data_type(io)
    inverse.set_output().set_data_type(dtypes.f32)
    return g


KINDS = {
    "layer norm": lambda rows, columns: layernorm(rows, columns, io=dtypes.bf16),
    "rms norm": rmsnorm,
    "softmax": lambda rows, columns: softmax([rows, columns], [1], io=dtypes.bf16),
}


def chosen(kind, rows, columns, target=TARGET):
    graph = KINDS[kind](rows, columns).graph.finalize()
    return heuristics.best_config(graph, of(target)).choices


# ---- what is chosen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", LENGTHS)
@pytest.mark.parametrize("target", ["sm_80", TARGET])
def test_rows_of_a_batch_are_one_kernel_that_reads_them_again(kind, columns, target):
    for rows in (64, 1024):
        (choice,) = chosen(kind, rows, columns, target)
        assert choice.engine is ROWS
        assert choice.knobs["ARRAY_SIZE_PER_THREAD"] == 0
        assert choice.knobs["TILE_COLS"] == 1024
        if of(target).capability >= (9, 0) and rows < of(target).sm_count:
            assert choice.knobs["TILE_CGA"] > 1  # fewer rows than SMs are shared
            if columns == 1_000_000:
                assert choice.knobs["STAGES"] == 1  # and stay in shared memory, but for a tenth


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", ["sm_80", TARGET])
def test_few_rows_occupy_the_device(kind, target):
    for rows in (1, 2, 16):
        (choice,) = chosen(kind, rows, 1_000_000, target)
        assert choice.engine is GRID


# ---- registers


@pytest.mark.rotating
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rows", "columns"),
    [(16, 1_000_000), (64, 1_000_000), (64, 100_001), (1024, 1_000_000)],
)
@pytest.mark.parametrize("target", [pytest.param("sm_80", marks=pytest.mark.slow), TARGET])
@pytest.mark.registers
def test_no_long_row_spills(kind, rows, columns, target):
    graph = KINDS[kind](rows, columns).graph.finalize()
    assert_fits(compile_graph(graph, target), target)


# ---- numbers

READ_AGAIN = {
    "TILE_COLS": 128, "TILE_ROWS": 0, "ARRAY_SIZE_PER_THREAD": 0, "TILE_CGA": 1, "CTA_COUNT": 0,
    "STAGES": 0, "KERNEL_CFG": 0,
}  # fmt: skip
FORMS = {
    "cluster": (ROWS, {"TILE_CGA": 8, "TILE_COLS": 128}),
    "shared memory": (ROWS, {"STAGES": 1, "TILE_COLS": 128}),
    "grid": (GRID, {"TILE_ROWS": 512, "ARRAY_SIZE_PER_THREAD": 2, "SPECFILT": 2, "STAGES": 4}),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [pytest.param("cluster", marks=ACROSS), "shared memory", "grid"])
@pytest.mark.parametrize("columns", [10_007, pytest.param(30_008, marks=pytest.mark.slow)])
def test_numbers(kind, form, columns, monkeypatch):
    """Threads go through a row in several rounds; 10,007 elements are no whole fragments."""
    engine, knobs = FORMS[form]
    if engine is ROWS:
        knobs = READ_AGAIN | knobs
    else:
        multiprocessors.few(monkeypatch, 4)
        knobs = knobs if columns % 2 == 0 else knobs | {"SPECFILT": 0}
    g = KINDS[kind](2, columns)
    check(g, engine=engine.name, knobs=knobs, target=TARGET, slack=4.0, allowance=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 17])
def test_whole_rows(kind, rows, monkeypatch):
    """Rows of 100,001 elements, as they are chosen."""
    multiprocessors.few(monkeypatch, 24)
    check(KINDS[kind](rows, 100_001), target=TARGET, slack=4.0, allowance=1e-6)
