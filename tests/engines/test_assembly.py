"""Kernels of every engine, assembled for every architecture that is claimed: no spills."""

from functools import partial

import pytest

import dnnc
from dnnc import dtypes
from dnnc import target as targets
from dnnc.codegen import nvptx
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.dialect.pointwise_modes import MODES
from dnnc.engines import engine_named
from dnnc.engines.conv.grouped_tile import GroupedFacts
from dnnc.engines.conv.pattern import conv_of, shape_of
from dnnc.engines.product import knobs_sm90
from dnnc.engines.product.knobs_sm80 import WARPS
from dnnc.engines.product.model_sm80 import TILE_REGISTERS
from dnnc.options import Options
from dnnc.target import of

from .. import attention_graphs as graphs
from ..attention_graphs import Pattern
from ..dialect.examples import peer_reduction
from ..fp8_attention import FAST
from ..fp8_attention import attention as attention_of_fp8
from .elementwise.test_pointwise import new_graph
from .elementwise.test_reduction import reduce
from .product.test_matmul_sm80 import new_graph as matmul_graph
from .product.test_matmul_sm80 import product, strides
from .product.test_matmul_sm90 import softmax
from .rows.test_grid import add_relu_mask, batchnorm, gradients, scaled_by_amax

pytestmark = pytest.mark.registers

M = dnnc.Dim("M", max=65536)
B = dnnc.Dim("B", max=256)
TARGETS = tuple(target.name for target in targets.TARGETS)

# The code of sm_100a and sm_120a has nothing that sm_100's and sm_120's has not.
ARCHITECTURES = pytest.mark.parametrize(
    "target",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("sm_100a", "sm_120a") else ())
        for name in TARGETS
    ],
)


def ffn(epilogue, operand=dtypes.f16):
    def build():
        g = matmul_graph(operand)
        x = g.tensor([1, M, 384])
        w = g.tensor([1, 384, 1536], strides(384, 1536, "column"))
        bias, residual = g.tensor([1, 1, 1536]), g.tensor([1, M, 1536])
        c = g.bias(g.matmul(x, w), bias)
        (g.gelu(c) if epilogue == "gelu" else g.add(c, residual)).set_output()
        return g

    return build


def dequantised():
    g = matmul_graph(dtypes.bf16)
    w = g.tensor([1, 512, 512], data_type=dtypes.i8)
    scaled = g.mul(w, g.tensor([1, 1, 512])).set_data_type(dtypes.bf16)
    g.matmul(g.tensor([1, M, 512]), scaled).set_output()
    return g


def plain(name):
    def build():
        operand = {"f16": dtypes.f16, "tf32": dtypes.f32, "i8": dtypes.i8}[name]
        return product(operand, 512, 512, 512)[0]

    return build


def every_mode():
    """One kernel that computes every float mode."""
    g = new_graph(dtypes.f32)
    x = total = g.tensor([M, 64])
    for mode in MODES:
        if mode.domain == "float" and mode.name not in ("sin", "cos", "tan"):
            y = getattr(g, mode.methods[0][0])(*[x] * mode.arity)
            total = g.add(total, y)
    total.set_output()
    return g


def bias_gelu():
    g = new_graph(dtypes.bf16)
    g.gelu(g.add(g.tensor([M, 4096]), g.tensor([1, 4096]))).set_output()
    return g


def transposed():
    g = new_graph(dtypes.f16)
    g.transpose(g.tensor([4, M, 64]), [2, 0, 1]).set_output().set_stride([4 * M, M, 1])
    return g


def turned(io):
    def build():
        g = new_graph(io)
        x, z = g.tensor([4096, 8192], [1, 4096]), g.tensor([4096, 8192])
        g.gelu(g.add(x, z)).set_output().set_stride([8192, 1])
        return g

    return build


def of_vectors(to=False):
    """ReLU of bytes in NC/4HW4, to NCHW or back."""
    g = new_graph(dtypes.i8)
    dims = [M, 4, 3136]
    forms = ([4 * 3136, 1, 4], [4 * 3136, 3136, 1])
    x, y = forms[::-1] if to else forms
    g.relu(g.tensor(dims, x)).set_output().set_stride(y)
    return g


def to_vectors():
    return of_vectors(to=True)


def sums(axes):
    def build():
        g = new_graph(dtypes.bf16)
        reduce(g, g.exp(g.tensor([M, 4096])), "add", axes).set_output()
        return g

    return build


IMAGES = dnnc.Dim("N", max=1024)


def channels_last(g, n, h, w, c):
    return g.tensor([n, c, h, w], [h * w * c, 1, w * c, c])


def filter_gradient(accumulates=False, c=128, size=28):
    """c: channels of the image; 1: of each of many groups."""

    def build():
        g = matmul_graph(dtypes.f16)
        filters = 256 if c > 1 else 144
        image, dy = (
            channels_last(g, IMAGES, size, size, n) for n in (c if c > 1 else 144, filters)
        )
        dw = g.conv_wgrad(image, dy, padding=[1, 1]).set_dim([filters, c, 3, 3])
        if accumulates:
            dw = g.add(g.mul(dw, g.tensor([1, 1, 1, 1])), channels_last(g, filters, 3, 3, c))
        dw.set_output()
        return g

    return build


POOL = ([1, 1], [1, 1], [2, 2], [3, 3])


def max_pool(generate_index):
    def build():
        g = new_graph(dtypes.f16)
        x = channels_last(g, IMAGES, 112, 112, 64)
        y, index = g.resample(x, "MAXPOOL", *POOL, generate_index=generate_index)
        if index is not None:
            index.set_output()
        g.relu(y).set_output().set_stride(y.get_stride())
        return g

    return build


def unpooled():
    g = new_graph(dtypes.bf16)
    loss = channels_last(g, IMAGES, 56, 56, 64)
    dx = g.resample_backward(loss, "AVGPOOL_EXCLUDE_PADDING", *POOL)
    dx.set_dim([IMAGES, 64, 112, 112]).set_output()
    return g


def upsampled():
    g = new_graph(dtypes.f16)
    x = channels_last(g, IMAGES, 56, 56, 64)
    g.resample(x, "BILINEAR", [0.5] * 2, [1] * 2, [0.5] * 2, [2] * 2)[0].set_output()
    return g


def layernorm():
    g = new_graph(dtypes.bf16)
    x, scale, bias = g.tensor([M, 4096]), g.tensor([1, 4096]), g.tensor([1, 4096])
    for tensor in g.layernorm("TRAINING", x, scale, bias, g.tensor_scalar(1e-5)):
        tensor.set_output()
    return g


def layernorm_with_extremes():
    g = new_graph(dtypes.bf16)
    x, scale, bias = g.tensor([M, 4096]), g.tensor([1, 4096]), g.tensor([1, 4096])
    y = g.layernorm("INFERENCE", x, scale, bias, g.tensor_scalar(1e-5))[0]
    for mode in ("amax", "max", "min"):
        g.reduction(y, mode).set_dim([1, 1]).set_output().set_data_type(dtypes.f32)
    y.set_output()
    return g


