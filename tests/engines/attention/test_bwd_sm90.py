"""Attention's gradient on Hopper's tensor cores, in the interpreter."""

import numpy as np
import pytest

import dnnc
from dnnc import compiler, dtypes
from dnnc.choosing.heuristics import best_config
from dnnc.codegen import ops
from dnnc.codegen.state import each
from dnnc.compiler import compile_graph
from dnnc.dialect import dnn
from dnnc.dialect.fusion import partition
from dnnc.engines.attention import bwd_ahead, bwd_schedule
from dnnc.engines.attention.bwd_ahead import Ahead
from dnnc.engines.attention.bwd_sm80 import SDPA_BWD_SM80
from dnnc.engines.attention.bwd_sm90 import SDPA_BWD_SM90
from dnnc.options import Options
from dnnc.target import of
from tests import random_packed_gradients
from tests.checked_gradient import SM80, SM90, run, run_seed
from tests.dialect.attention_examples import lengths
from tests.dialect.attention_gradient_examples import EXPANDED, gradient, soft_cap
from tests.support import machine
from tests.support.checked import check

from .test_bwd_sm80 import everything, masked_by_blocks, packed_gradient, run_packed, run_stored

CAUSAL = {"attn_scale": 0.2, "use_causal_mask": True}
FULL = {"attn_scale": 0.2}
WINDOW = {"attn_scale": 0.2, "diagonal_band_left_bound": 50, "diagonal_band_right_bound": 3}
REPEATED = {"use_deterministic_algorithm": True}
# Bytes of a section from the last keys on, of a short one, and of the one that falls.
SECTIONS = ("_SECTION_BYTES", "_SHORT_SECTION_BYTES", "_ORDERED_SECTION_BYTES")
BOTTOM_RIGHT = {"diagonal_band_right_bound": 0, "diagonal_alignment": "BOTTOM_RIGHT"}


def heads_of(depth, value_depth=0, heads=1, kv_heads=0, batch=1):
    return {
        "batch": batch, "heads": heads, "kv_heads": kv_heads or heads, "depth": depth,
        "value_depth": value_depth or depth,
    }  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("arguments", "io", "rows", "columns", "dims"),
    [
        (CAUSAL, dtypes.bf16, 200, 130, heads_of(128, heads=2)),
        (FULL, dtypes.bf16, 77, 45, heads_of(96, 40, batch=2)),
        (WINDOW, dtypes.bf16, 300, 260, heads_of(64)),
        (BOTTOM_RIGHT, dtypes.f16, 1, 65, heads_of(8, 128)),
        (everything, dtypes.bf16, 37, 71, heads_of(24, 40, heads=2, kv_heads=1, batch=2)),
        (masked_by_blocks, dtypes.f16, 33, 150, heads_of(16, heads=2)),
    ],
    ids=["causal", "other_heads", "window", "one_query", "everything", "biased"],
)  # fmt: skip
def test_engine_takes_it(arguments, io, rows, columns, dims):
    run(arguments, io, rows=rows, columns=columns, **dims)


def expanded(names, kv_heads, rows, depth):
    """(known operands, layouts) of K or V whose heads are one in memory."""
    made = np.random.default_rng(machine.current().seed).uniform(-1, 1, (2, 1, rows, depth))
    known = {name: np.repeat(made, kv_heads, 1) for name in names}
    return known, dict.fromkeys(names, EXPANDED)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("engine", [SM90, SM80], ids=["sm90", "sm80"])
@pytest.mark.parametrize(
    ("names", "depth", "kv_heads"), [("kv", 64, 2), ("kv", 128, 4), ("kv", 256, 2), ("k", 64, 4)]
)
def test_heads_of_a_stride_of_0(names, depth, kv_heads, engine):
    """Each has a gradient of its own."""
    known, layouts = expanded(names, kv_heads, 70, depth)
    dims = {**heads_of(depth, heads=4, kv_heads=kv_heads, batch=2), "rows": 40, "columns": 70}
    most = 4 if engine is SM80 and depth > 128 else 3  # whose dK and dV have a kernel each
    found, _ = run(CAUSAL, dtypes.f16, known, layouts=layouts, engine=engine, most=most, **dims)
    assert found["dk"].shape[1] == found["dv"].shape[1] == kv_heads


