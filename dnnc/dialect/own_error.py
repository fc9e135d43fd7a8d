# pyright: basic
"""How far a pointwise operation's result may be from the exact one, given exact operands.

The errors are those of kernels (docs/numerics.md), in absolute values, element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .ops import Pointwise

Array = Any

# Relative errors of one operation in f32 and f64.  `math` functions are within a few ulp, or
# within about 2**-22 where the result is rounded to fewer bits later; tanh within 2**-10.9 where
# its result has at most 16 bits (dnnc/codegen/scalars/math.py).
ARITHMETIC = {"f32": 2.0**-23, "f64": 2.0**-50}
FUNCTION = {"f32": 2.0**-20.5, "f64": 2.0**-48}
COARSE = 2.0**-10
# Below its normal numbers f32 is a grid.  Arithmetic rounds to it; quotients that are rounded to
# fewer bits later, and functions, may give 0 instead.
SUBNORMAL_STEP = 2.0**-149
NO_SUBNORMALS = 2.0**-126
FLUSHED = 2.0**-120

# Modes that round nothing, given operands of the compute type.
EXACT = {
    "min", "max", "abs", "neg", "ceil", "floor", "identity", "gen_index", "binary_select",
    "logical_and", "logical_or", "logical_not",
    "cmp_eq", "cmp_neq", "cmp_gt", "cmp_ge", "cmp_lt", "cmp_le", "mod",
}  # fmt: skip
_ROUNDED_ONCE = {"add", "mul", "sub", "div", "reciprocal"}  # exact where f32 holds the result
_QUOTIENTS = {"div", "reciprocal"}
_ARITHMETIC = {"add_square", "relu_fwd", "relu_bwd"}
_HAS_TANH = {"tanh_fwd", "tanh_bwd", "gelu_approx_tanh_fwd", "gelu_approx_tanh_bwd"}


def own_error(
    op: Pointwise, operands: Sequence[Array], size: Array, *, is_sharp: Array, is_coarse: bool
) -> Array:
    """The error of an operation in f32 or f64.

    size: the result's magnitude.  is_sharp: where the operands are known exactly.
    is_coarse: whether all that is made of the result has at most 16 bits.
    """
    mode = op.mode
    compute = "f64" if op.compute_type.name == "f64" else "f32"
    if mode in EXACT:
        return np.zeros(size.shape)
    scale = _scale(op, operands, size)
    in_f32 = compute == "f32"
    if mode in _ROUNDED_ONCE:
        least = (NO_SUBNORMALS if mode in _QUOTIENTS else SUBNORMAL_STEP) if in_f32 else 0.0
        exact = is_sharp & (size.astype(np.float32) == size) & ((size == 0) | (size >= least))
        return np.where(exact, 0.0, ARITHMETIC[compute] * scale + least)
    if mode in _ARITHMETIC:
        return ARITHMETIC[compute] * scale + (SUBNORMAL_STEP if in_f32 else 0.0)
    error = COARSE if mode in _HAS_TANH and in_f32 and is_coarse else FUNCTION[compute]
    return error * scale + (_flushed(op, operands) if in_f32 else 0.0)


def _flushed(op: Pointwise, operands: Sequence[Array]) -> Array | float:
    """The error where a function, or the function that it is made of, may give 0 instead of a
    subnormal number."""
    if op.mode == "swish_fwd":  # x times such a sigmoid
        return FLUSHED + NO_SUBNORMALS * np.abs(operands[0])
    if op.mode == "softplus_fwd":  # such an exponential divided by beta
        return FLUSHED + NO_SUBNORMALS / abs(op.parameters()["beta"])
    return FLUSHED


def _scale(op: Pointwise, operands: Sequence[Array], size: Array) -> Array:
    """Value that an operation's error is relative to: its result, or a larger part that cancels."""
    first = np.abs(operands[0])
    second = np.abs(operands[1]) if len(operands) > 1 else first
    beta, alpha = (abs(op.parameters().get(name, 1.0)) for name in ("beta", "alpha"))
    growth = 1 + np.minimum(beta * second, 8.0) ** 3
    scales: dict[str, Callable[[], Array]] = {
        "add_square": lambda: first + second * second,
        "relu_fwd": lambda: size + first + 2,
        "exp": lambda: size * (1 + first),
        "log": lambda: np.maximum(size, 1.0),
        "erf": lambda: np.minimum(6 * size, 1.0),
        "sigmoid_fwd": lambda: size * (1 + np.minimum(first, 100)),
        "swish_fwd": lambda: size * (1 + np.minimum(beta * first, 100)),
        "elu_fwd": lambda: size * 2,
        "softplus_fwd": lambda: size * (1 + np.minimum(beta * first, 100)),
        "gelu_fwd": lambda: first,
        "gelu_approx_tanh_fwd": lambda: first * (1 + np.minimum(first, 8.0) ** 2),
        **dict.fromkeys(
            ("tanh_bwd", "sigmoid_bwd", "elu_bwd", "softplus_bwd", "swish_bwd", "gelu_bwd",
             "gelu_approx_tanh_bwd"),
            lambda: first * growth * max(alpha, 1.0),
        ),
    }  # fmt: skip
    return scales[op.mode]() if op.mode in scales else size
