"""More than 2^31 steps of a loop, without as many elements: arguments fit, and code of 64 bits is
right, of small tensors as a whole and of large ones by a few blocks."""

import importlib
from functools import partial

import numpy as np
import pytest

import dnnc
from dnnc import compiler, target
from dnnc.codegen import kernel as kernels
from dnnc.dialect import dnn, structure
from dnnc.engines import ENGINES
from dnnc.errors import DnncError, Status
from dnnc.interpreter.memory import Memory
from dnnc.interpreter.parser import parse
from dnnc.interpreter.ptxtypes import VIEWS
from dnnc.interpreter.tensor_map import encode
from dnnc.options import Options
from dnnc.plan import arguments, codec
from dnnc.plan.arguments import Environment, pack
from dnnc.plan.plan import Arg, Launch, Plan, Program, Step, Symbol, Variant
from tests.dialect.norm_examples import peer_reduction
from tests.support import multiprocessors
from tests.support.checked import check

TARGET = "sm_90a"
LAUNCH = importlib.import_module("dnnc.interpreter.launch")  # not its function


def new_graph(io="f16", **options):
    kinds = {"intermediate_data_type": "f32", "compute_data_type": "f32", **options}
    return dnnc.pygraph("many", io_data_type=io, **kinds)


def finished(g, *outputs, **settings):
    for y in outputs:
        y.set_output()
        for name, value in settings.items():
            getattr(y, f"set_{name}")(value)
    return g


# ---- graphs of any sizes


def relu(*dims):
    g = new_graph()
    return finished(g, g.relu(g.tensor(dims, name="x")))


def biased(*dims):
    """One number for each of the last axis: two groups of loops."""
    g = new_graph()
    bias = g.tensor([*[1] * (len(dims) - 1), dims[-1]], name="bias")
    return finished(g, g.add(g.tensor(dims, name="x"), bias))


def transposed(m, n):
    g = new_graph()
    x = g.transpose(g.tensor([n, m], name="x"), [1, 0])
    return finished(g, g.add(x, g.tensor([m, n], name="y")))


def dropout(m, n):
    g = new_graph()
    kept = g.rng(3, 0, "BERNOULLI", bernoulli_probability=0.75, dim=[m, n])
    return finished(g, g.mul(g.tensor([m, n], name="x"), kept))


def reduced(dims, kept, mode="add"):
    g = new_graph()
    return finished(g, g.reduction(g.tensor(dims, name="x"), mode).set_dim(kept), data_type="f32")


def quantised(m, n):
    g = new_graph()
    x = g.tensor([m, n], name="x")
    amax = g.reduction(x, "amax").set_dim([1, 1]).set_data_type("f32").set_output()
    y = g.div(x, amax).set_output().set_data_type("FP8_E4M3")
    assert amax is not y
    return g


def softmax(m, n):
    g = new_graph()
    return finished(g, g.softmax(g.tensor([m, n], name="x"), axis=1))


def pooled_back(n, c, h, w):
    g = new_graph()
    d = g.tensor([n, c, h, w], name="d")
    window = ([1, 1], [1, 1], [1, 1], [3, 3])
    dx = g.resample_backward(d, "AVGPOOL_INCLUDE_PADDING", *window, padding_mode="ZERO_PAD")
    return finished(g, dx.set_dim([n, c, h, w]))


def product(batch, m, n, k, io="f16"):
    kinds = {"intermediate_data_type": io, "compute_data_type": io} if io == "f64" else {}
    g = new_graph(io, **kinds)
    b = g.tensor([*batch, k, n], name="b")
    b.set_stride([*(k * n * s for s in _packed(batch)), 1, k])
    return finished(g, g.matmul(g.tensor([*batch, m, k], name="a"), b))


def _packed(dims):
    return [int(np.prod(dims[axis + 1 :])) for axis in range(len(dims))]


def channels_last(dims):
    _, c, *spatial = dims
    strides, step = [], c
    for extent in reversed(spatial):
        strides.insert(0, step)
        step = step * extent
    return [step, 1, *strides]


