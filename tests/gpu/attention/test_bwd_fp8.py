"""The tests of attention's gradient of fp8, on the device; larger cases, and bits that repeat."""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.compiler import compile_graph
from tests.dialect.attention_gradient_examples import gradient_fp8
from tests.engines.attention.test_bwd_fp8_sm80 import *  # noqa: F403
from tests.engines.attention.test_bwd_fp8_sm80 import CAUSAL, run_sm80
from tests.engines.attention.test_bwd_fp8_sm90 import *  # noqa: F403
from tests.engines.attention.test_bwd_fp8_sm90 import run_sm90
from tests.fp8_gradients import operands_of
from tests.support import machine

LARGE = {"batch": 2, "heads": 8, "depth": 128, "value_depth": 128}


@pytest.mark.parametrize("options", [None, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("of_do", [dtypes.f8e4m3, dtypes.f8e5m2], ids=str)
def test_larger_cases(options, of_do):
    build = gradient_fp8(
        options, of_do=of_do, kv_heads=2, rows=700, columns=900, out=dtypes.f16, **LARGE
    )
    run_sm80(build)
    run_sm90(build)


@pytest.mark.parametrize("target", ["sm_90", "sm_90a"])
def test_results_have_the_same_bits_each_time(target):
    options = {**CAUSAL, "use_deterministic_algorithm": True}
    graph = gradient_fp8(options, kv_heads=8, rows=900, columns=700, **LARGE)().graph.finalize()
    op = graph.ops[-1]
    given = operands_of(op, machine.current().seed)
    inputs = {
        tensor.uid: np.asarray(given[field.name]).astype(tensor.type.numpy)
        for field, tensor in op.tensors("operand")
        if tensor.value is None
    }
    plan = compile_graph(graph, target)
    first = machine.current().run(plan, inputs)
    for _ in range(20):
        again = machine.current().run(plan, inputs)
        for uid, array in first.items():
            np.testing.assert_array_equal(array.view(np.uint8), again[uid].view(np.uint8))
