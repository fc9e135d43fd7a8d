"""Resampling of the spatial dims: pooling and upsampling, forward and backward."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr
from ..op import Op, arithmetic_type, attribute, operand, result
from ..tensor import Tensor, channels_last, packed_strides, stride_order, text
from ..windows import Windows

# Mode -> how windows are read, and the padding that goes with it.
MODES = {
    "MAXPOOL": ("pool", "NEG_INF_PAD"),
    "AVGPOOL_INCLUDE_PADDING": ("pool", "ZERO_PAD"),
    "AVGPOOL_EXCLUDE_PADDING": ("pool", "ZERO_PAD"),
    "BILINEAR": ("linear", "EDGE_VAL_PAD"),
    "NEAREST": ("nearest", "EDGE_VAL_PAD"),
}
PADDING_MODES = ("NEG_INF_PAD", "ZERO_PAD", "EDGE_VAL_PAD")

INDEX_TYPES = (dtypes.i8, dtypes.i32, dtypes.i64)


class Resampling(Op):
    """The base of both directions: windows of a small image X [N, C, ...] and its Y [N, C, ...].

    X and Y are named after the forward direction.
    """

    kind_field = "resample_mode"
    resample_mode: str = attribute(
        "how a window becomes an element", str, backend="MODE", choices=tuple(MODES)
    )
    padding_mode: str = attribute(
        "what is around X", str, backend="PADDING_MODE", choices=PADDING_MODES
    )
    pre_padding: tuple[int, ...] = attribute("before each spatial dim", tuple)
    post_padding: tuple[int, ...] = attribute("after each spatial dim", tuple)
    stride: tuple[int, ...] = attribute("from a window to the next", tuple)
    window: tuple[int, ...] = attribute("its size", tuple)
    denominator: int = attribute("of paddings, strides and windows", int, 1)
    compute_type: DType = arithmetic_type()

    @property
    def is_max(self) -> bool:
        return self.resample_mode == "MAXPOOL"

    @property
    def windows(self) -> tuple[Windows, ...]:
        """The windows of each spatial dim."""
        kind = MODES[self.resample_mode][0]
        parts = zip(self.pre_padding, self.post_padding, self.stride, self.window, strict=True)
        return tuple(Windows(kind, *numbers, self.denominator) for numbers in parts)

    @property
    def positions(self) -> int:
        """Elements of a window."""
        return math.prod(self.window)

    def _verify_parameters(self, rank: int) -> None:
        spatial = rank - 2
        names = ("pre_padding", "post_padding", "stride", "window")
        if not 1 <= spatial <= 3:  # resample_c1
            raise self.shape_error("C1", f"rank {rank}", "ranks of 3 to 5")
        for name in names:
            values = getattr(self, name)
            if len(values) != spatial:  # resample_c1
                raise self.error("C1", f"{name} {list(values)}", f"{spatial} values")
            low = 0 if name.endswith("padding") else 1
            if any(value < low for value in values):  # resample_c2
                raise self.error("C2", f"{name} {list(values)}", f"values of at least {low}")
        kind, padding = MODES[self.resample_mode]
        if self.denominator < 1 or (kind == "pool" and self.denominator != 1):  # resample_c2
            raise self.error("C2", f"fractions of {self.denominator}", "whole numbers for pooling")
        for w in self.windows:
            if kind == "pool" and max(w.pre, w.post) >= w.window:  # resample_c2
                what = f"a padding of {max(w.pre, w.post)} around windows of {w.window}"
                raise self.error("C2", what, "paddings below the window")
        if self.padding_mode != padding:  # resample_c3
            what = f"padding_mode={self.padding_mode!r} of {self.resample_mode}"
            raise self.error("C3", what, padding, Status.NOT_SUPPORTED)

    def _dims(self, x: Tensor) -> tuple[Expr, ...]:
        """Y's dims; C1 and C2 where the parameters do not fit X."""
        self.require_attribute_choices()
        self._verify_parameters(x.rank)
        pairs = zip(self.windows, x.shape[2:], strict=True)
        spatial = [w.outputs(extent) for w, extent in pairs]
        if any(count.bounds()[0] < 1 for count in spatial):  # resample_c4
            raise self.shape_error(
                "C4",
                f"{text(x.shape)} to {text((*x.shape[:2], *spatial))}",
                "dims of at least 1, a window that fits even the smallest size of a symbol",
            )
        return (*x.shape[:2], *spatial)

    def _verify_dims(self, x: Tensor, y: Tensor) -> None:
        dims = self._dims(x)
        if y.shape != dims:  # resample_c4
            raise self.shape_error(
                "C4", f"{text(x.shape)} to {text(y.shape)}", f"{text(x.shape)} to {text(dims)}"
            )

    def _verify_index(self, index: Tensor | None, y: Tensor) -> None:
        if index is None:
            return
        fits = [t for t in INDEX_TYPES if self.positions <= t.integer_range[1] + 1]
        if not self.is_max or index.shape != y.shape:
            raise self.shape_error(
                "C5",
                f"an index of dims {text(index.shape)} for {self.resample_mode}",
                f"an index of dims {text(y.shape)} for MAXPOOL",
            )
        self.require_type("C5", index, fits)

    def _verify_types(self, *tensors: Tensor, has_index: bool = False) -> None:
        accepted = (dtypes.f32,) if has_index else (dtypes.f32, dtypes.f64)
        if self.compute_type not in accepted:
            raise self.error(
                "C6",
                f"compute type {self.compute_type.cudnn}",
                ", ".join(row.cudnn for row in accepted),
                Status.NOT_SUPPORTED_DATA_TYPE,
            )
        for tensor in tensors:
            self.require_type("C6", tensor, [t for t in dtypes.ALL if t.kind != "b"])

    def index_type(self) -> DType:
        """The smallest type of an index."""
        return next(t for t in INDEX_TYPES if self.positions <= t.integer_range[1] + 1)

    # ---- the reference

    def _taps(self, dims: Sequence[int], outputs: Sequence[int]) -> Iterator[_Tap]:
        """The elements that each window reads, one by one in row-major order."""
        axes = [
            [_along(w, tap, extent, count) for tap in range(w.taps)]
            for w, extent, count in zip(self.windows, dims, outputs, strict=True)
        ]
        for position, chosen in enumerate(itertools.product(*axes)):
            at, inside, weight = zip(*chosen, strict=True)
            yield _Tap(position, np.ix_(*at), _outer(inside) > 0, _outer(weight))

    def _counts(self, dims: Sequence[int], outputs: Sequence[int]) -> Any:
        """The divisors of the sums of the windows."""
        if self.resample_mode == "AVGPOOL_INCLUDE_PADDING":
            return float(self.positions)
        if self.resample_mode != "AVGPOOL_EXCLUDE_PADDING":
            return 1.0
        return sum(tap.inside.astype(float) for tap in self._taps(dims, outputs))

    def _first_maxima(self, x: Any, outputs: Sequence[int]) -> tuple[Any, Any]:
        """(the maximum of each window, its first place there); NaN is above all."""
        best = np.full((*x.shape[:2], *outputs), -np.inf)
        index = np.full(best.shape, -1, np.int64)
        for tap in self._taps(x.shape[2:], outputs):
            value = x[(slice(None), slice(None), *tap.at)]
            above = (value > best) | (np.isnan(value) & ~np.isnan(best)) | (index < 0)
            above &= tap.inside
            best, index = np.where(above, value, best), np.where(above, tap.position, index)
        return best, index


