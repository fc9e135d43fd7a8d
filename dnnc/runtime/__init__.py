"""Loads execution plans and launches them; needs NumPy and cuda-bindings, no compiler."""

from __future__ import annotations

from .bound import BoundPlan
from .bundle import LoadedBundle, load_bundle
from .entry import Entry
from .executor import ExecutionPlan, load

__all__ = ["BoundPlan", "Entry", "ExecutionPlan", "LoadedBundle", "load", "load_bundle"]
