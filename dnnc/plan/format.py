"""The file of one plan or of a bundle of plans, version 1.  docs/plan-format.md describes it.

    magic "DNNCPLAN" | version u32 | 0 u32 | length of the index u64 | SHA-256 of the index
    index: JSON {"plans": [{"name", "manifest": section, "blobs": [section, ...]}, ...]}
    sections: {"offset", "length", "sha256"}, from the end of the index, back to back

Little endian.  Each section is verified when it is read, so that a bundle loads one plan without
touching the others; `verify` reads all.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import given
from ..errors import DnncError, Status
from . import codec, consistency
from .plan import Plan

MAGIC = b"DNNCPLAN"
VERSION = 1
SUFFIX = ".dnnplan"
_HEADER = struct.Struct("<8sIIQ32s")
# Bytes of JSON: in memory it takes some twenty times as many.
_MAX_INDEX = 1 << 24
_MAX_MANIFEST = 1 << 26
# Lists and objects in each other, in a graph; records nest less.
_MAX_DEPTH = 64


@dataclass(frozen=True)
class _Section:
    offset: int
    length: int
    sha256: str


@dataclass(frozen=True)
class _Entry:
    name: str
    manifest: _Section
    blobs: tuple[_Section, ...]


@dataclass(frozen=True)
class _Index:
    plans: tuple[_Entry, ...]


def to_bytes(plans: Plan | Sequence[Plan]) -> bytes:
    """The file of a plan, or of several; names of several must differ."""
    given_plans: Any = plans if isinstance(plans, list | tuple) else (plans,)
    for plan in given_plans:
        if not isinstance(plan, Plan):  # callers are not all typed
            raise DnncError(Status.BAD_PARAM, f"a {type(plan).__name__}", "a plan, or several")
    group: tuple[Plan, ...] = tuple(given_plans)
    if not group:
        raise DnncError(Status.BAD_PARAM, "no plans", "one plan at least")
    names = [plan.name for plan in group]
    if len(set(names)) != len(names):
        raise DnncError(
            Status.BAD_PARAM_DUPLICATED_ENTRIES, f"plans named {names}", "one name a plan"
        )
    payload = bytearray()
    sections: dict[str, _Section] = {}

    def put(data: bytes) -> _Section:
        digest = hashlib.sha256(data).hexdigest()
        if digest not in sections:  # plans of a bundle share equal cubins
            sections[digest] = _Section(len(payload), len(data), digest)
            payload.extend(data)
        return sections[digest]

    entries = [
        _Entry(plan.name, put(_dump(codec.encode(plan))), tuple(put(blob) for blob in plan.blobs))
        for plan in group
    ]
    index = _dump(codec.encode(_Index(tuple(entries))))
    if len(index) > _MAX_INDEX or len(entries) > codec.MAX_ITEMS:
        raise DnncError(
            Status.BAD_PARAM,
            f"{len(entries)} plans with an index of {len(index)} bytes",
            f"at most {codec.MAX_ITEMS} plans and {_MAX_INDEX} bytes",
        )
    digest = hashlib.sha256(index).digest()
    return _HEADER.pack(MAGIC, VERSION, 0, len(index), digest) + index + bytes(payload)


def _dump(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":"), sort_keys=True).encode()


def _is_path(value: object) -> bool:
    """Callers are not all typed, and `open` takes the numbers of descriptors too."""
    return given.is_path(value)


def write(path: str | os.PathLike[str], plans: Plan | Sequence[Plan]) -> None:
    """Writes a plan, or several as a bundle; the file is there whole or not at all.

    What can't be written is BAD_PARAM.
    """
    if not _is_path(path):
        raise DnncError(Status.BAD_PARAM, f"a {type(path).__name__}", "a path, then a plan")
    write_whole(path, to_bytes(plans))


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file in one step.  A link is followed; a device or a pipe is written into."""
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(data)
        else:
            _replace(target, data)
    except OSError as error:
        raise DnncError(
            Status.BAD_PARAM, f"can't be written: {error.strerror}", "a path in a folder", str(path)
        ) from error


