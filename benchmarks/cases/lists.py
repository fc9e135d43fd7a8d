"""The lists of cases that commands choose from."""

from __future__ import annotations

from . import vector as vector_cases
from .attention import attention_of, decoding, few_queries, listed, long_heads
from .attention_backward import attention_backward_of, ordered
from .attention_backward import listed as listed_backward
from .attention_fp8_backward import attention_fp8_backward_of
from .attention_fp8_backward import listed as listed_fp8_backward
from .case import Case
from .causal_conv1d import causal_conv1d_of
from .causal_conv1d import listed as listed_causal_conv1d
from .conv import conv_of
from .conv_before import conv_before_of
from .conv_dgrad import conv_dgrad_of
from .conv_dgrad_layers import dgrad_layers, more_dgrad_layers
from .conv_layers import (
    depthwise_layers,
    gradient_patterns,
    layers,
    more_layers,
    small_wgrad_layers,
    wgrad_beside_layers,
    wgrad_layers,
    wgrad_patterns,
)
from .conv_wgrad import conv_wgrad_of
from .fused import fused_of, grouped, rms_norm, softmax, swiglu
from .image_norm import (
    batchnorm,
    batchnorm_backward,
    batchnorm_nchw,
    batchnorm_nchw_backward,
    batchnorm_relu,
    bn_add_relu,
    drelu_fork_dbn,
)
from .kinds import AXES, add, bias_gelu, squares
from .matmul import LAYOUTS, matmul, matmul_of
from .memory import (
    average_pool,
    average_pool_backward,
    chain,
    large_squares,
    max_pool,
    max_pool_backward,
    memory_of,
    silu_mul,
    strided,
    transposed,
)
from .packed import listed as listed_packed
from .packed import listed_lengths as listed_packed_lengths
from .packed import packed_of
from .packed_backward import listed as listed_packed_backward
from .packed_backward import packed_backward_of
from .paged import listed as listed_paged
from .paged import paged_of
from .part_norm import (
    adalayernorm,
    adalayernorm_backward,
    instancenorm,
    instancenorm_backward,
    instancenorm_nhwc,
    instancenorm_nhwc_backward,
    rmsnorm_fp8_amax,
)
from .parts import listed as listed_parts
from .parts import parts_of
from .rope import listed as listed_rope
from .rope import rope_of
from .row import KINDS, rows_of

MATMUL_SIZES = (
    (1, 8192, 8192, 8192),
    (1, 4096, 4096, 4096),
    (1, 2048, 2048, 2048),
    (1, 256, 8192, 8192),
    (16, 1024, 1024, 1024),
)
BIASED = ("none", "bias_relu", "bias_gelu")
EPILOGUES = ("bias_relu", "bias_gelu", "bias_gelu_erf", "scale_residual_silu")

# (n, k) of weights that a few tokens are multiplied by.
DECODE_WEIGHTS = ((4096, 4096), (14336, 4096), (4096, 14336), (28672, 8192), (8192, 28672))
DECODE_ROWS = (1, 8, 16, 64)

# (m, n, k)
GATED_SIZES = ((4096, 14336, 4096), (8192, 4096, 4096), (2048, 2048, 2048), (16, 14336, 4096))
# (experts, rows, n, k); the last is decoding.
GROUPED_SIZES = (
    (8, 16384, 4096, 4096),
    (64, 16384, 4096, 4096),
    (64, 32768, 2048, 4096),
    (8, 4096, 14336, 4096),
    (64, 256, 4096, 4096),
)


ROW_COLUMNS = (1024, 4096, 8192, 16384, 65536)

# (n, h, w, c)
NORMALISED_IMAGES = ((32, 56, 56, 256), (256, 14, 14, 1024), (256, 56, 56, 64))
# (batches, rows, columns) of norms whose scale and bias differ by batch
CONDITIONED = ((16, 1024, 2048), (32, 4096, 1152))
LONG_ROWS = ((64, 1_000_000), (8, 1_000_000), (1, 1_000_000))
GRADIENTS_OF_ROWS = (
    (8192, 5120), (8192, 12288), (8192, 24576), (8192, 50000), (8192, 100_000), (8192, 100_001),
    (4096, 131_072), (4096, 200_000), *LONG_ROWS,
)  # fmt: skip
POOLED_IMAGES = ((256, 112, 112, 64), (32, 56, 56, 256))
RELAID_IMAGES = ((128, 56, 56, 256), (32, 112, 112, 64), (128, 14, 14, 1024), (128, 7, 7, 2048))


