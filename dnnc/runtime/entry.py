# pyright: basic
"""Entry: launches of a plan at fixed sizes, on addresses that the caller has checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
from .sized import Sized, SizedLaunch, SizedMemset
from .streams import handle_of


class Entry:
    """Launches of a plan at fixed sizes, on addresses that the caller has checked.

    `entry(addresses, workspace, stream)` checks how many addresses there are and that a workspace
    is there where one is needed, and nothing else: alignment, sizes, devices and overlaps are what
    `bind` and `execute` check.  Addresses of the last call are launched at once; other addresses
    are written into the arguments in place.  Threads may share it.

    tensors: whose addresses it takes, in order: inputs, then outputs, without by-value numbers.
    workspace_bytes: what the workspace needs.
    """

    def __init__(
        self,
        loaded: Loaded,
        sized: Sized,
        tensors: Sequence[TensorRecord],
        numbers: Mapping[int, float | int],
        peers: Mapping[int, Mapping[int, int]],
    ):
        """numbers: by uid.  peers: rank -> addresses by uid."""
        self.tensors = tuple(tensors)
        self.workspace_bytes = sized.workspace_bytes
        self._loaded, self._sized = loaded, sized
        self._numbers, self._peers = numbers, peers
        self._context = loaded.device.context
        self._current = driver.calls().current
        # Those that no thread is launching now.
        self._free: list[_Launches] = []

    def __call__(
        self,
        addresses: Sequence[int],
        workspace: int | None = 0,
        stream: Any = 0,
        context: Any = None,
    ) -> None:
        """Launches on a stream; allocates no device memory and does not wait.

        addresses: a tuple or list of integers, one for each of `tensors`.  workspace: an address,
        0 or None where no bytes are needed.  stream: as `execute` takes it.  A tuple and an integer
        handle are quickest.  context: the thread's current one, where the caller has just asked for
        it.
        """
        try:
            if context is None:
                result, context = self._current()
                if result:
                    raise driver.call_failed(self._current, result)
            if context != self._context:
                with driver.entered(self._loaded.device):
                    self(addresses, workspace, stream, self._context)
                return
            try:
                # A thread has the arguments for itself until the driver has copied them.
                launches = self._free.pop()
            except IndexError:
                launches = None
            if (
                launches is None
                or launches.addresses != addresses
                or launches.workspace != workspace
                or launches.stream != stream
            ):
                launches = self._ready(launches, addresses, workspace, stream)
            for call, arguments in launches.calls:
                (result,) = call(*arguments)
                if result:
                    raise driver.call_failed(call, result)
            self._free.append(launches)
        except DnncError:
            raise
        except Exception as error:
            raise self._explained(addresses, workspace, error) from error

    def _ready(
        self, launches: _Launches | None, addresses: Any, workspace: Any, stream: Any
    ) -> _Launches:
        """Launches on these addresses: those that are given, changed, or else new ones."""
        if type(addresses) is not tuple:
            addresses = _as_tuple(addresses)
        workspace = workspace or 0
        if len(addresses) != len(self.tensors) or (self.workspace_bytes and not workspace):
            raise self._miscounted(len(addresses))
        handle = stream if type(stream) is int else handle_of(stream)
        if launches is None:
            return self._made(addresses, workspace, handle)
        launches.move(addresses, workspace)
        if launches.stream != handle:
            launches.set_stream(handle)
        return launches

    def _made(self, addresses: tuple[int, ...], workspace: int, stream: int) -> _Launches:
        uids = [tensor.uid for tensor in self.tensors]
        by_uid = dict(zip(uids, addresses, strict=True))
        bound = Bound(by_uid, self._numbers, workspace, self._peers)
        steps = lay_out(self._sized, bound, self._loaded.maps)
        place = self._loaded.device
        return _Launches(place, self._sized, steps, uids, addresses, workspace, stream)

    def _miscounted(self, count: int) -> DnncError:
        """The error of too many or too few addresses, or of no workspace."""
        if count != len(self.tensors):
            names = ", ".join(tensor.name or str(tensor.uid) for tensor in self.tensors)
            wanted = f"{len(self.tensors)}, in this order: {names}"
            return DnncError(Status.BAD_PARAM, f"{count} addresses", wanted, "entry")
        wanted = f"{self.workspace_bytes} bytes"
        return DnncError(Status.BAD_PARAM, "none is given", wanted, "workspace of an entry")

    def _explained(self, addresses: Any, workspace: Any, error: Exception) -> DnncError:
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

    addresses, workspace: those that they have now.
    """

    def __init__(
        self,
        place: driver.Device,
        sized: Sized,
        steps: Steps,
        uids: Sequence[int],
        addresses: tuple[int, ...],
        workspace: int,
        stream: int,
    ):
        """uids: whose addresses they are, in order."""
        super().__init__(place, steps, stream)
        self._move_map = driver.map_mover()
        self.addresses, self.workspace = addresses, workspace
        self._now = (*addresses, workspace)
        places = {uid: place for place, uid in enumerate(uids)}
        places[bounds.WORKSPACE] = len(uids)
        # Where addresses stand: (position among them, what is written, offset).
        self._words: list[tuple[int, memoryview, int]] = []
        self._maps: list[tuple[int, Any, int]] = []
        self._memsets: list[tuple[int, int, int]] = []
        for at, (made, step) in enumerate(zip(steps, sized.steps, strict=True)):
            if isinstance(step, SizedMemset):
                self._memsets.append((places[step.uid], at, step.offset))
            elif isinstance(made, KernelStep):
                self._add(step, made.arguments, places)

    def _add(self, step: SizedLaunch, block: Block, places: Mapping[int, int]) -> None:
        for pointer in step.pointers:
            if pointer.rank is None:  # those of peers stay
                word = block.word_of(pointer.place)
                self._words.append((places[pointer.uid], word, pointer.offset))
        for map_ in step.maps:
            made = driver.tensor_map_in(block.memory_of(map_.place))
            self._maps.append((places[map_.recipe.uid], made, map_.offset))

    def move(self, addresses: tuple[int, ...], workspace: int) -> None:
        """Writes addresses in the place of those that are there."""
        before, now = self._now, (*addresses, workspace)
        for place, word, offset in self._words:
            word[0] = now[place] + offset
        move_map = self._move_map
        for place, map_, offset in self._maps:
            address = now[place]
            if address != before[place]:
                (result,) = move_map(map_, address + offset if address else NOWHERE)
                if result:
                    raise driver.call_failed(move_map, result)
        for place, at, offset in self._memsets:
            step = self._steps[at]
            assert isinstance(step, MemsetStep)
            self._steps[at] = step = step._replace(address=now[place] + offset)
            self.calls[at] = self._memset_call(step)
        self.addresses, self.workspace, self._now = addresses, workspace, now
