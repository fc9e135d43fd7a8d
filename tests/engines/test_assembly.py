"""Kernels of every engine, assembled for every architecture that is claimed: no spills."""

import pytest

import dnnc
from dnnc import dtypes
from dnnc import target as targets
from dnnc.compiler import compile_graph
from dnnc.dialect.pointwise_modes import MODES
from dnnc.engines.matmul_sm80 import WARPS
from dnnc.options import Options
from dnnc.target import of

from .test_matmul_sm80 import new_graph as matmul_graph
from .test_matmul_sm80 import product, strides
from .test_pointwise import new_graph
from .test_reduction import reduce

M = dnnc.Dim("M", max=65536)
TARGETS = tuple(target.name for target in targets.TARGETS)


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
    g.transpose(g.tensor([4, M, 64]), [2, 0, 1]).set_output()
    return g


def sums(axes):
    def build():
        g = new_graph(dtypes.bf16)
        reduce(g, g.exp(g.tensor([M, 4096])), "add", axes).set_output()
        return g

    return build


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
    "reduction rows": ("reduction", sums((1,)), {}),
    "reduction columns": ("reduction", sums((0,)), {}),
    "reduction all": ("reduction", sums((0, 1)), {}),
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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_every_engine_on_every_architecture(name, target):
    plan = assembled(*CASES[name], target)
    assert plan.blobs[0][:4] == b"\x7fELF"
    assert_fits(plan, target)
    (program,) = plan.programs
    assert program.exact == of(target).arch_specific
    assert program.modules[0].ptx_runs_later != program.exact


@pytest.mark.parametrize("tile", WARPS, ids=str)
def test_no_tile_spills(tile):
    knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "TILEK": 32}
    assert_fits(assembled("matmul_sm80", ffn("gelu"), knobs, "sm_80"), "sm_80")


@pytest.mark.parametrize("tile", [t for t in WARPS if t[0] * t[1] <= 128 * 128], ids=str)
def test_no_tile_of_three_products_spills(tile):
    knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "TILEK": 16, "TF32": 3}
    for target in ("sm_80", "sm_90"):
        assert_fits(assembled("matmul_sm80", plain("tf32"), knobs, target), target)


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
