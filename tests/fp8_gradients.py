"""Operands of `sdpa_fp8_backward` that fit each other, and a run of one against its reference."""

import numpy as np

from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.ops.sdpa_reference import attention
from dnnc.options import Options
from dnnc.rounding import round_to, widen
from tests.attention_gradients import dims_of
from tests.support import machine
from tests.support.compare import relative_error

NUMBERS = {
    "descale_q": 0.5, "descale_k": 1.5, "descale_v": 2.0, "descale_o": 0.25, "descale_do": 0.125,
    "descale_s": 1 / 250, "descale_dp": 1 / 60, "scale_s": 256.0, "scale_dq": 3.0,
    "scale_dk": 0.75, "scale_dv": 5.0, "scale_dp": 64.0,
}  # fmt: skip


def operands_of(op, seed, numbers=NUMBERS, sizes=None, **known):
    """Operands by field name, as they are stored; o and stats are those of the forward pass.

    numbers: descales and scales.  known: operands that are not random.
    """
    rng, sizes, given = np.random.default_rng(seed), sizes or {}, {}
    for field, tensor in op.tensors("operand"):
        dims = dims_of(tensor, sizes)
        if field.name in numbers:
            given[field.name] = np.full(dims, numbers[field.name], np.float32)
        elif tensor.value is not None:
            given[field.name] = np.full([1, 1, 1, 1], float(tensor.value))
        elif field.name in ("seed", "offset"):
            given[field.name] = rng.integers(0, 1 << 31, dims)
        elif field.name in ("q", "k", "v", "do", "sink_token"):
            given[field.name] = round_to(rng.normal(size=dims), tensor.type)
        elif field.name not in ("o", "stats"):
            given[field.name] = op.draw(tensor, rng, sizes)
    given |= known
    wide = {n: widen(given[n]) * numbers[f"descale_{n}"] for n in "qkv"}
    made = attention(op, {**given, **wide}, sizes)
    given["o"] = round_to(made["o"] / numbers["descale_o"], op.o.type)
    given["stats"] = round_to(made["stats"], op.stats.type)
    return given


# What a product's sum in f32, or one P or dS that f32 rounds otherwise, moves a result by; of a few
# elements, whose inputs differ from run to run on a device, one may move more.  There: where dS is
# e4m3.
EXACT, EXACT_ON_DEVICE = 2e-3, 2e-2
# A largest element is one: where one P or dS is rounded to its neighbour, a term moves by 1/8.
LARGEST_ON_DEVICE = {f"amax_{name}": 2.0**-3 for name in ("dq", "dk", "dv")}
# What rounding a result to its type does to the norm of its error.
RESULTS = {dtypes.f32: 0.0, dtypes.f16: 2.0**-11, dtypes.f8e4m3: 2.0**-5, dtypes.f8e5m2: 2.0**-4}


def run(build, engine, target, most, numbers=NUMBERS, knobs=(), **known):
    """(results of an engine's kernels by name, exact ones), compared.

    build: makes a graph of one `sdpa_fp8_backward`.  most: kernels.
    """
    graph, where = build().graph.finalize(), machine.current()
    op = graph.ops[-1]
    given = operands_of(op, where.seed, numbers, **known)
    options = Options(engine=engine, knobs=tuple(dict(knobs).items()))
    plan = compile_graph(graph, target, options)
    (program,) = plan.programs
    assert [fusion.engine for fusion in program.fusions] == [engine]
    assert len(program.kernels) <= most
    exact = op.computed({name: widen(array) for name, array in given.items()}, {})
    inputs = {
        tensor.uid: np.asarray(given[field.name]).astype(tensor.type.numpy)
        for field, tensor in op.tensors("operand")
        if tensor.value is None
    }
    made, found = where.run(plan, inputs), {}
    for field, tensor in op.tensors("result"):
        if tensor.uid not in made:
            continue
        actual = widen(made[tensor.uid])
        assert np.isfinite(actual).all(), field.name
        error = relative_error(actual, exact[field.name], 1e-2)
        on_device = LARGEST_ON_DEVICE.get(field.name, EXACT_ON_DEVICE)
        if op.do.type == dtypes.f8e5m2:  # dS has its type, whose neighbours lie twice as far apart
            on_device *= 2
        bound = EXACT if where is machine.INTERPRETER else on_device
        bound += RESULTS[tensor.type]
        assert error < bound, f"relative error {error:.3g} of {field.name}"
        found[field.name] = actual
    return found, exact
