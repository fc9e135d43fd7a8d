"""Sizes that the interpreter is too slow for, against torch in float64 on the device."""

import pytest

import dnnc
from dnnc import dtypes, worker
from dnnc.engines.product.knobs_sm80 import WARPS
from dnnc.options import Options
from tests.support import device

torch = pytest.importorskip("torch")

TOKENS = dnnc.Dim("tokens", max=65536)
UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-23}
TYPES = {torch.float16: dtypes.f16, torch.bfloat16: dtypes.bf16, torch.float32: dtypes.f32}


def fresh(*dims, dtype=torch.float16, low=-1.0, high=1.0):
    wide = torch.empty(*dims, dtype=torch.float32, device="cuda")
    return wide.uniform_(low, high).to(dtype)


def poisoned(*dims, dtype=torch.float16):
    return torch.full(dims, float("nan"), dtype=dtype, device="cuda")


def assert_close(actual, exact, dtype, slack=2.0, allowance=0.0, least=0.0):
    """least: what a row's largest counts as at least, of the mean of all elements."""
    actual = actual.double()
    assert bool(torch.isfinite(actual).all())
    error = float((actual - exact).norm() / exact.norm())
    bound = slack * UNIT[dtype] + allowance
    assert error <= bound, f"relative error {error:.3g} > {bound:.3g}"
    largest = exact.abs().amax(-1).clamp_min(least * float(exact.abs().mean()))
    worst = float(((actual - exact).abs().amax(-1) / largest).max())
    assert worst <= 8 * bound, f"an element is off by {worst:.3g} of its row's largest"


def execute(graph, pack, options=None, sizes=None, target=""):
    """target: what it is compiled for; "": the device's own, which is not sm_90a."""
    plan = dnnc.load(worker.compile_graph(graph, target or device.target(), options or Options()))
    needed = plan.workspace_size(plan.sizes(pack, sizes))
    workspace = torch.empty(needed, dtype=torch.uint8, device="cuda") if needed else None
    plan.execute(pack, workspace, sizes=sizes)
    torch.cuda.synchronize()


def ffn(m, n, k, dtype):
    io = TYPES[dtype]
    g = dnnc.pygraph("ffn", io_data_type=io, intermediate_data_type=dtypes.f32)
    x, w = g.tensor([1, m, k], name="x"), g.tensor([1, k, n], [k * n, 1, k], name="w")
    b = g.tensor([1, 1, n], name="b")
    g.gelu(g.bias(g.matmul(x, w), b)).set_output().set_name("y")
    return g.graph.finalize()


def check_ffn(m, n, k, dtype, graph=None, options=None):
    # Weights such that no row of outputs vanishes in GELU's tail.
    small = (3 / k) ** 0.5
    w = fresh(1, n, k, dtype=dtype, low=-small, high=small).transpose(1, 2)
    x = fresh(1, m, k, dtype=dtype)
    b, y = fresh(1, 1, n, dtype=dtype), poisoned(1, m, n, dtype=dtype)
    execute(graph or ffn(m, n, k, dtype), {"x": x, "w": w, "b": b, "y": y}, options)
    exact = torch.nn.functional.gelu(x.double() @ w.double() + b.double())
    # f32 sums in the tensor cores truncate; three tf32 products leave 2**-21 of each.
    assert_close(y, exact, dtype, allowance=2.0**-20 * (1 + k / 256) ** 0.5)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(517, 1031, 769), (1, 4096, 4096), (4096, 1536, 384), (2048, 2048, 2048), (300, 8, 8192)],
)
def test_ffn_by_the_engine_that_is_chosen(m, n, k, dtype):
    check_ffn(m, n, k, dtype)


@pytest.mark.parametrize("tile", WARPS, ids=str)
def test_every_tile_at_sizes_that_fill_the_device(tile):
    knobs = (("TILE_M", tile[0]), ("TILE_N", tile[1]), ("STAGES", 3))
    options = Options(engine="matmul_sm80", knobs=knobs)
    check_ffn(3001, 4104, 1096, torch.float16, options=options)


def test_one_cubin_serves_twenty_token_counts():
    graph = ffn(TOKENS, 1536, 384, torch.float16)
    for m in (1, 2, 3, 7, 8, 15, 16, 17, 31, 64, 65, 127, 128, 129, 200, 1000, 4096, 10007, 32768,
              65535):  # fmt: skip
        check_ffn(m, 1536, 384, torch.float16, graph)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=["columns", "rows", "all"])
