"""Attention's gradient from its stored weights, by sdpa_bwd_sm80, in the interpreter."""

import pytest

from tests.mha_graphs import small_gradient
from tests.support.checked import check, random_inputs

CASES = {
    "signs": ([2, 1, 80, 48], 64, {}),
    "as the strides say": (
        [2, 2, 37, 71], 24,
        {"reordering": "NONE", "dtype": "BFLOAT16", "value_depth": 40, "is_causal": True,
         "has_bias": True, "has_dropout": False},
    ),
    "large heads": ([1, 1, 16, 32], 136, {"value_depth": 128, "stores": False}),
}  # fmt: skip


def run(dims, depth, options, knobs):
    g = small_gradient(dims, depth, **options)
    given = random_inputs(g.graph.finalize(), {})
    return check(g, inputs=given, slack=4.0, allowance=2.0**-8, engine="sdpa_bwd_sm80", knobs=knobs)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("one", [0, 1])
def test_cases(name, one):
    dims, depth, options = CASES[name]
    plan = run(dims, depth, options, {"KERNEL_CFG": one})
    kernels = 2 + (depth > 128) if not one else 1
    assert len(plan.programs[0].kernels) == kernels + options.get("has_bias", False)
