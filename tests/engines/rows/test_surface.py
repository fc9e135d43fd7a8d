"""Graphs that engine rows takes and refuses, and knobs that go together."""

import contextlib

import pytest

from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.engines import ENGINES
from dnnc.engines.rows import facts
from dnnc.engines.rows.choice import RowsChoice
from dnnc.engines.rows.engine import ROWS
from dnnc.errors import DnncError
from dnnc.target import TARGETS, of
from tests.engines.rows.test_engine import (
    SMALL,
    gradients,
    layernorm,
    new_graph,
    reduced,
    refusal,
    run,
    softmax,
    whole,
)


def test_refusals_name_the_clause():
    g = new_graph()
    x = g.tensor([4, 8])
    g.relu(x).set_output()
    assert refusal(g).clause == "operations"
    g = new_graph()
    x = g.tensor([4, 8, 6])
    y = g.sub(x, reduced(g, x, "max", [2]))
    g.sub(y, reduced(g, y, "max", [1])).set_output()
    assert refusal(g).clause == "reductions"
    g = gradients(4, 8)
    g.tensor([1])
    x = next(t for t in g.graph.tensors if t.name == "x")
    x.set_stride([1, 4])
    next(t for t in g.graph.tensors if t.name == "dy").set_stride([1, 4])
    assert refusal(g).clause == "sums of columns"
    assert refusal(gradients(4, 1 << 18)).clause == "sums of columns"


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ARRAY_SIZE_PER_THREAD": 1}, "as many as a row has"),
        ({"TILE_CGA": 2, "TILE_COLS": 8}, "whole warps"),
        ({"STAGES": 2}, "CTA_COUNT of 1 or more"),
        ({"STAGES": 1}, "ARRAY_SIZE_PER_THREAD=0"),
        ({"KERNEL_CFG": 2}, "STAGES of 2 or more"),
        ({"KERNEL_CFG": 2, "STAGES": 2}, "CTA_COUNT of 1 or more"),
        ({"TILE_ROWS": 8}, "with KERNEL_CFG=2"),
        (
            {"KERNEL_CFG": 2, "STAGES": 2, "CTA_COUNT": 1, "TILE_CGA": 2},
            "every block has some",
        ),
    ],
    ids=str,
)
def test_knobs_are_checked(more, said):
    with pytest.raises(DnncError, match=said):
        run(softmax([4, 64], [1]), knobs={**SMALL, **more})


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("threads", "columns", "held"), [(128, 5120, 40), (256, 5120, 24), (128, 8192, 64), (64, 9, 8)]
)
def test_a_thread_holds_whole_fragments_of_what_there_is(threads, columns, held):
    choice = RowsChoice.of({**SMALL, "TILE_COLS": threads, "ARRAY_SIZE_PER_THREAD": 64})
    assert facts.held_of(whole(softmax([4, columns], [1])), choice) == held


@pytest.mark.parametrize(("columns", "said"), [(65536, "do not fit the registers"), (64, "")])
def test_registers_are_those_of_what_a_row_has(columns, said):
    knobs = {**SMALL, "TILE_COLS": 1024, "ARRAY_SIZE_PER_THREAD": 64}
    with pytest.raises(DnncError, match=said) if said else contextlib.nullcontext():
        run(softmax([4, columns], [1]), knobs=knobs)


def test_clusters_want_hopper():
    knobs = {**SMALL, "TILE_CGA": 2}
    with pytest.raises(DnncError, match="TILE_CGA=1"):
        run(softmax([4, 64], [1]), knobs=knobs, target="sm_80")


@pytest.mark.rotating
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("columns", [2, 8, 9, 100, 1024, 16384, 1 << 20])
def test_what_is_taken_has_candidates(columns, target):
    """All of which are legal, and leave something for the model to choose."""
    for g in (softmax([64, columns], [1]), softmax([columns, 64], [0]), gradients(64, columns)):
        fusion = whole(g)
        if not ROWS.supports(fusion, target):
            found = ROWS.candidates(fusion, target)
            assert found
            for knobs in found:
                assert not ROWS.legal(knobs, fusion, target)
                assert ROWS.predict(fusion, knobs, target).seconds > 0