def _replace(target: Path, data: bytes) -> None:
    # Not tempfile: its files are for their owner alone, and plans are carried and shared.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class Bundle:
    """A file of plans, of which each is read when it is asked for.

    source: a path or the file's bytes.  where: how messages name it.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes):
        if not (isinstance(source, bytes) or _is_path(source)):
            raise DnncError(Status.BAD_PARAM, f"a {type(source).__name__}", "a path, or bytes")
        self.where = "plan" if isinstance(source, bytes) else str(source)
        self._source = source
        header = self._read(0, _HEADER.size)
        if header[: len(MAGIC)] != MAGIC:
            raise self._corrupt(f"starts with {header[:8]!r}", "a file that dnnc wrote")
        _, version, flags, length, digest = _HEADER.unpack(header)
        if version != VERSION or flags != 0:
            raise DnncError(
                Status.SERIALIZATION_VERSION_MISMATCH,
                f"format version {version}, flags {flags}",
                f"version {VERSION}, flags 0",
                self.where,
            )
        if length > _MAX_INDEX:
            raise self._corrupt(f"an index of {length} bytes", f"at most {_MAX_INDEX}")
        index = self._read(_HEADER.size, length)
        if hashlib.sha256(index).digest() != digest:
            raise self._corrupt("the index's SHA-256 differs", "an unaltered file")
        self._base = _HEADER.size + length
        self._entries = codec.decode(_Index, self._json(index, "index"), self.where).plans
        self._verify_sections()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self._entries)

    @given.checked
    def plan(self, name: str | None = None) -> Plan:
        """The plan of this name (default: the only one), its sections verified."""
        found = [entry for entry in self._entries if name in (None, entry.name)]
        if len(found) != 1:
            raise DnncError(
                Status.BAD_PARAM,
                f"{len(found)} plans, and no name" if name is None else f"no plan {name!r}",
                f"one of {', '.join(self.names)}",
                self.where,
            )
        records = self._json(self._section(found[0].manifest, "manifest"), "manifest")
        plan = codec.decode(Plan, records, self.where)
        if _depth(plan.graph) > _MAX_DEPTH:
            raise self._corrupt("a graph of lists in lists", f"{_MAX_DEPTH} deep at most")
        if plan.name != found[0].name:
            raise self._corrupt(f"plan '{plan.name}' under '{found[0].name}'", "an unaltered file")
        # A section that stands in the list several times is in memory once.
        blobs = {s: self._section(s, "blob") for s in dict.fromkeys(found[0].blobs)}
        plan = replace(plan, blobs=tuple(blobs[s] for s in found[0].blobs))
        consistency.verify(plan, self.where)
        return plan

    def verify(self) -> None:
        """Reads every section; an error names what is wrong."""
        for name in self.names:
            self.plan(name)

    def _json(self, data: bytes, what: str) -> Any:
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self._corrupt(f"the {what} is not JSON", "an unaltered file") from error

    def _section(self, section: _Section, what: str) -> bytes:
        if what == "manifest" and section.length > _MAX_MANIFEST:
            raise self._corrupt(f"a manifest of {section.length} bytes", f"{_MAX_MANIFEST} at most")
        data = self._read(self._base + section.offset, section.length)
        if hashlib.sha256(data).hexdigest() != section.sha256:
            raise self._corrupt(f"the SHA-256 of a {what} differs", "an unaltered file")
        return data

    def _verify_sections(self) -> None:
        """Sections are apart or the same, and end where the file ends: nothing can be appended
        unseen, and what is read is never more than what is there."""
        names = set(self.names)
        if len(names) != len(self._entries):
            raise self._corrupt("plans of the same name", "names that differ")
        places = {(s.offset, s.length) for e in self._entries for s in (e.manifest, *e.blobs)}
        end = 0
        for offset, length in sorted(places):
            if offset < end or length < 0:
                raise self._corrupt(f"a section at {offset}", "sections that do not overlap")
            end = offset + length
        expected = self._base + end
        actual = (
            len(self._source) if isinstance(self._source, bytes) else os.path.getsize(self._source)
        )
        if actual != expected:
            raise self._corrupt(f"{actual} bytes", f"{expected} bytes")

    def _read(self, offset: int, length: int) -> bytes:
        if isinstance(self._source, bytes):
            data = self._source[offset : offset + length]
        else:
            try:
                with open(self._source, "rb") as file:
                    file.seek(offset)
                    data = file.read(length)
            except OSError as error:
                raise DnncError(
                    Status.BAD_PARAM, f"can't be read: {error.strerror}", "a plan file", self.where
                ) from error
        if len(data) != length:
            raise self._corrupt(f"ends after {offset + len(data)} bytes", "a whole file")
        return data

    def _corrupt(self, what: str, supported: str) -> DnncError:
        return DnncError(
            Status.BAD_PARAM, f"truncated, altered or no plan: {what}", supported, self.where
        )


def _depth(data: Any) -> int:
    """How deep lists and objects stand in each other."""
    depth, level = 0, [data]
    while level:
        depth += 1
        inner = [item.values() if isinstance(item, dict) else item for item in level]
        level = [item for items in inner for item in items if isinstance(item, list | dict)]
    return depth


@given.checked
def read(source: str | os.PathLike[str] | bytes, name: str | None = None) -> Plan:
    """The plan of a file, or one plan of a bundle by its name."""
    return Bundle(source).plan(name)
