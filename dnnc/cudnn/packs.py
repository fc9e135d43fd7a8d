# pyright: basic
"""Variant packs by cudnn-frontend's rules: addresses count, and what is at them does not.

A buffer may have any dims, strides and data type.  It has to be memory of the device, aligned, and
to hold the bytes that its tensor takes.  An output may lie where an input lies: an input that the
plan could overwrite before it has read it is copied first, to memory that is allocated in the
order of the stream.  Packed sequences have as many rows as their buffers hold.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import dtypes
from ..errors import DnncError, Status
from ..plan.plan import Symbol, TensorRecord
from ..runtime import ExecutionPlan, driver
from ..runtime.buffers import (
    NO_BUFFER,
    Buffer,
    Span,
    label,
    number_of,
    placed,
    verify_apart,
    verify_workspace,
)
from ..runtime.entry import Entry
from ..runtime.laid_out import NOWHERE
from ..runtime.recent import Recent
from .arrays import Memory, bound_number, memory_of
from .enums import type_of
from .tensors import Tensor

# What the names of symbols begin with that are the rows of packed sequences.
ROWS = "packed_rows_"

# How many calls are remembered.
_REMEMBERED = 256


def by_uid(
    find: Callable[[str], Tensor | None], bound: Mapping[Tensor, Any], pack: Any, uids: Any = None
) -> dict[int, Any]:
    """The bindings of a caller, by uid.

    find: gives the tensor of a name.  bound: arrays that the graph was built from, which the pack
    may replace.  pack: tensor, uid or name -> buffer; with uids, a sequence of buffers.
    """
    found = {tensor.uid: value for tensor, value in bound.items()}
    if uids is not None:
        return {**found, **_ordered(pack, uids)}
    if not isinstance(pack, Mapping):
        what = f"a {type(pack).__name__}"
        raise DnncError(Status.BAD_PARAM, what, "tensor, uid or name -> buffer", "variant pack")
    for key, value in pack.items():
        if key is None:
            continue
        found[key if type(key) is int else _uid_of(find, key)] = value
    return found


def _uid_of(find: Callable[[str], Tensor | None], key: Any) -> int:
    if isinstance(key, str):
        tensor = find(key)
        if tensor is None:
            what = f"the name {key!r}, which no tensor has"
            raise DnncError(Status.BAD_PARAM, what, "a name of the graph", "variant pack")
        return tensor.uid
    uid = getattr(key, "uid", key)
    if not isinstance(uid, int):
        what = f"a {type(key).__name__} as a key"
        raise DnncError(Status.BAD_PARAM, what, "a tensor, a uid or a name", "variant pack")
    return uid


def _ordered(buffers: Any, uids: Any) -> dict[int, Any]:
    if not isinstance(buffers, Sequence) or len(buffers) != len(uids):
        count = len(buffers) if isinstance(buffers, Sequence) else type(buffers).__name__
        what = f"{count} buffers for {len(uids)} tensor_uids"
        raise DnncError(Status.BAD_PARAM, what, "a sequence, one for each uid", "variant pack")
    if len(set(uids)) != len(uids):
        status = Status.BAD_PARAM_DUPLICATED_ENTRIES
        raise DnncError(status, f"tensor_uids {list(uids)}", "each uid once", "variant pack")
    return dict(zip(map(int, uids), buffers, strict=True))


class Given(NamedTuple):
    """The bindings of a call, checked.

    addresses, numbers: by uid.  sizes: of the plan's symbols.  bytes: that each tensor takes.
    device: where the buffers are.
    """

    addresses: dict[int, int]
    numbers: dict[int, float | int]
    sizes: Mapping[str, int] | None
    bytes: Mapping[int, int]
    device: driver.Device


class AddressedPlan:
    """A plan that is executed on buffers by their addresses; threads may share it."""

    def __init__(self, plan: ExecutionPlan):
        self.plan = plan
        records = (*plan.inputs, *plan.outputs)  # in the order of an entry's addresses
        self._buffers = [record for record in records if not record.is_by_value]
        self._numbers = [record for record in records if record.is_by_value]
        self._extents = {record.uid: _Extent(plan, record) for record in self._buffers}
        self._rows = [s for s in plan.plan.symbols if s.name.startswith(ROWS)]
        self._fixed = None if plan.plan.symbols else self._needed({})
        self._allowed = {frozenset(pair) for pair in plan.plan.may_alias}
        # Calls that were found right, by what `_told` says of their buffers.
        self._seen: Recent[tuple[driver.Device, tuple[int, ...]]] = Recent(_REMEMBERED)
        self._entries: Recent[Entry] = Recent(_REMEMBERED)

    @functools.cached_property
    def _workspace_bytes(self) -> int:
        return self.plan.workspace_size()

    def execute(
        self,
        pack: Mapping[int, Any],
        workspace: Any,
        stream: int,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Launches on a stream.  pack: by uid; what no operation uses is ignored.  sizes: of
        symbols, where buffers' dims don't tell them."""
        space = self.workspace(workspace)
        key = self._key(pack, space)
        seen = None if key is None else self._seen.get(key)
        if seen is not None:
            device, addresses = seen
            self._entry(device, None, self._numbers_of(pack))(addresses, space, stream)
            return
        given = self._given(pack, sizes)
        if copied := self._overwritten(given):
            self._execute_copied(given, copied, space, stream)
            return
        addresses = self._launch(given, given.addresses, space, stream)
        if key is not None:
            self._seen.add(key, (given.device, addresses))

    def _key(self, pack: Mapping[int, Any], space: int | None) -> Any:
        """A key that tells a call's buffers; None where that takes a closer look."""
        if self._fixed is None:
            return None
        try:
            return space, *[_told(pack[record.uid]) for record in self._buffers]
        except (KeyError, AttributeError):
            return None

    def _launch(
        self, given: Given, own: Mapping[int, int], space: int | None, stream: int
    ) -> tuple[int, ...]:
        """Launches on addresses that lie apart; gives them in the entry's order."""
        spans = [Span(r, own[r.uid], given.bytes[r.uid]) for r in self._buffers]
        verify_apart(spans, self.plan.plan.may_alias)
        entry = self._entry(given.device, given.sizes, given.numbers)
        if entry.workspace_bytes:
            buffer = NO_BUFFER if space is None else Buffer(space)
            ordinal, where = given.device.ordinal, f"workspace of plan '{self.plan.plan.name}'"
            verify_workspace(buffer, entry.workspace_bytes, spans, ordinal, where)
        addresses = tuple([own[record.uid] for record in self._buffers])
        entry(addresses, space, stream)
        return addresses

    def _entry(
        self,
        device: driver.Device,
        sizes: Mapping[str, int] | None,
        numbers: Mapping[int, float | int],
    ) -> Entry:
        """Launches for these sizes and numbers, which are worked out once."""
        told = [(uid, n.hex() if isinstance(n, float) else n) for uid, n in numbers.items()]
        key = (device.ordinal, *told, *(sizes or {}).items())
        found = self._entries.get(key)
        if found is None:
            found = self.plan.entry(sizes, numbers=numbers, device=device.ordinal)
            self._entries.add(key, found)
        return found

    def apart(self, pack: Mapping[int, Any], sizes: Mapping[str, int] | None = None) -> Given:
        """The bindings of a pack; an output that overwrites an input is NOT_SUPPORTED."""
        given = self._given(pack, sizes)
        for uid in self._overwritten(given):
            what = "an output lies where it does, and nodes of a CUDA graph copy nothing"
            record = next(record for record in self._buffers if record.uid == uid)
            raise DnncError(Status.NOT_SUPPORTED, what, "buffers apart", label(record))
        return given

    def workspace(self, workspace: Any) -> int | None:
        """The address of a workspace that is large enough."""
        if workspace is None or (type(workspace) is int and not workspace):
            return None
        found = memory_of(workspace, "workspace")
        if found.bytes is not None and found.bytes < self._workspace_bytes:
            what = f"a workspace of {found.bytes} bytes"
            wanted = f"{self._workspace_bytes} bytes, as get_workspace_size() says"
            raise DnncError(Status.BAD_PARAM_SIZE_INSUFFICIENT, what, wanted, "execute")
        return found.address or None

    def _given(self, pack: Mapping[int, Any], sizes: Mapping[str, int] | None) -> Given:
        memories: dict[int, Memory] = {}
        for record in self._buffers:
            value = pack.get(record.uid)
            if value is None:
                what = "missing from the variant pack"
                raise DnncError(Status.BAD_PARAM, what, "a buffer", label(record))
            memories[record.uid] = memory_of(value, label(record))
        known = None if self._fixed is not None else self._sizes(pack, memories, sizes)
        needed = self._needed(known or {}) if self._fixed is None else self._fixed
        addresses: dict[int, int] = {}
        ordinal: int | None = None
        for record in self._buffers:
            own = addresses[record.uid] = _verified(
                memories[record.uid], needed[record.uid], record
            )
            if needed[record.uid] and not record.is_peer:
                ordinal = _verified_device(own, ordinal, record)
        return Given(addresses, self._numbers_of(pack), known, needed, driver.device(ordinal))

    def _numbers_of(self, pack: Mapping[int, Any]) -> dict[int, float | int]:
        return {
            record.uid: number_of(record, bound_number(value, type_of(record.dtype), label(record)))
            for record in self._numbers
            if (value := pack.get(record.uid)) is not None
        }

    def _needed(self, sizes: Mapping[str, int]) -> dict[int, int]:
        return {uid: extent.bytes(sizes) for uid, extent in self._extents.items()}

    # ---- sizes

    def _sizes(
        self,
        pack: Mapping[int, Any],
        memories: Mapping[int, Memory],
        sizes: Mapping[str, int] | None,
    ) -> Mapping[str, int]:
        """The values of symbols: rows of packed sequences by the bytes that buffers have, others
        as they are given, or by the dims of buffers."""
        rows = {symbol.name: self._rows_of(symbol, memories) for symbol in self._rows}
        known = {record.uid: pack[record.uid] for record in self._buffers}
        return self.plan.sizes(known, {**(sizes or {}), **rows})

    def _rows_of(self, symbol: Symbol, memories: Mapping[int, Memory]) -> int:
        """The number of rows of all buffers whose rows the symbol counts.

        An address alone has those of its allocation, so that no kernel reads past that.
        """
        found = symbol.max
        for record in self._buffers:
            if symbol.name not in record.dims:
                continue
            address, held = memories[record.uid]
            held = driver.bytes_from(address) if held is None else held
            if held is not None:
                found = min(found, self._extents[record.uid].rows(symbol.name, held))
        return max(found, symbol.min)

    # ---- outputs in the place of inputs

    def _overwritten(self, given: Given) -> list[int]:
        """The inputs that an output overlaps, but in ways the plan allows."""
        spans = [
            (record, start, start + given.bytes[record.uid])
            for record in self._buffers
            if given.bytes[record.uid]
            for start in (given.addresses[record.uid],)
        ]
        outputs = [span for span in spans if span[0].role == "output"]
        return [
            record.uid
            for record, start, end in spans
            if record.role != "output"
            and any(
                max(start, first) < min(end, last)
                and not (start == first and frozenset((record.uid, other.uid)) in self._allowed)
                for other, first, last in outputs
            )
        ]

    def _execute_copied(
        self, given: Given, copied: Sequence[int], workspace: int | None, stream: int
    ) -> None:
        """Launches on copies of some inputs, which are freed in the order of the stream."""
        copies: dict[int, int] = {}
        with driver.entered(given.device):
            try:
                for uid in copied:
                    copies[uid] = driver.allocate_on(stream, given.bytes[uid])
                    driver.copy_on(stream, copies[uid], given.addresses[uid], given.bytes[uid])
                self._launch(given, {**given.addresses, **copies}, workspace, stream)
            finally:
                for address in copies.values():
                    driver.free_on(stream, address)