def layernorm_backward():
    g = new_graph(dtypes.bf16)
    dy, x, scale = g.tensor([M, 2048]), g.tensor([M, 2048]), g.tensor([1, 2048])
    mean, inverse = (g.tensor([M, 1], data_type=dtypes.f32) for _ in range(2))
    for tensor in g.layernorm_backward(dy, x, scale, mean, inverse):
        tensor.set_output()
    return g


def softmax_of_channels():
    g = new_graph(dtypes.f16)
    g.softmax(g.tensor([M, 64, 28, 28]), 1).set_output()
    return g


def dropout():
    g = new_graph(dtypes.f16)
    kept = g.rng(g.tensor([1], data_type=dtypes.i64), 0, "BERNOULLI", 0.9, dim=[M, 4096])
    g.mul(g.mul(g.tensor([M, 4096]), kept), 1 / 0.9).set_output()
    return g


def depthwise(size, io="HALF", channels=1, edge=28):
    """A square filter of groups of few channels; scale, bias, residual and ReLU after it."""

    def build():
        g = new_graph(dtypes.of(io))
        image, taps = [IMAGES, 192, edge, edge], [192, channels, size, size]
        x, w = (g.tensor(dims, packed_channels(dims)) for dims in (image, taps))
        y = g.conv_fprop(x, w, padding=[size // 2] * 2, stride=[1, 1], dilation=[1, 1])
        scaled_with_residual(g, y).set_output()
        return g

    return build


def attention(batch, key_batch, queries, scores):
    """Heads of 128."""
    shape = {"batch": batch, "key_batch": key_batch, "queries": queries, "keys": M}
    return lambda: Pattern(depth=128, scores=scores, **shape).g


CASES = {
    "matmul bias gelu": ("matmul_sm80", ffn("gelu"), {}),
    "matmul bias residual": ("matmul_sm80", ffn("residual", dtypes.bf16), {}),
    "matmul dequantised": ("matmul_sm80", dequantised, {"TILE_M": 64, "TILE_N": 64}),
    "matmul f16": ("matmul_sm80", plain("f16"), {}),
    "matmul tf32": ("matmul_sm80", plain("tf32"), {"TF32": 1}),
    "matmul f32": ("matmul_sm80", plain("tf32"), {"TF32": 3}),
    "matmul i8": ("matmul_sm80", plain("i8"), {}),
    "fallback": ("fallback", ffn("gelu"), {}),
    "pointwise bias gelu": ("pointwise", bias_gelu, {}),
    "pointwise transposed": ("pointwise", transposed, {}),
    "pointwise every mode": ("pointwise", every_mode, {"ARRAY_SIZE_PER_THREAD": 1}),
    "transpose": ("transpose", transposed, {}),
    "transpose f32": ("transpose", turned(dtypes.f32), {}),
    "transpose of vectors": ("transpose", of_vectors, {"TILE_M": 4, "TILE_N": 512}),
    "transpose to vectors": ("transpose", to_vectors, {"TILE_M": 512, "TILE_N": 4}),
    "transpose i8": ("transpose", turned(dtypes.i8), {"TILE_M": 128, "TILE_N": 128}),
    "reduction rows": ("reduction", sums((1,)), {}),
    "reduction columns": ("reduction", sums((0,)), {}),
    "reduction all": ("reduction", sums((0, 1)), {}),
    "rows layernorm": ("rows", layernorm, {"ARRAY_SIZE_PER_THREAD": 32}),
    "rows layernorm again": ("rows", layernorm, {"ARRAY_SIZE_PER_THREAD": 0, "TILE_COLS": 256}),
    "rows layernorm backward": ("rows", layernorm_backward, {"STAGES": 0}),
    "rows softmax of channels": ("rows", softmax_of_channels, {}),
    "rows extremes": ("rows", layernorm_with_extremes, {}),
    "grid batchnorm": (
        "grid",
        partial(batchnorm, dnnc.Dim("N", max=512), 64, 28, 28, io="bf16"),
        {},
    ),
    "grid mask": ("grid", partial(batchnorm, 32, 256, 28, 28, after=add_relu_mask), {}),
    "grid gradients": ("grid", partial(gradients, 64, 1024, 14, 14, masked=True), {}),
    "grid amax": ("grid", partial(scaled_by_amax, M, 4096), {}),
    "dropout": ("pointwise", dropout, {}),
    "resample max": ("resample", max_pool(False), {}),
    "resample max and index": ("resample", max_pool(True), {}),
    "resample backward": ("resample", unpooled, {}),
    "resample bilinear": ("resample", upsampled, {}),
    "conv_depthwise": ("conv_depthwise", depthwise(3), {}),
    "conv_depthwise held": (
        "conv_depthwise",
        depthwise(5, "BFLOAT16"),
        {"LOAD_SIZE": 8, "SPECFILT": 1, "ARRAY_SIZE_PER_THREAD": 4},
    ),
    "conv_grouped": ("conv_grouped_sm80", depthwise(3, "HALF", 8, 29), {"TILE_ROWS": 7}),
    "conv_grouped of 16": (
        "conv_grouped_sm80",
        depthwise(3, "BFLOAT16", 16, 29),
        {"TILE_ROWS": 4, "TILE_N": 16, "ARRAY_SIZE_PER_THREAD": 2},
    ),
    "conv_wgrad of one channel": ("conv_wgrad_depthwise", filter_gradient(c=1), {}),
    "conv_wgrad": ("conv_wgrad_sm80", filter_gradient(), {"TILE_M": 128, "TILE_N": 128}),
    "attention": (
        "sdpa_sm80",
        attention((B, 16), (B, 16), M, graphs.causal),
        {"TILE_M": 128, "TILE_N": 64, "STAGES": 2, "PACK_GQA": 0, "SPLIT_KV": 1},
    ),
    "attention of one query": (
        "sdpa_sm80",
        attention((B, 64), (B, 8), 1, graphs.padded),
        {"TILE_M": 16, "TILE_N": 32, "STAGES": 3, "PACK_GQA": 1, "SPLIT_KV": 8},
    ),
    "peers": ("peers", peer_reduction((1, 2048, 1, 1), 8, 3), {}),
    "peers of 32": ("peers", peer_reduction((1, M), 32, 0, "gradients"), {}),
}


def assembled(engine, build, knobs, target):
    options = Options(engine=engine, knobs=tuple(knobs.items()))
    return compile_graph(build().graph, target, options)


def assert_fits(plan, target):
    for kernel in plan.programs[0].kernels:
        assert kernel.registers <= 255
        assert kernel.registers * kernel.threads <= of(target).registers_sm
        assert (kernel.spill_store_bytes, kernel.spill_load_bytes) == (0, 0), kernel
        assert kernel.local_bytes == 0, kernel
        assert kernel.static_smem_bytes <= 48 << 10


@pytest.mark.rotating
@ARCHITECTURES
@pytest.mark.parametrize("name", CASES)
def test_every_engine_on_every_architecture(name, target):
    plan = assembled(*CASES[name], target)
    assert_fits(plan, target)
    (program,) = plan.programs
    assert program.exact == of(target).arch_specific
    assert program.modules[0].ptx_runs_later != program.exact


@pytest.mark.rotating
@pytest.mark.parametrize("tile", WARPS, ids=str)
def test_no_tile_spills(tile):
    knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "TILEK": 32}
    assert_fits(assembled("matmul_sm80", ffn("gelu"), knobs, "sm_80"), "sm_80")


@pytest.mark.rotating
@pytest.mark.parametrize("tile", [t for t in WARPS if t[0] * t[1] <= 128 * 128], ids=str)
def test_no_tile_of_three_products_spills(tile):
    knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "TILEK": 16, "TF32": 3}
    for target in ("sm_80", "sm_90"):
        assert_fits(assembled("matmul_sm80", plain("tf32"), knobs, target), target)


