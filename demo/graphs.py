"""The demo's graphs by name, and a layer's feed-forward block run through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dnnc
from dnnc.dialect.reference import reference

from . import ffn_in, ffn_out
from .model import FeedForward
from .numerics import bits_of, values_of

Array = Any

BUILDERS = {"ffn_in": ffn_in.build, "ffn_out": ffn_out.build}
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


def inputs_in(block: FeedForward, dtype: str) -> dict[str, Array]:
    """The inputs of ffn_in, as bits of the data type."""
    arrays = {"x": block.x, "w": block.w1, "b": block.b1[None]}
    return {name: bits_of(array[None], dtype) for name, array in arrays.items()}


def inputs_out(block: FeedForward, y_in: Array, dtype: str) -> dict[str, Array]:
    """The inputs of ffn_out; y_in: what ffn_in gave, as bits."""
    arrays = {"w": block.w2, "b": block.b2[None], "residual": block.x}
    return {"x": y_in} | {name: bits_of(array[None], dtype) for name, array in arrays.items()}


def run_exactly(name: str, inputs: Mapping[str, Array]) -> Array:
    """The graph's reference on NumPy in float64, the output not rounded."""
    dtype = dtype_of(name)
    values = {key: values_of(bits, dtype) for key, bits in inputs.items()}
    (y,) = reference(build(name).graph, values, exact_outputs=True).values()
    return y


def run_reference(name: str, inputs: Mapping[str, Array]) -> Array:
    """The graph's reference on NumPy, the output's bits."""
    return bits_of(run_exactly(name, inputs), dtype_of(name))


def feed_forward(run: Runner, dtype: str) -> Callable[[FeedForward], Array]:
    """A layer's feed-forward block as both graphs in turn, for `Encoder.embed`."""

    def block_of(block: FeedForward) -> Array:
        y_in = run(name_of("ffn_in", dtype), inputs_in(block, dtype))
        y = run(name_of("ffn_out", dtype), inputs_out(block, y_in, dtype))
        return values_of(y, dtype)[0]

    return block_of
