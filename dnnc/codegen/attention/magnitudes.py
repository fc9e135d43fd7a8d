# pyright: basic
"""How large, at most, numbers are that an attention adds to its scores, as far as the graph says.

Numbers in memory may be of any size, places are below the sizes of their axes, tanh is 1 at most:
a bound of each operation from those of its operands, infinity where none is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...mlir import ir
from ...stackless import Steps, evaluated
from ..region import Region
from ..scalars.matching import operand_of, pointwise

LARGE = 2.0**24  # of a score
_LONG = 2.0**20  # an axis whose size is a symbol is taken to be no longer
_ROWS_AND_COLUMNS = 2  # the last axes


@dataclass(frozen=True)
class Magnitudes:
    """is_score: whether a tensor is made of scores, which count as 0: their own size is asked of
    the operations that make them."""

    region: Region
    is_score: Callable[[Any], bool]
    _known: dict[Any, float] = field(default_factory=dict[Any, float])  # tensor -> its bound

    def of(self, operation: Any, value: Any) -> float:
        """A bound of a value in the body of a generic; infinite numbers are left out."""
        return evaluated(self._of(operation, value))

    def _of(self, operation: Any, value: Any) -> Steps[float]:
        operand = operand_of(operation, value)
        if operand is not None:
            return (yield self._of_tensor(operand))
        owner = value.owner
        if isinstance(owner, ir.Block):
            return math.inf
        if str(value.type) == "i1":
            return 1.0
        if owner.name == "arith.constant":
            return _constant(owner)
        if owner.name == "linalg.index":
            return self._of_index(operation, owner)
        if owner.name == "tensor.extract":
            return (yield self._of_tensor(owner.operands[0]))
        rule = _RULES.get(owner.name)
        if rule is None:
            return math.inf
        bounds = list[float]()
        for operand in owner.operands:
            bounds.append((yield self._of(operation, operand)))
        return rule(bounds)

    def is_share_of_distance(self, operation: Any, value: Any) -> bool:
        """Whether a value is a number of each head, no constant, times a place: ALiBi, whose slopes
        are taken to be ordinary numbers."""
        while (operand := operand_of(operation, value)) is not None:
            operation = pointwise(operand)
            if operation is None:
                return False
            value = yielded(operation)
        owner = value.owner
        if isinstance(owner, ir.Block) or owner.name != "arith.mulf":
            return False
        a, b = owner.operands
        return any(
            number_of(slope) is None
            and self._is_of_heads(operation, slope)
            and self._is_place(operation, place)
            and self.of(operation, place) < LARGE
            for slope, place in ((a, b), (b, a))
        )

    def _of_tensor(self, tensor: Any) -> Steps[float]:
        if self.is_score(tensor):
            return 0.0
        made = None if tensor in self.region.arguments else pointwise(tensor)
        if str(tensor.type.element_type) == "i1":
            return 1.0
        if made is None:
            return math.inf
        if tensor not in self._known:
            self._known[tensor] = yield self._of(made, yielded(made))
        return self._known[tensor]

    def _of_index(self, operation: Any, index: Any) -> float:
        size = self.region.dims_of(operation.results[0])[_axis(index)].constant
        return _LONG if size is None else float(size)

    # ---- what a value is made of

    def _is_of_heads(self, operation: Any, value: Any) -> bool:
        """Whether a value is the same in all rows and columns."""
        rank = len(self.region.dims_of(operation.results[0]))

        def is_same(tensor: Any) -> bool | None:
            last = self.region.dims_of(tensor)[-_ROWS_AND_COLUMNS:]
            return True if all(size.constant == 1 for size in last) else None

        return self._all(
            operation, value, is_same, lambda index: _axis(index) < rank - _ROWS_AND_COLUMNS
        )

    def _is_place(self, operation: Any, value: Any) -> bool:
        """Whether a value is made of indices and constants alone."""
        return self._all(operation, value, lambda tensor: None, lambda index: True)

    def _all(
        self,
        operation: Any,
        value: Any,
        of_tensor: Callable[[Any], bool | None],
        of_index: Callable[[Any], bool],
    ) -> bool:
        """Whether all leaves of a value are as asked; of_tensor: None for one that is looked into,
        as far as it is not in memory."""
        pending, seen = [(operation, value)], set[Any]()
        while pending:
            operation, value = pending.pop()
            operand = operand_of(operation, value)
            owner = value.owner
            if operand is not None:
                found = of_tensor(operand)
                made = None if operand in self.region.arguments else pointwise(operand)
                if found is None and made is not None:
                    if operand not in seen:
                        pending.append((made, yielded(made)))
                    seen.add(operand)
                elif not found:
                    return False
            elif isinstance(owner, ir.Block) or owner.name == "tensor.extract":
                return False
            elif owner.name == "linalg.index":
                if not of_index(owner):
                    return False
            else:
                pending += ((operation, each) for each in owner.operands)
        return True


def yielded(operation: Any) -> Any:
    """The value that the body of a generic gives."""
    views = list(operation.regions[0].blocks[0].operations)
    return views[-1].operation.operands[0]


def number_of(value: Any) -> float | None:
    """The magnitude of a finite f32 constant; None: it is something else."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    found = abs(ir.FloatAttr(owner.attributes["value"]).value)
    return found if found < math.inf else None


def _constant(owner: Any) -> float:
    attribute = owner.attributes["value"]
    if not isinstance(attribute, ir.FloatAttr | ir.IntegerAttr):
        return math.inf
    found = abs(attribute.value)
    return float(found) if found < math.inf else 0.0


def _axis(index: Any) -> int:
    return ir.IntegerAttr(index.attributes["dim"]).value


Rule = Callable[[Sequence[float]], float]


def _product(of: Sequence[float]) -> float:
    return 0.0 if 0.0 in of else math.prod(of)


def _power(of: Sequence[float]) -> float:
    return math.exp(of[0]) if of[0] < math.log(LARGE) else math.inf


def _first(of: Sequence[float]) -> float:
    return of[0]


def _one(of: Sequence[float]) -> float:
    return 1.0


# An operation that is not here gives a number of any size; so does a quotient of floats.
_RULES: dict[str, Rule] = {
    **dict.fromkeys(("arith.addf", "arith.subf", "arith.addi", "arith.subi"), sum),
    **dict.fromkeys(("arith.mulf", "arith.muli"), _product),
    **dict.fromkeys(
        ("arith.maximumf", "arith.minimumf", "arith.maxsi", "arith.minsi", "arith.maxui",
         "arith.minui"), max
    ),
    "arith.select": lambda of: max(of[1:]),
    **dict.fromkeys(
        ("arith.extf", "arith.truncf", "arith.negf", "arith.sitofp", "arith.uitofp",
         "arith.fptosi", "arith.index_cast", "arith.extsi", "arith.extui", "arith.divsi",
         "arith.divui", "arith.remsi", "arith.remui", "arith.floordivsi", "math.absf", "math.absi"),
        _first,
    ),
    **dict.fromkeys(("math.floor", "math.ceil"), lambda of: of[0] + 1),
    "math.sqrt": lambda of: max(1.0, of[0]),
    "math.exp": _power,
    **dict.fromkeys(("math.tanh", "math.erf", "math.sin", "math.cos"), _one),
}  # fmt: skip
