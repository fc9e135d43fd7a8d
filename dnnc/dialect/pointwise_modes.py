"""Pointwise modes, one row each: names, meaning on NumPy, and how scalar code computes it.

`reference` takes float64 (or int64, bool) arrays.  `emit` takes a builder `b` of scalar
operations and the operands in the compute type, and returns the result's value; the builder
comes from whoever emits, so that this file needs no compiler.  Parameters such as a clip or a
slope reach both by keyword.

The two are written independently of each other on purpose: one checks the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any  # numpy.ndarray of float64, int64 or bool


@dataclass(frozen=True)
class Mode:
    """A pointwise mode.

    name: ours; CUDNN_POINTWISE_ + its upper case is cuDNN's, `value` the enum value.
    formula: for the docs.  methods: the pygraph methods, each with its operand names.
    domain: what the compute type may be: "float", "number" (float or integer) or "any".
    result: "compute" (the compute type) or "bool".
    parameters: names of the operation's attributes that the mode reads.
    """

    name: str
    value: int
    formula: str
    methods: tuple[tuple[str, tuple[str, ...]], ...]
    reference: Callable[..., Array]
    emit: Callable[..., Any]
    domain: str = "float"
    result: str = "compute"
    parameters: tuple[str, ...] = ()

    @property
    def arity(self) -> int:
        return len(self.methods[0][1])

    @property
    def cudnn(self) -> str:
        return f"CUDNN_POINTWISE_{self.name.upper()}"


# ---- references

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def _relu(x: Array, lower: float, upper: float, slope: float) -> Array:
    line = lower + slope * (x - lower) if slope else lower
    return np.where(x < lower, line, np.minimum(x, upper))


def _relu_bwd(dy: Array, x: Array, lower: float, upper: float, slope: float) -> Array:
    below = slope * dy if slope else 0
    inside = (x < upper) | np.isinf(upper)
    return np.where(np.isnan(x), x, np.where(x <= lower, below, np.where(inside, dy, 0)))


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _elu_bwd(dy: Array, x: Array, alpha: float) -> Array:
    return np.where(x > 0, dy, dy * alpha * np.exp(np.minimum(x, 0)))


def _gelu_bwd(dy: Array, x: Array) -> Array:
    density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return dy * (0.5 * (1 + _erf(x / math.sqrt(2))) + np.where(np.isinf(x), 0, x) * density)


def _gelu_tanh_inner(x: Array) -> Array:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def _gelu_tanh_bwd(dy: Array, x: Array) -> Array:
    t = np.tanh(_gelu_tanh_inner(x))
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
    tail = np.where(np.abs(t) == 1, 0, x * (1 - t * t) * slope)
    return dy * (0.5 * (1 + t) + 0.5 * tail)


def _softplus(x: Array, beta: float) -> Array:
    return np.logaddexp(0, beta * x) / beta


def _swish_bwd(dy: Array, x: Array, beta: float) -> Array:
    s = _sigmoid(beta * x)
    return dy * (s + np.where(np.isinf(x), 0, beta * x) * s * (1 - s))


def _div(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.divide(x, y)
    safe = np.where(y == 0, 1, y)
    return np.where(y == 0, 0, np.sign(x) * np.sign(safe) * (np.abs(x) // np.abs(safe)))


def _mod(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, 1, y)))


def _truth(x: Array) -> Array:
    return x != 0


# ---- emitters of more than one operation


def _emit_sigmoid(b: Any, x: Any) -> Any:
    return b.div_by_large(b.const(1.0), b.add(b.const(1.0), b.exp(b.neg(x))))


def _emit_relu(b: Any, x: Any, lower: float, upper: float, slope: float) -> Any:
    low = b.const(lower)
    clipped = x if math.isinf(upper) else b.min(x, b.const(upper))
    if slope == 0.0:
        return b.max(clipped, low)
    # With a negative slope this may be above the upper clip.
    line = b.add(low, b.mul(b.const(slope), b.sub(x, low)))
    return b.select(b.lt(x, low), line, clipped)


def _emit_relu_bwd(b: Any, dy: Any, x: Any, lower: float, upper: float, slope: float) -> Any:
    below = b.const(0.0) if slope == 0.0 else b.mul(dy, b.const(slope))
    inside = dy
    if not math.isinf(upper):
        inside = b.select(b.lt(x, b.const(upper)), dy, b.const(0.0))
    chosen = b.select(b.le(x, b.const(lower)), below, inside)
    return b.select(b.is_nan(x), x, chosen)


def _emit_elu(b: Any, x: Any, alpha: float) -> Any:
    negative = b.mul(b.const(alpha), b.expm1(x))
    return b.select(b.le(x, b.const(0.0)), negative, x)


def _emit_elu_bwd(b: Any, dy: Any, x: Any, alpha: float) -> Any:
    negative = b.mul(b.mul(dy, b.const(alpha)), b.exp(x))
    return b.select(b.le(x, b.const(0.0)), negative, b.select(b.is_nan(x), x, dy))


def _emit_gelu(b: Any, x: Any) -> Any:
    half = b.mul(x, b.const(0.5))
    return b.mul(half, b.erf_and_1(b.mul(x, b.const(math.sqrt(0.5)))))


def _emit_gelu_bwd(b: Any, dy: Any, x: Any) -> Any:
    share = b.mul(b.const(0.5), b.erf_and_1(b.mul(x, b.const(math.sqrt(0.5)))))
    bell = b.exp(b.mul(b.mul(x, x), b.const(-0.5)))
    tail = b.mul(b.mul(x, b.const(1 / math.sqrt(2 * math.pi))), bell)
    tail = b.select(b.eq(bell, b.const(0.0)), b.const(0.0), tail)  # inf * 0 at the ends
    return b.mul(dy, b.add(share, tail))


def _emit_gelu_tanh_t(b: Any, x: Any) -> Any:
    cube = b.add(b.const(1.0), b.mul(b.const(0.044715), b.mul(x, x)))
    return b.tanh(b.mul(b.mul(x, b.const(math.sqrt(2 / math.pi))), cube))


def _emit_gelu_tanh(b: Any, x: Any) -> Any:
    return b.mul(b.mul(x, b.const(0.5)), b.add(b.const(1.0), _emit_gelu_tanh_t(b, x)))


def _emit_gelu_tanh_bwd(b: Any, dy: Any, x: Any) -> Any:
    t = _emit_gelu_tanh_t(b, x)
    slope = b.mul(b.const(3 * 0.044715), b.mul(x, x))
    slope = b.mul(b.const(math.sqrt(2 / math.pi)), b.add(b.const(1.0), slope))
    rest = b.sub(b.const(1.0), b.mul(t, t))
    tail = b.mul(b.mul(x, slope), rest)
    tail = b.select(b.eq(rest, b.const(0.0)), b.const(0.0), tail)  # inf * 0 at the ends
    return b.mul(dy, b.mul(b.const(0.5), b.add(b.add(b.const(1.0), t), tail)))


def _emit_softplus(b: Any, x: Any, beta: float) -> Any:
    z = b.mul(x, b.const(beta))
    rest = b.log1p(b.exp(b.neg(b.abs(z))))
    return b.mul(b.add(b.max(z, b.const(0.0)), rest), b.const(1 / beta))


def _emit_swish(b: Any, x: Any, beta: float) -> Any:
    return b.div_by_large(x, b.add(b.const(1.0), b.exp(b.mul(x, b.const(-beta)))))


def _emit_swish_bwd(b: Any, dy: Any, x: Any, beta: float) -> Any:
    z = b.mul(x, b.const(beta))
    s = _emit_sigmoid(b, z)
    bump = b.mul(s, b.sub(b.const(1.0), s))
    tail = b.select(b.eq(bump, b.const(0.0)), b.const(0.0), b.mul(z, bump))  # inf * 0
    return b.mul(dy, b.add(s, tail))


def _emit_tanh_bwd(b: Any, dy: Any, x: Any) -> Any:
    t = b.tanh(x)
    return b.mul(dy, b.sub(b.const(1.0), b.mul(t, t)))


def _emit_sigmoid_bwd(b: Any, dy: Any, x: Any) -> Any:
    s = _emit_sigmoid(b, x)
    return b.mul(dy, b.mul(s, b.sub(b.const(1.0), s)))


# ---- the rows


def _unary(name: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ((name, ("input",)),)


def _backward(name: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ((f"{name}_backward", ("loss", "input")),)


_AB = ("a", "b")
_INPUTS = ("input0", "input1")
_COMPARED = ("input", "comparison")
_CLIP = ("relu_lower_clip", "relu_upper_clip", "relu_lower_clip_slope")

MODES: tuple[Mode, ...] = (
    # Binary
    Mode("add", 0, "x + b", (("add", _AB), ("bias", ("input", "bias"))),
         np.add, lambda b, x, y: b.add(x, y), "number"),
    Mode("mul", 1, "x * b", (("mul", _AB), ("scale", ("input", "scale"))),
         np.multiply, lambda b, x, y: b.mul(x, y), "number"),
    Mode("min", 2, "min(x, b)", (("min", _INPUTS),),
         np.minimum, lambda b, x, y: b.min(x, y), "number"),
    Mode("max", 3, "max(x, b)", (("max", _INPUTS),),
         np.maximum, lambda b, x, y: b.max(x, y), "number"),
    Mode("add_square", 5, "x + b * b", (("add_square", _AB),),
         lambda x, y: x + y * y, lambda b, x, y: b.add(x, b.mul(y, y)), "number"),
    Mode("div", 6, "x / b", (("div", _AB),), _div, lambda b, x, y: b.div(x, y), "number"),
    Mode("mod", 7, "the rest of x / b, with the sign of x", (("mod", _INPUTS),),
         _mod, lambda b, x, y: b.mod(x, y), "number"),
    Mode("pow", 8, "x ** b", (("pow", _INPUTS),), np.power, lambda b, x, y: b.pow(x, y)),
    Mode("sub", 9, "x - b", (("sub", _AB),),
         np.subtract, lambda b, x, y: b.sub(x, y), "number"),
    Mode("atan2", 23, "the angle of (b, x)", (("atan2", _INPUTS),),
         np.arctan2, lambda b, x, y: b.atan2(x, y)),
    # Unary
    Mode("sqrt", 4, "x ** 0.5", _unary("sqrt"), np.sqrt, lambda b, x: b.sqrt(x)),
    Mode("abs", 10, "|x|", _unary("abs"), np.abs, lambda b, x: b.abs(x), "number"),
    Mode("ceil", 11, "x rounded up", _unary("ceil"), np.ceil, lambda b, x: b.ceil(x), "number"),
    Mode("cos", 12, "cos x", _unary("cos"), np.cos, lambda b, x: b.cos(x)),
    Mode("exp", 13, "e ** x", _unary("exp"), np.exp, lambda b, x: b.exp(x)),
    Mode("floor", 14, "x rounded down", _unary("floor"),
         np.floor, lambda b, x: b.floor(x), "number"),
    Mode("log", 15, "the natural logarithm of x", _unary("log"), np.log, lambda b, x: b.log(x)),
    Mode("neg", 16, "-x", _unary("neg"), np.negative, lambda b, x: b.neg(x), "number"),
    Mode("rsqrt", 17, "x ** -0.5", _unary("rsqrt"),
         lambda x: 1 / np.sqrt(x), lambda b, x: b.rsqrt(x)),
    Mode("sin", 18, "sin x", _unary("sin"), np.sin, lambda b, x: b.sin(x)),
    Mode("tan", 19, "tan x", _unary("tan"), np.tan, lambda b, x: b.tan(x)),
    Mode("erf", 20, "erf x", _unary("erf"), _erf, lambda b, x: b.erf(x)),
    Mode("identity", 21, "x, in the result's type", _unary("identity"),
         lambda x: x, lambda b, x: x, "any"),
    Mode("reciprocal", 22, "1 / x", _unary("reciprocal"),
         np.reciprocal, lambda b, x: b.div(b.const(1.0), x)),
    # Activations
    Mode("relu_fwd", 100, "min(x, upper) if x >= lower else lower + slope * (x - lower)",
         (("relu", ("input",)),), _relu, _emit_relu, parameters=_CLIP),
    Mode("tanh_fwd", 101, "tanh x", _unary("tanh"), np.tanh, lambda b, x: b.tanh(x)),
    Mode("sigmoid_fwd", 102, "1 / (1 + e ** -x)", _unary("sigmoid"), _sigmoid, _emit_sigmoid),
    Mode("elu_fwd", 103, "x if x > 0 else alpha * (e ** x - 1)",
         _unary("elu"), _elu, _emit_elu, parameters=("elu_alpha",)),
    Mode("gelu_fwd", 104, "x / 2 * (1 + erf(x / sqrt 2))", _unary("gelu"),
         lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))), _emit_gelu),
    Mode("softplus_fwd", 105, "log(1 + e ** (beta * x)) / beta",
         _unary("softplus"), _softplus, _emit_softplus, parameters=("softplus_beta",)),
    Mode("swish_fwd", 106, "x / (1 + e ** (-beta * x))", _unary("swish"),
         lambda x, beta: x * _sigmoid(beta * x), _emit_swish, parameters=("swish_beta",)),
    Mode("gelu_approx_tanh_fwd", 107, "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x**3)))",
         _unary("gelu_approx_tanh"),
         lambda x: 0.5 * x * (1 + np.tanh(_gelu_tanh_inner(x))), _emit_gelu_tanh),
    # Backward, from dy (loss) and x (input)
    Mode("relu_bwd", 200, "dy where lower < x < upper, slope * dy below, 0 above",
         (("relu_backward", ("loss", "input")),), _relu_bwd, _emit_relu_bwd, parameters=_CLIP),
    Mode("tanh_bwd", 201, "dy * (1 - tanh(x)**2)", _backward("tanh"),
         lambda dy, x: dy * (1 - np.tanh(x) ** 2), _emit_tanh_bwd),
    Mode("sigmoid_bwd", 202, "dy * s * (1 - s), s = sigmoid x", _backward("sigmoid"),
         lambda dy, x: dy * _sigmoid(x) * (1 - _sigmoid(x)), _emit_sigmoid_bwd),
    Mode("elu_bwd", 203, "dy if x > 0 else dy * alpha * e ** x",
         _backward("elu"), _elu_bwd, _emit_elu_bwd, parameters=("elu_alpha",)),
    Mode("gelu_bwd", 204, "dy * (cdf(x) + x * pdf(x)) of the normal distribution",
         _backward("gelu"), _gelu_bwd, _emit_gelu_bwd),
    Mode("softplus_bwd", 205, "dy * sigmoid(beta * x)", _backward("softplus"),
         lambda dy, x, beta: dy * _sigmoid(beta * x),
         lambda b, dy, x, beta: b.mul(dy, _emit_sigmoid(b, b.mul(x, b.const(beta)))),
         parameters=("softplus_beta",)),
    Mode("swish_bwd", 206, "dy * (s + beta * x * s * (1 - s)), s = sigmoid(beta * x)",
         _backward("swish"), _swish_bwd, _emit_swish_bwd, parameters=("swish_beta",)),
    Mode("gelu_approx_tanh_bwd", 207, "dy * the slope of gelu_approx_tanh at x",
         _backward("gelu_approx_tanh"), _gelu_tanh_bwd, _emit_gelu_tanh_bwd),
    # Comparisons
    Mode("cmp_eq", 300, "x == b", (("cmp_eq", _COMPARED),),
         np.equal, lambda b, x, y: b.eq(x, y), "number", "bool"),
    Mode("cmp_neq", 301, "x != b", (("cmp_neq", _COMPARED),),
         np.not_equal, lambda b, x, y: b.ne(x, y), "number", "bool"),
    Mode("cmp_gt", 302, "x > b", (("cmp_gt", _COMPARED),),
         np.greater, lambda b, x, y: b.gt(x, y), "number", "bool"),
    Mode("cmp_ge", 303, "x >= b", (("cmp_ge", _COMPARED),),
         np.greater_equal, lambda b, x, y: b.ge(x, y), "number", "bool"),
    Mode("cmp_lt", 304, "x < b", (("cmp_lt", _COMPARED),),
         np.less, lambda b, x, y: b.lt(x, y), "number", "bool"),
    Mode("cmp_le", 305, "x <= b", (("cmp_le", _COMPARED),),
         np.less_equal, lambda b, x, y: b.le(x, y), "number", "bool"),
    # Logic: an operand counts as true when it is not 0
    Mode("logical_and", 400, "x and b", (("logical_and", _AB),),
         lambda x, y: _truth(x) & _truth(y),
         lambda b, x, y: b.logical_and(b.truth(x), b.truth(y)), "any", "bool"),
    Mode("logical_or", 401, "x or b", (("logical_or", _AB),),
         lambda x, y: _truth(x) | _truth(y),
         lambda b, x, y: b.logical_or(b.truth(x), b.truth(y)), "any", "bool"),
    Mode("logical_not", 402, "not x", _unary("logical_not"),
         lambda x: ~_truth(x), lambda b, x: b.logical_not(b.truth(x)), "any", "bool"),
    # Others
    Mode("gen_index", 501, "the index along an axis", _unary("gen_index"),
         lambda x, axis: np.broadcast_to(
             np.arange(x.shape[axis]).reshape([-1] + [1] * (x.ndim - axis - 1)), x.shape),
         lambda b, x, axis: b.index(axis), "number", parameters=("axis",)),
    Mode("binary_select", 601, "x where t is not 0, else b",
         (("binary_select", ("input0", "input1", "mask")),),
         lambda x, y, t: np.where(_truth(t), x, y),
         lambda b, x, y, t: b.select(b.truth(t), x, y), "any"),
)  # fmt: skip

# What reduces its argument first, in dozens of instructions.
TRIGONOMETRIC = ("sin", "cos", "tan")

BY_NAME = {mode.name: mode for mode in MODES}
