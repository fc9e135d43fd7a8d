"""Functions that take several values out of a mapping, as quickly as Python can."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def picker(keys: Sequence[Any]) -> Callable[[Mapping[Any, Any]], tuple[Any, ...]]:
    """A function that gives a tuple of a mapping's values at the keys."""
    if len(keys) > 1:
        return operator.itemgetter(*keys)
    return (lambda mapping: (mapping[keys[0]],)) if keys else (lambda mapping: ())
