"""Convolution: forward, and its gradients by the image and by the filter."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr, product
from ...rounding import to_int32_wrapped
from ..op import Op, arithmetic_type, attribute, operand, result
from ..tensor import Tensor, channels_last, text
from ..window_contraction import (
    DGRAD,
    FILTER,
    FPROP,
    IMAGE,
    RESPONSE,
    WGRAD,
    WindowContraction,
)


class Convolution(Op):
    """The base of the three operations: a window contraction, and the forward one's parameters.

    contraction: which of image, filter and response is computed.  tensor_fields: the fields that
    are these three.
    """

    role = "anchor"
    contraction: ClassVar[WindowContraction]
    tensor_fields: ClassVar[Mapping[str, str]]

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
    compute_type: DType = arithmetic_type("the type of the sums")

    # ---- its tensors by what they are forward

    def tensor(self, role: str) -> Tensor:
        """The image, filter or response."""
        return getattr(self, self.tensor_fields[role])

    @property
    def image(self) -> Tensor:
        return self.tensor(IMAGE)

    @property
    def filter(self) -> Tensor:
        return self.tensor(FILTER)

    @property
    def response(self) -> Tensor:
        return self.tensor(RESPONSE)

    @property
    def moved(self) -> Tensor:
        """The operand that is read where the filter lies, and has zeros around it."""
        return self.tensor(self.contraction.moved)

    @property
    def made(self) -> Tensor:
        """The result."""
        return self.tensor(self.contraction.result)

    def _label(self, role: str) -> str:
        return self.tensor_fields[role].upper()

    @property
    def groups(self) -> int:
        """C over W's second dim; C3 where they are not fixed sizes that fit."""
        c, c_group = self.image.shape[1].constant, self.filter.shape[1].constant
        k = self.filter.shape[0].constant
        if not c or not c_group or not k or c % c_group or k % (c // c_group):  # conv_fprop_c3
            raise self.shape_error(
                "C3",
                f"C = {self.image.shape[1]}, {self._label(FILTER)} {text(self.filter.shape)}",
                f"fixed sizes; {self._label(FILTER)}'s second dim divides C, and C over it divides "
                "K",
            )
        return c // c_group

    @property
    def c_group(self) -> int:
        """Channels of the image in each group."""
        return _fixed(self.filter.shape[1])

    @property
    def k_group(self) -> int:
        """Filters of each group."""
        return _fixed(self.filter.shape[0]) // self.groups

    @property
    def terms(self) -> Expr:
        """Products that one element of the result is the sum of."""
        sizes = {
            "batch": self.image.shape[:1],
            "own_channel": (Expr.of(self.c_group),),
            "own_filter": (Expr.of(self.k_group),),
            "tap": self.filter.shape[2:],
            "output": self.response.shape[2:],
        }
        return product(size for name in self.contraction.summed for size in sizes[name])

    # ---- inference and checks

    def _verify_parameters(self) -> None:
        first = IMAGE if self.image.dims is not None else RESPONSE
        rank = self.tensor(first).rank
        spatial = rank - 2
        if rank != self.filter.rank or not 1 <= spatial <= 3:  # conv_fprop_c1
            raise self.shape_error(
                "C1",
                ", ".join(
                    f"{self._label(role)} {text(self.tensor(role).shape)}"
                    for role in (first, FILTER)
                ),
                "equal ranks of 3 to 5",
            )
        for name, low in (("pre_padding", 0), ("post_padding", 0), ("stride", 1), ("dilation", 1)):
            values = getattr(self, name)
            if len(values) != spatial:  # conv_fprop_c1
                raise self.error("C1", f"{name} {list(values)}", f"{spatial} values")
            if any(value < low for value in values):  # conv_fprop_c2
                raise self.error("C2", f"{name} {list(values)}", f"values of at least {low}")

    def _response_dims(self) -> tuple[Expr, ...]:
        self._verify_parameters()
        dims = [self.image.shape[0], self.filter.shape[0]]
        pairs = zip(self.image.shape[2:], self.filter.shape[2:], strict=True)
        for i, (extent, taps) in enumerate(pairs):
            padded = extent + self.pre_padding[i] + self.post_padding[i]
            dims.append((padded - (taps - 1) * self.dilation[i] - 1) // self.stride[i] + 1)
        return tuple(dims)

    def _image_dims(self) -> tuple[Expr, ...]:
        """The smallest ones, of one group, as cudnn-frontend has it."""
        self._verify_parameters()
        dims = [self.response.shape[0], self.filter.shape[1]]
        pairs = zip(self.response.shape[2:], self.filter.shape[2:], strict=True)
        for i, (extent, taps) in enumerate(pairs):
            reach = (extent - 1) * self.stride[i] + (taps - 1) * self.dilation[i] + 1
            dims.append(reach - self.pre_padding[i] - self.post_padding[i])
        return tuple(dims)

    def infer(self) -> None:
        (made,) = self.results
        if made.dims is None:
            if made is self.filter:
                raise self.error(
                    "C4",
                    f"the dims of {self._label(FILTER)} are not set, and do not follow from the "
                    "operands",
                    "dims by set_dim",
                )
            made.dims = self._response_dims() if made is self.response else self._image_dims()
        if made.strides is None:
            made.strides = channels_last(made.dims)

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        return channels_last(tensor.shape)

    def verify(self) -> None:
        self.require_attribute_choices()
        dims = self._response_dims()
        assert self.groups >= 1
        wrong = any(extent.bounds()[1] < 1 for extent in dims)
        if self.response.shape != dims or wrong:  # conv_fprop_c4
            raise self.shape_error(
                "C4",
                f"{self._label(RESPONSE)} has dims {text(self.response.shape)}",
                f"{text(dims)}, each at least 1",
            )
        accepted = [dtypes.f32, dtypes.f16, dtypes.f64]
        a, b = self.operands
        if a.type.is_integer and b.type.is_integer:
            accepted.append(dtypes.i32)
        if a.type.is_fp8 and b.type.is_fp8:
            accepted.append(dtypes.fast_float_for_fp8)
        if self.compute_type not in accepted:  # conv_fprop_c5
            raise self.error(
                "C5",
                f"compute type {self.compute_type.cudnn} for {a.type} and {b.type}",
                ", ".join(row.cudnn for row in accepted),
                Status.NOT_SUPPORTED_DATA_TYPE,
            )

    # ---- the reference

    def reference(self, *operands: Any, **context: Any) -> Any:
        sizes: Mapping[str, int] = context.get("sizes", {})
        made = self.contraction.result
        dims = [extent.evaluate(sizes) for extent in self.tensor(made).shape]
        arrays = {
            role: np.asarray(array, dtype=np.float64)
            for role, array in zip(self.contraction.operands, operands, strict=True)
        }
        arrays[made] = np.zeros(dims)
        pads = self._paddings(arrays)
        image, response = (
            np.pad(arrays[role], [(0, 0), (0, 0), *pads[role]]) for role in (IMAGE, RESPONSE)
        )
        w = arrays[FILTER]
        if self.convolution_mode == "CONVOLUTION":
            w = np.flip(w, axis=tuple(range(2, w.ndim)))
        arrays = {IMAGE: image, FILTER: w, RESPONSE: response}
        self._accumulate(arrays)
        inside = (
            slice(before, before + n)
            for (before, _), n in zip(pads.get(made, ()), dims[2:], strict=False)
        )
        found = arrays[made][(slice(None), slice(None), *inside)]
        if made == FILTER and self.convolution_mode == "CONVOLUTION":
            found = np.flip(found, axis=tuple(range(2, found.ndim)))
        if self.compute_type == dtypes.i32:
            return to_int32_wrapped(found.astype(np.int64))
        return found

    def _paddings(self, arrays: Mapping[str, Any]) -> dict[str, list[tuple[int, int]]]:
        """Zeros before and after each spatial dim of the image and of the response.

        The image then holds the window of every output, and for dgrad the response those outputs
        outside it whose windows reach a pixel.
        """
        pads: dict[str, list[tuple[int, int]]] = {IMAGE: [], RESPONSE: []}
        for axis, (stride, pre) in enumerate(zip(self.stride, self.pre_padding, strict=True)):
            pixels, taps, outputs = (
                arrays[role].shape[2 + axis] for role in (IMAGE, FILTER, RESPONSE)
            )
            reach, before, after = (taps - 1) * self.dilation[axis], 0, 0
            if self.contraction.follows == "output":
                before = max(0, (reach - pre) // stride)
                after = max(0, (pixels - 1 + pre) // stride - (outputs - 1))
            lead = before * stride + pre
            end = (before + outputs + after - 1) * stride + reach + 1
            pads[IMAGE].append((lead, max(0, end - lead - pixels)))
            pads[RESPONSE].append((before, after))
        return pads

    def _accumulate(self, arrays: Mapping[str, Any]) -> None:
        """Adds all products to the result's array; the image's begins at output 0's first tap."""
        spatial = "xyz"[: len(self.stride)]
        letters = {IMAGE: f"nc{spatial}", FILTER: "kc", RESPONSE: f"nk{spatial}"}
        a, b = self.contraction.operands
        equation = f"{letters[a]},{letters[b]}->{letters[self.contraction.result]}"
        counts = arrays[RESPONSE].shape[2:]
        for tap in itertools.product(*(range(n) for n in arrays[FILTER].shape[2:])):
            window = tuple(
                slice(t * d, t * d + s * n, s)
                for t, d, s, n in zip(tap, self.dilation, self.stride, counts, strict=True)
            )
            for group in range(self.groups):
                ks = slice(group * self.k_group, (group + 1) * self.k_group)
                cs = slice(group * self.c_group, (group + 1) * self.c_group)
                parts = {
                    IMAGE: arrays[IMAGE][(slice(None), cs, *window)],
                    FILTER: arrays[FILTER][(ks, slice(None), *tap)],
                    RESPONSE: arrays[RESPONSE][:, ks],
                }
                total = parts[self.contraction.result]
                total += np.einsum(equation, parts[a], parts[b])


def _fixed(extent: Expr) -> int:
    assert extent.constant is not None, f"{extent} is no fixed size"
    return extent.constant


class ConvFprop(Convolution):
    """Y = X convolved with W, in one to three spatial dims.

    X [N, C, (D, H,) W], W [K, C / groups, (T, R,) S], Y [N, K, (O, P,) Q].
    pre_padding, post_padding, stride, dilation: in elements, one a spatial dim.
    Q = (W + pre + post - dilation * (S - 1) - 1) // stride + 1.  The number of groups is C over
    W's second dim.  CROSS_CORRELATION applies the filter as it is, CONVOLUTION flipped.
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
    contraction = FPROP
    tensor_fields: ClassVar[Mapping[str, str]] = {IMAGE: "x", FILTER: "w", RESPONSE: "y"}

    x: Tensor = operand("[N, C, (D, H,) W]", frontend="image", backend="X")
    w: Tensor = operand("[K, C / groups, (T, R,) S]", frontend="weight", backend="W")
    y: Tensor = result("[N, K, (O, P,) Q]", backend="Y")


class ConvDgrad(Convolution):
    """DX = the gradient of a convolution's image, from its filter W and its result's gradient DY.

    DY [N, K, (O, P,) Q], W [K, C / groups, (T, R,) S], DX [N, C, (D, H,) W].
    The parameters are those of the forward convolution, and DX's dims are X's there: set them by
    set_dim, since a stride leaves several possible.  Each pixel of DX is the sum, over all taps and
    all filters of its group, of W times DY at the output whose window has the tap on that pixel.
    DY outside its dims is zeros, which are multiplied: an infinite W gives NaN there.
    Source: cuDNN graph API, ConvolutionBwdData operation.

    Constraints:
    (C1) ranks are equal, 3 to 5; one padding, stride and dilation a spatial dim.
    (C2) paddings are at least 0, strides and dilations at least 1.
    (C3) W's second dim divides C, and the number of groups divides K; both fixed sizes.
    (C4) DY's dims are those that the forward convolution of DX and W has, and are at least 1.
         DX's dims, where they are not set, are the smallest ones of one group.
    (C5) the compute type is FLOAT, HALF or DOUBLE, or INT32 where DY and W are integers, or
         FAST_FLOAT_FOR_FP8, as a matmul's, where each of them is of an fp8 type.
    """

    op_name = "conv_dgrad"
    backend = "OPERATION_CONVOLUTION_BACKWARD_DATA"
    prefix = "OPERATION_CONVOLUTION_BWD_DATA"
    contraction = DGRAD
    tensor_fields: ClassVar[Mapping[str, str]] = {IMAGE: "dx", FILTER: "w", RESPONSE: "dy"}

    dy: Tensor = operand("[N, K, (O, P,) Q]", frontend="loss", backend="DY")
    w: Tensor = operand("[K, C / groups, (T, R,) S]", frontend="filter", backend="W")
    dx: Tensor = result("[N, C, (D, H,) W]", backend="DX")


# What a filter gives of a tensor that it moves over: engines take both as convolutions.
Convolved = ConvFprop | ConvDgrad


class ConvWgrad(Convolution):
    """DW = the gradient of a convolution's filter, from its image X and its result's gradient DY.

    X [N, C, (D, H,) W], DY [N, K, (O, P,) Q], DW [K, C / groups, (T, R,) S].
    The parameters are those of the forward convolution, and DW's dims are W's there: set them by
    set_dim.  Each element of DW is the sum, over all images and all outputs, of DY times the pixel
    of X that the tap lies on.  X's padding is zeros, which are multiplied: an infinite DY gives NaN
    there.
    Source: cuDNN graph API, ConvolutionBwdFilter operation.

    Constraints:
    (C1) ranks are equal, 3 to 5; one padding, stride and dilation a spatial dim.
    (C2) paddings are at least 0, strides and dilations at least 1.
    (C3) DW's second dim divides C, and the number of groups divides K; both fixed sizes.
    (C4) DW's dims are set; DY's dims are those that the forward convolution of X and DW has, and
         are at least 1.
    (C5) the compute type is FLOAT, HALF or DOUBLE, or INT32 where X and DY are integers, or
         FAST_FLOAT_FOR_FP8, as a matmul's, where each of them is of an fp8 type.
    """

    op_name = "conv_wgrad"
    backend = "OPERATION_CONVOLUTION_BACKWARD_FILTER"
    prefix = "OPERATION_CONVOLUTION_BWD_FILTER"
    contraction = WGRAD
    tensor_fields: ClassVar[Mapping[str, str]] = {IMAGE: "x", FILTER: "dw", RESPONSE: "dy"}

    x: Tensor = operand("[N, C, (D, H,) W]", frontend="image", backend="X")
    dy: Tensor = operand("[N, K, (O, P,) Q]", frontend="loss", backend="DY")
    dw: Tensor = result("[K, C / groups, (T, R,) S]", backend="DW")
