# pyright: basic
"""ExecutionPlan: a plan, loaded on a device when it is first used there, bound and launched."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DnncError, Status
from ..expr import most_of, range_text, verify_products
from ..given import checked, verify_mapping, verify_sizes
from ..plan import format
from ..plan.plan import Plan, TensorRecord
from . import asked, cuda_graphs, driver, no_device
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
from .calling import CURRENT, Caller
from .entry import Entry, entry_of
from .laid_out import Bound, Steps, lay_out
from .loaded import Loaded, choose_program
from .seen import Seen
from .sized import Sized
from .streams import DEFAULT_STREAM, handle_of


@checked
def load(source: str | os.PathLike[str] | bytes | Plan, name: str | None = None) -> ExecutionPlan:
    """An execution plan from a `.dnnplan` file, its bytes, or a `Plan`.

    name: which plan of a bundle.  The GPU is not touched before the first bind.
    A file that is truncated or altered is BAD_PARAM; one of a later format is
    SERIALIZATION_VERSION_MISMATCH.
    """
    return ExecutionPlan(source if isinstance(source, Plan) else format.read(source, name))


@dataclass(frozen=True)
class _Given:
    """The bindings of a caller, in the order of the plan's tensors.

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
        self._loaded: dict[int, Loaded] = {}
        self._loading: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()
        self._seen = Seen()
        self._current: Any = None
        self._caller: Caller | None = None
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

    @property
    def inputs(self) -> tuple[TensorRecord, ...]:
        """The inputs in the order in which a call takes them: by uid.

        Tensors that were given no uid have them in the order in which they were declared.
        """
        return self._by_uid("input")

    @property
    def outputs(self) -> tuple[TensorRecord, ...]:
        """The outputs in the order in which a call returns them: by uid, as `inputs`."""
        return self._by_uid("output")

    def _by_uid(self, role: str) -> tuple[TensorRecord, ...]:
        return tuple(sorted((t for t in self.plan.tensors if t.role == role), key=lambda t: t.uid))

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
        verify_products(self.plan.products, found, f"plan '{self.plan.name}'")
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
        wanted = range_text(symbol)
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
        verify_products(self.plan.products, given, f"plan '{self.plan.name}'")
        found = dict(given)
        programs = self.plan.programs
        if driver.is_available():
            place = driver.device(device)
            found |= place.variables
            programs = (choose_program(self.plan, place.capability)[0],)
        return max(
            most_of(self.plan.expression(variant.workspace_bytes), self.plan.dims, found)
            for program in programs
            for variant in program.variants
        )

    # ---- calling

    def __call__(
        self,
        /,
        *inputs: Any,
        outputs: Any = None,
        workspace: Any = None,
        stream: Any = CURRENT,
        sizes: Mapping[str, int] | None = None,
        **named: Any,
    ) -> Any:
        """Launches the plan on arrays and returns its output; of several outputs, a named tuple.

        inputs: arrays in the order of `self.inputs`, without by-value numbers that have a default.
        named: inputs by the names of their tensors, those numbers among them.
        outputs: the caller's own: an array, a sequence in the order of `self.outputs`, or a mapping
        from names; those left out or None are allocated with the graph's dims and strides by the
        library of the first input that is an array of PyTorch, CuPy or JAX.
        workspace: as that of `execute`; None: allocated by that library where it is needed.
        stream: as that of `execute`; left out: the stream that the library's own operations run on.
        sizes: as those of `execute`.
        It waits for the device where the library is JAX, which shows no stream.
        """
        if self._caller is None:
            self._caller = Caller(self)
        return self._caller(inputs, named, outputs, workspace, stream, sizes)

    def sized_for(
        self, pack: Mapping[Any, Any], sizes: Mapping[str, int] | None
    ) -> tuple[Loaded, Sized]:
        """(the plan on the device of a call, that at its sizes); outputs may be left out."""
        found = self._given(pack, is_whole=False)
        try:
            place = self._device_of(found, None)
        except DnncError:
            no_device.verify_buffers(self.plan, found.buffers, self._sizes(found.buffers, sizes))
            raise
        with driver.entered(place):
            loaded = self._load(place)
            return loaded, loaded.at(self._sizes(found.buffers, sizes))

    def entry(
        self,
        sizes: Mapping[str, int] | None = None,
        *,
        numbers: Mapping[Any, float | int] | None = None,
        peers: Mapping[int, Mapping[int, int]] | None = None,
        device: int | None = None,
    ) -> Entry:
        """A way to launch on addresses that the caller has checked: `entry(addresses, workspace,
        stream)`.

        sizes: values of the plan's symbols.  numbers: by-value tensors -> numbers; those left out
        have their defaults.  peers: as those of `bind`.  device: an ordinal; None: that of the
        current context.
        """
        asked.verify_peers(peers)
        asked.verify_device(device)
        # What would fail on every machine comes before a driver that is missing on this one.
        found = self._sizes([NO_BUFFER] * len(self.plan.tensors), sizes)
        values = self._numbers(numbers or {})
        place = driver.device(device)
        with driver.entered(place):
            loaded = self._load(place)
            sized = loaded.at(found)
        return self.entry_of(loaded, sized, values, peers)

    def entry_of(
        self,
        loaded: Loaded,
        sized: Sized,
        numbers: Mapping[int, float | int] | None = None,
        peers: Mapping[int, Mapping[int, int]] | None = None,
    ) -> Entry:
        """The entry of what `sized_for` gives; see `entry`.

        numbers: by uid, of all by-value tensors; None: their defaults.
        """
        tensors = [t for t in (*self.inputs, *self.outputs) if not t.is_by_value]
        values = self._numbers({}) if numbers is None else numbers
        return entry_of(loaded, sized, tensors, values, peers or {})

    def _numbers(self, numbers: Mapping[Any, float | int]) -> dict[int, float | int]:
        """The numbers of by-value tensors by uid."""
        verify_mapping(numbers, "by-value tensor -> number", "numbers")
        values = {t.uid: t.value for t in self.plan.tensors if t.is_by_value}
        for key, value in numbers.items():
            record = self.record(key)
            if not record.is_by_value:
                wanted = "a by-value tensor"
                raise DnncError(Status.BAD_PARAM, "a buffer", wanted, label(record))
            values[record.uid] = value
        return {t.uid: number_of(t, values[t.uid]) for t in self.plan.tensors if t.is_by_value}

    def record(self, key: Any) -> TensorRecord:
        """The tensor with a uid or a unique name, or of an object with a uid."""
        return self.plan.tensors[self._place(key)]

    # ---- binding

    def bind(
        self,
        pack: Mapping[Any, Any],
        workspace: Any = None,
        *,
        stream: Any = DEFAULT_STREAM,
        sizes: Mapping[str, int] | None = None,
        peers: Mapping[int, Mapping[int, int]] | None = None,
        device: int | None = None,
    ) -> BoundPlan:
        """Checks everything and lays out every argument; calling the result only launches.

        pack: uid, unique name or tensor -> device array or address; a number for by-value ones.
        workspace: a device array or address of at least `workspace_size` bytes, aligned to 256;
        None where that is 0.  stream: a `torch.cuda.Stream`, an object with `__cuda_stream__`, a
        stream of CuPy or cuda-bindings, an integer handle, or None: the legacy default stream.
        sizes: values of symbols that no buffer shows.
        A buffer of a wrong data type, dims, strides, alignment or device, one that is missing or
        unknown, and outputs that overlap are BAD_PARAM errors.
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
        try:
            place = self._device_of(given, device)
        except DnncError:
            self._verify_without_device(given, workspace, sizes)
            raise
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
        stream: Any = DEFAULT_STREAM,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Binds and launches on a stream; allocates no device memory and does not wait.

        pack, workspace, stream, sizes: as those of `bind`.
        What was bound and found right before is launched without another check, as long as
        addresses, dims, strides, data types, devices, numbers, sizes and stream are the same.
        The device is that of the arrays; of addresses alone, that of the current context.
        """
        if type(stream) is not int:
            stream = handle_of(stream)
        if self._current is None:
            self._current = self._driver_calls(pack, workspace, sizes).current
        result, context = self._current()
        if result:
            raise driver.call_failed(self._current, result)
        bound = self._seen.find(pack, workspace, stream, sizes, context)
        if bound is None:
            bound = self._find_or_bind(pack, workspace, stream, sizes, context)
        bound(context)

    def _driver_calls(self, pack: Any, workspace: Any, sizes: Any) -> driver.Calls:
        """The driver's functions; without a driver, what is wrong with the call is the error."""
        try:
            return driver.calls()
        except DnncError:
            self._lay_out(pack, workspace, sizes)
            raise

    def _verify_without_device(
        self, given: _Given, workspace: Any, sizes: Mapping[str, int] | None
    ) -> None:
        found = self._sizes(given.buffers, sizes)
        own = NO_BUFFER if workspace is None else buffer_of(workspace, self._workspace_label)
        spans = no_device.verify_buffers(self.plan, given.buffers, found)
        no_device.verify_workspace(self.plan, spans, own, found, self._workspace_label)

    def _find_or_bind(
        self, pack: Any, workspace: Any, stream: int, sizes: Any, context: Any
    ) -> BoundPlan:
        asked.verify_pack(pack)
        if sizes is not None:
            verify_sizes(sizes)

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
        """The bindings of each tensor; unknown, repeated and missing ones are errors."""
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
        loaded: Loaded,
        given: _Given,
        sizes: Mapping[str, int],
        workspace: Buffer,
        peers: Mapping[int, Mapping[int, int]],
    ) -> Steps:
        place = loaded.device
        known = loaded.at(sizes)
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

    def _load(self, place: driver.Device) -> Loaded:
        """The plan on a device, whose context is current; loading waits for no other device's."""
        loaded = self._loaded.get(place.ordinal)
        if loaded is not None:
            return loaded
        with self._lock:
            lock = self._loading.setdefault(place.ordinal, threading.Lock())
        with lock:
            if place.ordinal not in self._loaded:
                self._loaded[place.ordinal] = Loaded(self.plan, place)
            return self._loaded[place.ordinal]