LONG = [
    # Two tiles of keys, and of each query block two parts of dQ.
    ({**CAUSAL, **REPEATED}, dtypes.bf16, 70, 100, heads_of(256, heads=2, kv_heads=1)),
    (CAUSAL, dtypes.bf16, 70, 150, heads_of(224, 72, heads=2)),
    (lambda g: {**lengths(g, 1), **WINDOW}, dtypes.f16, 130, 65, heads_of(136, 256)),
    # Three panels of dQ beside short values: 128 keys a tile.
    ({**CAUSAL, **REPEATED}, dtypes.f16, 70, 150, heads_of(192, 128, heads=2, kv_heads=1)),
]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.registers
@pytest.mark.parametrize(
    ("arguments", "io", "rows", "columns", "dims"),
    LONG,
    ids=["ordered", "causal", "window", "wide"],
)
def test_long_heads(arguments, io, rows, columns, dims):
    run(arguments, io, rows=rows, columns=columns, may_spill=False, **dims)


@pytest.mark.in_turn
def test_scaled_queries_of_three_panels():
    """dQ that a number in memory multiplies, and its amax; added to from registers."""
    g = dnnc.pygraph("scaled", io_data_type="f16", intermediate_data_type="f32", target="sm_90a")
    q, k = g.tensor([1, 1, 40, 192], name="q"), g.tensor([1, 1, 70, 192], name="k")
    v, o, do = (
        g.tensor([1, 1, rows, 40], name=name) for rows, name in ((70, "v"), (40, "o"), (40, "do"))
    )
    stats = g.tensor([1, 1, 40, 1], data_type="FLOAT", name="stats")
    dq, *others = g.sdpa_backward(q, k, v, o, do, stats, **CAUSAL)
    dq.set_data_type("FLOAT")
    others.append(g.mul(dq, g.tensor([1, 1, 1, 1], data_type="FLOAT", name="number")))
    for result in others:
        result.set_output().set_data_type("HALF")
    amax = g.reduction(dq, mode="AMAX").set_dim([1, 1, 1, 1]).set_stride([1, 1, 1, 1])
    amax.set_output().set_data_type("FLOAT")
    # P and dS are rounded to f16, which moves the largest of the sums, an f32.
    plan = check(g, engine="sdpa_bwd_sm90", target="sm_90a", allowance=2.0**-8)
    assert len(plan.programs[0].kernels) == 3


def scaled_keys(finish=lambda g, tensor: tensor):
    """dK that a number in memory multiplies; dV in f32 with its amax.  64 keys: half a tile."""
    g = dnnc.pygraph("scaled", io_data_type="f16", intermediate_data_type="f32", target="sm_90a")
    q, o, do = (g.tensor([1, 1, 40, 24], name=name) for name in ("q", "o", "do"))
    k, v = (g.tensor([1, 1, 64, 24], name=name) for name in "kv")
    stats = g.tensor([1, 1, 40, 1], data_type="f32", name="stats")
    dq, dk, dv = g.sdpa_backward(q, k, v, o, do, stats, **CAUSAL)
    numbers = [g.tensor([1, 1, 1, 1], data_type="f32", name=name) for name in ("of_dk", "of_dv")]
    dk, scaled_dv = map(g.mul, (dk, dv), numbers)
    for result in (dq, finish(g, dk.set_data_type("f16")), scaled_dv):
        result.set_output().set_data_type("f16")
    amax = g.reduction(dv, mode="AMAX").set_dim([1, 1, 1, 1]).set_stride([1, 1, 1, 1])
    amax.set_output().set_data_type("f32")
    return g


@pytest.mark.in_turn
def test_scaled_keys():
    """The kernel after the main one scales dK, as it adds up parts of dK."""
    check(scaled_keys(), engine="sdpa_bwd_sm90", target="sm_90a", slack=4.0, allowance=2.0**-8)


def test_scaled_keys_to_packed_rows_are_left_to_others():
    def packed(g, tensor):
        offset, rows = (g.tensor([n, 1, 1, 1], data_type="i32") for n in (2, 1))
        return g.ragged_store(tensor, offset, rows)

    graph = scaled_keys(packed).graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    for engine in (SDPA_BWD_SM90, SDPA_BWD_SM80):
        (reason,) = engine.supports(fusion, of("sm_90a"))
        assert "to packed rows" in str(reason)


