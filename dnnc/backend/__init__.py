"""cuDNN's backend API: operation graphs, engines and plans through descriptors.

    from dnnc import backend
    from dnnc.backend import *

    x = create_descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
    set_attribute(x, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 3, [1, 128, 64])
    ...
    finalize(x)

The calls are those of the C API, named as cudnn-frontend names them: `cudnnBackendFinalize` is
`finalize`.  A status other than success is a `dnnc.DnncError` that has it.  Enumerators have the
names and values of cuDNN 9.19, and are names of this module.  docs/backend.md tells the rules.
Importing it loads no compiler.
"""

from __future__ import annotations

from typing import Any

from ..errors import DnncError, Status
from . import enums
from .descriptor import Attributes, Descriptor, require_descriptor
from .enums import CONSTANTS, ENUMERATIONS
from .kinds import KINDS
from .plans import run
from .tables import kind_of

_NAMES: dict[str, Any] = {**CONSTANTS, **{kind.__name__: kind for kind in ENUMERATIONS}}


def __getattr__(name: str) -> Any:
    """The enumerators of cuDNN, and their enumerations."""
    if name in _NAMES:
        return _NAMES[name]
    raise AttributeError(f"module 'dnnc.backend' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])


def create_descriptor(descriptor_type: int) -> Descriptor:
    """A new descriptor, open: cudnnBackendCreateDescriptor.

    descriptor_type: CUDNN_BACKEND_*_DESCRIPTOR.  What is no such enumerator is BAD_PARAM; one of
    a cuDNN after 9.19 is NOT_SUPPORTED.
    """
    known = enums.cudnnBackendDescriptorType_t
    if type(descriptor_type) not in (int, known):
        raise DnncError(
            Status.BAD_PARAM, f"{descriptor_type!r:.40}", "CUDNN_BACKEND_*_DESCRIPTOR", "create"
        )
    kind = next((made for number, made in KINDS.items() if number == descriptor_type), None)
    if kind is None:
        what = f"descriptor type {int(descriptor_type)}"
        raise DnncError(Status.NOT_SUPPORTED, what, f"0 to {max(known)}", "create")
    return Descriptor(kind)


def set_attribute(
    descriptor: Descriptor,
    attribute_name: int,
    attribute_type: int,
    element_count: int,
    array_of_elements: Any,
) -> None:
    """Sets an attribute of an open descriptor: cudnnBackendSetAttribute.

    array_of_elements: a list of at least `element_count` elements, or the element itself where
    there is one; text for CUDNN_TYPE_CHAR; lists or numbers as `attribute_type` says.
    NOT_INITIALIZED: it is finalized.  BAD_PARAM and its kinds: no such attribute, one that can't
    be set, another type, another count, or wrong values.  NOT_SUPPORTED: the attribute is not.
    """
    found = require_descriptor(descriptor)
    found.set(attribute_name, attribute_type, element_count, array_of_elements)


def finalize(descriptor: Descriptor) -> None:
    """Checks what is set and closes the descriptor: cudnnBackendFinalize.

    An error leaves it open, as it was.  BAD_PARAM: attributes that are missing or do not fit, or
    it is finalized.  NOT_SUPPORTED and its kinds: what dnnc does not take, with the reasons.
    """
    require_descriptor(descriptor).finalize()


def get_attribute(
    descriptor: Descriptor,
    attribute_name: int,
    attribute_type: int,
    requested_element_count: int | None = None,
    array_of_elements: Any = None,
) -> Attributes:
    """(element_count, elements) of a finalized descriptor: cudnnBackendGetAttribute.

    element_count: how many the attribute has, 0 if it is not set.  elements: the first
    `requested_element_count` of them (None: all).
    array_of_elements: of descriptors, as C takes them: open descriptors of the right type, which
    become the elements.  Without it the elements are new descriptors.
    NOT_INITIALIZED: it is not finalized.  BAD_PARAM and its kinds: no such attribute, another
    type.  NOT_SUPPORTED: the attribute is not.
    """
    found = require_descriptor(descriptor)
    return found.get(attribute_name, attribute_type, requested_element_count, array_of_elements)


def destroy_descriptor(descriptor: Descriptor) -> None:
    """Frees what a descriptor holds: cudnnBackendDestroyDescriptor.

    What was finalized with it stays as it is.  Any later use of it is BAD_PARAM.
    """
    require_descriptor(descriptor).destroy()


def execute(handle: Any, execution_plan: Descriptor, variant_pack: Descriptor) -> None:
    """Launches a finalized plan on the handle's stream: cudnnBackendExecute.

    Buffers of the pack are device addresses, or arrays that have one (PyTorch, CuPy, ...), which
    are then checked against the plan; those of by-value tensors are numbers.
    BAD_PARAM and its kinds: a buffer that is missing, unknown or does not fit.
    """
    run(handle, execution_plan, variant_pack)


def operation_graph(descriptor: Descriptor) -> Any:
    """The `dnnc.OperationGraph` of a finalized operation graph, for `dnnc.reference` and others."""
    kinds = [kind_of("OPERATIONGRAPH")]
    return require_descriptor(descriptor, kinds).record("operation_graph").payload.graph


def execution_plan(descriptor: Descriptor) -> Any:
    """The `dnnc.runtime.ExecutionPlan` of a finalized plan; `.plan` is what files hold."""
    kinds = [kind_of("EXECUTION_PLAN")]
    return require_descriptor(descriptor, kinds).record("execution_plan").payload


__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "Attributes",
    "Descriptor",
    "create_descriptor",
    "destroy_descriptor",
    "execute",
    "execution_plan",
    "finalize",
    "get_attribute",
    "operation_graph",
    "set_attribute",
    *_NAMES,
]
