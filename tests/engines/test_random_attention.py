"""Random attention through every engine of it, with knobs of its candidates and any legal ones."""

from random import Random

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference
from dnnc.engines import engine_named
from dnnc.options import Options
from dnnc.rounding import widen
from dnnc.target import of
from tests.random_attention import draw
from tests.support import machine
from tests.support.compare import UNIT, assert_close
from tests.support.knobs import drawn_knobs

SEEDS, MORE_SEEDS = 3, 150

# What rounding weights to 8 bits costs, of those that are far apart too; and what is cut of scores
# in the accumulators, the largest of which are 6 and more.
WEIGHTS = {"f8E4M3FN": 0.08, "f8E5M2": 0.16}
CUT = 2.0**-4
STATISTICS = 1e-5  # of a statistic, or absolute, beside what the scores' own error makes


def run(engine_name, seed, most, heads=6, target=None, *, is_fp8=False):
    """most, heads, is_fp8: as of `draw`.  target: None for the machine's own."""
    random, engine = Random(seed), engine_named(engine_name)
    target = target or machine.current().target
    drawn = draw(random, most, heads, keeps=engine_name == "sdpa_sm80", is_fp8=is_fp8)
    graph = drawn.graph.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    assert not engine.supports(fusion, of(target))
    knobs = drawn_knobs(random, engine, fusion, of(target))
    options = Options(engine=engine_name, knobs=tuple(knobs.items()))
    plan = compile_graph(graph, target, options)
    where = machine.current()
    inputs = drawn.inputs(seed + where.seed)
    with np.errstate(all="ignore"):
        actual = where.run(plan, inputs, sizes=drawn.sizes, seed=seed)
        exact = reference(graph, inputs, sizes=drawn.sizes, exact_outputs=True)
    cut = CUT if is_fp8 and where is not machine.INTERPRETER else 0.0
    for tensor in graph.outputs:
        given, wanted = actual[tensor.uid], exact[tensor.uid]
        if tensor.uid in drawn.statistics:
            assert_statistics_close(given, wanted, drawn.error + cut)
        else:
            # Weights are rounded before they are divided by their sum, or after it.
            own = WEIGHTS.get(drawn.weights.name, 4 * UNIT[drawn.weights.name])
            allowance = own + 4 * drawn.error + cut
            given = without_subnormal_steps(given, wanted, tensor.type)
            given = without_subnormal_weights(given, wanted, drawn.weights, inputs, most)
            assert_close(given, wanted, tensor.type, slack=4.0, allowance=allowance)


def without_subnormal_steps(actual, expected, dtype):
    """Halves next to an expected one that is a subnormal, as if they were it: of rows that a mask
    on weights leaves nothing else of."""
    if dtype != dtypes.f16:
        return actual
    wide = np.asarray(actual, np.float64)
    is_next = (np.abs(expected) < 2.0**-14) & (np.abs(wide - expected) <= 2.0**-24)
    return np.where(is_next, expected, wide)


def assert_statistics_close(actual, expected, error):
    """Maxima and logs are off by what scores are, sums by as much of themselves."""
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    bound = STATISTICS + error
    np.testing.assert_allclose(actual, expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_on_any_architecture(seed):
    run("sdpa_sm80", seed, 60, 2)


@pytest.mark.sm90
@pytest.mark.parametrize("seed", range(SEEDS))
def test_on_hopper(seed):
    run("sdpa_fwd_sm90", seed, 100, 2, "sm_90a")


@pytest.mark.sm90
@pytest.mark.parametrize("seed", range(SEEDS))
def test_of_fp8_on_hopper(seed):
    run("sdpa_fwd_sm90", seed, 100, 2, "sm_90a", is_fp8=True)


@pytest.mark.sm90
@pytest.mark.parametrize("seed", [pytest.param(5007, marks=pytest.mark.slow), 5059])
def test_fp8_under_masks_of_blocks(seed):
    """Warps that turn values pass the blocks by that are not loaded."""
    graph = draw(Random(seed), 110, 2, is_fp8=True).graph.graph.finalize()
    assert any(op.op_name == "block_mask_load" for op in graph.live_ops)
    run("sdpa_fwd_sm90", seed, 110, 2, "sm_90a", is_fp8=True)


@pytest.mark.slow
def test_many_on_any_architecture():
    assert not failures("sdpa_sm80", range(SEEDS, MORE_SEEDS), 260)


@pytest.mark.sm90
@pytest.mark.slow
def test_many_on_hopper():
    assert not failures("sdpa_fwd_sm90", range(SEEDS, MORE_SEEDS), 260, "sm_90a")


@pytest.mark.sm90
@pytest.mark.slow
def test_many_of_fp8_on_hopper():
    seeds = range(SEEDS, MORE_SEEDS)
    assert not failures("sdpa_fwd_sm90", seeds, 260, "sm_90a", is_fp8=True)


def without_subnormal_weights(actual, expected, weights, inputs, keys):
    """Results of weights that are halves, next to expected ones by no more than a subnormal step
    of each of a row's weights, as if they were it: a mask on weights may leave no larger ones."""
    if weights != dtypes.f16:
        return actual
    largest = max(np.max(np.abs(widen(a))) for a in inputs.values() if np.ndim(a) >= 3)
    step = 2.0**-24 * keys * largest
    return np.where(np.abs(widen(actual) - expected) <= step, expected, actual)


def failures(engine, seeds, most, target=None, **options):
    """seed -> what went wrong; no more than five."""
    found = {}
    for seed in seeds:
        try:
            run(engine, seed, most, target=target, **options)
        except Exception as error:  # all that go wrong are told, not the first alone
            found[seed] = f"{type(error).__name__}: {error}"[:400]
        if len(found) == 5:
            break
    return found
