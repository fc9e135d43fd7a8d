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


def together(of_seeds: Sequence[Sequence[Comparison]]) -> list[Comparison]:
    """The root mean square of each parameter's errors over several seeds.

    The few elements of a small norm's gradient are off by 5 to 40% in f16, by chance: of one seed,
    two ways to round are three times as far off as each other, of eight within 10%.
    """

    def of(errors: Sequence[float]) -> float:
        return float(np.sqrt(np.mean(np.square(errors))))

    return [Comparison(each[0].name, of([c.ours for c in each]), of([c.theirs for c in each]))
            for each in zip(*of_seeds, strict=True)]  # fmt: skip


def compare_losses(
    ours: Sequence[float], theirs: Sequence[float], exact: Sequence[float]
) -> Comparison:
    """The losses of all steps together."""
    return Comparison("losses", error(ours, exact), error(theirs, exact))
