"""The tests of engine sdpa_bwd_sm80, on the device, random cases of larger sizes, and the bits of
results, which are the same each time."""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.compiler import compile_graph
from tests.attention_gradients import inputs_of
from tests.checked_gradient import SM80, run_seed
from tests.engines.attention.test_attention_gradient import of_the_forward_pass, stored
from tests.engines.attention.test_bwd_sm80 import *  # noqa: F403
from tests.engines.attention.test_bwd_sm80 import BY_ENGINE, heads_of
from tests.support import machine


@pytest.mark.parametrize("seed", range(100, 130))
def test_random_cases_of_larger_sizes(seed):
    run_seed(seed, 700, 6, SM80)


def test_results_have_the_same_bits_each_time():
    bias = {"attn_scale": 0.2, "use_causal_mask": True}

    def arguments(g):
        added = {"bias": g.tensor([1, 8, 1, 700], name="bias"), "dBias": g.tensor([1, 8, 1, 700])}
        return {**bias, **added}

    graph, op, given = of_the_forward_pass(
        arguments, dtypes.bf16, rows=900, columns=700, **heads_of(128, heads=8, kv_heads=2, batch=3)
    )
    plan = compile_graph(graph.graph, "sm_80", BY_ENGINE)
    inputs = stored(graph, inputs_of(op, given))
    first = machine.current().run(plan, inputs)
    for _ in range(20):
        again = machine.current().run(plan, inputs)
        for uid, array in first.items():
            np.testing.assert_array_equal(array, again[uid])