@pytest.mark.parametrize(("m", "n"), [(4096, 4096), (16384, 1000), (3, 1000003), (1000003, 3)])
def test_reductions(m, n, axes):
    g = dnnc.pygraph(io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32)
    x = g.tensor([m, n], name="x")
    dims = [1 if axis in axes else extent for axis, extent in enumerate((m, n))]
    total = g.reduction(g.mul(x, x), "avg").set_dim(dims)
    total.set_output().set_data_type(dtypes.f32).set_name("y")
    data, y = fresh(m, n), poisoned(*dims, dtype=torch.float32)
    execute(g.graph.finalize(), {"x": data, "y": y})
    exact = (data.double() ** 2).mean(axes, keepdim=True)
    assert_close(y, exact, torch.float32, allowance=2.0**-19)


@pytest.mark.parametrize(
    ("m", "n"),
    [
        (700, 12288), (500, 24576), (400, 50000),  # a block or a cluster holds a row
        (300, 70000), (300, 100_000), (200, 131_072), (1, 100_000),
        (200, 100_001), (150, 200_000), (40, 1_000_000), (8, 1_000_000), (1, 1_000_000),
    ],
)  # fmt: skip
def test_gradients_of_layer_norms(m, n):
    dtype = torch.bfloat16
    g = dnnc.pygraph(io_data_type=TYPES[dtype], intermediate_data_type=dtypes.f32)
    dy, x = g.tensor([m, n], name="dy"), g.tensor([m, n], name="x")
    scale = g.tensor([1, n], name="scale")
    mean, inverse = (g.tensor([m, 1], data_type=dtypes.f32, name=t) for t in ("mean", "inverse"))
    names = ("dx", "dscale", "dbias")
    for name, made in zip(names, g.layernorm_backward(dy, x, scale, mean, inverse), strict=True):
        made.set_output().set_name(name)
        made.set_data_type(TYPES[dtype] if name == "dx" else dtypes.f32)
    data = {"x": fresh(m, n, dtype=dtype), "scale": fresh(1, n, dtype=dtype, low=0.5)}
    variance, average = torch.var_mean(data["x"].double(), 1, correction=0, keepdim=True)
    inverted = variance.rsqrt()
    # Apart from x, both means that dx has would be lost in its rounding.
    normal = (data["x"].double() - average.float().double()) * inverted.float().double()
    data["dy"] = (fresh(m, n, dtype=dtype).double() + normal).to(dtype)
    data |= {"mean": average.float(), "inverse": inverted.float()}
    results = {"dx": poisoned(m, n, dtype=dtype)}
    results |= {name: poisoned(1, n, dtype=torch.float32) for name in ("dscale", "dbias")}
    execute(g.graph.finalize(), data | results)
    dy64 = data["dy"].double()
    scaled = dy64 * data["scale"].double()
    rest = scaled - scaled.mean(1, keepdim=True)
    rest = rest - normal * (scaled * normal).mean(1, keepdim=True)
    assert_close(results["dx"], rest * inverted.float().double(), dtype, allowance=2.0**-16)
    for name, factor in (("dscale", normal), ("dbias", 1.0)):
        exact = (dy64 * factor).sum(0, keepdim=True)
        assert_close(results[name], exact, torch.float32, allowance=2.0**-17)


def layer_norm(g, x, scale):
    y, *_ = g.layernorm("INFERENCE", x, scale, None, g.tensor_scalar(1e-5))
    return y


def rms_norm(g, x, scale):
    return g.rmsnorm("INFERENCE", x, scale, None, g.tensor_scalar(1e-5))[0]


def softmax(g, x, scale):
    return g.mul(g.softmax(x, axis=-1), scale)


def exact_norm(made, x, scale):
    if made is softmax:
        return x.softmax(-1) * scale
    x = x - x.mean(-1, keepdim=True) if made is layer_norm else x
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * scale


