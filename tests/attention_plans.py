"""Attention as users run it, prefill and decode, for tests of what is done with plans."""

import functools

import dnnc
from dnnc.compiler import compile_graph
from dnnc.options import Options

from . import attention_graphs as graphs

PREFILL = {"TILE_M": 128, "TILE_N": 64, "STAGES": 2, "KERNEL_CFG": 3, "SCHED_POLICY": 1}
DECODE = {"TILE_M": 16, "TILE_N": 32, "STAGES": 2, "PACK_GQA": 1, "SPLIT_KV": 4}


def prefill():
    """Causal attention of heads that share keys; every size but the head's is a symbol."""
    batch, rows, keys = (dnnc.Dim(name, max=4096) for name in ("B", "Sq", "Skv"))
    return graphs.Pattern(
        batch=(batch, 4), key_batch=(batch, 2), queries=rows, keys=keys, scores=graphs.causal
    ).g


def decode():
    """One query for a cache in pages, whose keys are shared among blocks."""
    return graphs.paged(batch=dnnc.Dim("B", max=64), queries=1, heads=8, block=16)[0]


@functools.cache
def prefill_plan():
    """For Hopper: a counter of tiles is set, then a kernel takes tensor maps of Q, K, V and O."""
    options = Options(engine="sdpa_fwd_sm90", knobs=tuple(PREFILL.items()))
    return compile_graph(prefill().graph.finalize(), "sm_90a", options)


@functools.cache
def decode_plan(target="sm_80"):
    """Two kernels, and what they pass on in the workspace."""
    options = Options(engine="sdpa_sm80", knobs=tuple(DECODE.items()))
    return compile_graph(decode().graph.finalize(), target, options)
