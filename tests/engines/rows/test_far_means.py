"""Statistics of norms in f32 of elements far from 0, and of long rows, to some units of f32.

u is 2^-23.  A mean m is stored as M in f32, which is off by half an ulp at least, and elements'
distances are from M, so that with d = M - m

    y = (x - M) * inverse                   is off by d * inverse, beside some u of y
    inverse = 1 / sqrt(v + d^2 + epsilon)   where v is gone through again, about M

the second by d^2 / (2 * (v + epsilon)) of itself: (half an ulp / sigma)^2 / 2.  Nothing else may be
lost, whatever the mean and however many elements a row has: bounds are made of the M that is found.
"""

import numpy as np
import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.options import Options
from dnnc.target import of
from tests.support import machine, multiprocessors

U = 2.0**-23
EPSILON = 1e-5
INVERSE = 8.0  # u, of an inverse standard deviation: of a variance's sums, and rsqrt
MEAN = 2.0  # u: sums of parts are rounded, and the quotient
ACROSS = pytest.mark.exchange  # of totals between the blocks of a cluster


@pytest.fixture(autouse=True)
def _few_multiprocessors(monkeypatch):
    """Blocks that meet are interpreted all at once."""
    multiprocessors.few(monkeypatch, 24)


def new_graph():
    return dnnc.pygraph(
        "far", io_data_type="f32", intermediate_data_type="f32", compute_data_type="f32"
    )


def values(kind, n, seed):
    """n elements of one row or channel."""
    if kind == "constant":  # no sum of several of it is a number of f32
        return np.full(n, 10000.123)
    x = np.random.default_rng(seed + machine.current().seed).standard_normal(n)
    if kind in FIRST:  # an outlier, from which a thread might take distances
        x += 1e4 - FIRST[kind]
        x[0] = FIRST[kind]
        return x
    return -3e4 + x if kind == "negative" else 1e4 + kind * x


FIRST = {"0 first": 0.0, "1e4 first": 1e4}
INSIDE = ["constant", 1.0, 0.1, 0.02, "negative"]
KINDS = [*INSIDE, *FIRST]


def layernorm(rows, columns):
    g = new_graph()
    x, scale, bias = (g.tensor([r, columns], name=n) for r, n in ((rows, "x"), (1, "s"), (1, "b")))
    results = g.layernorm("TRAINING", x, scale, bias, g.tensor_scalar(EPSILON))
    for tensor, name in zip(results, ("y", "mean", "inverse"), strict=True):
        tensor.set_output().set_name(name)
    return g


def batchnorm(dims, strides):
    g = new_graph()
    x = g.tensor(dims, strides, name="x")
    scale, bias = (g.tensor([1, dims[1], 1, 1], name=n) for n in "sb")
    results = g.batchnorm(input=x, scale=scale, bias=bias, epsilon=g.tensor_scalar(EPSILON))
    for tensor, name in zip(results[:3], ("y", "mean", "inverse"), strict=True):
        tensor.set_output().set_name(name)
    return g


def outputs(g, x, names=("y", "mean", "inverse"), **options):
    """Outputs by name, in float64, for this x, scales of 1 and biases of 0."""
    graph = g.graph.finalize()
    given = {"x": x, "s": 1.0, "b": 0.0}
    inputs = {}
    for tensor in graph.inputs:
        shape = [n.evaluate({}) for n in tensor.shape]
        inputs[tensor.uid] = np.broadcast_to(np.float32(given[tensor.name]), shape).copy()
    knobs = tuple(options.pop("knobs", {}).items())
    plan = compile_graph(graph, options.pop("target", "sm_90a"), Options(knobs=knobs, **options))
    where = machine.current()
    found = where.run(plan, inputs, sizes={}, seed=where.seed)
    return [found[plan.tensor(n).uid].astype(np.float64) for n in names]


def check(g, x, axes, units=INVERSE, **options):
    """Checks a norm over some axes of x, within the bounds above; units: of inverse variances."""
    y, mean, inverse = outputs(g, x, **options)
    x = x.astype(np.float64)
    m = x.mean(axes, keepdims=True)
    v = ((x - m) ** 2).mean(axes, keepdims=True)
    d = mean - m
    own = abs(m) + abs(x - m).mean(axes, keepdims=True)
    over(abs(d) / own, MEAN * U, "means")
    best, with_d = (1 / np.sqrt(v + more + EPSILON) for more in (0, d**2))
    over((inverse - best) / best, units * U, "inverse variances")
    over((with_d - inverse) / best, units * U, "inverse variances, from below")
    lost = units * U + 1 - with_d / best + 2 * U
    over(abs(y - (x - m) * best) - abs(d) * best - lost * abs((x - m) * best), U * best, "y")


def over(found, bound, what):
    assert np.all(found <= bound), f"{what}: {np.max(found / bound):.3g} of what is allowed"


# ---- rows

# Of tens of rows and more that stay in a block's shared memory, or are too long for it.
CHOSEN = {
    "TILE_COLS": 1024, "TILE_ROWS": 0, "ARRAY_SIZE_PER_THREAD": 0, "TILE_CGA": 1, "CTA_COUNT": 0,
    "STAGES": 1, "KERNEL_CFG": 0,
}  # fmt: skip


def rows_of(kinds, n, seed=0):
    rows = [values(kind, n, seed + i) for i, kind in enumerate(kinds)]
    return np.stack(rows).astype(np.float32)


def softmax(rows, columns):
    g = new_graph()
    g.softmax(input=g.tensor([rows, columns], name="x"), axis=-1).set_output().set_name("y")
    return g


