"""The device properties descriptor: which architecture engines and plans are for.

With it, everything up to the execution plan works where there is no GPU.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .. import target as targets
from ..errors import DnncError, Status
from ..frontends.handle import Handle
from ..target import Target
from .descriptor import Given, Record
from .tables import CHAR, HANDLE, INT32, Row, kind

_VERSION = 1


@dataclass(frozen=True)
class DeviceProperties:
    """A device as far as compiling needs it; `dnnc.pygraph` takes it as `device_property`.

    target: a row of `dnnc.target`.
    """

    target: Target

    def to_json(self) -> str:
        """{"dnnc_device": 1, "target": "sm_90a"}."""
        return json.dumps({"dnnc_device": _VERSION, "target": self.target.name})


def from_json(text: str) -> DeviceProperties:
    """The device of such text; BAD_PARAM if it is another, ARCH_MISMATCH for unknown targets."""

    def error(what: str) -> DnncError:
        accepted = '{"dnnc_device": 1, "target": "sm_90a"}, or another target'
        return DnncError(Status.BAD_PARAM, what, accepted, "device properties")

    try:
        data: Any = json.loads(text)
    except ValueError as reason:
        raise error(f"no JSON: {reason}") from None
    if not isinstance(data, dict) or data.keys() != {"dnnc_device", "target"}:
        raise error(f"{text:.60}")
    if data["dnnc_device"] != _VERSION or not isinstance(data["target"], str):
        raise error(f"{text:.60}")
    return DeviceProperties(targets.of(data["target"]))


def of_device(ordinal: int | None) -> DeviceProperties:
    """The properties of a device that is here, None for the current one."""
    from ..runtime import driver

    return DeviceProperties(targets.of_capability(*driver.device(ordinal).capability))


def _build(given: Given) -> DeviceProperties:
    ways = [end for end in ("DEVICE_ID", "HANDLE", "JSON_REPRESENTATION") if end in given]
    if len(ways) > 1:
        what = f"{' and '.join(ways)} are set"
        raise given.error("DEVICE_ID", what, "one of them, or none for the current device")
    if ways == ["JSON_REPRESENTATION"]:
        return from_json(given.one("JSON_REPRESENTATION"))
    handle: Handle | None = given.one("HANDLE")
    try:
        return of_device(given.one("DEVICE_ID") if handle is None else handle.device)
    except DnncError as error:
        if error.status is Status.NOT_SUPPORTED_ARCH_MISMATCH:
            raise
        raise given.error("DEVICE_ID", str(error), "a device", Status.NOT_INITIALIZED) from error


def _read_json(record: Record) -> tuple[str, ...]:
    return (record.payload.to_json(),)


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
    """What to compile for: the DEVICEPROP that is set, else the handle's or the current device."""
    properties: DeviceProperties | None = given.payload("DEVICEPROP")
    if properties is not None:
        return properties.target
    try:
        return of_device(None if handle is None else handle.device).target
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
