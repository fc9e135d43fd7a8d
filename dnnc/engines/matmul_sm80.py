# pyright: basic
"""Engine matmul_sm80: matrix products on the tensor cores of sm_80 and later, fused.

    g2(C = g1a(inputs) @ g1b(inputs), inputs): `cp.async`, `ldmatrix`, `mma.sync`

    stage s of S:   | A tile | B tile |   swizzled, loaded S - 1 tiles ahead
    k tile:         wait for the stage; barrier; start loading tile k + S - 1; multiply tile k
    epilogue:       accumulators -> shared memory -> walk of g2 on 16-byte fragments -> outputs

A block computes one tile [tile_m, tile_n]; tiles are numbered in groups of rows, so that blocks
that run together share operands in L2.  What goes through registers (see `OperandTile`) is loaded
before a tile is multiplied and stored after it.  Rows past M and N repeat the last one, since
what they give is not stored; k past K is zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from .. import dtypes
from ..codegen import mma, ops, smem
from ..codegen.index import Coordinate, Index
from ..codegen.kernel import Kernel
from ..codegen.loops import Loops
from ..codegen.operand_tile import OperandTile, operand_plan
from ..codegen.output import Output
from ..codegen.region import Region
from ..codegen.schedule import TileOrder
from ..codegen.walk import Walk
from ..dialect.fusion import Fusion, remembered, remembered_at_sizes
from ..dtypes import DType
from ..errors import Status
from ..expr import ceildiv, typical
from ..mlir import arith, ir
from ..target import WARP_THREADS, Target
from .engine import Knob, Knobs, Prediction, Reason
from .product import (
    Product,
    anchor_reasons,
    compute_reasons,
    epilogue_reasons,
    is_along_columns,
    is_heavy,
    knob_reason,
    matmul_of,
    sizes_of,
)
from .product_model import OperandLines, TiledProduct
from .surface import (
    bytes_of,
    fp8_reasons,
    smem_reasons,
    too_large_reasons,
)

# (tile_m, tile_n) -> warps along m and n.
WARPS = {
    (32, 64): (2, 2),
    (32, 128): (1, 4),
    (64, 64): (2, 2),
    (64, 128): (2, 2),
    (128, 64): (2, 2),
    (128, 128): (2, 4),
    (128, 256): (2, 4),
    (256, 128): (4, 2),
}

_GROUP_ROWS = 8
_PAD_BYTES = 32  # after each row of the epilogue's tile, against bank conflicts
_OPERAND_TYPES = (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.i8)


@dataclass(frozen=True)
class MatmulSm80Engine:
    """See the file's docstring."""

    name: str = "matmul_sm80"
    index: int = 4
    inlines_anchors: bool = False
    support: tuple[str, ...] = (
        "one matmul of f16, bf16, f32 (as tf32, once or in three products) or i8 operands, sums "
        "in f32 (of HALF compute too, rounded once) or i32; any sizes, strides, broadcast batches",
        "pointwise and view operations on A, B and beside the product; pointwise operations of "
        "the product's dims after it, the product used anywhere; several outputs, each of which "
        "follows the product, of any type but BOOLEAN",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if reasons := anchor_reasons(fusion):
            return reasons
        return (
            *self._type_reasons(matmul_of(fusion)),
            *epilogue_reasons(fusion, matmul_of(fusion)),
            *fp8_reasons(fusion, target),
            *too_large_reasons(fusion),
        )

    def _type_reasons(self, op: Product) -> list[Reason]:
        if op.a.type == op.b.type and op.a.type in _OPERAND_TYPES:
            return compute_reasons(op.compute_type, op.a.type, op.b.type)
        return [
            Reason(
                Status.NOT_SUPPORTED_DATA_TYPE,
                "operand types",
                f"A {op.a.type}, B {op.b.type}",
                "both f16, bf16, f32 or i8 (identity casts an operand)",
            )
        ]

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_M", (128, 32, 64, 256), "rows of a block's tile"),
        Knob("TILE_N", (128, 64, 256), "columns of a block's tile"),
        Knob("TILEK", (16, 32, 64, 128), "depth of a stage"),
        Knob("STAGES", (4, 2, 3, 5, 6), "stages in shared memory"),
        Knob("TF32", (3, 1), "tf32 products for one of f32"),
    )

    def knobs(self, fusion: Fusion, target: Target) -> tuple[Knob, ...]:
        """A stage is 64 or 128 bytes deep; TF32 is of f32 operands."""
        op = matmul_of(fusion)
        chunk = mma.INSTRUCTIONS[op.a.type].chunk_elems
        rows, columns, depth, stages, tf32 = self.all_knobs
        common = (rows, columns, replace(depth, values=(4 * chunk, 8 * chunk)), stages)
        return (*common, tf32) if op.a.type == dtypes.f32 else common

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        tile = (knobs["TILE_M"], knobs["TILE_N"])
        if tile not in WARPS:
            pairs = ", ".join(f"{m}x{n}" for m, n in WARPS)
            return (knob_reason(f"tile {tile[0]}x{tile[1]}", pairs),)
        if knobs.get("TF32") == 3 and (tile[0] * tile[1] > 128 * 128 or knobs["TILEK"] > 16):
            # Both halves of the operands are held in registers, and larger tiles would spill.
            what = f"three products with tile {tile[0]}x{tile[1]}x{knobs['TILEK']}"
            return (knob_reason(what, "TF32=1, or tiles up to 128x128x16"),)
        op = matmul_of(fusion)
        return smem_reasons(_smem_bytes(knobs, op.a.type), target)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        op = matmul_of(fusion)
        chunk = mma.INSTRUCTIONS[op.a.type].chunk_elems
        products = (3, 1) if op.a.type == dtypes.f32 else (0,)
        found: list[Knobs] = []
        for products_of_one in products:
            for (m, n), depth, stages in (
                (tile, depth, stages)
                for tile in reversed(WARPS)
                for depth, stages in ((8 * chunk, 3), (4 * chunk, 4), (8 * chunk, 6))
            ):
                knobs = {"TILE_M": m, "TILE_N": n, "TILEK": depth, "STAGES": stages}
                if products_of_one:
                    knobs["TF32"] = products_of_one
                if not self.legal(knobs, fusion, target):
                    found.append(knobs)
        return found

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        op = matmul_of(fusion)
        work, (a, b) = _work(fusion), _operand_lines(fusion)
        tile = (knobs["TILE_M"], knobs["TILE_N"])
        warps_m, warps_n = WARPS[tile]
        return TiledProduct(
            *work.sizes,
            tile,
            knobs["TILEK"],
            knobs["STAGES"],
            warps_m * warps_n * WARP_THREADS,
            _smem_bytes(knobs, op.a.type),
            op.a.type.bits // 8,
            a.time(knobs["TILEK"]),
            b.time(knobs["TILEK"]),
            knobs.get("TF32", 1),
            work.moved_bytes,
            work.is_heavy,
            target.mma_tflops[op.a.type.name],
        ).predict(target)

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        rounded = ("DOWN_CONVERT_INPUTS",) if knobs.get("TF32") == 1 else ()
        return ("TENSOR_CORE", *rounded)

    # ---- tiling

    def tile(self, region: Region, knobs: Knobs, target: Target) -> dict[str, Any]:
        call = _anchor_call(region)
        operand_type = dtypes.of(str(ir.RankedTensorType(call.operands[0].type).element_type))
        warps = WARPS[(knobs["TILE_M"], knobs["TILE_N"])]
        along, width = _epilogue_fragments(region)
        return {
            "tile": [knobs["TILE_M"], knobs["TILE_N"], knobs["TILEK"]],
            "warps": list(warps),
            "stages": knobs["STAGES"],
            "group_rows": _GROUP_ROWS,
            "a": operand_plan(region, call.operands[0], operand_type, is_a=True),
            "b": operand_plan(region, call.operands[1], operand_type, is_a=False),
            "epilogue": {"along": along, "vector_elems": width},
            "products": knobs.get("TF32", 1),
        }

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: Mapping[str, Any], output: Output) -> None:
        warps_m, warps_n = tile["warps"]
        kernel = output.kernel("", warps_m * warps_n * WARP_THREADS)
        with kernel.body():
            emitter = _Emitter(kernel, region, tile)
            kernel.min_blocks = emitter.blocks_together
            emitter.emit()
        output.launch(kernel, (emitter.order.tiles, 1, 1))


