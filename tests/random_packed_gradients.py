"""Gradients of attention of packed sequences, drawn at random, each compared with the reference.

    python -m tests.random_packed_gradients --count 200 --first 0 [--device]

In the interpreter, or with --device on the CUDA device.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines.attention.bwd_sm90 import SDPA_BWD_SM90
from dnnc.options import Options
from dnnc.target import of
from tests.checked_gradient import BOUNDS, compare_defined
from tests.support import machine

WIDTHS = (8, 24, 64, 64, 72, 96, 128, 128, 136, 256)


@dataclass(frozen=True)
class PackedCase:
    """queries, keys: rows of each sequence.  arguments: of `sdpa_backward`, beside tensors."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    heads: int
    key_heads: int
    width: int
    io: Any
    arguments: dict[str, Any]
    has_packed_stats: bool

    def __str__(self) -> str:
        sizes = f"{self.heads}/{self.key_heads} heads of {self.width}, {self.io.name}"
        return f"{self.queries} x {self.keys}, {sizes}, {self.arguments}"


def draw(random: Random, most: int) -> PackedCase:
    entries = random.randint(1, 5)

    def counts() -> tuple[int, ...]:
        found = [random.choice((0, 1, random.randint(1, most))) for _ in range(entries)]
        found[random.randrange(entries)] = random.randint(1, most)
        return tuple(found)

    queries = counts()
    keys = queries if random.random() < 0.6 else counts()
    key_heads = random.choice((1, 2))
    arguments: dict[str, Any] = {"attn_scale": random.choice((0.1, 0.25))}
    if random.random() < 0.7:
        arguments["diagonal_band_right_bound"] = 0
        if random.random() < 0.3:
            arguments["diagonal_band_left_bound"] = random.randint(1, most)
    if random.random() < 0.25:
        arguments["use_deterministic_algorithm"] = True
    return PackedCase(
        queries, keys, key_heads * random.choice((1, 1, 2, 4)), key_heads, random.choice(WIDTHS),
        random.choice((dtypes.f16, dtypes.bf16)), arguments, random.random() < 0.5,
    )  # fmt: skip


def graph_of(case: PackedCase) -> tuple[Any, dict[int, Any]]:
    """(The graph, by tensor's uid its lengths and offsets)."""
    g = dnnc.pygraph(io_data_type=case.io, intermediate_data_type=dtypes.f32)
    entries, known = len(case.queries), dict[Any, Any]()

    def integers(values: Any) -> Any:
        made = g.tensor([len(values), 1, 1, 1], data_type=dtypes.i32)
        known[made] = values
        return made

    places: dict[Any, Any] = {}

    def packed(counts: tuple[int, ...], heads: int, width: int, tensor: Any = None) -> Any:
        most = max(counts)
        strides = [most * heads * width, width, heads * width, 1]
        if (counts, heads, width) not in places:
            firsts = np.cumsum([0, *counts]) * heads * width
            places[counts, heads, width] = integers(firsts)
        if tensor is None:
            kind = dtypes.f32 if width == 1 else case.io
            tensor = g.tensor([entries, heads, most, width], strides, data_type=kind)
        else:
            tensor.set_output().set_stride(strides)
        return tensor.set_ragged_offset(places[counts, heads, width])

    of_queries, of_keys = (case.queries, case.heads), (case.keys, case.key_heads)
    q, o, do = (packed(*of_queries, case.width) for _ in range(3))
    k, v = (packed(*of_keys, case.width) for _ in range(2))
    if case.has_packed_stats:
        stats = packed(*of_queries, 1)
    else:
        stats = g.tensor([entries, case.heads, max(case.queries), 1], data_type=dtypes.f32)
    known[stats] = None
    lengths = {"seq_len_q": integers(case.queries)}
    lengths["seq_len_kv"] = integers(case.keys)
    made = g.sdpa_backward(
        q, k, v, o, do, stats, use_padding_mask=True, max_total_seq_len_q=sum(case.queries),
        max_total_seq_len_kv=sum(case.keys), **lengths, **case.arguments,
    )  # fmt: skip
    for tensor, rows in zip(made, (of_queries, of_keys, of_keys), strict=True):
        packed(*rows, case.width, tensor)
    g.validate()
    return g, {tensor.get_uid(): values for tensor, values in known.items()}


def run(case: PackedCase, random: Random, seed: int) -> str:
    """Compares results with the reference; gives the knobs, which are drawn."""
    g, known = graph_of(case)
    graph = g.graph.finalize()
    rng = np.random.default_rng(seed)
    given = {}
    for tensor in graph.inputs:
        dims = [n.constant for n in tensor.shape]
        values = known.get(tensor.uid)
        if values is None:
            values = rng.normal(size=dims) + (3 if tensor.uid in known else 0)
        given[tensor.uid] = np.reshape(values, dims).astype(tensor.type.numpy)
    (whole,) = partition(graph, [graph.live_ops])
    knobs = random.choice(list(SDPA_BWD_SM90.candidates(whole, of("sm_90a"))))
    options = Options(engine=SDPA_BWD_SM90.name, knobs=tuple(knobs.items()))
    plan = compile_graph(graph, "sm_90a", options)
    compare_defined(plan, graph, given, BOUNDS[case.io])
    return f"{dict(knobs)}"


def run_seed(seed: int, most: int) -> str:
    random = Random(seed)
    case = draw(random, most)
    try:
        return f"{case}: {run(case, random, seed)}"
    except Exception as error:
        raise AssertionError(f"seed {seed}: {case}: {error}") from error


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.random_packed_gradients")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--most", type=int, default=400, help="rows of a sequence")
    parser.add_argument("--device", action="store_true")
    given = parser.parse_args()
    if given.device:
        machine.use(machine.cuda())
    wrong = 0
    for seed in range(given.first, given.first + given.count):
        try:
            print(seed, run_seed(seed, given.most), flush=True)
        except AssertionError as error:
            wrong += 1
            print("WRONG", str(error)[:600], flush=True)
    print(f"{given.count - wrong} of {given.count} right")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
