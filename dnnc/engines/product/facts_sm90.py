# pyright: basic
"""The facts of a fusion that the knobs of matmul_sm90 depend on: read once, as plain data.

A few hundred configurations are judged for a graph.  Each is judged by its knobs and these facts
alone, so that graphs that differ in what the knobs don't see (most sizes) share the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from ...codegen.hopper import tma, wgmma
from ...codegen.memory.parted import End
from ...dialect.fusion import Fusion, remembered
from ...dialect.op import Op
from ...dialect.ops import Pointwise, Reduction
from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...expr import Expr
from .bits_sm90 import swaps_of_bits
from .ends import Grain, ends_of
from .model_sm90 import OperandLoads, load_share
from .operands_sm90 import OperandFacts, axes_of, operand_of
from .pattern import (
    Product,
    flowing_reductions,
    groups_of,
    is_along_columns,
    is_grouped,
    is_heavy,
    matmul_of,
    matmuls_of,
    promotes_sums,
)
from .tile_sm90 import moves_by_tma, moves_transposed, stages_transposed, stored_by_tma

SPLITS = (1, 2, 4, 8)  # of SPLIT_K_SLC
MOST_SUMS = 256  # with what any epilogue needs beside them
# Paths of an output of which the pixels of a phase are no matrix: by threads, and by TMA.
SCATTERED, PHASES = "scattered", "phases"


@dataclass(frozen=True)
class EpilogueFacts:
    """Tensors that the epilogue stores and reads, with one value of SWAP_AB.

    paths: of each output, as `Tiling.outputs` says, but that "exit" may be "row" with some tiles.
    staged, loaded: bytes of an element of each output and each input that goes through shared
    memory, where nothing that computes operands loads.  loads: the places of these inputs among the
    fusion's.
    is_even: whether of two neighbours along the instruction's columns both are in the product, or
    neither.
    """

    paths: tuple[str, ...]
    staged: tuple[int, ...] = ()
    loads: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    is_even: bool = True

    @staticmethod
    def of(
        outputs: Sequence[Tensor], paths: tuple[str, ...], inputs: Sequence[Tensor],
        loads: Sequence[Tensor], *, is_even: bool = True,
    ) -> EpilogueFacts:  # fmt: skip
        """inputs: of the fusion.  loads: those that go through shared memory."""
        pairs = zip(outputs, paths, strict=True)
        staged = tuple(t.type.bits // 8 for t, path in pairs if path in ("tma", SCATTERED, PHASES))
        loaded = tuple(t.type.bits // 8 for t in loads)
        return EpilogueFacts(paths, staged, tuple(map(inputs.index, loads)), loaded, is_even)

    @property
    def is_direct(self) -> bool:
        """Whether outputs are stored from registers."""
        return "direct" in self.paths


_WHOLE_RATE = OperandLoads()


@dataclass(frozen=True)
class OperandsFacts:
    """The operands of the products.  Pairs are by SWAP_AB, 0 and 1, or by operand, A and B.

    along_rows: of each product, by operand, whether rows, not k, may be contiguous.
    no_fragments: by SWAP_AB, why consumers can't compute the operand along the rows; "": they can.
    distinct: A before B.  pairs: of each product, the places of its A and B there.
    computes: whether g1 gives any of them.  is_aligned: whether rows begin where TMA takes them.
    rewrites: whether warps of the producer compute A in shared memory.
    """

    along_rows: tuple[tuple[bool, bool], ...]
    no_fragments: tuple[str, str]
    distinct: tuple[OperandFacts, ...] = (OperandFacts(True), OperandFacts(False))
    pairs: tuple[tuple[int, int], ...] = ((0, 1),)
    computes: bool = False
    is_aligned: bool = True
    rewrites: bool = False
    loads: OperandLoads = _WHOLE_RATE

    def is_async(self, *, is_a: bool) -> bool:
        """Whether no A, or no B, passes through the registers of the producer's threads."""
        return all(o.path != "registers" for o in self.distinct if o.is_a == is_a)


