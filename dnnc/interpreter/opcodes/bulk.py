"""cp.async.bulk and cp.async.bulk.tensor: what a thread asks of the TMA unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ... import dtypes
from ..cluster import RANK_SHIFT
from ..decode import OWN, Decoder, Read, Run, decodes
from ..memory import PARAM_WINDOW, WINDOW_SHIFT, Fail
from ..ptx import Address, Immediate, Instruction, Operand, Register
from ..ptxtypes import TYPES, Array
from ..tensor_map import ALIGNMENT, BYTES, EncodedMap
from ..tensor_map import decode as decode_map
from ..tma import (
    CHUNK,
    TILE_ALIGNMENT,
    Combine,
    Rows,
    chunk_addresses,
    column_rows,
    run_of_bytes,
    tile_rows,
    window_index,
)
from .mbarrier import at_position, hopper_of, shared_place
from .spaces import thread_numbers

if TYPE_CHECKING:
    from ..machine import Machine

_S32, _U16, _U32, _U64 = (TYPES[name] for name in ("s32", "u16", "u32", "u64"))
_HINT = "L2::cache_hint"
_COMPLETE = "mbarrier::complete_tx::bytes"
_MULTICAST = "multicast::cluster"
_OFFSET_BITS = 16


# Tensor maps ------------------------------------------------------------------------------


def _map_of(m: Machine, address: int, fail: Fail) -> EncodedMap:
    """The tensor map at a generic address, which is one of a parameter or of global memory."""
    if address % ALIGNMENT:
        raise fail(f"is a tensor map's, but no multiple of {ALIGNMENT}", 0)
    offset = address - PARAM_WINDOW
    if address >> WINDOW_SHIFT == PARAM_WINDOW >> WINDOW_SHIFT:
        data = m.params.data[offset : offset + BYTES].tobytes()
    else:
        rows, _ = m.memory.gather(np.array([address]), BYTES, fail)
        data = rows.tobytes()
    found = decode_map(data)
    if found is None:
        raise fail("holds no tensor map", 0)
    return found


def _map_operand(d: Decoder, operand: Operand) -> tuple[Read, list[Read]]:
    """`[map, {x, y}]`: the map's generic address and the coordinates."""
    if not isinstance(operand, Address) or len(operand.rest) != 1:
        raise d.error(f"a tensor map with coordinates is needed, not {operand}")
    if not isinstance(operand.base, Register) or operand.offset:
        raise d.error("the address of a tensor map must be a register")
    coordinates = [d.read(item, _S32) for item in d.vector(operand.rest[0])]
    return d.read(operand.base, _U64), coordinates


def _rows_of(
    tensor: EncodedMap, rank: int, im2col: bool, at: list[int], offsets: list[int], fail: Fail
) -> Rows:
    if tensor.rank != rank or tensor.is_im2col != im2col:
        kind = "im2col" if tensor.is_im2col else "tiled"
        raise fail(f"belongs to a copy whose tensor map is {kind} of rank {tensor.rank}", 0)
    first = at[0] * tensor.element_bytes
    if first % CHUNK:
        # Seen on an H200: an illegal instruction, swizzled or not.
        raise fail(f"is of a box that begins at byte {first} of a row, no multiple of {CHUNK}", 0)
    if not im2col:
        return tile_rows(tensor, at)
    _require_offsets(offsets, fail)
    return column_rows(tensor, at, offsets)


def _require_offsets(offsets: list[int], fail: Fail) -> None:
    """An im2col load has 16 bits for all its offsets, which are unsigned."""
    bits = _OFFSET_BITS // len(offsets)
    for axis, offset in enumerate(offsets):
        if offset >> bits:
            what = f"belongs to a copy whose im2col offset {axis} is {offset}"
            raise fail(f"{what}; {bits} bits hold 0 to {(1 << bits) - 1}", 0)


def _own(m: Machine, where: int, lane: int) -> tuple[int, int]:
    """An address in the cluster as (address in its CTA, that CTA of the batch)."""
    cta, rank = int(m.lane_cta[lane]), where >> RANK_SHIFT
    if rank:
        cta = cta // m.cluster_ctas * m.cluster_ctas + rank - 1
    return where & ((1 << RANK_SHIFT) - 1), cta


def _aligned(where: int, alignment: int, fail: Fail) -> None:
    if where % alignment:
        raise fail(f"is no multiple of {alignment}", 0)


# Loads ------------------------------------------------------------------------------------


