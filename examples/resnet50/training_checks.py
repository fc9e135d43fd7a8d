"""How far off gradients and losses may be: at most 1.5 times as far as torch's f16 autocast.

error = ||g - exact|| / ||exact||, where exact is torch's in float32 (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .checks import UNIT

Array = Any

STEPS = 10
MOST = 1.5  # times the error of the same in f16 autocast


@dataclass(frozen=True)
class Comparison:
    """Errors of ours and of theirs, of one tensor or of the losses."""

    name: str
    ours: float
    theirs: float

    @property
    def bound(self) -> float:
        """Where theirs happens to be exact, half a unit of f16 is allowed."""
        return max(MOST * self.theirs, UNIT / 2)

    @property
    def is_good(self) -> bool:
        return self.ours <= self.bound  # a NaN is not


def error(found: Array, exact: Array) -> float:
    found, exact = (np.asarray(array, np.float64).ravel() for array in (found, exact))
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def compare_gradients(
    ours: Mapping[str, Array], theirs: Mapping[str, Array], exact: Mapping[str, Array]
) -> list[Comparison]:
    """Each parameter's."""
    return [Comparison(name, error(ours[name], array), error(theirs[name], array))
            for name, array in exact.items()]  # fmt: skip


def compare_losses(
    ours: Sequence[float], theirs: Sequence[float], exact: Sequence[float]
) -> Comparison:
    """The losses of all steps together."""
    return Comparison("losses", error(ours, exact), error(theirs, exact))
