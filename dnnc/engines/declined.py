"""Why an engine declines a fusion: what none of them takes, then its own support surface."""

from __future__ import annotations

from ..dialect.fusion import Fusion
from ..dialect.tensor import undocumented
from ..errors import Status
from ..target import Target
from .engine import Engine, Reason


def reasons_against(engine: Engine, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
    """Every clause that the fusion fails; empty: the engine takes it."""
    return _reordering_reasons(fusion) or engine.supports(fusion, target)


def _reordering_reasons(fusion: Fusion) -> tuple[Reason, ...]:
    """Elements lie where strides say: no engine knows cuDNN's other orders of them.  Where those of
    virtual tensors lie is nobody's concern."""
    return tuple(
        Reason(
            Status.NOT_SUPPORTED_LAYOUT,
            "reordering",
            f"{tensor.label} is reordered as {tensor.reordering}{undocumented(tensor.reordering)}",
            "NONE",
        )
        for tensor in (*fusion.inputs, *fusion.outputs)
        if tensor.reordering != "NONE" and not tensor.is_virtual
    )
