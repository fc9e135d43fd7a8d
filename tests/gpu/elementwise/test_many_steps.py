"""More than 2^31 elements or steps on the device: every one is written, or is in the sum."""

import math

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect import philox
from dnnc.options import Options

from ..test_large import UNIT, execute, poisoned

torch = pytest.importorskip("torch")

LOGITS = (43000, 50257)  # 2^31 + 13.6 million
CHUNK = 1000  # rows that are compared at a time
M, N = (dnnc.Dim(name, max=65536) for name in "MN")


def drawn(*dims, dtype=torch.float16):
    """Numbers from -1 to 1, made a few rows at a time."""
    made = torch.empty(dims, dtype=dtype, device="cuda")
    for part in made.split(CHUNK):
        part.copy_(torch.rand(part.shape, device="cuda") * 2 - 1)
    return made


def graph(io=dtypes.f16, **kinds):
    kinds = {"intermediate_data_type": dtypes.f32, "compute_data_type": dtypes.f32, **kinds}
    return dnnc.pygraph("many", io_data_type=io, **kinds)


def finish(*outputs):
    for y, name in outputs:
        y.set_output().set_name(name)


def assert_rows(y, wanted):
    """wanted: of (first row, past the last) -> those rows, which have to be equal."""
    for first in range(0, len(y), CHUNK):
        past = min(first + CHUNK, len(y))
        assert torch.equal(y[first:past], wanted(first, past)), f"rows {first} to {past}"


def relu(*dims):
    g = graph()
    finish((g.relu(g.tensor(dims, name="x")), "y"))
    return g.graph.finalize()


@pytest.mark.parametrize("dims", [LOGITS, (M, N)], ids=["fixed", "symbols"])
def test_relu(dims):
    x, y = drawn(*LOGITS), poisoned(*LOGITS)
    execute(relu(*dims), {"x": x, "y": y})
    assert_rows(y, lambda a, b: torch.relu(x[a:b]))


def test_relu_of_few_elements_by_the_same_plan():
    for m, n in ((1, 1), (3, 5), (1000, 1001)):
        x, y = drawn(m, n), poisoned(m, n)
        execute(relu(M, N), {"x": x, "y": y})
        assert torch.equal(y, torch.relu(x))


@pytest.mark.parametrize("columns", [50257, 50264])
def test_a_bias_of_rows(columns):
    """Odd rows go element by element."""
    g = graph()
    x, bias = g.tensor([43000, columns], name="x"), g.tensor([1, columns], name="bias")
    finish((g.add(x, bias), "y"))
    x, bias, y = drawn(43000, columns), drawn(1, columns), poisoned(43000, columns)
    execute(g.graph.finalize(), {"x": x, "bias": bias, "y": y})
    assert_rows(y, lambda a, b: (x[a:b].float() + bias.float()).half())


def test_strides_with_gaps_and_bytes_past_2_to_the_32():
    g = graph()
    x = g.tensor(LOGITS, [50304, 1], name="x")
    finish((g.relu(x).set_stride([LOGITS[1], 1]), "y"))
    data, y = drawn(43000, 50304)[:, :50257], poisoned(*LOGITS)
    execute(g.graph.finalize(), {"x": data, "y": y})
    assert_rows(y, lambda a, b: torch.relu(data[a:b]))


def test_transposed():
    g = graph()
    x = g.transpose(g.tensor([50257, 43000], name="x"), [1, 0])
    finish((g.relu(x).set_stride([LOGITS[1], 1]), "y"))
    x, y = drawn(50257, 43000), poisoned(*LOGITS)
    execute(g.graph.finalize(), {"x": x, "y": y})
    assert_rows(y, lambda a, b: torch.relu(x[:, a:b].T))


def test_dropout():
    g = graph()
    kept = g.rng(1234567, 5, "BERNOULLI", bernoulli_probability=0.75, dim=list(LOGITS))
    finish((g.mul(g.tensor(LOGITS, name="x"), kept), "y"))
    x, y = torch.ones(LOGITS, dtype=torch.float16, device="cuda"), poisoned(*LOGITS)
    execute(g.graph.finalize(), {"x": x, "y": y})
    for rows in ((0, 8), (42700, 42740), (42992, 43000)):
        place = np.arange(rows[0] * LOGITS[1], rows[1] * LOGITS[1], dtype=np.uint64)
        group = place // np.uint64(4)
        counter = (group & np.uint64(philox.WORD), group >> np.uint64(32), 5, 0)
        words = np.stack(np.broadcast_arrays(*philox.words(counter, (1234567, 0))))
        of_place = words[(place % np.uint64(4)).astype(np.int64), np.arange(place.size)]
        wanted = (of_place >> np.uint64(8)) / 2.0**24 < 0.75
        found = y[rows[0] : rows[1]].reshape(-1).cpu().numpy()
        np.testing.assert_array_equal(found, wanted.astype(np.float16))
    assert not bool(torch.isnan(y[::97]).any())