# ---- Hopper


def hopper(a, b, epilogue, *, sizes=(M, 1536, 384), compute=None):
    """epilogue(graph, product, N): what makes the outputs; a, b: operand types."""
    m, n, k = sizes
    a, b = dtypes.of(a), dtypes.of(b)
    integers = b.is_integer and a.is_integer

    def build():
        g = dnnc.pygraph(
            "hopper",
            io_data_type=a if a.bits == 16 else dtypes.bf16,
            intermediate_data_type=dtypes.f32,
            compute_data_type=compute or (dtypes.i32 if integers else dtypes.f32),
        )
        x = g.tensor([1, m, k], data_type=a)
        w = g.tensor([1, k, n], strides(k, n, "column"), data_type=b)
        if b.is_integer and not integers:
            w = g.mul(w, g.tensor([1, 1, n])).set_data_type(a)
        c = g.matmul(x, w)
        epilogue(g, c.set_data_type(dtypes.i32) if integers else c, n)
        return g

    return build


def gelu(g, c, n):
    g.gelu(g.add(c, g.tensor([1, 1, n]), compute_data_type=dtypes.f32)).set_output()


def scaled_residual(g, c, n):
    scaled = g.mul(c, g.tensor([1, 1, n]), compute_data_type=dtypes.f32)
    g.swish(g.add(scaled, g.tensor([1, M, n], data_type=dtypes.f32))).set_output()


def softmax_of_rows(g, c, n):
    softmax(g, c, [1, M, 1]).set_output()


def rms_norm(g, c, n):
    mean = g.reduction(g.mul(c, c), "avg").set_dim([1, M, 1])
    g.mul(g.mul(c, g.rsqrt(mean).set_output()), g.tensor([1, 1, n])).set_output()


def exit_of(mode, dims):
    def epilogue(g, c, n):
        y = g.relu(g.add(c, g.tensor([1, 1, n]))).set_output()
        g.reduction(y, mode).set_dim(dims(n)).set_output().set_data_type(dtypes.f32)

    return epilogue


def relu_and_mask(g, c, n):
    biased = g.add(c, g.tensor([1, 1, n]))
    g.relu(biased).set_output()
    g.cmp_gt(biased, 0).set_output().set_data_type(dtypes.i1)


def scaled(g, c, n):
    g.mul(c, g.tensor([1, 1, n])).set_output()


def amax_beside_fp8(g, c, n):
    g.reduction(c, "amax").set_dim([1, 1, 1]).set_output().set_data_type(dtypes.f32)
    g.mul(c, g.tensor([1, 1, 1])).set_output().set_data_type(dtypes.f8e4m3)


def gated():
    g = matmul_graph(dtypes.bf16)
    x = g.tensor([1, M, 384])
    w1, w2 = (g.tensor([1, 384, 1536], strides(384, 1536, "column")) for _ in range(2))
    g.mul(g.swish(g.matmul(x, w1)), g.matmul(x, w2)).set_output()
    return g


def experts():
    g = matmul_graph(dtypes.bf16)
    token, weight = g.tensor([1, M, 384]), g.tensor([64, 384, 1536], [384 * 1536, 1, 384])
    first = g.tensor([64, 1, 1], data_type=dtypes.i32)
    g.swish(g.moe_grouped_matmul(token, weight, first)).set_output()
    return g


def softmax_of_wide_rows(n):
    return hopper("HALF", "HALF", softmax_of_rows, sizes=(M, n, 384))


UNALIGNED = (dnnc.Dim("U", max=65536), 1535, 383)
F8 = ("FP8_E4M3", "FP8_E5M2")

# (rows, columns) of the instruction's tile, the graph, other knobs.
HOPPER = {
    **{
        f"gelu {rows}x{columns}": (rows, columns, hopper("HALF", "HALF", gelu), {})
        for rows, columns in knobs_sm90.TILES
    },
    "residual": (128, 256, hopper("BFLOAT16", "BFLOAT16", scaled_residual), {}),
    "mask": (128, 256, hopper("HALF", "HALF", relu_and_mask), {}),
    "mask 256x128": (256, 128, hopper("HALF", "HALF", relu_and_mask), {}),
    "swapped": (128, 256, hopper("HALF", "HALF", gelu), {"SWAP_AB": 1}),
    "split k": (128, 128, hopper("HALF", "HALF", gelu), {"SPLIT_K_SLC": 4}),
    "tf32": (128, 256, hopper("FLOAT", "FLOAT", gelu), {}),
    "i8": (128, 256, hopper("INT8", "INT8", gelu), {}),
    "fp8 fast": (128, 256, hopper(*F8, gelu, compute=dtypes.fast_float_for_fp8), {}),
    "fp8 promoted": (128, 128, hopper(*F8, gelu), {}),
    "fp8 amax": (128, 128, hopper(*F8, amax_beside_fp8), {}),
    "dequantised": (128, 256, hopper("BFLOAT16", "INT8", gelu), {}),
    "dequantised 256x128": (256, 128, hopper("BFLOAT16", "INT8", gelu), {}),
    "two producers": (128, 192, hopper("BFLOAT16", "INT8", gelu), {"WARP_SPEC_CFG": 2}),
    "two producers 256x128": (
        256, 128, hopper("BFLOAT16", "INT8", scaled), {"WARP_SPEC_CFG": 2}
    ),
    "unaligned": (128, 256, hopper("HALF", "HALF", gelu, sizes=UNALIGNED), {}),
    "unaligned i8": (128, 256, hopper("INT8", "INT8", gelu, sizes=UNALIGNED), {}),
    "fragments": (
        128, 256, hopper("BFLOAT16", "INT8", gelu), {"WARP_SPEC_CFG": 3, "SWAP_AB": 1}
    ),
    "fragments 256x128": (
        256, 128, hopper("BFLOAT16", "INT8", gelu), {"WARP_SPEC_CFG": 3, "SWAP_AB": 1}
    ),
    "experts": (128, 256, experts, {}),
    "experts in pairs": (128, 256, experts, {"TILE_CGA_M": 2}),
    "experts 256x128": (256, 128, experts, {}),
    "stream k": (128, 256, hopper("HALF", "HALF", scaled_residual), {"STREAM_K": 1}),
    "dynamic": (256, 128, hopper("HALF", "HALF", scaled_residual), {"SCHED_POLICY": 1}),
    "turns": (128, 128, hopper("HALF", "HALF", gelu), {"WARP_SPEC_CFG": 4}),
    "turns 64x256": (64, 256, hopper("HALF", "HALF", scaled_residual), {"WARP_SPEC_CFG": 4}),
    "wide rows": (128, 128, softmax_of_wide_rows(256), {"TILE_CGA_N": 2}),
    "wide rows 64x192": (64, 192, softmax_of_wide_rows(768), {"TILE_CGA_N": 4}),
    "gated": (128, 128, gated, {}),
    "softmax": (128, 192, hopper("HALF", "HALF", softmax_of_rows, sizes=(M, 192, 384)), {}),
    "softmax 64x192": (64, 192, hopper("HALF", "HALF", softmax_of_rows, sizes=(M, 192, 384)), {}),
    "rms norm": (128, 192, hopper("HALF", "HALF", rms_norm, sizes=(M, 192, 384)), {}),
    "rows": (128, 256, hopper("HALF", "HALF", exit_of("add", lambda n: [1, M, 1])), {}),
    "columns": (128, 256, hopper("HALF", "HALF", exit_of("max", lambda n: [1, 1, n])), {}),
    "all": (256, 128, hopper("HALF", "HALF", exit_of("amax", lambda n: [1, 1, 1])), {}),
}  # fmt: skip


