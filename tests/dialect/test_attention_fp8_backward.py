"""The gradient of attention of fp8: its reference against that of `sdpa_backward`, against
differences of the forward pass, and against what it stands for."""

import numpy as np
import pytest

from dnnc.dialect.reference import reference
from tests.fp8_gradients import NUMBERS, operands_of

from .attention_gradient_examples import FP8_CASES, forward, gradient, gradient_fp8
from .test_attention import decomposed

MASK = {"attn_scale": 0.25, "use_causal_mask": True}
DIMS = {"kv_heads": 2, "depth": 16}


def operation(build):
    return build().graph.finalize().ops[-1]


def results(graph, given, of_steps=False):
    """The reference's results by name; of_steps: computed by the operations that the gradient
    stands for."""
    op = graph.ops[-1]
    inputs = {t.uid: given[field.name] for field, t in op.tensors("operand") if t.value is None}
    made = decomposed(graph) if of_steps else graph
    found = reference(made, inputs, exact_outputs=True)
    return {field.name: found[tensor.uid] for field, tensor in op.tensors("result")}


@pytest.mark.parametrize("name", FP8_CASES)
def test_what_it_stands_for_gives_the_same(name):
    """P and dS are rounded to the same types there; few of them lie where f32 rounds otherwise."""
    graph = FP8_CASES[name]().graph.finalize()
    given = operands_of(graph.ops[-1], 0)
    whole, parts = (results(graph, given, of_steps) for of_steps in (False, True))
    for result, wanted in whole.items():
        error = np.linalg.norm(parts[result] - wanted) / np.linalg.norm(wanted)
        assert error < 1e-2, result
    assert {"dq", "dk", "dv", "amax_dq", "amax_dk", "amax_dv", "amax_dp"} <= whole.keys()


def test_the_reference_is_the_gradient_of_descaled_tensors():
    graph = gradient_fp8(MASK, out="FLOAT", **DIMS)().graph.finalize()
    given = operands_of(graph.ops[-1], 0)
    found = results(graph, given)
    wide = {n: np.float64(given[n]) * NUMBERS[f"descale_{n}"] for n in ("q", "k", "v", "o", "do")}
    plain = operation(gradient(MASK, **DIMS)).computed({**given, **wide}, {})
    of_p = NUMBERS["scale_s"] * NUMBERS["descale_s"]
    of_ds = NUMBERS["scale_dp"] * NUMBERS["descale_dp"]
    for name, factor, bound in (("dv", of_p, 0.04), ("dq", of_ds, 0.1), ("dk", of_ds, 0.1)):
        wanted = plain[name] * factor
        made = found[name] / NUMBERS[f"scale_{name}"]
        assert np.linalg.norm(made - wanted) < bound * np.linalg.norm(wanted), name
        assert found[f"amax_{name}"].item() == pytest.approx(np.abs(made).max())


def test_the_reference_is_the_slope_of_the_forward_pass():
    """The slope of sum(dO * O) along a direction of each operand, up to what fp8 rounds away."""
    op, other = operation(gradient_fp8(MASK, **DIMS)), operation(forward(MASK, **DIMS))
    given = operands_of(op, 0)
    found = op.computed(given, {})
    wide = {n: np.float64(given[n]) * NUMBERS[f"descale_{n}"] for n in ("q", "k", "v", "do")}
    numbers = {"attn_scale": np.full((1, 1, 1, 1), 0.25)}
    step = 1e-5
    for name, scale in (("q", "dp"), ("k", "dp"), ("v", "s")):
        slope = found[f"d{name}"] / NUMBERS[f"scale_d{name}"]
        slope = slope / (NUMBERS[f"scale_{scale}"] * NUMBERS[f"descale_{scale}"])
        losses = [
            np.sum(
                other.computed({**wide, **numbers, name: wide[name] + sign * slope}, {})["o"]
                * wide["do"]
            )
            for sign in (step, -step)
        ]
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(np.sum(slope**2), rel=0.05)
