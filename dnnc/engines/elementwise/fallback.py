# pyright: basic
"""Engine fallback: any graph with one level of sums, each thread on its own.

A thread computes a fragment of the outputs; what it needs of a matrix product, a convolution or a
reduction it sums by itself, in the order of the indices, over operands that it reads through the
caches.
Right for every shape, stride and type; its speed is what that leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...codegen.totals import reduce
from ...codegen.walk.region_walk import Reducer
from ...dialect.fusion import Fusion
from ...dialect.op import Op
from ...dialect.ops import Matmul, MoeGroupedMatmul, RaggedStore, Reduction
from ...dialect.ops.conv import Convolution
from ...expr import typical
from ...target import Target
from ..engine import Knob, Knobs, Prediction, Reason
from ..surface import LAUNCH_SECONDS, fp8_reasons, memory_seconds, pattern_reason, too_large_reasons
from .pointwise import FragmentEngine

# Multiply-adds a second that the loop over global memory reaches, as a share of the f32 rate.
_ARITHMETIC_SHARE = 0.05

_SUMS = (Matmul, MoeGroupedMatmul, Convolution, RaggedStore)


@dataclass(frozen=True)
class FallbackEngine(FragmentEngine):
    """See the file's docstring."""

    name: str = "fallback"
    index: int = 2
    families: tuple[str, ...] = (
        "product",
        "convolution",
        "convolution gradient",
        "packing",
        "reduction",
    )
    inlines_anchors: bool = True
    reducer: Reducer | None = reduce.serial
    support: tuple[str, ...] = (
        "graphs of pointwise, view, matmul, moe_grouped_matmul, conv_fprop, conv_dgrad, "
        "conv_wgrad, ragged_store and reduction operations in which no sum needs another sum; "
        "outputs of equal dims; rank 1 to 8, any strides, types, broadcasts",
    )

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        reasons: list[Reason] = []
        sums = [op for op in fusion.ops if isinstance(op, _SUMS) or op.role == "reduction"]
        strange = [op for op in fusion.ops if op.role == "anchor" and op not in sums]
        if strange:
            what = ", ".join(op.label for op in strange)
            supported = (
                "pointwise, view, matmul, moe_grouped_matmul, conv_fprop, conv_dgrad, conv_wgrad, "
                "ragged_store, reduction"
            )
            reasons.append(pattern_reason(what, supported, strange[0]))
        if not sums and not strange:
            reasons.append(pattern_reason("no sum", "a matmul, a convolution or a reduction"))
        for op in sums:
            nested = [other for other in sums if other in self._below(fusion, op)]
            if nested:
                what = f"{op.label} needs {nested[0].label}"
                reasons.append(pattern_reason(what, "sums that do not need each other", op))
        first = fusion.outputs[0]
        if any(output.shape != first.shape for output in fusion.outputs):
            reasons.append(pattern_reason("outputs of different dims", "outputs of equal dims"))
        reasons += fp8_reasons(fusion, target) + too_large_reasons(fusion)
        return (*reasons, *self._boolean_reasons(fusion))

    def _below(self, fusion: Fusion, op: Op) -> set[Op]:
        return {other for tensor in op.operands for other in fusion.upstream(tensor)}

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("LOAD_SIZE", (8, 16, 4, 2, 1), "bytes of the widest access"),
    )

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        return [{"LOAD_SIZE": 8}]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        memory = memory_seconds(fusion, target, blocks=1 << 20)
        # An element computes all sums that it needs, though others need the same.
        elements = typical(fusion.outputs[0].elements())
        terms = sum(
            _terms(op) * max(1, elements // max(1, typical(op.results[0].elements())))
            for op in fusion.ops
        )
        # An output's sum runs in one thread, about 60 cycles a term however idle the rest is.
        chain = max((_chain(op) for op in fusion.ops), default=0) * 60 / 1.5e9
        busy = 2 * terms / (target.f32_tflops * 1e12 * _ARITHMETIC_SHARE)
        bound = memory.bound
        if busy + chain > memory.seconds - LAUNCH_SECONDS:
            bound = "arithmetic in single threads"
        # Memory does not hide it: of engines that it binds alike, this one is the last.
        return Prediction(memory.seconds + busy + chain, bound)


def _terms(op: Op) -> int:
    """Elements that an operation's sums go over."""
    if isinstance(op, Matmul):
        return typical(op.c.elements() * op.a.shape[-1])
    if isinstance(op, MoeGroupedMatmul):
        return typical(op.output.elements()) * _chain(op)
    if isinstance(op, Convolution):
        return typical(op.results[0].elements()) * _chain(op)
    if isinstance(op, RaggedStore):
        return typical(op.packed.elements()) * _chain(op)
    return typical(op.x.elements()) if isinstance(op, Reduction) else 0


def _chain(op: Op) -> int:
    """Terms of one sum."""
    if isinstance(op, Matmul):
        return typical(op.a.shape[-1])
    if isinstance(op, MoeGroupedMatmul):  # the products of other experts are dropped
        return typical(op.experts * op.token.shape[-1])
    if isinstance(op, Convolution):
        return typical(op.terms)
    if isinstance(op, RaggedStore):  # which sequence a row is of
        return typical(op.x.shape[0])
    if isinstance(op, Reduction):
        return typical(op.x.elements()) // max(1, typical(op.y.elements()))
    return 0


FALLBACK = FallbackEngine()
