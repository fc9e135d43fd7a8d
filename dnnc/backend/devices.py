"""The device properties descriptor: which architecture engines and plans are for.

With it, everything up to the execution plan works where there is no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import DnncError, Status
from ..frontends.device_properties import DeviceProperties, create_device_properties
from ..frontends.handle import Handle
from ..target import Target
from .descriptor import Given, Record
from .tables import CHAR, HANDLE, INT32, Row, kind


@dataclass(frozen=True)
class Device:
    """A device as far as planning needs it.

    target: what is compiled for it.  text: its JSON.
    """

    target: Target
    text: str


def of_properties(properties: DeviceProperties) -> Device:
    """A device that was described by `dnnc.create_device_properties`."""
    return Device(properties.target, properties.serialize())


def _build(given: Given) -> Device:
    ways = [end for end in ("DEVICE_ID", "HANDLE", "JSON_REPRESENTATION") if end in given]
    if len(ways) > 1:
        what = f"{' and '.join(ways)} are set"
        raise given.error("DEVICE_ID", what, "one of them, or none for the current device")
    if ways == ["JSON_REPRESENTATION"]:
        return of_properties(create_device_properties(str(given.one("JSON_REPRESENTATION"))))
    handle: Handle | None = given.one("HANDLE")
    ordinal = given.one("DEVICE_ID") if handle is None else handle.device
    try:
        return of_properties(create_device_properties(ordinal))
    except DnncError as error:
        if error.status is Status.NOT_SUPPORTED_ARCH_MISMATCH:
            raise
        raise given.error("DEVICE_ID", str(error), "a device", Status.NOT_INITIALIZED) from error


def _read_json(record: Record) -> tuple[str, ...]:
    return (record.payload.text,)


DEVICEPROP = kind(
    "DEVICEPROP",
    "DEVICEPROP",
    [
        Row("DEVICE_ID", INT32),
        Row("HANDLE", HANDLE),
        Row("JSON_REPRESENTATION", CHAR),
    ],
    _build,
    {"JSON_REPRESENTATION": _read_json},
)


def target_of(given: Given, handle: Handle | None) -> Target:
    """Target: that of the DEVICEPROP that is set, else of the handle's or the current device."""
    device: Device | None = given.payload("DEVICEPROP")
    if device is not None:
        return device.target
    try:
        return create_device_properties(None if handle is None else handle.device).target
    except DnncError as error:
        raise given.error(
            "DEVICEPROP", f"it is not set, and there is no device: {error}",
            "a device properties descriptor, of JSON where there is no GPU", error.status,
        ) from error  # fmt: skip


def require_all_processors(given: Given) -> None:
    """SM_COUNT_TARGET is the default, 0."""
    count = given.one("SM_COUNT_TARGET")
    if count != 0:
        raise given.error(
            "SM_COUNT_TARGET", f"{count}", "0: plans take their grids from the device they run on",
            Status.NOT_SUPPORTED,
        )  # fmt: skip