@pytest.mark.in_turn
@pytest.mark.parametrize("queries", [32, 64])
def test_options_of_long_heads(queries):
    """The scores of a block of queries at once, or of half of it."""
    dims = heads_of(16, 136, heads=2, kv_heads=1, batch=2)
    options = Options(knobs={"TILE_M": queries, "SPLIT_H": 2, "REDUCTION_MODE": 0})
    run(everything, dtypes.bf16, options=options, rows=37, columns=71, **dims)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("arguments", "parts"), [(CAUSAL, 1), (CAUSAL, 2), (FULL, 1)], ids=["together", "parts", "full"]
)
def test_heads_that_share_keys(arguments, parts):
    """One after the other in each block of queries; split among tiles, whose sums are added up;
    one head after the other."""
    options = Options(engine="sdpa_bwd_sm90", knobs={"TILE_M": 64, "SPLIT_H": parts})
    dims = heads_of(64, 32, heads=8, kv_heads=2)
    run(arguments, dtypes.f16, options=options, rows=100, columns=150, **dims)


def window(g):
    return {**lengths(g), **WINDOW, "use_alibi_mask": True, "diagonal_band_right_bound": 0}


def given_mask(g):
    mask = g.tensor([2, 4, 256, 256], name="mask")
    return {**CAUSAL, "dropout": (mask, g.tensor([1, 1, 1, 1], name="kept"))}


def capped(g):
    return {**CAUSAL, **REPEATED, "score_mod": soft_cap}


def whole_bias(g):
    bias = [2, 4, 256, 256]
    return {**CAUSAL, "bias": g.tensor(bias, name="bias"), "dBias": g.tensor(bias)}


def summed(g):
    """A bias of all entries and a sink, whose gradients are sums; dropout that is drawn."""
    seed, offset = (g.tensor([1, 1, 1, 1], data_type=dtypes.i64) for _ in range(2))
    named = {name: g.tensor([1, 4, 1, 1]) for name in ("sink_token", "dSink_token")}
    bias = [1, 4, 256, 256]
    named |= {"bias": g.tensor(bias, name="bias"), "dBias": g.tensor(bias)}
    return {**named, "dropout": (0.1, seed, offset), "attn_scale": 0.1}


def blocks(g):
    return {"block_mask": g.tensor([2, 4, 2, 1], data_type=dtypes.ui8)}


def from_the_end(g):
    return {**lengths(g), **BOTTOM_RIGHT}


def documents(g):
    numbers = g.tensor([2, 1, 256, 1], data_type=dtypes.i32)

    def masked(graph, scores):
        same = graph.cmp_eq(numbers, graph.transpose(numbers, [0, 1, 3, 2]))
        return graph.binary_select(scores, float("-inf"), same)

    return {**CAUSAL, "score_mod": masked}


def given_derivative(g):
    return {"score_mod": soft_cap, "score_mod_bprop": lambda graph, scores: graph.mul(scores, 0.5)}


def assert_three_launches(graph):
    (choice,) = best_config(graph, of("sm_90a")).choices
    assert choice.engine.name == "sdpa_bwd_sm90"
    with dnn.context():
        work = compiler.advance(compiler.start(graph, of("sm_90a")), "kernel")
        assert str(work.module).count('kernel = "') == 3


OPTIONS = [
    window, from_the_end, given_mask, capped, given_derivative, documents, whole_bias, summed,
    blocks,
]  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("depth", [64, 128, 256])
@pytest.mark.parametrize("arguments", OPTIONS, ids=lambda f: f.__name__)
def test_options_are_taken_in_three_launches(arguments, depth):
    dims = heads_of(depth, heads=4, kv_heads=2, batch=2)
    made = gradient(arguments, io=dtypes.bf16, rows=256, columns=256, **dims)()
    assert_three_launches(made.graph.finalize())


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("depth", [64, 128, 256])
def test_packed_sequences_are_taken_in_three_launches(depth):
    g, *_ = packed_gradient((100, 0, 256), depth)
    assert_three_launches(g.graph.finalize())


def test_few_tiles_are_split():
    """Under a causal mask the longest of them would be all there is to wait for at the end."""

    def parts(heads, kv_heads, length):
        dims = heads_of(128, heads=heads, kv_heads=kv_heads)
        made = gradient(CAUSAL, io=dtypes.bf16, rows=length, columns=length, **dims)()
        graph = made.graph.finalize()
        (choice,) = best_config(graph, of("sm_90a")).choices
        return choice.knobs["SPLIT_H"]

    assert parts(16, 16, 4096) == 1
    assert parts(64, 8, 4096) == 1  # 256 tiles on 132 multiprocessors
    assert parts(32, 8, 2048) == 2
    assert parts(32, 1, 4096) == 8