def convolved(x, w, padding=1, layout=channels_last):
    g = new_graph()
    image = g.tensor(x, layout(x), name="x")
    y = g.conv_fprop(image, g.tensor(w, channels_last(w), name="w"), padding=[padding] * 2,
                     stride=[1, 1], dilation=[1, 1])  # fmt: skip
    finished(g, y)
    if layout is not channels_last:
        y.set_stride(layout(y.get_dim()))
    return g


def filter_gradient(x, k, c_group):
    """A graph of one filter gradient, of 3x3."""
    g = new_graph()
    dy = [x[0], k, *x[2:]]
    image, loss = (g.tensor(dims, channels_last(dims)) for dims in (x, dy))
    dw = g.conv_wgrad(image, loss, padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    return finished(g, dw.set_dim([k, c_group, 3, 3]))


def attention_gradient(batch, heads, tokens):
    g = new_graph()
    tensors = [g.tensor([batch, heads, tokens, 64]) for _ in range(5)]
    stats = g.tensor([batch, heads, tokens, 1], data_type="f32")
    return finished(g, *g.sdpa_backward(*tensors, stats, attn_scale=0.125))


def attention(batch, heads, tokens):
    g = new_graph()
    dims = [batch, heads, tokens, 64]
    q, k, v = (g.tensor(dims, name=name) for name in "qkv")
    o, _ = g.sdpa(q, k, v, attn_scale=0.125, generate_stats=False)
    return finished(g, o)


M, N = (dnnc.Dim(name, max=65536) for name in "MN")
LOGITS = 43000, 50257  # 2^31 + 13.6 million

# Engine -> graphs that need more than 2^31 steps, elements or bytes, and whether it takes them.
CASES = {
    "pointwise": [
        (partial(relu, *LOGITS), True), (partial(biased, *LOGITS), True),
        (partial(relu, M, N), True), (partial(biased, M, N, 3), True),
        (partial(dropout, *LOGITS), True), (partial(relu, (1 << 31) - 5), True),
        (partial(relu, 1 << 17, 1 << 17), False),
    ],
    "transpose": [(partial(transposed, *LOGITS), True), (partial(transposed, M, N), True)],
    "reduction": [
        (partial(reduced, LOGITS, [1, 1], "amax"), True),
        (partial(reduced, LOGITS, [1, 1], "avg"), True),
        (partial(reduced, (75000, 2, 30001), [75000, 1, 30001]), True),
        (partial(reduced, (M, N), [1, 1]), True), (partial(reduced, (M, 3, N), [M, 1, N]), True),
    ],
    "rows": [
        (partial(softmax, *LOGITS), True),
        (partial(reduced, (75000, 2, 30001), [75000, 1, 30001]), False),
        (partial(reduced, LOGITS, [1, 1], "amax"), False),
    ],
    "grid": [(partial(quantised, *LOGITS), True), (partial(quantised, M, N), True)],
    "sdpa_fwd_sm90": [
        (partial(attention, 64, 64, 16384), True), (partial(attention, 8192, 64, 8192), False),
    ],
    "sdpa_sm80": [
        (partial(attention, 64, 64, 16384), True), (partial(attention, 8192, 64, 8192), False),
    ],
    "sdpa_bwd_sm90": [
        (partial(attention_gradient, 64, 64, 16384), True),
        (partial(attention_gradient, 8192, 64, 8192), False),
    ],
    "sdpa_bwd_sm80": [
        (partial(attention_gradient, 64, 64, 16384), True),
        (partial(attention_gradient, 8192, 64, 8192), False),
    ],
    "matmul_sm90": [
        (partial(product, [1], 65600, 32776, 64), True),
        (partial(product, [50000, 50000], 2, 2, 8), False),
    ],
    "matmul_sm80": [
        (partial(product, [1], 65600, 32776, 64), True),
        (partial(product, [50000, 50000], 2, 2, 8), False),
    ],
    "conv_product_sm90": [
        (partial(convolved, [1500, 128, 112, 112], [256, 128, 1, 1], 0, _packed), True),
    ],
    "conv_sm90": [(partial(convolved, [3000, 64, 112, 112], [64, 64, 3, 3]), True)],
    "conv_stem_sm90": [(partial(convolved, [3000, 3, 224, 224], [64, 3, 3, 3]), True)],
    "conv_sm80": [(partial(convolved, [3000, 64, 112, 112], [64, 64, 3, 3]), True)],
    "conv_grouped_sm80": [(partial(convolved, [3000, 64, 112, 112], [64, 8, 3, 3]), True)],
    "conv_depthwise": [(partial(convolved, [3000, 64, 112, 112], [64, 1, 3, 3]), True)],
    "conv_wgrad_sm90": [(partial(filter_gradient, [3000, 64, 112, 112], 64, 64), True)],
    "conv_wgrad_sm80": [(partial(filter_gradient, [3000, 64, 112, 112], 64, 64), True)],
    "conv_wgrad_depthwise": [(partial(filter_gradient, [3000, 64, 112, 112], 64, 1), True)],
    "resample": [
        (partial(pooled_back, 33000, 1, 256, 257), True), (partial(pooled_back, M, N, 2, 1), True),
    ],
    "peers": [(peer_reduction((1, 1 << 28, 1), 32), False)],
    "fallback": [(partial(product, [1], 50001, 50001, 2, "f64"), True)],
}  # fmt: skip


def kernel_stage(g, **options):
    """(symbols, steps) of a graph's kernels, which are not compiled further."""
    graph = g.graph.finalize() if hasattr(g, "graph") else g.finalize()
    with dnn.context():
        work = compiler.start(graph, target.of(TARGET))
        compiler.advance(work, "kernel", Options(**options))
        program = structure.read_program(work.module)
    steps = tuple(codec.decode(Step, step, "a test") for step in program["steps"])
    symbols = tuple(Symbol(d.name, d.min, d.max, d.multiple_of) for d in graph.symbols.values())
    return symbols, steps


def plan_of(symbols, steps):
    """A plan of no code."""
    program = Program(TARGET, (9, 0), True, (), (), (Variant("1", "0", steps),))
    return Plan("many", {}, symbols, (), (program,))


def test_every_engine_is_asked():
    assert CASES.keys() == {engine.name for engine in ENGINES}


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("engine", "number"), [(name, i) for name, cases in CASES.items() for i in range(len(cases))]
)
def test_arguments_fit_or_the_sizes_are_refused(engine, number):
    build, is_taken = CASES[engine][number]
    if not is_taken:
        with pytest.raises(DnncError) as caught:
            kernel_stage(build(), engine=engine)
        assert caught.value.status is Status.NOT_SUPPORTED_SHAPE
        assert "fewer than" in str(caught.value)
        return
    plan = plan_of(*kernel_stage(build(), engine=engine))
    arguments.verify_ranges(plan)
    for launch in (s.launch for s in plan.programs[0].variants[0].steps if s.launch):
        most = [plan.expression(extent).bounds()[1] for extent in launch.grid]
        assert most[0] < 1 << 31
        assert max(most[1:]) < 1 << 16