@pytest.mark.rotating
@pytest.mark.parametrize("name", HOPPER)
def test_matmul_sm90_fits_its_registers(name, monkeypatch):
    rows, columns, build, more = HOPPER[name]
    tile = (columns, rows) if more.get("SWAP_AB") else (rows, columns)
    knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "TILE_CGA_M": 1, "TILE_CGA_N": 1}
    knobs |= {"SPLIT_K_SLC": 1, "WARP_SPEC_CFG": 1, "SWAP_AB": 0, **more}
    plan = assembled_without_waits("matmul_sm90", build, knobs, "sm_90a", monkeypatch)
    main = plan.programs[0].kernels[0]
    # With `setmaxnreg`, what a warpgroup has at launch is what is reported.
    producers = 2 if knobs["WARP_SPEC_CFG"] == 2 else 1
    consumers = 1 if rows == 64 and knobs["WARP_SPEC_CFG"] != 4 else 2
    assert main.threads == 128 * (consumers + producers)
    assert main.registers <= {256: 255, 384: 168, 512: 128}[main.threads]


ATTENTION_OF_FP8 = {
    "128 elements": ({"depth": 128}, {"TILE_N": 128, "KERNEL_CFG": 2}),
    "128 elements fast": ({"depth": 128, "compute": FAST}, {"TILE_N": 192, "KERNEL_CFG": 3}),
    "64 elements": ({"depth": 64}, {"TILE_N": 192, "KERNEL_CFG": 2}),
    "64 elements fast": ({"depth": 64, "compute": FAST}, {"TILE_M": 192, "KERNEL_CFG": 0}),
    "256 elements fast": ({"depth": 256, "compute": FAST}, {"KERNEL_CFG": 3}),
    "160 elements": ({"depth": 160}, {"TILE_N": 64, "KERNEL_CFG": 0}),
}


@pytest.mark.rotating
@pytest.mark.parametrize("name", ATTENTION_OF_FP8)
def test_attention_of_fp8_fits_its_registers(name, monkeypatch):
    shape, more = ATTENTION_OF_FP8[name]
    knobs = {"TILE_M": 128, "TILE_N": 96, "STAGES": 2, "KERNEL_CFG": 2, "SCHED_POLICY": 1} | more
    causal = {"use_causal_mask": True}

    def build():
        return attention_of_fp8(
            batch=4, heads=16, queries=4096, keys=4096, out="FP8_E4M3", arguments=causal, **shape
        )

    plan = assembled_without_waits("sdpa_fwd_sm90", build, knobs, "sm_90a", monkeypatch)
    (kernel,) = plan.programs[0].kernels
    assert kernel.registers == {384: 168, 512: 128}[kernel.threads]


def assembled_without_waits(engine, build, knobs, target, monkeypatch):
    """The plan, after a look at what the assembler says of it."""
    logs, read = [], nvptx.read_resources
    monkeypatch.setattr(nvptx, "read_resources", lambda log: logs.append(log) or read(log))
    plan = assembled(engine, build, knobs, target)
    assert_fits(plan, target)
    # The assembler says where it made products wait for each other, or put in fences and waits of
    # its own (C7510 to C7519), and where it ignored `setmaxnreg`.
    assert logs
    assert "(C75" not in "".join(logs)
    assert "setmaxnreg" not in "".join(logs)
    return plan


def convolution(x, w, io="HALF", after=None, filters=None, **parameters):
    """X and W with the channels last; after(graph, Y): what makes the output; filters: W's type."""
    io, filters = dtypes.of(io), dtypes.of(filters or io)
    compute = dtypes.i32 if io.is_integer and filters == io else dtypes.f32

    def build():
        g = new_graph(io, compute_data_type=compute)
        ends = ((x, io), (w, filters))
        operands = [g.tensor(dims, packed_channels(dims), data_type=type_) for dims, type_ in ends]
        y = g.conv_fprop(*operands, **parameters)
        y = y.set_data_type(dtypes.i32 if compute == dtypes.i32 else dtypes.f16)
        (after(g, y) if after else y).set_output()
        return g

    return build


def packed_channels(dims):
    strides, running = [0] * len(dims), 1
    for axis in (1, *reversed(range(2, len(dims))), 0):
        strides[axis], running = running, running * dims[axis]
    return strides


def scaled_with_residual(g, y):
    dims = y.get_dim()
    scale, bias = (g.tensor([1, dims[1], 1, 1]) for _ in range(2))
    residual = g.tensor(dims, packed_channels(dims))
    return g.relu(g.add(g.add(g.mul(y, scale), bias), residual))


def statistics_and_mask(g, y):
    """ReLU of Y with its mask, sums of channels and the largest value."""
    return statistics(g, y, masked=True)


def statistics(g, y, masked=False):
    bias = g.tensor([1, y.get_dim()[1], 1, 1])
    y = g.add(y.set_data_type(dtypes.f32), bias).set_data_type(dtypes.f32)
    if masked:
        g.cmp_gt(y, 0).set_output().set_data_type(dtypes.i1)
    for total in g.genstats(y, compute_data_type=dtypes.f32):
        total.set_output().set_data_type(dtypes.f32)
    return g.relu(y)


def channels_first(g, y):
    dims = y.get_dim()
    return g.relu(y).set_stride([dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1])


THREE = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}
EDGE = dnnc.Dim("E", min=8, max=256)
ACROSS = dnnc.Dim("A", min=8, max=256)
IMAGE, FILTER = [IMAGES, 128, EDGE, EDGE], [192, 128, 3, 3]
FUSED = convolution(IMAGE, FILTER, after=scaled_with_residual, **THREE)
STATISTICS = convolution(IMAGE, FILTER, after=statistics, **THREE)
CONV_TILES = ((256, 64), (256, 128), (128, 256), (128, 64), (64, 256), (64, 64))

