"""Convolution, forward."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr
from ...rounding import to_int32_wrapped
from ..op import Op, attribute, operand, result
from ..tensor import Tensor, packed_strides, text


class ConvFprop(Op):
    """Y = X convolved with W, in one to three spatial dims.

    X [N, C, (D, H,) W], W [K, C / groups, (T, R,) S], Y [N, K, (O, P,) Q].
    pre_padding, post_padding, stride, dilation: in elements, one a spatial dim.
    Q = (W + pre + post - dilation * (S - 1) - 1) // stride + 1.  The number of groups is C over
    W's second dim.  CROSS_CORRELATION applies the filter as it is, CONVOLUTION turned around.
    Source: cuDNN graph API, ConvolutionFwd operation.

    Constraints:
    (C1) ranks are equal, 3 to 5; one padding, stride and dilation a spatial dim.
    (C2) paddings are at least 0, strides and dilations at least 1.
    (C3) W's second dim divides C, and the number of groups divides K; both fixed sizes.
    (C4) Y's dims follow from X, W and the parameters, and are at least 1.
    (C5) the compute type is FLOAT, HALF or DOUBLE, or INT32 where X and W are integers, or
         FAST_FLOAT_FOR_FP8, as a matmul's, where each of them is of an fp8 type.
    """

    op_name = "conv_fprop"
    backend = "OPERATION_CONVOLUTION_FORWARD"
    role = "anchor"

    x: Tensor = operand("[N, C, (D, H,) W]", frontend="image", backend="X")
    w: Tensor = operand("[K, C / groups, (T, R,) S]", frontend="weight", backend="W")
    y: Tensor = result("[N, K, (O, P,) Q]", backend="Y")
    pre_padding: tuple[int, ...] = attribute("before each spatial dim", tuple)
    post_padding: tuple[int, ...] = attribute("after each spatial dim", tuple)
    stride: tuple[int, ...] = attribute("of the filter", tuple)
    dilation: tuple[int, ...] = attribute("of the filter", tuple)
    convolution_mode: str = attribute(
        "which way the filter runs",
        str,
        "CROSS_CORRELATION",
        choices=("CROSS_CORRELATION", "CONVOLUTION"),
    )
    compute_type: DType = attribute(
        "the type of the sums", DType, dtypes.f32, frontend="compute_data_type"
    )

    def _verify_parameters(self) -> None:
        spatial = self.x.rank - 2
        if self.x.rank != self.w.rank or not 1 <= spatial <= 3:  # conv_fprop_c1
            raise self.error(
                "C1",
                f"X {text(self.x.shape)}, W {text(self.w.shape)}",
                "equal ranks of 3 to 5",
                Status.BAD_PARAM_SHAPE_MISMATCH,
            )
        for name, low in (("pre_padding", 0), ("post_padding", 0), ("stride", 1), ("dilation", 1)):
            values = getattr(self, name)
            if len(values) != spatial:  # conv_fprop_c1
                raise self.error("C1", f"{name} {list(values)}", f"{spatial} values")
            if any(value < low for value in values):  # conv_fprop_c2
                raise self.error("C2", f"{name} {list(values)}", f"values of at least {low}")

    def _dims(self) -> tuple[Expr, ...]:
        self._verify_parameters()
        dims = [self.x.shape[0], self.w.shape[0]]
        for i, (extent, taps) in enumerate(zip(self.x.shape[2:], self.w.shape[2:], strict=True)):
            padded = extent + self.pre_padding[i] + self.post_padding[i]
            dims.append((padded - (taps - 1) * self.dilation[i] - 1) // self.stride[i] + 1)
        return tuple(dims)

    @property
    def groups(self) -> int:
        """C over W's second dim; C3 where they are not fixed sizes that fit."""
        c, c_group = self.x.shape[1].constant, self.w.shape[1].constant
        k = self.w.shape[0].constant
        if not c or not c_group or not k or c % c_group or k % (c // c_group):  # conv_fprop_c3
            raise self.error(
                "C3",
                f"C = {self.x.shape[1]}, W {text(self.w.shape)}",
                "fixed sizes; W's second dim divides C, and C over it divides K",
                Status.BAD_PARAM_SHAPE_MISMATCH,
            )
        return c // c_group

    def infer(self) -> None:
        if self.y.dims is None:
            self.y.dims = self._dims()
        if self.y.strides is None:  # channels last, as cudnn-frontend does
            spatial = range(2, len(self.y.dims))
            self.y.strides = packed_strides(self.y.dims, (0, *spatial, 1))

    def verify(self) -> None:
        self.require_attribute_choices()
        dims = self._dims()
        assert self.groups >= 1
        if self.y.shape != dims or any(extent.bounds()[1] < 1 for extent in dims):  # conv_fprop_c4
            raise self.error(
                "C4",
                f"Y has dims {text(self.y.shape)}",
                f"{text(dims)}, each at least 1",
                Status.BAD_PARAM_SHAPE_MISMATCH,
            )
        accepted = [dtypes.f32, dtypes.f16, dtypes.f64]
        if self.x.type.is_integer and self.w.type.is_integer:
            accepted.append(dtypes.i32)
        if self.x.type.is_fp8 and self.w.type.is_fp8:
            accepted.append(dtypes.fast_float_for_fp8)
        if self.compute_type not in accepted:  # conv_fprop_c5
            raise self.error(
                "C5",
                f"compute type {self.compute_type.cudnn} for {self.x.type} and {self.w.type}",
                ", ".join(row.cudnn for row in accepted),
                Status.NOT_SUPPORTED_DATA_TYPE,
            )

    def reference(self, *operands: Any, **context: Any) -> Any:
        x, w = (np.asarray(array, dtype=np.float64) for array in operands)
        if self.convolution_mode == "CONVOLUTION":
            w = np.flip(w, axis=tuple(range(2, w.ndim)))
        pads = zip(self.pre_padding, self.post_padding, strict=True)
        x = np.pad(x, [(0, 0), (0, 0), *pads])
        counts = [
            (x.shape[2 + i] - self.dilation[i] * (w.shape[2 + i] - 1) - 1) // self.stride[i] + 1
            for i in range(w.ndim - 2)
        ]
        k_group, c_group = w.shape[0] // self.groups, w.shape[1]
        y = np.zeros((x.shape[0], w.shape[0], *counts))
        for tap in itertools.product(*(range(n) for n in w.shape[2:])):
            window = tuple(
                slice(t * d, t * d + s * (n - 1) + 1, s)
                for t, d, s, n in zip(tap, self.dilation, self.stride, counts, strict=True)
            )
            for group in range(self.groups):
                ks = slice(group * k_group, (group + 1) * k_group)
                cs = slice(group * c_group, (group + 1) * c_group)
                taken = x[(slice(None), cs, *window)]
                y[:, ks] += np.einsum("nc...,kc->nk...", taken, w[(ks, slice(None), *tap)])
        return to_int32_wrapped(y.astype(np.int64)) if self.compute_type == dtypes.i32 else y
