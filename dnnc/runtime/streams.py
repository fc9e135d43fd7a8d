# pyright: basic
"""Handles of CUDA streams, from what libraries call a stream."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from .. import given
from ..errors import DnncError, Status

# CUDA driver API: the legacy default stream.
DEFAULT_STREAM = 0

_WORD = 1 << 64
_WANTED = (
    "None for the legacy default stream, an integer handle, an object with __cuda_stream__, "
    "a stream of PyTorch (torch.cuda.Stream), CuPy or cuda-bindings"
)


def handle_of(stream: Any) -> int:
    """The integer handle of a stream; what is no stream is BAD_PARAM.

    stream: None (the legacy default stream), an integer handle, an object with `__cuda_stream__`
    (CUDA Python's protocol: a method that returns (0, handle)), a `torch.cuda.Stream`, a stream of
    CuPy, or a CUstream or cudaStream_t of cuda-bindings.
    """
    if stream is None:
        return DEFAULT_STREAM
    try:
        found = _said(stream)
    except DnncError:
        raise
    except Exception as error:  # of the stream's own library
        raise DnncError(
            Status.BAD_PARAM,
            f"a {type(stream).__name__} that can't be read: {type(error).__name__}: {error}",
            _WANTED,
            "stream",
        ) from error
    if not given.is_integer(found) or not 0 <= found < _WORD:
        raise given.error(stream, _WANTED, "stream")
    return operator.index(found)


def _said(stream: Any) -> Any:
    """The handle that a stream says it has; the value itself where it is no library's stream."""
    if hasattr(stream, "__cuda_stream__"):
        version, handle = stream.__cuda_stream__()
        if version != 0:
            what = f"version {version!r:.40} of __cuda_stream__"
            raise DnncError(Status.BAD_PARAM, what, "version 0", "stream")
        return handle
    reader = _reader_of(type(stream))
    return stream if reader is None else reader(stream)


@functools.cache
def _reader_of(kind: type) -> Callable[[Any], Any] | None:
    """A reader of the handle of a library's stream class; None for other classes.

    Classes are told by their modules: CuPy's memory has an attribute `ptr` too.
    """
    for base in kind.__mro__:
        module, name = base.__module__, base.__name__
        if module.partition(".")[0] == "torch":
            return operator.attrgetter("cuda_stream")
        if module.startswith(("cupy.cuda.stream", "cupy_backends.cuda.stream")):
            return operator.attrgetter("ptr")
        if module.startswith("cuda.bindings") and name in ("CUstream", "cudaStream_t"):
            return int
    return None