@dataclass(frozen=True)
class _Work:
    """sizes: M, N, K and the number of products.  moved_bytes: of global memory in all."""

    sizes: tuple[int, int, int, int]
    moved_bytes: int
    is_heavy: bool


@remembered_at_sizes
def _work(fusion: Fusion) -> _Work:
    m, n, k, count = map(typical, sizes_of(matmul_of(fusion)))
    moved_bytes = bytes_of((*fusion.inputs, *fusion.outputs))
    return _Work((m, n, k, count), moved_bytes, any(map(is_heavy, fusion.ops)))


@remembered
def _operand_lines(fusion: Fusion) -> tuple[OperandLines, OperandLines]:
    op = matmul_of(fusion)
    a, b = op.a, op.b
    return OperandLines.of(a, a.rank - 1), OperandLines.of(b, b.rank - 2)


def _smem_bytes(knobs: Knobs, operand: DType) -> int:
    m, n = knobs["TILE_M"], knobs["TILE_N"]
    stage = (m + n) * knobs["TILEK"] * operand.bits // 8
    return max(stage * knobs["STAGES"], m * (n * 4 + _PAD_BYTES))


def _anchor_call(region: Region) -> Any:
    return next(op for op in region.operations if op.name == "func.call")


def _epilogue_fragments(region: Region) -> tuple[str, int]:
    """(the axis that the epilogue's fragments lie along, their elements)."""
    first = region.outputs[0][1]
    is_column = is_along_columns(first)
    extent = first.shape[-2 if is_column else -1]
    smallest = min(max(8, tensor.type.bits) for _, tensor in region.outputs)
    width = min(8, 128 // smallest)
    while extent.known_divisor() % width:
        width //= 2
    return ("m" if is_column else "n"), width


# ---- the kernel


@dataclass
class _Emitter:
    """One kernel, top to bottom."""

    kernel: Kernel
    region: Region
    tile: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.call = _anchor_call(self.region)
        a, b = self.call.operands
        operand = dtypes.of(str(ir.RankedTensorType(a.type).element_type))
        self.row = mma.INSTRUCTIONS[operand]
        self.tile_m, self.tile_n, self.tile_k = self.tile["tile"]
        self.warps_m, self.warps_n = self.tile["warps"]
        self.stages = self.tile["stages"]
        common = (self.kernel, self.region)
        self.a = OperandTile(*common, a, self.tile["a"], operand, True, self.tile_m, self.tile_k)
        self.b = OperandTile(*common, b, self.tile["b"], operand, False, self.tile_n, self.tile_k)
        self.m, self.n, self.k = self.a.size, self.b.size, self.a.k_size
        self.c_dims = self.region.dims_of(self.call.results[0])
        batch_axes = [i for i, n in enumerate(self.c_dims[:-2]) if n.constant != 1]
        self.batch = Loops(self.c_dims, tuple((axis,) for axis in batch_axes))
        self.leaves = self.region.leaves(self.kernel)
        self.walk = Walk(self.kernel, self.leaves, self.region.symbols)
        self.warp_m = self.tile_m // self.warps_m
        self.warp_n = self.tile_n // self.warps_n
        self.m_tiles, self.n_tiles = self.warp_m // mma.M, self.warp_n // mma.N

    @property
    def blocks_together(self) -> int:
        """How many blocks of a multiprocessor the registers are to be kept small enough for.

        Two of the middle tile: one's epilogue then runs beside the other's main loop.
        """
        is_middle = (self.tile_m, self.tile_n) == (128, 128)
        is_light = self.a.is_async and self.b.is_async and self.tile["products"] == 1
        return 2 if is_middle and is_light else 0

    def emit(self) -> None:
        stage_bytes = self.a.shape.bytes + self.b.shape.bytes
        self.c_stride = self.tile_n * 4 + _PAD_BYTES
        smem_bytes = max(stage_bytes * self.stages, self.tile_m * self.c_stride)
        base = self.kernel.dynamic_shared(smem_bytes)
        batch, tile_row, tile_column = self._tile_of_block()
        self.first_m = ops.mul(tile_row, self.tile_m)
        self.first_n = ops.mul(tile_column, self.tile_n)
        warp = ops.shr(ops.thread_id(), 5)
        self.warp_row = ops.mul(ops.rem(warp, self.warps_m), self.warp_m)
        self.warp_column = ops.mul(ops.div(warp, self.warps_m), self.warp_n)
        totals = self._main_loop(base, stage_bytes, batch)
        self._epilogue(base, totals, batch)

    @property
    def order(self) -> TileOrder:
        rows, columns = ceildiv(self.m, self.tile_m), ceildiv(self.n, self.tile_n)
        return TileOrder(rows, columns, self.batch.fragments, self.tile["group_rows"])

    def _tile_of_block(self) -> tuple[dict[int, Coordinate], Any, Any]:
        """(batch coordinates, row and column of the block's tile), rows in groups."""
        matrix, row, column = self.order.place(self.kernel, ops.block_id())
        batch = self.batch.coordinates(self.kernel, matrix) if self.batch.groups else {}
        return batch, row, column

    # ---- main loop

    def _main_loop(self, base: Any, stage_bytes: int, batch: Mapping[int, Coordinate]) -> list[Any]:
        """The accumulators, m tile by n tile, four scalars each."""
        steps = self.kernel.size(ceildiv(self.k, self.tile_k))
        zero = ops.zeros(ir.F32Type.get() if self.row.accumulator.is_float else ops.i32_type())
        totals = [zero] * (self.m_tiles * self.n_tiles * 4)
        for stage in range(self.stages - 1):
            with ops.if_(ops.less(stage, steps)):
                self._load(smem.byte_pointer(base, stage * stage_bytes), stage, batch)
            smem.commit()

        def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            read, write, *sums = carried
            smem.wait(self.stages - 2)
            ops.barrier()  # the stage is there for all, and all have left the one loaded next
            ahead = ops.add(i, self.stages - 1)
            is_more = ops.less(ahead, steps)
            slot = smem.byte_pointer(base, write)
            last = ops.sub(steps, 1)
            held = self._start_load(slot, ahead, last, is_more, batch)
            smem.commit()
            sums = self._multiply(smem.byte_pointer(base, read), sums)
            self._finish_load(slot, held, is_more)
            return [self._next(read, stage_bytes), self._next(write, stage_bytes), *sums]

        first = [ops.const(0), ops.const((self.stages - 1) * stage_bytes)]
        _, _, *totals = ops.for_(0, steps, 1, [*first, *totals], step)
        smem.wait(0)
        return totals

    def _next(self, offset: Any, stage_bytes: int) -> Any:
        """The following stage's offset, the first after the last."""
        moved = ops.add(offset, stage_bytes)
        return ops.select(ops.compare("eq", moved, self.stages * stage_bytes), ops.const(0), moved)

    def _slots(self, slot: Any) -> tuple[Any, Any]:
        return slot, smem.byte_pointer(slot, self.a.shape.bytes)

    def _parts(self) -> tuple[tuple[OperandTile, Any], ...]:
        return ((self.a, self.first_m), (self.b, self.first_n))

    def _load(self, slot: Any, tile: Any, batch: Mapping[int, Coordinate]) -> None:
        """Loads k tile number `tile` into a stage."""
        first_k = ops.mul(tile, self.tile_k)
        for (operand, first), place in zip(self._parts(), self._slots(slot), strict=True):
            if operand.is_async:
                operand.issue(batch, first, first_k, place)
            else:
                operand.put(operand.fetch(self.walk, batch, first, first_k), place)
                self.walk.forget()

    def _start_load(
        self, slot: Any, tile: Any, last: Any, condition: Any, batch: Mapping[int, Coordinate]
    ) -> list[Any]:
        """Issues the loads of a k tile; what goes through registers comes back."""
        first_k = ops.mul(tile, self.tile_k)
        held: list[Any] = []
        for (operand, first), place in zip(self._parts(), self._slots(slot), strict=True):
            if operand.is_async:
                with ops.if_(condition):
                    operand.issue(batch, first, first_k, place)
            else:
                # Past the last tile it is loaded again, inside the tensor, and not stored.
                again = ops.mul(ops.minimum(tile, last), self.tile_k)
                held.append(operand.fetch(self.walk, batch, first, again))
                self.walk.forget()
        return held

    def _finish_load(self, slot: Any, held: Sequence[Any], condition: Any) -> None:
        rest = iter(held)
        for (operand, _), place in zip(self._parts(), self._slots(slot), strict=True):
            if not operand.is_async:
                with ops.if_(condition):
                    operand.put(next(rest), place)

    def _multiply(self, slot: Any, sums: Sequence[Any]) -> list[Any]:
        """Adds the product of a stage's tiles to the accumulators."""
        sums = list(sums)
        a_slot, b_slot = self._slots(slot)
        for step in range(self.tile_k // self.row.k):
            a = self.a.fragments(a_slot, self.warp_row, self.m_tiles, step)
            b = self.b.fragments(b_slot, self.warp_column, self.n_tiles, step)
            products = self._products(a, b)
            for i in range(self.m_tiles):
                for j in range(self.n_tiles):
                    place = (i * self.n_tiles + j) * 4
                    parts = [(a_part[i], b_part[j]) for a_part, b_part in products]
                    sums[place : place + 4] = self._accumulate(sums[place : place + 4], parts)
        return sums

    def _accumulate(self, sums: list[Any], products: Sequence[tuple[Any, Any]]) -> list[Any]:
        """The sums of one instruction's tile and its products.

        The tensor cores cut what they add down to f32, which over a long k is far from what f32
        rounding gives; three products for one are for those who want f32, so they are summed
        from zero and added to the rest by an addition that rounds.
        """
        if len(products) == 1:
            return mma.multiply(self.row, *products[0], sums)
        part = [ops.zeros(ir.F32Type.get())] * 4
        for a, b in products:
            part = mma.multiply(self.row, a, b, part)
        return [arith.AddFOp(s, p).result for s, p in zip(sums, part, strict=True)]

    def _products(self, a: list[list[Any]], b: list[list[Any]]) -> list[tuple[Any, Any]]:
        """The operand pairs whose products make one: f32 is split for tf32, small terms first."""
        if self.row.ptx != "tf32":
            return [(a, b)]
        if self.tile["products"] == 1:
            rounded = [[[mma.tf32(r) for r in tile] for tile in operand] for operand in (a, b)]
            return [(rounded[0], rounded[1])]
        halves = []
        for operand in (a, b):
            pairs = [[mma.tf32_pair(r) for r in tile] for tile in operand]
            halves.append([[[p[h] for p in tile] for tile in pairs] for h in (0, 1)])
        (a_high, a_low), (b_high, b_low) = halves
        return [(a_low, b_high), (a_high, b_low), (a_high, b_high)]

    # ---- epilogue

    def _epilogue(self, base: Any, totals: Sequence[Any], batch: Mapping[int, Coordinate]) -> None:
        """Accumulators to shared memory, then g2 on fragments of the outputs."""
        ops.barrier()  # every warp has read its last operands
        self._store_totals(base, totals)
        ops.barrier()
        along, width = self.tile["epilogue"]["along"], self.tile["epilogue"]["vector_elems"]
        rows, columns = (
            (self.tile_m, self.tile_n // width)
            if along == "n"
            else (self.tile_m // width, self.tile_n)
        )
        fast = columns if along == "n" else rows

        def one(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            piece = ops.add(ops.thread_id(), ops.mul(i, self.kernel.threads))
            slow, quick = ops.div(piece, fast), ops.rem(piece, fast)
            if along == "n":
                self._emit_fragment(base, batch, slow, ops.mul(quick, width), width, along)
            else:
                self._emit_fragment(base, batch, ops.mul(quick, width), slow, width, along)
            return carried

        ops.for_(0, rows * columns // self.kernel.threads, 1, [], one)

    def _store_totals(self, base: Any, totals: Sequence[Any]) -> None:
        lane = ops.and_(ops.thread_id(), WARP_THREADS - 1)
        for i in range(self.m_tiles):
            for j in range(self.n_tiles):
                for half in (0, 1):
                    row, column = mma.accumulator_place(lane, 2 * half)
                    row = ops.add(ops.add(self.warp_row, i * mma.M), row)
                    column = ops.add(ops.add(self.warp_column, j * mma.N), column)
                    place = (i * self.n_tiles + j) * 4 + 2 * half
                    pair = ops.from_elements(list(totals[place : place + 2]))
                    offset = ops.add(ops.mul(row, self.c_stride), ops.mul(column, 4))
                    ops.store(smem.byte_pointer(base, offset), pair, 8)

    def _emit_fragment(
        self,
        base: Any,
        batch: Mapping[int, Coordinate],
        row: Any,
        column: Any,
        width: int,
        along: str,
    ) -> None:
        m, n = ops.add(self.first_m, row), ops.add(self.first_n, column)
        m_size, n_size = self.kernel.size(self.m), self.kernel.size(self.n)
        is_inside = ops.both(ops.less(m, m_size), ops.less(n, n_size))
        m_step, n_step = (0, 1) if along == "n" else (1, 0)
        with ops.if_(is_inside):
            at: list[Coordinate] = [
                batch.get(axis, Index.of(0)) for axis in range(len(self.c_dims))
            ]
            at[-2] = Index(m, m_step if width > 1 else 0, width if m_step else 1)
            at[-1] = Index(n, n_step if width > 1 else 0, width if n_step else 1)
            totals = _Totals(self, base, row, column)
            leaves = {**self.leaves, self.call.results[0]: totals}
            walk = Walk(self.kernel, leaves, self.region.symbols)
            targets = self.region.targets(self.kernel)
            values = [walk.value(value, at, width) for value, _ in targets]
            for (_, target), value in zip(targets, values, strict=True):
                target.store(at, value)


@dataclass(frozen=True)
class _Totals:
    """The product's tile in shared memory, as a leaf of the walk of g2.

    row, column: of the fragment within the tile; g2 reads the product at no other place.
    """

    emitter: _Emitter
    base: Any
    row: Any
    column: Any

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        e = self.emitter
        element = ir.F32Type.get() if e.row.accumulator.is_float else ops.i32_type()
        offset = ops.add(ops.mul(self.row, e.c_stride), ops.mul(self.column, 4))
        if width == 1 or at[-1].index().is_consecutive:
            pointer = smem.byte_pointer(self.base, offset)
            return ops.load(pointer, ops.vector_type(element, width), min(16, 4 * width))
        found = []
        for i in range(width):
            pointer = smem.byte_pointer(self.base, ops.add(offset, i * e.c_stride))
            found.append(ops.load(pointer, element, 4))
        return ops.from_elements(found)


MATMUL_SM80 = MatmulSm80Engine()
