"""Bytes with a state beside each: the storage behind every memory space."""

from __future__ import annotations

from typing import Any

import numpy as np

from .ptxtypes import VIEWS, Array

CLEAN = 0
UNWRITTEN = 1
# Destination of an asynchronous copy that its issuer has not waited for.
IN_FLIGHT = 2
# Part of an mbarrier object, which only mbarrier operations may touch.
BARRIER = 3

_PADDING = 64

# One access is one element of such a view: NumPy gathers and scatters those far faster than
# rows of a second dimension.  Only bits are moved, never computed on.
_WORD: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
    16: np.dtype(np.complex128),
    32: np.dtype("V32"),
}


def _words(values: Array, size: int) -> Array:
    """An array of k accesses of `size` bytes as k words."""
    return np.ascontiguousarray(values).reshape(-1).view(_WORD[size])


class Arena:
    """`nbytes` bytes, each with a state: CLEAN, or a kind of poison.

    Accesses are by byte index and must be aligned to their size, a power of two up to 32.
    """

    def __init__(self, nbytes: int):
        padded = -(-max(nbytes, 1) // _PADDING) * _PADDING
        self.nbytes = nbytes
        # Zeroed lazily by the system; the bytes of UNWRITTEN memory are never looked at.
        self.data = np.zeros(padded, np.uint8)
        self.state = np.full(padded, UNWRITTEN, np.uint8)
        self._data = {size: self.data.view(word) for size, word in _WORD.items()}
        self._state = {size: self.state.view(word) for size, word in _WORD.items()}

    def load(self, index: Array, size: int, code: int, count: int) -> tuple[Array, Array | None]:
        """Elements at byte indices [k]: values [k, count] ([k] for one), states [k, size] or None.

        None means that every byte is CLEAN.
        """
        row = index >> (size.bit_length() - 1)
        values = self._data[size].take(row).view(VIEWS[code])
        if count > 1:
            values = values.reshape(-1, count)
        states = self._state[size].take(row).view(np.uint8)
        if not np.count_nonzero(states.view(_WORD[min(size, 8)])):
            return values, None
        return values, states.reshape(-1, size)

    def store(self, index: Array, size: int, values: Array, states: Array | None = None) -> None:
        """Write accesses [k, ...] of `size` bytes at byte indices [k], and their states (CLEAN)."""
        row = index >> (size.bit_length() - 1)
        self._data[size][row] = _words(values, size)
        self._state[size][row] = _CLEAN[size] if states is None else _words(states, size)

    def states(self, index: Array, size: int) -> Array:
        """States [k, size] at byte indices [k]."""
        row = index >> (size.bit_length() - 1)
        return self._state[size].take(row).view(np.uint8).reshape(-1, size)

    def set_states(self, index: Array, size: int, state: int) -> None:
        """Give every byte of the accesses at byte indices [k] this state."""
        row = index >> (size.bit_length() - 1)
        self._state[size][row] = np.full(size, state, np.uint8).view(_WORD[size])[0]

    def disagreement(self, index: Array, size: int, values: Array) -> int | None:
        """The first access whose bytes are not what it wrote: another lane wrote there too."""
        row = index >> (size.bit_length() - 1)
        word = _WORD[min(size, 8)]
        kept = self._data[size].take(row).view(word)
        written = np.ascontiguousarray(values).reshape(-1).view(word)
        differs = kept != written
        if not np.count_nonzero(differs):
            return None
        return int(differs.argmax()) * word.itemsize // size


_CLEAN = {size: np.zeros(size, np.uint8).view(word)[0] for size, word in _WORD.items()}
