# pyright: basic
"""Array libraries that allocate what a call of a plan returns: PyTorch, CuPy and JAX.

A library is imported by whoever made the arrays; nothing here imports one.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from ..dtypes import DType
from ..errors import DnncError, Status
from .streams import DEFAULT_STREAM


class Wanted(NamedTuple):
    """An array to allocate.

    strides: in elements.  bytes: from its first to its last element.  where: what it is for.
    """

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    bytes: int
    where: str


class Library:
    """An array library by the name of its module.

    waits: whether a call has to be finished when it returns, since the library shows no stream.
    """

    waits = False

    def __init__(self, name: str):
        self.name = name

    @property
    def module(self) -> Any:
        return sys.modules[self.name]

    def prepare(self, arrays: Iterable[Any]) -> None:
        """Refuses arrays that may not be read now, or waits until they may."""

    def current_stream(self, device: int) -> int:
        """The handle of the stream that the library's own operations run on."""
        raise NotImplementedError

    def on(self, stream: int, device: int) -> AbstractContextManager[Any]:
        """Inside, what is allocated belongs to a stream: its memory is used again in its order."""
        raise NotImplementedError

    def empty(self, wanted: Wanted, device: int) -> Any:
        """A new array."""
        raise NotImplementedError


class _Torch(Library):
    def prepare(self, arrays: Iterable[Any]) -> None:
        if not self.module.is_grad_enabled():
            return
        for array in arrays:
            if getattr(array, "requires_grad", False):
                raise DnncError(
                    Status.NOT_SUPPORTED,
                    f"a tensor of dims {list(array.shape)} that requires a gradient: plans give "
                    "none",
                    "tensor.detach(), or a call under torch.no_grad()",
                    "call of a plan",
                )

    def current_stream(self, device: int) -> int:
        return self.module.cuda.current_stream(device).cuda_stream

    def on(self, stream: int, device: int) -> AbstractContextManager[Any]:
        cuda = self.module.cuda
        if stream == self.current_stream(device):
            return contextlib.nullcontext()
        is_default = stream == DEFAULT_STREAM
        return cuda.stream(
            cuda.default_stream(device) if is_default else cuda.ExternalStream(stream, device)
        )

    def empty(self, wanted: Wanted, device: int) -> Any:
        return self.module.empty_strided(
            wanted.dims, wanted.strides,
            dtype=getattr(self.module, wanted.dtype.numpy_name),
            device=self.module.device("cuda", device),
        )  # fmt: skip


class _CuPy(Library):
    def current_stream(self, device: int) -> int:
        with self.module.cuda.Device(device):
            return self.module.cuda.get_current_stream().ptr

    @contextlib.contextmanager
    def on(self, stream: int, device: int):
        cuda = self.module.cuda
        with cuda.Device(device):
            with cuda.Stream.null if stream == DEFAULT_STREAM else cuda.ExternalStream(stream):
                yield

    def empty(self, wanted: Wanted, device: int) -> Any:
        dtype = wanted.dtype.numpy
        strides = [stride * dtype.itemsize for stride in wanted.strides]
        with self.module.cuda.Device(device):
            memory = self.module.cuda.alloc(wanted.bytes)
            return self.module.ndarray(wanted.dims, dtype, memptr=memory, strides=strides)


class _Jax(Library):
    """JAX has no strides, and shows no stream: a call waits for the arrays before it and for the
    device after it."""

    waits = True

    def prepare(self, arrays: Iterable[Any]) -> None:
        for array in arrays:
            if hasattr(array, "block_until_ready"):
                array.block_until_ready()

    def current_stream(self, device: int) -> int:
        return DEFAULT_STREAM

    def on(self, stream: int, device: int) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def empty(self, wanted: Wanted, device: int) -> Any:
        if not _is_packed(wanted.dims, wanted.strides):
            what = f"strides {list(wanted.strides)}"
            raise DnncError(Status.NOT_SUPPORTED_LAYOUT, what, "row-major in JAX", wanted.where)
        (place,) = [d for d in self.module.local_devices() if d.local_hardware_id == device]
        made = self.module.numpy.empty(wanted.dims, dtype=wanted.dtype.numpy, device=place)
        return made.block_until_ready()  # JAX fills it, on a stream of its own


def _is_packed(dims: Sequence[int], strides: Sequence[int]) -> bool:
    running = 1
    for extent, stride in zip(reversed(dims), reversed(strides), strict=True):
        if extent > 1 and stride != running:
            return False
        running *= extent
    return True


_JAX = _Jax("jax")
# By the module that has the class of an array.
_LIBRARIES = {"torch": _Torch("torch"), "cupy": _CuPy("cupy"), "jax": _JAX, "jaxlib": _JAX}


@functools.cache
def library_of(kind: type) -> Library | None:
    """The library that a class of arrays is of; None where it is none that allocates here."""
    names = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((_LIBRARIES[name] for name in names if name in _LIBRARIES), None)


def allocated(library: Library, wanted: Wanted, device: int) -> Any:
    """A new array of a library; what it can't allocate is an error that says why."""
    try:
        return library.empty(wanted, device)
    except DnncError:
        raise
    except Exception as error:  # of the library: no memory, or no such data type
        raise DnncError(
            Status.INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
            f"{library.name} can't allocate {wanted.dtype} {list(wanted.dims)}: "
            f"{type(error).__name__}: {error}",
            "outputs=... or workspace=... of the caller's own",
            wanted.where,
        ) from error