@dataclass(frozen=True)
class ResultFacts:
    """The tensors of the product's dims that the epilogue makes.

    swaps: values of SWAP_AB that boolean outputs take.  is_along_columns: whether the first output
    of the product's dims has contiguous columns.  can_transpose: whether results with SWAP_AB=1 go
    through shared memory transposed, and always_transposes, whether those of tiles of few columns
    do. is_heavy: whether costly functions make them.
    ends, grains: see `Ends`; empty: outputs are as they are.
    """

    swaps: tuple[int, ...]
    is_along_columns: bool = False
    can_transpose: bool = False
    always_transposes: bool = False
    is_heavy: bool = False
    ends: tuple[tuple[End, ...], ...] = ()
    grains: tuple[Grain | None, ...] = ()


@dataclass(frozen=True)
class RowFacts:
    """The rows of the product, where they are grouped or reduced.

    groups: at most.  reductions: in the epilogue; along_row: those of rows.  width: at most, of
    rows that are reduced and flow on; 0: none.  outputs: of each output with one element for each
    row, its place and the most elements of a row.
    """

    is_grouped: bool = False
    groups: int = 0
    reductions: int = 0
    along_row: int = 0
    width: int = 0
    outputs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class ProductFacts:
    """See the file's docstring.

    row: the instruction.  products: matmuls with one epilogue.  promotes: see `promotes`.
    splits: of k at most, so that each part has a panel.  epilogue: by SWAP_AB.
    most_sums: that two rows of a thread may have: twice the registers.
    row_bytes: of k of a stage.
    """

    row: wgmma.Instruction
    products: int
    promotes: bool
    splits: int
    operands: OperandsFacts
    epilogue: tuple[EpilogueFacts, EpilogueFacts]
    results: ResultFacts
    rows: RowFacts = RowFacts()
    most_sums: int = MOST_SUMS
    row_bytes: int = wgmma.ROW_BYTES

    @property
    def panel_k(self) -> int:
        """Elements of k of a stage."""
        return self.row_bytes // self.row.element_bytes


@remembered
def facts_of(fusion: Fusion) -> ProductFacts:
    """The facts of a fusion that the engine takes."""
    ends = ends_of(fusion)
    fusion = ends.fusion
    found = matmuls_of(fusion)
    op, row = found[0], instruction_for(found[0])
    grouped = is_grouped(fusion)
    sides = list(dict.fromkeys([(m.a, True) for m in found] + [(m.b, False) for m in found]))
    operands = tuple(
        operand_of(fusion, t, row, is_a=is_a, begins_anywhere=is_a and grouped) for t, is_a in sides
    )
    dims = op.c.shape
    whole = [t for t in fusion.outputs if t.shape == dims]
    can_transpose = stages_transposed(whole) and not grouped
    return ProductFacts(
        row=row,
        products=len(found),
        promotes=promotes(op),
        splits=max(n for n in SPLITS if n == 1 or op.a.shape[-1].bounds()[0] >= n * row.panel_k),
        operands=OperandsFacts(
            along_rows=tuple(
                (
                    _may_lie_along_rows(m.a, row, is_a=True),
                    _may_lie_along_rows(m.b, row, is_a=False),
                )
                for m in found
            ),
            no_fragments=(
                _no_fragments(fusion, operands, swaps=False),
                _no_fragments(fusion, operands, swaps=True),
            ),
            distinct=operands,
            pairs=tuple((sides.index((m.a, True)), sides.index((m.b, False))) for m in found),
            computes=computes_operands(fusion),
            is_aligned=all(_is_aligned(t) for t, _ in sides),
            loads=_loads_of(fusion, op, [operand for operand, _ in sides]),
        ),
        epilogue=(
            _epilogue_of(fusion, ends.grains, swaps=False, transposes=False),
            _epilogue_of(fusion, ends.grains, swaps=True, transposes=can_transpose),
        ),
        results=ResultFacts(
            swaps=tuple(swaps_of_bits(fusion)),
            is_along_columns=bool(whole) and is_along_columns(whole[0]),
            can_transpose=can_transpose,
            is_heavy=any(is_heavy(other) for other in fusion.ops),
            ends=ends.of_outputs,
            grains=ends.grains,
        ),
        rows=RowFacts(
            is_grouped=grouped,
            groups=groups_of(fusion).bounds()[1],
            reductions=len(fusion.with_role("reduction")),
            along_row=sum(_is_along_row(op) for op in fusion.ops),
            width=max(1, dims[-1].bounds()[1]) if flowing_reductions(fusion) else 0,
            outputs=tuple(
                (place, dims[-1].bounds()[1])
                for place, t in enumerate(fusion.outputs)
                if t.shape != dims and t.shape[:-1] == dims[:-1]
            ),
        ),
    )


