"""Records what cudnn-frontend makes of every case into `recorded.json`.

    python -m tests.frontend_oracle.record

It needs no GPU, but the wheel nvidia-cudnn-frontend of VERSION and, on the library path, libcudnn,
libcudnn_graph and libcudnn_engines_runtime_compiled of a wheel nvidia-cudnn-cu12 or -cu13:

    pip download --no-deps nvidia-cudnn-frontend==1.32.0 nvidia-cudnn-cu12==9.19.0.56
    unzip nvidia_cudnn_frontend*.whl -d frontend
    unzip -j nvidia_cudnn_cu12*.whl '*/libcudnn.so.9' '*/libcudnn_graph.so.9' \\
        '*/libcudnn_engines_runtime_compiled.so.9' -d lib
    PYTHONPATH=.:frontend LD_LIBRARY_PATH=lib python -m tests.frontend_oracle.record

Nothing of them is needed to compare with what was recorded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import captured, methods, random_cases
from .steps import RECORDED, Module, expand, frontend, inner_graph, text_of

VERSION = "1.32.0"
CRASH = ["crash", "crash"]  # the step and the kind of what ends the process


def every_case() -> dict[str, Any]:
    """Every case by name, with its options and steps."""
    import cudnn

    def has_method(name: str) -> bool:
        return name.startswith("set_") or hasattr(cudnn.pygraph, name)

    found = {**methods.cases(), **captured.cases(has_method), **random_cases.cases()}
    for case in found.values():
        expand(case, found)
    return found


def outcome(case: Any) -> dict[str, Any]:
    """The frontend's outcome of a case: see `Module.outcome`.

    "inner": what its C++ graph infers, name by name, where `cudnn.pygraph` refuses the case
    before that is asked.
    """
    found = _apart(frontend, case)
    if "results" in found:
        return found
    inner = _apart(inner_graph, case).get("results")
    return {**found, "inner": inner} if inner else found


def _apart(module: Callable[[], Module], case: Any) -> dict[str, Any]:
    """The outcome of a case in a process of its own, since the frontend may end it."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, json.dumps(module().outcome(case)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": CRASH}


def record() -> str:
    """The text of the recorded file."""
    import cudnn

    assert cudnn.__version__ == VERSION, cudnn.__version__
    cases = {name: {**case, **outcome(case)} for name, case in every_case().items()}
    versions = {"frontend": cudnn.__version__, "library": cudnn.backend_version()}
    return text_of(versions, cases)


def main(path: Path = RECORDED) -> None:
    """Writes the file anew."""
    path.write_text(record())


if __name__ == "__main__":
    main()