@pytest.mark.in_turn
def test_a_window_of_one_whole_tile_of_keys():
    """The tile's place is known, and where its window ends with it."""
    left = {"attn_scale": 0.35, "diagonal_band_left_bound": 26}
    run(left, dtypes.bf16, rows=200, columns=128, **heads_of(64))


@pytest.mark.in_turn
def test_a_whole_dbias_of_scores_that_nothing_hides():
    """All blocks of queries are gone through, none of which looks at masks."""

    def arguments(g):
        bias = [1, 1, 64, 128]
        return {**FULL, "bias": g.tensor(bias, name="bias"), "dBias": g.tensor(bias)}

    run(arguments, dtypes.f16, rows=64, columns=128, **heads_of(64))


@pytest.mark.in_turn
def test_short_values_of_a_last_block_of_queries():
    """The kernel before has more rows at once than a block, and dO ends with the block."""
    run(FULL, dtypes.f16, rows=64, columns=128, **heads_of(64, 16))


@pytest.mark.in_turn
def test_rows_that_see_no_key_get_zeros():
    """Their statistics are minus infinity."""
    found, _ = run(BOTTOM_RIGHT, dtypes.bf16, rows=150, columns=40, **heads_of(64))
    assert not found["dq"][:, :, :110].any()
    assert found["dq"][:, :, 110:].any()


@pytest.mark.in_turn
def test_padded_sequences():
    """One has no queries, the other 33 of 140 keys."""
    known = {
        "seq_len_q": np.reshape([0, 100], (2, 1, 1, 1)),
        "seq_len_kv": np.reshape([64, 33], (2, 1, 1, 1)),
    }
    sizes = {"rows": 130, "columns": 140, **heads_of(64, heads=2, kv_heads=1, batch=2)}
    found, _ = run(lambda g: {**lengths(g), **CAUSAL}, dtypes.bf16, known=known, **sizes)
    assert not any(x[0].any() for x in found.values())
    assert not found["dk"][1, :, 33:].any()


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("counts", "width", "knobs"),
    [
        ((33, 0, 150), 72, ()),
        ((53, 0, 20), 128, [("TILE_M", 48)]),
        ((0, 140, 20), 64, [("SPLIT_H", 2)]),
        ((140, 20, 0), 64, [("REDUCTION_MODE", 0)]),
    ],
    ids=["chosen", "rows", "parts", "ordered"],
)
def test_packed_sequences(counts, width, knobs):
    """One of them has no rows; rows of the next one are not written.  48 queries of a block are no
    multiple of the rows that threads copy at a time."""
    run_packed(SM90, counts, width, knobs)


def rows_stored_apart(is_packed):
    """A gradient of two sequences of up to 140 rows, its lengths and its offsets.  is_packed:
    operands are, too, and dK has lengths of its own; else all rows of operands count."""
    g = dnnc.pygraph(io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32)
    length, offset, others, firsts = (
        g.tensor([n, 1, 1, 1], data_type=dtypes.i32) for n in (2, 3, 2, 3)
    )
    given = [g.tensor([2, 1, 140, 64]) for _ in range(5)]
    more = {}
    if is_packed:
        given = [tensor.set_ragged_offset(offset) for tensor in given]
        more = {"use_padding_mask": True, "seq_len_q": length, "seq_len_kv": length}
    stats = g.tensor([2, 1, 140, 1], data_type=dtypes.f32)
    made = g.sdpa_backward(*given, stats, **FULL, **more)
    known = {stats: np.full((2, 1, 140, 1), 6.0), length: [130, 5], offset: [0, 8320, 8640]}
    places = [(offset, length)] * 3
    if is_packed:
        places[1] = firsts, others
        known |= {others: [5, 130], firsts: [0, 320, 8640]}
    for tensor, place in zip(made, places, strict=True):
        g.ragged_store(tensor.set_data_type(dtypes.f16), *place).set_output()
    g.validate()
    return g, {tensor.get_uid(): values for tensor, values in known.items()}


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.parametrize("is_packed", [False, True], ids=["in place", "other lengths"])
def test_packed_results_of_rows_that_all_count(is_packed):
    """No row is left out that a result has, or that has a part in another's."""
    g, known = rows_stored_apart(is_packed)
    run_stored(SM90, g, known)


