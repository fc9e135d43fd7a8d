# pyright: basic
"""Handles and devices, under cudnn-frontend's names."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Mapping
from typing import Any, cast

from ..errors import DnncError, DnncTypeError, Status
from ..frontends import device_properties as own_properties
from ..frontends import handle as own
from ..frontends.device_properties import DeviceProperties
from ..runtime import driver


class DeviceInfo:
    """Facts of a device.

    ordinal: its number.
    """

    def __init__(self, ordinal: int):
        self.ordinal = int(ordinal)

    @functools.cached_property
    def _device(self) -> driver.Device:
        return driver.device(self.ordinal)

    @property
    def compute_capability(self) -> tuple[int, int]:
        return self._device.capability

    @property
    def sm_version(self) -> int:
        """90 for Hopper."""
        major, minor = self.compute_capability
        return major * 10 + minor

    @property
    def sm_count(self) -> int:
        return self._device.sm_count

    @property
    def shared_memory_per_block_optin(self) -> int:
        """Bytes of dynamic shared memory that a block may have."""
        return self._device.max_dynamic_smem_bytes

    @property
    def device_name(self) -> str:
        return self._device.name


_COUNT = itertools.count(1)


class Handle:
    """Where graphs run: a device and a stream; usable as a key.

    backend_handle: a number that names it, None once it is destroyed.  ordinal: the device, None
    for the one of the current context.  stream: a CUDA stream handle, None for the default one.
    """

    def __init__(
        self, backend_handle: int | None, ordinal: int | None = None, stream: int | None = None
    ):
        self.backend_handle = None if backend_handle is None else int(backend_handle)
        self.own = own.Handle(0 if stream is None else int(stream), ordinal)

    @property
    def stream(self) -> int:
        return self.own.stream

    @stream.setter
    def stream(self, value: int) -> None:
        self.own.stream = int(value)

    @property
    def device(self) -> DeviceInfo:
        """Its device."""
        ordinal = self.own.device
        return DeviceInfo(driver.device(None).ordinal if ordinal is None else ordinal)

    def __repr__(self) -> str:
        return f"Handle({self.backend_handle}, device {self.own.device}, stream {self.stream})"


def create_handle(device: int | None = None) -> Handle:
    """A handle on the default stream of a device (default: the current one)."""
    return Handle(next(_COUNT), device)


def destroy_handle(handle: Handle) -> None:
    """Closes a handle; using it afterwards is an error."""
    own.destroy_handle(own_of(handle))
    handle.backend_handle = None


def set_stream(handle: Handle, stream: int) -> None:
    """Makes later executions with the handle launch on a stream (its integer handle)."""
    own.set_stream(own_of(handle), stream)


def get_stream(handle: Handle) -> int:
    """The stream of a handle."""
    return own.get_stream(own_of(handle))


def own_of(handle: Any) -> own.Handle:
    """dnnc's handle; what is no handle is a TypeError, one that was destroyed an error."""
    if not isinstance(handle, Handle):
        what = f"a {type(handle).__name__} is no handle"
        raise DnncTypeError(Status.BAD_PARAM, what, "what create_handle() makes")
    own.get_stream(handle.own)
    return handle.own


class kernel_cache:
    """Accepted where cudnn-frontend takes one: dnnc's kernels are kept by what they are, always."""

    def serialize(self) -> str:
        """Its JSON."""
        return "{}"

    def deserialize(self, data: str) -> None:
        """Takes what `serialize` gave."""
        json.loads(data)


def create_kernel_cache() -> kernel_cache:
    return kernel_cache()


def create_device_properties(source: int | str) -> DeviceProperties:
    """The properties of a device by its ordinal, or from JSON: dnnc's own, or cuDNN's.

    Of cuDNN's JSON it takes deviceVer (900 for Hopper), multiProcessorCount, deviceName and
    maxSharedMemoryPerBlockOptin.
    """
    if isinstance(source, str):
        found = _of_cudnn(source)
        if found is not None:
            return found
    return own_properties.create_device_properties(source)


def _of_cudnn(text: str) -> DeviceProperties | None:
    """The device of cuDNN's JSON; None where the text is none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or "deviceVer" not in data:
        return None
    fields = cast("Mapping[str, Any]", data)
    try:
        version = int(fields["deviceVer"])
        return DeviceProperties(
            str(fields.get("deviceName", "")),
            (version // 100, version // 10 % 10),
            int(fields["multiProcessorCount"]),
            int(fields["maxSharedMemoryPerBlockOptin"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DnncError(
            Status.BAD_PARAM,
            f"{type(error).__name__}: {error}",
            "deviceVer, multiProcessorCount and maxSharedMemoryPerBlockOptin, as integers",
            "device properties",
        ) from error
