# pyright: basic
"""canonicalize-graph: merges views of views, and drops operations whose results nothing uses.

Precondition: a verified graph.  Postcondition: every operation reaches an output, and no transpose,
slice or LOGICAL reshape views another one of its kind (`dialect/merged_views.py`).

    %0 = "dnn.transpose"(%x) {permutation = [0, 2, 1]}
    %1 = "dnn.transpose"(%0) {permutation = [1, 0, 2]}
    %2 = "dnn.pointwise"(%x) ...      (not used)
->  %1 = "dnn.transpose"(%x) {permutation = [2, 0, 1]}

`fuse` needs neither: engines walk through views.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..dialect import dnn
from ..dialect.merged_views import MERGED_VIEWS
from ..dialect.rewriting import rewrite
from .pass_base import Pass


@dataclass(frozen=True)
class Canonicalize(Pass):
    """The pass; see the file's docstring."""

    name: ClassVar[str] = "canonicalize-graph"
    takes: ClassVar[str] = "graph"
    makes: ClassVar[str] = "graph"

    def run(self, module: Any) -> None:
        rewrite(dnn.graph_function(module), MERGED_VIEWS)
