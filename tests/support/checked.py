"""Compiles a graph, runs it (see `machine`), and compares with the reference."""

import numpy as np

from dnnc.compiler import compile_graph
from dnnc.dialect.reference import drawn, reference, undefined_parts
from dnnc.options import Options

from . import machine
from .compare import assert_close


def random_inputs(graph, sizes, seed=0, low=-2.0, high=2.0):
    """Fresh inputs, rounded to the tensors' types: uid -> array."""
    rng = np.random.default_rng(seed + machine.current().seed)
    inputs = {}
    for tensor in graph.inputs:
        dims = [n.evaluate(sizes) for n in tensor.shape]
        shape = [1 if axis in tensor.repeated_axes else n for axis, n in enumerate(dims)]
        restricted = drawn(graph, tensor, rng, sizes)
        if restricted is not None:
            inputs[tensor.uid] = restricted
        elif tensor.type.kind == "b":
            inputs[tensor.uid] = rng.integers(0, 2, shape).astype(bool)
        elif tensor.type.is_integer:
            inputs[tensor.uid] = rng.integers(0 if tensor.type.kind == "u" else -9, 10, shape)
        else:
            inputs[tensor.uid] = rng.uniform(low, high, shape).astype(tensor.type.numpy)
        if tensor.repeated_axes:
            inputs[tensor.uid] = np.broadcast_to(inputs[tensor.uid], dims)
    return inputs


def check(g, sizes=None, *, slack=2.0, allowance=0.0, seed=0, inputs=None, plan=None, **options):
    """Runs a pygraph's plan at some sizes and checks every output; gives the plan."""
    where = machine.current()
    graph = g.graph.finalize()
    sizes = sizes or {}
    inputs = inputs if inputs is not None else random_inputs(graph, sizes, seed)
    if plan is None:
        knobs = tuple(options.pop("knobs", {}).items())
        target = options.pop("target", where.target)
        plan = compile_graph(graph, target, Options(knobs=knobs, **options))
    undefined = undefined_parts(graph, inputs, sizes=sizes)
    actual = where.run(plan, inputs, sizes=sizes, seed=seed, partial=undefined.keys())
    exact = reference(graph, inputs, sizes=sizes, exact_outputs=True)
    is_exact = not undefined and all(tensor.type.is_float for tensor in graph.outputs)
    stored = {} if is_exact else reference(graph, inputs, sizes=sizes)
    for tensor in graph.outputs:
        wanted = exact if tensor.type.is_float else stored
        found = actual[tensor.uid]
        if tensor.uid in undefined:
            found = np.where(undefined[tensor.uid], stored[tensor.uid], found)
        assert_close(found, wanted[tensor.uid], tensor.type, slack=slack, allowance=allowance)
    return plan
