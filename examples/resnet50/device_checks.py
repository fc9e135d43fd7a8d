"""Compares what a device makes with references: by torch, where it is there, or else by NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from dnnc.rounding import widen
from dnnc.runtime import driver

from . import checks
from .checks import Arithmetic, Verdict
from .device import Device
from .network import ELEMENT_BYTES, IMAGE, Layer, elements

Array = Any


class Memory(Protocol):
    """Device memory as arrays of an arithmetic."""

    arithmetic: Arithmetic

    def array(self, address: int, shape: tuple[int, ...]) -> Array:
        """f16 numbers, with as many bits as the arithmetic has."""
        ...

    def host(self, array: Array) -> Array:
        """An array as NumPy's."""
        ...


class Copied:
    """Copies of device memory, for NumPy."""

    arithmetic: Arithmetic = checks.Reference()

    def array(self, address: int, shape: tuple[int, ...]) -> Array:
        found = np.empty(shape, np.float16)
        driver.download(found, address)
        return widen(found)

    def host(self, array: Array) -> Array:
        return array


class Viewed:
    """Device memory itself, as torch's tensors."""

    def __init__(self) -> None:
        from .torch_model import InFloat32

        self.arithmetic: Arithmetic = InFloat32()

    def array(self, address: int, shape: tuple[int, ...]) -> Array:
        return self.arithmetic.library.as_tensor(_Described(address, shape), device="cuda").float()

    def host(self, array: Array) -> Array:
        return array.cpu().numpy()


class _Described:
    """Device memory as CUDA arrays are described."""

    def __init__(self, address: int, shape: tuple[int, ...]):
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": shape, "typestr": "<f2", "version": 3,
        }  # fmt: skip


def memory() -> Memory:
    """Torch's, if it is installed and has the device."""
    try:
        import torch
    except ImportError:
        return Copied()
    return Viewed() if torch.cuda.is_available() else Copied()


def layer_verdicts(device: Device, seen: Memory) -> Iterator[tuple[Layer, Verdict]]:
    """Each layer, launched alone on what those before it made, in memory that held NaNs."""
    n = _images(device, seen)
    device.poison_all()
    for call, bound in zip(device.calls, device.bound, strict=True):
        op = call.layer.op
        device.poison(call.pack["y"], device.forward.n * elements(op.y_shape) * ELEMENT_BYTES)
        bound()
        driver.synchronize()
        shapes = {"x": (n, *op.x_shape), "y": (n, *op.y_shape), "residual": (n, *op.y_shape)}
        if op.w_shape:
            shapes |= {"w": op.w_shape, "bias": (op.bias_elements,)}
        arrays = {name: seen.array(place, shapes[name]) for name, place in call.pack.items()}
        y = arrays.pop("y")
        yield call.layer, checks.layer_verdict(seen.arithmetic, op, y, arrays)


def exact_logits(device: Device, seen: Memory) -> Array:
    """[images that are checked, 1, 1, classes], on the host."""
    network, places = device.forward.network, device.places
    shape = (_images(device, seen), *network.layers[0].op.x_shape)
    parameters = {
        name: tuple(
            seen.array(place, array.shape)
            for place, array in zip(places.parameters[name], arrays, strict=True)
        )
        for name, arrays in device.parameters.items()
    }
    image = seen.array(device.forward.address(IMAGE, places), shape)
    found = checks.exact_logits(seen.arithmetic, network, image, parameters)
    return seen.host(found)


def _images(device: Device, seen: Memory) -> int:
    """How many are looked at: the first ones."""
    return min(device.forward.n, seen.arithmetic.images or device.forward.n)
