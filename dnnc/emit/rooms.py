"""Sizes of tensors and of a workspace, in C, and checks that a plan stays inside.

The checks are those of `plan.bounds`.  Where the ranges of the symbols show that one holds, as they
do in nearly all plans that dnnc compiles, it is not printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .. import dtypes
from ..expr import Expr, ceildiv
from ..plan import bounds
from ..plan.plan import Plan, TensorMap, TensorRecord, Variant
from .expressions import Printer
from .interface import Interface


def tensor_text(plan: Plan, printer: Printer, tensor: TensorRecord) -> str:
    """Bytes from a tensor's first to its last element, as C."""
    dims = [plan.expression(text) for text in tensor.dims]
    if any(extent.constant == 0 for extent in dims):
        return "0"
    text = printer.expression(_tensor_bytes(plan, tensor))
    empty = [f"{printer.expression(extent)} == 0" for extent in _that_may_be_0(dims)]
    return f"{' || '.join(empty)} ? 0 : {text}" if empty else text


def _tensor_bytes(plan: Plan, tensor: TensorRecord) -> Expr:
    """Bytes from the first to the last element of a tensor that has any."""
    elements = Expr.of(1)
    for extent, stride in zip(tensor.dims, tensor.strides, strict=True):
        elements = elements + (plan.expression(extent) - 1) * plan.expression(stride)
    bits = dtypes.of(tensor.dtype).bits
    return elements * (bits // 8) if bits >= 8 else ceildiv(elements * bits, 8)


def _that_may_be_0(dims: Sequence[Expr]) -> list[Expr]:
    return [extent for extent in dims if extent.bounds()[0] <= 0]


def negative(plan: Plan, printer: Printer, tensor: TensorRecord) -> list[str]:
    """Conditions under which a tensor has a dim or a stride below 0."""
    values = map(plan.expression, (*tensor.dims, *tensor.strides))
    return [f"{printer.expression(value)} < 0" for value in values if value.bounds()[0] < 0]


class Rooms:
    """Checks, as statements, of what the steps of a variant refer to."""

    def __init__(self, interface: Interface, variant: Variant):
        self._plan = interface.plan
        self._printer = Printer(interface.members)
        self._workspace = self._plan.expression(variant.workspace_bytes)

    def memset(self, uid: int, offset: str, count: str) -> Iterator[str]:
        """Checks that `count` bytes from an offset lie in the tensor; uid -1: the workspace."""
        yield from self._inside(uid, self._plan.expression(offset), self._plan.expression(count))

    def pointer(self, uid: int, offset: str) -> Iterator[str]:
        """Checks that an offset is one of the tensor, or right behind it."""
        if offset != "0":
            yield from self._inside(uid, self._plan.expression(offset), Expr.of(0))

    def tensor_map(self, recipe: TensorMap) -> Iterator[str]:
        """A map covers its tensor, and a box more at either end where it has the rows twice."""
        element = bounds.element_bytes(recipe)
        dims = [self._plan.expression(text) for text in recipe.dims]
        pitches = [Expr.of(element), *map(self._plan.expression, recipe.strides)]
        reach, slack = Expr.of(element), Expr.of(0)
        for extent, pitch in zip(dims, pitches, strict=True):
            reach = reach + (extent - 1) * pitch
        if len(recipe.box) > 2 and pitches[1] == pitches[2]:
            slack = pitches[1] * recipe.box[1]
        offset = self._plan.expression(recipe.offset)
        # As in Python: no kernel copies from a tensor without elements.
        tensor = self._plan.tensor(recipe.uid) if recipe.uid >= 0 else None
        sizes = dims if tensor is None else [*dims, *map(self._plan.expression, tensor.dims)]
        empty = [
            f"{self._printer.expression(n)} != 0" for n in dict.fromkeys(_that_may_be_0(sizes))
        ]
        for line in self._inside(recipe.uid, offset, reach, slack):
            yield from [f"if ({' && '.join(empty)})", f"    {line}"] if empty else [line]

    def _inside(
        self, uid: int, offset: Expr, count: Expr, slack: Expr | None = None
    ) -> Iterator[str]:
        """slack: by how many bytes it may begin before the tensor and end behind it."""
        slack = slack or Expr.of(0)
        tensor = self._plan.tensor(uid) if uid >= 0 else None
        whole = self._workspace if tensor is None else _tensor_bytes(self._plan, tensor)
        dims = () if tensor is None else map(self._plan.expression, tensor.dims)
        start, end = offset + slack, whole + slack - offset - count
        is_sure = min(value.bounds()[0] for value in (start, count, end)) >= 0
        if is_sure and not _that_may_be_0([*dims]):
            return
        room = self._printer.expression(whole)
        if tensor is not None:
            room = tensor_text(self._plan, self._printer, tensor)
        texts = [self._printer.expression(value) for value in (start, count, slack * 2)]
        yield f"s->is_bad |= outside({texts[0]}, {texts[1]}, ({room}) + {texts[2]});"