LONG = [(m, n) for n in (100_001, 1_000_000) for m in (1, 16, 17, 64, 300)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("made", [layer_norm, rms_norm, softmax])
@pytest.mark.parametrize(("m", "n"), LONG)
def test_norms_of_long_rows(m, n, made, dtype):
    """The mean is away from 0, where sums would cancel."""
    check_norm(m, n, made, dtype, n)


@pytest.mark.parametrize("made", [layer_norm, rms_norm, softmax])
def test_norms_of_rows_of_any_length(made):
    """Plans for any rows of up to 2^20 elements, with configs for ranges of them."""
    columns = dnnc.Dim("columns", max=1 << 20)
    for m, n in ((5, 1_000_000), (200, 100_001), (1, 1 << 20), (3, 1)):
        check_norm(m, n, made, torch.bfloat16, columns)


def check_norm(m, n, made, dtype, columns):
    g = dnnc.pygraph(io_data_type=TYPES[dtype], intermediate_data_type=dtypes.f32)
    x, scale = g.tensor([m, columns], name="x"), g.tensor([1, columns], name="scale")
    made(g, x, scale).set_output().set_name("y")
    data = {"x": fresh(m, n, dtype=dtype, low=-0.5, high=1.5)}
    data["scale"] = fresh(1, n, dtype=dtype, low=0.5)
    y = poisoned(m, n, dtype=dtype)
    execute(g.graph.finalize(), {**data, "y": y})
    exact = exact_norm(made, data["x"].double(), data["scale"].double())
    if n > 1 or made is not layer_norm:
        assert_close(y, exact, dtype, allowance=2.0**-18)
    else:
        assert bool((y == 0).all())


def test_the_amax_of_a_quantised_norm():
    m, n, dtype = 8192, 4096, torch.bfloat16
    g = dnnc.pygraph(io_data_type=TYPES[dtype], intermediate_data_type=dtypes.f32)
    x, scale = g.tensor([m, n], name="x"), g.tensor([1, n], name="scale")
    y, _ = g.rmsnorm("INFERENCE", x, scale, None, g.tensor_scalar(1e-5))
    g.reduction(y, "amax").set_dim([1, 1]).set_output().set_data_type(dtypes.f32).set_name("amax")
    g.mul(y, 16.0).set_output().set_data_type(dtypes.f8e4m3).set_name("y")
    data = {"x": fresh(m, n, dtype=dtype), "scale": fresh(1, n, dtype=dtype, low=0.5)}
    quantised = torch.empty(m, n, dtype=torch.float8_e4m3fn, device="cuda")
    results = {"amax": poisoned(1, 1, dtype=torch.float32), "y": quantised}
    execute(g.graph.finalize(), data | results)
    wide = data["x"].double()
    exact = wide * (wide.square().mean(1, keepdim=True) + 1e-5).rsqrt() * data["scale"].double()
    assert abs(float(results["amax"]) / float(exact.abs().max()) - 1) < 2.0**-20
    off = (results["y"].double() - (16 * exact).clamp(-448, 448)).norm() / (16 * exact).norm()
    assert float(off) < 2.0**-4


def test_pointwise_beyond_two_to_the_31_elements():
    g = dnnc.pygraph(io_data_type=dtypes.i8, intermediate_data_type=dtypes.f32)
    rows, columns = 33, 1 << 26
    x = g.tensor([rows, columns], name="x")
    g.add(x, 1.0).set_output().set_name("y")
    data = torch.randint(-100, 100, (rows, columns), dtype=torch.int8, device="cuda")
    y = torch.full_like(data, 77)
    execute(g.graph.finalize(), {"x": data, "y": y})
    for row in range(rows):
        assert torch.equal(y[row], data[row] + 1)


def test_channels_last_and_strided_views():
    g = dnnc.pygraph(io_data_type=dtypes.bf16, intermediate_data_type=dtypes.f32)
    data = fresh(8, 64, 56, 57, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    other = fresh(8, 64, 56, 120, dtype=torch.bfloat16)[..., 3:117:2]
    x, z = (
        g.tensor(list(t.shape), list(t.stride()), name=name, alignment_value=2)
        for t, name in ((data, "x"), (other, "z"))
    )
    y = g.relu(g.add(x, z)).set_output().set_name("y")
    y.set_stride(list(data.stride())).set_alignment(2)
    out = poisoned(8, 64, 56, 57, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    execute(g.graph.finalize(), {"x": data, "z": other, "y": out})
    exact = torch.relu(data.double() + other.double())
    assert_close(out, exact, torch.bfloat16)
