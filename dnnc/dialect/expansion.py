"""Expansion: the simpler operations that stand for a composite one.

A composite operation (a norm, a softmax) says in `Op.expand` what it is made of, in pointwise
operations, reductions and views.  Engines only ever see those, so that what runs a chain of them
runs the composite operation too, fused with its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..dtypes import DType
from ..expr import Expr
from .op import Op
from .tensor import Tensor, packed_strides


class Steps:
    """The operations of one expansion, in order.

    name: of the composite operation.  compute_type: of every step; intermediate tensors have it
    as their data type, so that nothing is rounded on the way.  rank: of all tensors.
    tensor_type: what new tensors are.
    """

    def __init__(
        self, name: str, compute_type: DType, rank: int, tensor_type: type[Tensor] = Tensor
    ):
        self.name = name
        self.compute_type = compute_type
        self.rank = rank
        self.tensor_type = tensor_type
        self.ops: list[Op] = []

    def computing_in(self, compute_type: DType) -> Steps:
        """The expansion, for steps of another compute type."""
        other = Steps(self.name, compute_type, self.rank, self.tensor_type)
        other.ops = self.ops
        return other

    def pointwise(
        self, mode: str, *operands: Tensor | float, to: Tensor | None = None, **parameters: Any
    ) -> Tensor:
        """An operation over its operands, numbers among them, broadcast.

        to: the tensor that it makes; None: a new virtual one.
        """
        given = [self._operand(operand) for operand in operands]
        values: dict[str, Any] = {**dict(zip("xbt", given, strict=False)), **parameters}
        made = to or self.virtual()
        op = Pointwise(mode=mode, y=made, compute_type=self.compute_type, **values)
        return self._added(op, made)

    def reduction(
        self, mode: str, x: Tensor, axes: Sequence[int], to: Tensor | None = None
    ) -> Tensor:
        """A reduction over some axes, which the result keeps with one element."""
        one = Expr.of(1)
        made = to or self.virtual()
        made.dims = tuple(one if axis in axes else n for axis, n in enumerate(x.shape))
        values: dict[str, Any] = {"mode": mode, "compute_type": self.compute_type}
        op = Reduction(x=x, y=made, **values)
        return self._added(op, made)

    def count(
        self,
        x: Tensor,
        axes: Sequence[int],
        times: int = 1,
        *,
        over: Sequence[int] | None = None,
    ) -> Tensor | float:
        """How many elements some axes have, so many times; where a size is a symbol, a tensor that
        the axes `over` are reduced in (default: the axes that are counted)."""
        known = times * math.prod(x.shape[axis].constant or 1 for axis in axes)
        found: Tensor | float = float(known)
        for axis in axes:
            if x.shape[axis].constant is None:
                index = self.pointwise("gen_index", x, axis=axis)
                # Over the axes that others are over, so that one kernel can have all of them.
                last = self.reduction("max", index, axes if over is None else over)
                found = self.pointwise("mul", self.pointwise("add", last, 1.0), found)
        return found

    def output(self, value: Tensor, to: Tensor | None) -> None:
        """Stores a value in a result of the composite operation, where it has that."""
        if to is not None:
            self.pointwise("identity", value, to=to)

    def add(self, op: Op) -> None:
        """The next operation, of any kind."""
        op.name = self.name
        is_open = [t for t in op.results if t.is_virtual and t.strides is None]
        op.infer()
        for tensor in is_open:
            tensor.strides = op.inner_strides(tensor)
        self.ops.append(op)

    def virtual(self, dtype: DType | None = None) -> Tensor:
        """A new virtual tensor, of the compute type unless another is named."""
        return self.tensor_type(is_virtual=True, dtype=dtype or self.compute_type)

    def _added(self, op: Op, made: Tensor) -> Tensor:
        self.add(op)
        return made

    def _operand(self, value: Tensor | float) -> Tensor:
        """A number as a constant, and a scalar of another rank, with the rank of the others.

        A tensor of fewer dims stays as it is: pointwise operations broadcast it.
        """
        ones = (Expr.of(1),) * self.rank
        if not isinstance(value, Tensor):
            made = self.tensor_type(dims=ones, strides=ones, dtype=self.compute_type, value=value)
            made.normalize_value()
            return made
        if value.rank == self.rank or value.elements().constant != 1:
            return value
        made = self.virtual(value.type)
        made.dims, made.strides = ones, packed_strides(ones)
        return self._added(Reshape(x=value, y=made, reshape_mode="VIEW_ONLY"), made)


# Operations that are made of steps import this module: they come once it has what they import.
from .ops.pointwise import Pointwise  # noqa: E402
from .ops.reduction import Reduction  # noqa: E402
from .ops.views import Reshape  # noqa: E402