@decodes("cp.async.bulk.tensor")
def copy_tensor(d: Decoder) -> Run:
    """Loads: `[to], [map, {x, y}], [mbarrier]{, {offsets}}{, mask}{, policy}`; stores below."""
    for word in ("async", "bulk", "tensor"):
        d.take(word)
    rank = int(d.choose(tuple(f"{n}d" for n in range(1, 6)), "0d")[0])
    to = d.choose(("shared::cluster", "shared::cta", "global"))
    d.choose(("global", "shared::cta"))
    _add_widths(d)
    return _store_tensor(d, rank, None) if to == "global" else _load_tensor(d, rank, to)


def _add_widths(d: Decoder) -> None:
    """Notes a bulk copy's accesses; a box begins and ends at any element, mostly of two bytes."""
    d.smem_widths.add(CHUNK)
    d.gmem_widths.add(2)


def _load_tensor(d: Decoder, rank: int, to: str) -> Run:
    im2col = d.choose(("tile", "im2col")) == "im2col"
    d.take(_COMPLETE)
    multicast, hint = d.take(_MULTICAST), d.take(_HINT)
    d.finish()
    operands = list(d.operands)
    place = shared_place(d, operands.pop(0), to, 1)
    where_map, coordinates = _map_operand(d, operands.pop(0))
    barrier = shared_place(d, operands.pop(0), "shared::cluster", 8)
    offsets = [d.read(item, _U16) for item in d.vector(operands.pop(0))] if im2col else []
    mask = d.read(operands.pop(0), _U16) if multicast else None
    if len(operands) != int(hint) or len(coordinates) != rank:
        raise d.error(f"{len(d.operands)} operands")
    if im2col and (rank < 3 or len(offsets) != rank - 2):
        raise d.error(f"{len(offsets)} im2col offsets of rank {rank}")
    d.strict.extend(d.reads)
    d.poison, d.ends_segment = OWN, True
    instruction = d.instruction

    def run(m: Machine) -> None:
        active = m.active()
        where, _, fails = place(m, active)
        waits, index, fails_barrier = barrier(m, active)
        maps = m.at(where_map(m), active)
        at = _numbers(m, coordinates, active)
        shift = _numbers(m, offsets, active)
        masks = None if mask is None else m.at(mask(m), active)
        for k, lane in enumerate(thread_numbers(m, active).tolist()):
            fail, fail_barrier = at_position(fails, k), at_position(fails_barrier, k)
            tensor = _map_of(m, int(maps[k]), fail)
            rows = _rows_of(tensor, rank, im2col, at[k], shift[k], fail)
            mask_of = None if masks is None else int(masks[k])
            to = _Target(int(where[k]), int(waits[k]), int(index[k]), lane, mask_of)
            _aligned(_own(m, to.where, lane)[0], TILE_ALIGNMENT, fail)
            span, rounds = tensor.swizzle_bytes, tensor.rounds_to_tf32
            _load(m, instruction, rows, to, fail, fail_barrier, span, rounds)

    return run


class _Target(NamedTuple):
    """Where a thread's load goes: addresses in the cluster, the mbarrier's byte index.

    mask: of the cluster's CTAs that get it; None: the own one.
    """

    where: int
    wait: int
    barrier: int
    lane: int
    mask: int | None


