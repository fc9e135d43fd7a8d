# pyright: basic
"""The kernel cache descriptor: plans that were compiled, for processes that come later."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DnncError, Status
from ..plan import format
from ..plan.plan import Plan
from . import compiled
from .descriptor import Given, Record
from .engines import Config
from .tables import CHAR, DESCRIPTOR, Row, kind

_VERSION = 1


class KernelCache:
    """Plans by what they depend on, as the bytes of their files; used from any thread."""

    def __init__(self, plans: dict[str, bytes] | None = None):
        self._plans = plans or {}
        self._lock = threading.Lock()

    def plan_of(self, config: Config) -> Plan:
        """The plan of a config, compiled if it is not here."""
        key = compiled.key_of(config)
        with self._lock:
            known = self._plans.get(key)
        if known is not None:
            return format.read(known)
        made = compiled.plan_of(config)
        with self._lock:
            self._plans[key] = format.to_bytes(made)
        return made

    def has(self, config: Config) -> bool:
        with self._lock:
            return compiled.key_of(config) in self._plans

    def to_json(self) -> str:
        with self._lock:
            plans = {key: base64.b64encode(data).decode() for key, data in self._plans.items()}
        head = {"dnnc_kernel_cache": _VERSION, "sha256": _digest(plans)}
        return json.dumps({**head, "plans": plans})


def _digest(plans: Any) -> str:
    """The digest of plans and of their keys: a plan under another's key is whole, too."""
    text = json.dumps(plans, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def from_json(text: str) -> KernelCache:
    """The cache of such text; BAD_PARAM where it is not whole, or was altered."""
    try:
        record: Any = json.loads(text)
        if record["dnnc_kernel_cache"] != _VERSION:
            raise ValueError(f"version {record['dnnc_kernel_cache']}")
        if record["sha256"] != _digest(record["plans"]):
            raise ValueError("altered: the SHA-256 of its plans differs")
        plans = {key: base64.b64decode(data, validate=True)
                 for key, data in record["plans"].items()}  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise DnncError(
            Status.BAD_PARAM, f"{type(reason).__name__}: {reason}",
            "text that JSON_REPRESENTATION gave", "kernel cache",
        ) from None  # fmt: skip
    return KernelCache(plans)


def _build(given: Given) -> KernelCache:
    text = given.one("JSON_REPRESENTATION")
    return KernelCache() if text is None else from_json(text)


def _is_cached(record: Record) -> Callable[[Record], Sequence[int]]:
    """One element if the config is in the cache, none if it is not."""
    return lambda config: (1,) if record.payload.has(config.payload) else ()


KERNEL_CACHE = kind(
    "KERNEL_CACHE",
    "KERNEL_CACHE",
    [
        Row("OPERATION_GRAPH", DESCRIPTOR, of="OPERATIONGRAPH"),
        Row("IS_ENGINECFG_KERNEL_CACHED", DESCRIPTOR, of="ENGINECFG", access="input"),
        Row("JSON_REPRESENTATION", CHAR),
    ],
    _build,
    {
        "IS_ENGINECFG_KERNEL_CACHED": _is_cached,
        "JSON_REPRESENTATION": lambda record: (record.payload.to_json(),),
    },
)
