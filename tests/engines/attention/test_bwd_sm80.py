"""Attention's gradient on the tensor cores of sm_80, in the interpreter.

Three kernels: row sums, tiles of keys, tiles of queries; four where dK and dV do not fit together;
one more for each gradient that is a sum.
"""

import re

import numpy as np
import pytest

import dnnc
from dnnc import compiler, dtypes
from dnnc.choosing.heuristics import best_config
from dnnc.compiler import compile_graph
from dnnc.dialect import dnn
from dnnc.dialect.fusion import partition
from dnnc.engines.attention.bwd_sm80 import SDPA_BWD_SM80
from dnnc.options import Options
from dnnc.target import of
from tests.checked_gradient import BOUNDS, SM80, compare_defined, run, run_seed
from tests.dialect.attention_examples import lengths
from tests.dialect.attention_gradient_examples import gradient, soft_cap
from tests.support import machine
from tests.support.checked import check

CAUSAL = {"attn_scale": 0.2, "use_causal_mask": True}
BY_ENGINE = Options(engine="sdpa_bwd_sm80")


def heads_of(depth, value_depth=0, heads=1, kv_heads=0, batch=1):
    return {
        "batch": batch, "heads": heads, "kv_heads": kv_heads or heads, "depth": depth,
        "value_depth": value_depth or depth,
    }  # fmt: skip


def everything(g):
    """Lengths, a window from the end, ALiBi, and what is drawn and added up."""
    seed, offset = (g.tensor([1, 1, 1, 1], data_type=dtypes.i64) for _ in range(2))
    return {
        **lengths(g, 2), "dropout": (0.25, seed, offset), "use_alibi_mask": True,
        "attn_scale": g.tensor([1, 1, 1, 1], name="scale"), "stats_use_log2": True,
        "rng_dump": g.tensor([2, 2, 37, 71], data_type=dtypes.f32),
        "bias": g.tensor([2, 1, 1, 71], name="bias"), "dBias": g.tensor([2, 1, 1, 71]),
        "sink_token": g.tensor([1, 2, 1, 1], name="sink"),
        "dSink_token": g.tensor([1, 2, 1, 1], data_type=dtypes.f32),
        "diagonal_alignment": "BOTTOM_RIGHT", "diagonal_band_left_bound": 40,
        "diagonal_band_right_bound": 0, "use_deterministic_algorithm": True,
    }  # fmt: skip


def masked_by_blocks(g):
    """A block mask, dropout's mask, and a bias whose gradient is a sum along heads, not keys."""
    blocks = g.tensor([1, 2, 1, 1], data_type=dtypes.ui8, name="blocks")
    kept, scale = g.tensor([1, 1, 33, 1], name="mask"), g.tensor([1, 1, 1, 1], name="kept")
    bias = {"bias": g.tensor([1, 1, 33, 150], name="bias"), "dBias": g.tensor([1, 1, 33, 150])}
    return {"block_mask": blocks, "dropout": (kept, scale), **bias}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("arguments", "io", "rows", "columns", "dims", "kernels"),
    [
        (CAUSAL, dtypes.f16, 70, 97, heads_of(64, heads=2, kv_heads=1), 3),
        (everything, dtypes.bf16, 37, 71, heads_of(24, 40, heads=2, kv_heads=1, batch=2), 5),
        (masked_by_blocks, dtypes.f16, 33, 150, heads_of(16, heads=2), 4),
        (CAUSAL, dtypes.bf16, 33, 40, heads_of(256, 136), 4),
    ],
    ids=["causal", "everything", "blocks", "large_heads"],
)  # fmt: skip
def test_options(arguments, io, rows, columns, dims, kernels):
    run(arguments, io, rows=rows, columns=columns, engine=SM80, most=kernels, **dims)


@pytest.mark.in_turn
def test_a_score_mod_and_a_whole_bias():
    g = dnnc.pygraph(io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32)
    q, k, v, o, do = (g.tensor([1, 2, 40, 16]) for _ in range(5))
    stats = g.tensor([1, 2, 40, 1], data_type=dtypes.f32, name="stats")
    made = g.sdpa_backward(
        q, k, v, o, do, stats, attn_scale=0.5, use_causal_mask=True, score_mod=soft_cap
    )
    for tensor in made:
        tensor.set_output()
    rng = np.random.default_rng(machine.current().seed)
    graph = g.graph.finalize()
    given = {
        t.uid: rng.normal(size=[n.constant for n in t.shape]).astype(t.type.numpy)
        for t in graph.inputs
    }
    given[stats.get_uid()] += 3.0
    plan = check(g, inputs=given, target="sm_80", slack=8.0, allowance=2e-3)
    assert [fusion.engine for fusion in plan.programs[0].fusions] == ["sdpa_bwd_sm80"]


def packed_gradient(counts, width, **options):
    """A graph of three packed sequences, padded statistics, its lengths and offsets by heads."""
    most, total = max(counts), sum(counts)
    g = dnnc.pygraph(io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32)
    length = g.tensor([3, 1, 1, 1], data_type=dtypes.i32)
    offsets = {h: g.tensor([4, 1, 1, 1], data_type=dtypes.i32) for h in (1, 2)}

    def packed(heads):
        x = g.tensor([3, heads, most, width], [most * heads * width, width, heads * width, 1])
        return x.set_ragged_offset(offsets[heads])

    q, o, do, k, v = packed(2), packed(2), packed(2), packed(1), packed(1)
    stats = g.tensor([3, 2, most, 1], data_type=dtypes.f32)
    made = g.sdpa_backward(
        q, k, v, o, do, stats, attn_scale=0.2, use_padding_mask=True, use_causal_mask=True,
        seq_len_q=length, seq_len_kv=length, max_total_seq_len_q=total,
        max_total_seq_len_kv=total, **options,
    )  # fmt: skip
    for tensor, heads in zip(made, (2, 1, 1), strict=True):
        tensor.set_output().set_stride([most * heads * width, width, heads * width, 1])
        tensor.set_ragged_offset(offsets[heads])
    g.validate()
    return g, stats, length, offsets