def _load(
    m: Machine, instruction: Instruction, rows: Rows, to: _Target, fail: Fail, fail_barrier: Fail,
    swizzle_bytes: int = CHUNK, rounds: bool = False,
) -> None:  # fmt: skip
    """Issue a load to each CTA that it goes to."""
    local, own = _own(m, to.where, to.lane)
    _, home = _own(m, to.wait, to.lane)
    if home != own:
        raise fail_barrier("is an mbarrier of another CTA than the destination's", 0)
    chunks = chunk_addresses(local, rows.start.size * rows.nbytes // CHUNK, swizzle_bytes)
    for cta in [own] if to.mask is None else _destinations(m, own, to.mask, fail):
        at = to.barrier + (cta - home) * m.shared.stride
        barrier = hopper_of(m).mbarriers.of(at, to.lane, fail_barrier)
        index = window_index(m, chunks, cta, fail)
        hopper_of(m).bulk.load(instruction, rows, index, cta, barrier, to.lane, rounds, fail)


def _store(
    m: Machine, instruction: Instruction, rows: Rows, where: int, lane: int, fail: Fail,
    combine: Combine | None, swizzle_bytes: int = CHUNK,
) -> None:  # fmt: skip
    """Issue a store from the executing CTA."""
    chunks = chunk_addresses(where, rows.start.size * rows.nbytes // CHUNK, swizzle_bytes)
    cta = int(m.lane_cta[lane])
    index = window_index(m, chunks, cta, fail)
    hopper_of(m).bulk.store(instruction, rows, index, cta, lane, fail, combine)


def _numbers(m: Machine, reads: list[Read], active: Array | None) -> list[list[int]]:
    """Values of each active lane."""
    count = m.lanes.stop - m.lanes.start if active is None else active.size
    columns = [m.at(read(m), active).tolist() for read in reads]
    return [[int(column[k]) for column in columns] for k in range(count)]


def _destinations(m: Machine, own: int, mask: int, fail: Fail) -> list[int]:
    """The CTAs of the batch that a multicast goes to; own: the executing one."""
    size = m.cluster_ctas
    if not mask or mask >> size:
        raise fail(f"goes to the CTAs of mask 0x{mask:x}; the cluster has {size}", 0)
    first = own // size * size
    ctas = [first + rank for rank in range(size) if mask >> rank & 1]
    if np.count_nonzero(m.barriers.exited[ctas].all(axis=1)):
        raise fail("goes to a CTA that has exited", 0)
    return ctas


# Stores -----------------------------------------------------------------------------------


def _store_tensor(d: Decoder, rank: int, combine: Callable[[EncodedMap], Combine] | None) -> Run:
    """`[map, {x, y}], [from]{, policy}`."""
    im2col = d.choose(("tile", "im2col_no_offs")) == "im2col_no_offs"
    d.take("bulk_group")
    hint = d.take(_HINT)
    d.finish()
    d.expect(2 + hint)
    where_map, coordinates = _map_operand(d, d.operands[0])
    place = shared_place(d, d.operands[1], "shared", 1)
    if len(coordinates) != rank or (im2col and rank < 3):
        raise d.error(f"{len(coordinates)} coordinates")
    d.strict.extend(d.reads)
    d.poison, d.ends_segment = OWN, True
    instruction = d.instruction

    def run(m: Machine) -> None:
        active = m.active()
        where, _, fails = place(m, active)
        maps = m.at(where_map(m), active)
        at = _numbers(m, coordinates, active)
        for k, lane in enumerate(thread_numbers(m, active).tolist()):
            fail = at_position(fails, k)
            tensor = _map_of(m, int(maps[k]), fail)
            row_bytes = tensor.dims[0] * tensor.element_bytes
            if row_bytes % CHUNK:
                # Seen on an H200: the engine writes whole chunks, beyond the row's end.
                raise fail(f"stores rows of {row_bytes} bytes, not whole {CHUNK} bytes", 0)
            if im2col and (min(tensor.lower, default=0) < 0 or max(tensor.upper, default=0) > 0):
                # Seen on an H200: an illegal instruction.
                raise fail("stores by a bounding box that has places outside the image", 0)
            rows = _rows_of(tensor, rank, im2col, at[k], [0] * (rank - 2), fail)
            _aligned(int(where[k]), TILE_ALIGNMENT, fail)
            made = combine(tensor) if combine is not None else None
            _store(m, instruction, rows, int(where[k]), lane, fail, made, tensor.swizzle_bytes)

    return run


@decodes("cp.reduce.async.bulk")
def reduce_tensor(d: Decoder) -> Run:
    """A store that adds to what is there; one rounding an element."""
    for word in ("reduce", "async", "bulk"):
        d.take(word)
    if not d.take("tensor"):
        return _reduce_bytes(d)
    rank = int(d.choose(tuple(f"{n}d" for n in range(1, 6)), "0d")[0])
    d.take("global")
    d.take("shared::cta")
    if not d.take("add"):
        raise d.error("only .add is modelled")
    _add_widths(d)
    return _store_tensor(d, rank, _adding)


def _reduce_bytes(d: Decoder) -> Run:
    """`[to], [from], size` of elements of f32, in global memory."""
    d.take("global")
    d.take("shared::cta")
    d.take("bulk_group")
    if not (d.take("add") and d.take("f32")):
        raise d.error("only .add.f32 is modelled of bytes")
    _add_widths(d)
    return _store_bytes(d, _adding_of(np.dtype(np.float32)))


def _adding(tensor: EncodedMap) -> Combine:
    return _adding_of(dtypes.of(tensor.dtype).numpy)


def _adding_of(dtype: np.dtype) -> Combine:
    exact = np.dtype(np.float64) if dtype.kind not in "iu" else dtype

    def add(old: Array, new: Array) -> Array:
        parts = [np.ascontiguousarray(part).view(dtype).astype(exact) for part in (old, new)]
        return (parts[0] + parts[1]).astype(dtype).view(np.uint8)

    return add


# Plain runs of bytes ----------------------------------------------------------------------


@decodes("cp.async.bulk")
def copy_bytes(d: Decoder) -> Run:
    """`[to], [from], size, [mbarrier]` to shared memory; `[to], [from], size` to global."""
    d.take("async")
    d.take("bulk")
    to = d.choose(("shared::cluster", "shared::cta", "global"))
    source = d.choose(("global", "shared::cta"))
    _add_widths(d)
    if to == "global" and source == "shared::cta":
        return _store_bytes(d)
    if to != "global" and source == "global":
        return _load_bytes(d, to)
    raise d.error("bulk copies between CTAs are not modelled")


def _size_of(m: Machine, read: Read, active: Array | None, fail: Fail) -> list[int]:
    sizes = m.at(read(m), active)
    if np.count_nonzero(sizes % CHUNK) or np.count_nonzero(sizes == 0):
        raise fail(f"belongs to a copy of a size that is no multiple of {CHUNK}", 0)
    return sizes.tolist()


def _load_bytes(d: Decoder, to: str) -> Run:
    d.take(_COMPLETE)
    multicast, hint = d.take(_MULTICAST), d.take(_HINT)
    d.finish()
    d.expect(4 + multicast + hint)
    place = shared_place(d, d.operands[0], to, CHUNK)
    _, source = d.address(d.operands[1], "global")
    size = d.read(d.operands[2], _U32)
    barrier = shared_place(d, d.operands[3], "shared::cluster", 8)
    mask = d.read(d.operands[4], _U16) if multicast else None
    d.strict.extend(d.reads)
    d.poison, d.ends_segment = OWN, True
    instruction = d.instruction

    def run(m: Machine) -> None:
        active = m.active()
        where, _, fails = place(m, active)
        waits, index, fails_barrier = barrier(m, active)
        sources, sizes = m.at(source(m), active), _size_of(m, size, active, fails)
        masks = None if mask is None else m.at(mask(m), active)
        for k, lane in enumerate(thread_numbers(m, active).tolist()):
            fail = at_position(fails, k)
            _aligned(int(sources[k]), CHUNK, fail)
            rows = run_of_bytes(int(sources[k]), sizes[k])
            mask_of = None if masks is None else int(masks[k])
            to = _Target(int(where[k]), int(waits[k]), int(index[k]), lane, mask_of)
            _load(m, instruction, rows, to, fail, at_position(fails_barrier, k))

    return run


def _store_bytes(d: Decoder, combine: Combine | None = None) -> Run:
    d.take("bulk_group")
    hint = d.take(_HINT)
    d.finish()
    d.expect(3 + hint)
    _, target = d.address(d.operands[0], "global")
    place = shared_place(d, d.operands[1], "shared", CHUNK)
    size = d.read(d.operands[2], _U32)
    d.strict.extend(d.reads)
    d.poison, d.ends_segment = OWN, True
    instruction = d.instruction

    def run(m: Machine) -> None:
        active = m.active()
        where, _, fails = place(m, active)
        targets, sizes = m.at(target(m), active), _size_of(m, size, active, fails)
        for k, lane in enumerate(thread_numbers(m, active).tolist()):
            fail = at_position(fails, k)
            _aligned(int(targets[k]), CHUNK, fail)
            rows = run_of_bytes(int(targets[k]), sizes[k])
            _store(m, instruction, rows, int(where[k]), lane, fail, combine)

    return run


# Groups -----------------------------------------------------------------------------------


@decodes("cp.async.bulk.commit_group")
def commit(d: Decoder) -> Run:
    d.ends_segment = True

    def run(m: Machine) -> None:
        for lane in thread_numbers(m, m.active()).tolist():
            hopper_of(m).bulk.commit(lane)

    return run


@decodes("cp.async.bulk.wait_group")
def wait(d: Decoder) -> Run:
    for word in ("async", "bulk", "wait_group"):
        d.take(word)
    only_read = d.take("read")
    d.finish()
    operand = d.operands[0]
    if not isinstance(operand, Immediate):
        raise d.error("the number of groups must be a constant")
    pending = operand.value
    d.ends_segment = True

    def run(m: Machine) -> None:
        for lane in thread_numbers(m, m.active()).tolist():
            hopper_of(m).bulk.wait(lane, pending, only_read)

    return run
