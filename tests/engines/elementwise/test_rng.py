"""Random numbers by engine pointwise, in the interpreter: the same ones in every kernel."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.options import Options
from tests.support import machine
from tests.support.checked import check, random_inputs

M = dnnc.Dim("M", max=4096)


def new_graph(io=dtypes.f16, **options):
    defaults = {
        "io_data_type": io,
        "intermediate_data_type": dtypes.f32,
        "compute_data_type": dtypes.f32,
        "target": "sm_80",
    }
    return dnnc.pygraph("rng", **{**defaults, **options})


DISTRIBUTIONS = {
    "BERNOULLI": {"bernoulli_probability": 0.4},
    "UNIFORM": {"uniform_minimum": -1.0, "uniform_maximum": 2.0},
    "NORMAL": {"normal_mean": 0.5, "normal_standard_deviation": 1.5},
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(
    ("dims", "io"),
    [
        # Of the middle ones one type is enough: where elements lie has nothing to do with it.
        pytest.param(dims, io, marks=pytest.mark.slow if is_middle and io != dtypes.f32 else ())
        for dims, is_middle in (
            ([5, 7], False),
            ([3, 2, 16], True),
            ([1, 4, 1, 6], True),
            ([1], False),
        )
        for io in (dtypes.f16, dtypes.f32, dtypes.i8, dtypes.i1)
    ],
    ids=str,
)
def test_distributions(distribution, io, dims):
    if distribution != "BERNOULLI" and io in (dtypes.i8, dtypes.i1):
        pytest.skip("numbers at a tie may round to either side")
    g = new_graph(io)
    g.rng(2**40 - 3, 17, distribution, **DISTRIBUTIONS[distribution], dim=dims).set_output()
    # cos and sin are off by what 2 pi u loses in f32.
    check(g, slack=2.0, allowance=2e-6)


@pytest.mark.parametrize("kind", ["device", "by value"])
def test_seeds_at_execution(kind):
    g = new_graph(dtypes.f32)
    if kind == "device":
        seed, offset = (g.tensor([1, 1, 1], data_type=dtypes.i64) for _ in range(2))
    else:
        seed, offset = (g.tensor_scalar(1, "RUNTIME_PARAM", dtypes.i64) for _ in range(2))
    g.rng(seed, offset, "UNIFORM", dim=[2, M, 6]).set_output()
    graph = g.graph.finalize()
    for numbers in ((5, 0), (-(2**63), 2**35 + 1)):
        inputs = {
            t.uid: np.full([1] * t.rank, n) for t, n in zip((seed, offset), numbers, strict=True)
        }
        check(g, {"M": 5}, inputs=inputs)
    assert {t.uid for t in graph.inputs} == set(inputs)


def numbers(dims, strides=None, engine="pointwise", **knobs):
    """Uniform numbers of a kernel over some layout."""
    g = new_graph(dtypes.f32)
    y = g.rng(7, 1, "UNIFORM", dim=dims, stride=strides).set_output()
    options = Options(knobs=tuple(knobs.items()), engine=engine)
    plan = compile_graph(g.graph.finalize(), machine.current().target, options)
    return machine.current().run(plan, {})[y.uid]


@pytest.mark.in_turn
def test_numbers_depend_on_nothing_but_their_place():
    wanted = numbers([6, 44]).view(np.uint32)
    for strides in ([1, 6], [50, 1], [1, 7]):
        np.testing.assert_array_equal(numbers([6, 44], strides).view(np.uint32), wanted)
    for knobs in ({"LOAD_SIZE": 4}, {"LOAD_SIZE": 8}, {"ARRAY_SIZE_PER_THREAD": 8}):
        np.testing.assert_array_equal(numbers([6, 44], **knobs).view(np.uint32), wanted)
    np.testing.assert_array_equal(numbers([264]).view(np.uint32), wanted.ravel())


@pytest.mark.rotating
@pytest.mark.parametrize("columns", [16, 6, 1023])
def test_more_than_two_to_the_31_elements_are_counted_in_64_bits(columns):
    g = new_graph(dtypes.f32)
    rows = dnnc.Dim("R", max=(1 << 33) // (5 * columns))
    g.rng(3, 4, "UNIFORM", dim=[rows, 5, columns]).set_output()
    check(g, {"R": 3})


def dropout(g, x, keep):
    mask = g.rng(g.tensor([1], data_type=dtypes.i64), 0, "BERNOULLI", keep, dim=x.get_dim())
    return g.mul(g.mul(x, mask), 1 / keep)


def test_dropout_is_one_kernel_and_neighbours_share_their_words():
    g = new_graph()
    dropout(g, g.tensor([3, M, 64]), 0.75).set_output()
    plan = check(g, {"M": 5}, engine="pointwise", knobs={"ARRAY_SIZE_PER_THREAD": 1})
    assert len(plan.programs[0].variants[0].steps) == 1
    # Eight elements are two groups of four, of ten rounds of two products each.
    assert plan.blobs[1].decode().count("mul.wide.u32") <= 2 * 10 * 2 + 4


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.sm90
@pytest.mark.parametrize("engine", ["matmul_sm90", "matmul_sm80", "fallback"])
@pytest.mark.parametrize("place", ["operand", "result"])
def test_dropout_around_a_product(place, engine):
    """Engines go through the elements in orders of their own."""
    g = new_graph()
    a, b = g.tensor([1, 70, 64]), g.tensor([1, 64, 72])
    if place == "operand":
        g.matmul(dropout(g, a, 0.5).set_data_type(dtypes.f16), b).set_output()
    else:
        dropout(g, g.relu(g.matmul(a, b)), 0.5).set_output()
    plan = check(g, target="sm_90a", engine=engine, allowance=1e-5)
    assert len(plan.programs[0].fusions) == 1


def test_dropout_before_a_sum_and_after_a_view():
    g = new_graph(dtypes.f32)
    x = g.reshape(g.tensor([4, 30]), "LOGICAL").set_dim([8, 15])
    g.reduction(dropout(g, x, 0.5), "add").set_dim([8, 1]).set_output()
    check(g, allowance=1e-6)


def test_another_seed_gives_other_numbers():
    g = new_graph(dtypes.f32)
    y = g.rng(g.tensor([1], data_type=dtypes.i64), 0, "UNIFORM", dim=[512]).set_output()
    graph = g.graph.finalize()
    plan = compile_graph(graph, machine.current().target)
    found = [machine.current().run(plan, {graph.inputs[0].uid: [s]})[y.uid] for s in (1, 2, 1)]
    assert np.mean(found[0] == found[1]) < 0.01
    np.testing.assert_array_equal(found[0], found[2])
    assert set(random_inputs(graph, {})) == {graph.inputs[0].uid}