MODES = ("add", "avg", "amax", "max")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dims", [LOGITS, (M, N)], ids=["fixed", "symbols"])
def test_a_reduction_of_all(mode, dims):
    g = graph()
    total = g.reduction(g.tensor(dims, name="x"), mode).set_dim([1, 1])
    finish((total.set_data_type(dtypes.f32), "y"))
    x, y = drawn(*LOGITS), poisoned(1, 1, dtype=torch.float32)
    x[42999, 50256] = 3.0  # the last one, and the largest
    x += 0.5 if mode in ("add", "avg") else 0.0
    execute(g.graph.finalize(), {"x": x, "y": y})
    if mode in ("amax", "max"):
        assert float(y) == 3.0
        return
    exact = sum(float(part.double().sum()) for part in x.split(CHUNK))
    exact /= math.prod(LOGITS) if mode == "avg" else 1
    assert abs(float(y) - exact) <= 2.0**-16 * abs(exact)


def test_columns_and_rows_of_more_than_2_to_the_31_elements():
    for axis in (0, 1):
        g = graph()
        dims = [1 if i == axis else n for i, n in enumerate(LOGITS)]
        total = g.reduction(g.tensor(LOGITS, name="x"), "add").set_dim(dims)
        finish((total.set_data_type(dtypes.f32), "y"))
        x, y = drawn(*LOGITS), poisoned(*dims, dtype=torch.float32)
        execute(g.graph.finalize(), {"x": x, "y": y})
        exact = torch.zeros(dims, dtype=torch.float64, device="cuda")
        for i, part in enumerate(x.split(CHUNK)):
            found = part.double().sum(axis, keepdim=True)
            if axis:
                exact[i * CHUNK : i * CHUNK + len(part)] = found
            else:
                exact += found
        assert float((y.double() - exact).abs().max()) <= 2.0**-6


@pytest.mark.parametrize("engine", ["reduction", "fallback"])
def test_results_of_more_than_2_to_the_31_sums(engine):
    images, pixels = 75000, 30001
    g = graph()
    total = g.reduction(g.tensor([images, 2, pixels], name="x"), "add")
    finish((total.set_dim([images, 1, pixels]), "y"))
    x, y = drawn(images, 2, pixels), poisoned(images, 1, pixels)
    execute(g.graph.finalize(), {"x": x, "y": y}, Options(engine=engine))
    assert_rows(y, lambda a, b: (x[a:b].float().sum(1, keepdim=True)).half())