# The tile, the graph, other knobs.
CONVOLUTIONS = {
    **{f"fused {tile[0]}x{tile[1]}": (tile, FUSED, {}) for tile in CONV_TILES},
    "NCHW outputs": ((128, 128), convolution(IMAGE, FILTER, after=channels_first, **THREE), {}),
    "groups": ((128, 64), convolution(IMAGE, [192, 16, 3, 3], **THREE), {}),
    "3D": (
        (128, 256),
        convolution([IMAGES, 64, 8, 28, 28], [256, 64, 3, 3, 3], padding=[1] * 3),
        {},
    ),
    "few channels": (
        (256, 64), convolution([IMAGES, 32, EDGE, EDGE], [192, 32, 3, 3], **THREE), {"STAGES": 8}
    ),
    "tf32": ((128, 256), convolution(IMAGE, FILTER, "FLOAT", **THREE), {}),
    "i8": ((128, 256), convolution(IMAGE, FILTER, "INT8", **THREE), {}),
    "i8 by f16": ((128, 256), convolution(IMAGE, FILTER, "INT8", None, "HALF", **THREE), {}),
    "f16 by bf16": ((128, 256), convolution(IMAGE, FILTER, "HALF", None, "BFLOAT16", **THREE), {}),
    "fp8 promoted": ((128, 128), convolution(IMAGE, FILTER, "FP8_E4M3", **THREE), {}),
    "split": ((128, 128), FUSED, {"SPLIT_K_SLC": 4}),
    "streamed": ((128, 256), FUSED, {"STREAM_K": 1}),
    "dynamic": ((256, 128), FUSED, {"SCHED_POLICY": 1}),
    "cluster": ((128, 128), FUSED, {"TILE_CGA_M": 2}),
    "cluster that shares pixels": ((128, 128), FUSED, {"TILE_CGA_N": 2}),
    "swapped": ((192, 128), FUSED, {"SWAP_AB": 1}),
    "swapped, most sums": (
        (192, 256),
        convolution(IMAGE, FILTER, **THREE),
        {"SWAP_AB": 1, "STAGES": 3},
    ),
    "side by side": ((384, 64), FUSED, {"SWAP_AB": 1}),
    "statistics": ((128, 256), STATISTICS, {}),
    "statistics 256x64": ((256, 64), STATISTICS, {}),
    "statistics, swapped": ((192, 128), STATISTICS, {"SWAP_AB": 1}),
    "statistics, side by side": ((384, 64), STATISTICS, {"SWAP_AB": 1}),
    "statistics and mask": (
        (128, 128), convolution([16, *IMAGE[1:]], FILTER, after=statistics_and_mask, **THREE), {}
    ),
}  # fmt: skip


@pytest.mark.rotating
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv_sm90_fits_its_registers(name, monkeypatch):
    (rows, columns), build, more = CONVOLUTIONS[name]
    knobs = {"TILE_M": rows, "TILE_N": columns, "TILE_CGA_M": 1, "TILE_CGA_N": 1}
    knobs |= {"SPLIT_K_SLC": 1, "SWAP_AB": 0, "TILE_ROWS": 0, **more}
    plan = assembled_without_waits("conv_sm90", build, knobs, "sm_90a", monkeypatch)
    main = plan.programs[0].kernels[0]
    assert main.threads == (256 if rows == 64 else 384)
    assert main.registers <= {256: 255, 384: 168}[main.threads]


# Name -> (rows and columns of the tile, graph, other knobs).
FILTER_GRADIENTS = {
    "128x256": ((128, 256), filter_gradient(), {}),
    "256x128, accumulated": ((256, 128), filter_gradient(accumulates=True), {}),
    "64x384, parts": ((64, 384), filter_gradient(), {"SPLIT_K_BUF": 8}),
    "64x256": ((64, 256), filter_gradient(accumulates=True), {}),
    "128x192, split": ((128, 192), filter_gradient(), {"SPLIT_K_SLC": 4, "SPLIT_K_BUF": 2}),
    "halo": ((64, 576), filter_gradient(c=64, size=56), {"TILE_ROWS": 4}),
    "halo, parts": ((64, 576), filter_gradient(True, 64, 56), {"TILE_ROWS": 4, "SPLIT_K_BUF": 8}),
}


@pytest.mark.rotating
@pytest.mark.parametrize("name", FILTER_GRADIENTS)
def test_filter_gradients_fit_their_registers(name, monkeypatch):
    (rows, columns), build, more = FILTER_GRADIENTS[name]
    knobs = {"TILE_M": rows, "TILE_N": columns, "TILE_CGA_M": 1, "TILE_CGA_N": 1}
    knobs |= {"SPLIT_K_SLC": 1, "SPLIT_K_BUF": 1, **more}
    assembled_without_waits("conv_wgrad_sm90", build, knobs, "sm_90a", monkeypatch)


def image_gradient(stride=2, adds=False, dims=(256, 384)):
    """DX of images of `dims[0]` channels, of so many filters."""

    def build():
        g = new_graph(dtypes.f16, compute_data_type=dtypes.f32)
        c, k = dims
        x, w = [16, c, EDGE, EDGE], [k, c, 3, 3]
        parameters = {"padding": [1, 1], "stride": [stride] * 2}
        like = dnnc.pygraph("forward")
        y = like.conv_fprop(like.tensor(x), like.tensor(w), **parameters).get_dim()
        dy, filter_ = g.tensor(y, packed_channels(y)), g.tensor(w, packed_channels(w))
        dx = g.conv_dgrad(dy, filter_, **parameters).set_dim(x).set_data_type(dtypes.f16)
        dx = g.add(dx, g.tensor(x, packed_channels(x))) if adds else dx
        dx.set_output().set_stride(packed_channels(x))
        return g

    return build


# Name -> (pixels and channels of the tile, graph, other knobs).
IMAGE_GRADIENTS = {
    "most sums": ((192, 256), image_gradient(1), {"SWAP_AB": 1, "STAGES": 3}),
    "phases": ((128, 256), image_gradient(), {}),
    "phases, swapped": ((256, 128), image_gradient(), {"SWAP_AB": 1}),
    "phases, side by side": ((384, 64), image_gradient(dims=(288, 64)), {"SWAP_AB": 1}),
    "phases, residual": ((128, 192), image_gradient(adds=True), {}),
}


@pytest.mark.rotating
@pytest.mark.parametrize("name", IMAGE_GRADIENTS)
def test_image_gradients_fit_their_registers(name, monkeypatch):
    (rows, columns), build, more = IMAGE_GRADIENTS[name]
    knobs = {"TILE_M": rows, "TILE_N": columns, "TILE_CGA_M": 1, "TILE_CGA_N": 1}
    knobs |= {"SPLIT_K_SLC": 1, "SWAP_AB": 0, "TILE_ROWS": 0, **more}
    assembled_without_waits("conv_sm90", build, knobs, "sm_90a", monkeypatch)


EIGHTS = dnnc.Dim("R", min=8, max=128, multiple_of=8)


def product_of_images(after=None, before=None, rows=EIGHTS):
    """A filter of one tap, images with channels first; before(graph, X)."""

    def build():
        g = new_graph(dtypes.f16, compute_data_type=dtypes.f32)
        x = g.tensor([IMAGES, 128, rows, EDGE], packed_rows([IMAGES, 128, rows, EDGE]))
        taken = before(g, x).set_data_type(dtypes.f16) if before else x
        y = g.conv_fprop(taken, g.tensor([256, 128, 1, 1])).set_data_type(dtypes.f16)
        y = (after(g, y) if after else y).set_output()
        y.set_stride(packed_rows(y.get_dim()))
        return g

    return build


