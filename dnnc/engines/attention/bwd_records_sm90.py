# pyright: basic
"""Records of the main kernel of engine sdpa_bwd_sm90."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...codegen.hopper.pipeline import Cursor
from .schedule import QueryTile


@dataclass(frozen=True)
class Sums:
    """State that a consumer carries between blocks: its place in the rings, registers of its sums,
    and the largest magnitudes met so far."""

    cursor: Cursor
    dk: list[Any]
    dv: list[Any]
    met: list[Any]


class Weighed(NamedTuple):
    """P and dS of a block of queries.

    head: of what masks read.  row: the first query.  q, do: added to the descriptors of the rings.
    scores, products: Q @ K' and dO @ V' as wgmma gave them.  weights, gradients: words of P, dS.
    """

    head: QueryTile
    row: Any
    q: Any
    do: Any
    scores: Any
    products: Any
    weights: list[Any]
    gradients: list[Any]


@dataclass(frozen=True)
class Buffers:
    """Workspace buffers.  rows: what queries have.  sums: of dQ.  order: of the flags by
    which tiles add to dQ in order; "": they add in any.  ahead: of the numbers of `Ahead`; "": all
    sums are filled before.  kept: of parts of dk and of dv, where there are parts."""

    rows: str
    sums: str
    order: str = ""
    ahead: str = ""
    kept: Mapping[str, str] = field(default_factory=dict[str, str])
