"""Attention of fp8: graphs of one `sdpa_fp8`, their inputs, and a comparison with the reference."""

import numpy as np

import dnnc
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference, undefined_parts
from dnnc.options import Options
from dnnc.rounding import widen
from tests.support import machine
from tests.support.compare import assert_close

NUMBERS = {
    "descale_q": 0.75, "descale_k": 1.5, "descale_v": 3.0, "descale_s": 1 / 64, "scale_s": 96.0,
    "scale_o": 0.5,
}  # fmt: skip
FAST = "FAST_FLOAT_FOR_FP8"
# What rounding weights to 8 bits costs, of either type.
WEIGHTS = {"f8E4M3FN": 0.03, "f8E5M2": 0.06}


def attention(
    *, batch=1, heads=2, key_heads=0, queries=64, keys=96, depth=64, width=0, io="FP8_E4M3",
    out="BFLOAT16", compute="FLOAT", v_io=None, largest=True, arguments=None, strides=None,
):  # fmt: skip
    """A graph of one sdpa_fp8; arguments: of the call, a function of the graph or a dict."""
    g = dnnc.pygraph(
        "fp8", io_data_type=io, intermediate_data_type="FLOAT", compute_data_type=compute
    )
    strides = strides or {}
    key_heads, width = key_heads or heads, width or depth
    q = g.tensor([batch, heads, queries, depth], strides.get("q"), name="q")
    k = g.tensor([batch, key_heads, keys, depth], strides.get("k"), name="k")
    v = g.tensor([batch, key_heads, keys, width], strides.get("v"), name="v", data_type=v_io)
    numbers = {name: g.tensor([1, 1, 1, 1], data_type="FLOAT", name=name) for name in NUMBERS}
    more = arguments(g) if callable(arguments) else arguments or {}
    o, stats, *amax = g.sdpa_fp8(
        q, k, v, **numbers, attn_scale=depth**-0.5, generate_stats=True, **more
    )
    o.set_output().set_name("o").set_data_type(out)
    stats.set_output().set_name("stats")
    if largest:
        for tensor, name in zip(amax, ("amax_s", "amax_o"), strict=True):
            tensor.set_output().set_name(name)
    return g


def inputs_of(g, numbers=NUMBERS, **values):
    rng, found = np.random.default_rng(machine.current().seed), {}
    for tensor in g.graph.finalize().inputs:
        shape = [n.evaluate({}) if n.constant is not None else None for n in tensor.shape]
        if tensor.name in numbers:
            found[tensor.uid] = np.full(shape, numbers[tensor.name], np.float32)
        elif tensor.name in values:
            found[tensor.uid] = np.reshape(values[tensor.name], shape)
        else:
            found[tensor.uid] = rng.normal(size=shape).astype(tensor.type.numpy)
    return found


def run(g, engine, knobs, inputs=None, **numbers):
    """Runs a plan of an engine, and compares what it gives."""
    graph, where = g.graph.finalize(), machine.current()
    plan = compile_graph(graph, "sm_90a", Options(engine=engine, knobs=tuple(knobs.items())))
    given = inputs if inputs is not None else inputs_of(g, NUMBERS | numbers)
    undefined = undefined_parts(graph, given)
    actual = where.run(plan, given, sizes={}, seed=0, partial=undefined.keys())
    exact = reference(graph, given, exact_outputs=True)
    # Tensor cores cut the sums of fp8 products, and so scores; see docs/numerics.md.
    cut = 0.0 if where is machine.INTERPRETER else 2.0**-6
    q = next(t for t in graph.inputs if t.name == "q")
    for tensor in graph.outputs:
        found = actual[tensor.uid]
        if tensor.uid in undefined:
            found = np.where(undefined[tensor.uid], exact[tensor.uid], widen(found))
        of_weights = WEIGHTS[q.type.name] if tensor.name in ("o", "amax_o") else 1e-5
        assert_close(found, exact[tensor.uid], tensor.type, slack=2.0, allowance=of_weights + cut)
    for kernel in plan.programs[0].kernels:
        assert (kernel.spill_store_bytes, kernel.spill_load_bytes) == (0, 0)
    return actual


def amax_of_both(p, o):
    """The amax of weights and result as outputs."""
    found = p.g.reduction(o, mode="amax").set_dim([1] * 4).set_output().set_name("amax_o")
    found.set_data_type("FLOAT")
    return p.g.identity(o)


def fusion_of(g):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return fusion
