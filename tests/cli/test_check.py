"""`dnnc run --check`: right results are called right, wrong ones wrong, where terms cancel too."""

import numpy as np
import pytest

import dnnc
from dnnc.cli import arrays, check
from dnnc.compiler import compile_graph
from dnnc.dialect.reference import reference
from dnnc.errors import DnncError
from dnnc.interpreter.plans import run_plan
from dnnc.rounding import round_to


def graph_of(build, **types):
    g = dnnc.pygraph("checked", **({"io_data_type": "f32"} | types), intermediate_data_type="f32")
    build(g)
    return g.graph.finalize()


def good(graph, inputs, outputs):
    """Whether each output is good, in the order of the graph's."""
    return [verdict.is_good for verdict in check.compare(graph, inputs, {}, outputs)]


def interpreted(graph, seed=0):
    """Random inputs, and what kernels make of them."""
    inputs = arrays.random_inputs(graph, {}, seed, {})
    return inputs, run_plan(compile_graph(graph, "sm_80"), inputs)


def changed(outputs, uid, place, change):
    made = {key: array.copy() for key, array in outputs.items()}
    made[uid].flat[place] += change
    return made


def test_variances_that_are_small_differences():
    """In rows of one element; errors are relative to the squares, not to their difference."""

    def build(g):
        sums, squares, scale, bias = (g.tensor([1, 8, 1, 1], name=name) for name in "qstu")
        made = g.bn_finalize(
            sums, squares, scale, bias, g.tensor_scalar(1e-5), g.tensor_scalar(64, data_type="i64")
        )
        made[3].set_output()  # the inverse deviation

    graph = graph_of(build)
    mean, spread = np.linspace(10, 20, 8), np.logspace(-4, 0, 8)
    given = [64 * mean, 64 * (mean**2 + spread), np.ones(8), np.ones(8)]
    inputs = {
        tensor.uid: array.reshape(1, 8, 1, 1).astype(np.float32)
        for tensor, array in zip(graph.inputs, given, strict=False)
    }
    outputs = run_plan(compile_graph(graph, "sm_80"), inputs)
    ((uid, y),) = outputs.items()
    exact = reference(graph, inputs, exact_outputs=True)[uid]
    off = np.abs(y / exact - 1).ravel()
    assert off[1] > 2e-3  # which a bound relative to the result would refuse
    assert good(graph, inputs, outputs) == [True]
    wrong = {0: 0.5, 3: 0.02, 6: 1e-3, 7: 3e-4}
    for place, share in wrong.items():
        by = exact.flat[place] * share
        assert good(graph, inputs, changed(outputs, uid, place, by)) == [False], place


def test_sums_that_cancel():
    """A column's sum is a thousandth of its terms; an element that is left out is still found."""

    def build(g):
        x = g.tensor([64, 96, 1], name="x")
        g.reduction(x, "add").set_dim([1, 96, 1]).set_output()

    graph = graph_of(build)
    x = np.random.default_rng(0).uniform(1, 2, (64, 96, 1)).astype(np.float32)
    x[32:] = -x[:32][::-1] * np.float32(1 + 1e-4)
    outputs = run_plan(compile_graph(graph, "sm_80"), {1: x})
    ((uid, y),) = outputs.items()
    assert good(graph, {1: x}, outputs) == [True]
    assert good(graph, {1: x}, {uid: y + np.float32(2e-4)}) == [False]
    for place in range(0, 96, 17):
        assert good(graph, {1: x}, changed(outputs, uid, place, -x[5, place, 0])) == [False]


def test_a_convolution_and_the_sums_of_its_channels():
    def build(g):
        x, w = g.tensor([2, 8, 6, 6], name="x"), g.tensor([16, 8, 3, 3], name="w")
        y = g.conv_fprop(x, w, padding=[1, 1])
        g.reduction(y, "add").set_output().set_dim([1, 16, 1, 1]).set_data_type("f32")
        g.identity(y).set_output()

    graph = graph_of(build, io_data_type="f16")
    for seed in range(3):
        inputs, outputs = interpreted(graph, seed)
        assert good(graph, inputs, outputs) == [True, True]
    total, y = (tensor.uid for tensor in graph.outputs)
    dropped = float(np.median(np.abs(outputs[y][:, 3].astype(float))))
    assert good(graph, inputs, changed(outputs, total, 3, dropped)) == [False, True]
    # One product of a sum of 72.
    product = float(np.median(np.abs(inputs[graph.inputs[0].uid].astype(float))))
    assert good(graph, inputs, changed(outputs, y, 40, product)) == [True, False]


