"""Graphs against what cudnn-frontend was recorded to infer and to refuse: tests/frontend_oracle."""

import pytest

import dnnc.cudnn as cudnn
from tests.frontend_oracle import differences, steps

# Cases that dnnc refuses otherwise: it takes no sizes below 1 or virtual inputs, and says so at
# validation, as it does of statistics; no part of an axis is reduced to.  Operands of a matmul of
# two ranks get dims there that are not initialised, so that the refusal is of what follows.  A
# keyword that `sdpa_backward` does not have is ignored there.
OTHER_REFUSALS = {
    "example/matmul_8", "example/matmul_9", "example/sdpa_backward_1",
    "arguments/negative_dim", "arguments/virtual", "arguments/zero_dim", "random/108",
    "reduction/part", "slice/empty", "transpose/far",
    "wrong/instancenorm_backward/same/mean_absent",
    "wrong/instancenorm_backward/same/inv_variance_absent",
}  # fmt: skip

# Cases whose results differ: those, what dnnc lacks, what it refuses before dims are known, and
# strides that cudnn-frontend forgets.
OTHER_RESULTS = {
    *(name for row in differences.ROWS if row.why == differences.FAULT for name in row.cases
      if name.startswith("example/")),
    "add/zero_second", "add_virtual/zero_second", "block_scale_dequantize/rows",
    "block_scale_quantize/rows", "conv_fprop/channels",
    "matmul/ranks", "moe_grouped_matmul/gather", "moe_grouped_matmul_bwd/plain", "random/56",
    "random/144",
    *OTHER_REFUSALS,
}  # fmt: skip

# Calls that are made wrong, operand by operand: what `dnnc.pygraph` refuses and cudnn-frontend does
# not.
OF_NORMS = {name for row in differences.ROWS for name in row.cases if name.startswith("wrong/")}
OF_NORMS |= {
    "wrong/adalayernorm/tokens_training/scale_flat", "wrong/batchnorm/nhwc/epsilon_narrower",
    "wrong/batchnorm/nhwc/epsilon_shorter",
}  # fmt: skip


CASES = {
    name: case
    for name, case in steps.recorded()["cases"].items()
    if {"results", "error"} & case.keys()
}


def layout(_, tensor):
    return tensor.get_dim(), tensor.get_stride(), tensor.get_data_type().name


@pytest.fixture(scope="module")
def outcomes():
    module = steps.Module(cudnn, {"target": "sm_90a"}, layout)
    return {name: module.outcome(case) for name, case in CASES.items()}


def test_a_graph_is_refused_as_it_is_there_or_taken(outcomes):
    """dnnc takes graphs that cudnn-frontend, or the library under it, has no place for."""
    other = {
        name
        for name, found in outcomes.items()
        if "error" in found and found["error"] != CASES[name].get("error")
    }
    assert other - OF_NORMS <= OTHER_REFUSALS


def test_results_are_those_of_cudnn_frontend(outcomes):
    other = {
        name
        for name, found in outcomes.items()
        if "results" in CASES[name]
        and found.get("results") != CASES[name]["results"]
        and "of" not in CASES[name]
    }
    assert other <= OTHER_RESULTS


def test_most_refusals_are_there_too(outcomes):
    refused = [name for name in CASES if CASES[name].get("error", [""])[0] == "validate"]
    same = [name for name in refused if outcomes[name].get("error") == CASES[name]["error"]]
    assert len(same) > len(refused) / 3