def launched(value, type_, most):
    step = Step(launch=Launch("k", ("1", "1", "1"), (32, 1, 1), (Arg.scalar(value, type_),)))
    return plan_of((Symbol("M", 1, most, 1),), (step,))


def test_a_plan_of_an_argument_that_may_not_fit_is_not_made():
    arguments.verify_ranges(launched("M - 1", "i32", 1 << 31))
    arguments.verify_ranges(launched("M", "i64", 1 << 31))
    with pytest.raises(DnncError, match=r"argument M, which may be 2147483648, as i32") as caught:
        arguments.verify_ranges(launched("M", "i32", 1 << 31))
    assert caught.value.status is Status.INTERNAL_ERROR


def test_the_compiler_asks(monkeypatch):
    """Where an engine counts in 32 bits regardless; arguments are cut in no other way."""
    monkeypatch.setattr(kernels, "MOST_COUNT", 1 << 40)
    with pytest.raises(DnncError, match=r"INTERNAL_ERROR: kernel .*: argument 2161051000"):
        compiler.compile_graph(biased(*LOGITS).graph.finalize(), target.of("sm_80"))


@pytest.mark.parametrize("value", [1 << 31, -(1 << 31) - 1])
def test_no_argument_is_cut(value):
    for fits in (-(1 << 31), (1 << 31) - 1):
        assert int.from_bytes(arguments.pack_integer(fits, "i32"), "little", signed=True) == fits
    with pytest.raises(DnncError, match="does not fit i32") as caught:
        arguments.pack_integer(value, "i32")
    assert caught.value.status is Status.NOT_SUPPORTED_SHAPE
    with pytest.raises(DnncError, match="does not fit i64"):
        arguments.fitting(value << 32, "i64")


