"""Every operation, in the order of the docs.  A new one is a file here and its line below."""

from __future__ import annotations

from ..op import Op
from .batch_norm import Batchnorm, BatchnormInference, BnFinalize, DbnWeight, Genstats
from .block_mask_load import BlockMaskLoad
from .broadcast import Broadcast
from .causal_conv1d import CausalConv1d, CausalConv1dBackward
from .conv import ConvDgrad, ConvFprop, ConvWgrad
from .matmul import Matmul
from .moe_grouped_matmul import MoeGroupedMatmul
from .norm import Adalayernorm, Instancenorm, Layernorm, Rmsnorm
from .norm_backward import (
    AdalayernormBackward,
    BatchnormBackward,
    InstancenormBackward,
    LayernormBackward,
    RmsnormBackward,
)
from .paged_cache_load import PagedCacheLoad
from .peer_reduction import PeerReduction
from .pointwise import Pointwise
from .ragged import RaggedLoad, RaggedStore
from .reduction import Reduction
from .resample import Resample, ResampleBackward
from .rng import Rng
from .rope import Rope, RopeBackward
from .sdpa import Sdpa
from .sdpa_backward import SdpaBackward
from .sdpa_fp8 import SdpaFp8
from .sdpa_fp8_backward import SdpaFp8Backward
from .softmax import Softmax, SoftmaxBackward
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
    Broadcast,
    ConvFprop,
    ConvDgrad,
    ConvWgrad,
    CausalConv1d,
    CausalConv1dBackward,
    Resample,
    ResampleBackward,
    Rng,
    Layernorm,
    Rmsnorm,
    Adalayernorm,
    Instancenorm,
    Batchnorm,
    BatchnormInference,
    LayernormBackward,
    RmsnormBackward,
    AdalayernormBackward,
    InstancenormBackward,
    BatchnormBackward,
    Genstats,
    BnFinalize,
    DbnWeight,
    PeerReduction,
    Softmax,
    SoftmaxBackward,
    Rope,
    RopeBackward,
    Sdpa,
    SdpaBackward,
    SdpaFp8,
    SdpaFp8Backward,
    PagedCacheLoad,
    BlockMaskLoad,
    RaggedLoad,
    RaggedStore,
)

# With those of other packages, see `dnnc.operations`.
BY_NAME: dict[str, type[Op]] = {op.op_name: op for op in OPS}
