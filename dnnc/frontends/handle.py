"""Handles: a stream and a device, under cudnn-frontend's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import given
from ..errors import DnncError, DnncTypeError, Status


@dataclass(eq=False)
class Handle:
    """Where a graph's plans run; two handles are the same only if they are the same object.

    stream: a CUDA stream handle, 0 for the default stream.  device: an ordinal, None for the
    device of the current context.
    """

    stream: int = 0
    device: int | None = None
    is_open: bool = True


@given.checked
def create_handle(device: int | None = None) -> Handle:
    """A handle on the default stream of a device (default: the current one)."""
    if device is not None and device < 0:
        raise DnncError(Status.BAD_PARAM, f"device {device}", "0 or more, or None")
    return Handle(device=device)


def destroy_handle(handle: Handle) -> None:
    """Closes a handle; using it afterwards is an error."""
    _verified(handle).is_open = False


def set_stream(handle: Handle, stream: Any) -> None:
    """Makes later executions with the handle launch on a stream.

    stream: a `torch.cuda.Stream`, an object with `__cuda_stream__`, a stream of CuPy or
    cuda-bindings, an integer handle, or None: the legacy default stream.
    """
    from ..runtime.streams import handle_of

    _verified(handle).stream = handle_of(stream)


def get_stream(handle: Handle) -> int:
    """The stream of a handle."""
    return _verified(handle).stream


def _verified(handle: object) -> Handle:
    if not isinstance(handle, Handle):
        what = f"a {type(handle).__name__} is no handle"
        raise DnncTypeError(Status.BAD_PARAM, what, "what create_handle() makes")
    if not handle.is_open:
        raise DnncError(Status.BAD_PARAM, "the handle was destroyed", "a handle that is open")
    return handle
