"""Which of the engines that decline a fusion came nearest to it, and the errors that name it.

The nearest is the first by these rules, in this order:
1. An engine of the fusion's families comes before one that is made for other operations.
2. An engine for the target comes before one that is only for another.
3. An engine made for attention, or for its gradient, comes before one of single products.
4. The further a fusion got through an engine's support surface, the nearer the engine is.  A
   surface is read so: operations, architecture, types, shapes and layouts, configurations.
5. Fewer clauses that fail are nearer.
6. The order of `engines.all_engines`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dialect.fusion import Fusion, partition, remembered
from ..dialect.graph import OperationGraph
from ..dialect.op import Op
from ..dialect.ops import (
    ConvDgrad,
    ConvFprop,
    ConvWgrad,
    Matmul,
    MoeGroupedMatmul,
    PeerReduction,
    RaggedStore,
    Resample,
    ResampleBackward,
)
from ..dialect.tensor import Tensor
from ..engines import all_engines
from ..engines.engine import Reason
from ..errors import DnncError, Status
from ..target import Target
from ..visible import counted
from .choice import Refusal, barred_choices, choices, refusals
from .inputs import Inputs

_ATTENTION, _ATTENTION_GRADIENT = "attention", "attention gradient"
_FAMILY_OF_HEAVY: dict[type[Op], str] = {
    Matmul: "product",
    MoeGroupedMatmul: "product",
    ConvFprop: "convolution",
    ConvDgrad: "convolution gradient",
    ConvWgrad: "convolution gradient",
    Resample: "resampling",
    ResampleBackward: "resampling",
    PeerReduction: "exchange",
    RaggedStore: "packing",
}


@remembered
def families_of(fusion: Fusion) -> frozenset[str]:
    """The kinds of work of a fusion: by its heavy operations, else by its reductions, else
    pointwise."""
    found = {_FAMILY_OF_HEAVY[type(op)] for op in fusion.with_role("anchor")}
    ends = [op for op in fusion.ops if isinstance(op, Matmul) and _ends_attention(fusion, op)]
    if ends:
        is_gradient = sum(_multiplies_two_products(fusion, op) for op in ends) > 1  # dQ, dK
        found.add(_ATTENTION_GRADIENT if is_gradient else _ATTENTION)
    if not found:
        found.add("reduction" if fusion.with_role("reduction") else "pointwise")
    return frozenset(found)


def _ends_attention(fusion: Fusion, op: Matmul) -> bool:
    """Whether it multiplies what is made of another product by way of a reduction."""
    above = {other for tensor in op.operands for other in fusion.upstream(tensor)}
    return any(isinstance(other, Matmul) for other in above) and any(
        other.role == "reduction" for other in above
    )


def _multiplies_two_products(fusion: Fusion, op: Matmul) -> bool:
    """Whether an operand is made of two products, pointwise, as dS is of the scores and of dP."""
    return any(len(_products_of(fusion, tensor)) > 1 for tensor in op.operands)


def _products_of(fusion: Fusion, tensor: Tensor) -> frozenset[Op]:
    """The matmuls that a tensor is made of, without those that these are made of."""
    found = frozenset(filter(_is_matmul, fusion.upstream(tensor)))
    operands = [operand for op in found for operand in op.operands]
    return found.difference(*[fusion.upstream(operand) for operand in operands])


def _is_matmul(op: Op) -> bool:
    return isinstance(op, Matmul)


def is_related(refusal: Refusal) -> bool:
    """Whether the engine is made for what the fusion does."""
    return not families_of(refusal.fusion).isdisjoint(refusal.engine.families)


def nearest_first(found: Sequence[Refusal]) -> list[Refusal]:
    """Refusals of one fusion, by the rules above."""
    return sorted(
        found,
        key=lambda refusal: (
            not is_related(refusal),
            refusal.engine.only_target not in ("", refusal.target.name),
            _is_of_products(refusal),
            -min(map(_progress, refusal.reasons)),
            len(refusal.reasons),
        ),
    )


def _is_of_products(refusal: Refusal) -> bool:
    """Whether the fusion has attention, and the engine is not made for it."""
    families = families_of(refusal.fusion) & {_ATTENTION, _ATTENTION_GRADIENT}
    return bool(families) and families.isdisjoint(refusal.engine.families)


def _progress(reason: Reason) -> int:
    """How much of a surface was read before this clause."""
    if reason.clause == "configurations":
        return 4
    if reason.clause == "architecture":
        return 1
    return {
        Status.NOT_SUPPORTED_GRAPH_PATTERN: 0,
        Status.NOT_SUPPORTED_ARCH_MISMATCH: 2,  # of types that an architecture lacks
        Status.NOT_SUPPORTED_DATA_TYPE: 2,
    }.get(reason.status, 3)


def decisive_reason(refusal: Refusal) -> Reason:
    """The clause that failed first, in the order in which surfaces are read."""
    return min(refusal.reasons, key=_progress)


# ---- texts


def declined_text(found: Sequence[Refusal]) -> tuple[str, Reason]:
    """The text of the nearest of the engines that decline a fusion, and the clause."""
    first, *others = nearest_first(found)
    reason = decisive_reason(first)
    alike = all(decisive_reason(other) == reason for other in others)
    who = "every engine" if alike else f"{first.engine.name}, the nearest,"
    return f"{who} declines {reason.clause}: {reason.what}{more_clauses(first)}", reason


def more_clauses(refusal: Refusal) -> str:
    """The other clauses that fail: ` (also head size: Dv = 264)`, or how many."""
    first = decisive_reason(refusal)
    others = [reason for reason in refusal.reasons if reason is not first]
    if len(others) == 1:
        return f" (also {others[0].clause}: {others[0].what})"
    return f" (also {counted(len(others), 'other clause')})" if others else ""


def every_reason(found: Sequence[Refusal]) -> list[str]:
    """A line for each clause that each engine declines, nearest engine first."""
    return [f"{r.engine.name}: {reason}" for r in nearest_first(found) for reason in r.reasons]


# ---- errors


def no_config_error(
    graph: OperationGraph, target: Target, inputs: Inputs | None = None
) -> DnncError:
    """Why nothing runs the graph: the first operation that no engine takes, with the nearest
    engine's reason; `details` have every such operation and every engine's reasons."""
    alone = partition(graph, [[op] for op in graph.live_ops])
    (whole,) = partition(graph, [graph.live_ops])
    refused = [(f, found) for f in alone if len(found := refusals(f, target)) == len(all_engines())]
    if refused:
        return _declined_error(graph, target, refused)
    for fusion in (*alone, whole):
        rules = dict.fromkeys(str(rule) for _, rule in barred_choices(fusion, target, inputs))
        if rules and not choices(fusion, target, inputs=inputs):
            return DnncError(
                Status.NOT_SUPPORTED,
                f"every config of {_name(fusion)} for {target} is barred: by {', by '.join(rules)}",
                "a config that no rule bars",
                f"graph '{graph.name}'",
                made_at=fusion.ops[0].made_at,
            )
    return _together_error(graph, target, whole)


def _declined_error(
    graph: OperationGraph, target: Target, refused: Sequence[tuple[Fusion, list[Refusal]]]
) -> DnncError:
    fusion, found = refused[0]
    others = len(refused) - 1
    nor = f" (nor {counted(others, 'other operation')})" if others else ""
    said, reason = declined_text(found)
    return DnncError(
        reason.status,
        f"no engine for {target} takes {_name(fusion)}{nor}: {said}",
        reason.supported,
        f"graph '{graph.name}'",
        made_at=subject(reason, fusion).made_at,
        details="\n".join(
            line
            for each, declined in refused
            for line in (f"{_name(each)}:", *(f"  {said}" for said in every_reason(declined)))
        ),
    )


def _together_error(graph: OperationGraph, target: Target, whole: Fusion) -> DnncError:
    """Each operation has an engine, and neither all of them together nor parts have one."""
    found = refusals(whole, target)
    said, reason = declined_text(found)
    return DnncError(
        reason.status,
        f"no engine for {target} takes {_name(whole)}: {said}",
        reason.supported,
        f"graph '{graph.name}'",
        made_at=subject(reason, whole).made_at,
        details="\n".join(every_reason(found)),
    )


def subject(reason: Reason, fusion: Fusion) -> Op:
    """The operation that a reason is about, else the one that the fusion grew around."""
    return reason.about or fusion.anchor or fusion.ops[0]


def _name(fusion: Fusion) -> str:
    first, *others = fusion.ops
    count = f"all {len(fusion.ops)}" if len(others) > 1 else "both"
    return f"{count} operations together" if others else first.label
