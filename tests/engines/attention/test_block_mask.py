"""Attention under masks of blocks, one bit each: hidden blocks are not multiplied; interpreted."""

import numpy as np
import pytest

import dnnc
from dnnc.dialect.fusion import partition
from dnnc.engines.attention.fwd_sm90 import SDPA_FWD_SM90
from dnnc.target import of
from tests.attention_graphs import LOW, Pattern, causal
from tests.support import machine
from tests.support.checked import check, random_inputs

pytestmark = pytest.mark.registers

SM80 = {"TILE_M": 16, "TILE_N": 16, "STAGES": 2, "PACK_GQA": 0, "SPLIT_KV": 1}
SM90 = {"TILE_M": 64, "TILE_N": 64, "STAGES": 2, "KERNEL_CFG": 3, "SCHED_POLICY": 1}


def run(g, engine="sdpa_sm80", knobs=None, inputs=None, allowance=1e-3):
    options, target = {
        "sdpa_sm80": (SM80, {}), "sdpa_fwd_sm90": (SM90, {"target": "sm_90a"})
    }[engine]  # fmt: skip
    plan = check(
        g, engine=engine, knobs=options | (knobs or {}), slack=4.0, allowance=allowance,
        inputs=inputs, **target,
    )  # fmt: skip
    (kernel,) = [k for p in plan.programs for k in p.kernels if not k.name.endswith("_parts")]
    assert kernel.spill_store_bytes == 0
    return plan


