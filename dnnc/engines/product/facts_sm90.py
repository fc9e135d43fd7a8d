# pyright: basic
"""The facts of a fusion that the knobs of matmul_sm90 depend on: read once, as plain data.

A few hundred configurations are judged for a graph.  Each is judged by its knobs and these facts
alone, so that graphs that differ in what the knobs don't see (most sizes) share the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from ... import dtypes
from ...codegen.hopper import tma, wgmma
from ...dialect.fusion import Fusion, remembered
from ...dialect.op import Op
from ...dialect.ops import Pointwise, Reduction
from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...expr import Expr
from .bits_sm90 import swaps_of_bits
from .model_sm90 import load_share
from .pattern import (
    Product,
    flowing_reductions,
    groups_of,
    is_along_columns,
    is_grouped,
    is_heavy,
    matmul_of,
    matmuls_of,
)
from .tile_sm90 import MOST_RAW_BITS, moves_by_tma, moves_turned, stages_turned, stored_by_tma

SPLITS = (1, 2, 4, 8)  # of SPLIT_K_SLC
MOST_SUMS = 256  # with what any epilogue needs beside them


@dataclass(frozen=True)
class ProductFacts:
    """See the file's docstring.  Pairs are by SWAP_AB, 0 and 1, or by operand, A and B.

    row: the instruction.  products: matmuls with one epilogue.  promotes: see `promotes`.
    splits: of k at most, so that each part has a panel.  operands: distinct A and B.
    no_fragments: by SWAP_AB, why consumers can't compute the operand along the rows; "": they can.
    raw_bits: by SWAP_AB, of an element of what they would compute it from.
    is_computed: by operand of the first product, whether g1 gives it; computes: any of all.
    has_integers: whether g1 reads integers of an operand's dims.
    is_async: by operand, whether TMA brings it as the instruction reads it, in every product.
    along_rows: of each product, by operand, whether rows, not k, may be contiguous.
    raw: of each distinct operand that may have a raw tile, (whether it is A, bytes of an element).
    swaps: values of SWAP_AB that boolean outputs take.  is_along_columns: whether the first output
    of the product's dims has contiguous columns.
    staged, loaded: by SWAP_AB, bytes of an element of outputs and of the epilogue's inputs that go
    through shared memory, where nothing that computes operands loads.
    is_direct: by SWAP_AB, whether outputs are stored from registers.
    can_turn: whether those of SWAP_AB=1 go through shared memory turned.
    reductions: in the epilogue; along_row: those of rows.  width: at most, of rows that are reduced
    and flow on; 0: none.  groups: of rows, at most.
    load_share: of TMA's rate, and narrow: of A and B, see `product.model_sm90`.
    most_sums: that two rows of a thread may have: twice the registers.
    rewrites: whether warps of the producer compute A in shared memory.  beside: bytes of a row of
    each tile that they read beside what they write.  row_bytes: of k of a stage.  groups_beside: of
    channels, each of which has so large a part of a row of B's tiles.  has_phases: whether tiles
    differ in their steps.
    """

    row: wgmma.Instruction
    products: int
    promotes: bool
    splits: int
    operands: tuple[int, int]
    no_fragments: tuple[str, str]
    raw_bits: tuple[int, int]
    is_computed: tuple[bool, bool]
    computes: bool
    is_async: tuple[bool, bool]
    along_rows: tuple[tuple[bool, bool], ...]
    raw: tuple[tuple[bool, int], ...]
    is_aligned: bool
    swaps: tuple[int, ...]
    is_along_columns: bool
    staged: tuple[tuple[int, ...], tuple[int, ...]]
    loaded: tuple[tuple[int, ...], tuple[int, ...]]
    is_direct: tuple[bool, bool]
    is_heavy: bool
    reductions: int
    along_row: int
    width: int
    is_grouped: bool
    groups: int
    load_share: float
    narrow: tuple[bool, bool] = (False, False)
    most_sums: int = MOST_SUMS
    rewrites: bool = False
    beside: tuple[int, ...] = ()
    row_bytes: int = wgmma.ROW_BYTES
    groups_beside: int = 1
    has_phases: bool = False
    has_integers: bool = False
    can_turn: bool = False

    @property
    def panel_k(self) -> int:
        """Elements of k of a stage."""
        return self.row_bytes // self.row.element_bytes


@remembered
def facts_of(fusion: Fusion) -> ProductFacts:
    """The facts of a fusion that the engine takes."""
    found = matmuls_of(fusion)
    op, row = found[0], instruction_for(found[0])
    dims = op.c.shape
    whole = [t for t in fusion.outputs if t.shape == dims]
    sides = [(t, is_a) for m in found for t, is_a in ((m.a, True), (m.b, False))]
    loads = epilogue_loads(fusion)
    can_turn = stages_turned(whole) and not is_grouped(fusion)
    return ProductFacts(
        row=row,
        products=len(found),
        promotes=promotes(op),
        splits=max(n for n in SPLITS if n == 1 or op.a.shape[-1].bounds()[0] >= n * row.panel_k),
        operands=(len({m.a for m in found}), len({m.b for m in found})),
        no_fragments=(_no_fragments(fusion, swaps=False), _no_fragments(fusion, swaps=True)),
        raw_bits=(_raw_bits(op.a, fusion, is_a=True), _raw_bits(op.b, fusion, is_a=False)),
        is_computed=(op.a in fusion.producers, op.b in fusion.producers),
        computes=computes_operands(fusion),
        is_async=(
            all(
                _comes_by_tma(t, fusion, is_a=True, starts_anywhere=is_grouped(fusion))
                for t, is_a in sides
                if is_a
            ),
            all(_comes_by_tma(t, fusion, is_a=False) for t, is_a in sides if not is_a),
        ),
        along_rows=tuple(
            (_may_lie_along_rows(m.a, row, is_a=True), _may_lie_along_rows(m.b, row, is_a=False))
            for m in found
        ),
        raw=tuple(
            (is_a, size)
            for t, is_a in dict.fromkeys(sides)
            if (size := _raw_element_bytes(fusion, t, row, is_a=is_a))
        ),
        is_aligned=all(_is_aligned(t) for t, _ in sides),
        swaps=tuple(swaps_of_bits(fusion)),
        is_along_columns=bool(whole) and is_along_columns(whole[0]),
        staged=(_staged(fusion, whole, swaps=False), _staged(fusion, whole, swaps=not can_turn)),
        loaded=(
            _loaded(fusion, loads, swaps=False),
            tuple(t.type.bits // 8 for t in loads if moves_turned(t))
            if can_turn
            else _loaded(fusion, loads, swaps=True),
        ),
        is_direct=(_is_direct(whole, swaps=False), _is_direct(whole, swaps=not can_turn)),
        is_heavy=any(is_heavy(other) for other in fusion.ops),
        reductions=len(fusion.with_role("reduction")),
        along_row=sum(_is_along_row(op) for op in fusion.ops),
        width=max(1, dims[-1].bounds()[1]) if flowing_reductions(fusion) else 0,
        is_grouped=is_grouped(fusion),
        groups=groups_of(fusion).bounds()[1],
        load_share=min(
            (load_share(pitch_bytes(t)) for t in (op.a, op.b) if _is_aligned(t)), default=1.0
        ),
        narrow=(not _is_aligned(op.a), not _is_aligned(op.b)),
        can_turn=can_turn,
        has_integers=any(
            t.type.is_integer and t.shape == operand.shape
            for operand, _ in sides
            if operand in fusion.producers
            for t in fusion.read_inputs(operand)
        ),
    )


def instruction_for(op: Product) -> wgmma.Instruction:
    return instruction_of_types(op.a.type, op.b.type)


def instruction_of_types(a: DType, b: DType) -> wgmma.Instruction:
    return wgmma.INSTRUCTIONS[a, b]


def promotes(op: Product) -> bool:
    return promotes_sums(op.a.type, op.compute_type)


def promotes_sums(a: DType, compute: DType) -> bool:
    """Whether sums have to be more exact than the accumulators of fp8 products are."""
    return a.is_fp8 and compute != dtypes.fast_float_for_fp8


def computes_operands(fusion: Fusion) -> bool:
    """Whether an operand comes out of g1."""
    return any(t in fusion.producers for op in matmuls_of(fusion) for t in (op.a, op.b))


# ---- what goes through shared memory after the product


def _staged(fusion: Fusion, whole: Sequence[Tensor], *, swaps: bool) -> tuple[int, ...]:
    if _is_swapped_groups(fusion, swaps=swaps):
        return ()
    return tuple(t.type.bits // 8 for t in whole if stored_by_tma(t, swaps=swaps))


def epilogue_loads(fusion: Fusion, *, has_exits: bool = False) -> list[Tensor]:
    """Inputs of the product's dims that only g2 reads, each at the product's own coordinates.

    These are what `region_sm90.staged_loads` finds in the fusion's region.  has_exits: whether
    reductions may be outputs; without that no input is staged beside outputs of other dims.
    """
    anchors = fusion.with_role("anchor")
    dims = anchors[0].results[0].shape
    if not has_exits and any(t.shape != dims for t in fusion.outputs):
        return []
    operands = {t for anchor in anchors for t in anchor.operands}
    before = {t for each in operands for op in fusion.sources(each) for t in op.read_operands}
    return [
        t
        for t in fusion.inputs
        if t.shape == dims
        and not t.is_by_value
        and t not in operands | before
        and _is_read_in_place(fusion, t, dims, has_exits=has_exits)
    ]


def _is_read_in_place(
    fusion: Fusion, tensor: Tensor, dims: tuple[Expr, ...], *, has_exits: bool
) -> bool:
    """Whether all that is made of a tensor, up to outputs and exits, is pointwise, of some dims."""
    found, pending = {tensor}, [tensor]
    while pending:
        read = pending.pop()
        for op in fusion.readers.get(read, ()):
            if read not in op.read_operands or (has_exits and isinstance(op, Reduction)):
                continue
            if not isinstance(op, Pointwise) or op.results[0].shape != dims:
                return False
            pending += [t for t in op.results if t not in found]
            found.update(op.results)
    return True


def _is_along_row(op: Op) -> bool:
    """Whether an operation reduces the rows of a product's dims."""
    last = op.operands[0].rank - 1
    return isinstance(op, Reduction) and [
        axis for axis in op.axes if op.x.shape[axis].constant != 1 or axis == last
    ] == [last]