def packed_rows(dims):
    return [dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1]


def with_residual_first(g, y):
    scale, bias = (g.tensor([1, 256, 1, 1]) for _ in range(2))
    residual = g.tensor(y.get_dim(), packed_rows(y.get_dim()))
    return g.relu(g.add(g.add(g.mul(y, scale), bias), residual))


def scaled_before(g, x):
    return g.relu(g.add(g.mul(x, g.tensor([1, 128, 1, 1])), g.tensor([1, 128, 1, 1])))


PRODUCTS = {
    "residual": ((256, 128), product_of_images(with_residual_first), {}),
    "residual, many pixels": ((128, 256), product_of_images(with_residual_first), {}),
    "statistics": ((256, 128), product_of_images(statistics), {}),
    "computed": ((128, 128), product_of_images(before=scaled_before), {"STAGES": 3}),
    "rows that are not aligned": ((128, 64), product_of_images(rows=dnnc.Dim("R", max=128)), {}),
}


@pytest.mark.rotating
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if "," in n else ()) for n in PRODUCTS]
)
def test_products_of_images_fit_their_registers(name, monkeypatch):
    (channels, pixels), build, more = PRODUCTS[name]
    knobs = {"TILE_M": channels, "TILE_N": pixels, "TILE_CGA_M": 1, "TILE_CGA_N": 1}
    knobs |= {"SPLIT_K_SLC": 1, "WARP_SPEC_CFG": 1, "SWAP_AB": 0, **more}
    assembled_without_waits("conv_product_sm90", build, knobs, "sm_90a", monkeypatch)


@pytest.mark.rotating
@pytest.mark.parametrize("after", [scaled_with_residual, statistics])
@pytest.mark.parametrize(
    ("rows", "columns", "channels", "pixels", "inputs", "stride"),
    [
        (7, 0, 128, 256, 64, 1), (8, 0, 64, 256, 64, 1), (16, 0, 64, 512, 32, 1),
        (12, 0, 128, 256, 64, 2), (14, 28, 64, 512, 32, 1),
        pytest.param(14, 16, 128, 256, 32, 1, marks=pytest.mark.slow),
        pytest.param(6, 32, 128, 256, 32, 2, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_halos_fit_their_registers(
    rows, columns, channels, pixels, inputs, stride, after, monkeypatch
):
    """Tiles of some columns are of images whose width is not known."""
    knobs = {"TILE_M": pixels, "TILE_N": channels, "TILE_ROWS": rows, "SWAP_AB": 1, "STAGES": 2}
    knobs |= {"TILE_CGA_M": 1, "TILE_CGA_N": 1, "SPLIT_K_SLC": 1, "TILE_COLS": columns}
    three, across = {**THREE, "stride": [stride] * 2}, ACROSS if columns else 28
    images = [IMAGES, inputs, EDGE, across]
    build = convolution(images, [128, inputs, 3, 3], after=after, **three)
    assembled_without_waits("conv_sm90", build, knobs, "sm_90a", monkeypatch)


@pytest.mark.parametrize("rows", [128, 256])
def test_first_layers_fit_their_registers(rows, monkeypatch):
    build = convolution(
        [IMAGES, 3, 224, 224], [64, 3, 7, 7], after=scaled_with_residual,
        padding=[3, 3], stride=[2, 2], dilation=[1, 1],
    )  # fmt: skip
    knobs = {"TILE_M": rows, "TILE_N": 64}
    assembled_without_waits("conv_stem_sm90", build, knobs, "sm_90a", monkeypatch)


# X's channels, the filter, the stride, the tile: long filters and units, outputs that fill no tile
# beside many sums, words across two and tiles of output channels.
FEW = {
    "8 channels": (8, [64, 8, 7, 7], 2, (256, 64)),
    "32 channels": (32, [120, 32, 3, 3], 1, (256, 128)),
    "3 channels, stride 1": (3, [504, 3, 7, 7], 1, (128, 256)),
}


@pytest.mark.rotating
@pytest.mark.parametrize("name", FEW)
def test_layers_of_few_channels_fit_their_registers(name, monkeypatch):
    channels, filter_, stride, (rows, columns) = FEW[name]
    padding = [filter_[2] // 2] * 2
    build = convolution(
        [IMAGES, channels, 112, 112], filter_, after=scaled_with_residual,
        padding=padding, stride=[stride] * 2, dilation=[1, 1],
    )  # fmt: skip
    knobs = {"TILE_M": rows, "TILE_N": columns, "STAGES": 2}
    assembled_without_waits("conv_stem_sm90", build, knobs, "sm_90a", monkeypatch)


def computed(x, w, act="relu", dual=False, raw=dtypes.f16, after=None, keeps=False):
    """act(X * scale + bias), or of the sum of two such, before the convolution.

    keeps: it is an output too, and the filter has one tap.
    """

    def build():
        g = new_graph(dtypes.f16, compute_data_type=dtypes.f32)

        def scaled():
            scale, bias = (g.tensor([1, x[1], 1, 1]) for _ in range(2))
            return g.add(g.mul(g.tensor(x, packed_channels(x), data_type=raw), scale), bias)

        before = getattr(g, act)(g.add(scaled(), scaled()) if dual else scaled())
        before.set_data_type(dtypes.f16).set_output(keeps)
        parameters = {} if keeps else THREE
        y = g.conv_fprop(before, g.tensor(w, packed_channels(w)), **parameters)
        (after(g, y) if after else y.set_data_type(dtypes.f16)).set_output()
        return g

    return build


COMPUTED = {
    "128x256": ((128, 256), computed(IMAGE, FILTER), {}),
    "256x128": ((256, 128), computed(IMAGE, FILTER, "gelu"), {}),
    "most sums": ((192, 256), computed(IMAGE, FILTER), {"SWAP_AB": 1, "STAGES": 3}),
    "side by side": ((512, 64), computed(IMAGE, FILTER, after=statistics), {"SWAP_AB": 1}),
    "two images": (
        (256, 128), computed(IMAGE, FILTER, dual=True, after=statistics), {"SWAP_AB": 1}
    ),
    "kept": (
        (256, 128),
        computed(IMAGE, [192, 128, 1, 1], dual=True, keeps=True, after=statistics),
        {"SWAP_AB": 1},
    ),
    "f32": ((128, 128), computed(IMAGE, FILTER, "swish", raw=dtypes.f32), {"STAGES": 2}),
    "i8": ((128, 256), computed(IMAGE, FILTER, raw=dtypes.i8), {}),
    "residual": ((128, 192), computed(IMAGE, FILTER, after=scaled_with_residual), {}),
    "statistics 128x192": ((128, 192), computed(IMAGE, FILTER, after=statistics), {}),
    "statistics 128x256, swapped": (
        (128, 256), computed(IMAGE, FILTER, after=statistics), {"SWAP_AB": 1}
    ),
    "one consumer": ((64, 256), computed(IMAGE, FILTER, after=statistics), {}),
    "halo": (
        (256, 128),
        computed([IMAGES, 64, EDGE, 28], [128, 64, 3, 3], "gelu"),
        {"SWAP_AB": 1, "TILE_ROWS": 7, "STAGES": 2},
    ),
    "halo of 64 channels": (
        (256, 64),
        computed([IMAGES, 64, EDGE, 28], [64, 64, 3, 3], after=statistics),
        {"SWAP_AB": 1, "TILE_ROWS": 8, "STAGES": 9},
    ),
    "few channels": (
        (256, 128),
        computed([IMAGES, 24, EDGE, EDGE], [192, 24, 3, 3], after=statistics),
        {"SWAP_AB": 1},
    ),
    "halo of few channels": (
        (512, 64),
        computed([IMAGES, 32, EDGE, 28], [64, 32, 3, 3], after=statistics),
        {"SWAP_AB": 1, "TILE_ROWS": 16, "STAGES": 9},
    ),
}  # fmt: skip


QUICK = (
    "most sums", "kept", "residual", "one consumer", "halo of 64 channels", "halo of few channels"
)  # fmt: skip


@pytest.mark.rotating
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in COMPUTED]
)
def test_what_computes_pixels_fits_its_registers(name, monkeypatch):
    (rows, columns), build, more = COMPUTED[name]
    knobs = {"TILE_M": rows, "TILE_N": columns, "TILE_CGA_M": 1, "TILE_CGA_N": 1}
    knobs |= {"SPLIT_K_SLC": 1, "SWAP_AB": 0, "TILE_ROWS": 0, **more}
    assembled_without_waits("conv_sm90", build, knobs, "sm_90a", monkeypatch)


def scaled_before():
    g = new_graph(dtypes.f16, compute_data_type=dtypes.f32)
    x = g.tensor(IMAGE, packed_channels(IMAGE))
    scale, bias = (g.tensor([1, IMAGE[1], 1, 1]) for _ in range(2))
    x = g.relu(g.add(g.mul(x, scale), bias)).set_data_type(dtypes.f16)
    y = g.conv_fprop(x, g.tensor(FILTER, packed_channels(FILTER)), **THREE)
    scaled_with_residual(g, y).set_output()
    return g


STEM = convolution(
    [IMAGES, 3, 224, 224], [64, 3, 7, 7], padding=[3, 3], stride=[2, 2], dilation=[1, 1]
)
GROUPS = convolution(IMAGE, [128, 8, 3, 3], after=scaled_with_residual, **THREE)
FEW_CHANNELS = convolution([IMAGES, 6, EDGE, EDGE], [192, 6, 3, 3], **THREE)

# Graph, knobs.
GATHERED = {
    "fused": (FUSED, {}),
    "first layer": (STEM, {"TILE_M": 128, "TILE_N": 64, "TILEK": 32}),
    "statistics": (STATISTICS, {}),
}


@pytest.mark.rotating
@ARCHITECTURES
@pytest.mark.parametrize("name", GATHERED)
def test_conv_sm80_on_every_architecture(name, target):
    build, knobs = GATHERED[name]
    assert_fits(assembled("conv_sm80", build, knobs, target), target)


@pytest.mark.rotating
@pytest.mark.parametrize("tile", WARPS, ids=str)
def test_no_tile_of_pixels_spills_or_takes_many_more_registers(tile):
    """Than predictions take for granted, of matmuls: for where its pixels are."""
    knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "TILEK": 64, "STAGES": 3}
    plan = assembled("conv_sm80", FUSED, knobs, "sm_80")
    assert_fits(plan, "sm_80")
    assert plan.programs[0].kernels[0].registers <= TILE_REGISTERS[tile] + 16


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("build", "knobs"),
    [
        (scaled_before, {"TILE_M": 128, "TILE_N": 64, "TILEK": 32}),
        (scaled_before, {"TILE_M": 128, "TILE_N": 256, "TILEK": 64, "STAGES": 3}),
        (STEM, {"TILE_M": 128, "TILE_N": 128, "TILEK": 64, "STAGES": 3}),
        (STEM, {"TILE_M": 256, "TILE_N": 128, "TILEK": 32, "STAGES": 3}),
        (FEW_CHANNELS, {"TILE_M": 128, "TILE_N": 128, "TILEK": 32, "STAGES": 3}),
        (FEW_CHANNELS, {"TILE_M": 256, "TILE_N": 128, "TILEK": 64, "STAGES": 3}),
        (GROUPS, {"TILE_M": 64, "TILE_N": 64, "TILEK": 32, "STAGES": 2}),
        (GROUPS, {"TILE_M": 32, "TILE_N": 64, "TILEK": 64, "STAGES": 2}),
        (convolution(IMAGE, FILTER, "FLOAT", **THREE), {"TF32": 3}),
        (convolution(IMAGE, FILTER, "INT8", **THREE), {"TILE_M": 128, "TILE_N": 256, "STAGES": 3}),
        (convolution([IMAGES, 64, 8, 28, 28], [256, 64, 3, 3, 3], padding=[1] * 3), {}),
    ],
    ids=(
        "before",
        "before 256",
        "stem",
        "stem 256",
        "6 channels",
        "6 channels 256",
        "groups",
        "groups, flat",
        "tf32",
        "i8",
        "3D",
    ),
)
def test_no_gather_spills(build, knobs):
    assert_fits(assembled("conv_sm80", build, knobs, "sm_80"), "sm_80")