def _told(value: Any) -> Any:
    """An address, or that and the size of a torch tensor."""
    return value if type(value) is int else (value.data_ptr(), value.nbytes)


def _verified(memory: Memory, needed: int, record: TensorRecord) -> int:
    """The address of memory that holds the bytes of a tensor."""
    if memory.bytes is not None and memory.bytes < needed:
        what, wanted = f"a buffer of {memory.bytes} bytes", f"{needed} bytes"
        raise DnncError(Status.BAD_PARAM_SIZE_INSUFFICIENT, what, wanted, label(record))
    if needed and not memory.address:
        status = Status.BAD_PARAM_NULL_POINTER
        raise DnncError(status, "address 0", "a device address", label(record))
    if memory.address % record.alignment:
        status, wanted = Status.BAD_PARAM_MISALIGNED_POINTER, f"a multiple of {record.alignment}"
        raise DnncError(status, f"address {memory.address:#x}", f"{wanted} bytes", label(record))
    return memory.address or NOWHERE


def _verified_device(address: int, other: int | None, record: TensorRecord) -> int:
    """The device of an address; other: that of other buffers."""
    found = placed(Buffer(address), label(record)).device
    assert found is not None, "placed says it"
    if other not in (None, found):
        what = f"a buffer on device {found}"
        raise DnncError(Status.BAD_PARAM, what, f"device {other}", label(record))
    return found


class _Extent:
    """How many bytes a tensor takes, for values of the plan's symbols."""

    def __init__(self, plan: ExecutionPlan, record: TensorRecord):
        self._names = record.dims
        self._dims = [plan.plan.expression(text) for text in record.dims]
        self._strides = [plan.plan.expression(text) for text in record.strides]
        self._dtype = dtypes.of(record.dtype)

    def bytes(self, sizes: Mapping[str, int]) -> int:
        """From the first element to the last."""
        dims = [size.evaluate(sizes) for size in self._dims]
        if 0 in dims:
            return 0
        strides = [size.evaluate(sizes) for size in self._strides]
        last = sum((n - 1) * step for n, step in zip(dims, strides, strict=True))
        return self._dtype.storage_bytes(last + 1)

    def rows(self, symbol: str, held: int) -> int:
        """The most that a symbol, the number of rows, may be for so many bytes."""
        axis = self._names.index(symbol)
        one = self.bytes({symbol: 1})
        step = self._strides[axis].evaluate({symbol: 1}) * self._dtype.bits // 8
        return 1 + (held - one) // step
