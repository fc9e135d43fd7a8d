"""The file of one cache entry: a mark, a SHA-256, and the data.

    magic "DNNCENT1" | SHA-256 of the file's name, a zero and the data | data

The name is hashed too, so that an entry which was moved to another's place is no entry there.
"""

from __future__ import annotations

import hashlib

MAGIC = b"DNNCENT1"
_HEAD_BYTES = len(MAGIC) + hashlib.sha256().digest_size


def encode(name: str, data: bytes) -> bytes:
    """The file of an entry."""
    return MAGIC + _digest(name, data) + data


def decode(name: str, file: bytes) -> bytes | None:
    """The data of an entry's file; None where it is altered, cut short or another's."""
    data = file[_HEAD_BYTES:]
    return data if file[:_HEAD_BYTES] == MAGIC + _digest(name, data) else None


def _digest(name: str, data: bytes) -> bytes:
    found = hashlib.sha256(name.encode() + b"\0")
    found.update(data)
    return found.digest()