def _loaded(fusion: Fusion, loads: Sequence[Tensor], *, swaps: bool) -> tuple[int, ...]:
    if _is_swapped_groups(fusion, swaps=swaps):
        return ()
    return tuple(t.type.bits // 8 for t in loads if moves_by_tma(t, swaps=swaps))


def _is_swapped_groups(fusion: Fusion, *, swaps: bool) -> bool:
    """Groups begin at any row: boxes whose rows are contiguous can't."""
    return swaps and is_grouped(fusion)


def _is_direct(whole: Sequence[Tensor], *, swaps: bool) -> bool:
    return any(t.type.kind != "b" and not stored_by_tma(t, swaps=swaps) for t in whole)


# ---- operands


def _no_fragments(fusion: Fusion, *, swaps: bool) -> str:
    found = matmuls_of(fusion)
    firsts = dict.fromkeys(op.b if swaps else op.a for op in found)
    first = next(iter(firsts))
    if len(firsts) > 1 or first not in fusion.producers:
        return "no operand along the rows that is computed"
    if not instruction_for(found[0]).takes_mn_major:
        return f"operands of {first.type}"
    if any(not isinstance(op, Pointwise) for op in fusion.upstream(first)):
        return "operations that are not pointwise before the product"
    if first.shape[-2 if swaps else -1].known_divisor() % 2:
        return "an odd k"
    if not 0 < _raw_bits(first, fusion, is_a=not swaps) <= 16:
        return f"{first.label} of nothing of up to 16 bits with k contiguous"
    for tensor in dict.fromkeys(op.a if swaps else op.b for op in found):
        starts_anywhere = swaps and is_grouped(fusion)
        if not _comes_by_tma(tensor, fusion, is_a=swaps, starts_anywhere=starts_anywhere):
            return f"{tensor.label} does not come by TMA"
    return ""


def _raw_bits(operand: Tensor, fusion: Fusion, *, is_a: bool) -> int:
    """Bits of an element of the widest tensor of an operand's dims that g1 reads and TMA brings
    with k contiguous; 0: there is none."""
    return max(
        (
            t.type.bits for t in fusion.read_inputs(operand)
            if t.shape == operand.shape and not t.is_by_value
            and tma.refusal(t, _axes(t, is_a=is_a)) is None
        ),
        default=0,
    )  # fmt: skip


def _raw_element_bytes(
    fusion: Fusion, operand: Tensor, row: wgmma.Instruction, *, is_a: bool
) -> int:
    """At most the bytes of an element of what g1 reads from raw tiles; 0: nothing."""
    if operand in fusion.producers:
        fitting = [t for t in fusion.read_inputs(operand) if t.shape == operand.shape]
    elif row.takes_mn_major or not _is_along_rows(operand, is_a=is_a):
        return 0
    else:
        fitting = [operand]
    sizes = (t.type.bits // 8 for t in fitting if t.type.bits <= MOST_RAW_BITS)
    return max(sizes, default=0)


def _comes_by_tma(
    tensor: Tensor, fusion: Fusion, *, is_a: bool, starts_anywhere: bool = False
) -> bool:
    """Whether an operand is loaded as the instruction reads it.

    starts_anywhere: its tiles begin at rows that are no multiples of theirs.
    """
    axes = _axes(tensor, is_a=is_a)
    takes_either = instruction_for(matmul_of(fusion)).takes_mn_major and not starts_anywhere
    along = [axes, axes[::-1]] if takes_either else [axes]
    return tensor not in fusion.producers and any(tma.refusal(tensor, a) is None for a in along)


def _axes(operand: Tensor, *, is_a: bool) -> tuple[int, int]:
    """The axes of k and of the rows."""
    last = operand.rank - 1
    return (last, last - 1) if is_a else (last - 1, last)


def _may_lie_along_rows(tensor: Tensor, row: wgmma.Instruction, *, is_a: bool) -> bool:
    return row.takes_mn_major and _is_along_rows(tensor, is_a=is_a)


def _is_along_rows(tensor: Tensor, *, is_a: bool) -> bool:
    """Whether an operand's rows, not k, may be contiguous."""
    k_axis = tensor.rank - 1 if is_a else tensor.rank - 2
    return tensor.layout[k_axis].constant != 1 or tensor.shape[k_axis].constant == 1


def _is_aligned(tensor: Tensor) -> bool:
    """Whether rows begin where TMA takes them."""
    return pitch_bytes(tensor) % tma.ALIGNMENT == 0


def pitch_bytes(tensor: Tensor) -> int:
    """A number known to divide the distance between rows; 0: there is one row."""
    size = max(1, tensor.type.bits // 8)
    return gcd(*(s.known_divisor() * size for s in tensor.layout[-2:] if s.constant != 1))
