"""Pointwise: one result element from the elements at its place."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr
from ...rounding import to_int32_saturated, to_int32_wrapped
from ..op import Op, arithmetic_type, attribute, operand, result
from ..pointwise_modes import BY_NAME, Mode
from ..tensor import (
    Tensor,
    broadcast_dims,
    packed_like,
    packed_strides,
    stride_order,
    strides_like,
    text,
)

_COMPUTE_TYPES = {
    "float": (dtypes.f32, dtypes.f64),
    "number": (dtypes.f32, dtypes.f64, dtypes.i32),
    "any": (dtypes.f32, dtypes.f64, dtypes.i32, dtypes.i1),
}

# Attribute -> the short name that a mode's functions know it by.
_PARAMETERS = {
    "relu_lower_clip": "lower",
    "relu_upper_clip": "upper",
    "relu_lower_clip_slope": "slope",
    "elu_alpha": "alpha",
    "softplus_beta": "beta",
    "swish_beta": "beta",
    "axis": "axis",
}


class Pointwise(Op):
    """Y = mode(X), mode(X, B) or mode(X, B, T), element by element; dims of 1 broadcast.

    X, B, T, Y [d0, ..., dn].  An operand of fewer dims has dims of 1 ahead of its own.  The
    operands are converted to the compute type, the result from it to Y's type.  Backward modes
    take dY as X and the forward input as B.
    Source: cuDNN graph API, Pointwise operation; modes: `cudnnPointwiseMode_t`.

    Constraints:
    (C1) the mode is known and has as many operands as are given.
    (C2) each operand's dim is Y's or 1; the last dims stand below each other.
    (C3) Y's dims are the operands' broadcast dims; those of identity may be larger, or more, where
         X's are 1.
    (C4) the compute type is one that the mode has: FLOAT and DOUBLE; INT32 too for arithmetic
         that integers know; BOOLEAN too for logic, selection and identity.  A comparison in
         BOOLEAN, as cuDNN's examples have it, is one in FLOAT if an operand is of a float type,
         else in INT32.
    (C5) the axis of gen_index is one of X's.
    (C6) parameters belong to the mode; alpha, beta and clips are numbers, beta is not 0.
    """

    op_name = "pointwise"
    kind_field = "mode"
    takes_rank_0 = True
    backend = "OPERATION_POINTWISE"
    role = "pointwise"

    x: Tensor = operand("first operand", backend="XDESC")
    b: Tensor | None = operand("second operand", backend="BDESC", optional=True)
    t: Tensor | None = operand("third operand", backend="TDESC", optional=True)
    y: Tensor = result("the result", frontend="OUT_0", backend="YDESC")
    mode: str = attribute("what is computed", str, choices=tuple(BY_NAME))
    compute_type: DType = arithmetic_type()
    relu_lower_clip: float | None = attribute(
        "where relu starts", float, frontend="lower_clip", optional=True
    )
    relu_upper_clip: float | None = attribute(
        "where relu ends", float, frontend="upper_clip", optional=True
    )
    relu_lower_clip_slope: float | None = attribute(
        "relu's slope below its start", float, frontend="negative_slope", optional=True
    )
    elu_alpha: float | None = attribute("elu's alpha", float, optional=True)
    softplus_beta: float | None = attribute("softplus's beta", float, optional=True)
    swish_beta: float | None = attribute("swish's beta", float, optional=True)
    axis: int | None = attribute("gen_index's axis", int, optional=True)

    @property
    def row(self) -> Mode:
        return BY_NAME[self.mode]

    def parameters(self) -> dict[str, Any]:
        """The parameters that the mode's functions take by keyword, defaults filled in."""
        defaults = {
            "relu_lower_clip": 0.0,
            "relu_upper_clip": float("inf"),
            "relu_lower_clip_slope": 0.0,
            "elu_alpha": 1.0,
            "softplus_beta": 1.0,
            "swish_beta": 1.0,
        }
        given = self.attributes()
        return {
            _PARAMETERS[name]: given.get(name, defaults.get(name)) for name in self.row.parameters
        }

    @property
    def read_operands(self) -> tuple[Tensor, ...]:
        return () if self.mode == "gen_index" else self.operands

    def infer(self) -> None:
        if self.mode.startswith("cmp_") and self.compute_type == dtypes.i1:
            is_float = any(tensor.type.is_float for tensor in self.operands)
            self.compute_type = dtypes.f32 if is_float else dtypes.i32
        if self.y.dims is None:
            self.y.dims = self._broadcast_dims()
        if self.y.strides is None:
            self.y.strides = self.inferred_strides(self.y.shape)
        if self.y.dtype is None and self.y.is_virtual:
            if self.row.result == "bool":
                self.y.dtype = dtypes.i1
            elif self.mode == "gen_index":
                self.y.dtype = dtypes.i32

    def inferred_strides(self, dims: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Strides of a result of these dims, as cudnn-frontend gives them.

        Those of the last operand of the same dims, or packed in the order of the axes of one of as
        many.
        """
        twins = [t for t in self.operands if t.dims == dims and t.strides]
        if twins:
            return strides_like(twins[-1])
        model = next((t for t in self.operands if t.rank == len(dims)), None)
        return packed_like(dims, model) if model else packed_strides(dims)

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        twin = next((t for t in self.operands if t.dims == tensor.dims), None)
        if twin is not None and twin.is_dense():
            return twin.layout
        model = twin or next((t for t in self.operands if t.rank == tensor.rank), None)
        order = stride_order(model.shape, model.layout) if model else None
        return packed_strides(tensor.shape, order)

    def _broadcast_dims(self) -> tuple[Expr, ...]:
        return broadcast_dims(operand.shape for operand in self.operands)

    def verify(self) -> None:
        self.require_attribute_choices()
        if len(self.operands) != self.row.arity:  # pointwise_c1
            raise self.error("C1", f"{len(self.operands)} operands", f"{self.row.arity}")
        self._verify_dims()
        accepted = _COMPUTE_TYPES[self.row.domain]
        if self.compute_type not in accepted:  # pointwise_c4
            raise self.error(
                "C4",
                f"compute type {self.compute_type.cudnn}",
                ", ".join(row.cudnn for row in accepted),
                Status.NOT_SUPPORTED_DATA_TYPE,
            )
        if self.mode == "gen_index" and not 0 <= (self.axis or 0) < self.x.rank:  # pointwise_c5
            known = f"0 to {self.x.rank - 1}" if self.x.rank else "an operand with axes"
            raise self.error("C5", f"axis={self.axis}", known)
        self._verify_parameters()

    def _verify_dims(self) -> None:
        dims = self._broadcast_dims()
        for tensor in self.operands:  # pointwise_c2
            for axis in range(-tensor.rank, 0):
                extent, wanted = tensor.shape[axis], dims[axis]
                if extent != wanted and extent.constant != 1:
                    raise self.shape_error(
                        "C2",
                        f"dim {axis + tensor.rank} of {tensor.label} is {extent}, not {wanted}",
                        f"{wanted} or 1",
                    )
        if self.mode == "identity" and self.y.rank >= len(dims):
            dims = broadcast_dims((dims, self.y.shape))
        if self.y.shape != dims:  # pointwise_c3
            raise self.shape_error("C3", f"Y has dims {text(self.y.shape)}", text(dims))

    def _verify_parameters(self) -> None:
        given = [name for name in _PARAMETERS if getattr(self, name) is not None]
        strange = [name for name in given if name not in self.row.parameters]
        if strange:  # pointwise_c6
            raise self.error("C6", ", ".join(strange), ", ".join(self.row.parameters) or "none")
        if 0 in (self.softplus_beta, self.swish_beta) and self.mode.startswith("softplus"):
            raise self.error("C6", "beta=0", "a beta that is not 0")
        if self.mode == "gen_index" and self.axis is None:
            raise self.error("C6", "axis is not given", f"0 to {self.x.rank - 1}")

    def reference(self, *operands: Any, **context: Any) -> Any:
        if self.mode == "identity" and self.x.shape != self.y.shape:
            dims = [extent.evaluate(context["sizes"]) for extent in self.y.shape]
            operands = (np.broadcast_to(operands[0], dims),)
        if self.mode == "identity" and self.x.type == self.y.type:
            return np.array(operands[0])
        arrays = [_operand(array, self.compute_type) for array in operands]
        if self.mode != "gen_index":
            arrays = list(np.broadcast_arrays(*arrays))
        with np.errstate(all="ignore"):
            value = self.row.reference(*arrays, **self.parameters())
        if value.dtype == bool or self.compute_type.kind != "i":
            return _operand(value, self.compute_type) if value.dtype != bool else value
        return to_int32_wrapped(value)


def _operand(array: Any, compute_type: DType) -> Any:
    """In the compute type: float64 for float ones, saturated int64 for INT32."""
    if compute_type.is_float:
        return np.asarray(array, dtype=np.float64)
    if compute_type.kind == "b":
        return np.asarray(array) != 0
    return to_int32_saturated(array)
