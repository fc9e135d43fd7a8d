# pyright: basic
"""PTX and cubins of modules of kernels, from a store where they were made before."""

from __future__ import annotations

import json
from typing import Any

from .. import keys, log, tools
from ..mlir import bytecode_of, ir
from ..store import Store
from ..target import Target
from . import nvptx
from .nvptx import Assembled

_log = log.logger(__name__)


def key_of(kernels: Any, target: Target) -> str:
    """The store's key for the PTX of a `gpu.module`, whatever its name in the graph is.

    Bytecode is written seven times as fast as text, and has the locations that PTX shows.
    """
    name = kernels.attributes["sym_name"]
    kernels.attributes["sym_name"] = ir.StringAttr.get("kernels")
    code = bytecode_of(kernels)
    kernels.attributes["sym_name"] = name
    return _store_key("ptx", code, target.name, tools.versions())


def ptx(key: str, target: Target, store: Store) -> str | None:
    """The PTX of a key, None where the store has none; an entry that is no PTX, or that of another
    key, is dropped."""
    known = store.get(key)
    if known is None:
        return None
    named, _, text = known.partition(b"\n")
    if named != key.encode() or not nvptx.is_ptx(text, target):
        _made_again(store, key)
        return None
    return text.decode()


def put_ptx(key: str, ptx: str, store: Store) -> None:
    """Keeps the PTX of a key."""
    store.put(key, f"{key}\n{ptx}".encode())


def assembled(ptx: str, target: Target, store: Store) -> Assembled:
    """The cubin of PTX: the store's, or else made and kept there."""
    options = (*nvptx.OPTIONS, *nvptx.SPARING)
    key = _store_key("cubin", ptx, target.name, tools.versions(), options)
    known = store.get(key)
    if known is not None:
        try:
            return _read_assembled(known, key, ptx)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            _made_again(store, key)
    made = nvptx.assemble(ptx, target)
    resources = {n: vars(r) for n, r in made.resources.items()}
    head = {"key": key, "resources": resources, "log": made.log}
    text = json.dumps(head).encode()
    store.put(key, len(text).to_bytes(8, "little") + text + made.cubin)
    return made


def _read_assembled(data: bytes, key: str, ptx: str) -> Assembled:
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    resources = {str(n): nvptx.Resources(**r) for n, r in head["resources"].items()}
    cubin = data[8 + length :]
    numbers = [number for found in resources.values() for number in vars(found).values()]
    is_whole = cubin.startswith(b"\x7fELF") and set(resources) == nvptx.entries(ptx)
    is_whole = is_whole and head["key"] == key
    if not is_whole or not all(type(number) is int for number in numbers):
        raise ValueError("no cubin of these kernels")
    return Assembled(cubin, resources, str(head["log"]))


def _made_again(store: Store, key: str) -> None:
    _log.warning("cache entry %s holds something else; it is made again", key)
    store.drop(key)


def _store_key(kind: str, *parts: Any) -> str:
    return f"{kind}-{keys.hash_of(kind, *parts)}"
