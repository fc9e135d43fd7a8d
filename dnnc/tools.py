"""Versions of the packages that a compilation depends on."""

from __future__ import annotations

import functools
import importlib.metadata

PACKAGES = ("numba-cuda-mlir", "nvidia-nvjitlink", "nvidia-cuda-nvcc", "nvidia-nvvm")


@functools.cache
def versions() -> dict[str, str]:
    """Package -> version, "absent" where it is not installed."""
    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found
