"""Statuses and the one error type of dnnc.

Status names and values are those of cuDNN 9 (`cudnnStatus_t`, cuDNN 9.19 graph API).
Every error has a status, what was wrong, what would be accepted, and where.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from .places import Place
from .visible import visible


class Status(IntEnum):
    """cuDNN 9 status codes, without the `CUDNN_STATUS_` prefix."""

    SUCCESS = 0
    NOT_INITIALIZED = 1001
    SUBLIBRARY_VERSION_MISMATCH = 1002
    SERIALIZATION_VERSION_MISMATCH = 1003
    DEPRECATED = 1004
    LICENSE_ERROR = 1005
    RUNTIME_IN_PROGRESS = 1006
    RUNTIME_FP_OVERFLOW = 1007
    SUBLIBRARY_LOADING_FAILED = 1008
    BAD_PARAM = 2000
    BAD_PARAM_NULL_POINTER = 2002
    BAD_PARAM_MISALIGNED_POINTER = 2003
    BAD_PARAM_NOT_FINALIZED = 2004
    BAD_PARAM_OUT_OF_BOUND = 2005
    BAD_PARAM_SIZE_INSUFFICIENT = 2006
    BAD_PARAM_STREAM_MISMATCH = 2007
    BAD_PARAM_SHAPE_MISMATCH = 2008
    BAD_PARAM_DUPLICATED_ENTRIES = 2009
    BAD_PARAM_ATTRIBUTE_TYPE = 2010
    BAD_PARAM_CUDA_GRAPH_MISMATCH = 2011
    BAD_PARAM_DESCRIPTOR_TYPE = 2012
    NOT_SUPPORTED = 3000
    NOT_SUPPORTED_GRAPH_PATTERN = 3001
    NOT_SUPPORTED_SHAPE = 3002
    NOT_SUPPORTED_DATA_TYPE = 3003
    NOT_SUPPORTED_LAYOUT = 3004
    NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER = 3005
    NOT_SUPPORTED_INCOMPATIBLE_CUDART = 3006
    NOT_SUPPORTED_ARCH_MISMATCH = 3007
    NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING = 3008
    NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE = 3009
    NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT = 3010
    NOT_SUPPORTED_PADDING = 3011
    NOT_SUPPORTED_BAD_LAUNCH_PARAM = 3012
    NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API = 3013
    NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE = 3014
    INTERNAL_ERROR = 4000
    INTERNAL_ERROR_COMPILATION_FAILED = 4001
    INTERNAL_ERROR_UNEXPECTED_VALUE = 4002
    INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003
    INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 4004
    INTERNAL_ERROR_BAD_LAUNCH_PARAM = 4005
    INTERNAL_ERROR_TEXTURE_CREATION_FAILED = 4006
    EXECUTION_FAILED = 5000
    EXECUTION_FAILED_CUDA_DRIVER = 5001
    EXECUTION_FAILED_CUBLAS = 5002
    EXECUTION_FAILED_CUDART = 5003
    EXECUTION_FAILED_CURAND = 5004

    @property
    def category(self) -> Status:
        """The status of the thousands: BAD_PARAM for BAD_PARAM_SHAPE_MISMATCH."""
        return Status(self // 1000 * 1000) if self >= 2000 else self


# Names of the 8.x library, for readers of its reference, and what 9.x calls them.
STATUS_OF_CUDNN8 = {
    "SUCCESS": Status.SUCCESS,
    "NOT_INITIALIZED": Status.NOT_INITIALIZED,
    "ALLOC_FAILED": Status.INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
    "BAD_PARAM": Status.BAD_PARAM,
    "INTERNAL_ERROR": Status.INTERNAL_ERROR,
    "INVALID_VALUE": Status.BAD_PARAM,
    "ARCH_MISMATCH": Status.NOT_SUPPORTED_ARCH_MISMATCH,
    "MAPPING_ERROR": Status.INTERNAL_ERROR_TEXTURE_CREATION_FAILED,
    "EXECUTION_FAILED": Status.EXECUTION_FAILED,
    "NOT_SUPPORTED": Status.NOT_SUPPORTED,
    "LICENSE_ERROR": Status.LICENSE_ERROR,
    "RUNTIME_PREREQUISITE_MISSING": Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
    "RUNTIME_IN_PROGRESS": Status.RUNTIME_IN_PROGRESS,
    "RUNTIME_FP_OVERFLOW": Status.RUNTIME_FP_OVERFLOW,
    "VERSION_MISMATCH": Status.SUBLIBRARY_VERSION_MISMATCH,
}


class DnncError(Exception):
    """An error of dnnc.

    status: a `Status`.  what: what was wrong, with the values.  supported: what would be
    accepted ("" when nothing would).  where: op name, uid, constraint, file ("" when global).
    Of a `what` of several lines the first sums it up; what would be accepted is a line after them.
    made_at: the line of the user's program that made what the error is about, if it is known.
    details: the whole of what `what` sums up, as lines ("" when `what` is all).

    `DnncError(status, ...)` makes the subclass that `ERROR_CLASSES` names for the status.
    """

    def __new__(cls, status: Status, *others: Any, **named: Any) -> DnncError:
        chosen = error_class(status) if cls is DnncError else cls
        return Exception.__new__(chosen)

    def __init__(
        self,
        status: Status,
        what: str,
        supported: str = "",
        where: str = "",
        *,
        made_at: Place | None = None,
        details: str = "",
    ):
        super().__init__(status, what, supported, where)
        self.status = status
        self.what = what
        self.supported = supported
        self.where = where
        self.made_at = made_at
        self.details = details

    @property
    def summary(self) -> str:
        """The text without the hint at `details`."""
        place = "".join(f"{part}: " for part in (self.made_at, self.where) if part)
        separator = "\n" if "\n" in self.what else "; "
        accepted = f"{separator}accepted: {self.supported}" if self.supported else ""
        return visible(f"{self.status.name}: {place}{self.what}{accepted}")

    def __str__(self) -> str:
        hint = "\nhint: the error's `details` list the rest" if self.details else ""
        return f"{self.summary}{hint}"


class cudnnGraphNotSupportedError(DnncError):
    """The graph is valid but no engine takes it (the name is cudnn-frontend's)."""


class DnncValueError(DnncError, ValueError):
    """A wrong attribute, shape or variant pack."""


class DnncTypeError(DnncError, TypeError):
    """A value of a type that nothing takes in its place."""


class DnncRuntimeError(DnncError, RuntimeError):
    """A failed execution, compilation, driver call, handle or device."""


# Which Python class an error has: cudnn-frontend raises ValueError for attributes, shapes,
# names and variant packs, its own class for graphs nobody takes, RuntimeError for the rest.
# The first row whose status equals the error's status or its category wins.
ERROR_CLASSES: tuple[tuple[Status, type[DnncError]], ...] = (
    (Status.NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER, DnncRuntimeError),
    (Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, DnncRuntimeError),
    (Status.BAD_PARAM_NOT_FINALIZED, DnncRuntimeError),
    (Status.BAD_PARAM, DnncValueError),
    (Status.NOT_SUPPORTED, cudnnGraphNotSupportedError),
)


def error_class(status: Status) -> type[DnncError]:
    """The Python class of an error with this status."""
    for row, chosen in ERROR_CLASSES:
        if status in (row,) or status.category is row:
            return chosen
    return DnncRuntimeError
