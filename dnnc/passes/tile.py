# pyright: basic
"""tile: writes the tile sizes and the loop order of each fusion as `dnn.tile`.

Precondition: fusions at the linalg stage, with engines.  Postcondition: `dnn.tile` on each
fusion's function; codegen emits the loops that it says.  What `lower-to-linalg` wrote there stays,
and is completed by what is known of operations as they are lowered (`Engine.completed`).
Anchors of engines that work from their decomposition are inlined.

    ... attributes {dnn.engine = "pointwise", ...}
->  ... attributes {dnn.tile = {loops = [[0, 1], [2]], patch = [], threads = 256, unroll = 4, ...}}

The keys and their types are the fields of `Engine.tiling`, by which stages are verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..codegen.region import Region
from ..dialect import structure
from ..engines import engine_named
from ..engines.plain_data import plain, record_of
from ..mlir import located
from .fuse import target_of
from .pass_base import Pass


@dataclass(frozen=True)
class Tile(Pass):
    """The pass; see the file's docstring."""

    name: ClassVar[str] = "tile"
    takes: ClassVar[str] = "linalg"
    makes: ClassVar[str] = "linalg"

    def run(self, module: Any) -> None:
        for function in structure.fusion_functions(module):
            with located(function.operation):
                _tile(module, function)


def _tile(module: Any, function: Any) -> None:
    name, knobs = structure.engine_of(function)
    engine = engine_named(name)
    if engine.inlines_anchors:
        structure.inline_anchors(module, function)
    region = Region.of(function)
    if "dnn.tile" in function.attributes:
        known = record_of(engine.tiling, structure.tile_of(function))
        tile = engine.completed(known, region)
        if tile is known:
            return
    else:
        tile = engine.tile(region, knobs, target_of(module))
    function.attributes["dnn.tile"] = structure.to_attribute(plain(tile))
