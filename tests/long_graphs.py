"""Graphs of many operations, deep and wide, for tests of what long graphs cost."""

from __future__ import annotations

from typing import Any

import dnnc


def _new() -> Any:
    return dnnc.pygraph("long", io_data_type="f16", intermediate_data_type="f32")


def chain(count: int) -> Any:
    g = _new()
    value = g.tensor([256, 128])
    for _ in range(count):
        value = g.add(value, 0.1)
    value.set_output()
    return g


def ladder(count: int) -> Any:
    """Three operations a rung, which read both results of the rung before."""
    g = _new()
    left = right = g.tensor([256, 128])
    for _ in range(count // 3):
        left, right = g.add(left, right), g.sub(g.mul(left, 0.5), right)
    g.add(left, right).set_output()
    return g


def tree(count: int) -> Any:
    """Leaves of two operations each, added up in pairs."""
    g = _new()
    x = g.tensor([256, 128])
    values = [g.relu(g.add(x, 0.1 * i)) for i in range(count // 3)]
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        values = [*(g.add(a, b) for a, b in pairs), *values[len(values) // 2 * 2 :]]
    values[0].set_output()
    return g


def outputs(count: int) -> Any:
    """A chain of which every link is an output."""
    g = _new()
    value = g.tensor([256, 128])
    for _ in range(count):
        value = g.tanh(value).set_output()
    return g


def reduced(count: int) -> Any:
    """A chain of which every link, and its maximum of each row, is an output."""
    g = _new()
    value = g.tensor([256, 128])
    for _ in range(count // 2):
        value = g.tanh(value).set_output()
        g.reduction(value, "max").set_dim([256, 1]).set_output()
    return g


def behind_product(count: int) -> Any:
    g = _new()
    value = g.matmul(g.tensor([1, 64, 64]), g.tensor([1, 64, 64]))
    for _ in range(count):
        value = g.add(value, 0.1)
    value.set_output()
    return g


def before_product(count: int) -> Any:
    g = _new()
    value = g.tensor([1, 64, 64])
    for _ in range(count):
        value = g.add(value, 0.1)
    g.matmul(value.set_data_type("f16"), g.tensor([1, 64, 64])).set_output()
    return g


def rows(count: int) -> Any:
    """A row's sum between two chains."""
    g = _new()
    value = g.tensor([64, 256])
    for _ in range(count // 2):
        value = g.add(value, 0.1)
    value = g.div(value, g.reduction(value, "add").set_dim([64, 1]))
    for _ in range(count // 2):
        value = g.add(value, 0.1)
    value.set_output()
    return g


def views(count: int) -> Any:
    g = _new()
    value = g.tensor([64, 2 * count + 64])
    for i in range(count):
        if i % 3:
            value = g.transpose(value, [1, 0])
        else:
            rows, columns = (slice(0, 64), slice(1, 2 * count + 64 - i))
            value = g.slice(value, [columns, rows] if i // 3 * 2 % 2 else [rows, columns])
    value.set_output()
    return g


def reshapes(count: int) -> Any:
    g = _new()
    value = g.tensor([64, 32])
    for i in range(count):
        dims = [32, 64] if i % 2 else [16, 128]
        value = g.reshape(value).set_dim(dims).set_stride([dims[1], 1])
    value.set_output()
    return g


def scores(count: int, *, masks: bool = False, biased: bool = False) -> Any:
    """An attention whose scores, or whose mask, or what is added to whose scores, are a chain."""
    g = _new()
    q, k, v = (g.tensor([1, 1, 64, 64]) for _ in "qkv")
    s = g.matmul(q, g.transpose(k, [0, 1, 3, 2]))
    if masks:
        row, column = g.gen_index(s, axis=2), g.gen_index(s, axis=3)
        holds = g.cmp_ge(row, column)
        for i in range(count // 3):
            holds = g.logical_and(holds, g.cmp_ge(g.add(row, i), column))
        s = g.binary_select(s, -1e9, holds)
    elif biased:
        left = right = g.tanh(g.tensor([1, 1, 64, 64]))
        for _ in range(count // 3):
            left, right = g.add(left, right), g.sub(g.mul(left, 0.5), right)
        s = g.add(s, g.add(left, right))
    else:
        for _ in range(count):
            s = g.mul(s, 0.99)
    e = g.exp(g.sub(s, g.reduction(s, "max").set_dim([1, 1, 64, 1])))
    p = g.div(e, g.reduction(e, "add").set_dim([1, 1, 64, 1])).set_data_type("f16")
    g.matmul(p, v).set_output()
    return g


def masks(count: int) -> Any:
    return scores(count, masks=True)


def biases(count: int) -> Any:
    return scores(count, biased=True)


def layers(count: int, width: int = 768, tokens: int = 2048) -> Any:
    """Equal layers: norm, product + GELU, product + residual."""
    g = dnnc.pygraph("layers", io_data_type="bf16", intermediate_data_type="f32")
    x = g.tensor([1, tokens, width])
    epsilon = g.tensor_scalar(1e-5, dnnc.scalar_type.COMPILE_TIME_CONST)
    for _ in range(count):
        scale, bias = (g.tensor([1, 1, width], data_type="f32") for _ in range(2))
        phase = dnnc.norm_forward_phase.INFERENCE
        y = g.layernorm(phase, x, scale, bias, epsilon)[0].set_data_type("bf16")
        wide = g.matmul(y, g.tensor([1, width, 4 * width]))
        h = g.gelu(g.add(wide, g.tensor([1, 1, 4 * width]))).set_data_type("bf16")
        narrow = g.matmul(h, g.tensor([1, 4 * width, width]))
        x = g.add(narrow, x).set_data_type("bf16")
    x.set_output()
    return g


DEEP = (
    chain, ladder, tree, outputs, reduced, behind_product, before_product, rows, views, reshapes,
    scores, masks, biases,
)  # fmt: skip
