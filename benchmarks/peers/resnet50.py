"""Who runs the whole of ResNet-50: dnnc, cuDNN's graphs, and torch in several ways.

Each takes a case of `resnet50_cases.forward`, buffer sets and a bench, as `contestants` do; all
have the same parameters and the same values between the layers, of f16.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import dnnc
from examples.resnet50 import arena, tensors
from examples.resnet50.forward import Forward, Places
from examples.resnet50.graphs import add, options
from examples.resnet50.network import (
    ELEMENT_BYTES,
    IMAGE,
    AveragePool,
    Conv,
    Layer,
    Linear,
    MaxPool,
    Network,
    Operation,
    elements,
)
from examples.resnet50.torch_model import Model, as_images
from examples.resnet50.torch_model import layer as torch_layer

from ..cases import kinds
from ..cases import resnet50 as resnet50_cases
from ..cases.case import Buffers, Case
from . import cudnn as cudnn_peers
from .contestants import Bench, Column

# Of an operation, the place of cuDNN's fastest plan among those that its heuristics list; None
# where it has none.
BestPlans = Mapping[Operation, int | None]


# ---- dnnc


def dnnc_columns(case: Case, sets: Sequence[Buffers], bench: Bench) -> dict[str, Column]:
    """The plans that the layers' cases are timed with, in one arena."""
    network, n = case.p["network"], case.p["n"]
    waiting = {op: bench.compilers.ahead(resnet50_cases.layer(op, n)) for op in network.operations}
    compiled = {op: future.result()[0] for op, future in waiting.items()}
    forward = Forward(network, n, {op: dnnc.load(plan) for op, plan in compiled.items()})
    memory = torch.empty(forward.arena.bytes, dtype=torch.uint8, device=kinds.DEVICE)
    parameters = resnet50_cases.placed_parameters(network)
    addresses = {name: (w.data_ptr(), bias.data_ptr()) for name, (w, bias) in parameters.items()}
    bound: list[list[Any]] = []
    for buffers in sets:
        places = Places(
            buffers["x"].data_ptr(), buffers["y"].data_ptr(), memory.data_ptr(), addresses
        )
        stream = bench.stream.cuda_stream
        bound.append([call.bind(stream) for call in forward.calls(places)])

    def launch(i: int, keep: Any = (memory, parameters)) -> None:
        for call in bound[i]:
            call()

    information = {
        "engines": {op.id: [f.engine for f in plan.programs[0].fusions]
                    for op, plan in compiled.items()},
        "arena": forward.arena.bytes,
        "launches": sum(len(call.calls) for call in bound[0]),
    }  # fmt: skip
    return {"dnnc": (launch, information)}


# ---- torch


def torch_columns(case: Case, sets: Sequence[Buffers], bench: Bench) -> dict[str, Column]:
    """torch: modules as a user writes them; torch_eager: the same without a CUDA graph."""
    launch = _model(case, sets, torch_layer)
    return {"torch": (launch, {}), "torch_eager": (launch, {"is_captured": False})}


def torch_fused_columns(case: Case, sets: Sequence[Buffers], bench: Bench) -> dict[str, Column]:
    """torch_fused: cuDNN's fused convolutions, as torch has them."""
    return {"torch_fused": (_model(case, sets, _fused_layer), {})}


def _fused_layer(op: Operation, x: Any, w: Any, bias: Any, residual: Any) -> Any:
    if not (isinstance(op, Conv) and op.has_relu):
        return torch_layer(op, x, w, bias, residual)
    where = [op.stride] * 2, [op.padding] * 2, [1, 1], 1
    if residual is None:
        return torch.cudnn_convolution_relu(x, w, bias, *where)
    return torch.cudnn_convolution_add_relu(x, w, residual, 1.0, bias, *where)


def compiled_columns(
    name: str, mode: str, seconds: float
) -> Callable[[Case, Sequence[Buffers], Bench], dict[str, Column]]:
    """Inductor in one of its modes; seconds: that the compilation may take."""

    def columns(case: Case, sets: Sequence[Buffers], bench: Bench) -> dict[str, Column]:
        bench.watch.at(case.id, name, seconds)
        torch._dynamo.reset()
        began = time.perf_counter()
        launch = _model(case, sets, torch_layer, mode)
        return {name: (launch, {"compile_ms": round(1e3 * (time.perf_counter() - began))})}

    return columns


def _model(
    case: Case, sets: Sequence[Buffers], run: Callable[..., Any], mode: str = ""
) -> Callable[[int], Any]:
    """Launches of a torch model, after the first: it tries algorithms and compiles."""
    torch.backends.cudnn.benchmark = True
    network = case.p["network"]
    parameters = tensors.parameters(network, resnet50_cases.SEED)
    model: Any = Model(network, parameters, kinds.DEVICE, run=run).eval()
    if mode:
        model = torch.compile(model, mode=mode, dynamic=False)

    @torch.no_grad()
    def launch(i: int) -> Any:
        return model(sets[i]["x"])

    launch(0)
    return launch


