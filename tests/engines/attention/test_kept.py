"""Attention whose outputs have an element for each score: weights, dropout's mask; interpreted."""

import numpy as np
import pytest

import dnnc
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines.attention.sm80 import SDPA_SM80
from dnnc.options import Options
from dnnc.target import of
from tests import attention_graphs as graphs
from tests.attention_graphs import Pattern
from tests.fragment_order import buffer_of, in_memory
from tests.mha_graphs import SmallAttention
from tests.support import machine
from tests.support.checked import check, random_inputs

pytestmark = pytest.mark.registers

SM80 = {"TILE_M": 32, "TILE_N": 32, "STAGES": 2, "PACK_GQA": 0, "SPLIT_KV": 1}
SM90 = {"TILE_M": 128, "TILE_N": 64, "STAGES": 2, "KERNEL_CFG": 3, "SCHED_POLICY": 1}
WEIGHTS = 2.0**-10  # numbers below 1 are stored in f16, and products of K and scale are not


def run(g, engine="sdpa_sm80", knobs=None, allowance=1e-5, **options):
    small, target = {
        "sdpa_sm80": (SM80, None), "sdpa_fwd_sm90": (SM90, "sm_90a")
    }[engine]  # fmt: skip
    if target:
        options["target"] = target
    plan = check(
        g, engine=engine, knobs=small | (knobs or {}), slack=4.0, allowance=allowance, **options
    )
    kernels = [kernel for program in plan.programs for kernel in program.kernels]
    assert all(kernel.spill_store_bytes == 0 for kernel in kernels)
    assert len(kernels) == 1
    return plan


# ---- the graphs of cuDNN's guide

GUIDE = {
    "softmax": {"is_padded": False},
    "no scale": {"is_padded": False, "scale": None},
    "padded": {"batch": 2, "queries": 40, "keys": 72},
    "causal": {"is_causal": True, "queries": 50, "keys": 96},
    "dropout": {"dropout": "drawn", "dtype": "BFLOAT16", "is_causal": True},
    "given mask": {"dropout": "given", "depth": 64},
    "sign of what is dropped": {"dropout": "given", "signed": True},
    "F16x16": {"reordering": "F16x16", "is_causal": True, "queries": 48, "keys": 80},
    "F16x16 of dropout": {
        "reordering": "F16x16", "dropout": "drawn", "is_padded": False, "queries": 32,
    },
    "F16x16 of a given mask": {
        "reordering": "F16x16", "dropout": "given", "dtype": "BFLOAT16", "queries": 16,
    },
    "odd keys": {"queries": 33, "keys": 45, "depth": 24},
    "inference": {"stored": False, "keys": 77, "softmax_reordering": "F16x16"},
    "inference with dropout": {"stored": False, "dropout": "drawn"},
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", GUIDE)
def test_small_sequences(name):
    made = SmallAttention(**{"batch": 1, "queries": 20, "depth": 32} | GUIDE[name])
    allowance = 2.0**-7 if made.dtype == "BFLOAT16" else WEIGHTS
    run(made.g, inputs=made.inputs(), allowance=allowance)


@pytest.mark.in_turn
@pytest.mark.sm90
def test_small_sequences_of_inference_on_hopper():
    made = SmallAttention(**GUIDE["inference"])
    run(made.g, "sdpa_fwd_sm90", inputs=made.inputs(), allowance=WEIGHTS)


@pytest.mark.in_turn
def test_rows_past_the_length():
    """All of their scores are the same large number: they see all keys alike."""
    made = SmallAttention(batch=1, queries=40, keys=64)
    given = made.inputs(lengths=([30], [50]))
    plan = run(made.g, inputs=given, allowance=WEIGHTS)
    found = machine.current().run(plan, given)
    (s,) = [t.uid for t in made.g.graph.outputs if t.name == "s"]
    np.testing.assert_array_equal(found[s][0, :, 30:], 1 / 64)
    assert not found[s][0, :, :30, 50:].any()


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("keys", "stages"), [(16, 2), (16, 4), (64, 3)])
def test_steps_of_both_passes(keys, stages):
    made = SmallAttention(batch=1, queries=20, keys=112, depth=16, is_padded=False)
    run(made.g, knobs={"TILE_N": keys, "STAGES": stages}, inputs=made.inputs(), allowance=WEIGHTS)


@pytest.mark.in_turn
def test_one_launch_is_the_first_choice():
    """Scores of 512 keys are computed twice: less than to write and read S once more."""
    graph = SmallAttention(batch=8, heads=12, queries=512, keys=512, dropout="drawn").g
    plan = compile_graph(graph.graph.finalize(), "sm_90a", Options())
    (kernel,) = [k for p in plan.programs for k in p.kernels]
    assert kernel.name == "fusion0_sdpa_sm80"
    assert kernel.spill_store_bytes == 0


