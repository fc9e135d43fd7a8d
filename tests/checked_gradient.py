"""Attention's gradient by one engine, against float64: one case, or one of a seed."""

from random import Random

import numpy as np

from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.ops import SdpaBackward
from dnnc.dialect.reference import reference, undefined_parts
from dnnc.options import DEFAULTS, Options
from tests.attention_gradients import inputs_of, operands_of
from tests.dialect.attention_examples import lengths
from tests.dialect.attention_gradient_examples import forward, gradient, soft_cap
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
    may_spill=True, layouts=None, **dims,
):  # fmt: skip
    """(results, exact results by name) of an engine's kernels, compared.

    known: operands that are not random.  smallest: see `relative_error`.  engine: its name, and the
    target.  most: kernels.  may_spill: whether they may use local memory.  layouts: of `gradient`.
    """
    graph = gradient(arguments, io=io, layouts=layouts, **dims)()
    op = graph.graph.finalize().ops[-1]
    other = forward(arguments, **dims)().graph.finalize().ops[-1]
    if not isinstance(op, SdpaBackward):  # a `score_mod` makes it many
        other = forward(arguments, **dims)().graph.finalize()
        stored, exact = _of_many(graph.graph, other, known or {})
        plan = _compiled(graph.graph, options, engine, most, may_spill=may_spill)
        return _compared(plan, stored, exact, io, smallest), exact
    given = operands_of(op, other, machine.current().seed, **(known or {}))
    # O and statistics are those of the operands as they are stored.
    rounded = {**(known or {}), **_as_stored(op, given)}
    rounded = {name: x for name, x in rounded.items() if name not in ("o", "stats")}
    given = operands_of(op, other, machine.current().seed, **rounded)
    plan = _compiled(graph.graph, options, engine, most, may_spill=may_spill)
    exact = op.computed({**given, **_as_stored(op, given)}, {})
    inputs = inputs_of(op, given)
    stored = {t.uid: np.asarray(inputs[t.uid]).astype(t.type.numpy) for t in graph.graph.inputs}
    named = {tensor.uid: field.name for field, tensor in op.tensors("result")}
    found = _compared(plan, stored, {uid: exact[name] for uid, name in named.items()}, io, smallest)
    return {name: found[uid] for uid, name in named.items()}, exact


def _compiled(graph, options, engine, most, *, may_spill):
    """The plan, which is one fusion of an engine."""
    plan = compile_graph(graph, engine[1], options)
    (program,) = plan.programs
    assert [fusion.engine for fusion in program.fusions] == [engine[0]]
    assert len(program.kernels) <= most
    for kernel in () if may_spill else program.kernels:
        assert kernel.spill_store_bytes == kernel.spill_load_bytes == kernel.local_bytes == 0
    return plan


def _compared(plan, stored, exact, io, smallest):
    """Results by uid, compared with exact ones."""
    made = machine.current().run(plan, stored)
    found = {}
    for uid, wanted in exact.items():
        actual = np.asarray(made[uid], np.float64)
        assert np.isfinite(actual).all(), uid
        least = max(smallest, SMALLEST_ELEMENT * actual.size**0.5)
        error = relative_error(actual, wanted, least)
        assert error < BOUNDS[io], f"relative error {error:.3g} of {uid}"
        found[uid] = actual
    return found


def compare_defined(plan, graph, given, bound):
    """Compares a plan's results with the reference's, where that defines them."""
    undefined = undefined_parts(graph, given, sizes={})
    found = machine.current().run(plan, given, partial=undefined.keys())
    exact = reference(graph, given)
    for tensor in graph.outputs:
        wanted = exact[tensor.uid].astype(np.float64)
        actual = np.where(undefined.get(tensor.uid, False), wanted, found[tensor.uid])
        error = relative_error(actual, wanted, SMALLEST)
        assert error < bound, f"{tensor.name}: {error:.3g}"


def _of_many(graph, other, known):
    """(inputs, exact results) of a gradient that is many operations, by uid; other: the graph of
    the forward pass, in f32, with inputs of the same names."""
    rng = np.random.default_rng(machine.current().seed)
    (rows, _), (columns, _) = (_last_two(graph, name) for name in "qk")
    inputs = {}
    for tensor in graph.inputs:
        dims = [n.constant for n in tensor.shape]
        limit = {"sq": rows + 1, "skv": columns + 1, "mask": 2, "blocks": 256}.get(tensor.name)
        if tensor.name in known:
            values = known[tensor.name]
        elif tensor.name.startswith("numbers"):
            values = np.sort(rng.integers(0, 3, dims), axis=None).reshape(dims)
        elif tensor.type.is_integer or tensor.name == "mask":
            values = rng.integers(0, limit or 1 << 31, dims)
        else:
            values = rng.normal(size=dims)
        values = np.abs(values) + 0.5 if tensor.name == "kept" else values
        inputs[tensor.uid] = np.asarray(values).astype(tensor.type.numpy)
    made = reference(other, {t.uid: inputs[graph.tensor(t.name).uid] for t in other.inputs})
    for tensor in other.outputs:
        target = graph.tensor("stats" if tensor.shape[-1].constant == 1 else "o")
        inputs[target.uid] = np.asarray(made[tensor.uid]).astype(target.type.numpy)
    exact = reference(graph, inputs, exact_outputs=True)
    return inputs, {tensor.uid: exact[tensor.uid] for tensor in graph.outputs}


def _last_two(graph, name):
    return [n.constant for n in graph.tensor(name).shape[-2:]]


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
    if engine == SM80:  # which takes contiguous elements of a head
        dims.pop("layouts", None)
    options = Options(engine=engine[0])
    kernels = 6 if engine == SM80 else 3
    run(arguments, io, options=options, engine=engine, most=kernels, **dims)


def _documents(g, batch, rows, columns):
    """The `score_mod` of a mask of documents, whose numbers are in memory."""
    of_rows, of_columns = (
        g.tensor(dims, data_type=dtypes.i32, name=f"numbers_{dims[2]}_{dims[3]}")
        for dims in ([batch, 1, rows, 1], [batch, 1, 1, columns])
    )

    def masked(graph, scores):
        return graph.binary_select(scores, float("-inf"), graph.cmp_eq(of_rows, of_columns))

    return masked


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
    score_mod = random.choice(["none", "none", "none", "soft_cap", "documents"])
    if random.random() < 0.3:
        names = ("q", "k", "v", "o", "do", "dq", "dk", "dv")
        dims["layouts"] = {name: tuple(random.sample(range(4), 4)) for name in names}
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
        if score_mod == "soft_cap":
            given["score_mod"] = soft_cap
        if score_mod == "documents":
            given["score_mod"] = _documents(g, batch, rows, dims["columns"])
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
            numbers = [
                g.tensor([1, 1, 1, 1], data_type=dtypes.i64, name=name)
                for name in ("seed", "offset")
            ]
            given["dropout"] = (0.25, *numbers)
        if dropout == "given":
            given["dropout"] = (g.tensor(mask, name="mask"), g.tensor([1, 1, 1, 1], name="kept"))
        return given

    return arguments, random.choice([dtypes.f16, dtypes.bf16]), dims
