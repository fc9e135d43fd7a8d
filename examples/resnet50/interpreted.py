"""The forward pass in the interpreter of PTX, for networks as small as `small`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dnnc.interpreter.plans import run_plan
from dnnc.rounding import widen

from . import checks, tensors
from .checks import Verdict
from .forward import Forward
from .network import IMAGE, Layer, Linear, Network

Array = Any

# Multiplications of a pass: the interpreter does a few millions a second.
MOST_PRODUCTS = 5e7


def refusal(network: Network, n: int) -> str:
    """Why it is not interpreted; "" where it may be."""
    products = network.flops(n) / 2
    if products <= MOST_PRODUCTS:
        return ""
    return f"{products:.2g} multiplications are too many for the interpreter"


class Interpreted:
    """A pass, layer by layer.  values: of every layer that was run, f16 as they lie in memory."""

    def __init__(self, forward: Forward, seed: int):
        self.forward = forward
        self.parameters = tensors.parameters(forward.network, seed)
        self.values: dict[str, Array] = {IMAGE: tensors.images(forward.network, forward.n, seed)}

    def layer_verdicts(self) -> Iterator[tuple[Layer, Verdict]]:
        """Runs each layer on what those before it made, and judges it."""
        arithmetic = checks.Reference()
        for layer in self.forward.network.layers:
            inputs = checks.inputs_of(layer, self.values, self.parameters)
            given = {name: array for name, array in inputs.items() if array is not None}
            self.values[layer.y] = y = self._run(layer, given)
            wide = {name: widen(array) for name, array in given.items()}
            yield layer, checks.layer_verdict(arithmetic, layer.op, widen(y), wide)

    def _run(self, layer: Layer, given: dict[str, Array]) -> Array:
        inputs = {name: checks.logical(layer.op, name, array) for name, array in given.items()}
        (y,) = run_plan(self.forward.plans[layer.op].plan, inputs).values()
        if isinstance(layer.op, Linear):
            return y.reshape(self.forward.n, 1, 1, layer.op.classes)
        return np.moveaxis(y, 1, -1)

    def network_verdict(self) -> Verdict:
        """Judges the logits, once all layers were run."""
        network, image = self.forward.network, self.values[IMAGE]
        exact = checks.exact_logits(checks.Reference(), network, image, self.parameters)
        return checks.network_verdict(network, self.values[network.logits], exact)
