# pyright: basic
"""Which knobs of matmul_sm90 go together, for a fusion; and the shared memory that they ask for."""

from __future__ import annotations

from math import gcd

from .. import dtypes
from ..codegen import tma, wgmma
from ..codegen.groups import GroupTable
from ..codegen.pipeline import Pipeline
from ..codegen.row_exchange import RowExchange
from ..codegen.split import SplitSum
from ..codegen.tile_ring import TileRing
from ..dialect.fusion import Fusion
from ..dialect.ops import Pointwise
from ..dialect.tensor import Tensor
from ..target import Target
from .bits_sm90 import swaps_of_bits
from .engine import Knobs, Reason
from .product import (
    Product,
    flowing_reductions,
    groups_of,
    is_grouped,
    is_heavy,
    knob_reason,
    matmul_of,
    matmuls_of,
)
from .surface import smem_reasons
from .tile_sm90 import (
    LOAD_BUFFERS,
    MOST_RAW_BITS,
    RAW_BUFFERS,
    STORE_BUFFERS,
    buffer_bytes,
    chunk_columns,
    exchanges,
    moves_by_tma,
    raw_bytes,
    slices_of,
    stored_by_tma,
)

ROWS = (64, 128, 256)  # of the instruction's side of a tile
COLUMNS = (8, 16, 32, 64, 96, 128, 192, 256)
FRAGMENTS = 3  # of WARP_SPEC_CFG
STAGES = (4, 2, 3, 5, 6, 7, 8, 10, 12)
MOST_BLOCKS = 4  # of a cluster that shares tiles
MOST_REDUCED = 192  # columns of a row whose reduction flows on
_MOST_ACCUMULATORS = 256  # columns times 64-row blocks of a warpgroup: 128 registers a thread


# ---- what knobs say


def sides_of(knobs: Knobs) -> tuple[int, int]:
    """The tile along the instruction's rows and columns."""
    sides = (knobs["TILE_M"], knobs["TILE_N"])
    return (sides[1], sides[0]) if knobs["SWAP_AB"] else sides


def cluster_of(knobs: Knobs) -> tuple[int, int]:
    """Blocks of a cluster along the instruction's rows and columns."""
    blocks = (knobs["TILE_CGA_M"], knobs["TILE_CGA_N"])
    return (blocks[1], blocks[0]) if knobs["SWAP_AB"] else blocks


def consumers_of(rows: int) -> int:
    return 1 if rows == 64 else 2


def instruction_for(op: Product) -> wgmma.Instruction:
    return wgmma.INSTRUCTIONS[op.a.type, op.b.type]


# ---- what goes together


