"""Random attention through an engine, with knobs of its candidates or any legal ones, compared with
the reference: `run`, for tests and for `tests.gpu.random_attention`."""

from __future__ import annotations

from random import Random

import numpy as np

from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference, undefined_parts
from dnnc.engines import engine_named
from dnnc.options import Options
from dnnc.rounding import widen
from dnnc.target import of
from tests.random_attention import draw
from tests.support import machine
from tests.support.compare import UNIT, assert_close
from tests.support.knobs import drawn_knobs

# What rounding weights to 8 bits costs, of those that are far apart too; and what is cut of scores
# in the accumulators, the largest of which are 6 and more.
WEIGHTS = {"f8E4M3FN": 0.08, "f8E5M2": 0.16}
CUT = 2.0**-4
STATISTICS = 1e-5  # of a statistic, or absolute, beside what the scores' own error makes


def run(engine_name, seed, most, heads=6, target=None, *, is_fp8=False):
    """most, heads, is_fp8: as of `draw`.  target: None for the machine's own."""
    random, engine = Random(seed), engine_named(engine_name)
    target = target or machine.current().target
    keeps = engine_name == "sdpa_sm80" and not is_fp8
    drawn = draw(random, most, heads, keeps=keeps, is_fp8=is_fp8)
    graph = drawn.graph.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    reasons = engine.supports(fusion, of(target))
    assert not reasons, "; ".join(map(str, reasons))
    knobs = drawn_knobs(random, engine, fusion, of(target))
    options = Options(engine=engine_name, knobs=tuple(knobs.items()))
    plan = compile_graph(graph, target, options)
    where = machine.current()
    inputs = drawn.inputs(seed + where.seed)
    with np.errstate(all="ignore"):
        undefined = undefined_parts(graph, inputs, sizes=drawn.sizes)
        actual = where.run(plan, inputs, sizes=drawn.sizes, seed=seed, partial=undefined.keys())
        exact = reference(graph, inputs, sizes=drawn.sizes, exact_outputs=True)
    cut = CUT if is_fp8 and where is not machine.INTERPRETER else 0.0
    for tensor in graph.outputs:
        given, wanted = actual[tensor.uid], exact[tensor.uid]
        if tensor.uid in undefined:
            given = np.where(undefined[tensor.uid], wanted, widen(given))
        if tensor.uid in drawn.statistics:
            assert_statistics_close(given, wanted, drawn.error + cut)
        else:
            # Weights are rounded before they are divided by their sum, or after it.
            own = WEIGHTS.get(drawn.weights.name, 4 * UNIT[drawn.weights.name])
            own *= 2 if drawn.has_few_values else 1
            allowance = own + 4 * drawn.error + cut
            given = without_subnormal_steps(given, wanted, tensor.type)
            given = without_subnormal_weights(given, wanted, drawn.weights, inputs, most)
            measures = {"slack": 4.0, "allowance": allowance, "loses": drawn.loses}
            assert_close(given, wanted, tensor.type, **measures)


def without_subnormal_steps(actual, expected, dtype):
    """Halves next to an expected one that is a subnormal, as if they were it: of rows that a mask
    on weights leaves nothing else of."""
    if dtype != dtypes.f16:
        return actual
    wide = np.asarray(actual, np.float64)
    is_next = (np.abs(expected) < 2.0**-14) & (np.abs(wide - expected) <= 2.0**-24)
    return np.where(is_next, expected, wide)


def without_subnormal_weights(actual, expected, weights, inputs, keys):
    """Results of weights that are halves, next to expected ones by no more than a subnormal step
    of each of a row's weights, as if they were it: a mask on weights may leave no larger ones."""
    if weights != dtypes.f16:
        return actual
    floats = [widen(a) for a in inputs.values() if np.ndim(a) >= 3 and np.size(a)]
    floats = [np.abs(a) for a in floats if a.dtype.kind == "f"]
    largest = max(np.max(a, initial=0.0, where=np.isfinite(a)) for a in floats)
    step = 2.0**-24 * keys * largest
    return np.where(np.abs(widen(actual) - expected) <= step, expected, actual)


def assert_statistics_close(actual, expected, error):
    """Maxima and logs are off by what scores are, sums by as much of themselves."""
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    bound = STATISTICS + error
    np.testing.assert_allclose(actual, expected, rtol=bound, atol=bound)


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