def all_cases() -> list[Case]:
    """The cases that docs/performance/portable.md shows."""
    found = [matmul("bf16", epilogue, *sizes) for sizes in MATMUL_SIZES for epilogue in BIASED]
    found += [matmul("fp16", epilogue, *sizes) for sizes in MATMUL_SIZES[:2] for epilogue in BIASED]
    found += [matmul("int8", "none", *sizes) for sizes in MATMUL_SIZES[:2]]
    for dtype in ("e4m3", "e4m3_fast"):
        found += [matmul(dtype, "descale", *sizes) for sizes in MATMUL_SIZES[:2]]
    found += [matmul(dtype, "none", *MATMUL_SIZES[1]) for dtype in ("tf32", "fp32")]
    for columns in (4096, 8192, 16384):
        found += [bias_gelu(8192, columns), add(8192, columns)]
    for axes in AXES:
        found += [squares(8192, columns, axes) for columns in (4096, 16384)]
    return found


def hopper() -> list[Case]:
    """The table of engine matmul_sm90: layouts, epilogues, types, decoding, prologues.

    First the streaming kernels that copy bandwidth is read from.
    """
    found = [add(8192, 16384), squares(8192, 16384, "all")]
    found += [
        matmul(dtype, "none", *sizes, layout)
        for dtype in ("bf16", "fp16")
        for sizes in MATMUL_SIZES
        for layout in LAYOUTS
    ]
    found += [matmul("bf16", epilogue, *sizes) for sizes in MATMUL_SIZES for epilogue in EPILOGUES]
    for sizes in MATMUL_SIZES[:2]:
        found += [matmul(dtype, "descale", *sizes) for dtype in ("e4m3_fast", "e4m3")]
        found += [matmul("int8", epilogue, *sizes) for epilogue in ("none", "scale")]
    found.append(matmul("tf32", "none", *MATMUL_SIZES[1]))
    found += [
        matmul("bf16", prologue, *sizes)
        for prologue in ("dequant_int8", "dequant_e4m3", "scale_a")
        for sizes in MATMUL_SIZES[:2]
    ]
    found += [matmul("bf16", "none", 1, m, n, k) for n, k in DECODE_WEIGHTS for m in DECODE_ROWS]
    return found


def epilogues() -> list[Case]:
    """Epilogues in f16, and in the operand layouts that `hopper` has none of, beside their plain
    products; first the streaming kernel that copy bandwidth is read from."""
    found = [add(8192, 16384)]
    every = ("none", *EPILOGUES)
    found += [matmul("fp16", e, *sizes) for sizes in MATMUL_SIZES for e in every]
    found += [
        matmul(dtype, epilogue, *sizes, layout)
        for dtype in ("bf16", "fp16")
        for layout in LAYOUTS[1:]
        for sizes in (MATMUL_SIZES[1], MATMUL_SIZES[4])
        for epilogue in every
    ]
    return found


def fused() -> list[Case]:
    """Work around and among products that takes engine matmul_sm90 one launch.

    Beside a product by expert stands the plain one of as many operations.
    """
    found = [add(8192, 16384)]
    found += [swiglu(*sizes) for sizes in GATED_SIZES]
    found += [softmax(65536, n, 1024) for n in (64, 128, 192)] + [softmax(8192, 128, 4096)]
    found += [rms_norm(65536, n, 1024) for n in (128, 192)]
    plain = dict.fromkeys(sizes[1:] for sizes in GROUPED_SIZES)
    found += [grouped(*sizes) for sizes in GROUPED_SIZES]
    found += [matmul("bf16", "none", 1, *sizes) for sizes in plain]
    return found


def rows() -> list[Case]:
    """The table of engine rows, after the streaming kernel that copy bandwidth is read from."""
    found = [add(8192, 16384)]
    for make in KINDS.values():
        found += [make(8192, columns) for columns in ROW_COLUMNS]
    return found


def memory() -> list[Case]:
    """Cases bound by memory, after streaming kernels of three sizes and reductions of 1 GiB."""
    found = [add(8192, columns) for columns in (1024, 4096, 16384)]
    found += [bias_gelu(8192, columns) for columns in (4096, 16384)]
    found += [large_squares(65536, 8192, axes) for axes in AXES]
    found += [batchnorm(*sizes) for sizes in NORMALISED_IMAGES]
    found.append(batchnorm_relu(*NORMALISED_IMAGES[0]))
    for make in (bn_add_relu, batchnorm_backward, drelu_fork_dbn):
        found += [make(*sizes) for sizes in NORMALISED_IMAGES]
    found += [make(*NORMALISED_IMAGES[0]) for make in (batchnorm_nchw, batchnorm_nchw_backward)]
    found += [make(*sizes) for sizes in POOLED_IMAGES for make in (max_pool, max_pool_backward)]
    found += [make(*POOLED_IMAGES[1]) for make in (average_pool, average_pool_backward)]
    found.append(silu_mul(8192, 14336))
    found += [make(8192, 8192) for make in (chain, transposed, strided)]
    return found


