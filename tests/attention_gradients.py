"""Operands of attention's gradient that fit each other, for any graph of one `sdpa_backward`."""

import math

import numpy as np

FLOATS = ("q", "k", "v", "attn_scale", "bias", "sink_token", "do", "dropout_scale")


def dims_of(tensor, sizes):
    return [extent.evaluate(sizes) for extent in tensor.shape]


def operands_of(op, forward, seed, sizes=None, **known):
    """Operands by field name, in float64; o and stats are what the forward operation gives.

    forward: the `sdpa` whose gradient `op` is.  Numbers of the graph have their values.
    known: operands that are not random.
    """
    rng = np.random.default_rng(seed)
    sizes = sizes or {}
    given = {}
    for field, tensor in op.tensors("operand"):
        if tensor.value is not None:
            given[field.name] = np.full([1, 1, 1, 1], float(tensor.value))
        elif field.name in FLOATS:
            given[field.name] = rng.normal(size=dims_of(tensor, sizes))
        elif field.name in ("seed", "offset"):
            given[field.name] = rng.integers(0, 1 << 31, dims_of(tensor, sizes))
        elif field.name not in ("o", "stats"):
            given[field.name] = op.draw(tensor, rng, sizes)
    if "dropout_scale" in given:
        given["dropout_scale"] = np.abs(given["dropout_scale"]) + 0.5
    given |= known
    made = forward.computed(given, sizes)
    return {**given, "o": made["o"], "stats": made["stats"]}


def inputs_of(op, given):
    """The operands by uid, as a graph of the operation takes them."""
    return {
        tensor.uid: given[field.name]
        for field, tensor in op.tensors("operand")
        if tensor.value is None
    }


def past_the_lengths(given, value):
    """The operands with another value in all rows and keys past the lengths."""
    made = dict(given)
    for names, lengths in ((("q", "o", "do", "stats"), "seq_len_q"), (("k", "v"), "seq_len_kv")):
        for name in names:
            inside = np.arange(given[name].shape[2])[:, None] < given[lengths]
            made[name] = np.where(inside, given[name], value)
    return made


def loss_along(forward, given, name, direction, sizes=None):
    """The derivative of sum(dO * O) along a direction of one operand, from differences."""
    step = 1e-5
    losses = []
    for sign in (step, -step):
        moved = {**given, name: given[name] + sign * direction}
        losses.append(np.sum(forward.computed(moved, sizes or {})["o"] * given["do"]))
    assert all(map(math.isfinite, losses))
    return (losses[0] - losses[1]) / (2 * step)
