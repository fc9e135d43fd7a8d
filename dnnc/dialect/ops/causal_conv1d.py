"""Causal depthwise convolution of sequences, and its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dtypes import DType
from ...errors import Status
from ...expr import Expr
from ..expansion import Steps
from ..op import Op, arithmetic_type, attribute, operand, result
from ..tensor import Tensor, packed_strides, text
from .conv import ConvDgrad, ConvFprop, ConvWgrad
from .norm_base import Norm, fill_like, float64
from .views import Concatenate, Reshape

ACTIVATIONS = ("identity", "silu")
_ONE = Expr.of(1)


class _Causal(Norm):
    """A convolution of each channel's elements with those before them."""

    x: Tensor
    w: Tensor
    bias: Tensor | None
    activation: str

    def verify_operands(self) -> None:
        self.require_attribute_choices()
        self.require_rank("C1", self.x, 3, 3)
        self.require_rank("C1", self.w, 2, 2)
        channels, taps = self.w.shape
        if channels.constant is None or taps.constant is None or self.x.shape[1] != channels:
            raise self.shape_error(
                "C1",
                f"x has dims {text(self.x.shape)}, weight {text(self.w.shape)}",
                "[B, D, T] and [D, W], D and W of fixed sizes",
            )
        self.require_dims("C2", (channels,), self.bias)

    def verify_types(self, constraint: str) -> None:
        for tensor in self.operands:
            if not tensor.type.is_float:
                what = f"{tensor.label} has data type {tensor.type}"
                raise self.error(constraint, what, "a float type", Status.NOT_SUPPORTED_DATA_TYPE)
        self.require_float_arithmetic(constraint)

    @property
    def taps(self) -> int:
        """Elements that each result reads."""
        return self.w.shape[1].constant or 1

    def window(self, before: int) -> dict[str, Any]:
        """The parameters of a convolution that has so many zeros ahead of the first element."""
        return {
            "pre_padding": (before,), "post_padding": (0,), "stride": (1,), "dilation": (1,),
            "compute_type": self.compute_type,
        }  # fmt: skip

    def summed(self, steps: Steps, state: Tensor | None = None) -> Tensor:
        """The sums that the activation is applied to.  state: the elements ahead of X."""
        x = self.x
        if state is not None:
            x = steps.virtual(self.x.type)
            steps.add(Concatenate(inputs=(state, self.x), y=x, axis=2, in_place_index=None))
        made = steps.virtual()
        before = self.taps - 1 if state is None else 0
        steps.add(ConvFprop(x=x, w=self.filter(steps), y=made, **self.window(before)))
        if self.bias is None:
            return made
        bias = reshaped(steps, self.bias, (_ONE, self.x.shape[1], _ONE))
        return steps.pointwise("add", made, bias)

    def filter(self, steps: Steps) -> Tensor:
        """W as a convolution has it: [D, 1, W]."""
        channels, taps = self.w.shape
        return reshaped(steps, self.w, (channels, _ONE, taps))

    def sums(self, x: Any, w: Any, bias: Any, state: Any = None) -> Any:
        """The reference of `summed`, and X with what is ahead of it."""
        if state is None:
            state = np.zeros((*x.shape[:2], self.taps - 1))
        padded, size = np.concatenate([state, x], axis=2), x.shape[2]
        found = sum(padded[..., i : i + size] * w[:, i : i + 1] for i in range(self.taps))
        return found if bias is None else found + bias[:, None]


def reshaped(steps: Steps, x: Tensor, dims: Sequence[Expr], to: Tensor | None = None) -> Tensor:
    """A tensor with dims of 1 added or left out."""
    made = to or steps.virtual(x.type)
    if to is None:
        made.dims, made.strides = tuple(dims), packed_strides(tuple(dims))
    steps.add(Reshape(x=x, y=made, reshape_mode="LOGICAL"))
    return made


class CausalConv1d(_Causal):
    """Y = activation(sum of W[d, i] * X[b, d, t - (W - 1) + i] over i + bias[d]): depthwise.

    X, Y [B, D, T], W [D, W], bias [D].  An element of Y has the elements of X up to its own place,
    in its own channel.  Ahead of the first are zeros, or initial_states [B, D, W - 1].
    The activation silu is z * sigmoid(z).  The states after X are the last W - 1 elements of the
    initial states and X: a `slice`.
    Source: cudnn-frontend, causal_conv1d.

    Constraints:
    (C1) X has rank 3, W rank 2, of fixed sizes; X has as many channels as W has rows.
    (C2) bias is [D].
    (C3) initial_states is [B, D, W - 1], and W at least 2 then.
    (C4) Y has X's dims.
    (C5) operands have float types; the compute type is FLOAT or DOUBLE.
    """

    op_name = "causal_conv1d"
    is_composite = True

    x: Tensor = operand("[B, D, T]")
    w: Tensor = operand("[D, W]", frontend="weight")
    bias: Tensor | None = operand("[D]", optional=True)
    initial_states: Tensor | None = operand("[B, D, W - 1], what is ahead of X", optional=True)
    y: Tensor = result("[B, D, T]")
    activation: str = attribute("what is done to sums", str, "identity", choices=ACTIVATIONS)
    compute_type: DType = arithmetic_type()

    def infer(self) -> None:
        fill_like(self.y, self.x)

    def verify(self) -> None:
        self.verify_operands()  # causal_conv1d_c1, causal_conv1d_c2
        if self.initial_states is not None:
            batch, channels, _ = self.x.shape
            wanted = (batch, channels, Expr.of(max(1, self.taps - 1)))
            self.require_dims("C3", wanted, self.initial_states)
            if self.taps < 2:
                raise self.error(
                    "C3", "initial_states of a filter of 1 element", "at least 2 elements"
                )
        self.require_dims("C4", self.x.shape, self.y)
        self.verify_types("C5")

    def expand(self) -> Sequence[Op]:
        steps = Steps(self.name, self.compute_type, 3)
        sums = self.summed(steps, self.initial_states)
        mode = "swish_fwd" if self.activation == "silu" else "identity"
        steps.pointwise(mode, sums, to=self.y)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        fields = (field.name for field, _ in self.tensors("operand"))
        given = dict(zip(fields, float64(operands), strict=True))
        sums = self.sums(given["x"], given["w"], given.get("bias"), given.get("initial_states"))
        return sums * _sigmoid(sums) if self.activation == "silu" else sums