def test_registers_for_three_blocks_of_groups_side_by_side():
    knobs = {"TILE_M": 64, "TILE_N": 64, "TILEK": 32, "STAGES": 2}
    main = assembled("conv_sm80", GROUPS, knobs, "sm_90").programs[0].kernels[0]
    assert 3 * main.threads * main.registers <= of("sm_90").registers_sm


# X, W.
CONVERTED = (("HALF", "INT8"), ("INT8", "BFLOAT16"), ("FP8_E4M3", "FP8_E5M2"), ("BFLOAT16", "HALF"))
LARGEST = {"TILE_M": 128, "TILE_N": 256, "STAGES": 3}


@pytest.mark.parametrize(
    "types",
    [pytest.param(t, marks=() if t == CONVERTED[2] else pytest.mark.slow) for t in CONVERTED],
    ids=str,
)
def test_no_conversion_of_operands_spills(types):
    build = convolution(IMAGE, FILTER, types[0], scaled_with_residual, types[1], **THREE)
    assert_fits(assembled("conv_sm80", build, LARGEST, "sm_90"), "sm_90")


def test_narrow_copies_of_a_matmul_do_not_spill():
    knobs = {"TILE_M": 128, "TILE_N": 128, "TILEK": 64, "STAGES": 3}
    plan = assembled(
        "matmul_sm80", lambda: product(dtypes.f16, 500, 520, 200, pad=2)[0], knobs, "sm_80"
    )
    assert_fits(plan, "sm_80")


def candidates_of_depthwise(size):
    graph = depthwise(size)().graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return engine_named("conv_depthwise").candidates(fusion, of("sm_90a"))


def assert_depthwise_fits(size, found):
    for knobs in found:
        for target in ("sm_80", "sm_90a"):
            assert_fits(assembled("conv_depthwise", depthwise(size), knobs, target), target)


