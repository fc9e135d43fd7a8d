"""Looks up a graph file's plan in the cache, for `dnnc compile`, without reading the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import outside
from ..cache import files as index
from ..cache import place
from ..frontends.default_target import default_rows
from ..options import Options
from ..plan import format
from ..plan.plan import Plan
from ..store import Store
from ..target import Target
from . import files
from .arguments import Stage

# Files whose bytes are all that their plans depend on; a Python file may read others.
_SUFFIXES = (".mlir", ".json")


@dataclass(frozen=True)
class Kept:
    """A graph file in the cache's index."""

    store: Store
    key: str

    def find(self) -> bytes | None:
        """The plan's file, if it was made before."""
        return index.find(self.store, self.key)

    def keep(self, plan: Plan, stage: str) -> None:
        """Notes the plan of the file, whose text is at a stage."""
        if stage == Stage.graph:
            index.keep(self.store, self.key, plan.key)
        else:
            index.keep_file(self.store, self.key, format.to_bytes(plan))


def kept(path: str, named: Sequence[Target] | None, options: Options) -> Kept | None:
    """The file's place in the index; None for files that have none, where the cache is off, and
    with engines from outside the package.

    named: the targets asked for.
    """
    suffix = Path(path).suffix
    settings = place.settings()
    has_index = path != files.STDIN and suffix in _SUFFIXES and not outside.is_used()
    if not has_index or settings is None:
        return None
    targets = None if named is None else [row.name for row in named]
    default = ",".join(row.name for row in default_rows())
    key = index.file_key(files.read_bytes(path), suffix, targets, default, options)
    return Kept(place.store_of(settings), key)
