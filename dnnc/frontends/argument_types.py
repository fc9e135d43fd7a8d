"""Types of the arguments of a pygraph's operation methods, as their annotations name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex, TypeAlias

from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..expr import Size
from . import enums

if TYPE_CHECKING:
    from .graph_tensor import GraphTensor
    from .pygraph import pygraph


class ArrayType(Protocol):
    """A data type of NumPy, ml_dtypes or PyTorch."""

    @property
    def itemsize(self) -> int: ...


# A data type, its name (ours or cuDNN's, in any case of letters), a dtype or a scalar class.
DataType: TypeAlias = DType | str | ArrayType | type[Any]
# A tensor of the graph, or a number, which becomes a constant.
Operand: TypeAlias = Tensor | float
Tensors: TypeAlias = Iterable[Tensor]
Sizes: TypeAlias = Iterable[Size]
Integers: TypeAlias = Iterable[SupportsIndex]
# One for each spatial axis, or one for all.
Spatial: TypeAlias = SupportsIndex | Integers
# Numbers of a resampling: a number for all spatial axes, or numbers or (numerator, denominator).
Fractions: TypeAlias = float | Fraction | Iterable[float | Fraction | Sequence[int]]
Slices: TypeAlias = Sequence[slice]
# A function of the graph and the scaled scores, which makes other scores.
ScoreModification: TypeAlias = Callable[["pygraph", "GraphTensor"], "GraphTensor"]
# (probability, seed, offset), or (mask, scale).
Dropout: TypeAlias = (
    tuple[float, Tensor | int, Tensor | int] | tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]
)

# ---- names of modes: an enumerator, or its text

ReductionMode: TypeAlias = (
    enums.reduction_mode
    | Literal["add", "mul", "min", "max", "amax", "avg", "norm1", "norm2", "mul_no_zeros"]
    | Literal["ADD", "MUL", "MIN", "MAX", "AMAX", "AVG", "NORM1", "NORM2", "MUL_NO_ZEROS"]
)
ReshapeMode: TypeAlias = enums.reshape_mode | Literal["VIEW_ONLY", "LOGICAL"]
ConvolutionMode: TypeAlias = enums.convolution_mode | Literal["CROSS_CORRELATION", "CONVOLUTION"]
GroupedMatmulMode: TypeAlias = (
    enums.moe_grouped_matmul_mode | Literal["NONE", "GATHER", "SCATTER", "COMBINE"]
)
NormPhase: TypeAlias = enums.norm_forward_phase | Literal["INFERENCE", "TRAINING"]
Training: TypeAlias = Literal[enums.norm_forward_phase.TRAINING, "TRAINING"]
Inference: TypeAlias = Literal[enums.norm_forward_phase.INFERENCE, "INFERENCE"]
DiagonalAlignment: TypeAlias = enums.diagonal_alignment | Literal["TOP_LEFT", "BOTTOM_RIGHT"]
AttentionImplementation: TypeAlias = (
    enums.attention_implementation | Literal["AUTO", "COMPOSITE", "UNIFIED"]
)
ResampleMode: TypeAlias = (
    enums.resample_mode
    | Literal["AVGPOOL_EXCLUDE_PADDING", "AVGPOOL_INCLUDE_PADDING", "BILINEAR", "NEAREST"]
    | Literal["MAXPOOL"]
)
MaxPool: TypeAlias = Literal[enums.resample_mode.MAXPOOL, "MAXPOOL"]
PaddingMode: TypeAlias = enums.padding_mode | Literal["NEG_INF_PAD", "ZERO_PAD", "EDGE_VAL_PAD"]
RngDistribution: TypeAlias = enums.rng_distribution | Literal["BERNOULLI", "UNIFORM", "NORMAL"]
SoftmaxAlgorithm: TypeAlias = Literal["ACCURATE", "LOG", "FAST"]
Activation: TypeAlias = Literal["identity", "silu"]
PeerMode: TypeAlias = Literal["moments", "gradients"]
