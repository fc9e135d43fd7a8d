# pyright: basic
"""tile: completes `dnn.tile` of each fusion by what is known once operations are lowered.

Precondition: fusions at the linalg stage, with engines and the tilings that `prepare-fusions`
wrote.  Postcondition: `dnn.tile` says all that codegen needs (`Engine.completed`); anchors of
engines that work from their decomposition are inlined.

    ... attributes {dnn.tile = {keys = 128, masks = {}, ...}}
->  ... attributes {dnn.tile = {keys = 128, masks = {is_longest_first = true, ...}, ...}}

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
    engine = engine_named(structure.engine_of(function)[0])
    if engine.inlines_anchors:
        structure.inline_anchors(module, function)
    known = record_of(engine.tiling, structure.tile_of(function))
    tile = engine.completed(known, Region.of(function))
    if tile is not known:
        function.attributes["dnn.tile"] = structure.to_attribute(plain(tile))
