"""Every operation, in the order of the docs.  A new one is a file here and its line below."""

from __future__ import annotations

from ..op import Op
from .conv import ConvFprop
from .matmul import Matmul
from .moe_grouped_matmul import MoeGroupedMatmul
from .norm import Layernorm
from .pointwise import Pointwise
from .reduction import Reduction
from .views import Concatenate, Reshape, Slice, Transpose

OPS: tuple[type[Op], ...] = (
    Matmul,
    MoeGroupedMatmul,
    Pointwise,
    Reduction,
    Transpose,
    Slice,
    Reshape,
    Concatenate,
    ConvFprop,
    Layernorm,
)

BY_NAME = {op.op_name: op for op in OPS}
