"""Where the cache is and how large, from the environment; the store that compilations use."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .. import keys
from ..errors import DnncError, Status
from ..store import LayeredStore, MemoryStore, Store
from .disk import DiskStore

SWITCH = "DNNC_CACHE"
DIRECTORY = "DNNC_CACHE_DIR"
SIZE = "DNNC_CACHE_SIZE"

DEFAULT_BYTES = 1 << 30

_OFF = ("0", "off", "false", "no")
_ON = ("", "1", "on", "true", "yes")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Settings:
    """The cache on disk: its folder, and how many bytes it holds."""

    directory: str
    max_bytes: int = DEFAULT_BYTES

    def disk(self) -> DiskStore:
        """The store in the folder."""
        return DiskStore(Path(self.directory), self.max_bytes, keys.installation())


def settings() -> Settings | None:
    """Settings from the environment; None where the cache on disk is off (DNNC_CACHE=0)."""
    switch = os.environ.get(SWITCH, "").strip().lower()
    if switch in _OFF:
        return None
    if switch not in _ON:
        accepted = f"0 for no cache on disk, 1 for one; {DIRECTORY} says where"
        raise DnncError(Status.BAD_PARAM, f"{SWITCH}={switch}", accepted, "environment")
    return configured()


def configured() -> Settings:
    """Settings from the environment, whether the cache is on or off."""
    directory = os.environ.get(DIRECTORY) or _default_directory()
    return Settings(os.path.abspath(os.path.expanduser(directory)), _size())


def _default_directory() -> str:
    try:
        import platformdirs
    except ImportError as error:
        raise DnncError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
            "the package platformdirs is not installed",
            f'pip install "dnnc[compiler]", or {SWITCH}=0',
        ) from error
    return platformdirs.user_cache_dir("dnnc", appauthor=False)


def _size() -> int:
    text = os.environ.get(SIZE, "").strip()
    if not text:
        return DEFAULT_BYTES
    found = re.fullmatch(r"(\d+)\s*([KMG]?)(i?B)?", text, re.IGNORECASE)
    if found is None:
        accepted = "bytes, or a number with K, M or G: 500M"
        raise DnncError(Status.BAD_PARAM, f"{SIZE}={text}", accepted, "environment")
    return int(found[1]) * _UNITS[found[2].upper()]


def store() -> Store:
    """The store of this process's compilations: memory, in front of the disk unless that is off."""
    return store_of(settings())


@functools.cache
def store_of(place: Settings | None) -> Store:
    """One store for each place, so that what memory has is what is on that disk."""
    memory = MemoryStore()
    return memory if place is None else LayeredStore(memory, place.disk())
