"""Broadcast: a tensor repeated along axes where it has one element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...expr import Expr
from ..op import Op
from ..tensor import Tensor, broadcast_dims, text
from .pointwise import Pointwise
from .views import View


class Broadcast(View):
    """Y repeats X along each axis where X has dim 1, or no dim.

    X [d0 or 1, ..., dn or 1], Y [..., d0, ..., dn]: the last dims stand below each other, as in
    NumPy.  Engines see the pointwise operation identity, or X itself as the operand of pointwise
    operations whose other operands have Y's dims.
    Source: NumPy's broadcast_to, StableHLO's broadcast_in_dim; cuDNN has no such operation.

    Constraints:
    (C1) Y's dims are set; each dim of X is Y's or 1.
    (C2) X and Y have one data type.
    """

    op_name = "broadcast"
    is_composite = True
    takes_rank_0 = True

    def infer(self) -> None:
        self._infer_type()
        if self.y.dims is None:
            raise self.error("C1", "the result's dims are not set", "dims, by set_dim")
        if self.y.strides is None:
            self.y.strides = self.identity.inferred_strides(self.y.shape)

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        return self.identity.inner_strides(tensor)

    @property
    def identity(self) -> Pointwise:
        """The pointwise operation that it is."""
        values: dict[str, Any] = {"mode": "identity", "name": self.name}
        return Pointwise(x=self.x, y=self.y, **values)

    def verify(self) -> None:
        is_wide_enough = self.y.rank >= self.x.rank
        if not is_wide_enough or broadcast_dims((self.x.shape, self.y.shape)) != self.y.shape:
            raise self.shape_error(  # broadcast_c1
                "C1",
                f"X has dims {text(self.x.shape)}",
                f"dims of {text(self.y.shape)}, or 1, or no leading dims",
            )
        self._require("C2", "Y has data type", self.y.type, self.x.type)  # broadcast_c2

    def expand(self) -> Sequence[Op]:
        return (self.identity,)

    def reference(self, *operands: Any, **context: Any) -> Any:
        dims = [extent.evaluate(context["sizes"]) for extent in self.y.shape]
        return np.broadcast_to(operands[0], dims)
