"""Errors that rounding small weights of attention may cause: `costs(graph, inputs, sizes)`.

A type has a smallest normal number, and below it one step.  A kernel rounds exponentials of
distances from a row's largest score, e times 2^lift, to the type of the values; a graph may round
weights p = e / l, times a number, itself.  Since l >= 1, p is e at most: the weights that a kernel
rounds as subnormal ones are among those p below the smallest normal number over 2^lift, and each is
off by half a step over 2^lift, or by itself where it becomes 0.  For e4m3 and FLOAT that is 2^-18.
O = P V is off by the sum of these times |V|, and by what O meets as much the more.

That is nothing beside what others add up to; but a mask on weights may leave a row no others.
"""

from __future__ import annotations

import numpy as np

from dnnc import dtypes
from dnnc.dialect.reference import single_steps

_NORMAL = {dtypes.f16: 2.0**-14, dtypes.f8e4m3: 2.0**-6, dtypes.f8e5m2: 2.0**-14}
_STEP = {dtypes.f16: 2.0**-24, dtypes.f8e4m3: 2.0**-9, dtypes.f8e5m2: 2.0**-16}
_DROPOUT = 2.0  # multiplies weights by so much at most, once they are rounded


def costs(graph, inputs, sizes, factor=1.0):
    """uid of an output that is made of results -> by how much its elements may be off.

    factor: of weights ahead of the product, which it takes multiplied by it.
    """
    found, outputs, exact = {}, {}, {}
    steps = list(single_steps(graph, inputs, sizes=sizes))
    last = max(i for i, step in enumerate(steps) if step.op.op_name == "matmul")
    for i, step in enumerate(steps):
        result, value, _ = step.results[0]
        exact[result] = value
        if i < last:
            continue
        cost = _of_product(step, exact, factor) if i == last else _carried(step, found)
        if cost is not None:
            found[result] = cost
            outputs |= {} if result.is_virtual else {result.uid: cost}
    return outputs


def without(costs, actual, expected):
    """Results whose differences from `expected` are reduced by the costs."""
    if costs is None:
        return actual
    with np.errstate(invalid="ignore"):
        off = actual - expected
        left = expected + np.sign(off) * np.maximum(np.abs(off) - np.nan_to_num(costs), 0)
    return np.where(np.isfinite(off), left, actual)


def _of_product(step, exact, factor):
    """Costs of P V: of the kernel's rounding, and of the graph's."""
    weights, values = step.op.operands
    lift = 0
    if values.type.is_fp8:
        # Where the sum may stay in the accumulator, the largest score that exponentials are
        # relative to may be outgrown by 2^4, and they are 2^4 times what they are.
        lift = 4 if step.op.compute_type == dtypes.fast_float_for_fp8 else 8
    size = np.abs(np.nan_to_num(exact.get(weights, step.operands[0])))
    small = _off(size, values.type, factor * 2.0**-lift * _DROPOUT) + _off(size, weights.type, 1.0)
    of_values = np.abs(np.nan_to_num(step.operands[1]))
    return _tuple(step.op.reference(small, of_values, sizes=step.sizes))[0]


def _off(size, type_, unit):
    """Error of weights that are rounded as multiples of `unit`."""
    if type_ not in _NORMAL:
        return np.zeros_like(size)
    return np.where(size < unit * _NORMAL[type_], np.minimum(size, unit * _STEP[type_] / 2), 0.0)


def _carried(step, found):
    """The costs after an operation on the result."""
    op = step.op
    at = next((i for i, tensor in enumerate(op.operands) if tensor in found), None)
    if at is None:
        return None
    own = found[op.operands[at]]
    if op.op_name == "reduction":
        return np.max(own, keepdims=True)
    if op.op_name in ("ragged_store", "reshape"):
        return _tuple(op.reference(own, *step.operands[1:], sizes=step.sizes))[0]
    assert op.op_name == "pointwise", op.op_name
    if op.mode in ("mul", "div"):
        with np.errstate(all="ignore"):
            other = np.abs(step.operands[1 - at])
            return own * other if op.mode == "mul" else own / other
    assert op.mode in ("add", "identity", "relu_fwd"), op.mode  # 1 at most
    return np.broadcast_to(own, np.shape(step.results[0][1]))


def _tuple(made):
    return made if isinstance(made, tuple) else (made,)
