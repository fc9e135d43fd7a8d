"""The target of a graph: a target or a device that it names, else the one here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import target as targets
from ..errors import DnncError, Status
from ..target import Target
from .device_properties import DeviceProperties, device_of, target_rows


@dataclass(frozen=True)
class AskedTarget:
    """The request for a target; of target, device and sm_version the first that is not None counts.

    target: by name, several by commas.  sm_version: 90 or 900 for Hopper.  sm_count:
    SMs, in place of the target's.
    """

    target: str | None = None
    device: DeviceProperties | None = None
    sm_version: int | None = None
    sm_count: int | None = None

    @property
    def named(self) -> str | DeviceProperties | None:
        """The target as `dnnc.compile` takes it; None: the device here.

        With `sm_count`, one target is a device that has so many SMs.
        """
        named, sm_count = self._named(), self._asked_sm_count()
        rows = target_rows(named) if named is not None and sm_count else ()
        return device_of(replace(rows[0], sm_count=sm_count)) if len(rows) == 1 else named

    def rows(self, ordinal: int | None) -> tuple[Target, ...]:
        """The targets.  ordinal: of the device that is here."""
        rows = self._asked_rows(ordinal)
        return tuple(targets.with_sm_count(row, self._asked_sm_count()) for row in rows)

    def _asked_rows(self, ordinal: int | None) -> tuple[Target, ...]:
        if (named := self.named) is not None:
            return target_rows(named)
        from ..runtime import driver

        return (targets.of_capability(*driver.device(ordinal).capability),)

    def _named(self) -> str | DeviceProperties | None:
        if self.target is not None:
            return self.target
        if self.device is not None:
            return self.device
        if self.sm_version is None:
            return None
        version = self.sm_version // 10 if self.sm_version >= 500 else self.sm_version
        return targets.of_capability(version // 10, version % 10).name

    def _asked_sm_count(self) -> int:
        """The SMs asked for; 0: none."""
        if self.sm_count is not None and self.sm_count < 1:
            raise DnncError(Status.BAD_PARAM, f"sm_count={self.sm_count}", "1 or more")
        return self.sm_count or 0
