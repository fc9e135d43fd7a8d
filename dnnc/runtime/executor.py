# pyright: basic
"""ExecutionPlan: a plan, loaded on a device when it is first used there, bound and launched."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .. import log
from ..errors import DnncError, Status
from ..given import verify_sizes
from ..plan import format
from ..plan.plan import Launch, Plan, Program
from . import asked, cuda_graphs, driver
from .bound import BoundPlan
from .buffers import (
    NO_BUFFER,
    Buffer,
    Span,
    buffer_of,
    label,
    number_of,
    placed,
    verify_apart,
    verify_buffer,
    verify_workspace,
)
from .laid_out import Bound, Steps, lay_out
from .recent import Recent
from .seen import Seen
from .sized import Sized, Sizer

_log = log.logger(__name__)

# How many sets of sizes, and tensor maps, a plan remembers on a device.
_REMEMBERED = 256


def load(source: str | os.PathLike[str] | bytes | Plan, name: str | None = None) -> ExecutionPlan:
    """An execution plan from a `.dnnplan` file, its bytes, or a `Plan`.

    name: which plan of a bundle.  The GPU is not touched before the first bind.
    A file that is truncated or altered is BAD_PARAM; one of a later format is
    SERIALIZATION_VERSION_MISMATCH.
    """
    return ExecutionPlan(source if isinstance(source, Plan) else format.read(source, name))


def choose_program(plan: Plan, capability: tuple[int, int]) -> tuple[Program, bool]:
    """(the plan's program for a compute capability, whether its PTX must be compiled first).

    A cubin of the capability itself is best, exact ones first; then one of an earlier minor
    version; then PTX of an earlier architecture.  None fitting is NOT_SUPPORTED_ARCH_MISMATCH.
    """
    cubins = [
        p
        for p in plan.programs
        if tuple(p.capability) == capability
        or (not p.exact and p.capability[0] == capability[0] and p.capability[1] < capability[1])
    ]
    if cubins:
        return max(cubins, key=lambda p: (tuple(p.capability), p.exact)), False
    later = [
        p
        for p in plan.programs
        if tuple(p.capability) < capability and all(m.ptx_runs_later for m in p.modules)
    ]
    if later:
        return max(later, key=lambda p: tuple(p.capability)), True
    raise DnncError(
        Status.NOT_SUPPORTED_ARCH_MISMATCH,
        f"plan '{plan.name}' has no code for compute capability {capability[0]}.{capability[1]}",
        ", ".join(p.target for p in plan.programs),
        f"plan '{plan.name}'",
    )


@dataclass
class _Loaded:
    """A plan's program on one device, and what was worked out for sizes there.

    smem: bytes of dynamic shared memory that launches of a kernel may ask for.
    """

    device: driver.Device
    program: Program
    kernels: dict[str, Any]
    sizer: Any = None
    smem: dict[str, int] = field(default_factory=dict)
    sized: Recent[Sized] = field(default_factory=lambda: Recent(_REMEMBERED))
    maps: Recent[bytes] = field(default_factory=lambda: Recent(_REMEMBERED))

    @cached_property
    def static_smem(self) -> dict[str, int]:
        return {k.name: k.static_smem_bytes for k in self.program.kernels}


@dataclass(frozen=True)
class _Given:
    """What a caller bound, in the order of the plan's tensors.

    buffers: NO_BUFFER for by-value tensors.  numbers: by uid.
    """

    buffers: tuple[Buffer, ...]
    numbers: dict[int, float | int]


class ExecutionPlan:
    """A plan that can be bound to buffers and launched; threads may share it.

    It is loaded on a device when it is first used there.  No method changes the calling thread's
    current context.
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self._loaded: dict[int, _Loaded] = {}
        self._loading: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()
        self._seen = Seen()
        self._current: Any = None
        self._places: dict[Any, int] = {t.uid: i for i, t in enumerate(plan.tensors)}
        for i, tensor in enumerate(plan.tensors):
            if tensor.name and plan.tensor(tensor.name) is not None:
                self._places[tensor.name] = i
        # Where a symbol can be read off a buffer: (tensor, axis, symbol's name).
        self._shown = [
            (i, axis, text)
            for i, tensor in enumerate(plan.tensors)
            if not tensor.is_by_value
            for axis, text in enumerate(tensor.dims)
            if text in plan.dims
        ]

    def __repr__(self) -> str:
        return f"<executable {self.plan!r}>"

    def serialize(self) -> bytes:
        """The bytes of a `.dnnplan` file with the plan, for `load`."""
        return self.plan.serialize()

    # ---- sizes

    def sizes(
        self, pack: Mapping[Any, Any], sizes: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Values of the plan's symbols: those given, else from the dims of the buffers."""
        return self._sizes(self._given(pack, is_whole=False).buffers, sizes)

    def _sizes(self, buffers: Sequence[Buffer], sizes: Mapping[str, int] | None) -> dict[str, int]:
        found = {} if sizes is None else self._known_sizes(sizes)
        for index, axis, name in self._shown:
            dims = buffers[index].dims
            if name not in found and dims and len(dims) == len(self.plan.tensors[index].dims):
                found[name] = dims[axis]
        for symbol in self.plan.symbols:
            self._verify_size(symbol, found.get(symbol.name))
        return found

    def _known_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes that were given; a name that no symbol has is BAD_PARAM."""
        verify_sizes(sizes)
        names = [symbol.name for symbol in self.plan.symbols]
        if unknown := sorted(sizes.keys() - set(names)):
            raise DnncError(
                Status.BAD_PARAM,
                f"no size is called {', '.join(map(repr, unknown))}",
                ", ".join(names) or "none: all sizes are fixed",
                f"plan '{self.plan.name}'",
            )
        return {name: operator.index(value) for name, value in sizes.items()}

    def _verify_size(self, symbol: Any, value: int | None) -> None:
        if value is not None and symbol.min <= value <= symbol.max:
            if value % symbol.multiple_of == 0:
                return
        wanted = f"{symbol.min} to {symbol.max}, a multiple of {symbol.multiple_of}"
        if value is None:
            raise DnncError(
                Status.BAD_PARAM,
                f"the size {symbol.name} follows from no buffer",
                f"sizes={{'{symbol.name}': ...}}, {wanted}",
                f"plan '{self.plan.name}'",
            )
        raise DnncError(
            Status.BAD_PARAM_SHAPE_MISMATCH,
            f"{symbol.name} = {value}",
            wanted,
            f"plan '{self.plan.name}'",
        )

    def workspace_size(
        self, sizes: Mapping[str, int] | None = None, device: int | None = None
    ) -> int:
        """Bytes of workspace, for the sizes given; symbols without one count at their maximum."""
        given = {} if sizes is None else self._known_sizes(sizes)
        asked.verify_device(device)
        for symbol in self.plan.symbols:
            if symbol.name in given:
                self._verify_size(symbol, given[symbol.name])
        found = {s.name: s.max for s in self.plan.symbols} | given
        programs = self.plan.programs
        if driver.is_available():
            place = driver.device(device)
            found |= place.variables
            programs = (choose_program(self.plan, place.capability)[0],)
        return max(
            self.plan.expression(variant.workspace_bytes).evaluate(found)
            for program in programs
            for variant in program.variants
        )

    # ---- binding

    def bind(
        self,
        pack: Mapping[Any, Any],
        workspace: Any = None,
        *,
        stream: int = driver.DEFAULT_STREAM,
        sizes: Mapping[str, int] | None = None,
        peers: Mapping[int, Mapping[int, int]] | None = None,
        device: int | None = None,
    ) -> BoundPlan:
        """Checks everything and lays out every argument; calling the result only launches.

        pack: uid, unique name or tensor -> device array or address; a number for by-value ones.
        workspace: a device array or address of at least `workspace_size` bytes, aligned to 256;
        None where that is 0.  stream: a CUDA stream handle.  sizes: values of symbols that no
        buffer shows.  A buffer of a wrong data type, dims, strides, alignment or device, one
        that is missing or unknown, and outputs that overlap are BAD_PARAM errors.
        """
        place, steps = self._lay_out(pack, workspace, sizes, peers, device)
        return BoundPlan(place, steps, stream, keep=(pack, workspace))

    def _lay_out(
        self,
        pack: Mapping[Any, Any],
        workspace: Any,
        sizes: Mapping[str, int] | None,
        peers: Mapping[int, Mapping[int, int]] | None = None,
        device: int | None = None,
    ) -> tuple[driver.Device, Steps]:
        """(the device, the steps of the plan there on these buffers), after every check."""
        asked.verify_peers(peers)
        asked.verify_device(device)
        given = self._given(pack)
        place = self._device_of(given, device)
        with driver.entered(place):
            loaded = self._load(place)
            found = self._sizes(given.buffers, sizes)
            own = NO_BUFFER if workspace is None else buffer_of(workspace, self._workspace_label)
            return place, self._bind(loaded, given, found, own, peers or {})

    def execute(
        self,
        pack: Mapping[Any, Any],
        workspace: Any = None,
        *,
        stream: int = driver.DEFAULT_STREAM,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Binds and launches on a stream; allocates no device memory and does not wait.

        What was bound and found right before is launched without another check, as long as
        addresses, dims, strides, data types, devices, numbers, sizes and stream are the same.
        The device is that of the arrays; of addresses alone, that of the current context.
        """
        if self._current is None:
            self._current = driver.calls().current
        result, context = self._current()
        if result:
            raise driver.call_failed(self._current, result)
        bound = self._seen.find(pack, workspace, stream, sizes, context)
        if bound is None:
            bound = self._find_or_bind(pack, workspace, stream, sizes, context)
        bound(context)

    def _find_or_bind(
        self, pack: Any, workspace: Any, stream: int, sizes: Any, context: Any
    ) -> BoundPlan:
        asked.verify_pack(pack)
        if sizes is not None:
            verify_sizes(sizes)
        asked.verify_stream(stream)

        def bind() -> BoundPlan:
            # It keeps no buffer alive: those of a later call are its caller's.
            return BoundPlan(*self._lay_out(pack, workspace, sizes), stream)

        return self._seen.find_or_bind(pack, workspace, stream, sizes, context, bind)

    # ---- CUDA graphs

    def populate_cuda_graph(
        self,
        pack: Mapping[Any, Any],
        workspace: Any,
        graph: Any,
        *,
        dependencies: Sequence[Any] = (),
        sizes: Mapping[str, int] | None = None,
        peers: Mapping[int, Mapping[int, int]] | None = None,
        device: int | None = None,
    ) -> tuple[Any, ...]:
        """Adds the plan's launches to a CUDA graph, a node each, and gives the nodes in order.

        pack, workspace, sizes, peers, device: as those of `bind`.  graph: a CUgraph or its integer
        handle.  dependencies: nodes of it that the first one waits for.  The graph refers to the
        buffers, it does not keep them alive.
        """
        place, steps = self._lay_out(pack, workspace, sizes, peers, device)
        with driver.entered(place):
            return cuda_graphs.populate(graph, steps, place, dependencies)

    def update_cuda_graph(
        self,
        pack: Mapping[Any, Any],
        workspace: Any,
        graph: Any,
        *,
        nodes: Sequence[Any] | None = None,
        executable: Any = None,
        sizes: Mapping[str, int] | None = None,
        peers: Mapping[int, Mapping[int, int]] | None = None,
        device: int | None = None,
    ) -> None:
        """Gives the plan's nodes of a CUDA graph other buffers, numbers or sizes.

        graph: that was populated by this plan.  nodes: those that `populate_cuda_graph` gave; None
        where the graph has no others.  executable: a CUgraphExec that was instantiated from the
        graph, which is changed in place of the graph itself.
        Nodes of another plan, or sizes that take other kernels, are BAD_PARAM_CUDA_GRAPH_MISMATCH.
        """
        place, steps = self._lay_out(pack, workspace, sizes, peers, device)
        with driver.entered(place):
            cuda_graphs.update(graph, steps, place, nodes, executable, f"plan '{self.plan.name}'")

    @property
    def _workspace_label(self) -> str:
        return f"workspace of plan '{self.plan.name}'"

    def _given(self, pack: Mapping[Any, Any], *, is_whole: bool = True) -> _Given:
        """What is bound to each tensor; unknown, repeated and missing ones are errors."""
        asked.verify_pack(pack)
        values: list[Any] = [None] * len(self.plan.tensors)
        for key, value in pack.items():
            if key is None:
                continue
            place = self._place(key)
            if values[place] is not None:
                raise DnncError(
                    Status.BAD_PARAM_DUPLICATED_ENTRIES,
                    f"{label(self.plan.tensors[place])} twice",
                    where="variant pack",
                )
            values[place] = value
        buffers: list[Buffer] = []
        numbers: dict[int, float | int] = {}
        for record, value in zip(self.plan.tensors, values, strict=True):
            if record.is_by_value:
                buffers.append(NO_BUFFER)
                numbers[record.uid] = number_of(record, value)
            elif value is not None:
                buffers.append(buffer_of(value, record))
            elif is_whole:
                raise DnncError(
                    Status.BAD_PARAM, "missing from the variant pack", "a buffer", label(record)
                )
            else:
                buffers.append(NO_BUFFER)
        return _Given(tuple(buffers), numbers)

    def _place(self, key: Any) -> int:
        """The position of a tensor by uid, unique name, or an object with a uid."""
        name = key if isinstance(key, int | str) else getattr(key, "uid", None)
        place = self._places.get(name) if isinstance(name, int | str) else None
        if place is None:
            raise self.plan.no_tensor(key)
        return place

    def _device_of(self, given: _Given, device: int | None) -> driver.Device:
        if device is None:
            pairs = zip(self.plan.tensors, given.buffers, strict=True)
            known = (b.device for t, b in pairs if b.device is not None and not t.is_peer)
            device = next(known, None)
        return driver.device(device)

    def _bind(
        self,
        loaded: _Loaded,
        given: _Given,
        sizes: Mapping[str, int],
        workspace: Buffer,
        peers: Mapping[int, Mapping[int, int]],
    ) -> Steps:
        place = loaded.device
        known = self._sized(loaded, sizes)
        spans = list(self._spans(known, given, place.ordinal))
        verify_apart(spans, self.plan.may_alias)
        base = 0
        if known.workspace_bytes:
            base = verify_workspace(
                workspace, known.workspace_bytes, spans, place.ordinal, self._workspace_label
            )
        addresses = {span.record.uid: span.start for span in spans}
        return lay_out(known, Bound(addresses, given.numbers, base, peers), loaded.maps)

    def _spans(self, known: Sized, given: _Given, device: int) -> Iterator[Span]:
        """Where each buffer lies, after it was found to fit its tensor."""
        for tensor, buffer in zip(known.tensors, given.buffers, strict=True):
            if buffer is NO_BUFFER:
                continue
            if tensor.bytes:
                buffer = placed(buffer, tensor.label)
            verify_buffer(tensor, buffer, device)
            yield Span(tensor.record, buffer.address, tensor.bytes)

    # ---- code on the device

    def _load(self, place: driver.Device) -> _Loaded:
        """The plan on a device, whose context is current; loading waits for no other device's."""
        loaded = self._loaded.get(place.ordinal)
        if loaded is not None:
            return loaded
        with self._lock:
            lock = self._loading.setdefault(place.ordinal, threading.Lock())
        with lock:
            if place.ordinal not in self._loaded:
                self._loaded[place.ordinal] = self._load_now(place)
            return self._loaded[place.ordinal]

    def _load_now(self, place: driver.Device) -> _Loaded:
        program, from_ptx = choose_program(self.plan, place.capability)
        blobs = self.plan.blobs
        modules = [
            driver.load_module(blobs[m.ptx] + b"\0" if from_ptx else blobs[m.cubin])
            for m in program.modules
        ]
        # All of them now: a size that takes another kernel is not to wait for its code.
        kernels = {k.name: driver.kernel(modules[k.module], k.name) for k in program.kernels}
        loaded = _Loaded(place, program, kernels)

        def function(launch: Launch, smem: int) -> Any:
            return self._function(loaded, launch, smem)

        loaded.sizer = Sizer(self.plan, program, place, kernels, function)
        _log.info(
            "plan '%s' on device %d: %s of %s",
            self.plan.name, place.ordinal,
            "PTX, compiled by the driver" if from_ptx else "cubin", program.target,
        )  # fmt: skip
        return loaded

    def _sized(self, loaded: _Loaded, sizes: Mapping[str, int]) -> Sized:
        key = tuple(sorted(sizes.items()))
        found = loaded.sized.get(key)
        if found is None:
            _log.debug("plan '%s' at sizes %s", self.plan.name, sizes)
            found = loaded.sizer.at(sizes)
            loaded.sized.add(key, found)
        return found

    def _function(self, loaded: _Loaded, launch: Launch, smem: int) -> Any:
        """A kernel that may be launched so; what it was allowed before stays allowed."""
        found = loaded.kernels[launch.kernel]
        with self._lock:
            if launch.kernel not in loaded.smem:
                static = loaded.static_smem[launch.kernel]
                loaded.smem[launch.kernel] = _SMEM_WITHOUT_ASKING - static
                if launch.cluster != (1, 1, 1):
                    driver.allow_large_clusters(found)
            if smem > loaded.smem[launch.kernel]:
                driver.allow_dynamic_smem(found, smem)
                loaded.smem[launch.kernel] = smem
        return found


# CUDA: more shared memory than this, static and dynamic, is for kernels that were allowed it.
_SMEM_WITHOUT_ASKING = 48 * 1024
