"""Disassembles a cubin with NVIDIA's tools, where one is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from .. import tools
from ..errors import DnncError, Status

# Tool -> its arguments before the cubin, in the order in which they are tried.
_TOOLS = {"nvdisasm": ("-c",), "cuobjdump": ("-sass",)}


def disassembled(cubin: bytes) -> str:
    """The SASS of a cubin."""
    name, tool = find_tool()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.cubin")
        path.write_bytes(cubin)
        done = subprocess.run(
            [tool, *_TOOLS[name], str(path)], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise DnncError(
            Status.INTERNAL_ERROR,
            f"{name} ended with status {done.returncode}: {done.stderr.strip()[:500]}",
            "a cubin that it knows the architecture of",
            tool,
        )
    return done.stdout


def find_tool() -> tuple[str, str]:
    """(name, path) of a disassembler: of NVIDIA's Python packages, else of the PATH."""
    for name in _TOOLS:
        for folder in tools.nvidia_folders():
            for found in sorted(folder.glob(f"*/bin/{name}")):
                return name, str(found)
        found = shutil.which(name)
        if found:
            return name, found
    raise DnncError(
        Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
        "no disassembler: neither nvdisasm nor cuobjdump is installed or on the PATH",
        "pip install nvidia-cuda-nvdisasm (or nvidia-cuda-cuobjdump, or the CUDA toolkit)",
        "--sass",
    )