@pytest.mark.in_turn
def test_the_signs_of_dropout_are_the_same_kernel():
    """The sum of F16x16 is computed with the weights, not from memory."""
    made = SmallAttention(dropout="drawn", reordering="F16x16")
    plan = compile_graph(made.g.graph.finalize(), "sm_90a", Options())
    (kernel,) = [k for p in plan.programs for k in p.kernels]
    assert kernel.name == "fusion0_sdpa_sm80"
    assert kernel.spill_store_bytes == 0


@pytest.mark.in_turn
@pytest.mark.parametrize("keys", [64, 112])
def test_weights_lie_where_cudnn_stores_them(keys):
    """Weights lie as was measured, not as the dims say; a row's last block is not whole."""
    made = SmallAttention(
        batch=1, queries=48, keys=keys, depth=16, is_padded=False, reordering="F16x16"
    )
    plain = SmallAttention(batch=1, queries=48, keys=keys, depth=16, is_padded=False)
    given = made.inputs()
    plan = run(made.g, inputs=given, allowance=WEIGHTS)
    uid = made.g.graph.tensor("s").uid
    strides = [size.constant for size in made.g.graph.tensor("s").strides]
    found = in_memory(machine.current().run(plan, given)[uid], strides)
    wanted = dnnc.reference(plain.g, plain.inputs())[plain.g.graph.tensor("s").uid]
    np.testing.assert_allclose(found, buffer_of(wanted), atol=2 * WEIGHTS)


def in_tiles(p, weights):
    """An output of weights in F16x16 beside those that values are multiplied by."""
    w = p.g.identity(weights).set_output().set_name("w").set_data_type("HALF")
    w.set_reordering_type("F16x16")
    return weights


