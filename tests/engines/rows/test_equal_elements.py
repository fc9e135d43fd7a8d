"""Norms and their gradients of equal elements: a mean is that number itself, so that every distance
from it is 0, whatever the number of elements.  Few sums of these numbers are numbers of f32."""

import numpy as np
import pytest

import dnnc
from dnnc.compiler import compile_graph
from dnnc.options import Options
from tests.support import machine, multiprocessors

from .test_far_means import ACROSS, CHOSEN, FORMS

VALUES = np.array([1234.1, -10000.1, 100000.3, 3e-7, 0.1], np.float32)
EPSILON = 1e-5


@pytest.fixture(autouse=True)
def _few_multiprocessors(monkeypatch):
    """Blocks that meet are interpreted all at once."""
    multiprocessors.few(monkeypatch, 6)


def new_graph(io="f32"):
    return dnnc.pygraph(
        "equal", io_data_type=io, intermediate_data_type="f32", compute_data_type="f32"
    )


def run(g, given, names, sizes=None, target="sm_90a", **options):
    """Outputs by names; given: arrays, or a number that all elements of an input are."""
    graph = g.graph.finalize()
    sizes = sizes or {}
    inputs = {}
    for tensor in graph.inputs:
        shape = [n.evaluate(sizes) for n in tensor.shape]
        inputs[tensor.uid] = np.broadcast_to(np.float32(given[tensor.name]), shape).copy()
    knobs = tuple(options.pop("knobs", {}).items())
    plan = compile_graph(graph, target, Options(knobs=knobs, **options))
    found = machine.current().run(plan, inputs, sizes=sizes)
    return plan, [found[plan.tensor(n).uid] for n in names]


def along(dims, axis):
    """The values alternately along an axis, equal along all others."""
    shape = [1] * len(dims)
    shape[axis] = dims[axis]
    return np.broadcast_to(np.resize(VALUES, dims[axis]).reshape(shape), dims)


def assert_zero(y):
    np.testing.assert_array_equal(y, np.zeros_like(y))


# ---- rows


def layernorm(rows, columns, io="f32"):
    g = new_graph(io)
    x, scale, bias = (g.tensor([r, columns], name=n) for r, n in ((rows, "x"), (1, "s"), (1, "b")))
    y, mean, _ = g.layernorm("TRAINING", x, scale, bias, g.tensor_scalar(EPSILON))
    y.set_output().set_name("y")
    mean.set_output().set_name("mean").set_data_type("f32")
    return g


def check_layernorm(g, dims, sizes=None, **options):
    x = along(dims, 0)
    _, (y, mean) = run(g, {"x": x, "s": 1.3, "b": 0.0}, ("y", "mean"), sizes, **options)
    assert_zero(y)
    np.testing.assert_array_equal(mean, x[:, :1])


@pytest.mark.rotating
@pytest.mark.parametrize(
    "form", [pytest.param(f, marks=ACROSS if f == "clusters" else ()) for f in FORMS]
)
def test_rows(form):
    knobs = {**CHOSEN, "TILE_COLS": 64, **FORMS[form]}
    check_layernorm(layernorm(5, 1000), (5, 1000), engine="rows", knobs=knobs)


@pytest.mark.parametrize("form", ["registers", "read again", "shared memory"])
def test_rows_of_odd_size(form):
    knobs = {**CHOSEN, "TILE_COLS": 64, **FORMS[form]}
    check_layernorm(layernorm(5, 257), (5, 257), engine="rows", knobs=knobs)


def test_rows_of_a_warp_in_rings_of_their_own():
    knobs = {**CHOSEN, **FORMS["ring of warps"], "TILE_COLS": 32}
    check_layernorm(layernorm(5, 1000), (5, 1000), engine="rows", knobs=knobs)


