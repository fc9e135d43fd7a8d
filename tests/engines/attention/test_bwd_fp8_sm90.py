"""Engine sdpa_bwd_sm90 on operands of fp8: results, scales and amax against the reference."""

import pytest

from dnnc import dtypes
from tests.dialect.attention_examples import lengths
from tests.dialect.attention_gradient_examples import gradient_fp8
from tests.fp8_gradients import run

pytestmark = pytest.mark.sm90
F16, E5M2 = dtypes.f16, dtypes.f8e5m2
CASES = {
    "causal": gradient_fp8(
        {"attn_scale": 0.25, "use_causal_mask": True}, batch=1, heads=2, kv_heads=1, rows=70,
        columns=133, depth=72, value_depth=40, out=F16,
    ),
    # Two parts of dK and of dV, three blocks of queries; bytes stored 16 at a time.
    "whole": gradient_fp8(
        {"attn_scale": 0.25}, batch=1, heads=1, kv_heads=1, rows=130, columns=70, depth=128,
        value_depth=128,
    ),
    "long": gradient_fp8({"attn_scale": 0.25}, rows=33, columns=66, depth=136, value_depth=40),
    "padding": gradient_fp8(
        lambda g: {**lengths(g), "use_deterministic_algorithm": True}, rows=33, columns=18, out=E5M2
    ),
}  # fmt: skip


def run_sm90(build, **more):
    return run(build, "sdpa_bwd_sm90", "sm_90a", 3, **more)


@pytest.mark.rotating
@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    run_sm90(CASES[name])