@pytest.mark.rotating
@pytest.mark.parametrize("size", [3, 5])
def test_large_tiles_of_depthwise_filters_fit_their_registers(size):
    """Of each way of loading and holding, the candidate of most sums."""
    most = {}
    for knobs in sorted(
        candidates_of_depthwise(size), key=lambda c: c["TILE_ROWS"] * c["TILE_COLS"]
    ):
        most[knobs["LOAD_SIZE"], knobs["SPECFILT"]] = knobs
    assert len(most) >= 3
    assert_depthwise_fits(size, most.values())


@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("size", "channels"), [(3, 8), (5, 8), (7, 8), (9, 8), (10, 8), (3, 16), (7, 16)]
)
def test_filters_of_groups_fit_their_registers(size, channels, target):
    """Of the candidates, the one of most filter, sums and pixels."""
    build = depthwise(size, "HALF", channels, 29)
    graph = build().graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    engine = engine_named("conv_grouped_sm80")
    facts = GroupedFacts(shape_of(conv_of(fusion)), dtypes.f16)
    found = sorted(
        (k for k in engine.candidates(fusion, of(target)) if k["ARRAY_SIZE_PER_THREAD"] == 2),
        key=lambda k: (facts.live(k["TILE_ROWS"], k["TILE_N"]), k["BLOCK_SIZE"]),
    )
    assert_fits(assembled("conv_grouped_sm80", build, found[-1], target), target)


def test_a_strip_of_groups_is_under_way_at_once():
    """Seven of nine lines, two loads of 16 bytes each, before the first product; of those each line
    has two for each row of outputs that meets it."""
    knobs = {"TILE_ROWS": 7, "TILE_N": 8, "ARRAY_SIZE_PER_THREAD": 1}
    plan = assembled("conv_grouped_sm80", depthwise(3, "HALF", 8, 29), knobs, "sm_90a")
    ptx = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    assert ptx.count("mma.sync") == 2 * 3 * 7
    pixels = "@%p"
    before = ptx[: ptx.index("mma.sync")]
    assert sum("ld.global.nc.v4" in line and pixels in line for line in before.splitlines()) >= 14


def depthwise_with_epilogue():
    """14 columns, which tiles of 4 do not divide, then scale, bias and ReLU."""
    g = new_graph(dtypes.f16)
    x, w = channels_last(g, 32, 14, 14, 384), channels_last(g, 384, 3, 3, 1)
    y = g.conv_fprop(x, w, padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    scaled = g.mul(y, g.tensor([1, 384, 1, 1]))
    g.relu(g.add(scaled, g.tensor([1, 384, 1, 1]))).set_output()
    return g


def test_pixels_that_may_be_outside_are_computed_before_the_branches_that_store_them():
    """Else all taps and pixels of their sums live until there: 233 registers."""
    knobs = {"LOAD_SIZE": 16, "TILE_ROWS": 1, "TILE_COLS": 4, "ARRAY_SIZE_PER_THREAD": 1}
    plan = assembled("conv_depthwise", depthwise_with_epilogue, knobs, "sm_90a")
    (kernel,) = plan.programs[0].kernels
    assert kernel.registers < 200
    crowded = {**knobs, "TILE_ROWS": 2, "OCCUPANCY": 3}
    assert_fits(assembled("conv_depthwise", depthwise_with_epilogue, crowded, "sm_90a"), "sm_90a")


def test_a_small_strip_of_a_depthwise_convolution_is_under_way_at_once():
    """36 loads of its pixels before the first multiply-add, where registers hold them."""
    knobs = {"LOAD_SIZE": 8, "TILE_ROWS": 2, "TILE_COLS": 7, "ARRAY_SIZE_PER_THREAD": 1}
    plan = assembled("conv_depthwise", depthwise(3), {**knobs, "OCCUPANCY": 4}, "sm_90a")
    assert_fits(plan, "sm_90a")
    ptx = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    assert ptx[: ptx.index("fma.rn.f32")].count(".v2.b32") == 36


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 5, 7])
def test_every_candidate_of_depthwise_filters_fits_its_registers(size):
    assert_depthwise_fits(size, candidates_of_depthwise(size))


def test_fp8_below_sm_89_is_refused_with_the_targets_that_have_it():
    g = new_graph(dtypes.f8e4m3)
    g.relu(g.tensor([64])).set_output()
    with pytest.raises(dnnc.DnncError, match="sm_89, sm_90") as caught:
        compile_graph(g.graph, "sm_80")
    assert caught.value.status is dnnc.Status.NOT_SUPPORTED_ARCH_MISMATCH


def test_large_tiles_are_refused_where_shared_memory_is_small():
    knobs = {"TILE_M": 128, "TILE_N": 256, "TILEK": 64, "STAGES": 3}
    with pytest.raises(dnnc.DnncError, match=r"shared memory: .* on sm_86"):
        assembled("matmul_sm80", ffn("gelu"), knobs, "sm_86")


@pytest.mark.rotating
@pytest.mark.parametrize("target", [name for name in TARGETS if of(name).capability >= (9, 0)])
def test_rows_come_through_rings_and_clusters(target):
    ring = {"TILE_COLS": 128, "ARRAY_SIZE_PER_THREAD": 16, "CTA_COUNT": 1, "STAGES": 2}
    assert_fits(assembled("rows", layernorm_backward, ring, target), target)
    shared = {"TILE_COLS": 128, "ARRAY_SIZE_PER_THREAD": 16, "TILE_CGA": 2}
    assert_fits(assembled("rows", layernorm, shared, target), target)
    kept = {"TILE_COLS": 1024, "ARRAY_SIZE_PER_THREAD": 0, "STAGES": 1}
    assert_fits(assembled("rows", layernorm, kept, target), target)


def long_layernorm_of_bytes():
    g = new_graph(dtypes.bf16)
    x, (scale, bias) = g.tensor([8192, 65536]), (g.tensor([1, 65536]) for _ in range(2))
    y = g.layernorm("INFERENCE", x, scale, bias, g.tensor_scalar(1e-5))[0]
    y.set_output().set_data_type(dtypes.f8e4m3)
    return g


@pytest.mark.assembled
def test_rows_that_nvjitlink_ends_the_process_of():
    knobs = {
        "TILE_COLS": 256, "TILE_ROWS": 0, "ARRAY_SIZE_PER_THREAD": 64, "TILE_CGA": 4,
        "CTA_COUNT": 1, "STAGES": 3, "KERNEL_CFG": 2,
    }  # fmt: skip
    assert_fits(assembled("rows", long_layernorm_of_bytes, knobs, "sm_90a"), "sm_90a")


@pytest.mark.rotating
@pytest.mark.parametrize(
    "build", [layernorm, layernorm_with_extremes, layernorm_backward, softmax_of_channels]
)
def test_no_rows_are_spilled(build):
    """Of the candidates that hold most elements, and of rings."""
    graph = build().graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    found = engine_named("rows").candidates(fusion, of("sm_90a"))
    most = {(c["TILE_COLS"], c["STAGES"] > 0): c for c in found if c["TILE_CGA"] == 1}
    assert len(most) > 3
    for knobs in most.values():
        assert_fits(assembled("rows", build, knobs, "sm_90a"), "sm_90a")