class _Tap:
    """One element of every window: where it is, whether that is inside X, how much it counts."""

    def __init__(self, position: int, at: Any, inside: Any, weight: Any):
        self.position, self.at, self.inside, self.weight = position, at, inside, weight


def _along(w: Windows, tap: int, extent: int, outputs: int) -> tuple[Any, Any, Any]:
    """(element, kept inside; whether it was inside; weight) of one tap of each window."""
    o = np.arange(outputs)
    if w.kind == "pool":
        i = o * w.stride - w.pre + tap
        return np.clip(i, 0, extent - 1), (i >= 0) & (i < extent), np.ones(outputs)
    place = 2 * w.stride * o + w.shift
    i, rest = place // w.steps + tap, (place % w.steps) / w.steps
    weight = np.ones(outputs) if w.kind == "nearest" else np.where(tap, rest, 1 - rest)
    return np.clip(i, 0, extent - 1), np.ones(outputs), weight


def _outer(factors: Sequence[Any]) -> Any:
    """The product of one vector an axis."""
    total = np.ones(())
    for factor in factors:
        total = total[..., None] * factor
    return total


class Resample(Resampling):
    """Y = the windows of X, each taken to one element: pooling or upsampling.

    X [N, C, (D, H,) W], Y [N, C, (O, P,) Q], any layouts.  Window o starts at o * stride - pre;
    Q = (W + pre + post - window) // stride + 1.  All four are numbers over one denominator.
    MAXPOOL: the largest element, NaN if there is one.  AVGPOOL: the sum over the window's size
    (INCLUDE_PADDING) or over the elements that are inside X (EXCLUDE_PADDING).  BILINEAR, in one
    to three dims, and NEAREST: the value at the window's centre, see `dialect.windows`; that of
    the nearest edge outside X.
    Index [N, C, (O, P,) Q], of MAXPOOL: the place of the first maximum in its window, row-major,
    padding counted; the first NaN's if there is one.
    Source: cuDNN graph API, ResampleFwd operation, which gives no formula for the upsampling
    modes.  BILINEAR with its parameters (windows of 2, strides of 1/2, paddings of 1/2 and 1) is
    y[2i] = x[i], y[2i + 1] = (x[i] + x[i + 1]) / 2 along each dim, and y[2W - 1] = x[W - 1]: what
    cuDNN 9.19 gives on an H100, which declines all others, NEAREST and both gradients.

    Constraints:
    (C1) ranks are 3 to 5; one padding, stride and window a spatial dim.
    (C2) windows and strides are above 0, paddings at least 0; those of pooling are whole numbers,
         its paddings below its windows.
    (C3) the padding mode is NEG_INF_PAD for MAXPOOL, ZERO_PAD for AVGPOOL, else EDGE_VAL_PAD.
    (C4) Y's dims follow from X and the parameters, and are at least 1.
    (C5) MAXPOOL has an index if generate_index asks for it; it has Y's dims, and is INT8,
         INT32 or INT64, which hold every place.
    (C6) the compute type is FLOAT, or DOUBLE where there is no index; X and Y are not BOOLEAN.
    """

    op_name = "resample"
    backend = "OPERATION_RESAMPLE_FWD"
    role = "anchor"

    x: Tensor = operand("[N, C, (D, H,) W]", frontend="input", backend="XDESC")
    y: Tensor = result("[N, C, (O, P,) Q]", backend="YDESC")
    index: Tensor | None = result("[N, C, (O, P,) Q]", backend="IDXDESC", optional=True)
    generate_index: bool | None = attribute("whether MAXPOOL has an index", bool, optional=True)

    @classmethod
    def left_out(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        has_index = values.get("generate_index") and values["resample_mode"] == "MAXPOOL"
        return () if has_index else ("index",)

    def infer(self) -> None:
        if self.y.dims is None:
            self.y.dims = self._dims(self.x)
        if self.y.strides is None:
            self.y.strides = channels_last(self.y.dims)
        if self.index is None:
            return
        if self.index.dims is None:
            self.index.dims = self.y.dims
        if self.index.strides is None:
            self.index.strides = channels_last(self.index.dims)
        if self.index.dtype is None:
            self.index.dtype = self.index_type()

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        return channels_last(tensor.shape)

    def verify(self) -> None:
        self._verify_dims(self.x, self.y)  # resample_c1 to resample_c4
        wanted = bool(self.generate_index) and self.is_max
        if wanted != (self.index is not None):  # resample_c5
            raise self.error(
                "C5", "an index" if not wanted else "no index", "as generate_index says"
            )
        self._verify_index(self.index, self.y)  # resample_c5
        self._verify_types(self.x, self.y, has_index=self.index is not None)  # resample_c6

    def reference(self, *operands: Any, **context: Any) -> Any:
        x = np.asarray(operands[0], dtype=np.float64)
        sizes: Mapping[str, int] = context.get("sizes", {})
        outputs = [extent.evaluate(sizes) for extent in self.y.shape[2:]]
        if self.is_max:
            best, index = self._first_maxima(x, outputs)
            return best if self.index is None else (best, index)
        total = np.zeros((*x.shape[:2], *outputs))
        for tap in self._taps(x.shape[2:], outputs):
            value = x[(slice(None), slice(None), *tap.at)]
            total += np.where(tap.inside, value * tap.weight, 0)
        return total / self._counts(x.shape[2:], outputs)


class ResampleBackward(Resampling):
    """DX = what each element of X gets back from DY, through the windows that read it.

    DX [N, C, (D, H,) W], DY [N, C, (O, P,) Q].  MAXPOOL: an element of DY goes to the first
    maximum of its window, which Index says; without one, it is found again in X.  Y, which cuDNN
    asks for then, is not read.  AVGPOOL: it is spread over the window's elements; what falls on
    padding is lost.  BILINEAR, NEAREST: over the elements that Y was made of, with their weights.
    Each element of DX is summed by itself in a fixed order, so that results repeat bit by bit.
    Source: cuDNN graph API, ResampleBwd operation, without the upsampling modes.

    Constraints:
    (C1) ranks are 3 to 5; one padding, stride and window a spatial dim.
    (C2) windows and strides are above 0, paddings at least 0; those of pooling are whole numbers,
         its paddings below its windows.
    (C3) the padding mode is that of the mode, as in resample.
    (C4) DY's dims follow from DX and the parameters, and are at least 1; X has DX's, Y has DY's.
    (C5) MAXPOOL has an index or X; an index is of MAXPOOL, has DY's dims, and is INT8, INT32 or
         INT64, which hold every place.
    (C6) the compute type is FLOAT, or DOUBLE for modes other than MAXPOOL; no tensor is BOOLEAN.
    """

    op_name = "resample_backward"
    backend = "OPERATION_RESAMPLE_BWD"
    role = "anchor"

    dy: Tensor = operand("[N, C, (O, P,) Q]", frontend="loss", backend="DYDESC")
    x: Tensor | None = operand(
        "[N, C, (D, H,) W], of MAXPOOL", frontend="input", backend="XDESC", optional=True
    )
    y: Tensor | None = operand(
        "[N, C, (O, P,) Q], not read", frontend="output", backend="YDESC", optional=True
    )
    index: Tensor | None = operand(
        "[N, C, (O, P,) Q], of MAXPOOL", backend="IDXDESC", optional=True
    )
    dx: Tensor = result("[N, C, (D, H,) W]", backend="DXDESC")

    @property
    def read_operands(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.operands if t is not self.x and t is not self.y)

    def infer(self) -> None:
        if self.dx.dims is None:
            if self.x is None:
                raise self.error(
                    "C4", "the result's dims are not set", "dims by set_dim, or an input"
                )
            self.dx.dims = self.x.dims
        if self.dx.strides is None:
            self.dx.strides = self.inner_strides(self.dx)

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        return packed_strides(tensor.shape, stride_order(self.dy.shape, self.dy.layout))

    def verify(self) -> None:
        self._verify_dims(self.dx, self.dy)  # resample_backward_c1 to resample_backward_c4
        for other, own in ((self.x, self.dx), (self.y, self.dy)):
            if other is not None and other.shape != own.shape:  # resample_backward_c4
                raise self.shape_error(
                    "C4", f"{other.label} has dims {text(other.shape)}", text(own.shape)
                )
        if self.is_max and self.index is None and self.x is None:  # resample_backward_c5
            raise self.error("C5", "neither index nor input", "one of them for MAXPOOL")
        self._verify_index(self.index, self.dy)  # resample_backward_c5
        given = [t for t in (self.x, self.y) if t is not None]
        self._verify_types(  # resample_backward_c6
            self.dx, self.dy, *given, has_index=self.is_max
        )

    def expand(self) -> Sequence[Op] | None:
        """Where no index is given: X's maxima are found again, as a step of its own."""
        if not self.is_max or self.index is not None or self.x is None:
            return None
        shared = self.attributes()
        y = Tensor(is_virtual=True, dtype=self.compute_type)
        index = Tensor(is_virtual=True, dtype=self.index_type())
        again = Resample(x=self.x, y=y, index=index, generate_index=True, **shared)
        y.dims, y.strides = self.dy.dims, packed_strides(self.dy.shape)
        index.dims = self.dy.dims
        index.strides = packed_strides(self.dy.shape, stride_order(self.dy.shape, self.dy.layout))
        own = ResampleBackward(dy=self.dy, index=index, dx=self.dx, **shared)
        again.name = own.name = self.name
        return [again, own]

    def draw(self, tensor: Tensor, rng: np.random.Generator, sizes: Mapping[str, int]) -> Any:
        if tensor is not self.index:
            return None
        return rng.integers(0, self.positions, [n.evaluate(sizes) for n in tensor.shape])

    def reference(self, *operands: Any, **context: Any) -> Any:
        given = iter(operands)
        names = [name for name in ("dy", "x", "y", "index") if getattr(self, name) is not None]
        arrays = dict(zip(names, given, strict=True))
        dy = np.asarray(arrays["dy"], dtype=np.float64)
        sizes: Mapping[str, int] = context.get("sizes", {})
        dims, outputs = [n.evaluate(sizes) for n in self.dx.shape], dy.shape[2:]
        index = arrays.get("index")
        if self.is_max and index is None:
            index = self._first_maxima(np.asarray(arrays["x"], np.float64), outputs)[1]
        share = dy / self._counts(dims[2:], outputs)
        dx = np.zeros(dims)
        for tap in self._taps(dims[2:], outputs):
            chosen = tap.inside if index is None else tap.inside & (index == tap.position)
            part = np.where(chosen, share * tap.weight, 0)
            place: Any = (slice(None), slice(None), *tap.at)
            np.add.at(dx, place, part)
        return dx