def illegal_reasons(knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
    op = matmul_of(fusion)
    rows, columns = sides_of(knobs)
    row = instruction_for(op)
    if rows not in ROWS or columns not in COLUMNS or not row.takes_columns(columns):
        name = f"tile {knobs['TILE_M']}x{knobs['TILE_N']}, SWAP_AB={knobs['SWAP_AB']}"
        return (knob_reason(name, f"{ROWS} by {COLUMNS}, swapped with SWAP_AB=1"),)
    blocks = rows // consumers_of(rows) // wgmma.M
    accumulators = blocks * columns * len(matmuls_of(fusion)) * (1 + promotes(op))
    if accumulators > _MOST_ACCUMULATORS:
        # More accumulators than the registers of two consumer warpgroups hold.
        return (knob_reason(f"{accumulators} sums in two rows of a thread", "up to 256"),)
    if knobs["TILE_CGA_M"] * knobs["TILE_CGA_N"] > MOST_BLOCKS:
        # Larger clusters leave multiprocessors without one.
        what = f"a cluster of more than {MOST_BLOCKS} blocks"
        return (knob_reason(what, f"up to {MOST_BLOCKS}"),)
    if knobs["WARP_SPEC_CFG"] == 2 and (
        consumers_of(rows) == 1 or columns > 192 or not computes_operands(fusion)
    ):
        # Of four warpgroups, a thread has 128 registers at launch: too few for 256 columns.
        what = f"WARP_SPEC_CFG=2 with tile {knobs['TILE_M']}x{knobs['TILE_N']}"
        return (knob_reason(what, "operands behind g1, two consumers, up to 192 columns"),)
    if knobs["WARP_SPEC_CFG"] == FRAGMENTS and (what := _no_fragments(knobs, fusion)):
        supported = "one operand of 16 bits along the rows, behind pointwise operations on "
        supported += "what TMA brings with k contiguous; the other one as TMA brings it"
        return (knob_reason(f"WARP_SPEC_CFG={FRAGMENTS}: {what}", supported),)
    if knobs["SWAP_AB"] not in (fitting := swaps_of_bits(fusion)):
        what = f"SWAP_AB={knobs['SWAP_AB']} with the layout of boolean outputs"
        return (knob_reason(what, f"SWAP_AB={fitting[0]}"),)
    if reasons := _split_reasons(knobs, fusion):
        return reasons
    if reasons := _schedule_reasons(knobs, fusion):
        return reasons
    if reasons := _share_reasons(knobs, fusion):
        return reasons
    if rows == 256 and knobs["WARP_SPEC_CFG"] == 2 and any(map(is_heavy, fusion.ops)):
        return (knob_reason("256 rows, WARP_SPEC_CFG=2 and costly functions", "up to 128"),)
    if rows == 256 and not all(_is_aligned(t) for m in matmuls_of(fusion) for t in (m.a, m.b)):
        # What loads unaligned rows leaves the consumers too few registers for two row blocks.
        return (knob_reason("256 rows with unaligned operands", "up to 128"),)
    if reasons := _row_reasons(knobs, fusion):
        return reasons
    staged, loaded, chunk = _staged_bytes(knobs, fusion)
    if chunk * min([*staged, *loaded], default=16) < tma.ALIGNMENT:
        # A row of a box has 16 bytes at least.
        what = f"chunks of {chunk} columns of {min([*staged, *loaded])} bytes"
        return (knob_reason(what, "tiles and slices of 16 columns or more"),)
    return smem_reasons(smem_bytes_of(knobs, fusion), target)


def _row_reasons(knobs: Knobs, fusion: Fusion) -> tuple[Reason, ...]:
    """A row that is reduced and goes on lies in the registers of four lanes, or in those of
    the blocks of a cluster that have its columns."""
    if not flowing_reductions(fusion):
        return ()
    width = matmul_of(fusion).c.shape[-1].bounds()[1]
    columns, blocks = knobs["TILE_N"], knobs["TILE_CGA_N"]
    if knobs["SWAP_AB"] or columns > MOST_REDUCED or width > columns * blocks:
        what = f"tile {knobs['TILE_M']}x{columns}, {blocks} side by side, for rows of {width}"
        supported = f"SWAP_AB=0, TILE_N up to {MOST_REDUCED}, TILE_N * TILE_CGA_N of {width}"
        return (knob_reason(what, f"{supported} or more"),)
    if width > columns and knobs["TILE_CGA_M"] > 1:
        return (knob_reason("rows over a cluster of several rows", "TILE_CGA_M=1"),)
    return ()


def _split_reasons(knobs: Knobs, fusion: Fusion) -> tuple[Reason, ...]:
    """Each block of a split has a part of k, and no row goes over several."""
    splits = knobs["SPLIT_K_SLC"]
    op = matmul_of(fusion)
    if splits == 1:
        return ()
    if knobs["TILE_CGA_M"] * knobs["TILE_CGA_N"] > 1:
        return (knob_reason("split k and shared tiles", "SPLIT_K_SLC=1 or TILE_CGA_*=1"),)
    if fusion.with_role("reduction"):
        return (knob_reason("split k and reductions", "SPLIT_K_SLC=1"),)
    least = splits * instruction_for(op).panel_k
    if op.a.shape[-1].bounds()[0] < least:
        return (knob_reason(f"SPLIT_K_SLC={splits}", f"K of {least} or more"),)
    columns = sides_of(knobs)[1]
    if columns % (8 * slices_of(columns, splits)):
        return (knob_reason(f"{columns} columns in {splits} parts", "multiples of 8"),)
    return ()


def _schedule_reasons(knobs: Knobs, fusion: Fusion) -> tuple[Reason, ...]:
    """Which tiles may be cut along k, or taken one by one."""
    blocks = knobs["TILE_CGA_M"] * knobs["TILE_CGA_N"] * knobs["SPLIT_K_SLC"]
    names = [name for name in ("STREAM_K", "SCHED_POLICY") if knobs[name]]
    if not names:
        return ()
    if len(names) > 1 or blocks > 1 or is_grouped(fusion):
        what = f"{' and '.join(names)} with clusters, groups or each other"
        return (knob_reason(what, "one of them, SPLIT_K_SLC=1, TILE_CGA_*=1, a plain matmul"),)
    if knobs["SCHED_POLICY"] and not _loads_are_async(knobs, fusion):
        what = "SCHED_POLICY=1 and operands that pass through registers"
        return (knob_reason(what, "operands that TMA brings"),)
    return ()


def _share_reasons(knobs: Knobs, fusion: Fusion) -> tuple[Reason, ...]:
    """A block's share of an operand tile is whole swizzle atoms, or whole panels."""
    sides = (("a", knobs["TILE_M"], knobs["TILE_CGA_N"]),
             ("b", knobs["TILE_N"], knobs["TILE_CGA_M"]))  # fmt: skip
    for op in matmuls_of(fusion):
        row = instruction_for(op)
        for name, side, peers in sides:
            tensor = getattr(op, name)
            is_mn_major = row.takes_mn_major and _is_along_rows(tensor, is_a=name == "a")
            whole = wgmma.PANEL_ROWS if is_mn_major else wgmma.ATOM_ROWS
            if side % (peers * whole):
                what = f"{side} rows of {name.upper()} shared by {peers} blocks"
                return (knob_reason(what, f"shares that are multiples of {whole}"),)
    return ()


# ---- shared memory


def _staged_bytes(knobs: Knobs, fusion: Fusion) -> tuple[list[int], list[int], int]:
    """(bytes of an element of each staged output, of each staged load, columns of a chunk).

    At most those: what a load needs beyond its dims is seen when the kernel is made.
    """
    _, columns = sides_of(knobs)
    swaps, splits = bool(knobs["SWAP_AB"]), knobs["SPLIT_K_SLC"]
    dims = matmul_of(fusion).c.shape
    # Groups begin at any row: boxes whose rows are contiguous can't.
    swapped_groups = swaps and is_grouped(fusion)
    staged = [
        t.type.bits // 8
        for t in fusion.outputs
        if t.shape == dims and stored_by_tma(t, swaps=swaps) and not swapped_groups
    ]
    after = {t for op in fusion.ops if fusion.roles[op] == "g2" for t in op.operands}
    loaded = [
        t.type.bits // 8
        for t in fusion.inputs
        if splits == 1 and not swapped_groups and t in after and t.shape == dims
        and not t.is_by_value and moves_by_tma(t, swaps=swaps)
    ]  # fmt: skip
    own = columns // slices_of(columns, splits)
    return staged, loaded, chunk_columns(own, [*staged, *loaded])


def smem_bytes_of(knobs: Knobs, fusion: Fusion) -> int:
    """No less than the kernel will need; what stays unused is seen when it is made."""
    rows, columns = sides_of(knobs)
    swaps = bool(knobs["SWAP_AB"])
    found = matmuls_of(fusion)
    staged, loaded, chunk = _staged_bytes(knobs, fusion)
    firsts, seconds = {op.a for op in found}, {op.b for op in found}
    if swaps:
        firsts, seconds = seconds, firsts
    row_bytes = wgmma.ROW_BYTES
    read = None
    if in_registers := knobs["WARP_SPEC_CFG"] == FRAGMENTS:
        read = _raw_of(next(iter(firsts)), fusion, is_a=not swaps)
    if read is not None:
        row_bytes = read.type.bits // 8 * instruction_for(found[0]).panel_k
    stage = rows * len(firsts) * row_bytes + columns * len(seconds) * wgmma.ROW_BYTES
    splits = knobs["SPLIT_K_SLC"]
    buffers = STORE_BUFFERS * buffer_bytes(staged, chunk)
    buffers += LOAD_BUFFERS * buffer_bytes(loaded, chunk)
    producers = 1 if in_registers else knobs["WARP_SPEC_CFG"]
    slots = producers * RAW_BUFFERS[producers]
    rings = knobs["STAGES"] + consumers_of(rows) * LOAD_BUFFERS + slots
    barriers = Pipeline.barrier_bytes(rings)
    sides = {True: knobs["TILE_M"], False: knobs["TILE_N"]}
    raw = sum(
        raw_bytes(sides[is_a], instruction_for(op).panel_k, _raw_element_bytes(fusion, op, is_a))
        for op, is_a in {
            ((op.a if is_a else op.b), is_a): (op, is_a) for op in found for is_a in (True, False)
        }.values()
    )
    total = knobs["STAGES"] * stage + consumers_of(rows) * buffers + barriers
    total += SplitSum.barrier_bytes()
    total += (0 if in_registers else slots * raw) + _groups_bytes(fusion)
    total += consumers_of(rows) * _exchange_bytes(knobs, fusion)
    if knobs["SCHED_POLICY"]:
        total += TileRing.bytes() + TileRing.barrier_bytes()
    return total + (len(found) * SplitSum.bytes(rows, columns) if splits > 1 else 0)


def _exchange_bytes(knobs: Knobs, fusion: Fusion) -> int:
    """Of one warpgroup, where rows lie in several blocks."""
    rows, columns = sides_of(knobs)
    width = matmul_of(fusion).c.shape[-1].bounds()[1]
    if not flowing_reductions(fusion) or width <= columns:
        return 0
    blocks = rows // consumers_of(rows) // wgmma.M
    count = exchanges(len(fusion.with_role("reduction")), blocks)
    buffers = RowExchange.bytes(knobs["TILE_CGA_N"], count)
    return buffers + RowExchange.barrier_bytes(count)


def _groups_bytes(fusion: Fusion) -> int:
    """Of the table of groups."""
    most = groups_of(fusion).bounds()[1]
    return GroupTable.bytes(most) if most else 0


def _raw_element_bytes(fusion: Fusion, op: Product, is_a: bool) -> int:
    """At most the bytes of an element of what g1 reads from raw tiles; 0: nothing."""
    operand = op.a if is_a else op.b
    upstream = fusion.upstream(operand)
    read = {t for other in upstream for t in other.operands} if upstream else set[Tensor]()
    if not upstream and (
        instruction_for(op).takes_mn_major or not _is_along_rows(operand, is_a=is_a)
    ):
        return 0
    fitting = [t for t in (*read, operand) if t in fusion.inputs and t.shape == operand.shape]
    sizes = (t.type.bits // 8 for t in fitting if t.type.bits <= MOST_RAW_BITS)
    return max(sizes, default=0)


# ---- what a fusion says


def promotes(op: Product) -> bool:
    """Whether sums have to be more exact than the accumulators of fp8 products are."""
    return op.a.type.is_fp8 and op.compute_type != dtypes.fast_float_for_fp8


def most_columns(fusion: Fusion) -> int:
    """Of a tile whose rows are reduced: its sums lie in registers beside what is computed."""
    found = matmuls_of(fusion)
    most = _MOST_ACCUMULATORS // (len(found) * (1 + promotes(found[0])))
    return max(columns for columns in COLUMNS if columns <= min(most, MOST_REDUCED))


def computes_operands(fusion: Fusion) -> bool:
    """Whether an operand comes out of g1."""
    return any(t in fusion.producers for op in matmuls_of(fusion) for t in (op.a, op.b))


def _no_fragments(knobs: Knobs, fusion: Fusion) -> str:
    """Why consumers can't compute the operand along the rows; "": they can."""
    pairs = {(op.b, op.a) if knobs["SWAP_AB"] else (op.a, op.b) for op in matmuls_of(fusion)}
    first, _ = next(iter(pairs))
    if len({pair[0] for pair in pairs}) > 1 or first not in fusion.producers:
        return "no operand along the rows that is computed"
    if not instruction_for(matmul_of(fusion)).takes_mn_major:
        return f"operands of {first.type}"
    if any(not isinstance(op, Pointwise) for op in fusion.upstream(first)):
        return "operations that are not pointwise before the product"
    if first.shape[-2 if knobs["SWAP_AB"] else -1].known_divisor() % 2:
        return "an odd k"
    raw = _raw_of(first, fusion, is_a=not knobs["SWAP_AB"])
    if raw is None or raw.type.bits > 16:
        return f"{first.label} of nothing of up to 16 bits with k contiguous"
    is_a = bool(knobs["SWAP_AB"])
    for _, tensor in pairs:
        if not _comes_by_tma(
            tensor, fusion, is_a=is_a, starts_anywhere=is_a and is_grouped(fusion)
        ):
            return f"{tensor.label} does not come by TMA"
    return ""


def _raw_of(operand: Tensor, fusion: Fusion, *, is_a: bool) -> Tensor | None:
    """The widest tensor of an operand's dims that g1 reads and TMA brings with k contiguous."""
    read = {t for op in fusion.upstream(operand) for t in op.operands}
    fitting = [
        t
        for t in fusion.inputs
        if t in read and t.shape == operand.shape and not t.is_by_value
        and tma.refusal(t, _axes(t, is_a=is_a)) is None
    ]  # fmt: skip
    return max(fitting, key=lambda t: t.type.bits, default=None)


def _axes(operand: Tensor, *, is_a: bool) -> tuple[int, int]:
    """Those of k and of the rows."""
    last = operand.rank - 1
    return (last, last - 1) if is_a else (last - 1, last)


def _loads_are_async(knobs: Knobs, fusion: Fusion) -> bool:
    """Whether no operand passes through the producers' registers."""
    in_fragments = knobs["WARP_SPEC_CFG"] == FRAGMENTS
    return all(
        _comes_by_tma(tensor, fusion, is_a=is_a)
        for op in matmuls_of(fusion)
        for tensor, is_a in ((op.a, True), (op.b, False))
        if not (in_fragments and is_a != bool(knobs["SWAP_AB"]))
    )


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
