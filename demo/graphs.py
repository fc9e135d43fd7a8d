"""The demo's graphs by name, and the model's parts run through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dnnc
from dnnc.dialect.reference import reference

from . import add_norm, ffn_in, ffn_out, layer_norm, softmax
from .model import Compute, FeedForward, LayerNorm, Part, Softmax
from .numerics import bits_of, values_of

Array = Any

# In the order in which a layer has them.
BUILDERS: dict[str, Callable[[str], dnnc.pygraph]] = {
    "softmax": softmax.build,
    "add_norm": add_norm.build,
    "ffn_in": ffn_in.build,
    "ffn_out": ffn_out.build,
    "layer_norm": layer_norm.build,
}
DTYPES = ("f16", "bf16")

# Runs the graph of a name ("ffn_in_f16") on inputs by name; arrays are the 16-bit numbers' bits.
Runner = Callable[[str, Mapping[str, Array]], Array]


def name_of(graph: str, dtype: str) -> str:
    """The graph's, the plan's and, with a suffix, the file's name."""
    return f"{graph}_{dtype}"


def dtype_of(name: str) -> str:
    return name.rpartition("_")[2]


def build(name: str) -> dnnc.pygraph:
    """The graph of a name that `name_of` gave."""
    graph, _, dtype = name.rpartition("_")
    return BUILDERS[graph](dtype)


def graphs_of(part: Part) -> tuple[str, ...]:
    """The graphs that compute a part, one after the other."""
    match part:
        case Softmax():
            return ("softmax",)
        case LayerNorm():
            return ("layer_norm",) if part.residual is None else ("add_norm",)
        case FeedForward():
            return ("ffn_in", "ffn_out")


def inputs_of(graph: str, part: Part, before: Array | None, dtype: str) -> dict[str, Array]:
    """The inputs of one of a part's graphs, as bits; before: what the part's last one gave."""
    found = {name: bits_of(array, dtype) for name, array in _arrays(graph, part).items()}
    return found if before is None else {"x": before} | found


def _arrays(graph: str, part: Part) -> dict[str, Array]:
    """The inputs that the part itself has, with the graph's dims."""
    match part:
        case Softmax():
            return {"x": part.x}
        case LayerNorm():
            arrays = {"x": part.x, "residual": part.residual}
            arrays |= {"scale": part.scale[None], "bias": part.bias[None]}
        case FeedForward() if graph == "ffn_in":
            arrays = {"x": part.x, "w": part.w1, "b": part.b1[None]}
        case FeedForward():
            arrays = {"w": part.w2, "b": part.b2[None], "residual": part.x}
    return {name: array[None] for name, array in arrays.items() if array is not None}


def run_exactly(name: str, inputs: Mapping[str, Array]) -> Array:
    """The graph's reference on NumPy in float64, the output not rounded."""
    dtype = dtype_of(name)
    values = {key: values_of(bits, dtype) for key, bits in inputs.items()}
    (y,) = reference(build(name).graph, values, exact_outputs=True).values()
    return y


def run_reference(name: str, inputs: Mapping[str, Array]) -> Array:
    """The graph's reference on NumPy, the output's bits."""
    return bits_of(run_exactly(name, inputs), dtype_of(name))


def computed_by(run: Runner, dtype: str) -> Compute:
    """What computes parts by their graphs in turn, for `Encoder.embed`."""

    def compute(part: Part) -> Array:
        y: Array = None
        for graph in graphs_of(part):
            y = run(name_of(graph, dtype), inputs_of(graph, part, y, dtype))
        return values_of(y, dtype).reshape(part.x.shape)

    return compute
