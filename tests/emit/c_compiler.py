"""The C and C++ compilers of this machine, and where cuda.h is."""

import functools
import importlib.metadata
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OWN_INCLUDE = HERE / "include"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


@functools.cache
def cuda_include():
    """The folder of cuda.h in the package nvidia-cuda-runtime, which comes with the compiler's
    extra; None where that is not installed."""
    try:
        files = importlib.metadata.files("nvidia-cuda-runtime") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [Path(str(file.locate())) for file in files if file.name == "cuda.h"]
    return found[0].parent if found and found[0].exists() else None


def include():
    """The folder of cuda.h: CUDA's own, or that of the tests."""
    return cuda_include() or OWN_INCLUDE


def compiler(*names):
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"no {names[0]}")
    return found


def c(*arguments, options=STRICT, folder=None):
    """Runs the C compiler; a warning is an error.  folder: of cuda.h."""
    run(compiler("cc", "gcc", "clang"), options, folder, arguments)


def cpp(*arguments, options=("-std=c++11", *STRICT[1:]), folder=None):
    """Runs the C++ compiler."""
    run(compiler("c++", "g++", "clang++"), options, folder, arguments)


def run(program, options, folder, arguments):
    # CUDA's header is no C99: as a system's, it is not judged.
    command = [program, *options, "-isystem", folder or include(), *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
