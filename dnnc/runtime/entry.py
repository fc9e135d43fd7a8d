# pyright: basic
"""Entries: launches of a plan at fixed sizes, on addresses that the caller has checked."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from .. import given
from ..errors import DnncError, Status
from ..plan import bounds
from ..plan.plan import TensorRecord
from . import driver
from .args import Block
from .bound import BoundPlan
from .buffers import label
from .laid_out import NOWHERE, Bound, KernelStep, MemsetStep, Steps, lay_out
from .loaded import Loaded
from .sized import Sized, SizedMemset


class Entry(Protocol):
    """Launches of a plan at fixed sizes, on addresses that the caller has checked.

    `entry(addresses, workspace, stream)` checks how many addresses there are and that a workspace
    is there where one is needed, and nothing else: alignment, sizes, devices and overlaps are what
    `bind` and `execute` check.  Addresses of the last call are launched at once; other addresses
    are written into the arguments in place.  Threads may share it.

    tensors: whose addresses it takes, in order: inputs, then outputs, without by-value numbers.
    workspace_bytes: what the workspace needs.
    """

    tensors: tuple[TensorRecord, ...]
    workspace_bytes: int

    def __call__(
        self, addresses: Sequence[int], workspace: int | None = 0, stream: Any = 0
    ) -> None:
        """Launches on a stream; allocates no device memory and does not wait.

        addresses: a tuple or list of integers, one for each of `tensors`.  workspace: an address,
        0 or None where no bytes are needed.  stream: as `execute` takes it.  A tuple and integers
        are quickest.
        """
        ...


def entry_of(
    loaded: Loaded,
    sized: Sized,
    tensors: Sequence[TensorRecord],
    numbers: Mapping[int, float | int],
    peers: Mapping[int, Mapping[int, int]],
) -> Entry:
    """The entry of a plan at its sizes: a function, which Python calls in less time than an object.

    tensors: whose addresses it takes.  numbers: by uid.  peers: rank -> addresses by uid.
    """
    maker = _Maker(loaded, sized, tensors, numbers, peers)
    device = loaded.device
    # The driver refuses to launch a kernel while another context than the kernel's is current, so
    # that is looked at only then.  Memory it sets in the order of any context's stream.
    sets_memory = any(isinstance(step, SizedMemset) for step in sized.steps)
    # Those that no thread is launching now.
    free: list[_Launches] = []
    take, give_back = free.pop, free.append

    def entry(addresses: Any, workspace: Any = 0, stream: Any = 0) -> None:
        if sets_memory and not driver.is_current(device):
            with driver.entered(device):
                return entry(addresses, workspace, stream)
        has_launched = False
        try:
            try:
                # A thread has the arguments for itself until the driver has copied them.
                launches = take()
            except IndexError:
                launches = maker.launches(addresses, workspace, stream)
            if (
                launches.addresses != addresses
                or launches.workspace != workspace
                or launches.stream != stream
            ):
                launches.move(addresses, workspace, stream)
            call, arguments = launches.first
            if result := call(*arguments)[0]:
                raise driver.call_failed(call, result)
            if launches.rest:
                has_launched = True
                for call, arguments in launches.rest:
                    if result := call(*arguments)[0]:
                        raise driver.call_failed(call, result)
            give_back(launches)
            return None
        except DnncError:
            if has_launched or driver.is_current(device):
                raise
        except Exception as error:
            raise maker.explained(addresses, workspace, error) from error
        with driver.entered(device):
            return entry(addresses, workspace, stream)

    made = cast(Any, entry)
    made.tensors, made.workspace_bytes = maker.tensors, sized.workspace_bytes
    return made


class _Maker:
    """Makes the launches of an entry, checks what they are given, and explains its errors."""

    def __init__(
        self,
        loaded: Loaded,
        sized: Sized,
        tensors: Sequence[TensorRecord],
        numbers: Mapping[int, float | int],
        peers: Mapping[int, Mapping[int, int]],
    ):
        self.tensors = tuple(tensors)
        self._loaded, self._sized = loaded, sized
        self._numbers, self._peers = numbers, peers

    def launches(self, addresses: Any, workspace: Any, stream: Any) -> _Launches:
        """Launches on these addresses."""
        own = self.checked(addresses, workspace)
        by_uid = {tensor.uid: each for tensor, each in zip(self.tensors, own, strict=True)}
        bound = Bound(by_uid, self._numbers, workspace or 0, self._peers)
        steps = lay_out(self._sized, bound, self._loaded.maps)
        place = self._loaded.device
        return _Launches(self, place, self._sized, steps, (*own, workspace or 0), stream)

    def checked(self, addresses: Any, workspace: Any) -> tuple[int, ...]:
        """The addresses, as many as there are tensors, and a workspace where one is needed."""
        own, needed = _as_tuple(addresses), self._sized.workspace_bytes
        if len(own) != len(self.tensors):
            names = ", ".join(tensor.name or str(tensor.uid) for tensor in self.tensors)
            wanted = f"{len(self.tensors)}, in this order: {names}"
            raise DnncError(Status.BAD_PARAM, f"{len(own)} addresses", wanted, "entry")
        if needed and not workspace:
            wanted = f"{needed} bytes"
            raise DnncError(Status.BAD_PARAM, "none is given", wanted, "workspace of an entry")
        return own

    def explained(self, addresses: Any, workspace: Any, error: Exception) -> DnncError:
        """The error of what is no address."""
        own = _as_tuple(addresses)
        labels = [*map(label, self.tensors), "workspace"]
        for where, value in zip(labels, (*own, workspace), strict=False):
            if not given.is_integer(value) or not 0 <= value < 1 << 64:
                return given.error(value, "an address, as an integer", where)
        what = f"{type(error).__name__}: {error}"
        return DnncError(Status.BAD_PARAM, what, "addresses as Python's integers", "entry")


def _as_tuple(addresses: Any) -> tuple[Any, ...]:
    """Addresses as a tuple; those of a dictionary would be its keys."""
    if not isinstance(addresses, tuple | list):
        raise given.error(addresses, "a tuple or list of addresses", "entry")
    return tuple(addresses)


class _Launches(BoundPlan):
    """Launches whose addresses can be changed, by one thread at a time.

    addresses, workspace: those that they have now, None before `move`.  first, rest: what `calls`
    has.
    """

    def __init__(
        self,
        maker: _Maker,
        place: driver.Device,
        sized: Sized,
        steps: Steps,
        now: tuple[int, ...],
        stream: Any,
    ):
        """now: addresses of the maker's tensors in order, then that of the workspace."""
        super().__init__(place, steps, stream)
        self._checked, self._move_map = maker.checked, driver.map_mover()
        self._count, self._has_workspace = len(maker.tensors), sized.workspace_bytes > 0
        places = {tensor.uid: place for place, tensor in enumerate(maker.tensors)}
        places[bounds.WORKSPACE] = self._count
        # Where addresses stand: (what is written, position among them, offset).
        self._maps: list[tuple[Any, int, int]] = []
        # (position, step, offset).
        self._memsets: list[tuple[int, int, int]] = []
        # Equal arguments of all launches are one word: the driver reads an argument anywhere.
        shared: dict[tuple[int, int], int] = {}
        pointers: list[tuple[Block, int, int]] = []
        for at, (made, step) in enumerate(zip(steps, sized.steps, strict=True)):
            if isinstance(step, SizedMemset):
                self._memsets.append((places[step.uid], at, step.offset))
            elif isinstance(made, KernelStep):
                for pointer in step.pointers:
                    if pointer.rank is None:  # those of peers stay
                        key = (places[pointer.uid], pointer.offset)
                        word = shared.setdefault(key, len(shared))
                        pointers.append((made.arguments, pointer.place, word))
                for map_ in step.maps:
                    map_in = driver.tensor_map_in(made.arguments.memory_of(map_.place))
                    self._maps.append((map_in, places[map_.recipe.uid], map_.offset))
        memory = (ctypes.c_uint64 * max(1, len(shared)))()
        for block, argument, word in pointers:
            block.place_at(argument, ctypes.addressof(memory) + 8 * word)
        self._words = memoryview(memory).cast("B").cast("Q")
        self._positions = [(word, place) for (place, offset), word in shared.items() if not offset]
        self._shifted = [(word, *key) for key, word in shared.items() if key[1]]
        # Maps have their addresses; `move` writes the others.
        self._now = now
        self.addresses: tuple[int, ...] | None = None
        self.workspace: int | None = None

    def set_stream(self, stream: Any) -> None:
        super().set_stream(stream)
        self._split()

    def _split(self) -> None:
        """Takes the calls apart: a loop over one takes Python longer than the call without it."""
        self.first, self.rest = (self.calls or [_NO_CALL])[0], self.calls[1:]

    def move(self, addresses: Any, workspace: Any, stream: Any) -> None:
        """Writes addresses in the place of those that are there."""
        if (
            type(addresses) is not tuple
            or len(addresses) != self._count
            or (self._has_workspace and not workspace)
        ):
            addresses = self._checked(addresses, workspace)
        now = (*addresses, workspace) if self._has_workspace else addresses
        before, self._now = self._now, now
        words, move_map = self._words, self._move_map
        for word, place in self._positions:
            words[word] = now[place]
        for word, place, offset in self._shifted:
            words[word] = now[place] + offset
        for map_, place, offset in self._maps:
            address = now[place]
            if address != before[place]:
                if result := move_map(map_, address + offset if address else NOWHERE)[0]:
                    raise driver.call_failed(move_map, result)
        if self._memsets:
            self._move_memsets(now)
        if self.stream != stream:
            self.set_stream(stream)
        self.addresses, self.workspace = addresses, workspace

    def _move_memsets(self, now: tuple[int, ...]) -> None:
        for place, at, offset in self._memsets:
            step = self._steps[at]
            assert isinstance(step, MemsetStep)
            self._steps[at] = step = step._replace(address=now[place] + offset)
            self.calls[at] = self._memset_call(step)
        self._split()


def _nothing() -> tuple[int]:
    return (0,)


_NO_CALL = (_nothing, ())