@pytest.mark.in_turn
def test_rows_whose_size_is_a_symbol():
    n = dnnc.Dim("N", min=1, max=2000)
    for size in (1, 3, 777):
        check_layernorm(layernorm(5, n), (5, size), {"N": size}, target="sm_80")


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("io", "columns", "form", "is_wide"),
    [
        ("bf16", 1000, "registers", False),
        ("bf16", 3000, "read again", False),
        ("bf16", 2048, "ring of warps", False),
        ("f16", 8192, "read again", False),
        ("f16", 8200, "read again", True),  # of 2047, more than f32's 24 digits
        ("f16", 8200, "registers", True),
    ],
)
def test_rows_of_16_bits(io, columns, form, is_wide):
    """Rows so short that f32 has the sum of equal elements are added in f32: conversions to f64
    would take longer than all else that there is to compute."""
    knobs = {**CHOSEN, "TILE_COLS": 64, **FORMS[form]}
    if form == "registers":
        knobs |= {"TILE_COLS": 512}
    x = np.array([[2047], [-0.34375], [3.0]], np.float32)
    x = (x.view(np.uint32) & 0xFFFF0000).view(np.float32) if io == "bf16" else x
    given = {"x": np.broadcast_to(x, (3, columns)), "s": 1.3125, "b": 0.0}
    g = layernorm(3, columns, io)
    plan, (y, mean) = run(g, given, ("y", "mean"), engine="rows", knobs=knobs)
    assert_zero(y)
    np.testing.assert_array_equal(mean, x)
    assert ("add.rn.f64" in plan.blobs[1].decode()) == is_wide


@pytest.mark.in_turn
@pytest.mark.parametrize("io", ["f16", "bf16"])
def test_rows_of_16_bits_beside_an_addition(io):
    """x + r has more digits than either."""
    g = new_graph(io)
    x, r, s = (
        g.tensor([5, 300], name="x"),
        g.tensor([5, 300], name="r"),
        g.tensor([1, 300], name="s"),
    )
    y = g.layernorm("INFERENCE", g.add(x, r), s, None, g.tensor_scalar(EPSILON))[0]
    y.set_output().set_name("y")
    _, (y,) = run(g, {"x": 1230.0, "r": 0.0625 + 2.0**-13, "s": 1.0}, ("y",))
    assert_zero(y)


@pytest.mark.parametrize("virtual", ["f32", "f16"])
def test_operations_that_make_a_norm(virtual):
    """A user may write a norm of plain operations, without the one for it."""
    g = new_graph()
    x = g.tensor([5, 300], name="x")
    centred = g.sub(x, g.reduction(x, "avg").set_dim([5, 1]).set_data_type("f32"))
    centred.set_data_type(virtual)
    variance = g.reduction(g.mul(centred, centred), "avg").set_dim([5, 1])
    g.mul(centred, g.rsqrt(g.add(variance, EPSILON))).set_output().set_name("y")
    _, (y,) = run(g, {"x": along((5, 300), 0)}, ("y",))
    assert_zero(y)


def layernorm_backward(dims, io="f32"):
    g = new_graph(io)
    dy, x = (g.tensor(list(dims), name=n) for n in ("dy", "x"))
    scale = g.tensor([1, dims[1]], name="s")
    mean, inverse = (g.tensor([dims[0], 1], name=n) for n in ("mean", "inverse"))
    found = g.layernorm_backward(dy, x, scale, mean, inverse)
    for tensor, name in zip(found, ("dx", "dscale", "dbias"), strict=True):
        tensor.set_output().set_name(name)
    return g


@pytest.mark.in_turn
def test_gradients_of_rows():
    dims = (5, 300)
    g, values = layernorm_backward(dims), along(dims, 0)
    given = {"dy": values, "x": values, "s": 0.7, "mean": values[:, :1], "inverse": 316.0}
    for knobs in ({}, {**CHOSEN, "TILE_COLS": 64, **FORMS["ring of warps"]}):
        _, (dx, dscale) = run(g, given, ("dx", "dscale"), knobs=knobs, engine="rows")
        assert_zero(dx)
        assert_zero(dscale)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("columns", [2048, 1800])
