"""Tiles that a block of sdpa_fwd_sm90 takes one after the other, in the interpreter: the last
product of one stands beside the first of the next."""

from dataclasses import replace

import pytest

from dnnc.engines.attention.choice_sm90 import SdpaChoice
from dnnc.engines.attention.facts_sm90 import tiling_of
from dnnc.engines.attention.tile_sm90 import SdpaMasks
from tests import attention_graphs as graphs
from tests.attention_graphs import Pattern
from tests.engines.attention.test_few_sm90 import HEADS, SHARED
from tests.engines.attention.test_fp8_sm90 import run as run_fp8
from tests.engines.attention.test_fwd_sm90 import fusion_of, inputs_of, run, run_packed
from tests.fp8_attention import FAST, attention
from tests.support import multiprocessors

pytestmark = [pytest.mark.sm90, pytest.mark.registers]
TALL = {"batch": (1,), "queries": 300, "keys": 150}

PATTERNS = {
    "full": (TALL, {}),
    "causal": ({**TALL, "keys": 300, "scores": graphs.causal}, {"TILE_N": 128}),
    "rows with nothing": ({**TALL, "scores": lambda p, s: graphs.causal(p, s, -180)}, {}),
    "three warpgroups that let blocks go by": (
        {"batch": (1,), "queries": 400, "keys": 400, "scores": graphs.causal},
        {"TILE_M": 192, "KERNEL_CFG": 0, "STAGES": 1},
    ),
    "numbers": (
        {**TALL, "queries": 256, "keys": 384, "depth": 128, "scores": graphs.documents},
        {"TILE_N": 128},
    ),
    "one warpgroup": (TALL, {"TILE_M": 64, "STAGES": 3}),
    "queries of two tiles": ({**TALL, "depth": 128}, {"TILE_N": 96, "STAGES": 3}),
    "queries of one tile": ({**TALL, "keys": 70, "depth": 256}, {"KERNEL_CFG": 1}),
    "statistics": ({**TALL, "keys": 70, "statistics": "both"}, {"SCHED_POLICY": 0}),
    "parts": (HEADS, SHARED),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", PATTERNS)
def test_tiles_of_a_block(name, monkeypatch):
    multiprocessors.few(monkeypatch, 1)
    shape, knobs = PATTERNS[name]
    run(Pattern(**shape), knobs)


@pytest.mark.parametrize(
    ("width", "is_numbered", "overlaps"),
    [(128, False, True), (64, True, True), (128, True, False)],
)
def test_tiles_overlap_where_there_are_registers(width, is_numbered, overlaps):
    """Under a mask that compares numbers, 128 keys of heads of 128 would spill."""
    choice = SdpaChoice(128, 128, 2, True, True, True)
    fusion = fusion_of(Pattern(depth=width, width=width))
    masks = SdpaMasks(False, is_numbered, is_numbered, True)
    tiling = replace(tiling_of(fusion, choice), masks=masks)
    assert tiling.overlaps == overlaps


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("lengths", [(0, 200, 1), (130, 0, 64)])
def test_tiles_of_lengths(lengths, monkeypatch):
    """Tiles without keys stand between others."""
    multiprocessors.few(monkeypatch, 1)
    pattern = Pattern(batch=(3,), queries=140, keys=200, scores=graphs.padded)
    run(pattern, inputs=inputs_of(pattern, lengths=lengths))


PACKED = {
    "full": ((9, 140, 0, 64), (130, 200, 70, 3), {}, {}),
    "causal": ((40, 150, 129), (40, 150, 129), {"use_causal_mask": True, "depth": 72}, {}),
    "queries of two tiles": ((9, 140), (130, 70), {"depth": 128}, {"TILE_N": 96, "STAGES": 3}),
    "three warpgroups, full": ((9, 70), (130, 200), {}, {"TILE_M": 192, "KERNEL_CFG": 0}),
    "three warpgroups": (
        (40, 250, 3), (40, 250, 3), {"use_causal_mask": True}, {"TILE_M": 192, "KERNEL_CFG": 0},
    ),
    "in order": ((9, 140, 5), (130, 200, 70), {}, {"SCHED_POLICY": 0}),
}  # fmt: skip


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", PACKED)
def test_tiles_of_packed_sequences(name, monkeypatch):
    """Tiles of several sequences, of some of which a warpgroup has no rows."""
    multiprocessors.few(monkeypatch, 1)
    lengths, key_lengths, options, knobs = PACKED[name]
    run_packed(lengths, key_lengths, options, knobs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("compute", ["FLOAT", FAST])
def test_fp8(compute, monkeypatch):
    """Steps whose sums are added together; the largest weight beside a reference that is less."""
    multiprocessors.few(monkeypatch, 1)
    g = attention(heads=1, queries=200, keys=600, compute=compute)
    run_fp8(g, {"KERNEL_CFG": 3})
