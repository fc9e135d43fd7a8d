# pyright: basic
"""The base of the engines of products with `mma.sync`, whatever is multiplied."""

from __future__ import annotations

from dataclasses import dataclass

from ... import dtypes
from ...dialect.fusion import Fusion
from ...dialect.ops import Reduction
from ...dtypes import DType
from ...expr import Expr, typical
from ...target import Target
from ..engine import Prediction
from ..surface import bytes_of
from .choice_sm80 import Sm80Choice
from .knobs_sm80 import threads_of
from .model_sm80 import TiledProduct, tflops_of
from .pattern import is_heavy
from .shared_layout_sm80 import SharedLayout
from .work import ProductWork

OPERAND_TYPES = (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.i8)


@dataclass(frozen=True)
class Work:
    """reductions: after the products."""

    product: ProductWork
    is_heavy: bool
    reductions: tuple[Reduction, ...] = ()

    @staticmethod
    def of(fusion: Fusion, m: Expr, n: Expr, k: Expr, count: Expr) -> Work:
        """At typical sizes."""
        sizes = (typical(m), typical(n), typical(k), typical(count))
        moved_bytes = bytes_of((*fusion.inputs, *fusion.outputs))
        reductions = tuple(op for op in fusion.ops if isinstance(op, Reduction))
        return Work(ProductWork(*sizes, moved_bytes), any(map(is_heavy, fusion.ops)), reductions)

    def predict(
        self,
        choice: Sm80Choice,
        operand: DType,
        load_times: tuple[float, float],
        target: Target,
        accesses: tuple[int, int] = (16, 16),
        beside: int = 1,
    ) -> Prediction:
        """operand: type of A and B.  load_times, accesses: of their tiles, see `TiledProduct`.

        beside: see `SharedLayout`.
        """
        return TiledProduct(
            self.product,
            choice.tile,
            choice.depth,
            choice.stages,
            threads_of(choice.tile),
            SharedLayout.of_choice(choice, operand.bits // 8, beside).bytes,
            operand.bits // 8,
            load_times,
            accesses,
            choice.products or 1,
            self.is_heavy,
            tflops_of(operand, target),
        ).predict(target)
