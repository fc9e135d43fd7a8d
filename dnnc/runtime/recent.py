"""A dictionary that forgets its oldest entries, for threads that share it."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """The last `most` entries that were added.

    get: that of a dictionary; threads may call it as others add.
    """

    def __init__(self, most: int):
        self._most = most
        self._entries: dict[Hashable, T] = {}
        self._lock = threading.Lock()
        self.get = self._entries.get

    def add(self, key: Hashable, value: T) -> None:
        with self._lock:
            if key not in self._entries and len(self._entries) >= self._most:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = value

    def __len__(self) -> int:
        return len(self._entries)
