"""Attention's gradient by one engine, against float64: one case, or one of a seed."""

from random import Random

import numpy as np

from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.options import DEFAULTS, Options
from tests.attention_gradients import inputs_of, operands_of
from tests.dialect.attention_examples import lengths
from tests.dialect.attention_gradient_examples import forward, gradient
from tests.support import machine
from tests.support.compare import relative_error

SM90, SM80 = ("sdpa_bwd_sm90", "sm_90a"), ("sdpa_bwd_sm80", "sm_80")
# P and dS are rounded to 16 bits before the products, and results after them.
BOUNDS = {dtypes.bf16: 2.0**-7, dtypes.f16: 2.0**-10}
DEPTHS = {SM90: (8, 24, 64, 64, 72, 96, 128, 128), SM80: (8, 24, 64, 72, 128, 136, 256)}
EVERY_DEPTH = (8, 24, 64, 64, 96, 128, 128, 136, 160, 192, 200, 256, 256)
SMALLEST = 1e-2  # that the norm of a result counts as: rows that see one key have no dS
# The same for each of its elements, which are about 1 where rows see more keys: f32 leaves about
# 2^-20 of dP - delta where they are equal.
SMALLEST_ELEMENT = 2.0**-8


def run(
    arguments, io, known=None, smallest=SMALLEST, options=DEFAULTS, engine=SM90, most=3,
    may_spill=True, **dims,
):  # fmt: skip
    """(results, exact results by name) of an engine's kernels, compared.

    known: operands that are not random.  smallest: see `relative_error`.  engine: its name, and the
    target.  most: kernels.  may_spill: whether they may use local memory.
    """
    graph = gradient(arguments, io=io, **dims)()
    op = graph.graph.finalize().ops[-1]
    other = forward(arguments, **dims)().graph.finalize().ops[-1]
    given = operands_of(op, other, machine.current().seed, **(known or {}))
    # O and statistics are those of the operands as they are stored.
    rounded = {**(known or {}), **_as_stored(op, given)}
    rounded = {name: x for name, x in rounded.items() if name not in ("o", "stats")}
    given = operands_of(op, other, machine.current().seed, **rounded)
    plan = compile_graph(graph.graph, engine[1], options)
    (program,) = plan.programs
    assert [fusion.engine for fusion in program.fusions] == [engine[0]]
    assert len(program.kernels) <= most
    for kernel in () if may_spill else program.kernels:
        assert kernel.spill_store_bytes == kernel.spill_load_bytes == kernel.local_bytes == 0
    exact = op.computed({**given, **_as_stored(op, given)}, {})
    inputs = inputs_of(op, given)
    stored = {t.uid: np.asarray(inputs[t.uid]).astype(t.type.numpy) for t in graph.graph.inputs}
    made = machine.current().run(plan, stored)
    found = {}
    for field, tensor in op.tensors("result"):
        actual = np.asarray(made[tensor.uid], np.float64)
        assert np.isfinite(actual).all(), field.name
        least = max(smallest, SMALLEST_ELEMENT * actual.size**0.5)
        error = relative_error(actual, exact[field.name], least)
        assert error < BOUNDS[io], f"relative error {error:.3g} of {field.name}"
        found[field.name] = actual
    return found, exact


def _as_stored(op, given):
    """Operands in memory, rounded to their types, in float64."""
    return {
        field.name: np.asarray(given[field.name]).astype(tensor.type.numpy).astype(np.float64)
        for field, tensor in op.tensors("operand")
        if tensor.value is None and tensor.type.is_float
    }


def run_seed(seed, most=300, heads=6, engine=SM90, depths=()):
    """A random case, by the engine whether its kernels spill or not; most: rows and keys.  depths:
    of heads; else those that are quick to interpret."""
    arguments, io, dims = draw(Random(f"gradient {seed}"), most, heads, depths or DEPTHS[engine])
    options = Options(engine=engine[0])
    kernels = 6 if engine == SM80 else 3
    run(arguments, io, options=options, engine=engine, most=kernels, **dims)


def draw(random, most, most_heads, depths):
    """(arguments of the call, a function of a graph; type; dims of the operands)."""
    heads = random.randint(1, most_heads)
    batch, rows, columns = random.randint(1, 3), random.randint(1, most), random.randint(2, most)
    depth = random.choice(depths)
    dims = {
        "batch": batch,
        "heads": heads,
        "kv_heads": random.choice([n for n in range(1, heads + 1) if heads % n == 0]),
        "rows": rows,
        "columns": random.choice([rows, columns]) if rows > 1 else columns,
        "depth": depth,
        "value_depth": random.choice([depth, random.choice(depths)]),
    }
    has = {
        name: random.random() < 0.3
        for name in (
            "left",
            "right",
            "end",
            "alibi",
            "bias",
            "log2",
            "negative",
            "lengths",
            "repeats",
        )
    }
    bias = [random.choice([1, n]) for n in (batch, heads, rows, dims["columns"])]
    dropout = random.choice(["none", "none", "none", "drawn", "given"])
    mask = [random.choice([1, n]) for n in (batch, heads, rows, dims["columns"])]
    left, right = random.randint(1, most), random.randint(0, 3)
    has_sink, has_dbias = (random.random() < 0.4 for _ in range(2))
    has_sink &= batch * rows > 1  # or it is no sum
    has_blocks = random.random() < 0.3
    blocks = [random.choice([1, n]) for n in (batch, heads)]
    blocks += [-(-rows // 128), -(-dims["columns"] // 1024)]

    def arguments(g):
        given = {"stats_use_log2": has["log2"]}
        given["attn_scale"] = -0.3 if has["negative"] else depth**-0.5
        if has["left"]:
            given["diagonal_band_left_bound"] = left
        if has["right"] or has["alibi"]:
            given["diagonal_band_right_bound"] = 0 if has["alibi"] else right
        if has["end"]:
            given["diagonal_alignment"] = "BOTTOM_RIGHT"
        given["use_alibi_mask"] = has["alibi"]
        given["use_deterministic_algorithm"] = has["repeats"]
        if has["lengths"]:
            given |= lengths(g, batch)
        if has["bias"]:
            given["bias"] = g.tensor(bias, name="bias")
            # The dS of a row add up to 0, but for what rounding leaves, which has no exact value.
            given |= {"dBias": g.tensor(bias)} if has_dbias and bias[3] > 1 else {}
        if has_sink:
            sink = [1, heads, 1, 1]
            given |= {"sink_token": g.tensor(sink, name="sink"), "dSink_token": g.tensor(sink)}
        if has_blocks:
            given["block_mask"] = g.tensor(blocks, data_type=dtypes.ui8, name="blocks")
        if dropout == "drawn":
            seed, offset = (g.tensor([1, 1, 1, 1], data_type=dtypes.i64) for _ in range(2))
            given["dropout"] = (0.25, seed, offset)
        if dropout == "given":
            given["dropout"] = (g.tensor(mask, name="mask"), g.tensor([1, 1, 1, 1], name="kept"))
        return given

    return arguments, random.choice([dtypes.f16, dtypes.bf16]), dims
