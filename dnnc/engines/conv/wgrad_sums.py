# pyright: basic
"""Sums of parts of the pixels: the first kernel leaves them, the second adds them up.

    first    [parts][dW's dims] of f32, channels last, in the workspace
    second   dW = g2(part 0 + part 1 + ...), in this order

The second kernel is that of engine pointwise, whose region has the sums in place of the gradient.
The order is fixed, so the result is the same in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.walk.index import Coordinate
from ...codegen.walk.region_walk import Leaf
from ...dialect import dnn
from ...dialect.tensor import Tensor, packed_strides
from ...expr import Expr
from ...mlir import arith, ir
from ..elementwise.pointwise import POINTWISE, iteration
from ..product.region_sm90 import product_calls
from .wgrad import PITCH

_UID = 1 << 61  # that no tensor of a region has
_ALIGNMENT = 256  # of what lies in the workspace
_TOGETHER = 8  # parts that a thread loads at the same time
_THREADS = 64  # of a block of the second kernel: few elements keep many SMs busy
_ACCESS_BYTES = 8  # of an element's narrowest tensor, at most


def sums_of(region: Region) -> Tensor:
    """The tensor of one part's sums."""
    (call,) = product_calls(region)
    dims = region.dims_of(call.results[0])
    padded = [*dims]
    channels = dims[1].constant
    assert channels is not None, "channels are a fixed size"
    padded[1] = Expr.of(-(-channels // PITCH) * PITCH)
    type_ = dnn.read_type(ir.RankedTensorType(call.results[0].type).element_type)
    strides = packed_strides(padded, (0, *range(2, len(dims)), 1))
    return Tensor(uid=_UID, dims=dims, strides=strides, dtype=type_, alignment=_ALIGNMENT)


def first_region(region: Region, sums: Tensor) -> Region:
    """The region of the first kernel: the gradient alone."""
    (call,) = product_calls(region)
    value = call.results[0]
    arguments = {v: t for v, t in region.arguments.items() if v in list(call.operands)}
    return replace(region, arguments=arguments, outputs=((value, sums),))


@dataclass(frozen=True, eq=False)
class SummedRegion(Region):
    """The region of the second kernel, in which parts' sums stand for the gradient.

    value: the gradient.  parts: how many.
    """

    value: Any = None
    parts: int = 1

    @staticmethod
    def of_sums(region: Region, sums: Tensor, parts: int) -> SummedRegion:
        (call,) = product_calls(region)
        operands, value = list(call.operands), call.results[0]
        arguments = {v: t for v, t in region.arguments.items() if v not in operands}
        arguments[value] = sums
        return SummedRegion(
            region.function, arguments, region.outputs, region.symbols, value, parts
        )

    def leaves(self, kernel: Kernel, *, is_exclusive: bool = True) -> dict[Any, Leaf]:
        found = super().leaves(kernel, is_exclusive=is_exclusive)
        return {**found, self.value: PartSums(kernel, self.arguments[self.value], self.parts)}

    def emit(self, output: Output) -> None:
        """Adds the second kernel to a fusion's."""
        groups, width = iteration(self, _ACCESS_BYTES)
        tile = {"loops": groups, "vector_elems": width, "threads": _THREADS, "unroll": 1}
        name = f"{output.name}_sum"
        own = Output(output.gpu_module, output.target, name, tensors=output.tensors)
        POINTWISE.emit(self, {}, tile, own)
        output.steps += own.steps
        output.buffers |= own.buffers


@dataclass(frozen=True, eq=False)
class PartSums:
    """Elements of all parts, added up: a leaf of a walk.

    sums: of the first one; the others follow.
    """

    kernel: Kernel
    sums: Tensor
    parts: int

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        pointer, span = self.kernel.pointer(self.sums, is_exclusive=True), self.sums.span().constant
        element = ops.f32_type()

        def part(number: Any) -> Any:
            offset = ops.mul(ops.to_i64(number), span)
            there = ops.gep(pointer, offset, element)
            return GlobalTensor(self.kernel, self.sums, pointer_=there).load(at, width)

        def several(first: Any, count: int, total: Any) -> Any:
            loaded = [part(ops.add(first, i)) for i in range(count)]
            for value in loaded:
                total = arith.AddFOp(total, value).result
            return total

        total, rest = part(0), self.parts - 1
        whole = rest // _TOGETHER * _TOGETHER
        if whole:
            (total,) = ops.for_(
                1, 1 + whole, _TOGETHER, [total], lambda i, c: [several(i, _TOGETHER, c[0])]
            )
        return several(1 + whole, rest - whole, total)


def place_sums(output: Output, sums: Tensor, parts: int) -> None:
    """Asks for the workspace of all parts' sums."""
    assert sums.uid is not None, "sums have a uid"
    bytes_ = sums.span() * (parts * sums.type.bits // 8)
    output.tensors[sums.uid] = output.workspace("sums", bytes_)