@pytest.mark.parametrize("norm", [layernorm, softmax])
def test_long_rows_are_chosen_so(norm):
    graph = norm(256, 1000000).graph.finalize()
    (choice,) = heuristics.best_config(graph, of("sm_80")).choices
    assert choice.engine.name == "rows"
    assert dict(choice.knobs) == CHOSEN


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("columns", "kinds"),
    [
        (100000, KINDS),
        (1000000, ["constant", "1e4 first"]),
        pytest.param(262144, KINDS, marks=pytest.mark.slow),
        pytest.param(1000000, KINDS, marks=pytest.mark.slow),
        # Of fragments of one element, an outlier is what a thread takes distances from: of those
        # that begin with one variances lose more.
        pytest.param(999999, INSIDE, marks=pytest.mark.slow),
    ],
)
def test_long_rows(columns, kinds):
    g = layernorm(len(kinds), columns)
    check(g, rows_of(kinds, columns), 1, engine="rows", knobs=CHOSEN, target="sm_80")


FORMS = {
    "registers": {"ARRAY_SIZE_PER_THREAD": 32, "STAGES": 0},
    "read again": {"STAGES": 0},
    "shared memory": {},
    "ring": {"ARRAY_SIZE_PER_THREAD": 32, "STAGES": 2, "CTA_COUNT": 1},
    "ring of warps": {
        "ARRAY_SIZE_PER_THREAD": 32, "STAGES": 2, "CTA_COUNT": 1, "KERNEL_CFG": 2,
    },
    "clusters": {"TILE_CGA": 2},
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "form", [pytest.param(f, marks=ACROSS if f == "clusters" else ()) for f in FORMS]
)
def test_rows_of_some_thousands(form):
    knobs = {**CHOSEN, "TILE_COLS": 128, **FORMS[form]}
    check(layernorm(len(KINDS), 4096), rows_of(KINDS, 4096), 1, engine="rows", knobs=knobs)


@pytest.mark.rotating
@pytest.mark.parametrize("columns", [4097, 4098, 4096])
def test_means_of_rows_that_begin_with_outliers(columns):
    """Fragments of one, two and four elements, in some of which nothing but outliers lie where
    distances are taken from; sums of numbers whose own are beyond f32 stay what they are."""
    x = np.stack([values("0 first", columns, seed) - 1e4 for seed in range(6)])
    for row, (count, outlier) in enumerate([(1, 123456789.0), (2, 123456789.0), (1, 987654.3)]):
        x[row, :count] = outlier
    x[3, :2], x[4] = np.inf, 0.0
    x[4, :4000] = np.tile([1e37, 1e37, -1e37, -1e37], 1000)
    x = x.astype(np.float32)
    knobs = {**CHOSEN, "TILE_COLS": 32}
    (found,) = outputs(layernorm(6, columns), x, names=["mean"], engine="rows", knobs=knobs)
    exact = x.astype(np.float64).mean(1, keepdims=True)
    assert found[3] == exact[3] == np.inf
    if columns % 4 == 0:  # else a thread's own are of one sign
        assert found[4] == 0.0
    finite = [0, 1, 2, 5]
    off = x[finite] - exact[finite]
    over(abs(found[finite] - exact[finite]) / abs(off).mean(1, keepdims=True), MEAN * U, "means")


@pytest.mark.in_turn
def test_softmax_of_a_million_equal():
    """Rounding is the same at every addition of equal ones: errors go one way.

    Of 61 additions to a lane's sum each is off by half a unit of the sum so far, 15 u together.
    """
    n = 1000000
    g = softmax(2, n)
    x = np.full((2, n), [[1.0], [0.3]], np.float32)
    x[1, 5] = 1.0
    (y,) = outputs(g, x, names=["y"], engine="rows", knobs=CHOSEN, target="sm_80")
    e = np.exp(x.astype(np.float64) - 1.0)
    expected = e / e.sum(1, keepdims=True)
    error = np.max(abs(y - expected) / expected, axis=1)
    over(error[0], 2 * U, "equal ones")
    over(error, 16 * U, "equal ones but for one")


# ---- channels


def channels_of(kinds, dims):
    """[n, c, h, w]: the kinds alternately."""
    n, c, h, w = dims
    kinds = (kinds * c)[:c]
    rows = [values(kind, n * h * w, seed) for seed, kind in enumerate(kinds)]
    return np.stack(rows, axis=1).reshape(n, h, w, c).transpose(0, 3, 1, 2).astype(np.float32)


@pytest.mark.rotating
@pytest.mark.parametrize(("engine", "images", "units"), [("grid", 16, 32.0), ("rows", 4, INVERSE)])
def test_channels_last(engine, images, units):
    """Elements of different channels lie side by side.

    Distances are then from a thread's first element, outlier or not: with it some tens of elements
    are added up, which may cost as many units.
    """
    _, c, h, w = dims = [images, 32, 28, 28]
    g = batchnorm(dims, [c * h * w, 1, c * w, c])
    check(g, channels_of(KINDS, dims), (0, 2, 3), units, engine=engine)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("engine", "knobs"),
    [
        ("grid", {"TILE_ROWS": 512, "ARRAY_SIZE_PER_THREAD": 1, "SPECFILT": 0, "STAGES": 4}),
        ("rows", {}),
    ],
)
def test_channels_of_images(engine, knobs):
    _, c, h, w = dims = [16, 14, 28, 28]
    g = batchnorm(dims, [c * h * w, h * w, w, 1])
    check(g, channels_of(KINDS, dims), (0, 2, 3), engine=engine, knobs=knobs)
