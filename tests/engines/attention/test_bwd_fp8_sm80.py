"""Engine sdpa_bwd_sm80 on operands of fp8: results, scales and amax against the reference."""

import pytest

from dnnc import dtypes
from tests.dialect.attention_gradient_examples import (
    FP8_CASES,
    gradient_fp8,
)
from tests.fp8_gradients import run

pytestmark = pytest.mark.sm90
E4M3, E5M2, F32 = dtypes.f8e4m3, dtypes.f8e5m2, dtypes.f32
CAUSAL = {"attn_scale": 0.25, "use_causal_mask": True}


def run_sm80(build, most=4, **more):
    return run(build, "sdpa_bwd_sm80", "sm_90", most, **more)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", FP8_CASES)
def test_examples(name):
    run_sm80(FP8_CASES[name])


WHOLE = {
    "long": gradient_fp8(
        CAUSAL, batch=1, heads=2, kv_heads=1, rows=70, columns=133, depth=72, value_depth=40,
        out=F32,
    ),
    "e5m2": gradient_fp8(io=E5M2, of_do=E4M3, out=E5M2, rows=33, columns=18, largest=False),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.parametrize("name", WHOLE)
def test_several_tiles_and_types(name):
    run_sm80(WHOLE[name])
