"""The training step in torch: functional, on the same parameters, in float32 or f16 autocast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from . import training_parameters as data
from .network import AveragePool, Conv, Layer, Linear, MaxPool, Network
from .torch_model import as_images
from .training_graphs import EPSILON, MOMENTUM, STATISTICS_MOMENTUM, WEIGHT_DECAY

Tensor = Any


class Model(torch.nn.Module):
    """The network with batch norms, on torch's images [n, 3, size, size]; gives logits."""

    def __init__(self, network: Network, seed: int, device: str):
        super().__init__()
        self.network = network
        for name, array in data.parameters(network, seed).items():
            tensor = torch.as_tensor(array).to(device)
            tensor = as_images(tensor) if tensor.dim() == 4 else tensor
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(tensor))
        layout = data.layout_of(network)
        running = data.split(layout.running, data.running(network))
        for name, array in running.items():
            tensor = torch.as_tensor(array.copy()).to(device)
            self.register_buffer(f"running_{name}".replace(".", "_"), tensor)

    def _of(self, layer: Layer, part: str) -> Tensor:
        return getattr(self, f"{layer.name}.{part}".replace(".", "_"))

    def forward(self, image: Tensor) -> Tensor:
        values = {"image": image}
        for layer in self.network.layers:
            values[layer.name] = self._layer(layer, values)
        return values[self.network.logits]

    def _layer(self, layer: Layer, values: Mapping[str, Tensor]) -> Tensor:
        x, op = values[layer.x], layer.op
        match op:
            case Conv():
                y = functional.conv2d(x, self._of(layer, "w"), None, op.stride, op.padding)
                running = (getattr(self, f"running_{layer.name}_{part}".replace(".", "_"))
                           for part in ("mean", "variance"))  # fmt: skip
                y = functional.batch_norm(
                    y, *running, self._of(layer, "scale"), self._of(layer, "shift"),
                    training=True, momentum=STATISTICS_MOMENTUM, eps=EPSILON,
                )  # fmt: skip
                if layer.residual:
                    y = y + values[layer.residual]
                return functional.relu(y, inplace=True) if op.has_relu else y
            case MaxPool():
                return functional.max_pool2d(x, op.window, op.stride, op.padding)
            case AveragePool():
                return functional.adaptive_avg_pool2d(x, 1)
            case Linear():
                return functional.linear(
                    x.flatten(1), self._of(layer, "w"), self._of(layer, "bias")
                )


class TorchTraining:
    """Steps of SGD on the data of a seed.

    is_half: f16 autocast with a loss scale; otherwise float32 without tf32.  mode: of
    torch.compile; "" for eager.
    """

    def __init__(
        self, network: Network, n: int, seed: int, rate: float, loss_scale: float, *,
        is_half: bool, mode: str = "", device: str = "cuda",
    ):  # fmt: skip
        self.model = Model(network, seed, device)
        self._run: Any = torch.compile(self.model, mode=mode) if mode else self.model
        images, labels = data.data(network, n, seed)
        self.image = as_images(torch.as_tensor(images).to(device))
        self.image = self.image if is_half else self.image.float()
        self.labels = torch.as_tensor(labels).to(device).long()
        self._scale = loss_scale if is_half else 1.0
        self._is_half, self._device = is_half, device
        self._optimizer = torch.optim.SGD(
            self.model.parameters(), lr=rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY,
            fused=device == "cuda",
        )  # fmt: skip
        self._scaler = torch.amp.GradScaler(device, init_scale=loss_scale, enabled=is_half)

    def loss_and_gradients(self) -> Tensor:
        """The loss; gradients are left in the parameters, times the loss scale."""
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self._device, torch.float16, enabled=self._is_half):
            loss = functional.cross_entropy(self._run(self.image), self.labels)
        self._scaler.scale(loss).backward()
        return loss.detach()

    def step(self) -> Tensor:
        """A whole step; gives its loss."""
        loss = self.loss_and_gradients()
        self.update()
        return loss

    def update(self) -> None:
        """Steps by the gradients that are there."""
        self._scaler.step(self._optimizer)
        self._scaler.update()

    def gradients(self) -> dict[str, Any]:
        """Gradients by parameter, as they lie in memory, f32 arrays without the loss scale."""
        found: dict[str, Any] = {}
        for name in data.layout_of(self.model.network).parts:
            gradient = getattr(self.model, name.replace(".", "_")).grad
            gradient = gradient.movedim(1, -1) if gradient.dim() == 4 else gradient
            found[name] = (gradient.float() / self._scale).cpu().numpy()
        return found


def reference(
    network: Network, n: int, seed: int, rate: float, loss_scale: float, steps: int, *,
    is_half: bool, device: str = "cuda",
) -> tuple[dict[str, Any], list[float]]:  # fmt: skip
    """(the first step's gradients, the losses of all steps)."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=is_half):
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        try:
            run = TorchTraining(network, n, seed, rate, loss_scale, is_half=is_half, device=device)
            losses = [float(run.loss_and_gradients())]
            gradients = run.gradients()  # before the optimizer takes the loss scale off
            run.update()
            losses += [float(run.step()) for _ in range(steps - 1)]
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
    return gradients, losses
