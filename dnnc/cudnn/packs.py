# pyright: basic
"""Variant packs by cudnn-frontend's rules: addresses count, and what is at them does not.

A buffer may have any dims, strides and data type.  It has to be memory of the device, aligned, and
to hold the bytes that its tensor takes.  An output may lie where an input lies: an input that the
plan could overwrite before it has read it is copied first, to memory that is allocated in the
order of the stream.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import dtypes
from ..errors import DnncError, Status
from ..plan.plan import TensorRecord
from ..runtime import ExecutionPlan, driver
from ..runtime.buffers import label
from ..runtime.recent import Recent
from .arrays import memory_of, number_of
from .enums import type_of
from .tensors import Tensor

# How many sets of addresses are remembered as lying apart.
_REMEMBERED = 256


def by_uid(
    find: Callable[[str], Tensor | None], bound: Mapping[Tensor, Any], pack: Any, uids: Any = None
) -> dict[int, Any]:
    """What a caller binds, by uid.

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


class AddressedPlan:
    """A plan that is executed on buffers by their addresses; threads may share it."""

    def __init__(self, plan: ExecutionPlan):
        self.plan = plan
        self._bytes = {record.uid: _needed(plan, record) for record in plan.plan.tensors}
        self._apart: Recent[bool] = Recent(_REMEMBERED)

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
        given, space = self._given(pack), self._workspace(workspace)
        sizes = self._sizes(pack, sizes)
        key = tuple(given.values())
        if self._apart.get(key) is None:
            if copied := self._overwritten(given):
                self._execute_copied(given, copied, space, stream, sizes)
                return
            self._apart.add(key, True)
        self.plan.execute(given, space, stream=stream, sizes=sizes)

    def _sizes(
        self, pack: Mapping[int, Any], sizes: Mapping[str, int] | None
    ) -> Mapping[str, int] | None:
        """The values of symbols, of which the dims of buffers may tell some."""
        if not self.plan.plan.symbols:
            return None
        known = {record.uid for record in self.plan.plan.tensors}
        return self.plan.sizes({uid: v for uid, v in pack.items() if uid in known}, sizes)

    def _workspace(self, workspace: Any) -> int | None:
        """The address of a workspace that is large enough."""
        if workspace is None or (type(workspace) is int and not workspace):
            return None
        found = memory_of(workspace, "workspace")
        if found.bytes is not None and found.bytes < self._workspace_bytes:
            what = f"a workspace of {found.bytes} bytes"
            wanted = f"{self._workspace_bytes} bytes, as get_workspace_size() says"
            raise DnncError(Status.BAD_PARAM_SIZE_INSUFFICIENT, what, wanted, "execute")
        return found.address or None

    def given(self, pack: Mapping[int, Any]) -> dict[int, Any]:
        """Addresses and numbers for every tensor of the plan, of outputs that overwrite no input;
        others are NOT_SUPPORTED."""
        given = self._given(pack)
        for uid in self._overwritten(given):
            record = next(t for t in self.plan.plan.tensors if t.uid == uid)
            what = "an output lies where it does, and nodes of a CUDA graph copy nothing"
            raise DnncError(Status.NOT_SUPPORTED, what, "buffers apart", label(record))
        return given

    def _given(self, pack: Mapping[int, Any]) -> dict[int, Any]:
        given: dict[int, Any] = {}
        for record in self.plan.plan.tensors:
            value = pack.get(record.uid)
            if record.is_by_value:
                if value is not None:
                    kind = type_of(record.dtype)
                    given[record.uid] = number_of(value, kind, label(record))
                continue
            if value is None:
                what = "missing from the variant pack"
                raise DnncError(Status.BAD_PARAM, what, "a buffer", label(record))
            found = memory_of(value, label(record))
            needed = self._bytes[record.uid]
            if found.bytes is not None and found.bytes < needed:
                raise DnncError(
                    Status.BAD_PARAM_SIZE_INSUFFICIENT,
                    f"a buffer of {found.bytes} bytes",
                    f"{needed} bytes",
                    label(record),
                )
            given[record.uid] = found.address or value  # without elements it may have none
        return given

    def _overwritten(self, given: Mapping[int, Any]) -> list[int]:
        """The inputs that an output overlaps, but in ways the plan allows."""
        spans = [
            (record, given[record.uid], given[record.uid] + self._bytes[record.uid])
            for record in self.plan.plan.tensors
            if not record.is_by_value and self._bytes[record.uid]
        ]
        outputs = [span for span in spans if span[0].role == "output"]
        allowed = {frozenset(pair) for pair in self.plan.plan.may_alias}
        return [
            record.uid
            for record, start, end in spans
            if record.role != "output"
            and any(
                max(start, first) < min(end, last)
                and not (start == first and frozenset((record.uid, other.uid)) in allowed)
                for other, first, last in outputs
            )
        ]

    def _execute_copied(
        self,
        given: dict[int, Any],
        copied: Sequence[int],
        workspace: int | None,
        stream: int,
        sizes: Mapping[str, int] | None,
    ) -> None:
        """Launches on copies of some inputs, which are freed in the order of the stream."""
        place = driver.device(driver.memory_device(given[copied[0]]))
        copies: dict[int, int] = {}
        with driver.entered(place):
            try:
                for uid in copied:
                    copies[uid] = driver.allocate_on(stream, self._bytes[uid])
                    driver.copy_on(stream, copies[uid], given[uid], self._bytes[uid])
                self.plan.execute({**given, **copies}, workspace, stream=stream, sizes=sizes)
            finally:
                for address in copies.values():
                    driver.free_on(stream, address)


def _needed(plan: ExecutionPlan, record: TensorRecord) -> int:
    """Bytes from a tensor's first element to its last; 0 for one whose sizes are not fixed."""
    found = [plan.plan.expression(text).constant for text in (*record.dims, *record.strides)]
    sizes = [size for size in found if size is not None]
    if record.is_by_value or len(sizes) < len(found):
        return 0
    rank = len(record.dims)
    dims, strides = sizes[:rank], sizes[rank:]
    if 0 in dims:
        return 0
    last = sum((n - 1) * step for n, step in zip(dims, strides, strict=True))
    return dtypes.of(record.dtype).storage_bytes(last + 1)
