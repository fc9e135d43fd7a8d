"""Loads execution plans and launches them; needs NumPy and cuda-bindings, no compiler."""

from __future__ import annotations

from .bound import BoundPlan
from .executor import ExecutionPlan, load

__all__ = ["BoundPlan", "ExecutionPlan", "load"]
