"""Weights, tokens and a paged cache from a seed: the same everywhere, as they lie in memory.

bf16 numbers are arrays of uint16, their bits, so that nothing but NumPy is needed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .phases import Append, Phase

Array = Any

NOTHING = 0xFFFF  # a NaN of bf16: what nobody has written
_NO_BLOCK = -1  # in a table, past a sequence's pages


def bits_of(numbers: Array) -> Array:
    """Finite numbers rounded to bf16, to nearest even, as uint16."""
    wide = np.asarray(numbers, np.float32).view(np.uint32)
    return ((wide + 0x7FFF + (wide >> 16 & 1)) >> 16).astype(np.uint16)


def numbers_of(array: Array) -> Array:
    """An array as float64; integers are what they are."""
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array if array.dtype.kind == "i" else array.astype(np.float64)


def given(phase: Phase, seed: int) -> dict[str, Array]:
    """The values that a phase does not make, by name, flat."""
    makers: dict[str, Callable[[], Array]] = {
        "frequencies": lambda: _frequencies(phase),
        "positions": lambda: _positions(phase, seed),
        "lengths": lambda: _lengths(phase, seed),
        "ones": lambda: np.ones(phase.batch, np.int32),
        "table": lambda: _table(phase, seed),
        "cache_k": lambda: _cache(phase, seed, "cache_k"),
        "cache_v": lambda: _cache(phase, seed, "cache_v"),
    }
    return {
        name: makers[name]() if name in makers else _drawn(phase, seed, name)
        for name in phase.given
    }


def _random(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _drawn(phase: Phase, seed: int, name: str) -> Array:
    """Normal numbers; products keep a second moment of about 1, scales of norms are near 1."""
    shape = phase.values[name].shape
    numbers = _random(seed, name).standard_normal(int(np.prod(shape)), np.float32)
    if name.startswith("w_"):
        numbers *= np.float32(shape[-1] ** -0.5)
    elif name.startswith("scale"):
        numbers = 1 + np.float32(0.1) * numbers
    return bits_of(numbers)


def _frequencies(phase: Phase) -> Array:
    half = phase.model.head_size // 2
    return (phase.model.theta ** (-np.arange(half) / half)).astype(np.float32)


def _lengths(phase: Phase, seed: int) -> Array:
    """Keys of each sequence, the new token's included: the longest, then from half of that."""
    random = _random(seed, "lengths")
    found = random.integers(max(1, phase.keys // 2), phase.keys + 1, phase.batch)
    found[0] = phase.keys
    return found.astype(np.int32)


def _positions(phase: Phase, seed: int) -> Array:
    """Positions of the tokens in their sequences."""
    if phase.is_decode:
        return _lengths(phase, seed) - 1
    return np.tile(np.arange(phase.keys, dtype=np.int32), phase.batch)


def _table(phase: Phase, seed: int) -> Array:
    """The block of each page, in no order; pages that are not used yet have none."""
    table = _random(seed, "table").permutation(phase.batch * phase.pages).astype(np.int32)
    table = table.reshape(phase.batch, phase.pages)
    used = -(-_lengths(phase, seed) // phase.block)
    table[np.arange(phase.pages) >= used[:, None]] = _NO_BLOCK
    return table.ravel()


def _cache(phase: Phase, seed: int, name: str) -> Array:
    """Keys or values of earlier tokens; the rest of the blocks, the new token's place too, NaNs."""
    shape = phase.values[name].shape
    cache = np.full(shape, NOTHING, np.uint16)
    drawn = _drawn(phase, seed, name).reshape(shape)
    table = _table(phase, seed).reshape(phase.batch, -1)
    for sequence, length in enumerate(_lengths(phase, seed)):
        for page in range(phase.pages):
            tokens = min(phase.block, int(length) - 1 - page * phase.block)
            if tokens > 0:
                block = table[sequence, page]
                cache[block, :, :tokens] = drawn[block, :, :tokens]
    return cache.ravel()


def copies(phase: Phase, step: Append, values: Mapping[str, Array]) -> list[tuple[int, int]]:
    """Where each sequence's new keys (or values) are copied from and to, as elements.

    The source has its new token from the first element on; the cache takes its first head at the
    second, its other heads follow, one every `block` tokens.  values: lengths and table."""
    m, size = phase.model, phase.model.head_size
    table = values["table"].reshape(phase.batch, -1)
    found: list[tuple[int, int]] = []
    for sequence, length in enumerate(values["lengths"]):
        page, slot = divmod(int(length) - 1, phase.block)
        block = int(table[sequence, page])
        first = (block * m.kv_heads * phase.block + slot) * size
        found.append((step.source.offset + sequence * step.row, first))
    return found
