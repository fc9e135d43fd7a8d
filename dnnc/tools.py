"""The packages that a compilation depends on: their versions, and where NVIDIA's are."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
from pathlib import Path

PACKAGES = ("numba-cuda-mlir", "nvidia-nvjitlink", "nvidia-cuda-nvcc", "nvidia-nvvm")

_ERRATA = Path(__file__).with_name("errata.json")


@functools.cache
def versions() -> dict[str, str]:
    """Package -> version, "absent" where it is not installed; the hash of the package's errata."""
    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found | {"errata": hashlib.sha256(_ERRATA.read_bytes()).hexdigest()[:12]}


def nvidia_folders() -> list[Path]:
    """The folders of NVIDIA's packages."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