class CausalConv1dBackward(_Causal):
    """dX, dW and dbias of `causal_conv1d` without initial states, from dY.

    dY, X, dX [B, D, T], W, dW [D, W], bias, dbias [D]; dbias is there where bias is.  The sums
    that a silu was applied to are computed again from X, W and bias.
    Source: cudnn-frontend, causal_conv1d_backward.

    Constraints:
    (C1) X has rank 3, W rank 2, of fixed sizes; X has as many channels as W has rows.
    (C2) bias is [D], and dbias is there where bias is.
    (C3) dY and dX have X's dims, dW has W's, dbias has bias's.
    (C4) operands have float types; the compute type is FLOAT or DOUBLE.
    """

    op_name = "causal_conv1d_backward"
    is_composite = True

    dy: Tensor = operand("[B, D, T]", frontend="dY")
    x: Tensor = operand("[B, D, T]")
    w: Tensor = operand("[D, W]", frontend="weight")
    bias: Tensor | None = operand("[D]", optional=True)
    dx: Tensor = result("[B, D, T]", frontend="dX")
    dw: Tensor = result("[D, W]", frontend="dW")
    dbias: Tensor | None = result("[D]", optional=True)
    activation: str = attribute("what was done to sums", str, "identity", choices=ACTIVATIONS)
    compute_type: DType = arithmetic_type()

    @classmethod
    def left_out(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        return ("dbias",) if values.get("bias") is None else ()

    def infer(self) -> None:
        fill_like(self.dx, self.x)
        fill_like(self.dw, self.w)
        if self.bias is not None:
            fill_like(self.dbias, self.bias)

    def verify(self) -> None:
        self.verify_operands()  # causal_conv1d_backward_c1, causal_conv1d_backward_c2
        self.require_together("C2", "bias and dbias, or neither", self.bias, self.dbias)
        self.require_dims("C3", self.x.shape, self.dy, self.dx)
        self.require_dims("C3", self.w.shape, self.dw)
        if self.bias is not None:
            self.require_dims("C3", self.bias.shape, self.dbias)
        self.verify_types("C4")

    def expand(self) -> Sequence[Op]:
        steps, back = Steps(self.name, self.compute_type, 3), self.dy
        if self.activation == "silu":
            # Two convolutions read it: of dY's type it is half as long, and takes tensor cores.
            back = steps.pointwise(
                "swish_bwd", self.dy, self.summed(steps), to=steps.virtual(self.dy.type)
            )
        channels, taps = self.w.shape
        window = self.window(self.taps - 1)
        steps.add(ConvDgrad(dy=back, w=self.filter(steps), dx=self.dx, **window))
        found = steps.virtual(self.dw.type)
        found.dims = (channels, _ONE, taps)
        steps.add(ConvWgrad(x=self.x, dy=back, dw=found, **window))
        reshaped(steps, found, self.w.shape, self.dw)
        if self.dbias is not None:
            reshaped(steps, steps.reduction("add", back, (0, 2)), self.dbias.shape, self.dbias)
        return steps.ops

    def reference(self, *operands: Any, **context: Any) -> Any:
        dy, x, w, *bias = float64(operands)
        back, size = dy, x.shape[2]
        if self.activation == "silu":
            sums = self.sums(x, w, bias[0] if bias else None)
            share = _sigmoid(sums)
            back = dy * share * (1 + sums * (1 - share))
        padded = np.pad(x, ((0, 0), (0, 0), (self.taps - 1, 0)))
        later = np.pad(back, ((0, 0), (0, 0), (0, self.taps - 1)))
        last = self.taps - 1
        dx = sum(later[..., last - i : last - i + size] * w[:, i : i + 1] for i in range(last + 1))
        dw = [np.sum(back * padded[..., i : i + size], axis=(0, 2)) for i in range(self.taps)]
        found = (dx, np.stack(dw, axis=1))
        return (*found, np.sum(back, axis=(0, 2))) if bias else found


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(x / 2))
