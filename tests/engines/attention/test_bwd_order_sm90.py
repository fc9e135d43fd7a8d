"""The order in which tiles add to dQ, and steps of 80 queries, in the interpreter."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing.heuristics import best_config
from dnnc.compiler import compile_graph
from dnnc.engines.attention import bwd_schedule
from dnnc.options import Options
from dnnc.target import of
from tests.checked_gradient import run
from tests.dialect.attention_gradient_examples import gradient
from tests.support import machine
from tests.support.checked import check

from .test_bwd_sm90 import BOTTOM_RIGHT, CAUSAL, FULL, REPEATED, SECTIONS, heads_of


@pytest.mark.in_turn
@pytest.mark.registers
@pytest.mark.parametrize("arguments", [FULL, {**FULL, **REPEATED}], ids=["any order", "ordered"])
def test_eighty_queries_of_a_step_where_nothing_is_masked(arguments):
    options = Options(engine="sdpa_bwd_sm90")
    dims = heads_of(128, heads=2)
    graph = gradient(arguments, io=dtypes.bf16, rows=150, columns=130, **dims)().graph.finalize()
    (choice,) = best_config(graph, of("sm_90a"), engine="sdpa_bwd_sm90").choices
    assert choice.knobs["TILE_M"] == 80
    run(arguments, dtypes.bf16, options=options, rows=150, columns=130, may_spill=False, **dims)


@pytest.mark.in_turn
@pytest.mark.registers
@pytest.mark.parametrize(
    ("rows", "columns", "more"),
    [(300, 390, {"use_causal_mask": True}), (200, 520, BOTTOM_RIGHT)],
    ids=["causal", "bottom right"],
)
def test_tiles_of_the_last_keys_come_first(rows, columns, more, monkeypatch):
    """Two of three heads' tiles go from their first queries on, those of the last from the end."""
    for name in SECTIONS:
        monkeypatch.setattr(bwd_schedule, name, 1)
    arguments = {"attn_scale": 0.2, **more, **REPEATED}
    run(arguments, dtypes.bf16, rows=rows, columns=columns, **heads_of(64, heads=3))


@pytest.mark.in_turn
def test_heads_of_a_tile_have_lengths_of_their_own():
    """Each goes through its own blocks of queries, of which the other has fewer."""

    def arguments(g):
        lengths = g.tensor([1, 2, 1, 1], data_type=dtypes.i32, name="lengths")

        def masked(graph, scores):
            row = graph.gen_index(scores, axis=2).set_data_type(dtypes.i32)
            return graph.binary_select(scores, float("-inf"), graph.cmp_lt(row, lengths))

        return {**CAUSAL, **REPEATED, "score_mod": masked}

    known = {"lengths": np.reshape([10, 190], (1, 2, 1, 1))}
    knobs = (("TILE_M", 64), ("SPLIT_H", 1), ("REDUCTION_MODE", 0))
    options = Options(engine="sdpa_bwd_sm90", knobs=knobs)
    dims = heads_of(64, heads=2, kv_heads=1)
    run(arguments, dtypes.f16, known, options=options, rows=200, columns=150, **dims)


@pytest.mark.in_turn
def test_sizes_of_tiles_that_wait_are_symbols(monkeypatch):
    """How many heads' tiles begin with the last keys depends on the batch and the rows."""
    for name in SECTIONS:
        monkeypatch.setattr(bwd_schedule, name, 1 << 16)
    b, rows = dnnc.Dim("B", min=1, max=8), dnnc.Dim("S", min=2, max=4096)
    g = dnnc.pygraph("sized", io_data_type="f16", intermediate_data_type="f32", target="sm_90a")
    given = [g.tensor([b, 2, rows, 16], name=name) for name in ("q", "k", "v", "o", "do")]
    stats = g.tensor([b, 2, rows, 1], data_type="f32", name="stats")
    for result in g.sdpa_backward(*given, stats, **{**CAUSAL, **REPEATED}):
        result.set_output().set_data_type("HALF")
    plan = compile_graph(g.graph.finalize(), "sm_90a", Options(engine="sdpa_bwd_sm90"))
    for sizes in ({"B": 1, "S": 3}, {"B": 2, "S": 300}):
        check(g, sizes, plan=plan, slack=4.0, allowance=2.0**-8)


@pytest.mark.in_turn
def test_tiles_of_the_last_keys_add_first(monkeypatch):
    """Sums of a block are 2^20, -2^20 and 1: of two heads from the last keys on, of the last head
    from the first."""
    for name in SECTIONS:
        monkeypatch.setattr(bwd_schedule, name, 1)
    arguments = {"attn_scale": 1.0, **BOTTOM_RIGHT, **REPEATED}
    graph = gradient(arguments, io=dtypes.f16, rows=64, columns=384, **heads_of(64, heads=3))()
    op = graph.graph.finalize().ops[-1]
    given = {
        t.uid: np.zeros([n.constant for n in t.shape], t.type.numpy) for t in graph.graph.inputs
    }
    # P is 1, dO times V is 2^6: dS, too, of what no mask hides.
    given[op.do.uid][...] = 1
    given[op.v.uid][...] = 1
    keys = given[op.k.uid]
    for head in range(3):
        order = (0, 128, 256) if head == 2 else (256, 128, 0)
        for first, value in zip(order, (2.0**14, -(2.0**14), 2.0**-6), strict=True):
            keys[0, head, first] = value
    plan = compile_graph(graph.graph, "sm_90a")
    assert plan.programs[0].fusions[0].engine == "sdpa_bwd_sm90"
    for seed in range(3):
        made = machine.current().run(plan, given, seed=seed)[op.dq.uid]
        assert (made.astype(np.float64) == 1).all()