def sparse(rows, columns, inner=None, mask=None):
    """Scores under a mask of blocks of such a size, and perhaps another mask."""

    def scores(p, s):
        _, heads, queries, keys = p.dims
        dims = [1, heads, -(-queries // rows), -(-keys // columns // 8)]
        given = p.g.tensor(mask or dims, name="mask", data_type="UINT8")
        seen = p.g.block_mask_load(given, block_rows=rows, block_columns=columns)
        s = inner(p, s) if inner else p.scaled(s)
        return p.masked(s, p.flag(seen.set_dim(list(p.dims))))

    return scores


def inputs_of(pattern, bits):
    """Random ones under a mask [heads, blocks of rows, blocks of columns] of 0 and 1."""
    graph = pattern.g.graph.finalize()
    found = random_inputs(graph, {})
    padded = np.pad(np.asarray(bits), [(0, 0), (0, 0), (0, -np.shape(bits)[2] % 8)])
    (mask,) = [t for t in graph.inputs if t.name == "mask"]
    found[mask.uid] = np.packbits(padded, axis=-1, bitorder="little")[None]
    return found


def assert_hidden_is_not_read(pattern, plan, bits, size):
    """Keys that no row of a head sees may be no numbers."""
    graph, given = pattern.g.graph, inputs_of(pattern, bits)
    hidden = (~np.asarray(bits, bool).any(axis=1)).repeat(size, axis=1)[:, : pattern.dims[-1]]
    (v,) = [t for t in graph.inputs if t.name == "v"]
    holes = {**given, v.uid: np.where(hidden[None, :, :, None], np.nan, given[v.uid])}
    found = machine.current().run(plan, holes)
    for uid, wanted in machine.current().run(plan, given).items():
        np.testing.assert_array_equal(found[uid], wanted)


# One row of blocks of 32 rows and 32 columns for each of two heads' three rows of blocks.
BITS = np.zeros((2, 3, 9), int)
BITS[0, 0, [0, 3, 8]] = BITS[0, 1, [1, 2]] = BITS[1, 0, 4] = 1
BITS[1, 1] = [1, 0, 1, 1, 0, 0, 1, 0, 1]
SHAPE = {"batch": (1, 2), "queries": 80, "keys": 280, "depth": 16}


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.parametrize("stages", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_what_is_hidden_is_not_read(stages):
    """In some tiles only the first or the last block of keys is seen, of others none."""
    pattern = Pattern(**SHAPE, scores=sparse(32, 32))
    plan = run(pattern.g, knobs={"STAGES": stages}, inputs=inputs_of(pattern, BITS))
    assert_hidden_is_not_read(pattern, plan, BITS, 32)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "knobs", [{"TILE_N": 64}, {"TILE_M": 64}, {"SPLIT_KV": 4}], ids=["keys", "rows", "parts"]
)
def test_tiles_of_several_blocks(knobs):
    pattern = Pattern(**SHAPE, scores=sparse(32, 32))
    run(pattern.g, knobs=knobs, inputs=inputs_of(pattern, BITS))


@pytest.mark.in_turn
def test_beside_another_mask():
    """Tiles begin before row 0."""
    pattern = Pattern(
        batch=(1, 2), queries=72, keys=140, depth=16,
        scores=sparse(32, 32, lambda p, s: causal(p, s, 70)),
    )  # fmt: skip
    bits = np.random.default_rng(0).integers(0, 2, (2, 3, 5))
    run(pattern.g, inputs=inputs_of(pattern, bits))


@pytest.mark.in_turn
@pytest.mark.sm90
def test_a_bit_that_hides_where_numbers_agree():
    """No block of keys is known to be hidden by it."""

    def scores(p, s):
        own = p.g.tensor([1, 1, 72, 1], name="own", data_type="INT32")
        other = p.g.tensor([1, 1, 1, 140], name="other", data_type="INT32")
        bits = p.g.tensor([1, 2, 3, 1], name="mask", data_type="UINT8")
        bit = p.g.block_mask_load(bits, block_rows=32, block_columns=32).set_dim(list(p.dims))
        is_hidden = p.both(p.integer("cmp_eq", own, other), p.flag(bit))
        return p.g.binary_select(LOW, p.scaled(s), is_hidden)

    pattern = Pattern(batch=(1, 2), queries=72, keys=140, depth=16, scores=scores)
    options = {"engine": "sdpa_fwd_sm90", "target": "sm_90a", "knobs": SM90}
    check(pattern.g, slack=4.0, allowance=1e-3, **options)


def test_heads_that_share_a_tile():
    """Heads' masks differ: each score looks at its own."""
    pattern = Pattern(
        batch=(1, 4), key_batch=(1, 2), queries=5, keys=70, depth=16, scores=sparse(16, 16)
    )
    run(pattern.g, knobs={"PACK_GQA": 1})


@pytest.mark.in_turn
def test_one_mask_for_all_heads():
    pattern = Pattern(**SHAPE, scores=sparse(32, 32, mask=[1, 1, 3, 2]))
    run(pattern.g)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.sm90
def test_what_is_hidden_is_not_read_on_hopper():
    pattern = Pattern(batch=(1, 2), queries=150, keys=500, depth=16, scores=sparse(64, 64))
    bits = BITS[:, :, :8].copy()
    bits[0, 0, 7] = 1
    plan = run(pattern.g, "sdpa_fwd_sm90", inputs=inputs_of(pattern, bits))
    assert_hidden_is_not_read(pattern, plan, bits, 64)


@pytest.mark.in_turn
@pytest.mark.sm90
@pytest.mark.parametrize("config", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_tiles_of_several_blocks_on_hopper(config):
    pattern = Pattern(
        batch=(1, 2), queries=150, keys=200, depth=16,
        scores=sparse(64, 64, lambda p, s: causal(p, s, 30)),
    )  # fmt: skip
    knobs = {"TILE_M": 128, "TILE_N": 96, "KERNEL_CFG": config}
    bits = np.array([[[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 1, 1]], [[0] * 4] * 2 + [[1] * 4]])
    run(pattern.g, "sdpa_fwd_sm90", knobs, inputs_of(pattern, bits))


def composite(**options):
    g = dnnc.pygraph("sparse", io_data_type="HALF", intermediate_data_type="FLOAT")
    q, k, v = (g.tensor([1, 1, n, 16], name=m) for m, n in (("q", 140), ("k", 270), ("v", 270)))
    mask = g.tensor([1, 1, 2, 1], data_type="UINT8", name="mask")
    o, stats = g.sdpa(q, k, v, generate_stats=True, block_mask=mask, **options)
    o.set_output()
    stats.set_output()
    return g


@pytest.mark.in_turn
@pytest.mark.parametrize("causal_too", [pytest.param(False, marks=pytest.mark.slow), True])
def test_blocks_of_128(causal_too):
    g = composite(use_causal_mask=causal_too, attn_scale=0.3)
    graph = g.graph.finalize()
    given = random_inputs(graph, {})
    (mask,) = [t for t in graph.inputs if t.name == "mask"]
    given[mask.uid] = np.array([0b010, 0b101], np.uint8).reshape(1, 1, 2, 1)
    run(g, knobs={"TILE_M": 64, "TILE_N": 64}, inputs=given)


def test_tiles_lie_in_blocks():
    """Tiles of Hopper's candidates lie in one block of a mask: no score looks at its bit."""
    graph = composite().graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    found = SDPA_FWD_SM90.candidates(fusion, of("sm_90a"))
    assert {128 % knobs["TILE_N"] for knobs in found} == {0}
    assert {knobs["TILE_M"] for knobs in found} == {64, 128}


@pytest.mark.in_turn
def test_masks_of_dropout_in_hidden_blocks():
    g = dnnc.pygraph("dump", io_data_type="HALF", intermediate_data_type="FLOAT")
    q, k, v = (g.tensor([1, 1, n, 16], name=m) for m, n in (("q", 30), ("k", 270), ("v", 270)))
    mask = g.tensor([1, 1, 1, 1], data_type="UINT8", name="mask")
    dump = g.tensor([1, 1, 30, 270], name="dump", data_type="FLOAT")
    o, _ = g.sdpa(
        q, k, v, generate_stats=False, dropout=(0.3, 5, 7), rng_dump=dump, block_mask=mask,
        attn_scale=0.3,
    )  # fmt: skip
    o.set_output()
    dump.set_output()
    graph = g.graph.finalize()
    given = random_inputs(graph, {})
    (mask,) = [t for t in graph.inputs if t.name == "mask"]
    given[mask.uid] = np.full((1, 1, 1, 1), 0b010, np.uint8)
    run(g, knobs={"TILE_M": 32, "TILE_N": 64}, inputs=given)
