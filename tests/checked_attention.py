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
from tests import (
    large_scores,
    random_attention,
    random_fp8_attention,
    random_large_attention,
    small_weights,
)
from tests.support import machine
from tests.support.compare import UNIT, assert_close
from tests.support.knobs import drawn_knobs

# What rounding weights to 8 bits costs, of those that are far apart too; and what is cut of scores
# in the accumulators, the largest of which are 6 and more.
WEIGHTS = {"f8E4M3FN": 0.08, "f8E5M2": 0.16}
CUT = 2.0**-4
STATISTICS = 1e-5  # of a statistic, or absolute, beside what the scores' own error makes


def run(engine_name, seed, most, heads=6, target=None, *, is_fp8=False, is_large=False):
    """most, heads: as of `draw`.  is_fp8, is_large: as `random_fp8_attention` draws, or
    `random_large_attention`, of so many keys.  target: None for the machine's own."""
    random, engine = Random(seed), engine_named(engine_name)
    where = machine.current()
    target = target or where.target
    keeps = engine_name == "sdpa_sm80" and not is_fp8
    if is_large:
        drawn = random_large_attention.draw(random, most, min(heads, 2), keeps=keeps)
    elif is_fp8:
        drawn = random_fp8_attention.draw(random, most, heads)
    else:
        drawn = random_attention.draw(random, most, heads, keeps=keeps)
    graph = drawn.graph.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    reasons = engine.supports(fusion, of(target))
    assert not reasons, "; ".join(map(str, reasons))
    knobs = drawn_knobs(random, engine, fusion, of(target))
    options = Options(engine=engine_name, knobs=tuple(knobs.items()))
    plan = compile_graph(graph, target, options)
    inputs = drawn.inputs(seed + where.seed)
    with np.errstate(all="ignore"):
        undefined = undefined_parts(graph, inputs, sizes=drawn.sizes)
        actual = where.run(plan, inputs, sizes=drawn.sizes, seed=seed, partial=undefined.keys())
        exact = reference(graph, inputs, sizes=drawn.sizes, exact_outputs=True)
        compared = _Large(drawn, inputs) if is_large else _Ordinary(drawn, is_fp8)
        factor = random_fp8_attention.FACTOR if is_fp8 else 1.0
        small = small_weights.costs(graph, inputs, drawn.sizes, factor)
    for tensor in graph.outputs:
        given, wanted = widen(actual[tensor.uid]), exact[tensor.uid]
        if tensor.uid in undefined:
            given = np.where(undefined[tensor.uid], wanted, given)
        if tensor.uid in drawn.statistics:
            compared.statistics(tensor, given, wanted)
        else:
            given = without_subnormal_steps(given, wanted, tensor.type)
            compared.result(
                tensor, small_weights.without(small.get(tensor.uid), given, wanted), wanted
            )


class _Ordinary:
    """Bounds of scores that are ordinary."""

    def __init__(self, drawn, is_fp8):
        self.drawn = drawn
        self.cut = CUT if is_fp8 and machine.current() is not machine.INTERPRETER else 0.0

    def result(self, tensor, given, wanted):
        # Weights are rounded before they are divided by their sum, or after it.
        weights = self.drawn.weights.name
        own = WEIGHTS.get(weights, 4 * UNIT[weights]) * (2 if self.drawn.has_few_values else 1)
        measures = {"slack": 4.0, "allowance": own + 4 * self.drawn.error + self.cut}
        assert_close(given, wanted, tensor.type, **measures, loses=self.drawn.loses)

    def statistics(self, tensor, given, wanted):
        assert_statistics_close(given, wanted, self.drawn.error + self.cut)


class _Large:
    """Bounds of scores that are large, and exact."""

    def __init__(self, drawn, inputs):
        self.drawn = drawn
        self.sums = {found.get_uid() for found in drawn.sums}
        graph = drawn.graph.graph
        self.maxima = large_scores.maxima_of(graph, inputs, drawn.sizes, drawn.maximum)
        self.units = large_scores.units_on_the_way(graph)

    def result(self, tensor, given, wanted):
        weights, keys = self.drawn.weights, self.drawn.keys
        unit = self.units.get(tensor, 0.0)
        large_scores.assert_result_close(given, wanted, tensor.type, weights, keys, unit)

    def statistics(self, tensor, given, wanted):
        is_sum = tensor.uid in self.sums
        large_scores.assert_statistics_close(
            given, wanted, self.maxima, self.drawn.keys, is_sum=is_sum
        )


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