@pytest.mark.parametrize("dims", [LOGITS, (M, N)], ids=["fixed", "symbols"])
def test_quantised_by_its_amax(dims):
    g = graph()
    x = g.tensor(dims, name="x")
    amax = g.reduction(x, "amax").set_dim([1, 1]).set_data_type(dtypes.f32)
    y = g.div(x, amax).set_data_type(dtypes.f8e4m3)
    finish((amax, "amax"), (y, "y"))
    x = drawn(*LOGITS)
    x[42999, 50256] = -7.0
    amax = poisoned(1, 1, dtype=torch.float32)
    y = torch.full(LOGITS, 0x7F, dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
    execute(g.graph.finalize(), {"x": x, "amax": amax, "y": y})
    assert float(amax) == 7.0
    for first in range(0, LOGITS[0], CHUNK):
        part = slice(first, first + CHUNK)
        wanted = x[part].float() / 7.0
        off = (y[part].float() - wanted).abs()
        assert bool((off <= wanted.abs() * 2.0**-4 + 2.0**-10).all()), f"rows from {first} on"


def test_batch_norm():
    n, c, h, w = 650, 64, 227, 229  # 2^31 + 14.9 million
    last = [h * w * c, 1, w * c, c]
    g = graph()
    x = g.tensor([n, c, h, w], last, name="x")
    names = ("scale", "bias", "epsilon")
    scale, bias = (g.tensor([1, c, 1, 1], data_type=dtypes.f32, name=name) for name in names[:2])
    epsilon = g.tensor([1, 1, 1, 1], data_type=dtypes.f32, name="epsilon", is_pass_by_value=True)
    y, mean, inverse, *_ = g.batchnorm(x, scale, bias, epsilon=epsilon)
    y.set_stride(last)
    for statistic in (mean, inverse):
        statistic.set_data_type(dtypes.f32)
    finish((y, "y"), (mean, "mean"), (inverse, "inverse"))
    x = drawn(n, h, w, c)
    y = poisoned(n, h, w, c)
    scale, bias = (torch.rand(1, c, 1, 1, device="cuda") + 0.5 for _ in range(2))
    mean, inverse = (poisoned(1, c, 1, 1, dtype=torch.float32) for _ in range(2))
    outer = {"x": x.permute(0, 3, 1, 2), "y": y.permute(0, 3, 1, 2)}
    given = {"scale": scale, "bias": bias, "epsilon": 1e-5, "mean": mean, "inverse": inverse}
    execute(g.graph.finalize(), {**outer, **given})
    count = n * h * w
    sums = sum(part.double().sum((0, 1, 2)) for part in x.split(10))
    exact = sums / count
    squares = sum(((part.double() - exact) ** 2).sum((0, 1, 2)) for part in x.split(10))
    deviation = (squares / count + 1e-5).rsqrt()
    assert float((mean.double().flatten() - exact).abs().max()) <= 2.0**-20
    assert float((inverse.double().flatten() / deviation - 1).abs().max()) <= 2.0**-16
    for i, part in enumerate(x.split(10)):
        wanted = (part.double() - exact) * deviation * scale.flatten() + bias.flatten()
        off = (y[10 * i : 10 * i + len(part)].double() - wanted).abs()
        assert bool((off <= 4 * UNIT[torch.float16] * (wanted.abs() + 1)).all()), f"images {10 * i}"


def test_gradient_of_average_pooling():
    n, h, w = 33000, 256, 257
    g = graph()
    d = g.tensor([n, 1, h, w], name="d")
    window = ([1, 1], [1, 1], [1, 1], [3, 3])
    dx = g.resample_backward(d, "AVGPOOL_INCLUDE_PADDING", *window, padding_mode="ZERO_PAD")
    finish((dx.set_dim([n, 1, h, w]), "dx"))
    d, dx = drawn(n, 1, h, w), poisoned(n, 1, h, w)
    execute(g.graph.finalize(), {"d": d, "dx": dx})
    for first in range(0, n, CHUNK):
        part = slice(first, first + CHUNK)
        wanted = torch.nn.functional.avg_pool2d(d[part].float(), 3, 1, 1)
        off = (dx[part].float() - wanted).abs()
        assert bool((off <= 2.0**-10 * (wanted.abs() + 2.0**-4)).all()), f"images from {first} on"


def test_products_of_doubles():
    side = 50001
    kinds = {"intermediate_data_type": dtypes.f64, "compute_data_type": dtypes.f64}
    g = graph(dtypes.f64, **kinds)
    a, b = g.tensor([1, side, 2], name="a"), g.tensor([1, 2, side], name="b")
    finish((g.matmul(a, b), "y"))
    a, b = (
        torch.rand(1, *dims, dtype=torch.float64, device="cuda") for dims in ((side, 2), (2, side))
    )
    y = poisoned(1, side, side, dtype=torch.float64)
    execute(g.graph.finalize(), {"a": a, "b": b, "y": y})
    for first in range(0, side, CHUNK):
        part = slice(first, first + CHUNK)
        wanted = a[0, part, :1] * b[0, :1] + a[0, part, 1:] * b[0, 1:]
        assert bool(((y[0, part] - wanted).abs() <= 1e-15).all()), f"rows from {first} on"


@pytest.mark.parametrize("engine", ["pointwise", "fallback"])
def test_engines_by_name(engine):
    g = graph()
    x = g.tensor(LOGITS, name="x")
    if engine == "fallback":
        x = g.mul(x, g.reduction(g.tensor([1, 4], name="s"), "add").set_dim([1, 1]))
    finish((g.relu(x), "y"))
    x, s, y = (
        drawn(*LOGITS),
        torch.ones(1, 4, dtype=torch.float16, device="cuda"),
        poisoned(*LOGITS),
    )
    pack = {"x": x, "y": y} | ({"s": s} if engine == "fallback" else {})
    execute(g.graph.finalize(), pack, Options(engine=engine))
    factor = 4 if engine == "fallback" else 1
    assert_rows(y, lambda a, b: torch.relu(x[a:b].float() * factor).half())
