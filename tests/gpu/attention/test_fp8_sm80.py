"""Decoding of fp8 on the device, and larger."""

import pytest

from tests.engines.attention.test_fp8_sm80 import *  # noqa: F403
from tests.fp8_attention import attention, inputs_of
from tests.fp8_attention import run as run_on

pytestmark = pytest.mark.sm90


@pytest.mark.parametrize("parts", [1, 16, 64])
@pytest.mark.parametrize("io", ["FP8_E4M3", "FP8_E5M2"])
def test_decoding_of_8192_keys(io, parts):
    g = attention(batch=3, heads=32, key_heads=8, queries=1, keys=8192, depth=128, io=io)
    knobs = {"TILE_M": 16, "TILE_N": 64, "STAGES": 3, "PACK_GQA": 1, "SPLIT_KV": parts}
    run_on(g, "sdpa_sm80", knobs, inputs_of(g))
