# pyright: basic
"""Engine matmul_sm90: matrix products on Hopper's tensor cores, fused.

    g2(C = g1a(inputs) @ g1b(inputs), inputs): TMA, mbarriers, `wgmma`, persistent blocks

    warpgroup 0     loads   | stage | stage | ... |   ring of tiles of both operands
    warpgroups 1..  multiply a stage each step, 64 or 128 rows of the tile each; then walk g2 on
                    the accumulators where they are, and store through shared memory by TMA

A block works through tiles t, t + blocks, ...; its producer runs ahead into the next tile while
the consumers are at the epilogue.  Blocks of a cluster load what they share once.  An operand
that TMA can't load as the instruction wants it (g1, unaligned rows, 8- and 32-bit elements with k
not contiguous) goes through the producer's registers.  SWAP_AB computes the transpose of C, for
outputs whose columns are contiguous and for few rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as product_of
from math import gcd
from typing import Any

from .. import dtypes
from ..codegen import tma, wgmma
from ..codegen.cluster import Cluster
from ..codegen.groups import GroupTable
from ..codegen.output import Output
from ..codegen.pipeline import Pipeline
from ..codegen.region import Region
from ..codegen.row_exchange import RowExchange
from ..codegen.split import SplitSum
from ..codegen.stream_sum import StreamSum
from ..codegen.tile_ring import TileRing
from ..dialect import dnn, structure
from ..dialect.fusion import Fusion
from ..dialect.ops import MoeGroupedMatmul, Pointwise
from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..errors import Status
from ..expr import Expr, Size, device_dim, minimum, typical
from ..mlir import ir
from ..target import Target
from .bits_sm90 import bits_reasons, swaps_of_bits
from .engine import Knob, Knobs, Prediction, Reason
from .hopper_model import HopperProduct, load_share
from .matmul_sm90_kernel import OFFSETS, Emitter, operand_values, product_calls
from .product import (
    Product,
    compute_reasons,
    flowing_reductions,
    groups_of,
    is_along_columns,
    is_heavy,
    knob_reason,
    matmul_of,
    matmuls_of,
    products_reasons,
    reducing_epilogue_reasons,
    sizes_of,
)
from .surface import bytes_of, pattern_reason, smem_reasons, too_large_reasons
from .tile_sm90 import (
    LOAD_BUFFERS,
    RAW_BUFFERS,
    STORE_BUFFERS,
    Tiling,
    buffer_bytes,
    chunk_columns,
    exchanges,
    moves_by_tma,
    operand_path,
    raw_argument,
    raw_bytes,
    row_reductions_that_flow,
    slices_of,
    staged_loads,
    stored_by_tma,
)

ROWS = (64, 128, 256)  # of the instruction's side of a tile
COLUMNS = (8, 16, 32, 64, 96, 128, 192, 256)
FRAGMENTS = 3  # of WARP_SPEC_CFG
STAGES = (4, 2, 3, 5, 6, 7, 8, 10, 12)
_MOST_ACCUMULATORS = 256  # columns times 64-row blocks of a warpgroup: 128 registers a thread
_GROUP_ROWS = 2048  # of the product, whose tiles follow each other
_MOST_PRODUCTS = 2
_MOST_GROUPS = 1024  # of rows: their table lies in shared memory
MOST_BLOCKS = 4  # of a cluster that shares tiles
_MOST_REDUCED = 192  # columns of a row whose reduction flows on


@dataclass(frozen=True)
class MatmulSm90Engine:
    """See the file's docstring."""

    name: str = "matmul_sm90"
    index: int = 5
    inlines_anchors: bool = False
    support: tuple[str, ...] = (
        "sm_90a: one matmul of f16, bf16, f32 (as tf32, a numerical note), i8, or fp8 operands "
        "(each of either fp8 type), sums in f32 or i32; any layouts, sizes, strides, broadcast "
        "batches",
        "pointwise and view operations on A, B and beside the product; pointwise operations of "
        "the product's dims after it, the product used anywhere; several outputs, each of which "
        "follows the product, of any type; BOOLEAN ones, packed, have the product's dims and "
        "contiguous rows (or all of them columns) of a multiple of 8 elements",
        "two matmuls with one epilogue (gated pairs); reductions at the exit over any axes; "
        "reductions of rows of up to 768 elements that flow on (softmax, rms-norm), over the "
        "blocks of a cluster where a tile does not hold the row",
        "moe_grouped_matmul of up to 1024 experts, one, or two of the same offsets, with pointwise "
        "operations before and after",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if refused := products_reasons(fusion, _MOST_PRODUCTS):
            return refused
        reasons: list[Reason] = []
        if target.name != "sm_90a":
            reasons.append(
                Reason(Status.NOT_SUPPORTED_ARCH_MISMATCH, "architecture", str(target), "sm_90a")
            )
        first, *others = matmuls_of(fusion)
        for op in (first, *others):
            reasons += self._operand_reasons(op)
        for op in others:
            if (op.a.type, op.b.type, op.compute_type) != (
                first.a.type, first.b.type, first.compute_type,
            ):  # fmt: skip
                reasons.append(
                    Reason(
                        Status.NOT_SUPPORTED_DATA_TYPE,
                        "operand types",
                        f"{op.label} of A {op.a.type}, B {op.b.type}",
                        f"those of {first.label}: A {first.a.type}, B {first.b.type}",
                    )
                )
        if isinstance(first, MoeGroupedMatmul):
            reasons += self._group_reasons(first, fusion)
        epilogue = reducing_epilogue_reasons(fusion, _most_columns(fusion) * MOST_BLOCKS)
        return (*reasons, *epilogue, *bits_reasons(fusion), *too_large_reasons(fusion))

    def _group_reasons(self, op: MoeGroupedMatmul, fusion: Fusion) -> list[Reason]:
        if reductions := fusion.with_role("reduction"):
            what = f"{reductions[0].label} after {op.label}"
            return [pattern_reason(what, "pointwise operations after a grouped product")]
        if op.experts.bounds()[1] > _MOST_GROUPS:
            what = f"up to {op.experts.bounds()[1]} experts of {op.label}"
            supported = f"at most {_MOST_GROUPS}"
            return [Reason(Status.NOT_SUPPORTED_SHAPE, "experts", what, supported)]
        return []

    def _operand_reasons(self, op: Product) -> list[Reason]:
        reasons: list[Reason] = []
        if (op.a.type, op.b.type) not in wgmma.INSTRUCTIONS:
            reasons.append(
                Reason(
                    Status.NOT_SUPPORTED_DATA_TYPE,
                    "operand types",
                    f"A {op.a.type}, B {op.b.type}",
                    "both f16, bf16, f32 or i8, or each of an fp8 type (identity casts an operand)",
                )
            )
        else:
            reasons += compute_reasons(op)
        if op.a.shape[-1].bounds()[0] < 1:
            reasons.append(
                Reason(Status.NOT_SUPPORTED_SHAPE, "depth", f"K of {op.a.shape[-1]}", "1 or more")
            )
        return reasons

    # ---- knobs

    def knobs(self, fusion: Fusion, target: Target) -> tuple[Knob, ...]:
        sides = tuple(dict.fromkeys((128, *ROWS, *COLUMNS)))
        return (
            Knob("TILE_M", sides, "rows of a block's tile"),
            Knob("TILE_N", (256, *(side for side in sides if side != 256)), "columns of the tile"),
            Knob("STAGES", STAGES, "stages in shared memory"),
            Knob("TILE_CGA_M", (1, 2, 4), "blocks of a cluster along M, which share tiles of B"),
            Knob("TILE_CGA_N", (1, 2, 4), "blocks of a cluster along N, which share tiles of A"),
            Knob("SPLIT_K_SLC", (1, 2, 4, 8), "blocks of a cluster that share a tile's k"),
            Knob(
                "WARP_SPEC_CFG",
                (1, 2, FRAGMENTS),
                "1, 2: warpgroups that load and compute operands; 3: one that loads, and those "
                "that multiply compute the operand along the instruction's rows",
            ),
            Knob(
                "STREAM_K", (0, 1), "1: the last tiles are cut along k, so that blocks end together"
            ),
            Knob("SCHED_POLICY", (0, 1), "1: a block takes its next tile when it is free"),
            Knob("SWAP_AB", (0, 1), "1: the transpose of C is computed, from B and A"),
        )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        op = matmul_of(fusion)
        rows, columns = _sides(knobs)
        row = _instruction(op)
        if rows not in ROWS or columns not in COLUMNS or not row.takes_columns(columns):
            name = f"tile {knobs['TILE_M']}x{knobs['TILE_N']}, SWAP_AB={knobs['SWAP_AB']}"
            return (knob_reason(name, f"{ROWS} by {COLUMNS}, swapped with SWAP_AB=1"),)
        blocks = rows // _consumers(rows) // wgmma.M
        accumulators = blocks * columns * len(matmuls_of(fusion)) * (1 + _promotes(op))
        if accumulators > _MOST_ACCUMULATORS:
            # More accumulators than the registers of two consumer warpgroups hold.
            return (knob_reason(f"{accumulators} sums in two rows of a thread", "up to 256"),)
        if knobs["TILE_CGA_M"] * knobs["TILE_CGA_N"] > MOST_BLOCKS:
            # Larger clusters leave multiprocessors without one.
            what = f"a cluster of more than {MOST_BLOCKS} blocks"
            return (knob_reason(what, f"up to {MOST_BLOCKS}"),)
        if knobs["WARP_SPEC_CFG"] == 2 and (
            _consumers(rows) == 1 or columns > 192 or not _computes_operands(fusion)
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
        if reasons := self._split_reasons(knobs, fusion):
            return reasons
        if reasons := self._schedule_reasons(knobs, fusion):
            return reasons
        if reasons := self._share_reasons(knobs, fusion):
            return reasons
        if rows == 256 and knobs["WARP_SPEC_CFG"] == 2:
            # Of four warpgroups, two computing producers leave some thread too few registers.
            return (knob_reason("256 rows and WARP_SPEC_CFG=2", "up to 128"),)
        if rows == 256 and not all(_is_aligned(t) for m in matmuls_of(fusion) for t in (m.a, m.b)):
            # What loads unaligned rows leaves the consumers too few registers for two row blocks.
            return (knob_reason("256 rows with unaligned operands", "up to 128"),)
        if reasons := self._row_reasons(knobs, fusion):
            return reasons
        staged, loaded, chunk = self._staged_bytes(knobs, fusion)
        if chunk * min([*staged, *loaded], default=16) < tma.ALIGNMENT:
            # A row of a box has 16 bytes at least.
            what = f"chunks of {chunk} columns of {min([*staged, *loaded])} bytes"
            return (knob_reason(what, "tiles and slices of 16 columns or more"),)
        return smem_reasons(self._smem_bytes(knobs, fusion), target)

    def _row_reasons(self, knobs: Knobs, fusion: Fusion) -> tuple[Reason, ...]:
        """A row that is reduced and goes on lies in the registers of four lanes, or in those of
        the blocks of a cluster that have its columns."""
        if not flowing_reductions(fusion):
            return ()
        width = matmul_of(fusion).c.shape[-1].bounds()[1]
        columns, blocks = knobs["TILE_N"], knobs["TILE_CGA_N"]
        if knobs["SWAP_AB"] or columns > _MOST_REDUCED or width > columns * blocks:
            what = f"tile {knobs['TILE_M']}x{columns}, {blocks} side by side, for rows of {width}"
            supported = f"SWAP_AB=0, TILE_N up to {_MOST_REDUCED}, TILE_N * TILE_CGA_N of {width}"
            return (knob_reason(what, f"{supported} or more"),)
        if width > columns and knobs["TILE_CGA_M"] > 1:
            return (knob_reason("rows over a cluster of several rows", "TILE_CGA_M=1"),)
        return ()

    def _split_reasons(self, knobs: Knobs, fusion: Fusion) -> tuple[Reason, ...]:
        """Each block of a split has a part of k, and no row goes over several."""
        splits = knobs["SPLIT_K_SLC"]
        op = matmul_of(fusion)
        if splits == 1:
            return ()
        if knobs["TILE_CGA_M"] * knobs["TILE_CGA_N"] > 1:
            return (knob_reason("split k and shared tiles", "SPLIT_K_SLC=1 or TILE_CGA_*=1"),)
        if fusion.with_role("reduction"):
            return (knob_reason("split k and reductions", "SPLIT_K_SLC=1"),)
        least = splits * _instruction(op).panel_k
        if op.a.shape[-1].bounds()[0] < least:
            return (knob_reason(f"SPLIT_K_SLC={splits}", f"K of {least} or more"),)
        columns = _sides(knobs)[1]
        if columns % (8 * slices_of(columns, splits)):
            return (knob_reason(f"{columns} columns in {splits} parts", "multiples of 8"),)
        return ()

    def _schedule_reasons(self, knobs: Knobs, fusion: Fusion) -> tuple[Reason, ...]:
        """Which tiles may be cut along k, or taken one by one."""
        blocks = knobs["TILE_CGA_M"] * knobs["TILE_CGA_N"] * knobs["SPLIT_K_SLC"]
        names = [name for name in ("STREAM_K", "SCHED_POLICY") if knobs[name]]
        if not names:
            return ()
        if len(names) > 1 or blocks > 1 or groups_of(fusion).constant != 0:
            what = f"{' and '.join(names)} with clusters, groups or each other"
            return (knob_reason(what, "one of them, SPLIT_K_SLC=1, TILE_CGA_*=1, a plain matmul"),)
        if knobs["SCHED_POLICY"] and not _loads_are_async(knobs, fusion):
            what = "SCHED_POLICY=1 and operands that pass through registers"
            return (knob_reason(what, "operands that TMA brings"),)
        return ()

    def _share_reasons(self, knobs: Knobs, fusion: Fusion) -> tuple[Reason, ...]:
        """A block's share of an operand tile is whole swizzle atoms, or whole panels."""
        sides = (("a", knobs["TILE_M"], knobs["TILE_CGA_N"]),
                 ("b", knobs["TILE_N"], knobs["TILE_CGA_M"]))  # fmt: skip
        for op in matmuls_of(fusion):
            row = _instruction(op)
            for name, side, peers in sides:
                tensor = getattr(op, name)
                is_mn_major = row.takes_mn_major and _is_along_rows(tensor, is_a=name == "a")
                whole = wgmma.PANEL_ROWS if is_mn_major else wgmma.ATOM_ROWS
                if side % (peers * whole):
                    what = f"{side} rows of {name.upper()} shared by {peers} blocks"
                    return (knob_reason(what, f"shares that are multiples of {whole}"),)
        return ()

    def _staged_bytes(self, knobs: Knobs, fusion: Fusion) -> tuple[list[int], list[int], int]:
        """(bytes of an element of each staged output, of each staged load, columns of a chunk).

        At most those: what a load needs beyond its dims is seen when the kernel is made.
        """
        _, columns = _sides(knobs)
        swaps, splits = bool(knobs["SWAP_AB"]), knobs["SPLIT_K_SLC"]
        dims = matmul_of(fusion).c.shape
        # Groups begin at any row: boxes whose rows are contiguous can't.
        swapped_groups = swaps and groups_of(fusion).constant != 0
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

    def _smem_bytes(self, knobs: Knobs, fusion: Fusion) -> int:
        """No less than the kernel will need; what stays unused is seen when it is made."""
        rows, columns = _sides(knobs)
        swaps = bool(knobs["SWAP_AB"])
        found = matmuls_of(fusion)
        staged, loaded, chunk = self._staged_bytes(knobs, fusion)
        firsts, seconds = {op.a for op in found}, {op.b for op in found}
        if swaps:
            firsts, seconds = seconds, firsts
        row_bytes = wgmma.ROW_BYTES
        read = None
        if in_registers := knobs["WARP_SPEC_CFG"] == FRAGMENTS:
            read = _raw_of(next(iter(firsts)), fusion, is_a=not swaps)
        if read is not None:
            row_bytes = read.type.bits // 8 * _instruction(found[0]).panel_k
        stage = rows * len(firsts) * row_bytes + columns * len(seconds) * wgmma.ROW_BYTES
        splits = knobs["SPLIT_K_SLC"]
        buffers = STORE_BUFFERS * buffer_bytes(staged, chunk)
        buffers += LOAD_BUFFERS * buffer_bytes(loaded, chunk)
        producers = 1 if in_registers else knobs["WARP_SPEC_CFG"]
        slots = producers * RAW_BUFFERS[producers]
        rings = knobs["STAGES"] + _consumers(rows) * LOAD_BUFFERS + slots
        barriers = Pipeline.barrier_bytes(rings)
        sides = {True: knobs["TILE_M"], False: knobs["TILE_N"]}
        raw = sum(
            raw_bytes(sides[is_a], _instruction(op).panel_k, _raw_element_bytes(fusion, op, is_a))
            for op, is_a in {
                ((op.a if is_a else op.b), is_a): (op, is_a)
                for op in found
                for is_a in (True, False)
            }.values()
        )
        total = knobs["STAGES"] * stage + _consumers(rows) * buffers + barriers
        total += SplitSum.barrier_bytes()
        total += (0 if in_registers else slots * raw) + _groups_bytes(fusion)
        total += _consumers(rows) * self._exchange_bytes(knobs, fusion)
        if knobs["SCHED_POLICY"]:
            total += TileRing.bytes() + TileRing.barrier_bytes()
        return total + (len(found) * SplitSum.bytes(rows, columns) if splits > 1 else 0)

    def _exchange_bytes(self, knobs: Knobs, fusion: Fusion) -> int:
        """Of one warpgroup, where rows lie in several blocks."""
        rows, columns = _sides(knobs)
        width = matmul_of(fusion).c.shape[-1].bounds()[1]
        if not flowing_reductions(fusion) or width <= columns:
            return 0
        blocks = rows // _consumers(rows) // wgmma.M
        count = exchanges(len(fusion.with_role("reduction")), blocks)
        buffers = RowExchange.bytes(knobs["TILE_CGA_N"], count)
        return buffers + RowExchange.barrier_bytes(count)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        op = matmul_of(fusion)
        m, *_ = sizes_of(op)
        whole = [t for t in fusion.outputs if t.shape == op.c.shape]
        swaps = [int(bool(whole) and is_along_columns(whole[0]))]
        if _computes_operands(fusion):
            swaps = [0, 1]  # consumers compute the operand along the rows, of either side
        if not swaps[0] and typical(m) <= 64:
            swaps = [1, 0]
        if flowing_reductions(fusion):
            swaps = [0]
        swaps_of_booleans = swaps_of_bits(fusion)
        swaps = [swap for swap in swaps if swap in swaps_of_booleans] or swaps_of_booleans
        clusters = (*_CLUSTERS, (1, 4, 1)) if flowing_reductions(fusion) else _CLUSTERS
        found: list[Knobs] = []
        for swap, (rows, columns), (*cluster, splits), producers in product_of(
            swaps, _TILES, clusters, (FRAGMENTS, 2, 1) if _computes_operands(fusion) else (1,)
        ):
            tile = (columns, rows) if swap else (rows, columns)
            if producers == FRAGMENTS and rows > 128:
                continue  # a warpgroup that computes two blocks of rows waits for itself
            knobs = {
                "TILE_M": tile[0], "TILE_N": tile[1], "STAGES": 2,
                "TILE_CGA_M": cluster[0], "TILE_CGA_N": cluster[1], "SWAP_AB": swap,
                "SPLIT_K_SLC": splits, "WARP_SPEC_CFG": producers, "STREAM_K": 0,
                "SCHED_POLICY": 0,
            }  # fmt: skip
            if not self.legal(knobs, fusion, target):
                found.append(self._with_most_stages(knobs, fusion, target))
        return found

    def _with_most_stages(self, knobs: dict[str, int], fusion: Fusion, target: Target) -> Knobs:
        """As many stages as fit, up to what covers the latency of loads; all else is legal."""
        few, more = (self._smem_bytes({**knobs, "STAGES": n}, fusion) for n in (2, 3))
        fitting = 2 + (target.smem_block_bytes - few) // (more - few)
        return {**knobs, "STAGES": max(n for n in STAGES if n <= max(fitting, min(STAGES)))}

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        op = matmul_of(fusion)
        m, n, k, count = (typical(size) for size in sizes_of(op))
        row = _instruction(op)
        blocks = knobs["TILE_CGA_M"] * knobs["TILE_CGA_N"] * knobs["SPLIT_K_SLC"]
        swaps = bool(knobs["SWAP_AB"])
        whole = [t for t in fusion.outputs if t.shape == op.c.shape]
        residents = resident_clusters(target.sm_count, blocks).constant
        assert residents is not None
        takes_fragments = knobs["WARP_SPEC_CFG"] == FRAGMENTS
        computed = sum(
            side
            for t, side in ((op.a, knobs["TILE_M"]), (op.b, knobs["TILE_N"]))
            if t in fusion.producers
        )
        return HopperProduct(
            m, n, k, count,
            (knobs["TILE_M"], knobs["TILE_N"]),
            (knobs["TILE_CGA_M"], knobs["TILE_CGA_N"]),
            knobs["STAGES"],
            row.panel_k,
            swaps,
            knobs["SPLIT_K_SLC"],
            len(matmuls_of(fusion)),
            bytes_of((*fusion.inputs, *fusion.outputs)),
            any(is_heavy(other) for other in fusion.ops),
            any(t.type.kind != "b" and not stored_by_tma(t, swaps=swaps) for t in whole),
            min(load_share(_pitch_bytes(t)) for t in (op.a, op.b)),
            computed,
            0 if takes_fragments else knobs["WARP_SPEC_CFG"],
            target.mma_tflops[_RATE_OF[op.a.type]],
            residents,
            typical(groups_of(fusion)),
            bool(knobs["STREAM_K"]),
        ).predict(target)  # fmt: skip

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        op = matmul_of(fusion)
        found = ["TENSOR_CORE"]
        if op.a.type == dtypes.f32:
            found.append("DOWN_CONVERT_INPUTS")
        if op.a.type.is_fp8 and not _promotes(op):
            found.append("REDUCED_PRECISION_REDUCTION")
        return tuple(found)

    # ---- tiling

    def tile(self, region: Region, knobs: Knobs, target: Target) -> dict[str, Any]:
        calls = product_calls(region)
        swaps = bool(knobs["SWAP_AB"])
        row = _instruction_of(region, swaps=swaps)
        rows, columns = _sides(knobs)
        values = operand_values(calls, swaps=swaps)
        places = {entry: place for place, entry in enumerate(values)}
        products = [
            (places[call.operands[int(swaps)], not swaps], places[call.operands[1 - swaps], swaps])
            for call in calls
        ]
        dims = region.dims_of(calls[0].results[0])
        groups = _most_groups(region, calls[0])
        held = columns * (_cluster(knobs)[1] if row_reductions_that_flow(region) else 1)
        outputs = [
            "direct" if groups and swaps else _output_path(tensor, dims, held, swaps)
            for _, tensor in region.outputs
        ]
        staged = [
            tensor.type.bits // 8
            for (_, tensor), path in zip(region.outputs, outputs, strict=True)
            if path == "tma"
        ]
        splits = knobs["SPLIT_K_SLC"]
        operands = _operand_plans(
            region, values, row, rows, columns, knobs["WARP_SPEC_CFG"], starts_anywhere=groups > 0
        )
        is_async = all(operand["path"] != "registers" for operand in operands)
        # Warps of a producer that computes have no time to load for the epilogue.
        can_load = splits == 1 and is_async and not (groups and swaps)
        loads = staged_loads(region, calls, swaps=swaps) if can_load else []
        arguments = list(region.arguments.values())
        loaded = [arguments[place].type.bits // 8 for place in loads]
        cluster = _cluster(knobs)
        spans = row_reductions_that_flow(region) if dims[-1].bounds()[1] > columns else 0
        return Tiling(
            row=row,
            rows=rows,
            columns=columns,
            swaps=swaps,
            consumers=_consumers(rows),
            stages=knobs["STAGES"],
            cluster=cluster,
            group_rows=max(1, _GROUP_ROWS // (rows * cluster[0])),
            operands=tuple(operands),
            products=tuple(products),
            promotes=row.a.is_fp8 and _compute_type(calls[0]) != dtypes.fast_float_for_fp8,
            loads=tuple(loads),
            outputs=tuple(outputs),
            staged_bytes=tuple(staged),
            loaded_bytes=tuple(loaded),
            chunk=chunk_columns(columns // slices_of(columns, splits), [*staged, *loaded]),
            splits=splits,
            producers=1 if is_async else knobs["WARP_SPEC_CFG"],
            # A group may end between two neighbours.
            pair=1 if groups and swaps else _pair(dims[-2 if swaps else -1]),
            groups=groups,
            streams=bool(knobs["STREAM_K"]),
            is_dynamic=bool(knobs["SCHED_POLICY"]),
            exchanges=exchanges(spans, rows // _consumers(rows) // wgmma.M),
        ).plain()

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: Mapping[str, Any], output: Output) -> None:
        tiling = Tiling.of(tile, _instruction_of(region, swaps=bool(knobs["SWAP_AB"])))
        kernel = output.kernel("", tiling.threads)
        kernel.min_blocks = 1  # without it the assembler ignores `setmaxnreg`
        blocks = Cluster(*tiling.cluster, tiling.splits).blocks
        kernel.cluster = blocks
        with kernel.body():
            emitter = Emitter(kernel, region, tiling)
            emitter.emit()
        clusters = resident_clusters(device_dim("sm_count"), blocks)
        work = emitter.tiles.most
        if tiling.streams:
            work = work * emitter.steps
            # Slots in the workspace are as many as the target has multiprocessors.
            clusters = minimum(clusters, output.target.sm_count)
            _make_slots(tiling, output)
        if tiling.is_dynamic:
            counter = output.workspace("tiles", 4)
            output.memset(counter, 4)
        grid = (minimum(work, clusters) * blocks, 1, 1)
        output.launch(kernel, grid, cooperative=tiling.streams)
        emitter.epilogue.exits.emit_second(output)


def _make_slots(tiling: Tiling, output: Output) -> None:
    """Buffers of the sums that blocks leave to each other, and flags, which are lowered."""
    blocks = output.target.sm_count
    output.workspace("slots", blocks * StreamSum.bytes(tiling.consumers, tiling.sums))
    bytes_ = blocks * StreamSum.flag_bytes(tiling.consumers)
    output.memset(output.workspace("flags", bytes_), bytes_)


def _operand_plans(
    region: Region,
    values: Sequence[Any],
    row: wgmma.Instruction,
    rows: int,
    columns: int,
    roles: int,
    *,
    starts_anywhere: bool,
) -> list[dict[str, Any]]:
    """How each operand of a stage is loaded, and where it lies.

    starts_anywhere: whether tiles of A begin at rows that are no multiples of theirs.
    """
    found: list[dict[str, Any]] = []
    offset = raw_offset = 0
    arguments = list(region.arguments.values())
    # Those along the rows come first: A, or swapped, B.
    swaps = not values[0][1]
    for value, is_a in values:
        is_rows = is_a != swaps
        path = operand_path(region, value, row, is_a=is_a, is_rows=is_rows)
        side = rows if is_rows else columns
        if starts_anywhere and is_a and not path["loads_along_k"]:
            # The copy engine takes no box that begins inside 16 bytes of contiguous rows.
            path |= {"path": "registers", "raw": -1, "is_aligned": False, "k_contiguous": True}
        if side % (16 // row.element_bytes):
            # A chunk of 16 bytes along the rows would be longer than the tile.
            is_aligned = path["loads_along_k"] and path["is_aligned"]
            raw = path["raw"] if path["loads_along_k"] else -1
            path |= {"loads_along_k": True, "is_aligned": is_aligned, "raw": raw}
        if path["path"] == "registers" and side % wgmma.PANEL_ROWS:
            path["k_contiguous"] = True  # what g1 gives may lie either way
        if path["raw"] >= 0 and not path["loads_along_k"]:
            row_bytes = side * arguments[path["raw"]].type.bits // 8
            if row_bytes % tma.ALIGNMENT:
                path |= {"raw": -1, "is_aligned": False}
        bytes_, in_stage = 0, side * wgmma.ROW_BYTES
        if path["raw"] >= 0:
            bytes_ = raw_bytes(side, row.panel_k, arguments[path["raw"]].type.bits // 8)
        if roles == FRAGMENTS and is_rows:
            rank = len(region.dims_of(value))
            axes = (rank - 1, rank - 2) if is_a else (rank - 2, rank - 1)
            path |= {"path": "fragments", "raw": raw_argument(region, value, axes)}
            assert path["raw"] >= 0, "an operand that legal takes has a raw tile"
            in_stage = side * row.panel_k * arguments[path["raw"]].type.bits // 8
            bytes_ = 0
        place = {"offset": offset, "bytes": in_stage}
        found.append({**path, **place, "raw_offset": raw_offset, "raw_bytes": bytes_})
        offset += in_stage
        raw_offset += bytes_
    return found


def _output_path(tensor: Tensor, dims: Sequence[Expr], columns: int, swaps: bool) -> str:
    """See `Tiling.outputs`."""
    if tensor.type.kind == "b":
        return "bits"
    if tensor.shape == tuple(dims):
        return "tma" if stored_by_tma(tensor, swaps=swaps) else "direct"
    keeps_all_but_row = tensor.shape[:-1] == tuple(dims[:-1])
    fits = not swaps and dims[-1].bounds()[1] <= columns
    return "row" if keeps_all_but_row and fits else "exit"


def _pair(size: Expr) -> int:
    return 2 if size.known_divisor() % 2 == 0 else 1


def _most_groups(region: Region, call: Any) -> int:
    """Groups of rows at most; 0: of a matmul."""
    if len(call.operands) <= OFFSETS:
        return 0
    return region.dims_of(call.operands[OFFSETS])[0].bounds()[1]


def _most_columns(fusion: Fusion) -> int:
    """Of a tile whose rows are reduced: its sums lie in registers beside what is computed."""
    found = matmuls_of(fusion)
    most = _MOST_ACCUMULATORS // (len(found) * (1 + _promotes(found[0])))
    return max(columns for columns in COLUMNS if columns <= min(most, _MOST_REDUCED))


def _is_along_rows(tensor: Tensor, *, is_a: bool) -> bool:
    """Whether an operand's rows, not k, may be contiguous."""
    k_axis = tensor.rank - 1 if is_a else tensor.rank - 2
    return tensor.layout[k_axis].constant != 1 or tensor.shape[k_axis].constant == 1


def _computes_operands(fusion: Fusion) -> bool:
    """Whether an operand comes out of g1."""
    return any(t in fusion.producers for op in matmuls_of(fusion) for t in (op.a, op.b))


def _no_fragments(knobs: Knobs, fusion: Fusion) -> str:
    """Why consumers can't compute the operand along the rows; "": they can."""
    pairs = {(op.b, op.a) if knobs["SWAP_AB"] else (op.a, op.b) for op in matmuls_of(fusion)}
    first, _ = next(iter(pairs))
    if len({pair[0] for pair in pairs}) > 1 or first not in fusion.producers:
        return "no operand along the rows that is computed"
    if not _instruction(matmul_of(fusion)).takes_mn_major:
        return f"operands of {first.type}"
    if any(not isinstance(op, Pointwise) for op in fusion.upstream(first)):
        return "operations that are not pointwise before the product"
    if first.shape[-2 if knobs["SWAP_AB"] else -1].known_divisor() % 2:
        return "an odd k"
    raw = _raw_of(first, fusion, is_a=not knobs["SWAP_AB"])
    if raw is None or raw.type.bits > 16:
        return f"{first.label} of nothing of up to 16 bits with k contiguous"
    is_grouped = groups_of(fusion).constant != 0
    for _, tensor in pairs:
        is_a = bool(knobs["SWAP_AB"])
        if tensor in fusion.producers or not _comes_by_tma(tensor, is_a, is_grouped and is_a):
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
    for op in matmuls_of(fusion):
        for tensor, is_a in ((op.a, True), (op.b, False)):
            is_rows = is_a != bool(knobs["SWAP_AB"])
            if is_rows and knobs["WARP_SPEC_CFG"] == FRAGMENTS:
                continue
            axes = _axes(tensor, is_a=is_a)
            along = [axes, axes[::-1]] if _instruction(op).takes_mn_major else [axes]
            if tensor in fusion.producers or all(tma.refusal(tensor, a) for a in along):
                return False
    return True


def _comes_by_tma(tensor: Tensor, is_a: bool, starts_anywhere: bool) -> bool:
    """Whether an operand of 16 bits is loaded as the instruction reads it.

    starts_anywhere: its tiles begin at rows that are no multiples of theirs.
    """
    axes = _axes(tensor, is_a=is_a)
    if tma.refusal(tensor, axes) is None:
        return True
    return not starts_anywhere and tma.refusal(tensor, axes[::-1]) is None


def _raw_element_bytes(fusion: Fusion, op: Product, is_a: bool) -> int:
    """At most the bytes of an element of what g1 reads from raw tiles; 0: nothing."""
    operand = op.a if is_a else op.b
    upstream = fusion.upstream(operand)
    read = {t for other in upstream for t in other.operands} if upstream else set[Tensor]()
    if not upstream and (_instruction(op).takes_mn_major or not _is_along_rows(operand, is_a=is_a)):
        return 0
    fitting = [t for t in (*read, operand) if t in fusion.inputs and t.shape == operand.shape]
    return max((t.type.bits // 8 for t in fitting), default=0)


def _compute_type(call: Any) -> DType:
    attribute = structure.anchor_of(call).attributes["dnn.compute_type"]
    return dnn.attribute_value(attribute, DType)


def _groups_bytes(fusion: Fusion) -> int:
    """Of the table of groups."""
    most = groups_of(fusion).bounds()[1]
    return GroupTable.bytes(most) if most else 0


def _promotes(op: Product) -> bool:
    """Whether sums have to be more exact than the accumulators of fp8 products are."""
    return op.a.type.is_fp8 and op.compute_type != dtypes.fast_float_for_fp8


def resident_clusters(multiprocessors: Size, blocks: int) -> Expr:
    """How many clusters run at the same time.

    A cluster lies in one part (GPC) of the device; those of 4 and 8 blocks leave some of its
    multiprocessors unused.  31 clusters of 4 blocks did not run together on 132.
    """
    usable = Expr.of(multiprocessors)
    return (usable if blocks < 4 else usable * 7 // 8) // blocks


_TILES = (
    (128, 256), (256, 128), (128, 192), (128, 128), (128, 96), (128, 64), (64, 256), (64, 128),
    (64, 64), (128, 32), (128, 16), (128, 8), (64, 32), (64, 16), (64, 8),
)  # fmt: skip
_CLUSTERS = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 1, 4), (1, 1, 8))

_RATE_OF: Mapping[DType, str] = {
    dtypes.f16: "f16", dtypes.bf16: "bf16", dtypes.f32: "f32", dtypes.i8: "i8",
    dtypes.f8e4m3: "i8", dtypes.f8e5m2: "i8",
}  # fmt: skip


def _sides(knobs: Knobs) -> tuple[int, int]:
    """The tile along the instruction's rows and columns."""
    sides = (knobs["TILE_M"], knobs["TILE_N"])
    return (sides[1], sides[0]) if knobs["SWAP_AB"] else sides


def _cluster(knobs: Knobs) -> tuple[int, int]:
    """Blocks of a cluster along the instruction's rows and columns."""
    blocks = (knobs["TILE_CGA_M"], knobs["TILE_CGA_N"])
    return (blocks[1], blocks[0]) if knobs["SWAP_AB"] else blocks


def _consumers(rows: int) -> int:
    return 1 if rows == 64 else 2


def _instruction(op: Product) -> wgmma.Instruction:
    return wgmma.INSTRUCTIONS[op.a.type, op.b.type]


def _instruction_of(region: Region, *, swaps: bool) -> wgmma.Instruction:
    """Its first operand is B where the transpose of C is computed."""
    call = next(op for op in region.operations if op.name == "func.call")
    operands = list(call.operands)[:2]
    a, b = (dtypes.of(str(ir.RankedTensorType(v.type).element_type)) for v in operands)
    return wgmma.INSTRUCTIONS[(b, a) if swaps else (a, b)]


def _is_aligned(tensor: Tensor) -> bool:
    """Whether rows begin where TMA takes them."""
    return _pitch_bytes(tensor) % tma.ALIGNMENT == 0


def _pitch_bytes(tensor: Tensor) -> int:
    """A number known to divide the distance between rows; 0: there is one row."""
    size = max(1, tensor.type.bits // 8)
    return gcd(*(s.known_divisor() * size for s in tensor.layout[-2:] if s.constant != 1))


MATMUL_SM90 = MatmulSm90Engine()
