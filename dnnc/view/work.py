"""Arithmetic and bytes of a fusion at typical sizes, and the rates that bound it on a target."""

from __future__ import annotations

from dataclasses import dataclass

from ..dialect.fusion import Fusion
from ..dialect.op import Op
from ..dialect.ops import (
    Matmul,
    MoeGroupedMatmul,
    RaggedStore,
    Reduction,
    Resample,
    ResampleBackward,
)
from ..dialect.ops.conv import Convolution
from ..dialect.tensor import Tensor
from ..engines.surface import RATE_OF, bytes_of
from ..expr import typical
from ..target import Target

TENSOR_CORE = "TENSOR_CORE"  # the numerical note of kernels that use them
# Keys of a target's rates -> what a page calls them, in the order in which operands decide.
_TENSOR_CORE_RATES = (("f16", "16 bits"), ("bf16", "16 bits"), ("f32", "tf32"), ("i8", "8 bits"))


@dataclass(frozen=True)
class Roof:
    """A rate of arithmetic that a target has.  name: what has it.  rate: operations a second."""

    name: str
    rate: float


@dataclass(frozen=True)
class Work:
    """The work of a fusion: operations, bytes of memory read and written once, its roof."""

    operations: int
    bytes: int
    roof: Roof

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / max(1, self.bytes)

    def least_seconds(self, target: Target) -> float:
        """The time at the roof: of memory or of arithmetic, whichever is more."""
        return max(self.operations / self.roof.rate, self.bytes / bandwidth(target))


def bandwidth(target: Target) -> float:
    """Bytes a second of device memory."""
    return target.dram_gbs * 1e9


def work_of(fusion: Fusion, notes: tuple[str, ...], target: Target) -> Work:
    """The work of a fusion.  notes: numerical notes of the choice."""
    operations = sum(map(_operations, fusion.ops))
    moved = bytes_of((*fusion.inputs, *fusion.outputs))
    return Work(operations, moved, _roof(fusion, notes, target))


def _operations(op: Op) -> int:
    """A multiply-add is two operations, all else one for each element; masks leave nothing out."""
    if isinstance(op, Matmul):
        return 2 * typical(op.c.elements() * op.a.shape[-1])
    if isinstance(op, MoeGroupedMatmul):
        return 2 * typical(op.output.elements() * op.token.shape[-1])
    if isinstance(op, Convolution):
        return 2 * typical(op.results[0].elements() * op.terms)
    if isinstance(op, Resample | ResampleBackward):
        windows = op.y if isinstance(op, Resample) else op.dy
        return typical(windows.elements()) * op.positions
    if isinstance(op, Reduction):
        return typical(op.x.elements())
    if isinstance(op, RaggedStore) or op.role == "view":
        return 0
    return sum(typical(tensor.elements()) for tensor in op.results)


def _roof(fusion: Fusion, notes: tuple[str, ...], target: Target) -> Roof:
    """Tensor cores at the rate of the product's operands, else arithmetic on f32."""
    products = [op for op in fusion.ops if isinstance(op, Matmul | MoeGroupedMatmul | Convolution)]
    if TENSOR_CORE in notes and products:
        types = {_loaded(fusion, tensor).type for tensor in products[0].operands[:2]}
        found = {RATE_OF[kind] for kind in types if kind in RATE_OF}
        # Operands of two types are multiplied as 16 bits if one has them, else as the wider one.
        for rate, shown in _TENSOR_CORE_RATES:
            if rate in found:
                return Roof(f"tensor cores, {shown}", target.mma_tflops[rate] * 1e12)
    return Roof("f32 arithmetic", target.f32_tflops * 1e12)


def _loaded(fusion: Fusion, tensor: Tensor) -> Tensor:
    """The tensor that an operand is loaded as: views of a tensor are read from it."""
    while (op := fusion.producers.get(tensor)) is not None and op.role == "view":
        tensor = op.operands[0]
    return tensor
