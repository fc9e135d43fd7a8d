"""Derivatives of pointwise operations: what a gradient becomes on its way back through them.

Source: the definitions of the modes in `pointwise_modes`.  Where a mode has no derivative (the
edge of a clip, the tie of a maximum) one of its sides' is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .. import dtypes
from ..errors import DnncError, Status
from .expansion import Steps
from .op import Op
from .ops.pointwise import Pointwise
from .tensor import Tensor


def gradient_of(
    ops: Sequence[Op], result: Tensor, source: Tensor, gradient: Tensor, steps: Steps
) -> Tensor:
    """The gradient of `source`, from that of `result`, which the operations make of it.

    ops: in order; others may be among them.  steps: takes what is computed.  Every tensor on the
    way has the source's dims.  Raises NOT_SUPPORTED for an operation that has no derivative here.
    """
    dependent = {source}
    for op in ops:
        if not dependent.isdisjoint(op.read_operands):
            dependent.update(op.results)
    found: dict[Tensor, Tensor] = {result: gradient}
    for op in reversed(ops):
        outer = next((found[tensor] for tensor in op.results if tensor in found), None)
        if outer is None or dependent.isdisjoint(op.read_operands):
            continue
        if not isinstance(op, Pointwise):
            raise _no_derivative(op)
        wanted = [operand in dependent for operand in op.operands]
        for operand, is_wanted, inner in zip(
            op.operands, wanted, _Back(op, outer, steps).gradients(wanted), strict=True
        ):
            if is_wanted and inner is not None:
                known = found.get(operand)
                found[operand] = inner if known is None else steps.pointwise("add", known, inner)
    if source in found:
        return found[source]
    return steps.pointwise("mul", gradient, 0.0)  # the result does not depend on it


def _no_derivative(op: Op) -> DnncError:
    return DnncError(
        Status.NOT_SUPPORTED_GRAPH_PATTERN,
        f"the derivative of {op.title}",
        "pointwise operations but those that are derivatives themselves; else score_mod_bprop, "
        "which says the gradient in operations",
        op.label,
        made_at=op.made_at,
    )


class _Back:
    """One operation y = mode(x, b, t), and the gradient of y."""

    def __init__(self, op: Pointwise, dy: Tensor, steps: Steps):
        self.op = op
        self.dy = dy
        self.steps = steps
        self.x, self.y = op.x, op.y

    @property
    def b(self) -> Tensor:
        assert self.op.b is not None
        return self.op.b

    def gradients(self, wanted: Sequence[bool]) -> list[Tensor | None]:
        """One for each operand, None where it has none or is not wanted."""
        mode = self.op.mode
        if mode in _FLAT:
            return [None] * len(wanted)
        if mode.endswith("_fwd"):
            return [self._by_the_backward_mode()]
        rules = _RULES.get(mode)
        if rules is None:
            raise _no_derivative(self.op)
        return [
            rule(self) if is_wanted and rule is not None else None
            for rule, is_wanted in zip(rules, wanted, strict=True)
        ]

    def _by_the_backward_mode(self) -> Tensor:
        parameters = {
            name: value
            for name, value in self.op.attributes().items()
            if name not in ("mode", "compute_type")
        }
        mode = self.op.mode.replace("_fwd", "_bwd")
        return self.steps.pointwise(mode, self.dy, self.x, **parameters)

    # ---- arithmetic

    def mul(self, *factors: Tensor | float) -> Tensor:
        """dy times factors."""
        made = self.dy
        for factor in factors:
            made = self.steps.pointwise("mul", made, factor)
        return made

    def div(self, a: Tensor, b: Tensor) -> Tensor:
        return self.steps.pointwise("div", a, b)

    def neg(self, a: Tensor) -> Tensor:
        return self.steps.pointwise("neg", a)

    def of(self, mode: str, *operands: Tensor | float) -> Tensor:
        return self.steps.pointwise(mode, *operands)

    def select(self, a: Tensor | float, b: Tensor | float, where: Tensor) -> Tensor:
        return self.steps.pointwise("binary_select", a, b, where)

    def when(self, comparison: str, a: Tensor, b: Tensor | float, is_not: bool = False) -> Tensor:
        """dy where a condition holds (or does not), else 0."""
        truth = self.compared(comparison, a, b)
        return self.select(0.0, self.dy, truth) if is_not else self.select(self.dy, 0.0, truth)

    def compared(self, comparison: str, a: Tensor, b: Tensor | float) -> Tensor:
        to = self.steps.virtual(dtypes.i1)
        return self.steps.pointwise(f"cmp_{comparison}", a, b, to=to)


def _abs(s: _Back) -> Tensor:
    return s.of("sub", s.when("gt", s.x, 0.0), s.when("lt", s.x, 0.0))


def _square_sum(s: _Back) -> Tensor:
    return s.of("add", s.of("mul", s.x, s.x), s.of("mul", s.b, s.b))


def _pow_base(s: _Back) -> Tensor:
    return s.mul(s.b, s.of("pow", s.x, s.of("sub", s.b, 1.0)))


def _pow_exponent(s: _Back) -> Tensor:
    whole = s.mul(s.y, s.of("log", s.x))
    return s.select(0.0, whole, s.compared("eq", s.y, 0.0))  # not 0 * log(0)


def _mask(s: _Back) -> Tensor:
    assert s.op.t is not None
    return s.op.t


# Modes that are flat: steps, indices and conditions.
_FLAT = (
    "ceil", "floor", "gen_index", "cmp_eq", "cmp_neq", "cmp_gt", "cmp_ge", "cmp_lt", "cmp_le",
    "logical_and", "logical_or", "logical_not",
)  # fmt: skip

# Mode -> what each operand's gradient is; None: it has none.
_RULES: dict[str, tuple[Callable[[_Back], Tensor] | None, ...]] = {
    "add": (lambda s: s.dy, lambda s: s.dy),
    "sub": (lambda s: s.dy, lambda s: s.neg(s.dy)),
    "mul": (lambda s: s.mul(s.b), lambda s: s.mul(s.x)),
    "add_square": (lambda s: s.dy, lambda s: s.mul(s.b, 2.0)),
    "div": (lambda s: s.div(s.dy, s.b), lambda s: s.neg(s.div(s.mul(s.y), s.b))),
    "mod": (lambda s: s.dy, lambda s: s.mul(s.div(s.of("sub", s.y, s.x), s.b))),
    "min": (lambda s: s.when("le", s.x, s.b), lambda s: s.when("le", s.x, s.b, is_not=True)),
    "max": (lambda s: s.when("ge", s.x, s.b), lambda s: s.when("ge", s.x, s.b, is_not=True)),
    "pow": (_pow_base, _pow_exponent),
    "atan2": (
        lambda s: s.div(s.mul(s.b), _square_sum(s)),
        lambda s: s.neg(s.div(s.mul(s.x), _square_sum(s))),
    ),
    "sqrt": (lambda s: s.div(s.mul(0.5), s.y),),
    "rsqrt": (lambda s: s.div(s.mul(s.y, -0.5), s.x),),
    "abs": (_abs,),
    "cos": (lambda s: s.neg(s.mul(s.of("sin", s.x))),),
    "sin": (lambda s: s.mul(s.of("cos", s.x)),),
    "tan": (lambda s: s.of("add", s.dy, s.mul(s.y, s.y)),),
    "exp": (lambda s: s.mul(s.y),),
    "log": (lambda s: s.div(s.dy, s.x),),
    "neg": (lambda s: s.neg(s.dy),),
    "erf": (
        lambda s: s.mul(s.of("exp", s.neg(s.of("mul", s.x, s.x))), 2 / math.sqrt(math.pi)),
    ),
    "identity": (lambda s: s.dy,),
    "reciprocal": (lambda s: s.neg(s.mul(s.y, s.y)),),
    "binary_select": (
        lambda s: s.select(s.dy, 0.0, _mask(s)), lambda s: s.select(0.0, s.dy, _mask(s)), None,
    ),
}  # fmt: skip