def norms() -> list[Case]:
    """Norms beside those of `rows` and `memory`: over a part of an image or a batch, quantised with
    the amax, and gradients of rows that no cluster holds or whose number is no power of two."""
    found = [add(8192, 16384)]
    for sizes in NORMALISED_IMAGES:
        found += [make(*sizes) for make in (instancenorm, instancenorm_backward)]
    found.append(instancenorm_nhwc(*NORMALISED_IMAGES[0]))
    found.append(instancenorm_nhwc_backward(*NORMALISED_IMAGES[0]))
    for sizes in CONDITIONED:
        found += [make(*sizes) for make in (adalayernorm, adalayernorm_backward)]
    found += [rmsnorm_fp8_amax(8192, columns) for columns in (4096, 16384)]
    for sizes in GRADIENTS_OF_ROWS:
        found += [KINDS[kind](*sizes) for kind in ("layernorm_backward", "rmsnorm_backward")]
    for sizes in LONG_ROWS:
        found += [KINDS[kind](*sizes) for kind in ("layernorm", "rmsnorm", "softmax_of_rows")]
    return found


def small() -> list[Case]:
    """Tensors so small that a call takes as long as its launches do."""
    found = [make(128, 768) for make in KINDS.values()]
    found += [make(64, 128) for make in (silu_mul, chain, transposed, strided)]
    for make in (batchnorm, batchnorm_relu, batchnorm_backward, max_pool, average_pool):
        found.append(make(2, 14, 14, 64))
    return found


def conv() -> list[Case]:
    """Layers of ResNet-50, after the streaming kernel that copy bandwidth is read from."""
    return [add(8192, 16384), *layers()]


def conv_wgrad() -> list[Case]:
    """Gradients of filters, after the streaming kernel that copy bandwidth is read from."""
    return [add(8192, 16384), *wgrad_layers(), *wgrad_patterns(), *small_wgrad_layers()]


def conv_wgrad_beside() -> list[Case]:
    """Gradients of filters alone, beside sums of dY, of e4m3 and of int8, after the streaming
    kernel."""
    return [add(8192, 16384), *wgrad_beside_layers()]


def conv_patterns() -> list[Case]:
    """Gradients beside a batch norm, two patterns of cuDNN's guide, after the streaming kernel."""
    return [add(8192, 16384), *gradient_patterns()]


def attention() -> list[Case]:
    """Attention forward: heads, sizes, types, layouts, and work on scores."""
    return listed()


def attention_backward() -> list[Case]:
    """Attention's gradient: heads, sizes, types, layouts, a window."""
    return listed_backward()


def attention_ordered() -> list[Case]:
    """Attention's gradient with the same bits each time, beside the one without."""
    return ordered()


def attention_fp8_backward() -> list[Case]:
    """Attention's gradient of fp8, beside that of bf16."""
    return listed_fp8_backward()


def attention_long_heads() -> list[Case]:
    """Attention with heads of 512 and 576, after the streaming kernel that copy bandwidth is read
    from."""
    return [add(8192, 16384), *long_heads()]


def rope() -> list[Case]:
    """Rotary embeddings ahead of attention, alone, and attention alone, after the streaming
    kernel."""
    return [add(8192, 16384), *listed_rope()]


def causal_conv1d() -> list[Case]:
    """Causal convolutions along a sequence and their gradients, after the streaming kernel."""
    return [add(8192, 16384), *listed_causal_conv1d()]


def depthwise() -> list[Case]:
    """Depthwise layers of MobileNetV2 and EfficientNet, after streaming kernels of two sizes."""
    return [*(add(8192, columns) for columns in (4096, 16384)), *depthwise_layers()]


def conv_more() -> list[Case]:
    """Convolutions with groups, of volumes, dilated, of 8 bits, with channels first, and behind a
    batch norm's scale, bias and ReLU."""
    return [*(add(8192, columns) for columns in (4096, 16384)), *more_layers()]