# ---- cuDNN


def cudnn_columns(
    case: Case, sets: Sequence[Buffers], bench: Bench, best: BestPlans
) -> dict[str, Column]:
    """cudnn_best: a graph an operation, of which the plan is taken that was the fastest.

    Pooling is torch's, since the frontend has none in Python; so is what no plan takes.
    """
    network = case.p["network"]
    handle = cudnn_peers.handle_on(bench.stream.cuda_stream)
    parameters = resnet50_cases.placed_parameters(network)
    found = {op: _Plan(op, case.p["n"], index, *handle) if index is not None else None
             for op, index in ((op, best.get(op)) for op in network.operations)}  # fmt: skip
    values = _Values(network, case.p["n"])
    launches = [
        [_step(found[step.op], step, values, parameters, buffers) for step in network.layers]
        for buffers in sets
    ]

    def launch(i: int) -> None:
        for call in launches[i]:
            call()

    information = {
        "plans": {op.id: plan.name for op, plan in found.items() if plan is not None},
        "by_torch": [op.id for op, plan in found.items() if plan is None],
    }
    return {"cudnn_best": (launch, information)}


class _Plan:
    """One of cuDNN's plans of an operation."""

    def __init__(self, op: Operation, n: int, index: int, cudnn: Any, handle: Any):
        self._handle, self._index = handle, index
        self._graph = cudnn.pygraph(handle=handle, **options(cudnn))
        self._tensors = add(cudnn, self._graph, op, n)
        self._graph.validate()
        self._graph.build_operation_graph()
        self._graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        self._graph.build_plan_at_index(index)
        self.name = self._graph.get_plan_name_at_index(index)
        size = max(1, self._graph.get_workspace_size_plan_at_index(index))
        self._workspace = torch.empty(size, dtype=torch.uint8, device=kinds.DEVICE)

    def on(self, arrays: Mapping[str, Any]) -> Callable[[], None]:
        """Its launch on arrays by name."""
        pack = {tensor.get_uid(): arrays[name] for name, tensor in self._tensors.items()}
        return functools.partial(
            self._graph.execute_plan_at_index, pack, self._workspace, self._index, self._handle
        )


class _Values:
    """The values that layers pass on, in an arena planned as dnnc's."""

    def __init__(self, network: Network, n: int):
        self._n = n
        self._shapes = {layer.y: layer.op.y_shape for layer in network.layers}
        found = arena.tenants_of(network.layers, n, {}, (network.logits,))
        self._arena = arena.planned(found)
        self._memory = torch.empty(self._arena.bytes, dtype=torch.uint8, device=kinds.DEVICE)
        self._logits = network.logits

    def image(self, name: str, buffers: Buffers) -> Any:
        """A value [n, c, h, w]; the first and the last are buffers."""
        if name == IMAGE:
            return buffers["x"]
        if name == self._logits:
            return buffers["y"][:, :, None, None]
        offset, shape = self._arena.offsets[name], (self._n, *self._shapes[name])
        bytes_ = self._memory[offset : offset + ELEMENT_BYTES * elements(shape)]
        return as_images(bytes_.view(torch.float16).view(shape))


def _step(
    plan: _Plan | None, step: Layer, values: _Values, parameters: Mapping[str, Any],
    buffers: Buffers,
) -> Callable[[], Any]:  # fmt: skip
    """A layer's launch: cuDNN's, or torch's where it has no plan."""
    arrays = {"x": values.image(step.x, buffers), "y": values.image(step.y, buffers)}
    if step.residual:
        arrays["residual"] = values.image(step.residual, buffers)
    if step.op.w_shape:
        w, bias = parameters[step.name]
        arrays |= {"w": as_images(w) if isinstance(step.op, Conv) else w, "bias": bias}
    return _by_torch(step.op, arrays) if plan is None else plan.on(arrays)


def _by_torch(op: Operation, arrays: Mapping[str, Any]) -> Callable[[], Any]:
    """The fastest that torch has for an operation, written to y."""
    x, y = arrays["x"], arrays["y"]
    if isinstance(op, MaxPool):
        places = torch.empty_like(y, dtype=torch.int64)
        windows = [op.window] * 2, [op.stride] * 2, [op.padding] * 2, [1, 1], False
        pool = torch.ops.aten.max_pool2d_with_indices.out
        return lambda: pool(x, *windows, out=y, indices=places)
    if isinstance(op, AveragePool):
        return lambda: torch.mean(x, (2, 3), keepdim=True, out=y)
    if isinstance(op, Linear):
        flat, out, w = x.flatten(1), y.flatten(1), arrays["w"].mT
        return lambda: torch.addmm(arrays["bias"], flat, w, out=out)
    given = (arrays.get(name) for name in ("x", "w", "bias", "residual"))
    inputs = tuple(given)
    return lambda: y.copy_(_fused_layer(op, *inputs))
