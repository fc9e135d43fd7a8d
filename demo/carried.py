"""A file of batches, to be carried with the plans: arrays of bits and numbers, and the steps.

It is an .npz, so that reading it needs NumPy alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .steps import Batch, Read, Step

Array = Any

FILE = "encoder.npz"
_TEXT = "batches.json"


@dataclass(frozen=True)
class Carried:
    """A batch of bits.  exact [sentences, hidden]: its vectors in float64, nothing rounded."""

    batch: Batch
    exact: Array


def write(path: str | os.PathLike[str], batches: Iterable[Carried]) -> None:
    """Writes the file; data types differ."""
    arrays: dict[str, Array] = {}
    texts: list[Any] = []
    for carried in batches:
        batch, dtype = carried.batch, carried.batch.dtype
        arrays[f"{dtype}/exact"] = carried.exact
        arrays |= {f"{dtype}/value/{name}": array for name, array in batch.values.items()}
        for step in batch.steps:
            arrays |= {f"{dtype}/{step.y}/{name}": a for name, a in step.parameters.items()}
        texts.append({"dtype": dtype, "sizes": batch.sizes, "steps": [*map(_text, batch.steps)]})
    np.savez(path, **{_TEXT: np.array(json.dumps(texts))}, **arrays)


def read(path: str | os.PathLike[str]) -> list[Carried]:
    """The batches of such a file."""
    with np.load(path) as file:
        return [_carried(file, text) for text in json.loads(str(file[_TEXT]))]


def _text(step: Step) -> dict[str, Any]:
    reads = {name: [read.value, read.column] for name, read in step.reads.items()}
    return {"graph": step.graph, "layer": step.layer, "y": step.y, "rows": step.rows,
            "reads": reads}  # fmt: skip


def _carried(file: Mapping[str, Array], text: Mapping[str, Any]) -> Carried:
    def arrays(place: str) -> dict[str, Array]:
        start = f"{text['dtype']}/{place}/"
        return {key.removeprefix(start): file[key] for key in file if key.startswith(start)}

    def step(found: Mapping[str, Any]) -> Step:
        reads = {name: Read(*read) for name, read in found["reads"].items()}
        return Step(**{**found, "reads": reads}, parameters=arrays(found["y"]))

    steps = [step(found) for found in text["steps"]]
    batch = Batch(text["dtype"], steps, arrays("value"), text["sizes"])
    return Carried(batch, file[f"{text['dtype']}/exact"])
