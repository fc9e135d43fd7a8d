"""Where a compiler keeps what it made: bytes by key."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol


class Store(Protocol):
    """Bytes by key; `get` gives None for what is not there."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, data: bytes) -> None: ...

    def drop(self, key: str) -> None:
        """Removes what is there, if anything is."""
        ...


class MemoryStore:
    """A store in memory that drops what was not used longest; threads may share it.

    max_bytes: how much it holds (default 256 MiB).
    """

    def __init__(self, max_bytes: int = 256 << 20):
        self.max_bytes = max_bytes
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key]

    def put(self, key: str, data: bytes) -> None:
        if len(data) > self.max_bytes:
            return
        with self._lock:
            self._bytes += len(data) - len(self._kept.pop(key, b""))
            self._kept[key] = data
            while self._bytes > self.max_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= len(dropped)

    def drop(self, key: str) -> None:
        with self._lock:
            self._bytes -= len(self._kept.pop(key, b""))


class LayeredStore:
    """A store in front of another: what the second has comes to the first when it is used."""

    def __init__(self, front: Store, back: Store):
        self.front = front
        self.back = back

    def get(self, key: str) -> bytes | None:
        data = self.front.get(key)
        if data is None:
            data = self.back.get(key)
            if data is not None:
                self.front.put(key, data)
        return data

    def put(self, key: str, data: bytes) -> None:
        self.front.put(key, data)
        self.back.put(key, data)

    def drop(self, key: str) -> None:
        self.front.drop(key)
        self.back.drop(key)
