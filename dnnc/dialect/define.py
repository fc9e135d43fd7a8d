# pyright: basic
"""Classes of MLIR's extensible dialects, made from annotations that are no text."""

from __future__ import annotations

from typing import Any

from ..mlir import ir


class Pure(ir.MemoryEffectsOpInterface):
    """Operations only compute, so that upstream passes may merge and drop them."""

    @staticmethod
    def get_effects(op: Any, *effects: Any) -> list[Any]:
        return []


def define(kind: Any, name: str, annotations: dict[str, Any], /, **body: Any) -> Any:
    """A class of `ext`, which reads the fields from annotations that must not be text."""
    traits = {"traits": body.pop("traits")} if "traits" in body else {}
    return type(
        name.title().replace("_", ""),
        (kind,),
        {"__annotations__": annotations, "__module__": __name__, **body},
        name=name,
        **traits,
    )
