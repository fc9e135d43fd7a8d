"""A training step as data: operations in order, and the values that their tensors are bound to.

Forward, each convolution computes its batch norm's statistics; a step behind it normalizes,
adds the shortcut and applies ReLU.  Backward, from the loss to the image; what a block's first
convolution gives back is added to the shortcut's gradient where it is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from . import training_gradient_graphs as backward
from . import training_graphs as forward
from .network import AveragePool, Conv, Layer, Linear, MaxPool, Network
from .training_graphs import NORM_GRADIENTS, STATISTICS, Operation
from .training_parameters import Layout, layout_of


class Value(NamedTuple):
    """The place that a tensor is bound to.

    place: "arena" (memory that is used again), "given" (outside, by name), or a flat buffer of
    all parameters, statistics or the loss scale's state: "half", "master", "velocity", "gradient",
    "running", "scaler", those with `next_` before them written.  name: of the value, or the
    parameter; "" for the whole buffer.
    """

    place: str
    name: str = ""


@dataclass(frozen=True)
class Step:
    """An operation, and the values of its tensors by their names."""

    name: str
    op: Operation
    values: Mapping[str, Value]


@dataclass(frozen=True)
class _Block:
    """The layers of a block.  project: None where the shortcut is x itself."""

    project: Layer | None
    reduce: Layer
    spatial: Layer
    expand: Layer


def _arena(name: str) -> Value:
    return Value("arena", name)


class Training:
    """A training step of a network."""

    def __init__(self, network: Network):
        self.network = network

    @cached_property
    def layout(self) -> Layout:
        """Where parameters and running statistics lie in their flat buffers."""
        return layout_of(self.network)

    @cached_property
    def forward(self) -> tuple[Step, ...]:
        """From the images to the loss and its gradient by the logits."""
        return tuple(self._forward())

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All steps, in order."""
        return (*self.forward, *self._backward())

    @property
    def operations(self) -> dict[Operation, int]:
        """Each operation once, in the order of its first step, and how many steps have it."""
        found: dict[Operation, int] = {}
        for step in self.steps:
            found[step.op] = found.get(step.op, 0) + 1
        return found

    @cached_property
    def _layers(self) -> dict[str, Layer]:
        return {layer.name: layer for layer in self.network.layers}

    # ---- forward

    def _forward(self) -> Iterator[Step]:
        for layer in self.network.layers:
            x = Value("given", "image") if layer.x == "image" else _arena(layer.x)
            match layer.op:
                case Conv():
                    yield self._convolve(layer, x)
                    if not layer.name.endswith(".project"):
                        yield self._activate(layer)
                case MaxPool():
                    values = {"x": x, "y": _arena(layer.name),
                              "index": _arena(f"{layer.name}.index")}  # fmt: skip
                    yield Step(layer.name, forward.Pool(layer.op), values)
                case AveragePool():
                    values = {"x": x, "y": _arena(layer.name)}
                    yield Step(layer.name, forward.Average(layer.op), values)
                case Linear():
                    values = {"x": x, "w": Value("half", f"{layer.name}.w"),
                              "bias": Value("master", f"{layer.name}.bias"),
                              "y": _arena(layer.name)}  # fmt: skip
                    yield Step(layer.name, forward.Logits(layer.op), values)
        values = {name: Value("given", name) for name in ("labels", "losses")}
        values["loss_scale"] = Value("scaler", "loss_scale")
        values |= {"logits": _arena(self.network.logits), "dlogits": _arena("dlogits")}
        yield Step("loss", forward.Loss(self.network.classes), values)

    def _convolve(self, layer: Layer, x: Value) -> Step:
        values = {"x": x, "w": Value("half", f"{layer.name}.w"), "y": _arena(f"{layer.name}.y")}
        values |= {name: Value("master", f"{layer.name}.{name}") for name in ("scale", "shift")}
        for name in ("mean", "variance"):
            values[f"running_{name}"] = Value("running", f"{layer.name}.{name}")
            values[f"next_{name}"] = Value("next_running", f"{layer.name}.{name}")
        values |= {name: _arena(f"{layer.name}.{name}") for name in STATISTICS[:4]}
        return Step(f"{layer.name}.forward", forward.Forward(_plain(layer)), values)

    def _activate(self, layer: Layer) -> Step:
        values = {"a": _arena(layer.name), **_normalized(layer.name)}
        shortcut = "none"
        if layer.residual.endswith(".project"):
            shortcut = "projection"
            values |= _normalized(layer.residual, "2")
        elif layer.residual:
            shortcut = "identity"
            values["residual"] = _arena(layer.residual)
        op = forward.Activate(layer.op.y_shape, shortcut)
        return Step(f"{layer.name}.activate", op, values)

    # ---- backward

    def _backward(self) -> Iterator[Step]:
        blocks = list(self._blocks())
        yield from self._head(blocks[-1])
        before: list[_Block | None] = [None, *blocks[:-1]]
        for block, previous in zip(reversed(blocks), reversed(before), strict=True):
            yield from self._block(block, previous)
        stem, pool = self._layers["stem"], self._layers["pool"]
        values = {"dy": _arena("pool.g"), "index": _arena("pool.index"), "g": _arena("stem.g"),
                  **_normalized("stem"), **self._norm("stem")}  # fmt: skip
        yield Step("pool.gradient", backward.PoolGradient(pool.op), values)
        yield self._through_norm(stem, "stem.g")
        yield self._filter(stem, Value("given", "image"))
        values = {"gradient": Value("gradient"), "is_good": _arena("is_good")}
        for name in ("loss_scale", "good_steps"):
            values[name] = Value("scaler", name)
            values[f"next_{name}"] = Value("next_scaler", name)
        yield Step("check", backward.CheckGradients(self.layout.parameters), values)
        values = {name: Value(name) for name in ("master", "velocity", "gradient")}
        values |= {name: Value(name) for name in ("next_master", "next_velocity", "half")}
        values |= {"loss_scale": Value("scaler", "loss_scale"), "is_good": _arena("is_good")}
        values["rate"] = Value("given", "rate")
        yield Step("update", backward.Update(self.layout.parameters), values)

    def _blocks(self) -> Iterator[_Block]:
        for layer in self.network.layers:
            name, _, part = layer.name.rpartition(".")
            if part == "expand":
                others = (self._layers[f"{name}.{p}"] for p in ("reduce", "spatial"))
                yield _Block(self._layers.get(f"{name}.project"), *others, layer)

    def _head(self, last: _Block) -> Iterator[Step]:
        linear, average = self._layers["linear"], self._layers["average"]
        dlogits, x = _arena("dlogits"), _arena(linear.x)
        values = {"dlogits": dlogits, "x": x, "dw": Value("gradient", "linear.w")}
        yield Step("linear.filter", backward.LogitsFilter(linear.op), values)
        values = {"dlogits": dlogits, "dbias": Value("gradient", "linear.bias")}
        yield Step("linear.bias", backward.LogitsBias(linear.op), values)
        values = {"dlogits": dlogits, "w": Value("half", "linear.w"), "dx": _arena("average.g")}
        yield Step("linear.image", backward.LogitsImage(linear.op), values)
        values = {"dx": _arena("average.g"), **self._end(last)}
        norms = 2 if last.project else 1
        yield Step("average.gradient", backward.AverageGradient(average.op, norms), values)

    def _block(self, block: _Block, previous: _Block | None) -> Iterator[Step]:
        end = f"{block.expand.name}.g"
        shortcut = end
        if block.project:
            yield self._through_norm(block.project, end)
            yield self._filter(block.project, _arena(block.project.x))
            shortcut = f"{block.project.name}.dx"
            values = {**self._given_back(block.project), "g": _arena(shortcut)}
            op = backward.ImageGradient(_plain(block.project))
            yield Step(f"{block.project.name}.image", op, values)
        g = end
        for layer, inner in ((block.expand, block.spatial), (block.spatial, block.reduce)):
            yield self._through_norm(layer, g)
            yield self._filter(layer, _arena(inner.name))
            g = f"{inner.name}.g"
            values = {**self._given_back(layer), "g": _arena(g), **_normalized(inner.name),
                      **self._norm(inner.name)}  # fmt: skip
            op = backward.ImageGradient(_plain(layer), mask="norm", norms=1)
            yield Step(f"{layer.name}.image", op, values)
        reduce = block.reduce
        yield self._through_norm(reduce, g)
        yield self._filter(reduce, _arena(reduce.x))
        values = {**self._given_back(reduce), "residual": _arena(shortcut)}
        if previous is None:
            op = backward.ImageGradient(_plain(reduce), has_residual=True)
            values["g"] = _arena("pool.g")
        else:
            norms = 2 if previous.project else 1
            op = backward.ImageGradient(_plain(reduce), True, "activation", norms)
            values |= self._end(previous)
        yield Step(f"{reduce.name}.image", op, values)

    def _end(self, block: _Block) -> dict[str, Value]:
        """Mask, result and norms of the gradient of a block's result."""
        name = block.expand.name
        values = {"a": _arena(name), "g": _arena(f"{name}.g"), **self._norm(name)}
        if block.project:
            values |= self._norm(block.project.name, "2")
        return values

    def _norm(self, layer: str, suffix: str = "") -> dict[str, Value]:
        """Inputs and outputs of the gradients of a norm."""
        values = {name: _arena(f"{layer}.{name}") for name in ("y", "mean", "inv_std")}
        values["scale"] = Value("master", f"{layer}.scale")
        values |= {name: _arena(f"{layer}.{name}") for name in NORM_GRADIENTS[2:]}
        values["dscale"] = Value("gradient", f"{layer}.scale")
        values["dbias"] = Value("gradient", f"{layer}.shift")
        return {name + suffix: value for name, value in values.items()}

    def _through_norm(self, layer: Layer, g: str) -> Step:
        values = {name: _arena(f"{layer.name}.{name}") for name in ("y", "dy")}
        values |= {name: _arena(f"{layer.name}.{name}") for name in NORM_GRADIENTS[2:]}
        values["g"] = _arena(g)
        return Step(f"{layer.name}.norm", backward.NormGradient(layer.op.y_shape), values)

    def _filter(self, layer: Layer, x: Value) -> Step:
        values = {"x": x, "dy": _arena(f"{layer.name}.dy"),
                  "dw": Value("gradient", f"{layer.name}.w")}  # fmt: skip
        return Step(f"{layer.name}.filter", backward.FilterGradient(_plain(layer)), values)

    def _given_back(self, layer: Layer) -> dict[str, Value]:
        return {"dy": _arena(f"{layer.name}.dy"), "w": Value("half", f"{layer.name}.w")}


def _plain(layer: Layer) -> Conv:
    """A layer's convolution alone: what follows it is in other steps."""
    assert isinstance(layer.op, Conv)
    return replace(layer.op, has_residual=False, has_relu=False)


def _normalized(layer: str, suffix: str = "") -> dict[str, Value]:
    names = ("y", "eq_scale", "eq_bias")
    return {name + suffix: _arena(f"{layer}.{name}") for name in names}