def run_packed(engine, counts, width, knobs=(), **options):
    g, stats, length, offsets = packed_gradient(counts, width, **options)
    firsts = np.cumsum([0, *counts])
    rng = np.random.default_rng(machine.current().seed)
    known = {
        length.get_uid(): counts,
        stats.get_uid(): rng.normal(size=stats.get_dim()) + 3,
    }
    known |= {x.get_uid(): firsts * heads * width for heads, x in offsets.items()}
    run_stored(engine, g, known, knobs)


def run_stored(engine, g, known, knobs=()):
    """Compares results that are packed; known: operands by uid that are not random."""
    graph = g.graph.finalize()
    rng = np.random.default_rng(machine.current().seed)
    given = {}
    for tensor in graph.inputs:
        dims = [n.constant for n in tensor.shape]
        array = known.get(tensor.uid, rng.normal(size=dims))
        given[tensor.uid] = np.reshape(array, dims).astype(tensor.type.numpy)
    name, target = engine
    plan = compile_graph(graph, target, Options(engine=name, knobs=tuple(knobs)))
    (program,) = plan.programs
    assert [fusion.engine for fusion in program.fusions] == [name]
    assert len(program.kernels) == 3
    compare_defined(plan, graph, given, BOUNDS[dtypes.f16])


@pytest.mark.in_turn
@pytest.mark.feature
def test_packed_sequences():
    """One of them has no rows."""
    run_packed(SM80, (33, 0, 50), 16)


def graph_of(arguments, depth, rows=2048, heads=16, io=dtypes.bf16, columns=0):
    build = gradient(
        arguments, io=io, rows=rows, columns=columns or rows, **heads_of(depth, heads=heads)
    )
    return build().graph.finalize()


def heads_of_values_apart():
    """A graph whose V has fewer heads than its K."""
    g = dnnc.pygraph(io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32)
    q, k, o, do = (g.tensor([1, 4, 64, 16]) for _ in range(4))
    v, stats = g.tensor([1, 2, 64, 16]), g.tensor([1, 4, 64, 1], data_type=dtypes.f32)
    for tensor in g.sdpa_backward(q, k, v, o, do, stats, attn_scale=0.5):
        tensor.set_output()
    return g.graph.finalize()


@pytest.mark.in_turn
def test_nothing_is_added_to_memory():
    """Results have the same bits each time."""
    with dnn.context():
        work = compiler.start(graph_of(CAUSAL, 64), of("sm_80"))
        ptx = compiler.advance(work, "ptx", BY_ENGINE).ptx
    assert "mma.sync" in ptx
    assert re.search(r"\b(atom|red)\.", ptx) is None


def test_on_hopper_it_takes_what_the_engine_for_it_declines():
    def engines(results):
        g = gradient(CAUSAL, io=dtypes.bf16, rows=2048, columns=2048, **heads_of(64, heads=16))()
        for tensor in g.graph.ops[-1].results:
            tensor.set_data_type(results)
        config = best_config(g.graph.finalize(), of("sm_90a"))
        return [choice.engine.name for choice in config.choices]

    assert engines(dtypes.bf16) == ["sdpa_bwd_sm90"]
    assert engines(dtypes.f32) == ["sdpa_bwd_sm80"]


REFUSED = {
    "operand types": (lambda: graph_of(CAUSAL, 64, io=dtypes.f32), "f16"),
    "head size": (lambda: graph_of(CAUSAL, 264), "up to 256"),
    "heads": (heads_of_values_apart, "equal numbers"),
    "keys": (lambda: graph_of({"attn_scale": 0.2}, 64, columns=1), "2 or more"),
}


@pytest.mark.parametrize("clause", REFUSED)
def test_refusals(clause):
    make, supported = REFUSED[clause]
    graph = make()
    (fusion,) = partition(graph, [graph.live_ops])
    reasons = SDPA_BWD_SM80.supports(fusion, of("sm_80"))
    assert any(r.clause == clause and supported in r.supported for r in reasons), reasons


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(5))
def test_random_cases(seed):
    run_seed(seed, 90, 3, SM80)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("rows", "columns", "right", "knobs"),
    [(11, 48, 0, {}), (256, 64, None, {"TILE_M": 64, "TILE_N": 16, "STAGES": 2})],
    ids=["of queries", "of keys"],
)
def test_a_window_of_one_whole_tile(rows, columns, right, knobs):
    """The tile's place is known, and where its window ends with it."""
    window = {"attn_scale": 0.35, "diagonal_band_left_bound": 26}
    if right is not None:
        window["diagonal_band_right_bound"] = right
    options = Options(engine="sdpa_bwd_sm80", knobs=tuple(knobs.items()))
    dims = heads_of(8)
    run(
        window,
        dtypes.bf16,
        engine=SM80,
        options=options,
        most=4,
        rows=rows,
        columns=columns,
        **dims,
    )