def _loads_of(fusion: Fusion, op: Product, operands: Sequence[Tensor]) -> OperandLoads:
    """How A and B of the first product come.  operands: of all products."""
    sides = (op.a, op.b)
    return OperandLoads(
        share=min((load_share(pitch_bytes(t)) for t in sides if _is_aligned(t)), default=1.0),
        narrow=(not _is_aligned(op.a), not _is_aligned(op.b)),
        computed=(op.a in fusion.producers, op.b in fusion.producers),
        has_integers=any(
            t.type.is_integer and t.shape == operand.shape
            for operand in operands
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


def computes_operands(fusion: Fusion) -> bool:
    """Whether an operand comes out of g1."""
    return any(t in fusion.producers for op in matmuls_of(fusion) for t in (op.a, op.b))


# ---- what goes through shared memory after the product


def _epilogue_of(
    fusion: Fusion, grains: Sequence[Grain | None], *, swaps: bool, transposes: bool
) -> EpilogueFacts:
    """transposes: results and what is read beside them go through shared memory transposed."""
    dims = matmul_of(fusion).c.shape
    grain_of = dict(zip(fusion.outputs, grains, strict=False))
    # Groups begin at any row: boxes whose rows are contiguous can't.
    is_staged = not (swaps and is_grouped(fusion))
    paths = tuple(
        _path(
            t,
            dims,
            is_staged
            and stored_by_tma(t, swaps=swaps and not transposes)
            and _is_whole(t, grain_of.get(t)),
        )
        for t in fusion.outputs
    )
    loads = [
        t
        for t in epilogue_loads(fusion)
        if is_staged and (moves_transposed(t) if transposes else moves_by_tma(t, swaps=swaps))
    ]
    # A group may end between two neighbours.
    is_even = is_staged and dims[-2 if swaps else -1].known_divisor() % 2 == 0
    return EpilogueFacts.of(fusion.outputs, paths, fusion.inputs, loads, is_even=is_even)


def _is_whole(tensor: Tensor, grain: Grain | None) -> bool:
    """Whether columns that are stored together from shared memory are of one part."""
    return grain is None or grain.columns * tensor.type.bits % (8 * tma.ALIGNMENT) == 0


def _path(tensor: Tensor, dims: tuple[Expr, ...], is_staged: bool) -> str:
    """See `EpilogueFacts.paths`."""
    if tensor.type.kind == "b":
        return "bits"
    if tensor.shape != dims:
        return "exit"
    return "tma" if is_staged else "direct"


def epilogue_loads(fusion: Fusion, *, has_exits: bool = False) -> list[Tensor]:
    """Inputs of the product's dims that only g2 reads, each at the product's own coordinates.

    has_exits: whether reductions may be outputs; without that no input is staged beside outputs of
    other dims.
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


# ---- operands


def _no_fragments(fusion: Fusion, operands: Sequence[OperandFacts], *, swaps: bool) -> str:
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
    (fragment,) = (o.fragment for o in operands if o.is_a != swaps)
    if fragment is None or fragment.bits > 16:
        return f"{first.label} of nothing of up to 16 bits with k contiguous"
    others = dict.fromkeys(op.a if swaps else op.b for op in found)
    for tensor, operand in zip(others, (o for o in operands if o.is_a == swaps), strict=True):
        if operand.path != "tma":
            return f"{tensor.label} does not come by TMA"
    return ""


def _may_lie_along_rows(tensor: Tensor, row: wgmma.Instruction, *, is_a: bool) -> bool:
    return row.takes_mn_major and _is_along_rows(tensor, is_a=is_a)


def _is_along_rows(tensor: Tensor, *, is_a: bool) -> bool:
    """Whether an operand's rows, not k, may be contiguous."""
    k_axis, _ = axes_of(tensor, is_a=is_a)
    return tensor.layout[k_axis].constant != 1 or tensor.shape[k_axis].constant == 1


def _is_aligned(tensor: Tensor) -> bool:
    """Whether rows begin where TMA takes them."""
    return pitch_bytes(tensor) % tma.ALIGNMENT == 0


def pitch_bytes(tensor: Tensor) -> int:
    """A number known to divide the distance between rows; 0: there is one row."""
    size = max(1, tensor.type.bits // 8)
    return gcd(*(s.known_divisor() * size for s in tensor.layout[-2:] if s.constant != 1))
