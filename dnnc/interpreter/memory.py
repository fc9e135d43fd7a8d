"""Device memory: allocations far apart, bounds and alignment checks, poison until written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arena import CLEAN, UNWRITTEN, Arena
from .failure import InterpreterError, failure
from .ptx import Module, Variable
from .ptxtypes import TYPES, VIEWS, Array

# Each allocation has 64 GiB of addresses to itself, so no overrun lands in another one.
REGION_BITS = 36
ALIGNMENT = 256

# Generic addresses of the other spaces, beyond any allocation.
SHARED_WINDOW = 1 << 60
LOCAL_WINDOW = 2 << 60
PARAM_WINDOW = 3 << 60
WINDOW_SHIFT = 60

# What an access calls to raise: (reason, position in the access's addresses).
Fail = Callable[[str, int], InterpreterError]


class Region:
    """One allocation.  start: its address; the arena begins at the window before it."""

    def __init__(self, name: str, window: int, offset: int, nbytes: int, read_only: bool = False):
        self.name = name
        self.window = window
        self.offset = offset
        self.nbytes = nbytes
        self.read_only = read_only
        self.arena = Arena(offset + nbytes)

    @property
    def start(self) -> int:
        return self.window + self.offset

    def bytes_at(self, address: int, nbytes: int) -> slice:
        first = address - self.window
        return slice(first, first + nbytes)

    def __str__(self) -> str:
        return f"{self.name!r} (0x{self.start:x}, {self.nbytes} bytes)"


class Memory:
    """The global memory of a device.

    Uninitialised bytes are poison: a kernel may load them, but not store, branch on or address
    with what comes of them.
    """

    def __init__(self) -> None:
        self._regions: dict[int, Region] = {}
        self._symbols: dict[int, tuple[Module, dict[str, int]]] = {}

    def allocate(self, nbytes: int, name: str = "", offset: int = 0) -> int:
        """Address of a new allocation of `nbytes`, poisoned until written.

        It is 256-byte aligned, plus `offset` bytes (to test pointers of less alignment).
        """
        if nbytes < 0 or not 0 <= offset < 1 << 20:
            raise failure(f"allocation of {nbytes} bytes at offset {offset}", name)
        return self._place(name or f"allocation {len(self._regions)}", nbytes, offset).start

    def _place(self, name: str, nbytes: int, offset: int, read_only: bool = False) -> Region:
        window = len(self._regions) + 1
        region = Region(name, window << REGION_BITS, ALIGNMENT + offset, nbytes, read_only)
        self._regions[window] = region
        return region

    def upload(self, address: int, data: NDArray[Any] | bytes) -> None:
        """Write bytes, or an array's elements in C order, from `address` on."""
        raw = (
            np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            if isinstance(data, np.ndarray)
            else np.frombuffer(data, np.uint8)
        )
        region = self._region_of(address, raw.size)
        where = region.bytes_at(address, raw.size)
        region.arena.data[where] = raw
        region.arena.state[where] = CLEAN

    def download(self, address: int, nbytes: int, allow_poison: bool = False) -> NDArray[np.uint8]:
        """The `nbytes` bytes from `address` on.  Bytes never written are an error, or allowed."""
        region = self._region_of(address, nbytes)
        where = region.bytes_at(address, nbytes)
        poison = region.arena.state[where] != CLEAN
        if not allow_poison and np.count_nonzero(poison):
            first = int(poison.argmax())
            raise failure(
                f"byte {first} of {nbytes} was never written ({int(poison.sum())} such bytes)",
                f"download from {region}",
            )
        return region.arena.data[where].copy()

    def elements(self, address: int, places: Array, width: int) -> Array:
        """The elements of `width` bytes at these places [k], counted from an address; unsigned.

        One that was never written is an error.
        """
        code = TYPES[f"u{8 * width}"].code
        if not places.size:
            return np.zeros(0, VIEWS[code])
        low, high = int(places.min()), int(places.max())
        region = self._region_of(address + low * width, (high + 1 - low) * width)
        at = (address - region.window) + places * width
        values, states = region.arena.load(at, width, code, 1)
        if states is not None:
            bad = states.any(axis=1)
            raise failure(
                f"element {int(bad.argmax())} of {places.size} was never written "
                f"({int(bad.sum())} such elements)",
                f"download from {region}",
            )
        return values

    def is_written(self, address: int, nbytes: int) -> NDArray[np.bool_]:
        """Whether each byte was written."""
        region = self._region_of(address, nbytes)
        return region.arena.state[region.bytes_at(address, nbytes)] == CLEAN

    def poison(self, address: int, nbytes: int) -> None:
        """Make bytes unwritten again (between launches that must not see each other's results)."""
        region = self._region_of(address, nbytes)
        region.arena.state[region.bytes_at(address, nbytes)] = UNWRITTEN

    def symbols(self, module: Module) -> dict[str, int]:
        """Addresses of the module's global and constant variables, loaded at the first call."""
        known = self._symbols.get(id(module))
        if known is None:
            addresses = {
                name: self._load(variable)
                for name, variable in module.variables.items()
                if variable.space in ("global", "const")
            }
            # The module is kept with them: its id must not be reused while they stand.
            known = self._symbols[id(module)] = (module, addresses)
        return known[1]

    def _load(self, variable: Variable) -> int:
        offset = -ALIGNMENT % variable.align
        read_only = variable.space == "const"
        region = self._place(variable.name, variable.nbytes, offset, read_only)
        # Variables without an initialiser start as zeros (PTX ISA, "Initializers").
        self.upload(region.start, variable.data or bytes(variable.nbytes))
        return region.start

    def window_bytes(self, number: int) -> int:
        """Bytes from the window of an allocation, by `address >> REGION_BITS`, to its end."""
        region = self._regions[number]
        return region.offset + region.nbytes

    def _region_of(self, address: int, nbytes: int) -> Region:
        region = self._regions.get(address >> REGION_BITS)
        if region is None:
            raise failure(f"address 0x{address:x} is in no allocation", "memory")
        first = address - region.start
        if first < 0 or first + nbytes > region.nbytes:
            raise failure(f"{nbytes} bytes at 0x{address:x} leave {region}", "memory")
        return region

    # What kernels do ----------------------------------------------------------------------

    def locate(
        self, address: Array, size: int, fail: Fail
    ) -> tuple[Region, Array] | list[tuple[Region, Array, Array]]:
        """Where addresses [k] (uint64) lie: one region and byte indices [k] in its arena.

        Where they are spread over several regions: a list of (region, byte indices, positions).
        Errors through `fail`: out of bounds, misaligned.
        """
        number = int(address[0]) >> REGION_BITS
        region = self._regions.get(number)
        if region is not None:
            # Addresses below the start wrap around to huge offsets.
            relative = address - np.uint64(region.start)
            if int(relative[relative.argmax()]) + size <= region.nbytes:
                index = relative + np.uint64(region.offset)
                self._check_alignment(index, size, fail)
                return region, index.view(np.int64)
        return self._locate_spread(address, size, fail)

    def _check_alignment(self, index: Array, size: int, fail: Fail) -> None:
        if int(np.bitwise_or.reduce(index)) & (size - 1):
            bad = int(((index & np.uint64(size - 1)) != 0).argmax())
            raise fail(f"is not a multiple of the access size, {size} bytes", bad)

    def _locate_spread(
        self, address: Array, size: int, fail: Fail
    ) -> list[tuple[Region, Array, Array]]:
        out: list[tuple[Region, Array, Array]] = []
        numbers = address >> np.uint64(REGION_BITS)
        for number in np.unique(numbers):
            positions = np.flatnonzero(numbers == number)
            region = self._regions.get(int(number))
            if region is None:
                raise fail("is in no allocation", int(positions[0]))
            relative = address[positions] - np.uint64(region.start)
            bad = (relative >= np.uint64(1 << 63)) | (relative + np.uint64(size) > region.nbytes)
            if np.count_nonzero(bad):
                raise fail(f"is outside {region}", int(positions[bad.argmax()]))
            index = relative + np.uint64(region.offset)
            self._check_alignment(index, size, fail)
            out.append((region, index.view(np.int64), positions))
        return out

    def load(
        self, address: Array, size: int, code: int, count: int, fail: Fail
    ) -> tuple[Array, Array | None]:
        """Elements at addresses [k] (uint64): as `Arena.load`."""
        found = self.locate(address, size, fail)
        if isinstance(found, tuple):
            return found[0].arena.load(found[1], size, code, count)
        values: Array | None = None
        states = np.zeros((address.size, size), np.uint8)
        for region, index, positions in found:
            part, part_states = region.arena.load(index, size, code, count)
            if values is None:
                values = np.empty((address.size, *part.shape[1:]), part.dtype)
            values[positions] = part
            if part_states is not None:
                states[positions] = part_states
        assert values is not None
        return values, states if np.count_nonzero(states) else None

    def store(
        self, address: Array, size: int, values: Array, fail: Fail, strong: bool = False
    ) -> None:
        """Write accesses [k, ...] at addresses [k] (uint64).

        Lanes that disagree are an error, except in a strong (relaxed, volatile) store.
        """
        found = self.locate(address, size, fail)
        everywhere = slice(None)
        parts = [(*found, everywhere)] if isinstance(found, tuple) else found
        for region, index, positions in parts:
            if region.read_only:
                raise fail(f"is in constant memory, {region}", 0)
            written = values[positions]
            region.arena.store(index, size, written)
            bad = None if strong else region.arena.disagreement(index, size, written)
            if bad is not None:
                raise fail("gets different values from several lanes of one store", bad)

    def gather(self, starts: Array, nbytes: int, fail: Fail) -> tuple[Array, Array | None]:
        """Rows of `nbytes` bytes at addresses [k], all of one allocation, and their states.

        None means that every byte is clean.
        """
        region, index = self._rows(starts, nbytes, fail)
        unit = _unit(index, nbytes)
        at = (index[:, None] + np.arange(0, nbytes, unit)).reshape(-1)
        data, states = region.arena.load(at, unit, 0, unit)
        shape = (starts.size, nbytes)
        return data.reshape(shape), None if states is None else states.reshape(shape)

    def check_rows(self, starts: Array, nbytes: int, fail: Fail) -> None:
        """Fail unless rows of `nbytes` bytes at addresses [k] are all in one allocation."""
        self._rows(starts, nbytes, fail)

    def scatter(self, starts: Array, data: Array, fail: Fail) -> None:
        """Write rows [k, nbytes] at addresses [k], all of one allocation."""
        nbytes = data.shape[1]
        region, index = self._rows(starts, nbytes, fail)
        if region.read_only:
            raise fail(f"is copied to constant memory, {region}", 0)
        unit = _unit(index, nbytes)
        at = (index[:, None] + np.arange(0, nbytes, unit)).reshape(-1)
        region.arena.store(at, unit, np.ascontiguousarray(data).reshape(-1, unit))

    def _rows(self, starts: Array, nbytes: int, fail: Fail) -> tuple[Region, Array]:
        region = self._regions.get(int(starts[0]) >> REGION_BITS)
        first, last = int(starts.min()), int(starts.max()) + nbytes
        if region is None or first < region.start or last > region.start + region.nbytes:
            owner = "an allocation" if region is None else str(region)
            raise fail(f"stands for a copy of 0x{first:x} to 0x{last:x}, not inside {owner}", 0)
        return region, starts - region.start + region.offset


def _unit(index: Array, nbytes: int) -> int:
    """The largest access that divides rows of `nbytes` at these byte indices."""
    bits = int(np.bitwise_or.reduce(index)) | nbytes | 16
    return bits & -bits
