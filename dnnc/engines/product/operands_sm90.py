"""How the operands of a fusion's products come to shared memory, as plain data.

An operand that TMA brings as the instruction reads it is an input of the fusion.  What g1 gives,
or TMA can't bring so, passes through the registers of the producer's threads, which read inputs in
global memory or in raw tiles that TMA brings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...codegen.ampere.operand_tile import access_bytes, is_unit
from ...codegen.hopper import tma, wgmma
from ...dialect.fusion import Fusion
from ...dialect.tensor import Tensor
from ..views.reads import model_among, reads_of

MOST_RAW_BITS = 32  # of an element of a raw tile: wider ones would leave room for nothing else


@dataclass(frozen=True)
class Raw:
    """An input that TMA brings, from which an operand's elements are computed.

    place: among the fusion's inputs.  bits: of an element.
    """

    place: int
    bits: int


@dataclass(frozen=True)
class OperandFacts:
    """How an operand of a product comes to its tile of a stage.

    path: "tma", as the instruction reads it; "registers", through those of the producer's threads;
    or "rewritten", by warps of the producer (`conv.rewriting_sm90`).
    k_contiguous: whether k is contiguous of the tile, not rows.  loads_along_k: the same of what it
    is loaded from.  is_aligned: whether that is loaded eight elements at once.
    raw: whose raw tiles threads read, contiguous as loads_along_k says; None: global memory.
    fragment: from what consumers can compute the operand in registers, with k contiguous.
    row_bytes: of the tile.
    raws: of path "rewritten".  beside: of each of these, bytes of a row of its raw tile beside the
    operand's; 0: the raw tile lies where the operand is computed.
    """

    is_a: bool
    path: str = "tma"
    k_contiguous: bool = True
    loads_along_k: bool = True
    is_aligned: bool = True
    raw: Raw | None = None
    fragment: Raw | None = None
    row_bytes: int = wgmma.ROW_BYTES
    raws: tuple[Raw, ...] = ()
    beside: tuple[int, ...] = ()


def operand_of(
    fusion: Fusion, operand: Tensor, row: wgmma.Instruction, *, is_a: bool, begins_anywhere: bool
) -> OperandFacts:
    """How one operand comes; begins_anywhere: its tiles begin at rows that are no multiples of
    theirs, as those of grouped rows do."""
    depth, rows = axes_of(operand, is_a=is_a)
    is_stored = operand in fusion.inputs and not operand.is_by_value  # a constant is none
    if is_stored and tma.refusal(operand, (depth, rows)) is None:
        return OperandFacts(is_a)
    takes_either = row.takes_mn_major and not begins_anywhere
    if is_stored and takes_either and tma.refusal(operand, (rows, depth)) is None:
        return OperandFacts(is_a, k_contiguous=False, loads_along_k=False)
    reads = reads_of(fusion, operand)
    model = model_among(reads)
    contiguous, is_aligned = None, False
    if model is not None:
        contiguous = next((axis for axis in (depth, rows) if is_unit(model, axis)), None)
    if model is not None and contiguous is not None:  # eight elements at once
        is_aligned = access_bytes(model, contiguous) >= min(16, model.type.bits)
    loads_along_k, raw = contiguous != rows, None
    if begins_anywhere and not loads_along_k:
        # TMA takes no box that begins inside 16 bytes of contiguous rows.
        is_aligned = False
    else:
        axes = (depth, rows) if loads_along_k else (rows, depth)
        fitting = [t for t in _raw_inputs(operand, reads, axes) if t.type.bits <= MOST_RAW_BITS]
        raw = _widest(fusion, fitting)
    return OperandFacts(
        is_a,
        "registers",
        k_contiguous=loads_along_k or not takes_either,
        loads_along_k=loads_along_k,
        is_aligned=is_aligned or raw is not None,
        raw=raw,
        fragment=_widest(fusion, _raw_inputs(operand, reads, (depth, rows))),
    )


def axes_of(operand: Tensor, *, is_a: bool) -> tuple[int, int]:
    """The axes of k and of the rows."""
    last = operand.rank - 1
    return (last, last - 1) if is_a else (last - 1, last)


def _raw_inputs(
    operand: Tensor, reads: dict[Tensor, set[bool]], axes: tuple[int, int]
) -> list[Tensor]:
    """The inputs that g1 reads only at the operand's own coordinates, and whose tiles TMA can
    bring, with rows along axes[0]."""
    return [
        t for t, ways in reads.items()
        if ways == {True} and t.shape == operand.shape and not t.is_by_value
        and tma.refusal(t, axes) is None
    ]  # fmt: skip


def _widest(fusion: Fusion, tensors: Collection[Tensor]) -> Raw | None:
    """The first of the inputs of most bits, among some."""
    fitting = [Raw(place, t.type.bits) for place, t in enumerate(fusion.inputs) if t in tensors]
    return max(fitting, key=lambda raw: raw.bits, default=None)
