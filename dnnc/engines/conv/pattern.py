# pyright: basic
"""A convolution as a product of matrices: what engines of convolutions read off it.

    Y [pixels of the output, K] = X' [pixels of the output, taps * C] @ W' [taps * C, K]

for each group of channels; X' has what each tap of the filter meets of X, and is never stored.
The gradient by the image is such a product, too, where its stride is 1: X is then dY, Y is dX, C
are the filters and K the channels, and the filter is flipped and read transposed.
Channels come in whole panels of `panel` elements, those past C zeros: k counts through the taps,
the last spatial axis fastest, and through the padded channels of each.  On Hopper a panel is 128
bytes, or of groups of up to 64 bytes of channels 64: half of it would be zeros otherwise, in shared
memory and in products.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...codegen.hopper import im2col, tma, wgmma
from ...codegen.hopper.im2col import Window
from ...codegen.ops import Number
from ...codegen.region import Region
from ...codegen.walk.loops import Loops
from ...dialect import dnn, structure
from ...dialect.fusion import Fusion, remembered
from ...dialect.ops import ConvDgrad
from ...dialect.ops.conv import Convolved
from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...expr import Expr, product
from ...mlir import ir
from .spread import AxisSpread, Spread

NARROW_BYTES = 64  # of a panel that has few channels
GROUP = 0  # the axis of a batch that counts groups of channels


@dataclass(frozen=True, eq=False)
class ConvShape:
    """A convolution of X that gives Y; windows: of the spatial axes.  is_flipped: the last tap
    comes first.

    x [N, C, spatial]; fixed channels and filter sizes.  w [K, C / groups, spatial], or where it
    is_transposed, as of a gradient, [C, K / groups, spatial].  apart: all groups.
    beside: groups that are worked on as one, see `conv.beside_sm90`.  spread: of a gradient with
    strides, the phases of the pixels of Y; windows are then those of all of them, see
    `AxisSpread.window`, pixels and taps are a phase's, and made are Y's dims.
    """

    x: Tensor
    w: Tensor
    windows: tuple[Window, ...]
    is_flipped: bool
    apart: int
    is_transposed: bool = False
    beside: int = 1
    spread: Spread | None = None
    made: tuple[Expr, ...] = ()

    @staticmethod
    def of(
        op_name: str,
        x: Tensor,
        w: Tensor,
        made: Sequence[Expr],
        pre: Sequence[int],
        post: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        mode: str,
    ) -> ConvShape:
        """The shape, from an operation's name and attributes; made: dims of its result."""
        is_gradient, is_flipped = op_name == ConvDgrad.op_name, mode == "CONVOLUTION"
        windows = tuple(
            Window(_fixed(taps), *rest)
            for taps, *rest in zip(w.shape[2:], stride, dilation, pre, post, strict=True)
        )
        image = made if is_gradient else x.shape
        groups = _fixed(image[1]) // _fixed(w.shape[1])
        if not is_gradient:
            return ConvShape(x, w, windows, is_flipped, groups)
        if all(window.stride == 1 for window in windows):
            windows = tuple(map(window_of_gradient, windows))
            return ConvShape(x, w, windows, not is_flipped, groups, is_transposed=True)
        axes = zip(windows, made[2:], x.shape[2:], strict=True)
        spread = Spread(tuple(AxisSpread.of(*axis, is_flipped=is_flipped) for axis in axes))
        windows = tuple(axis.window for axis in spread.axes)
        return ConvShape(
            x, w, windows, False, groups, is_transposed=True, spread=spread, made=tuple(made)
        )

    @property
    def filter_axes(self) -> tuple[int, int]:
        """W's axes of output channels and of input channels."""
        return (1, 0) if self.is_transposed else (0, 1)

    @property
    def groups(self) -> int:
        return self.apart // self.beside

    @property
    def c_group(self) -> int:
        """Input channels of a group."""
        return _fixed(self.x.shape[1]) // self.groups

    @property
    def k_group(self) -> int:
        """Output channels of a group."""
        return self.k // self.groups

    @property
    def k(self) -> int:
        """Output channels."""
        return (
            _fixed(self.w.shape[1]) * self.apart if self.is_transposed else _fixed(self.w.shape[0])
        )

    @property
    def taps(self) -> int:
        return self.spread.most_taps if self.spread else self.filter_taps

    @property
    def moves(self) -> tuple[Window | AxisSpread, ...]:
        """How the filter lies along the spatial axes, for tiles that have pixels of all phases."""
        return self.spread.axes if self.spread else self.windows

    @property
    def filter_taps(self) -> int:
        """Taps of the filter: of all phases."""
        return math.prod(move.taps for move in self.moves)

    @property
    def met(self) -> ConvShape:
        """The convolution without the phases of pixels that meet no tap."""
        return replace(self, spread=self.spread.met) if self.spread else self

    @property
    def batch(self) -> Loops:
        """Over the phases of the pixels, those of most taps first, and the groups of channels."""
        groups = ((GROUP,),) if self.groups > 1 else ()
        if self.spread is None:
            return Loops((Expr.of(self.groups),), groups)
        dims = tuple(map(Expr.of, (self.groups, *self.spread.counts)))
        axes = tuple(axis for axis in self.spread.batch_axes if dims[axis].constant != 1)
        return Loops(dims, (*((axes,) if axes else ()), *groups))

    @property
    def batch_axes(self) -> dict[int, int]:
        """An axis of Y for each axis of the batch, for reductions at the exit: of phases one that
        counts pixels, all of which are reduced."""
        if self.spread is None:
            return {GROUP: 1}
        pixels = (axis for axis in (0, *range(2, len(self.y))) if self.y[axis].constant != 1)
        return {GROUP: 1, **dict.fromkeys(self.spread.batch_axes, next(pixels, 0))}

    @property
    def read_share(self) -> float:
        """The share of the pixels of X that any tap meets, about: a stride may leave some out."""
        share = 1.0
        for window in self.windows:
            share *= min(1.0, window.taps / window.stride)
        return share

    @cached_property
    def counted(self) -> tuple[Expr, ...]:
        """Images, and pixels of the output along each axis, of a phase."""
        pairs = zip(self.windows, self.x.shape[2:], strict=True)
        return (self.x.shape[0], *(window.outputs(extent) for window, extent in pairs))

    @property
    def phase_windows(self) -> tuple[Window, ...] | None:
        """See `Spread.windows`; None: there are no phases, or sizes are symbols."""
        return self.spread and self.spread.windows(self.made[2:], self.counted[1:])

    @cached_property
    def y(self) -> tuple[Expr, ...]:
        """Dims of the output."""
        images, *outputs = self.counted
        return self.made or (images, Expr.of(self.k), *outputs)

    @cached_property
    def pixels(self) -> Expr:
        """Pixels of the output: rows of the product."""
        return product(self.counted)

    def panel_bytes(self, element_bytes: int) -> int:
        """Bytes of a panel of channels, of elements that are multiplied."""
        is_narrow = self.c_group * element_bytes <= NARROW_BYTES
        return NARROW_BYTES if is_narrow else wgmma.ROW_BYTES

    def panel(self, element_bytes: int) -> int:
        """Channels of it."""
        return self.panel_bytes(element_bytes) // element_bytes

    def panels(self, element_bytes: int) -> int:
        """Panels of a group."""
        panel = self.panel(element_bytes)
        return self.padded_channels(panel) // panel

    def panel_steps(self, element_bytes: int) -> tuple[int, ...]:
        """The instructions along k that the channels of each panel of a pixel reach; the others
        would multiply zeros."""
        panel, left = self.panel(element_bytes), self.c_group
        steps = []
        while left > 0:
            steps.append(-(-min(left, panel) * element_bytes // wgmma.K_BYTES))
            left -= panel
        return tuple(steps)

    def padded_channels(self, panel: int) -> int:
        """Channels of a group, in whole panels."""
        return -(-self.c_group // panel) * panel

    def depth(self, panel: int) -> int:
        """k of the product."""
        return self.taps * self.padded_channels(panel)

    def image(self, panel: int) -> tuple[Tensor, tuple[Window, ...]]:
        """X as im2col loads see it, and the windows of its spatial axes.

        A panel that reaches past the channels of a group would bring those of the next one, which
        zeros of the filter do not undo where they are infinite.  There X is images of groups,
        [groups, C / groups, N, spatial]: the map ends with the group's channels, and N is one more
        axis that pixels are counted through.
        """
        if self._ends_with_panels(panel):
            return self.x, self.windows
        n, _, *spatial = self.x.shape
        n_stride, c_stride, *strides = self.x.layout
        dims = (Expr.of(self.groups), Expr.of(self.c_group), n, *spatial)
        image = replace(
            self.x, dims=dims, strides=(c_stride * self.c_group, c_stride, n_stride, *strides)
        )
        return image, (Window(1), *self.windows)

    def _ends_with_panels(self, panel: int) -> bool:
        """Whether no panel of a group's channels reaches those of another."""
        return self.groups == 1 or self.c_group % panel == 0

    def is_split_by_groups(self, panel: int) -> bool:
        """Whether groups are an axis of `image`."""
        return self.image(panel)[0] is not self.x

    def filter(self, panel: int) -> tuple[Tensor, tuple[int, int]]:
        """W as TMA brings it, and its axes of output and input channels.

        A transposed one counts a group's input channels among those of all groups, and has groups
        as its first axis where `image` has.
        """
        out, in_ = self.filter_axes
        if not self.is_transposed or self._ends_with_panels(panel):
            return self.w, (out, in_)
        stride = self.w.layout[in_]
        dims = (Expr.of(self.groups), Expr.of(self.c_group), *self.w.shape[1:])
        strides = (stride * self.c_group, stride, *self.w.layout[1:])
        return replace(self.w, dims=dims, strides=strides), (1 + out, 1 + in_)

    def filter_place(self, output: Number, channel: Number) -> list[Number]:
        """W's first two coordinates of an output channel, counted through all groups, and an input
        channel of its group."""
        if not self.is_transposed:
            return [output, channel]
        group = output // self.k_group if self.groups > 1 else 0
        own = output - group * self.k_group
        return [group * self.c_group + channel, own]

    @property
    def is_filter_k_major(self) -> bool:
        """Whether W's input channels are contiguous, not its output channels."""
        return not self.is_transposed or self.w.layout[0].constant == 1

    def refusal(self, panel: int) -> str | None:
        """Why TMA can't bring an operand."""
        image, windows = self.image(panel)
        if image.rank > tma.MAX_RANK:
            return f"X of groups of {self.c_group} channels, with {self.x.rank - 2} spatial dims"
        if (what := im2col.refusal(image, windows)) is not None:
            return f"X with {what}"
        w, (out, in_) = self.filter(panel)
        axes = (in_, out) if self.is_filter_k_major else (out, in_)
        if (what := tma.refusal(w, axes)) is not None:
            return f"W with {what}"
        return None


def window_of_gradient(window: Window) -> Window:
    """How the filter moves over dY, where it moves so over X, by a stride of 1."""
    assert window.stride == 1, f"{window} has gradients of several phases"
    pre, post = window.reach - window.pre, window.reach - window.post
    return replace(window, pre=pre, post=post)


def conv_of(fusion: Fusion) -> Convolved:
    """The convolution of a fusion that has one, forward or its gradient by the image."""
    return next(op for op in fusion.ops if isinstance(op, Convolved))


def shape_of(op: Convolved) -> ConvShape:
    return ConvShape.of(
        op.op_name,
        op.moved,
        op.w,
        op.made.shape,
        op.pre_padding,
        op.post_padding,
        op.stride,
        op.dilation,
        op.convolution_mode,
    )


@remembered
def conv_shape_of(fusion: Fusion) -> ConvShape:
    """The shape of the convolution of `conv_of`."""
    return shape_of(conv_of(fusion))


def conv_of_call(region: Region, call: Any) -> ConvShape:
    """The convolution that a call of an anchor stands for; X and W may be computed."""
    attributes = structure.anchor_of(call).attributes
    names = ("pre_padding", "post_padding", "stride", "dilation")
    pre, post, stride, dilation = (
        dnn.attribute_value(attributes[f"dnn.{name}"], tuple) for name in names
    )
    name = ir.StringAttr(attributes["dnn.anchor"]).value
    mode = ir.StringAttr(attributes["dnn.convolution_mode"]).value
    x, w = (_tensor_of(region, value) for value in call.operands)
    made = region.dims_of(call.results[0])
    return ConvShape.of(name, x, w, made, pre, post, stride, dilation, mode)


def is_gradient(call: Any) -> bool:
    """Whether a call of a convolution's anchor is of its gradient by the image."""
    name = structure.anchor_of(call).attributes["dnn.anchor"]
    return ir.StringAttr(name).value == ConvDgrad.op_name


def _tensor_of(region: Region, value: Any) -> Tensor:
    """An argument's tensor, or one of its type that is computed."""
    return region.arguments.get(value) or dnn.read_tensor(value.type, {}, region.symbols)


def sums_of_call(call: Any) -> DType:
    """The type that the convolution's sums are kept in, which it returns."""
    return dnn.read_type(ir.RankedTensorType(call.results[0].type).element_type)


def pixel_matrix(tensor: Tensor, groups: int) -> Tensor | None:
    """A tensor of Y's dims as matrices [groups, pixels, K / groups]; None: pixels have no stride.

    Example, [N, K, P, Q] with channels last: strides of K / groups, K and 1.
    """
    axes = [i for i in (0, *range(2, tensor.rank)) if tensor.shape[i].constant != 1]
    for outer, inner in itertools.pairwise(axes):
        if tensor.layout[outer] != tensor.layout[inner] * tensor.shape[inner]:
            return None
    k_group, channel = _fixed(tensor.shape[1]) // groups, tensor.layout[1]
    pixel = tensor.layout[axes[-1]] if axes else channel * tensor.shape[1]
    dims = (Expr.of(groups), product(tensor.shape[i] for i in (0, *range(2, tensor.rank))))
    return replace(
        tensor,
        dims=(*dims, Expr.of(k_group)),
        strides=(channel * k_group, pixel, channel),
    )


def image_view(tensor: Tensor, groups: int) -> Tensor:
    """A tensor [N, K, P, Q] as [N, groups, K / groups, P, Q], so that boxes end with a group."""
    n, k, p, q = tensor.shape
    n_stride, k_stride, *strides = tensor.layout
    k_group = k // groups
    return replace(
        tensor,
        dims=(n, Expr.of(groups), k_group, p, q),
        strides=(n_stride, k_stride * k_group, k_stride, *strides),
    )


def _fixed(extent: Expr) -> int:
    assert extent.constant is not None, f"{extent} is no fixed size"
    return extent.constant
