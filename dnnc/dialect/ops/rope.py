"""Rotary position embedding, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import DType
from ...errors import Status
from ...expr import Expr
from ..expansion import Steps
from ..op import Op, arithmetic_type, attribute, operand, result
from ..tensor import Tensor, text
from .norm_base import Norm, fill_like, float64
from .views import Concatenate, Slice, Transpose

_ONE = Expr.of(1)


class _Rotation(Norm):
    """A rotation of pairs of elements, by the angles of their row; a subclass says which way."""

    freqs: Tensor
    output_scale: float
    rope_dim: int

    sign: int

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """(the tensor that is rotated, the result)."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """How many elements of a row are rotated, the last ones."""
        return self.rope_dim or self.ends[0].shape[3].constant or 0

    def infer(self) -> None:
        x, y = self.ends
        fill_like(y, x)
        if y.dtype is None and y.is_virtual:  # attention takes X's type, not that of arithmetic
            y.dtype = x.dtype

    def verify(self) -> None:
        x, y = self.ends
        self.require_rank("C1", x, 4, 4)
        whole = x.shape[3].constant
        if whole is None:
            what = f"{x.label} has rows of {x.shape[3]} elements, known at run time only"
            raise self.error("C1", what, "a fixed size", Status.NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE)
        if not 0 <= self.rope_dim <= whole or self.width % 2:
            what = f"rope_dim={self.rope_dim} of rows of {whole} elements"
            raise self.error("C2", what, f"an even number up to {whole}; 0: all, if that is even")
        self._verify_angles(x)
        self.require_dims("C4", x.shape, y)
        for tensor in (x, self.freqs):
            if not tensor.type.is_float:
                what = f"{tensor.label} has data type {tensor.type}"
                raise self.error("C5", what, "a float type", Status.NOT_SUPPORTED_DATA_TYPE)
        self.require_float_arithmetic("C5")

    def _verify_angles(self, x: Tensor) -> None:
        batch, _, rows, _ = x.shape
        width, dims = Expr.of(self.width), self.freqs.shape
        of_rows = ((_ONE, _ONE, rows, width), (batch, _ONE, rows, width))
        if dims not in (*of_rows, (rows, _ONE, _ONE, width)):
            raise self.shape_error(
                "C3",
                f"freqs has dims {text(dims)}",
                f"{text(of_rows[0])}, {text(of_rows[1])} or {text((rows, _ONE, _ONE, width))}",
            )

    @property
    def _has_rows_first(self) -> bool:
        """Whether freqs is [S, 1, 1, width], not [1 or B, 1, S, width]."""
        return self.freqs.shape[2] != self.ends[0].shape[2]

    def expand(self) -> Sequence[Op]:
        x, y = self.ends
        steps = Steps(self.name, self.compute_type, 4)
        first, half = (x.shape[3].constant or 0) - self.width, self.width // 2
        angles = self.freqs
        if self._has_rows_first:
            angles = steps.virtual(self.freqs.type)
            steps.add(Transpose(x=self.freqs, y=angles, permutation=(2, 1, 0, 3)))
        angles = _columns(steps, angles, 0, half)
        cos, sin = (self._scaled(steps, steps.pointwise(f, angles)) for f in ("cos", "sin"))
        low = _columns(steps, x, first, first + half)
        high = _columns(steps, x, first + half, first + self.width)
        modes = ("sub", "add")[:: self.sign]
        rotated = [
            steps.pointwise(mode, steps.pointwise("mul", a, cos), steps.pointwise("mul", b, sin))
            for mode, a, b in zip(modes, (low, high), (high, low), strict=True)
        ]
        if first:
            rotated.insert(0, self._scaled(steps, _columns(steps, x, 0, first)))
        steps.add(Concatenate(inputs=tuple(rotated), y=y, axis=3, in_place_index=None))
        return steps.ops

    def _scaled(self, steps: Steps, x: Tensor) -> Tensor:
        return x if self.output_scale == 1 else steps.pointwise("mul", x, self.output_scale)

    def reference(self, *operands: Any, **context: Any) -> Any:
        x, angles = float64(operands)
        if self._has_rows_first:
            angles = np.swapaxes(angles, 0, 2)
        first, half = x.shape[3] - self.width, self.width // 2
        rest, low, high = np.split(x, [first, first + half], axis=3)
        cos, sin = np.cos(angles[..., :half]), self.sign * np.sin(angles[..., :half])
        rotated = [rest, low * cos - high * sin, high * cos + low * sin]
        return self.output_scale * np.concatenate(rotated, axis=3)


def _columns(steps: Steps, x: Tensor, start: int, stop: int) -> Tensor:
    """Some elements of each row."""
    if (start, stop) == (0, x.shape[3].constant):
        return x
    made = steps.virtual(x.type)
    starts, stops = (0, 0, 0, start), (-1, -1, -1, stop)
    steps.add(Slice(x=x, y=made, starts=starts, stops=stops, steps=(1, 1, 1, 1)))
    return made


class Rope(_Rotation):
    """Y = output_scale * X, pairs of elements of each row rotated by angles: RoPE.

    X, Y [B, H, S, D]; freqs [1 or B, 1, S, R] or [S, 1, 1, R], angles in radians.  R = rope_dim, or
    D if that is 0: the last R elements of a row are rotated, element i of them with element
    i + R / 2, by freqs[i]; the second half of freqs repeats the first and is not read.  With these
    halves low and high and angles t,
    Y = output_scale * [X of the other elements, low * cos(t) - high * sin(t),
    high * cos(t) + low * sin(t)].
    A virtual Y without a type gets X's, as attention reads it.
    Source: cudnn-frontend, RoPE operation.

    Constraints:
    (C1) X has rank 4, and rows of a fixed size.
    (C2) rope_dim is even, and D at most; where it is 0, D is even.
    (C3) freqs has dims [1, 1, S, R], [B, 1, S, R] or [S, 1, 1, R].
    (C4) Y has X's dims.
    (C5) X and freqs have float types; the compute type is FLOAT or DOUBLE.
    """

    op_name = "rope"
    is_composite = True
    sign = 1

    x: Tensor = operand("[B, H, S, D]", frontend="input")
    freqs: Tensor = operand("[1 or B, 1, S, R] or [S, 1, 1, R], angles in radians")
    y: Tensor = result("[B, H, S, D]", frontend="OUT_0")
    output_scale: float = attribute("what the result is multiplied by", float, 1.0)
    rope_dim: int = attribute("how many elements of a row are rotated; 0: all", int, 0)
    compute_type: DType = arithmetic_type()

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        return self.x, self.y


class RopeBackward(_Rotation):
    """dX of `rope`, from dY: output_scale * dY, pairs rotated by the negative angles.

    dY, dX [B, H, S, D]; freqs, output_scale and rope_dim as `rope` was given them.  freqs has no
    gradient.
    Source: cudnn-frontend, RoPE backward operation.

    Constraints:
    (C1) dY has rank 4, and rows of a fixed size.
    (C2) rope_dim is even, and D at most; where it is 0, D is even.
    (C3) freqs has dims [1, 1, S, R], [B, 1, S, R] or [S, 1, 1, R].
    (C4) dX has dY's dims.
    (C5) dY and freqs have float types; the compute type is FLOAT or DOUBLE.
    """

    op_name = "rope_backward"
    is_composite = True
    sign = -1

    dy: Tensor = operand("[B, H, S, D]", frontend="dY")
    freqs: Tensor = operand("[1 or B, 1, S, R] or [S, 1, 1, R], angles in radians")
    dx: Tensor = result("[B, H, S, D]", frontend="OUT_0")
    output_scale: float = attribute("what the result is multiplied by", float, 1.0)
    rope_dim: int = attribute("how many elements of a row are rotated; 0: all", int, 0)
    compute_type: DType = arithmetic_type()

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        return self.dy, self.dx