TILED = {
    "heads in a tile": (
        {"batch": (1, 4), "key_batch": (1, 1), "queries": 16, "keys": 48},
        {"TILE_M": 16, "PACK_GQA": 1},
    ),
    "window": ({"queries": 64, "keys": 96, "scores": graphs.window}, {}),
    "rows with nothing": (
        {"queries": 64, "keys": 48, "scores": lambda p, s: graphs.causal(p, s, -40)},
        {"TILE_N": 16},
    ),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", TILED)
def test_weights_in_tiles(name):
    shape, knobs = TILED[name]
    run(Pattern(depth=16, weights=in_tiles, **shape).g, knobs=knobs, allowance=WEIGHTS)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.sm90
def test_a_mask_in_tiles_on_hopper():
    g = dnnc.pygraph("mask", io_data_type="HALF", intermediate_data_type="FLOAT")
    q, k = g.tensor([1, 1, 32, 64], name="q"), g.tensor([1, 1, 64, 64], name="k")
    s = g.matmul(q, g.transpose(k, [0, 1, 3, 2]))
    mask = g.rng(5, 7, "BERNOULLI", bernoulli_probability=0.7, dim=[1, 1, 32, 64])
    mask.set_data_type("HALF").set_output().set_name("mask").set_reordering_type("F16x16")
    p = g.mul(g.softmax(s, axis=-1), mask).set_data_type("HALF")
    g.matmul(p, g.tensor([1, 1, 64, 64], name="v")).set_output()
    run(g, "sdpa_fwd_sm90", allowance=2.0**-8)


@pytest.mark.in_turn
def test_weights_read_across_are_stored_by_another_kernel():
    pattern = Pattern(batch=(1, 2), queries=32, keys=32, depth=16, weights=in_tiles)
    pattern.g.graph.tensor("w").set_stride([2 * 32 * 32, 32 * 32, 1, 32])
    assert reasons(SDPA_SM80, pattern.g)
    plan = check(pattern.g, slack=4.0, allowance=WEIGHTS)
    assert len(plan.programs[0].kernels) == 2


# ---- weights of any attention


def kept(p, weights):
    """An output of weights in FLOAT beside those that values are multiplied by."""
    p.g.identity(weights).set_output().set_name("w").set_data_type("FLOAT")
    return weights


KEPT = {
    "causal": ({"queries": 70, "keys": 70, "scores": graphs.causal}, {}),
    "rows with nothing": (
        {"queries": 70, "keys": 50, "scores": lambda p, s: graphs.causal(p, s, -40)},
        {"TILE_N": 16},
    ),
    "window": ({"queries": 60, "keys": 100, "scores": graphs.window, "statistics": "both"}, {}),
    "heads that share": ({"batch": (2, 4), "key_batch": (2, 2), "queries": 9, "keys": 40}, {}),
    "heads in a tile": (
        {"batch": (1, 4), "key_batch": (1, 1), "queries": 9, "keys": 40, "scores": graphs.alibi},
        {"TILE_M": 16, "PACK_GQA": 1},
    ),
    "rows of no numbers": (
        {"queries": 20, "keys": 70, "scores": lambda p, s: graphs.causal(p, s, -5),
         "is_guarded": False, "share": "div"}, {},
    ),
    "large numbers": ({"queries": 20, "keys": 70, "scores": graphs.far_select}, {}),
    "divided": ({"queries": 20, "keys": 40, "share": "div"}, {"STAGES": 3}),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", KEPT)
def test_weights(name):
    shape, knobs = KEPT[name]
    run(Pattern(depth=16, weights=kept, **shape).g, knobs=knobs)


@pytest.mark.in_turn
@pytest.mark.parametrize("lengths", [(0, 1), (100, 37)])
def test_weights_of_lengths(lengths):
    """Blocks past a length are zeros that are written."""
    pattern = Pattern(
        batch=(2, 1), queries=30, keys=100, depth=16, scores=graphs.padded, weights=kept
    )
    graph = pattern.g.graph.finalize()
    given = random_inputs(graph, {})
    (tensor,) = [t for t in graph.inputs if t.name == "lengths"]
    given[tensor.uid] = np.reshape(lengths, (2, 1, 1, 1))
    run(pattern.g, inputs=given)


@pytest.mark.in_turn
def test_weights_of_any_layout():
    """Rows along memory, with gaps."""
    pattern = Pattern(batch=(1, 2), queries=20, keys=24, depth=16, weights=kept)
    (w,) = [t for t in pattern.g.graph.tensors if t.name == "w"]
    w.set_stride([2 * 24 * 28, 1, 2, 56])
    run(pattern.g)


def reasons(engine, g, target="sm_90a"):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return engine.supports(fusion, of(target))


def test_weights_that_no_sum_divides_are_not_stored():
    """They are relative to a maximum that is not final."""
    pattern = Pattern(queries=20, keys=40, share="after", weights=kept)
    (reason,) = reasons(SDPA_SM80, pattern.g)
    assert "of weights that the sum has divided" in reason.supported


def test_keys_of_a_tile_are_not_shared():
    fusion_graph = Pattern(queries=1, keys=4096, weights=kept).g.graph.finalize()
    (fusion,) = partition(fusion_graph, [fusion_graph.live_ops])
    row = of("sm_80")
    assert {knobs["SPLIT_KV"] for knobs in SDPA_SM80.candidates(fusion, row)} == {1}
    assert SDPA_SM80.legal(SM80 | {"SPLIT_KV": 2}, fusion, row)


# ---- dropout's mask


def dumped(heads=1, queries=50, keys=70, dtype="HALF", **options):
    g = dnnc.pygraph(
        "dump", io_data_type=dtype, intermediate_data_type="FLOAT", compute_data_type="FLOAT"
    )
    q, k, v = (
        g.tensor([2, heads, n, 16], name=name)
        for name, n in (("q", queries), ("k", keys), ("v", keys))
    )
    seed, offset = (g.tensor([1] * 4, data_type="INT64", name=n) for n in ("seed", "offset"))
    dump = g.tensor([2, heads, queries, keys], name="dump", data_type="FLOAT")
    o, _ = g.sdpa(
        q, k, v, attn_scale=0.25, generate_stats=False, dropout=(0.3, seed, offset),
        rng_dump=dump, **options,
    )  # fmt: skip
    o.set_output()
    dump.set_output()
    return g


DUMPS = {
    "window": {"use_causal_mask": True, "sliding_window_length": 9, "queries": 70},
    "odd keys": {"queries": 20, "keys": 33},
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", DUMPS)
def test_masks_of_dropout(name):
    """The mask is written for blocks that nobody sees, too."""
    run(dumped(**DUMPS[name]), allowance=2.0**-10)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.sm90
def test_masks_of_dropout_on_hopper():
    run(
        dumped(heads=1, queries=140, keys=140, use_causal_mask=True),
        "sdpa_fwd_sm90",
        allowance=2.0**-10,
    )


@pytest.mark.in_turn
@pytest.mark.sm90
@pytest.mark.parametrize("engine", ["sdpa_sm80", "sdpa_fwd_sm90"])
def test_masks_of_dropout_beside_lengths(engine):
    """Tiles of rows and blocks of keys past them have elements, too."""
    names = {"seq_len_q": "rows", "seq_len_kv": "columns"}
    g = dnnc.pygraph("dump", io_data_type="HALF", intermediate_data_type="FLOAT")
    q, k, v = (g.tensor([2, 1, n, 16], name=m) for m, n in (("q", 140), ("k", 150), ("v", 150)))
    lengths = {
        key: g.tensor([2, 1, 1, 1], data_type="INT32", name=name) for key, name in names.items()
    }
    dump = g.tensor([2, 1, 140, 150], name="dump", data_type="FLOAT")
    o, stats = g.sdpa(
        q, k, v, generate_stats=True, dropout=(0.3, 5, 7), rng_dump=dump, use_padding_mask=True,
        **lengths,
    )  # fmt: skip
    for tensor in (o, stats, dump):
        tensor.set_output()
    graph = g.graph.finalize()
    given = random_inputs(graph, {})
    values = {"rows": [3, 140], "columns": [0, 70]}
    for tensor in graph.inputs:
        if tensor.name in values:
            given[tensor.uid] = np.reshape(values[tensor.name], (2, 1, 1, 1))
    run(g, engine, inputs=given, allowance=2.0**-10)