@pytest.mark.parametrize("drop", [0, 300])
def test_products_of_sorted_terms(drop):
    """Partial sums are far larger than what is left of them."""

    def build(g):
        a, b = g.tensor([4, 1000], name="a"), g.tensor([1000, 8], name="b")
        g.matmul(a, b).set_output()

    graph = graph_of(build)
    rng = np.random.default_rng(1)
    a = np.linspace(-1, 1, 1000) * rng.uniform(0.999, 1, (4, 1000))
    inputs = {1: a.astype(np.float32), 2: rng.uniform(0.999, 1, (1000, 8)).astype(np.float32)}
    outputs = run_plan(compile_graph(graph, "sm_80"), inputs)
    ((uid, _),) = outputs.items()
    assert good(graph, inputs, outputs) == [True]
    term = inputs[1][0, drop] * inputs[2][drop, 0]
    assert good(graph, inputs, changed(outputs, uid, 0, -term)) == [False]


def test_integers_at_ties():
    """3.7 * 5 is 18.499999 or 18.5 by the arithmetic: both are right, of other products one is."""

    def build(g):
        g.mul(g.tensor([64], name="x"), 3.7).set_output().set_data_type("i8")

    graph = graph_of(build, io_data_type="i8")
    inputs = {1: np.arange(-32, 32, dtype=np.int8)}
    ((uid, right),) = reference(graph, inputs).items()
    exact = np.arange(-32, 32) * float(np.float32(3.7))
    ties = np.abs(exact - np.floor(exact) - 0.5) < 1e-5
    assert ties.sum() == 6
    outputs = run_plan(compile_graph(graph, "sm_80"), inputs)
    assert (outputs[uid] != right).any()
    assert good(graph, inputs, outputs) == [True]
    for place in range(4, 60):
        both = [good(graph, inputs, changed({uid: right}, uid, place, by))[0] for by in (-1, 1)]
        assert sum(both) == (1 if ties[place] else 0)


def test_booleans_where_a_comparison_is_unsure():
    def build(g):
        x, y = g.tensor([64], name="x"), g.tensor([64], name="y")
        g.cmp_gt(g.mul(x, y), 0.1).set_output().set_data_type("i1")

    graph = graph_of(build)
    x = np.linspace(0.5, 2, 64).astype(np.float32)
    y = (0.1 / x).astype(np.float32)
    y[::2] *= np.float32(1 + 1e-5)
    ((uid, right),) = reference(graph, {1: x, 2: y}).items()
    product = x.astype(float) * y
    sure = (np.abs(product - np.float32(0.1)) > 5e-8) | (product == product.astype(np.float32))
    assert 20 < sure.sum() < 50
    for place in range(64):
        flipped = right.copy()
        flipped[place] = ~flipped[place]
        assert good(graph, {1: x, 2: y}, {uid: flipped}) == [not sure[place]]


def test_a_rounding_on_the_way_moves_what_is_near_a_tie_only():
    """A product minus its rounded value is one unit of f16, or nothing."""

    def build(g):
        a, b, x = (g.tensor([8, 64], name=name) for name in "abx")
        rounded = g.mul(a, b).set_data_type("f16")
        g.sub(rounded, x).set_output()

    graph = graph_of(build)
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(1, 2, (8, 64)).astype(np.float32) for _ in "ab")
    a[0, 0], b[0, 0] = 1 + 2.0**-11 * (1 - 2.0**-12), 1 + 2.0**-23  # a tie, but for an ulp of f32
    inputs = {1: a, 2: b, 3: np.round(a * b, 2)}
    outputs = run_plan(compile_graph(graph, "sm_80"), inputs)
    ((uid, _),) = outputs.items()
    assert good(graph, inputs, outputs) == [True]
    assert good(graph, inputs, changed(outputs, uid, 0, 2.0**-10)) == [True]
    assert good(graph, inputs, changed(outputs, uid, 70, 2.0**-10)) == [False]


# ---- inputs whose elements share an address

IM2COL = ([2, 3, 3, 3, 4, 5], [126, 42, 7, 1, 7, 1])


@pytest.mark.parametrize(("dims", "strides"), [IM2COL, ([4, 5], [1, 2]), ([3, 2], [1, 1])])
def test_overlapping_strides_get_what_memory_can_hold(dims, strides):
    graph = graph_of(lambda g: g.identity(g.tensor(dims, strides)).set_output(), io_data_type="f16")
    inputs, outputs = interpreted(graph)
    x = inputs[1]
    places = sum(i * s for i, s in zip(np.indices(dims), strides, strict=True))
    for place in np.unique(places)[:50]:
        assert len(set(x[places == place].tolist())) == 1
    assert len(np.unique(x)) > places.max() / 2
    assert good(graph, inputs, outputs) == [True]
    arrays.verify_inputs(graph, inputs, {})
    x = x.copy()
    x.flat[-2] += np.float16(1)
    with pytest.raises(DnncError, match="share an address"):
        arrays.verify_inputs(graph, {1: x}, {})


def test_strides_that_do_not_overlap_take_any_array():
    tensor = graph_of(lambda g: g.identity(g.tensor([3, 4, 5], [1, 40, 3])).set_output()).inputs[0]
    x = round_to(np.full((3, 4, 5), np.nan), tensor.type)
    assert arrays.held(tensor, x, {}) is x
