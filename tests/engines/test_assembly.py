"""Kernels of every engine, assembled for every architecture that is claimed: no spills."""

from functools import partial

import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.dialect.pointwise_modes import MODES
from dnnc.engines import engine_named
from dnnc.engines.product import knobs_sm90
from dnnc.engines.product.knobs_sm80 import WARPS
from dnnc.target import of
from tests import attention_graphs as graphs
from tests.attention_graphs import Pattern
from tests.dialect.attention_gradient_examples import gradient as gradient_of_attention
from tests.dialect.norm_examples import peer_reduction
from tests.engines.assembling import (
    ARCHITECTURES,
    IMAGES,
    TARGETS,
    M,
    assembled,
    assembled_without_waits,
    assert_fits,
    channels_last,
    depthwise,
    filter_gradient,
)
from tests.engines.elementwise.test_pointwise import new_graph
from tests.engines.elementwise.test_reduction import reduce
from tests.engines.product.test_matmul_sm80 import new_graph as matmul_graph
from tests.engines.product.test_matmul_sm80 import product, strides
from tests.engines.product.test_matmul_sm90 import softmax
from tests.engines.rows.test_grid import add_relu_mask, batchnorm, gradients, scaled_by_amax
from tests.fp8_attention import FAST
from tests.fp8_attention import attention as attention_of_fp8

pytestmark = pytest.mark.registers
B = dnnc.Dim("B", max=256)


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


def sums_and_mask():
    g = matmul_graph(dtypes.f16)
    c = g.relu(g.matmul(g.tensor([1, M, 512]), g.tensor([1, 512, 512])))
    g.cmp_gt(c, 0).set_output().set_data_type(dtypes.i1)
    for mode, dims in (("add", [1, 1, 512]), ("max", [1, M, 1]), ("amax", [1, 1, 1])):
        g.reduction(c, mode).set_dim(dims).set_output().set_data_type(dtypes.f32)
    c.set_output()
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


def transposed_operand(io):
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


def attention(batch, key_batch, queries, scores):
    """Heads of 128."""
    shape = {"batch": batch, "key_batch": key_batch, "queries": queries, "keys": M}
    return lambda: Pattern(depth=128, scores=scores, **shape).g


def attention_gradient(depth):
    arguments = {"attn_scale": 0.125, "use_causal_mask": True}
    heads = {"batch": B, "heads": 16, "kv_heads": 16, "depth": depth, "value_depth": depth}
    return gradient_of_attention(arguments, io=dtypes.bf16, rows=M, columns=M, **heads)


CASES = {
    "matmul bias gelu": ("matmul_sm80", ffn("gelu"), {}),
    "matmul bias residual": ("matmul_sm80", ffn("residual", dtypes.bf16), {}),
    "matmul dequantised": ("matmul_sm80", dequantised, {"TILE_M": 64, "TILE_N": 64}),
    "matmul f16": ("matmul_sm80", plain("f16"), {}),
    "matmul tf32": ("matmul_sm80", plain("tf32"), {"TF32": 1}),
    "matmul f32": ("matmul_sm80", plain("tf32"), {"TF32": 3}),
    "matmul i8": ("matmul_sm80", plain("i8"), {}),
    "matmul sums and mask": ("matmul_sm80", sums_and_mask, {"TILE_M": 128, "TILE_N": 128}),
    "fallback": ("fallback", ffn("gelu"), {}),
    "pointwise bias gelu": ("pointwise", bias_gelu, {}),
    "pointwise transposed": ("pointwise", transposed, {}),
    "pointwise every mode": ("pointwise", every_mode, {"ARRAY_SIZE_PER_THREAD": 1}),
    "transpose": ("transpose", transposed, {}),
    "transpose f32": ("transpose", transposed_operand(dtypes.f32), {}),
    "transpose of vectors": ("transpose", of_vectors, {"TILE_M": 4, "TILE_N": 512}),
    "transpose to vectors": ("transpose", to_vectors, {"TILE_M": 512, "TILE_N": 4}),
    "transpose i8": ("transpose", transposed_operand(dtypes.i8), {"TILE_M": 128, "TILE_N": 128}),
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
    **{
        f"attention's gradient, heads of {depth}": ("sdpa_bwd_sm80", attention_gradient(depth), {})
        for depth in (64, 128, 256)
    },
    "peers": ("peers", peer_reduction((1, 2048, 1, 1), 8, 3), {}),
    "peers of 32": ("peers", peer_reduction((1, M), 32, 0, "gradients"), {}),
}


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