@pytest.mark.in_turn
def test_packed_sequences_of_long_heads():
    run_packed(SM90, (3, 0, 66), 136)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.parametrize(
    ("arguments", "columns"),
    [({**CAUSAL, **REPEATED}, 257), ({**WINDOW, **REPEATED}, 390)],
    ids=["causal", "window"],
)
def test_the_same_bits_each_time(arguments, columns):
    run(arguments, dtypes.bf16, rows=150, columns=columns, **heads_of(64, heads=2, kv_heads=1))


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("arguments", "dims", "late"),
    [
        (FULL, heads_of(16, heads=3), 1000),
        ({**CAUSAL, **REPEATED}, heads_of(16, heads=4, kv_heads=2), 1000),
        (CAUSAL, heads_of(192, 8, heads=2), 4000),
    ],
    ids=["full", "ordered", "registers"],
)
def test_sums_are_filled_by_tiles_before(arguments, dims, late, monkeypatch):
    """Sections of one head, and no waves of tiles between: a tile finds its sums not filled, and
    waits for the first share, which takes longer to fill than the tile's first products."""
    monkeypatch.setattr(bwd_ahead, "WAVES", 0)
    for name in ("_HEADS_IN_STEP", "_FALLING_SECTION_BYTES", *SECTIONS):
        monkeypatch.setattr(bwd_schedule, name, 1)
    fill, filled = Ahead._fill, []

    def fill_late(self, unit, share, lane):
        filled.append(unit)

        @each(0, ops.select(share.eq(0), late, 0))
        def _(i):
            self.flags.look(self._done(unit))

        fill(self, unit, share, lane)

    monkeypatch.setattr(Ahead, "_fill", fill_late)
    run(arguments, dtypes.bf16, rows=70, columns=150, **dims)
    assert filled


@pytest.mark.in_turn
def test_tiles_add_in_the_order_of_their_keys():
    """Their sums are 2^27, -2^27 and 1: any other order loses the last."""
    rows, columns, depth = 64, 384, 64
    dims = heads_of(depth)
    graph = gradient(
        {"attn_scale": 1.0, **REPEATED}, io=dtypes.f16, rows=rows, columns=columns, **dims
    )()
    op = graph.graph.finalize().ops[-1]
    plan = compile_graph(graph.graph, "sm_90a")
    (fusion,) = plan.programs[0].fusions
    assert fusion.engine == "sdpa_bwd_sm90"
    assert "NONDETERMINISTIC" not in fusion.notes
    given = {
        t.uid: np.zeros([n.constant for n in t.shape], t.type.numpy) for t in graph.graph.inputs
    }
    # P is 1, dO times V is 2^6: dS, too, and dQ is 2^6 times the sum of K.
    given[op.do.uid][...] = 1
    given[op.v.uid][...] = 1
    keys = np.repeat([2.0**14, -(2.0**14), 2.0**-13], 128)[:, None]
    given[op.k.uid][...] = keys
    for seed in range(3):
        made = machine.current().run(plan, given, seed=seed)[op.dq.uid]
        assert (made.astype(np.float64) == 1).all()


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "dims", [[2, 64, 40], [1, 2, 1, 64, 40], [128, 40], [2, 64, 8, 5]], ids=str
)
def test_a_result_of_other_axes_is_stored_by_its_strides(dims):
    """A reshape of dQ, by strides that count up or exchange rows and elements."""
    g = dnnc.pygraph(io_data_type="f16", intermediate_data_type="f32", target="sm_90a")
    given = [g.tensor([1, 2, 64, 40], name=name) for name in ("q", "k", "v", "o", "do")]
    stats = g.tensor([1, 2, 64, 1], data_type="f32", name="stats")
    dq, dk, dv = g.sdpa_backward(*given, stats, attn_scale=0.125)
    g.reshape(dq.set_data_type("f16")).set_dim(dims).set_output()
    for tensor in (dk, dv):
        tensor.set_output()
    plan = check(g, engine="sdpa_bwd_sm90", target="sm_90a", slack=4.0, allowance=2.0**-8)
    assert len(plan.programs[0].kernels) == 3