def test_gradients_of_rows_of_16_bits(columns):
    """Sums of a thread's products of dY and scales are numbers of f32; warps' means are made of
    what threads are off from one of them by."""
    g = layernorm_backward((3, columns), "bf16")
    knobs = {**CHOSEN, "TILE_COLS": 64, **FORMS["ring of warps"]}
    values = np.broadcast_to(np.array([[1232], [-0.34375], [3.015625]], np.float32), (3, columns))
    given = {"dy": values, "x": values, "s": 0.69921875, "mean": values[:, :1], "inverse": 316.0}
    plan, (dx,) = run(g, given, ("dx",), knobs=knobs, engine="rows")
    assert_zero(dx)
    assert "f64" not in plan.blobs[1].decode()


# ---- channels


def strides(dims, layout):
    _, c, h, w = dims
    return [c * h * w, 1, c * w, c] if layout == "last" else [c * h * w, h * w, w, 1]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("engine", ["rows", "grid"])
@pytest.mark.parametrize("layout", ["first", "last"])
def test_channels(layout, engine):
    dims = (3, 8, 7, 11)
    g = new_graph()
    x = g.tensor(list(dims), strides(dims, layout), name="x")
    scale, bias = (g.tensor([1, dims[1], 1, 1], name=n) for n in "sb")
    y, mean, *_ = g.batchnorm(input=x, scale=scale, bias=bias, epsilon=g.tensor_scalar(EPSILON))
    y.set_output().set_name("y")
    mean.set_output().set_name("mean")
    values = along(dims, 1)
    _, (y, mean) = run(g, {"x": values, "s": 1.3, "b": 0.0}, ("y", "mean"), engine=engine)
    assert_zero(y)
    np.testing.assert_array_equal(mean, values[:1, :, :1, :1])