# ---- small tensors by code for large ones


SMALL = {
    "elements": ("pointwise", partial(relu, 3, 7, 11)),
    "whole fragments": ("pointwise", partial(relu, 6, 64)),
    "broadcasts": ("pointwise", partial(biased, 5, 9, 24)),
    "odd rows": ("pointwise", partial(biased, 7, 5, 13)),
    "dropout": ("pointwise", partial(dropout, 9, 31)),
    "gathered": ("pointwise", partial(transposed, 9, 31)),
    "rows": ("reduction", partial(reduced, (6, 5, 33), [6, 1, 1])),
    "columns": ("reduction", partial(reduced, (37, 24), [1, 24], "avg")),
    "middle": ("reduction", partial(reduced, (9, 3, 16), [9, 1, 16], "amax")),
    "all": ("reduction", partial(reduced, (9, 5, 31), [1, 1, 1], "max")),
    "grid": ("grid", partial(quantised, 90, 70)),
    "pooling": ("resample", partial(pooled_back, 2, 3, 5, 7)),
    "product": ("fallback", partial(product, [3], 9, 7, 5)),
}
KNOBS = {"reduction": {"TILE_ROWS": 16, "SPLIT_K_SLC": 4}}


@pytest.mark.rotating
@pytest.mark.parametrize("name", SMALL)
def test_counts_of_64_bits(name, monkeypatch):
    engine, build = SMALL[name]
    monkeypatch.setattr(kernels, "MOST_COUNT", 20)
    multiprocessors.few(monkeypatch, 12)
    plan = check(build(), engine=engine, target=TARGET, knobs=KNOBS.get(engine, {}), slack=4.0)
    args = [a for s in plan.programs[0].variants[0].steps if s.launch for a in s.launch.args]
    assert any(a.kind == "scalar" and a.type == "i64" and a.value.isdigit() for a in args)


# ---- large tensors, a few blocks of them