# Targets that convert fp8; the code of sm_100a and sm_120a has nothing of its own.
WITH_FP8 = [name for name in TARGETS if of(name).has_fp8_convert and name[-1] != "a"]


def scaled_fp8():
    """Both types of fp8, scales, amax, a mask and a result of fp8."""
    g = dnnc.pygraph("fp8", io_data_type=dtypes.f8e4m3)
    b = g.tensor([1, 1024, 1536], strides(1024, 1536, "column"), data_type=dtypes.f8e5m2)
    c = g.mul(g.matmul(g.tensor([1, M, 1024]), b), g.tensor([1, 1, 1], data_type=dtypes.f32))
    g.cmp_gt(c, 0).set_output().set_data_type(dtypes.i1)
    g.reduction(c, "amax").set_dim([1, 1, 1]).set_output().set_data_type(dtypes.f32)
    g.mul(c, g.tensor([1, 1, 1], data_type=dtypes.f32)).set_output()
    return g


@pytest.mark.rotating
@pytest.mark.parametrize("target", WITH_FP8)
@pytest.mark.parametrize("tile", WARPS, ids=str)
def test_no_tile_of_fp8_spills(tile, target):
    """Stages of 128 are refused where products are summed apart, and large tiles on small SMs."""
    if tile[0] * tile[1] > 128 * 128 and of(target).limits.smem_block_bytes < 128 << 10:
        pytest.skip(f"{target} has no shared memory for it")
    depth = 64 if of(target).multiplies_fp8 else 128
    knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "TILEK": depth, "STAGES": 3}
    assert_fits(assembled("matmul_sm80", scaled_fp8, knobs, target), target)


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
    "128x224": (128, 224, hopper("HALF", "HALF", scaled_residual), {}),
    "248x128 swapped": (128, 248, hopper("HALF", "HALF", scaled_residual), {"SWAP_AB": 1}),
    "ping-pong": (128, 128, hopper("HALF", "HALF", gelu), {"WARP_SPEC_CFG": 4}),
    "ping-pong 64x256": (64, 256, hopper("HALF", "HALF", scaled_residual), {"WARP_SPEC_CFG": 4}),
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


def test_narrow_copies_of_a_matmul_do_not_spill():
    knobs = {"TILE_M": 128, "TILE_N": 128, "TILEK": 64, "STAGES": 3}
    plan = assembled(
        "matmul_sm80", lambda: product(dtypes.f16, 500, 520, 200, pad=2)[0], knobs, "sm_80"
    )
    assert_fits(plan, "sm_80")


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
    # 1024 threads have 64 registers each, of which the assembler spills one for sm_120.
    threads = 512 if of(target).capability >= (12, 0) else 1024
    kept = {"TILE_COLS": threads, "ARRAY_SIZE_PER_THREAD": 0, "STAGES": 1}
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
    """The candidates that hold most elements do not spill, with rings and without."""
    graph = build().graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    found = engine_named("rows").candidates(fusion, of("sm_90a"))
    most = {(c["TILE_COLS"], c["STAGES"] > 0): c for c in found if c["TILE_CGA"] == 1}
    assert len(most) > 3
    for knobs in most.values():
        assert_fits(assembled("rows", build, knobs, "sm_90a"), "sm_90a")