def dgrad() -> list[Case]:
    """Gradients by the image of layers of ResNet-50, after the streaming kernel."""
    return [add(8192, 16384), *dgrad_layers()]


def dgrad_more() -> list[Case]:
    """Cases of strided, depthwise, grouped and dilated layers, of volumes and few channels, with
    work behind them, after the streaming kernel."""
    return [add(8192, 16384), *more_dgrad_layers()]


def decode() -> list[Case]:
    """One query beside many keys, after the streaming kernel that copy bandwidth is read from."""
    return [add(8192, 16384), *decoding()]


def few() -> list[Case]:
    """Some queries beside many keys, after the streaming kernel that copy bandwidth is read
    from."""
    return [add(8192, 16384), *few_queries()]


def packed() -> list[Case]:
    """Packed sequences, each case beside one of sequences of one length and as much work."""
    return listed_packed()


def packed_lengths() -> list[Case]:
    """Packed attention of more lengths."""
    return listed_packed_lengths()


def packed_backward() -> list[Case]:
    """Packed sequences' gradients, each beside sequences of one length."""
    return listed_packed_backward()


def paged() -> list[Case]:
    """One query beside keys and values in pages, each case beside the one without; first the
    streaming kernel that copy bandwidth is read from."""
    found = [add(8192, 16384)]
    for case in listed_paged():
        found += [case, attention_of(case.dense)]
    return list({case.id: case for case in found}.values())


def parts() -> list[Case]:
    """Queries, keys and values of one product, as rows and by heads, beside three products."""
    return listed_parts()


def layouts() -> list[Case]:
    """Images of bytes between NCHW and vectors of 4 and 32 channels, after the streaming kernel
    that copy bandwidth is read from."""
    found = [add(8192, 16384)]
    for sizes in RELAID_IMAGES:
        found += [make(*sizes) for make in vector_cases.KINDS.values()]
    return found


SETS = {
    "all": all_cases,
    "hopper": hopper,
    "epilogues": epilogues,
    "fused": fused,
    "rows": rows,
    "norms": norms,
    "memory": memory,
    "small": small,
    "conv": conv,
    "depthwise": depthwise,
    "conv-more": conv_more,
    "dgrad": dgrad,
    "dgrad-more": dgrad_more,
    "conv-wgrad": conv_wgrad,
    "conv-wgrad-beside": conv_wgrad_beside,
    "conv-patterns": conv_patterns,
    "attention": attention,
    "attention-backward": attention_backward,
    "attention-ordered": attention_ordered,
    "attention-fp8-backward": attention_fp8_backward,
    "attention-long-heads": attention_long_heads,
    "rope": rope,
    "causal-conv1d": causal_conv1d,
    "decode": decode,
    "few-queries": few,
    "packed": packed,
    "packed-lengths": packed_lengths,
    "packed-backward": packed_backward,
    "paged": paged,
    "parts": parts,
    "layouts": layouts,
}


def case_of(id_: str) -> Case:
    """The case of an id, of any sizes."""
    if id_.startswith("matmul/"):
        return matmul_of(id_)
    if id_.startswith("fused/"):
        return fused_of(id_)
    if id_.startswith("rows/"):
        return rows_of(id_)
    if id_.startswith("memory/"):
        return memory_of(id_)
    if id_.startswith("conv_before/"):
        return conv_before_of(id_)
    if id_.startswith("conv_dgrad/"):
        return conv_dgrad_of(id_)
    if id_.startswith("conv_wgrad/"):
        return conv_wgrad_of(id_)
    if id_.startswith("conv/"):
        return conv_of(id_)
    if id_.startswith("causal_conv1d"):
        return causal_conv1d_of(id_)
    if id_.startswith("attention_fp8_backward/"):
        return attention_fp8_backward_of(id_)
    if id_.startswith("attention_backward/"):
        return attention_backward_of(id_)
    if id_.startswith("attention/"):
        return attention_of(id_)
    if id_.startswith("rope"):
        return rope_of(id_)
    if id_.startswith("parts/"):
        return parts_of(id_)
    if id_.startswith("packed_backward/"):
        return packed_backward_of(id_)
    if id_.startswith("packed/"):
        return packed_of(id_)
    if id_.startswith("paged/"):
        return paged_of(id_)
    family, _, kind, sizes = id_.split("/")
    rows, columns = (int(size) for size in sizes.split("x"))
    if family == "reduction":
        return squares(rows, columns, kind.removeprefix("squares_"))
    return {"add": add, "bias_gelu": bias_gelu}[kind](rows, columns)
