# pyright: basic
"""Calls of a plan with arrays, whose outputs the arrays' own library allocates."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..errors import DnncError, Status
from . import driver
from .buffers import is_torch, label
from .entry import Entry
from .libraries import Library, Wanted, allocated, library_of
from .loaded import Loaded
from .recent import Recent
from .seen import description
from .sized import Sized, SizedTensor
from .streams import DEFAULT_STREAM, handle_of

if TYPE_CHECKING:
    from .executor import ExecutionPlan

# A call's stream: that of the arrays' library.
CURRENT = "current"

# How many kinds of calls are remembered.
_REMEMBERED = 256


class _Kind:
    """The kind of calls with tensors of equal dims, strides, data types and devices.

    tensors: whether all that is given are tensors of PyTorch.
    entry: once such a call was checked as a whole, how others are launched; they differ from it in
    addresses alone, which are checked for their alignment.
    """

    def __init__(self, loaded: Loaded, sized: Sized, tensors: bool = False):
        self.loaded, self.sized, self.tensors = loaded, sized, tensors
        self.entry: Entry | None = None


class Caller:
    """Calls of a plan; threads may share it.

    A call whose outputs are all new writes over nothing that it reads, wherever they lie.
    """

    def __init__(self, plan: ExecutionPlan):
        self._plan = plan
        self._where = f"call of plan '{plan.plan.name}'"
        # Numbers that have a default are given by name.
        self._positional = [t for t in plan.inputs if not (t.is_by_value and t.value is not None)]
        self._outputs = plan.outputs
        names = [tensor.name for tensor in self._outputs]
        self._results = collections.namedtuple("Outputs", names, rename=True)
        self._kinds: Recent[_Kind] = Recent(_REMEMBERED)

    def __call__(
        self,
        inputs: Sequence[Any],
        named: Mapping[str, Any],
        outputs: Any,
        workspace: Any,
        stream: Any,
        sizes: Mapping[str, int] | None,
    ) -> Any:
        """See `ExecutionPlan.__call__`."""
        pack = self._pack(inputs, named)
        results = self._given_outputs(outputs)
        pack |= {uid: array for uid, array in results.items() if array is not None}
        libraries = [each for each in map(library_of, map(type, pack.values())) if each is not None]
        library = libraries[0] if libraries else None
        for each in dict.fromkeys(libraries):
            each.prepare(pack.values())
        kind = self._kind(pack, sizes)
        place, sized = kind.loaded.device, kind.sized
        is_current = isinstance(stream, str) and stream == CURRENT
        handle = self._current(library, place) if is_current else handle_of(stream)
        is_all_new = outputs is None and workspace is None
        missing = [t for t in sized.tensors if results.get(t.record.uid, t) is None]
        needed = sized.workspace_bytes if workspace is None else 0
        if missing or needed:
            if library is None:
                raise self._no_library(missing, needed)
            with contextlib.nullcontext() if is_current else library.on(handle, place.ordinal):
                for tensor in missing:
                    uid, wanted = tensor.record.uid, _wanted(tensor)
                    results[uid] = allocated(library, wanted, place.ordinal)
                if needed:
                    wanted = Wanted((needed,), (1,), dtypes.ui8, needed, "workspace")
                    workspace = allocated(library, wanted, place.ordinal)
        pack |= results
        if not (is_all_new and self._is_launched(kind, pack, workspace, handle)):
            self._plan.execute(pack, workspace, stream=handle, sizes=sizes)
            if is_all_new and kind.tensors:
                kind.entry = self._plan.entry_of(kind.loaded, kind.sized)
        if any([each.waits for each in libraries]):
            with driver.entered(place):
                driver.synchronize(handle)
        found = tuple(results.values())
        return found[0] if len(found) == 1 else self._results(*found)

    def _is_launched(
        self, kind: _Kind, pack: Mapping[int, Any], workspace: Any, handle: int
    ) -> bool:
        """Launches a call like one that was checked; False where none was, or it is misaligned."""
        if kind.entry is None:
            return False
        addresses = tuple([pack[tensor.uid].data_ptr() for tensor in kind.entry.tensors])
        for address, tensor in zip(addresses, kind.entry.tensors, strict=True):
            if address % tensor.alignment:
                return False
        kind.entry(addresses, 0 if workspace is None else workspace.data_ptr(), handle)
        return True

    def _pack(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[int, Any]:
        """Inputs by uid: those given by position, then those given by name."""
        if len(inputs) > len(self._positional):
            raise self._error(f"{len(inputs)} arrays", self._order)
        pack = {t.uid: value for t, value in zip(self._positional, inputs, strict=False)}
        for name, value in named.items():
            record = self._plan.plan.tensor(name)
            if record is None:
                raise self._plan.plan.no_tensor(name)
            if record.role == "output":
                raise self._error(f"output {name!r} among the inputs", f"outputs={{{name!r}: ...}}")
            if record.uid in pack:
                raise self._error(
                    f"{label(record)} twice", self._order, Status.BAD_PARAM_DUPLICATED_ENTRIES
                )
            pack[record.uid] = value
        missing = [t for t in self._positional if pack.get(t.uid) is None]
        if missing:
            raise self._error(f"no array for {', '.join(map(label, missing))}", self._order)
        return pack

    @property
    def _order(self) -> str:
        names = ", ".join(tensor.name or f"uid {tensor.uid}" for tensor in self._positional)
        return f"{len(self._positional)}, in this order: {names}"

    def _given_outputs(self, outputs: Any) -> dict[int, Any]:
        """Outputs by uid in their order; None for those that are to be allocated."""
        found: dict[int, Any] = dict.fromkeys([tensor.uid for tensor in self._outputs])
        count = len(found)
        if outputs is None:
            return found
        if isinstance(outputs, Mapping):
            for key, array in outputs.items():
                record = self._plan.record(key)
                if record.uid not in found:
                    raise self._error(f"{label(record)} among the outputs", "the plan's outputs")
                found[record.uid] = array
            return found
        listed = outputs if isinstance(outputs, tuple | list) else [outputs]
        if len(listed) != count:
            names = ", ".join(map(label, self._outputs))
            raise self._error(f"outputs={len(listed)} arrays", f"{count}, in this order: {names}")
        return dict(zip(found, listed, strict=True))

    def _kind(self, pack: Mapping[int, Any], sizes: Mapping[str, int] | None) -> _Kind:
        try:
            # Numbers, addresses and most libraries' arrays are not described so: no two calls with
            # them are taken for alike.
            described = tuple(map(description, pack.values()))
            key = (tuple(pack), described, tuple(sizes.items()) if sizes else ())
            found = self._kinds.get(key)
        except (AttributeError, TypeError):
            return _Kind(*self._plan.sized_for(pack, sizes))
        if found is None:
            numbers = {t.uid for t in self._plan.inputs if t.is_by_value}
            are_tensors = all(is_torch(type(value)) for value in pack.values())
            tensors = are_tensors and not numbers & pack.keys()
            found = _Kind(*self._plan.sized_for(pack, sizes), tensors)
            self._kinds.add(key, found)
        return found

    def _current(self, library: Library | None, place: driver.Device) -> int:
        return DEFAULT_STREAM if library is None else library.current_stream(place.ordinal)

    def _no_library(self, missing: Sequence[SizedTensor], needed: int) -> DnncError:
        what = ", ".join([tensor.label for tensor in missing] or ["workspace"])
        return self._error(
            f"nothing allocates {what}: no input is an array of PyTorch, CuPy or JAX",
            "outputs=..." if missing else f"workspace=..., of {needed} bytes",
        )

    def _error(self, what: str, supported: str, status: Status = Status.BAD_PARAM) -> DnncError:
        return DnncError(status, what, supported, self._where)


def _wanted(tensor: SizedTensor) -> Wanted:
    """An array for an output; packed booleans, which no library has, are bytes."""
    record = tensor.record
    if record.prior is not None:
        raise DnncError(
            Status.BAD_PARAM,
            "what it holds is read before it is written",
            f"outputs={{{record.name or record.uid!r}: ...}}, with that",
            tensor.label,
        )
    if tensor.dtype.kind == "b":
        return Wanted((tensor.bytes,), (1,), dtypes.ui8, tensor.bytes, tensor.label)
    return Wanted(tensor.dims, tensor.strides, tensor.dtype, tensor.bytes, tensor.label)
