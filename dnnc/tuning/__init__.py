"""Autotuning: candidates are compiled, timed on a device, and the fastest is kept in a record.

Compiling and timing meet in files only where they have to: `compile_candidates` and
`time_candidates` may run on different machines.  Names load what they need when they are used.
"""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "Candidate": "candidates",
    "Timed": "race",
    "Timer": "timer",
    "DeviceTimer": "timer",
    "Tuned": "results",
    "autotune": "search",
    "compile_candidates": "search",
    "time_candidates": "files",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
