"""Cases: real inputs of a graph with what must come out, in memory and in a file to carry.

The file is an .npz of plain uint16 and float64 arrays, `graph/layer/tensor`, so that reading it
needs NumPy alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .numerics import Verdict, bound_of, judge, norm_terms, product_terms, values_of

Array = Any

FILE = "cases.npz"
_EXACT = "exact"
_BY_TOKEN = ("x", "residual")


@dataclass(frozen=True)
class Case:
    """A graph at one layer.

    inputs: name -> bits.  exact [1 or heads, tokens, N]: the output in float64, from the inputs as
    they are after rounding.
    """

    graph: str
    layer: int
    inputs: Mapping[str, Array]
    exact: Array

    @property
    def kind(self) -> str:
        """The graph's name without its data type."""
        return self.graph.rpartition("_")[0]

    @property
    def dtype(self) -> str:
        return self.graph.rpartition("_")[2]

    @property
    def tokens(self) -> int:
        return self.exact.shape[1]

    def cropped(self, tokens: int) -> Case:
        """The same for the first tokens alone."""
        inputs = {
            name: bits[:, :tokens] if name in _BY_TOKEN else bits
            for name, bits in self.inputs.items()
        }
        return replace(self, inputs=inputs, exact=self.exact[:, :tokens])

    def values(self) -> dict[str, Array]:
        """The inputs as float64."""
        return {name: values_of(bits, self.dtype) for name, bits in self.inputs.items()}

    def judge(self, y: Array) -> Verdict:
        """How good an output is; y: its bits."""
        return judge(values_of(y, self.dtype), self.exact, self._bound())

    def _bound(self) -> float:
        """The largest error that is allowed."""
        values = self.values()
        x = values["x"]
        match self.kind:
            case "ffn_in" | "ffn_out":
                terms = product_terms(x, values["w"])
            case "softmax":
                terms = self.exact * (1 + np.abs(x))  # exp(x) is as far off as x is
            case _:
                added = [values[name] for name in _BY_TOKEN if name in values]
                terms = norm_terms(added, values["scale"], values["bias"])
        return bound_of(x.shape[-1], terms, self.exact, self.dtype)


def write(path: str | os.PathLike[str], cases: Iterable[Case]) -> None:
    """Writes the file of some cases."""
    arrays = {
        f"{case.graph}/{case.layer}/{name}": array
        for case in cases
        for name, array in {**case.inputs, _EXACT: case.exact}.items()
    }
    np.savez(path, **arrays)


def read(path: str | os.PathLike[str]) -> list[Case]:
    """The cases of such a file."""
    found: dict[tuple[str, int], dict[str, Array]] = {}
    with np.load(path) as file:
        for key in file.files:
            graph, layer, name = key.split("/")
            found.setdefault((graph, int(layer)), {})[name] = file[key]
    return [
        Case(graph, layer, arrays, arrays.pop(_EXACT)) for (graph, layer), arrays in found.items()
    ]