class Imagined(Memory):
    """Memory of allocations of any size: what was not stored is a number of its own place."""

    def __init__(self):
        super().__init__()
        self.ends, self.stored = {}, {}

    def allocate(self, nbytes, name="", offset=0):
        start = (len(self.ends) + 1) << 40
        self.ends[start] = start + nbytes
        return start

    def _checked(self, address, size, fail):
        for start, end in self.ends.items():
            if start <= int(address[0]) < start + (1 << 40):
                if int(address.min()) < start or int(address.max()) + size > end:
                    raise fail("is outside", 0)
                return start
        raise fail("is in no allocation", 0)

    def load(self, address, size, code, count, fail):
        start = self._checked(address, size, fail)
        first = (address.astype(np.int64) - start) // 2
        values = imagined(first[:, None] + np.arange(size // 2)).view(np.uint8)
        found = np.ascontiguousarray(values).view(VIEWS[code])
        return (found.reshape(-1, count) if count > 1 else found.reshape(-1)), None

    def store(self, address, size, values, fail, strong=False):
        start = self._checked(address, size, fail)
        rows = np.array(values).reshape(len(address), -1).view(np.uint8)
        places = address.astype(np.int64) - start
        for place, row in zip(places.tolist(), rows, strict=True):
            self.stored[start, place] = row


def imagined(places):
    """Numbers of f16 from -512 to 511, which neighbours and far places do not share."""
    mixed = (places ^ (places >> 9) ^ (places >> 23)) * 37
    return ((mixed & 1023) - 512).astype(np.float16)


def run_blocks(g, engine, blocks, monkeypatch, **knobs):
    """(what was stored, by place; how many blocks there are) of some blocks of a graph's kernel."""
    graph = g.graph.finalize()
    with dnn.context():
        work = compiler.start(graph, target.of(TARGET))
        options = Options(engine=engine, knobs=tuple(knobs.items()))
        compiler.advance(work, "ptx", options)
        steps = structure.read_program(work.module)["steps"]
    (step,) = [codec.decode(Step, step, "a test") for step in steps]
    plan, memory = plan_of((), (step,)), Imagined()
    tensors = [*graph.inputs, *graph.outputs]
    addresses = {t.uid: memory.allocate(t.type.bits // 8 * t.span().constant) for t in tensors}
    evaluate = lambda text: plan.expression(text).evaluate({})  # noqa: E731
    env = Environment(evaluate, addresses, {}, 0, encode)
    grid = tuple(map(evaluate, step.launch.grid))
    chosen = [block % grid[0] for block in blocks]
    monkeypatch.setattr(LAUNCH, "_batches", lambda *_: [chosen])
    monkeypatch.setattr(LAUNCH, "_MOST_CTAS", grid[0])  # of which only these are run
    LAUNCH.launch(
        parse(work.ptx), step.launch.kernel, grid=grid, block=step.launch.block,
        params=[pack(arg, env) for arg in step.launch.args], memory=memory,
    )  # fmt: skip
    (y,) = graph.outputs
    found = {}
    for (start, place), row in memory.stored.items():
        assert start == addresses[y.uid]
        values = row.view(y.type.numpy).tolist()
        found |= {place // np.dtype(y.type.numpy).itemsize + i: v for i, v in enumerate(values)}
    return dict(sorted(found.items())), grid[0]


def relu_of(at):
    return np.maximum(imagined(at), 0)


def biased_of(at):
    return (imagined(at).astype(np.float32) + imagined(at % LOGITS[1])).astype(np.float16)


SIDE = 46349  # of an outer product of more than 2^31 elements


def product_of(at):
    with np.errstate(over="ignore"):
        return (imagined(at // SIDE).astype(np.float32) * imagined(at % SIDE)).astype(np.float16)


LARGE = {
    "relu": ("pointwise", partial(relu, *LOGITS), relu_of, LOGITS),
    "wide": ("pointwise", partial(relu, 131071, 65000), relu_of, (131071, 65000)),
    "one axis": ("pointwise", partial(relu, (1 << 31) - 5), relu_of, ((1 << 31) - 5,)),
    "odd rows": ("pointwise", partial(biased, *LOGITS), biased_of, LOGITS),
    "product": ("fallback", partial(product, [1], SIDE, SIDE, 1), product_of, (SIDE, SIDE)),
}


@pytest.mark.rotating
@pytest.mark.parametrize("name", LARGE)
def test_blocks_of_large_tensors(name, monkeypatch):
    """The first, the last, and those around 2^31 elements, store what they are to and no more."""
    engine, build, wanted, dims = LARGE[name]
    g, count = build(), int(np.prod(dims, dtype=np.int64))
    first, blocks = run_blocks(g, engine, [0], monkeypatch)
    each = len(first)
    assert sorted(first) == list(range(each))
    last = (count - 1) // each
    middle = min((1 << 31) // each, last - 1)
    assert blocks == last + 1
    numbers = sorted({middle - 1, middle, last - 1, last})
    found, _ = run_blocks(build(), engine, numbers, monkeypatch)
    places = np.concatenate([np.arange(b * each, min((b + 1) * each, count)) for b in numbers])
    assert list(found) == places.tolist()
    np.testing.assert_array_equal(np.array(list(found.values()), np.float16), wanted(places))


def test_blocks_of_a_reduction_that_keeps_more_than_2_to_the_31(monkeypatch):
    images, pixels = 75000, 30001
    build = partial(reduced, (images, 2, pixels), [images, 1, pixels])
    knobs = {"TILE_ROWS": 4, "SPLIT_K_SLC": 1}
    found, _ = run_blocks(build(), "reduction", [0, 1 << 24, -2, -1], monkeypatch, **knobs)
    places = np.array(list(found))
    assert places[-1] == images * pixels - 1
    assert (places > 1 << 31).any()
    image, pixel = places // pixels, places % pixels
    parts = [imagined((2 * image + i) * pixels + pixel).astype(np.float32) for i in range(2)]
    np.testing.assert_array_equal(np.array(list(found.values())), parts[0] + parts[1])
