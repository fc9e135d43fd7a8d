"""Every kind of descriptor."""

from __future__ import annotations

from .caches import KERNEL_CACHE
from .choices import (
    ENGINE,
    ENGINECFG,
    ENGINEHEUR,
    INTERMEDIATE_INFO,
    KNOB_CHOICE,
    KNOB_INFO,
    LAYOUT_INFO,
)
from .descriptor import Kind
from .devices import DEVICEPROP
from .enums import cudnnBackendDescriptorType_t as DescriptorType
from .foreign import foreign_kinds
from .graphs import OPERATIONGRAPH
from .operations import derived_kinds
from .plans import EXECUTION_PLAN, VARIANT_PACK
from .tensors import TENSOR

_OTHERS = (
    TENSOR,
    OPERATIONGRAPH,
    ENGINE,
    ENGINECFG,
    ENGINEHEUR,
    KNOB_INFO,
    KNOB_CHOICE,
    LAYOUT_INFO,
    INTERMEDIATE_INFO,
    EXECUTION_PLAN,
    VARIANT_PACK,
    KERNEL_CACHE,
    DEVICEPROP,
)

# Operations of the dialect come after those that it has not, and so in their place.
KINDS: dict[DescriptorType, Kind] = {
    **{made.type: made for made in _OTHERS},
    **foreign_kinds(),
    **derived_kinds(),
}
