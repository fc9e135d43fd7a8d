# pyright: basic
"""The terms of an operation's sums, and the types that they are taken in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import dtypes
from ..dialect.op import Op
from ..dialect.ops.conv import Convolution
from ..dialect.tensor import Tensor
from ..dtypes import DType

# Of a number of full precision that is rounded to nearest, at most, relative to it.
ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-11, "f8E4M3FN": 2.0**-4, "f8E5M2": 2.0**-3}
# Operations whose sums are over the last axis of their first operand.
_PRODUCTS = ("matmul", "moe_grouped_matmul")
_IN_TENSOR_CORES = (*_PRODUCTS, "conv_fprop")
# Those whose products of fp8 are summed in the tensor cores.
_OF_FP8 = (*_IN_TENSOR_CORES, "conv_dgrad", "conv_wgrad")


def taken_as(op: Op, computed: set[Tensor], own: set[Tensor]) -> DType | None:
    """The type that a product takes a computed operand in, which the graph does not round to it.

    own: the graph's tensors; those of steps that an operation stands for are not rounded so in
    `reference`, even where they say so.
    """
    if op.op_name not in _IN_TENSOR_CORES:
        return None
    a, b = op.operands[:2]
    for tensor, other in ((a, b), (b, a)):
        if tensor in computed and tensor.type.is_float:
            if other.type.name in ROUNDING and other.type.bits < tensor.type.bits:
                return other.type
            if tensor.type.name in ROUNDING and tensor not in own:
                return tensor.type
    return None


def fp8_steps(op: Op, sizes: Mapping[str, int]) -> int:
    """Additions of 32 products each in the tensor cores' own accumulators.

    Where the compute type asks for f32, that is of four of them, and the sums of those are exact.
    """
    if op.op_name not in _OF_FP8 or not op.operands[0].type.is_fp8:
        return 0
    steps = -(-terms_of_sums(op, sizes) // 32)
    return steps if compute_type_of(op) == dtypes.fast_float_for_fp8 else min(4, steps)


def compute_type_of(op: Op) -> DType | None:
    return op.attributes().get("compute_type")


def terms_of_sums(op: Op, sizes: Mapping[str, int]) -> int:
    """Terms of each of an operation's sums; 0 where it has none."""

    def elements(tensors: Sequence[Tensor]) -> int:
        return max(tensor.elements().evaluate(sizes) for tensor in tensors)

    if op.op_name in _PRODUCTS:
        return op.operands[0].shape[-1].evaluate(sizes)
    if isinstance(op, Convolution):
        return op.terms.evaluate(sizes)
    if op.role in ("reduction", "anchor"):
        return elements(op.operands) // max(1, elements(op.results))
    return 0