@pytest.mark.parametrize("dims", [(2, 64, 14, 14), (3, 8, 7, 11)])
def test_channels_of_16_bits(dims):
    """A thread adds up 16 of them in f32, which costs a mean less than a unit."""
    g = new_graph("bf16")
    x = g.tensor(list(dims), strides(dims, "last"), name="x")
    scale, bias = (g.tensor([1, dims[1], 1, 1], name=n) for n in "sb")
    y, mean, *_ = g.batchnorm(input=x, scale=scale, bias=bias, epsilon=g.tensor_scalar(EPSILON))
    y.set_output().set_name("y")
    mean.set_output().set_name("mean").set_data_type("f32")
    rng = np.random.default_rng(machine.current().seed)
    spread = np.array([0, 0.02, 1, 30]).repeat(dims[1] // 4).reshape(1, -1, 1, 1)
    whole = 100 + spread * rng.standard_normal(dims)
    whole = (whole.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    _, (y, mean) = run(g, {"x": whole, "s": 1.0, "b": 0.0}, ("y", "mean"), engine="rows")
    exact = whole.mean((0, 2, 3), keepdims=True, dtype=np.float64)
    assert np.all(abs(mean - exact) <= np.spacing(exact.astype(np.float32)))
    assert_zero(y[:, : dims[1] // 4])
    best = (whole - exact) / np.sqrt(whole.var((0, 2, 3), keepdims=True, dtype=float) + EPSILON)
    np.testing.assert_allclose(y, best, rtol=2.0**-7, atol=2.0**-10)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("engine", ["rows", "grid"])
@pytest.mark.parametrize("layout", ["first", "last"])
def test_gradients_of_channels(layout, engine):
    dims = (3, 8, 7, 11)
    g = new_graph()
    dy, x = (g.tensor(list(dims), strides(dims, layout), name=n) for n in ("dy", "x"))
    scale, mean, inverse = (g.tensor([1, dims[1], 1, 1], name=n) for n in ("s", "mean", "inverse"))
    found = g.batchnorm_backward(dy, x, scale, mean, inverse)
    for tensor, name in zip(found, ("dx", "dscale", "dbias"), strict=True):
        tensor.set_output().set_name(name)
    values = along(dims, 1)
    given = {"dy": values, "x": values, "s": 0.7, "mean": values[:1, :, :1, :1], "inverse": 316.0}
    _, (dx, dscale, dbias) = run(g, given, ("dx", "dscale", "dbias"), engine=engine)
    assert_zero(dx)
    assert_zero(dscale)
    exact = values[:1, :, :1, :1].astype(np.float64) * (values.size // dims[1])
    np.testing.assert_allclose(dbias, exact, rtol=2.0**-23)


@pytest.mark.rotating
@pytest.mark.parametrize("layout", ["first", "last"])
def test_images_each_on_its_own(layout):
    dims = (2, 5, 9, 7)
    g = new_graph()
    x = g.tensor(list(dims), strides(dims, layout), name="x")
    scale, bias = (g.tensor([1, dims[1], 1, 1], name=n) for n in "sb")
    y = g.instancenorm("INFERENCE", x, scale, bias, g.tensor_scalar(EPSILON))[0]
    y.set_output().set_name("y")
    _, (y,) = run(g, {"x": along(dims, 1), "s": 1.3, "b": 0.0}, ("y",))
    assert_zero(y)


# ---- averages alone, which norms of several kernels are made of


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("engine", "knobs"),
    [
        ("reduction", {"TILE_ROWS": 32, "SPLIT_K_SLC": 1}),
        ("reduction", {"TILE_ROWS": 64, "SPLIT_K_SLC": 8}),
        ("fallback", {}),
    ],
)
@pytest.mark.parametrize("axis", [0, 1])
def test_averages(engine, knobs, axis):
    dims = (5, 777) if axis == 1 else (777, 8)
    g = new_graph()
    x = g.tensor(list(dims), name="x")
    kept = [1 if i == axis else n for i, n in enumerate(dims)]
    g.reduction(x, "avg").set_dim(kept).set_output().set_name("y")
    values = along(dims, 1 - axis)
    _, (y,) = run(g, {"x": values}, ("y",), engine=engine, knobs=knobs, target="sm_80")
    np.testing.assert_array_equal(y, np.take(values, [0], axis))


# ---- after a product


@pytest.mark.in_turn
@pytest.mark.parametrize("n", [96, 256])
def test_rows_of_a_product(n):
    """Sums of three terms, of which no sum of several is a number of f32."""
    g = new_graph("bf16")
    a, b = g.tensor([1, 70, 16], name="a"), g.tensor([1, 16, n], [16 * n, 1, 16], name="b")
    c = g.matmul(a, b)
    centred = g.sub(c, g.reduction(c, "avg").set_dim([1, 70, 1]))
    variance = g.reduction(g.mul(centred, centred), "avg").set_dim([1, 70, 1])
    y = g.mul(centred, g.rsqrt(g.add(variance, EPSILON)))
    y.set_output().set_name("y").set_data_type("f32")
    factors = np.zeros((1, 70, 16), np.float32)
    factors[..., :3] = 1232.0, 2.09375, 0.006225585937
    _, (y,) = run(g, {"a": factors, "b": 1.0}, ("y",), engine="matmul_sm90")
    assert_zero(y)


# ---- far means, of every kind of average


def test_means_are_within_a_unit():
    """With any two numbers half a unit is lost at most, and half by the last rounding."""
    rng = np.random.default_rng(machine.current().seed)
    n = 1000
    rows = [2000 + rng.standard_normal(n), 1e4 + 0.02 * rng.standard_normal(n),
            1e5 + rng.standard_normal(n), -3e4 + 10 * rng.standard_normal(n),
            np.tile([1234.1, 1234.3], n // 2), rng.uniform(0, 1, n)]  # fmt: skip
    x = np.stack(rows).astype(np.float32)
    _, (y, mean) = run(layernorm(len(x), n), {"x": x, "s": 1.0, "b": 0.0}, ("y", "mean"))
    x = x.astype(np.float64)
    exact = x.mean(1, keepdims=True)
    off = mean - exact
    assert np.all(abs(off) <= np.spacing(abs(exact).astype(np.float32)))
    best = 1 / np.sqrt(x.var(1, keepdims=True) + EPSILON)
    lost = 0.5 * (off * best) ** 2 + 8 * 2.0**-23  # a variance is about the mean that is stored
    normal = (x - exact) * best
    assert np.all(abs(y - normal) <= abs(off) * best + lost * abs(normal) + 2.0**-23)
