"""`import cudnn` that finds `dnnc.cudnn`."""

from __future__ import annotations

import importlib
import sys

from ..errors import DnncRuntimeError, Status

_PARTS = ("datatypes", "wrapper", "experimental", "experimental.ops")


def install() -> None:
    """Makes `import cudnn` of this process find `dnnc.cudnn`, and its parts.

    A `cudnn` that was imported before is a RuntimeError: who imported it keeps it.
    """
    package = __package__
    assert package is not None, "a module of a package"
    own = importlib.import_module(package)
    known = sys.modules.get("cudnn")
    if known is not None and known is not own:
        what = f"cudnn is imported already, from {getattr(known, '__file__', 'elsewhere')}"
        raise DnncRuntimeError(Status.BAD_PARAM, what, "install() before any import of it")
    sys.modules["cudnn"] = own
    for part in _PARTS:
        sys.modules[f"cudnn.{part}"] = importlib.import_module(f"{package}.{part}")