@pytest.mark.rotating
@pytest.mark.parametrize("columns", [8200, 12288, 16384, 65536, 70000, 100000, 131072])
def test_gradients_of_long_rows_are_one_fusion(columns):
    config = heuristics.best_config(gradients(64, columns).graph.finalize(), of("sm_90a"))
    assert [choice.engine.name for choice in config.choices] == ["rows"]


@pytest.mark.in_turn
def test_norms_and_softmax_are_one_kernel_everywhere():
    for target in TARGETS:
        for g in (layernorm(64, 512), softmax([64, 512], [1]), softmax([8, 40, 6, 6], [1])):
            config = heuristics.best_config(g.graph.finalize(), target)
            assert [choice.engine for choice in config.choices] == [ROWS]
    assert ROWS in ENGINES


def test_inputs_of_different_orders_and_columns():
    """Rows are those of the reduction that comes first; memory runs across them in part."""
    g = new_graph()
    x, y = g.tensor([6, 4, 8], [1, 48, 6]), g.tensor([6, 4, 8], data_type=dtypes.f32)
    total = g.mul(x, y)
    reduced(g, total, "add", [0]).set_output().set_data_type(dtypes.f32)
    reduced(g, total, "avg", [1, 2]).set_output().set_data_type(dtypes.f32)
    fusion = whole(g)
    for knobs in ROWS.candidates(fusion, of("sm_90a"))[::7]:
        if not ROWS.supports(fusion, of("sm_90a")):
            run(g, knobs=knobs)


@pytest.mark.parametrize("more", [{"TILE_CGA": 2}, {"TILE_COLS": 64}, {"CTA_COUNT": 1}], ids=str)
def test_knobs_of_rows_behind_a_view_that_runs_across_them(more):
    g = new_graph()
    x = g.tensor([40, 64], name="x")
    t = g.transpose(x, [1, 0])
    g.sub(t, reduced(g, t, "max", [1])).set_output()
    run(g, knobs={**SMALL, **more})


@pytest.mark.slow
@pytest.mark.registers
def test_totals_across_rows_fit_static_shared_memory():
    """Levels of reductions over channels of 8-bit types, in f64: fewer threads share a row."""
    g = new_graph(dtypes.i8, intermediate_data_type=dtypes.f64, compute_data_type=dtypes.f64)
    x = g.tensor([1, 64, 8, 16])
    for mode in ("avg", "max", "avg", "min"):
        x = g.sub(x, reduced(g, x, mode, [1]))
    x.set_output().set_data_type(dtypes.f32)
    fusion = whole(g)
    for target in TARGETS:
        for knobs in ROWS.candidates(fusion, target):
            assert not ROWS.legal(knobs, fusion, target)
        assert compile_graph(g.graph, target).programs[0].kernels[0].static_smem_bytes <= 48 << 10
    with pytest.raises(DnncError, match="shared memory for the totals"):
        run(g, knobs={**SMALL, "ARRAY_SIZE_PER_THREAD": 2})
    run(g, knobs={**SMALL, "TILE_COLS": 1, "ARRAY_SIZE_PER_THREAD": 0})


@pytest.mark.slow
def test_many_sums_of_columns_are_refused():
    g = new_graph(dtypes.f32)
    x = g.tensor([512, 64])
    c = g.sub(x, reduced(g, x, "avg", [1])).set_output()
    for i in range(14):
        reduced(g, g.mul(c, float(i + 1)), "add", [0]).set_output()
    assert refusal(g).clause == "operations"
    assert "14 sums of columns" in refusal(g).what
    compile_graph(g.graph, "sm_80")


@pytest.mark.in_turn
def test_booleans_beside_an_input_that_runs_across_the_rows():
    g = new_graph(dtypes.f32)
    x = g.tensor([40, 64], [1, 40])
    y = g.cmp_gt(x, reduced(g, x, "avg", [1])).set_output().set_data_type(dtypes.i1)
    y.set_dim([40, 64]).set_stride([64, 1])
    for knobs in ROWS.candidates(whole(g), of("sm_90a")):
        run(g, knobs=knobs)