@pytest.mark.in_turn
@pytest.mark.parametrize("more", [0.0, 0.25])
def test_weights_that_a_mask_does_not_hide(more):
    """Written in products; what is added to P is there where scores are hidden, too."""
    g = dnnc.pygraph(
        io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32, compute_data_type=dtypes.f32
    )
    q, k, v, do, o = (g.tensor([1, 1, 256, 64], name=name) for name in ("q", "k", "v", "do", "o"))
    stats = g.tensor([1, 1, 256, 1], data_type=dtypes.f32, name="stats")
    exchanged = [0, 1, 3, 2]
    s = g.mul(g.matmul(q, g.transpose(k, exchanged)), 0.05)
    row, column = (
        g.gen_index(s, axis=axis, compute_data_type=dtypes.i32).set_data_type(dtypes.i32)
        for axis in (2, 3)
    )
    is_seen = g.cmp_le(column, row, compute_data_type=dtypes.i32).set_data_type(dtypes.i1)
    p = g.exp(g.sub(g.binary_select(s, float("-inf"), is_seen), stats))
    p = g.add(p, more) if more else p
    delta = g.reduction(g.mul(do, o), "add").set_dim([1, 1, 256, 1])
    ds = g.mul(p, g.sub(g.matmul(do, g.transpose(v, exchanged)), delta))
    weights, lost = (g.identity(x).set_data_type(dtypes.f16) for x in (p, ds))
    results = {
        "dv": g.matmul(g.transpose(weights, exchanged), do),
        "dq": g.matmul(lost, k),
        "dk": g.matmul(g.transpose(lost, exchanged), q),
    }
    for name, tensor in results.items():
        tensor.set_output().set_name(name).set_data_type(dtypes.f16)
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    reasons = SDPA_BWD_SM90.supports(fusion, of("sm_90a"))
    assert bool(reasons) == bool(more)
    if reasons:
        assert "beside masked scores" in reasons[0].what
    else:
        check(g, engine="sdpa_bwd_sm90", target="sm_90a")


@pytest.mark.in_turn
def test_sink():
    """Its gradient is a sum over rows, also those past the last whole block."""

    def sink(g):
        tokens = {
            name: g.tensor([1, 4, 1, 1], data_type=dtypes.f32, name=name)
            for name in ("sink_token", "dSink_token")
        }
        return {**lengths(g), **CAUSAL, **tokens}

    known = {
        "seq_len_q": np.reshape([70, 0], (2, 1, 1, 1)),
        "seq_len_kv": np.reshape([64, 30], (2, 1, 1, 1)),
    }
    sizes = {"rows": 77, "columns": 65, **heads_of(32, heads=4, kv_heads=2, batch=2)}
    run(sink, dtypes.f16, known=known, **sizes)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("depth", "cap", "is_given"), [(64, 5.0, False), (64, 300.0, True), (136, 30.0, False)]
)
def test_soft_cap(depth, cap, is_given):
    """Scores under a causal mask, whose blocks are left out: slopes keep zeros.  Most are far
    beyond a cap of 5, all near 0 beside one of 300, and of warps some and some beside one of 30.
    is_given: the derivative is, as cudnn-frontend wants it."""
    g = dnnc.pygraph(
        io_data_type=dtypes.bf16, intermediate_data_type=dtypes.f32, compute_data_type=dtypes.f32
    )
    tensors = [g.tensor([1, 1, 100, depth], name=name) for name in ("q", "k", "v", "o", "do")]
    stats = g.tensor([1, 1, 100, 1], data_type=dtypes.f32, name="stats")
    divided = []

    def capped(g, s):
        divided.append(g.mul(s, 1 / cap))
        return g.mul(g.tanh(divided[-1]), cap)

    def derivative(g, ds):
        return g.tanh_backward(ds, divided[-1])

    more = {"score_mod_bprop": derivative} if is_given else {}
    results = g.sdpa_backward(*tensors, stats, score_mod=capped, **more, **CAUSAL)
    for tensor in results:
        tensor.set_output().set_data_type(dtypes.bf16)
    check(g, engine="sdpa_bwd_sm90", target="sm_90a")


@pytest.mark.in_turn
def test_large_logits():
    """Scores of 1e4: each row's weight is on one key, so that dS is what rounding leaves."""
    known = {"q": 1000 * np.random.default_rng(1).normal(size=(1, 1, 64, 64))}
    sizes = {"rows": 64, "columns": 130, **heads_of(64)}
    run({"attn_scale": 1.0}, dtypes.bf16, known=known, smallest=10.0, **sizes)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(6))
def test_random_cases(seed):
    run_seed(seed, 150, 3)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("seed", [1, 2, 5, 6, 9, 10])
def test_random_packed_sequences(seed):
    random_packed_gradients.run_seed(seed, 100)
