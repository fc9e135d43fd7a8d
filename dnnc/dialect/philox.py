"""Philox 4x32-10, a counter-based generator: the words of a counter under a key, on NumPy.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)  # what each word of the key grows by, a round
WORD = 0xFFFFFFFF


def words(counter: Sequence[Any], key: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
    """The four 32-bit words of counters (four words) under keys (two), as uint64 arrays."""
    a, b, c, d = (np.asarray(word, np.uint64) for word in counter)
    k, m = (np.asarray(word, np.uint64) for word in key)
    mask, half = np.uint64(WORD), np.uint64(32)
    for number in range(ROUNDS):
        if number:
            k, m = ((w + np.uint64(s)) & mask for w, s in zip((k, m), KEY_STEPS, strict=True))
        first, second = a * np.uint64(MULTIPLIERS[0]), c * np.uint64(MULTIPLIERS[1])
        a, b, c, d = (second >> half) ^ b ^ k, second & mask, (first >> half) ^ d ^ m, first & mask
    return a, b, c, d
