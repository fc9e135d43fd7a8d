"""A store on disk, which processes share without locks.

Each entry is a file of its own, named by the hash of its key.  Entries appear whole or not at all
(`write`), carry a checksum (`entry`), and are never changed; so a reader needs no lock, and two
writers of one entry write the same.  Whoever drops entries just removes files: for a process that
looks for one of them it is a miss.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .. import log
from . import entry, write

# What entries are of; a key is one of these, a dash, and a hash.
KINDS = ("plan", "file", "ptx", "cubin")

_log = log.logger(__name__)

# What is added between two looks at the size of the whole, as a part of the limit.
_LOOK_EVERY = 16
_SHARD_DIGITS = 2
_NAME = re.compile(r"[0-9a-f]{62}")
# After this time, in seconds, a temporary file has no writer any more.
_ABANDONED = 3600.0


@dataclass(frozen=True)
class Entry:
    """An entry's file.

    used: when it was last used, in seconds since the epoch.
    """

    kind: str
    path: Path
    bytes: int
    used: float


class DiskStore:
    """A store in a folder; processes may share it, and any may be killed at any moment.

    directory: made when something is put.  max_bytes: how much it holds; the entries that were
    not used longest are dropped.  A process looks at the whole when it first puts something, and
    again when it has put a sixteenth of the limit.  salt: tells apart the entries of different
    installations of dnnc.
    An entry that is altered is removed and not there.  A folder that can't be read or written is
    an empty store, with a warning: no compilation fails by its cache.
    """

    def __init__(self, directory: Path, max_bytes: int, salt: str = ""):
        self.directory = directory
        self.max_bytes = max_bytes
        self._salt = salt
        self._unseen: int | None = None  # bytes put since the last look
        self._has_warned = False

    def get(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            file = self._read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(error)
            return None
        data = None if file is None else entry.decode(_name_of(path), file)
        if data is None:
            _log.warning("cache entry %s was altered; it is removed and made again", path)
            _remove(path)
            return None
        with contextlib.suppress(OSError):  # a cache that others fill may be read-only
            os.utime(path)
        return data

    def _read(self, path: Path) -> bytes | None:
        """A file's bytes; None of what is no file, such as a pipe, and of one that is too long."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe's would wait for a writer
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > self.max_bytes:
                return None
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(self.max_bytes)
        finally:
            os.close(descriptor)

    def drop(self, key: str) -> None:
        _remove(self._path(key))

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        file = entry.encode(_name_of(path), data)
        if len(file) > self.max_bytes:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write.write_new(path, file)
        except OSError as error:
            self._warn(error)
            return
        self._trim_after(len(file))

    def _path(self, key: str) -> Path:
        kind = key.partition("-")[0]
        assert kind in KINDS, key
        name = hashlib.sha256(f"{self._salt} {key}".encode()).hexdigest()
        return self.directory / kind / name[:_SHARD_DIGITS] / name[_SHARD_DIGITS:]

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("no cache in %s: %s", self.directory, error.strerror)

    # ---- the whole

    def entries(self) -> Iterator[Entry]:
        """The entries that are there, in no order."""
        for kind, found in self._files():
            if _NAME.fullmatch(found.name):
                with contextlib.suppress(FileNotFoundError):
                    status = found.stat()
                    yield Entry(kind, Path(found.path), status.st_size, status.st_mtime)

    def _files(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """(kind, file) of all that lies where entries lie."""
        for kind in KINDS:
            for shard in _listed(self.directory / kind):
                for found in _listed(shard.path):
                    yield kind, found

    def _trim_after(self, added: int) -> None:
        if self._unseen is None or self._unseen + added > self.max_bytes // _LOOK_EVERY:
            self.trim()
            self._unseen = 0
        else:
            self._unseen += added

    def trim(self) -> None:
        """Drops the entries that were not used longest until the rest is within the limit."""
        self._remove_abandoned()
        found = sorted(self.entries(), key=lambda e: e.used)
        total = sum(e.bytes for e in found)
        for oldest in found:
            if total <= self.max_bytes:
                break
            _remove(oldest.path)
            total -= oldest.bytes

    def _remove_abandoned(self) -> None:
        before = time.time() - _ABANDONED
        for _, found in self._files():
            with contextlib.suppress(FileNotFoundError):
                if found.name.startswith(write.TEMPORARY) and found.stat().st_mtime < before:
                    _remove(Path(found.path))

    def verify(self) -> list[Entry]:
        """Reads every entry; gives those that were altered, which are removed."""
        altered: list[Entry] = []
        for found in self.entries():
            try:
                file = self._read(found.path)
            except OSError:
                continue  # dropped meanwhile, or not ours to read
            if file is None or entry.decode(_name_of(found.path), file) is None:
                altered.append(found)
                _remove(found.path)
        return altered

    def clear(self) -> list[Entry]:
        """Removes every entry, and nothing that is none; gives those that were there."""
        removed = list(self.entries())
        for found in removed:
            _remove(found.path)
        for _, found in self._files():
            if found.name.startswith(write.TEMPORARY):
                _remove(Path(found.path))
        return removed


def _name_of(path: Path) -> str:
    """The part of an entry's place that its checksum covers."""
    return "/".join(path.parts[-3:])


def _listed(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove(path: Path) -> None:
    """Removes a file, or an empty folder in its place."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
