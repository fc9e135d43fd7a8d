"""Masks of blocks of attention's cases: which blocks of 128 rows see which of 128 keys."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

BLOCK = 128
_BITS = 8  # of an element of the mask in memory


def has_blocks(p: Mapping[str, Any]) -> bool:
    """Whether a case of attention has a mask of blocks."""
    return bool(p["band"] or p["random"])


def seen_blocks(p: Mapping[str, Any]) -> list[list[bool]]:
    """[blocks of rows, blocks of keys], the same for all heads and always the same.

    band: a block sees itself and those before it, so many in all.  random: each sees so many
    hundredths of all, one at least.
    """
    count = -(-p["s"] // BLOCK)
    if p["band"]:
        return [[i - p["band"] < j <= i for j in range(count)] for i in range(count)]
    draw, found = random.Random(p["random"]), list[list[bool]]()
    for _ in range(count):
        chosen = draw.sample(range(count), max(1, count * p["random"] // 100))
        found.append([j in chosen for j in range(count)])
    return found


def seen(p: Mapping[str, Any]) -> float:
    """Scores of a head in the blocks that are seen."""
    sizes = [min(BLOCK, p["s"] - first) for first in range(0, p["s"], BLOCK)]
    found = 0
    for rows, row in zip(sizes, seen_blocks(p), strict=True):
        found += sum(rows * keys for keys, is_seen in zip(sizes, row, strict=True) if is_seen)
    return float(found)


def mask_dims(p: Mapping[str, Any]) -> list[int]:
    """[1, 1, blocks of rows, bytes of blocks of keys]."""
    count = -(-p["s"] // BLOCK)
    return [1, 1, count, -(-count // _BITS)]


def mask_bytes(p: Mapping[str, Any]) -> list[list[int]]:
    """The mask in memory, [blocks of rows, bytes]: a bit for each block of keys, the lowest
    first."""
    width = mask_dims(p)[-1]
    bits = [sum(is_seen << j for j, is_seen in enumerate(row)) for row in seen_blocks(p)]
    return [list(number.to_bytes(width, "little")) for number in bits]
