"""wgmma: products of a warpgroup, D = A B + D, with operands in shared memory.

Register layouts, with warp w of the warpgroup, g = lane // 4 and t = lane % 4:
  D [64, N]   element 4j + 2h + e is row 16w + g + 8h, column 8j + 2t + e (f16: two a register)
  A [64, K]   as in four warps' `mma`: register 2c + h holds row 16w + g + 8h

Numerics: products are exact; they are summed with D in float64 and rounded once an instruction.
The hardware sums in a narrower form, in an order that it does not tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import floats
from ..arena import CLEAN
from ..decode import OWN, PRED, Control, Decoder, Read, Run, Slot, controls, decodes
from ..failure import InterpreterError
from ..formats import F16, FORMATS, decode, f16_bits
from ..geometry import WARP
from ..memory import Fail
from ..ptx import Immediate, Instruction, Register, Vector
from ..ptx import Operand as PtxOperand
from ..ptxtypes import TYPES, Array, PtxType
from ..shared import SHARED_BASE
from ..wgmma import PERIOD, ROWS, WARPS, Descriptor, Operand, Product, ProductForm, places
from .control import guard_slot, taken_lanes
from .mbarrier import hopper_of, stand_or_go

if TYPE_CHECKING:
    from ..machine import Machine

_B32, _U64 = TYPES["b32"], TYPES["u64"]
# Type of A -> types of B, accumulators, K.
_FORMS: dict[str, tuple[tuple[str, ...], tuple[str, ...], int]] = {
    "f16": (("f16",), ("f32", "f16"), 16),
    "bf16": (("bf16",), ("f32",), 16),
    "tf32": (("tf32",), ("f32",), 8),
    **{name: (("e4m3", "e5m2"), ("f32", "f16"), 32) for name in ("e4m3", "e5m2")},
    **{name: (("s8", "u8"), ("s32",), 32) for name in ("s8", "u8")},
}
_INTEGER_N = (8, *range(16, 33, 8), *range(48, 257, 16))
_ELEMENT = {
    **{name: np.dtype(np.uint16) for name in ("f16", "bf16")},
    **{name: np.dtype(np.uint8) for name in ("u8", "e4m3", "e5m2")},
    **{"s8": np.dtype(np.int8), "tf32": np.dtype(np.uint32)},
}


def _values(items: Array, of: PtxType) -> Array:
    """Elements as float64; integers are exact too."""
    if of.name in ("s8", "u8"):
        return items.astype(np.float64)
    return decode(items, FORMATS[of.name]).astype(np.float64)


class _Form(ProductForm):
    """A decoded wgmma.mma_async."""

    def __init__(self, d: Decoder):
        d.take("mma_async")
        d.take("sync")
        d.take("aligned")
        shape = d.modifiers.pop(0)
        satfinite = d.take("satfinite")
        result, a, b = (d.take_type() for _ in range(3))
        d.finish()
        self.instruction = d.instruction
        self.result, self.a, self.b, self.satfinite = result, a, b, satfinite
        rows, _, rest = shape.removeprefix("m").partition("n")
        n, _, k = rest.partition("k")
        partners, results, wanted = _FORMS.get(a.name, ((), (), 0))
        known = b.name in partners and result.name in results and rows == "64"
        if not known or not n.isdigit() or k != str(wanted):
            raise d.error("this shape and these types do not exist")
        self.n, self.k = int(n), wanted
        fits = self.n in _INTEGER_N if result.name == "s32" else self.n % 8 == 0
        if not fits or not 8 <= self.n <= 256:
            raise d.error(f"N = {n} does not exist")
        self.packed = result.name == "f16"
        self.shape = (self.n, result.name)
        self._operands(d)

    def _operands(self, d: Decoder) -> None:
        operands = list(d.operands)
        count = self.n // (4 if self.packed else 2)
        self.slots = [d.slot(item) for item in d.vector(operands[0], count)]
        self.accumulators = tuple(slot.key for slot in self.slots)
        self.numbers = np.array([slot.number for slot in self.slots])
        self.a_slots: list[Slot] = []
        if isinstance(operands[1], Vector):
            self.a_slots = [d.slot(item) for item in d.vector(operands[1], 4)]
        self.inputs = frozenset(slot.key for slot in self.a_slots)
        narrow = self.a.width == 16
        flags = _flags(d, operands[4:], self.result.name == "s32", narrow, bool(self.a_slots))
        self.scale_a, self.scale_b, transposed_a, transposed_b = flags
        size_a, size_b = _ELEMENT[self.a.name].itemsize, _ELEMENT[self.b.name].itemsize
        self.a_place = Operand(ROWS, self.k, size_a, transposed_a)
        self.b_place = Operand(self.n, self.k, size_b, transposed_b)
        wanted = operands[2:3] if self.a_slots else operands[1:3]
        self.descriptors = [d.read(operand, _U64) for operand in wanted]
        self.accumulates, constant = _scale(d, operands[3])
        d.strict.extend(d.reads)
        d.reads.extend(self.a_slots)
        if constant is not False:
            d.reads.extend(self.slots)
        d.writes.extend(self.slots)
        d.codes.update((_B32.code, TYPES["f32"].code, TYPES["s32"].code))

    # Computing ----------------------------------------------------------------------------

    def execute(self, m: Machine, lanes: Array, product: Product, cta: int) -> Array:
        group = int(m.row_warp[lanes[0] // WARP]) // WARPS

        def fail(reason: str, position: int) -> InterpreterError:
            del position
            where = m.row_name(int(lanes[0]) // WARP)
            return m.fail(self.instruction, f"{reason} (warpgroup of warp {where})")

        read: list[Array] = []
        b, bad_b = self._shared(m, product.descriptors[-1], self.b_place, self.b, cta, read, fail)
        if self.a_slots:
            a, bad_a = self._registers(m, lanes)
        else:
            a, bad_a = self._shared(
                m, product.descriptors[0], self.a_place, self.a, cta, read, fail
            )
        chunks = np.unique(np.concatenate(read))
        hopper_of(m).warpgroups.read_ready(chunks, cta, group, fail)
        total = (self.scale_a * self.scale_b) * (a @ b.T)
        if product.accumulates:
            total += self._accumulator(m, lanes)
        self._put(m, lanes, total)
        if m.shadow or bad_a is not None or bad_b is not None:
            self._poison(m, lanes, bad_a, bad_b, product.accumulates)
        return chunks

    def _shared(
        self,
        m: Machine,
        bits: int,
        place: Operand,
        of: PtxType,
        cta: int,
        read: list[Array],
        fail: Fail,
    ) -> tuple[Array, Array | None]:
        """A matrix [rows, K] of shared memory, and which rows hold poison."""
        described = Descriptor.of(bits)
        if described.base_offset:
            raise fail("has a descriptor with a base offset, which is not modelled", 0)
        at = described.start
        offsets, chunks = places(place, described.lbo, described.sbo, described.span, at % PERIOD)
        relative = at - SHARED_BASE
        if relative + int(chunks[0]) < 0 or relative + int(chunks[-1]) + 16 > m.smem_bytes:
            raise fail(f"reads outside shared memory from 0x{at:x} on", 0)
        base = relative + cta * m.shared.stride
        read.append(base + chunks)
        dtype = _ELEMENT[of.name]
        items = m.shared.arena.data.view(dtype).take((base + offsets) // dtype.itemsize)
        states = m.shared.arena.state.take(base + offsets) != CLEAN
        bad = states.any(axis=1) if np.count_nonzero(states) else None
        return _values(items, of), bad

    def _registers(self, m: Machine, lanes: Array) -> tuple[Array, Array | None]:
        """A [64, K] of registers, and which rows hold poison."""
        numbers = np.array([slot.number for slot in self.a_slots])
        raw = np.ascontiguousarray(m.blocks[32][np.ix_(numbers, lanes)])
        dtype = _ELEMENT[self.a.name]
        items = raw.view(np.uint32).view(dtype).reshape(2, 2, WARPS, 8, 4, 4 // dtype.itemsize)
        # chunk, half of the rows, warp, g, t, element -> warp, half, g, chunk, t, element
        rows = items.transpose(2, 1, 3, 0, 4, 5).reshape(ROWS, self.k)
        bad = None
        for at, slot in enumerate(self.a_slots):
            shadow = m.shadow.get(slot.key)
            if shadow is not None and np.count_nonzero(shadow[lanes]):
                bad = np.zeros((WARPS, 2, 8), bool) if bad is None else bad
                bad[:, at % 2] |= (shadow[lanes] != 0).reshape(WARPS, 8, 4).any(axis=2)
        return _values(rows, self.a), None if bad is None else bad.reshape(ROWS)

    def _to_matrix(self, items: Array) -> Array:
        """[N / 8, half of the rows, element, lanes] as [64, N]."""
        split = items.reshape(self.n // 8, 2, 2, WARPS, 8, 4)
        return split.transpose(3, 1, 4, 0, 5, 2).reshape(ROWS, self.n)

    def _to_lanes(self, matrix: Array) -> Array:
        """[64, N] as [N / 8, half of the rows, element, lanes]."""
        split = matrix.reshape(WARPS, 2, 8, self.n // 8, 4, 2)
        return split.transpose(3, 1, 5, 0, 2, 4).reshape(self.n // 8, 2, 2, WARPS * WARP)

    def _accumulator(self, m: Machine, lanes: Array) -> Array:
        raw = m.blocks[32][np.ix_(self.numbers, lanes)]
        if not self.packed:
            return self._to_matrix(raw.view(self.result.dtype).astype(np.float64))
        halves = np.ascontiguousarray(raw).view(np.uint16).reshape(self.n // 8, 2, -1, 2)
        values = decode(np.ascontiguousarray(halves.transpose(0, 1, 3, 2)), F16)
        return self._to_matrix(values.astype(np.float64))

    def _put(self, m: Machine, lanes: Array, total: Array) -> None:
        items = self._to_lanes(total)
        count = len(self.slots)
        if self.result.name == "s32":
            exact = items.astype(np.int64)
            if self.satfinite:
                exact = np.clip(exact, np.iinfo(np.int32).min, np.iinfo(np.int32).max)
            raw = exact.astype(np.int32).view(np.uint32)
        elif self.packed:
            bits = f16_bits(items.reshape(-1)).reshape(items.shape).astype(np.uint32)
            raw = bits[:, :, 0] | bits[:, :, 1] << np.uint32(16)
        else:
            flat = items.astype(np.float32).reshape(-1)
            raw = floats.canonical(flat).view(np.uint32)
        m.blocks[32][np.ix_(self.numbers, lanes)] = raw.reshape(count, -1)

    def _poison(
        self, m: Machine, lanes: Array, bad_a: Array | None, bad_b: Array | None, accumulates: bool
    ) -> None:
        """Poison of D: of its row of A, its column of B, and of itself."""
        if bad_a is None and bad_b is None:
            self._keep_poison(m, lanes, accumulates)
            return
        bad = np.zeros((ROWS, self.n), bool)
        if bad_a is not None:
            bad |= bad_a[:, None]
        if bad_b is not None:
            bad |= bad_b[None, :]
        split = self._to_lanes(bad)
        per_register = (split.any(axis=2) if self.packed else split).reshape(len(self.slots), -1)
        for slot, found in zip(self.slots, per_register, strict=True):
            shadow = m.shadow.get(slot.key)
            if shadow is None and not np.count_nonzero(found):
                continue
            if shadow is None:
                shadow = m.shadow[slot.key] = np.zeros(m.lane_count, np.uint32)
            old = shadow[lanes] != 0 if accumulates else False
            shadow[lanes] = np.where(found | old, np.uint32(0xFFFFFFFF), np.uint32(0))
            if not np.count_nonzero(shadow):
                del m.shadow[slot.key]

    def _keep_poison(self, m: Machine, lanes: Array, accumulates: bool) -> None:
        """Poison of D where A and B are clean: its own."""
        for slot in self.slots:
            shadow = m.shadow.get(slot.key)
            if shadow is None or not np.count_nonzero(old := shadow[lanes]):
                continue
            shadow[lanes] = np.where((old != 0) & accumulates, np.uint32(0xFFFFFFFF), np.uint32(0))
            if not np.count_nonzero(shadow):
                del m.shadow[slot.key]


def _flags(
    d: Decoder, operands: list[PtxOperand], integer: bool, narrow: bool, in_registers: bool
) -> tuple[int, int, bool, bool]:
    """Signs of A and B, and whether each is MN-major."""
    wanted = 0 if integer else 2 + (2 - in_registers if narrow else 0)
    values = [item.value for item in operands if isinstance(item, Immediate)]
    if len(operands) != wanted or len(values) != wanted:
        raise d.error(f"{len(operands)} constants where {wanted} are needed")
    signs, transposed = values[:2] or [1, 1], values[2:]
    if any(sign not in (1, -1) for sign in signs) or any(bit not in (0, 1) for bit in transposed):
        raise d.error("scales are 1 or -1, and transpositions 0 or 1")
    last = bool(transposed[-1]) if transposed else False
    first = bool(transposed[0]) if len(transposed) == 2 else False
    return signs[0], signs[1], first, last


def _scale(d: Decoder, operand: PtxOperand) -> tuple[Read, bool | None]:
    """Scale-d, and its value where the instruction before sets it from constants (as LLVM does).

    Known to be false, it makes the accumulators outputs only.
    """
    if isinstance(operand, Immediate):
        value = np.array([operand.value != 0])
        return lambda m: value, bool(value[0])
    read, before = d.read(operand, PRED), d.before
    if before is None or before.guard is not None or not isinstance(operand, Register):
        return read, None
    target, *items = before.operands or (None,)
    numbers = [item.value for item in items if isinstance(item, Immediate)]
    if before.opcode[:2] != ("setp", "ne") or target != operand or len(numbers) != 2:
        return read, None
    return read, numbers[0] != numbers[1]


@decodes("wgmma.mma_async")
def product(d: Decoder) -> Run:
    form = _Form(d)
    d.smem_widths.add(16)
    d.fragile |= form.inputs.union(form.accumulators)
    d.poison, d.ends_segment = OWN, True
    instruction = d.instruction

    def run(m: Machine) -> None:
        rows, _ = m.full_rows(instruction)
        _whole(m, instruction, rows)
        columns = [m.warp_lanes(read(m)) for read in form.descriptors]
        scales = m.warp_lanes(form.accumulates(m))
        for row in rows.tolist():
            values = tuple(int(column[row, 0]) for column in columns)
            same = all((column[row] == column[row, 0]).all() for column in columns)

            def fail(reason: str, position: int, row: int = row) -> InterpreterError:
                return m.fail(instruction, reason, row * WARP + position)

            if not same or np.count_nonzero(scales[row] != scales[row, 0]):
                raise fail("has descriptors that differ between threads", 0)
            made = Product(form, values, bool(scales[row, 0]))
            hopper_of(m).warpgroups.issue(m.low + row, made, fail)

    return run


def _whole(m: Machine, instruction: Instruction, rows: Array) -> None:
    """The CTA must have all four warps of these rows' warpgroups."""
    last = m.geometry.warps // WARPS * WARPS
    if np.count_nonzero(m.row_warp[m.low + rows] >= last):
        raise m.fail(instruction, "needs a warpgroup of four warps")


@decodes("wgmma.fence", "wgmma.commit_group")
def fence_or_commit(d: Decoder) -> Run:
    commits = d.choose(("fence", "commit_group")) == "commit_group"
    d.take("sync")
    d.take("aligned")
    d.finish()
    d.ends_segment = True
    instruction = d.instruction

    def run(m: Machine) -> None:
        groups = hopper_of(m).warpgroups
        act = groups.commit if commits else groups.fence
        for row in m.full_rows(instruction)[0].tolist():
            act(m.low + row)

    return run


@controls("wgmma.wait_group")
def wait(d: Decoder) -> Control:
    operand = d.operands[0]
    if not isinstance(operand, Immediate):
        raise d.error("the number of groups must be a constant")
    pending, guard, instruction = operand.value, guard_slot(d), d.instruction

    def control(m: Machine, pc: int) -> int:
        taken, some = taken_lanes(m, pc, guard)
        if not some:
            return m.go(pc + 1)
        outer, m.mask = m.mask, taken
        rows = m.full_rows(instruction)[0] + m.low
        m.mask = outer
        groups = hopper_of(m).warpgroups
        stays = [row for row in rows.tolist() if not groups.wait(row, pending)]
        return stand_or_go(m, pc, np.array(stays, np.int64))

    return control
