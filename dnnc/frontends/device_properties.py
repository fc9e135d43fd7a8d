"""Device properties: what a compilation has to know of a device that is not here."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from .. import target as targets
from ..errors import DnncError, Status
from ..plan import codec
from ..target import Target

VERSION = 1


@dataclass(frozen=True)
class DeviceProperties:
    """A device.

    name: as the driver says.  capability: compute capability (major, minor).  sm_count: its
    multiprocessors.  max_dynamic_smem_bytes: dynamic shared memory that a block may have.
    """

    name: str
    capability: tuple[int, int]
    sm_count: int
    max_dynamic_smem_bytes: int

    @property
    def target(self) -> Target:
        """What is compiled for it by default, with its own number of multiprocessors."""
        return replace(targets.of_capability(*self.capability), sm_count=self.sm_count)

    @property
    def variables(self) -> dict[str, int]:
        """What expressions of a plan may name beside its symbols."""
        return {
            "sm_count": self.sm_count,
            "max_dynamic_smem_bytes": self.max_dynamic_smem_bytes,
        }

    def serialize(self) -> str:
        """Its JSON, for `create_device_properties` on another machine."""
        return json.dumps({"dnnc_device": VERSION, **codec.encode(self)}, sort_keys=True)


def create_device_properties(
    source: int | str | bytes | os.PathLike[str] | None = None,
) -> DeviceProperties:
    """The properties of a device that is here, or those that were written down elsewhere.

    source: an ordinal (default: the current device), the JSON that `serialize` gave, or the path
    of a file with it (a `Path`; a text is JSON).  What is no such JSON is BAD_PARAM.
    """
    if source is None or isinstance(source, int):
        from ..runtime import driver

        device = driver.device(source)
        return DeviceProperties(
            device.name, device.capability, device.sm_count, device.max_dynamic_smem_bytes
        )
    where = "device properties"
    if isinstance(source, os.PathLike):
        where = str(source)
        try:
            source = Path(source).read_bytes()
        except OSError as error:
            what = f"can't be read: {error.strerror}"
            raise DnncError(Status.BAD_PARAM, what, "a JSON file", where) from error
    return _decoded(source, where)


def _decoded(text: str | bytes, where: str) -> DeviceProperties:
    try:
        data = json.loads(text)
    except ValueError as error:
        accepted = "what DeviceProperties.serialize gives"
        raise DnncError(Status.BAD_PARAM, f"not JSON: {error}", accepted, where) from error
    version = cast("dict[str, Any]", data).get("dnnc_device") if isinstance(data, dict) else None
    if version != VERSION:
        raise DnncError(Status.BAD_PARAM, f"dnnc_device = {version!r:.40}", f"{VERSION}", where)
    found = codec.decode(DeviceProperties, data, where)
    if min(found.sm_count, found.max_dynamic_smem_bytes) < 1:
        what = f"sm_count {found.sm_count}, max_dynamic_smem_bytes {found.max_dynamic_smem_bytes}"
        raise DnncError(Status.BAD_PARAM, what, "1 or more", where)
    return found
