"""Device properties: what a compilation has to know of a device that is not here.

    {"dnnc_device": 1, "name": "NVIDIA H200", "capability": [9, 0], "sm_count": 132,
     "max_dynamic_smem_bytes": 232448}
    {"dnnc_device": 1, "target": "sm_90a"}

The second form is of a target's usual part.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from .. import given
from .. import target as targets
from ..errors import DnncError, Status
from ..plan import codec
from ..target import Target

VERSION = 1


@dataclass(frozen=True)
class DeviceProperties:
    """A device.

    name: as the driver says.  capability: compute capability (major, minor).  sm_count: its
    SMs.  max_dynamic_smem_bytes: dynamic shared memory that a block may have.
    target_name: what is compiled for it ("": the default of its capability).
    """

    name: str
    capability: tuple[int, int]
    sm_count: int
    max_dynamic_smem_bytes: int
    target_name: str = ""

    @property
    def target(self) -> Target:
        """The target that is compiled for it, with its own number of SMs."""
        named = self.target_name and targets.of(self.target_name)
        return replace(named or targets.of_capability(*self.capability), sm_count=self.sm_count)

    @property
    def variables(self) -> dict[str, int]:
        """The variables that expressions of a plan may name beside its symbols."""
        return {
            "sm_count": self.sm_count,
            "max_dynamic_smem_bytes": self.max_dynamic_smem_bytes,
        }

    def serialize(self) -> str:
        """Its JSON, for `create_device_properties` on another machine."""
        if self.target_name and self == device_of(targets.of(self.target_name)):
            return json.dumps({"dnnc_device": VERSION, "target": self.target_name})
        return json.dumps({"dnnc_device": VERSION, **codec.encode(self)}, sort_keys=True)


def create_device_properties(
    source: int | str | bytes | os.PathLike[str] | None = None,
) -> DeviceProperties:
    """The properties of a device that is here, or those that were written down elsewhere.

    source: an ordinal (default: the current device), the JSON that `serialize` gave or that names
    a target, or the path of a file with it (a `Path`; a text is JSON).  What is no such JSON is
    BAD_PARAM, a target that there is not NOT_SUPPORTED_ARCH_MISMATCH.
    """
    where = "device properties"
    kinds = (int, str, bytes, os.PathLike, type(None))
    _require(source, kinds, "an ordinal, JSON, or the path of a file with it", where)
    if source is None or isinstance(source, int):
        from ..runtime import driver

        device = driver.device(source)
        return DeviceProperties(
            device.name, device.capability, device.sm_count, device.max_dynamic_smem_bytes
        )
    if isinstance(source, os.PathLike):
        given.verify_path(source, where)
        where = str(source)
        try:
            source = Path(source).read_bytes()
        except OSError as error:
            what = f"can't be read: {error.strerror}"
            raise DnncError(Status.BAD_PARAM, what, "a JSON file", where) from error
    return _decoded(source, where)


def target_rows(target: str | os.PathLike[str] | DeviceProperties) -> tuple[Target, ...]:
    """The targets to compile for.

    target: names as `sm_80,sm_90a`; or a device, by its properties, their JSON (a text that begins
    with a brace) or the path of a file with it (a `Path`, or a text that ends in .json).
    """
    accepted = "names as sm_80,sm_90a, device properties, their JSON, or the path of a file with it"
    _require(target, (str, os.PathLike, DeviceProperties), accepted, "target")
    if isinstance(target, DeviceProperties):
        return (target.target,)
    if isinstance(target, str) and target.lstrip().startswith("{"):
        return (create_device_properties(target).target,)
    if isinstance(target, os.PathLike) or target.endswith(".json"):
        return (create_device_properties(Path(target)).target,)
    return targets.of_list(target)


def _require(value: object, kinds: tuple[type, ...], supported: str, where: str) -> None:
    """Callers are not all typed."""
    if not isinstance(value, kinds):
        raise DnncError(Status.BAD_PARAM, f"a {type(value).__name__}", supported, where)


def device_of(row: Target) -> DeviceProperties:
    """The device that a row of the targets describes."""
    return DeviceProperties(
        row.part, row.capability, row.sm_count, row.limits.smem_block_bytes, row.name
    )


def _decoded(text: str | bytes, where: str) -> DeviceProperties:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        accepted = (
            f'what DeviceProperties.serialize gives, or {{"dnnc_device": {VERSION}, "target": ...}}'
        )
        raise DnncError(Status.BAD_PARAM, f"not JSON: {error}", accepted, where) from error
    version = cast("dict[str, Any]", data).get("dnnc_device") if isinstance(data, dict) else None
    if version != VERSION:
        raise DnncError(Status.BAD_PARAM, f"dnnc_device = {version!r:.40}", f"{VERSION}", where)
    if data.keys() == {"dnnc_device", "target"}:
        if not isinstance(data["target"], str):
            raise DnncError(Status.BAD_PARAM, f"target = {data['target']!r:.40}", "a name", where)
        return device_of(targets.of(data["target"]))
    found = codec.decode(DeviceProperties, data, where)
    if min(found.sm_count, found.max_dynamic_smem_bytes) < 1:
        what = f"sm_count {found.sm_count}, max_dynamic_smem_bytes {found.max_dynamic_smem_bytes}"
        raise DnncError(Status.BAD_PARAM, what, "1 or more", where)
    return found
