"""Rotary embedding against rotations of complex numbers, and its gradient against the transpose."""

import numpy as np
import pytest

import dnnc
from dnnc import target as targets
from dnnc.choosing import heuristics
from dnnc.dialect.reference import reference
from tests.dialect.rope_examples import rope
from tests.support.checked import random_inputs


def values(build, x, angles):
    graph = build().graph.finalize()
    given = dict(zip((tensor.uid for tensor in graph.inputs), (x, angles), strict=True))
    (found,) = reference(graph, given, exact_outputs=True).values()
    return found


def angles_of(shape, seed):
    """Random angles, the second half of a row the first again."""
    half = np.random.default_rng(seed).uniform(-9, 9, (*shape[:-1], shape[-1] // 2))
    return np.concatenate([half, half], axis=-1).astype(np.float32)


@pytest.mark.parametrize("freqs", [(1, 1, 3, 6), (2, 1, 3, 6), (3, 1, 1, 6)])
def test_pairs_of_the_last_elements_rotate_by_the_angles_of_their_row(freqs):
    x = np.random.default_rng(1).standard_normal((2, 2, 3, 8)).astype(np.float32)
    angles = angles_of(freqs, 2)
    found = values(rope("rope", freqs=freqs, rope_dim=6, output_scale=0.5), x, angles)
    by_row = angles.swapaxes(0, 2) if freqs[0] == 3 else angles
    rotated = (x[..., 2:5] + 1j * x[..., 5:]) * np.exp(1j * by_row[..., :3].astype(np.float64))
    wanted = 0.5 * np.concatenate([x[..., :2], rotated.real, rotated.imag], axis=3)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_the_gradient_is_the_transpose():
    parameters = {"rope_dim": 4, "output_scale": 1.5}
    rng, angles = np.random.default_rng(3), angles_of((1, 1, 3, 4), 4)
    x, dy = (rng.standard_normal((2, 2, 3, 8)).astype(np.float32) for _ in range(2))
    y = values(rope("rope", **parameters), x, angles)
    dx = values(rope("rope_backward", **parameters), dy, angles)
    np.testing.assert_allclose(np.sum(y * dy), np.sum(x * dx), rtol=1e-12)


@pytest.mark.parametrize("method", ["rope", "rope_backward"])
def test_it_is_one_kernel_with_what_is_around_it(method):
    """The slices, the products and the concatenation are one pass over memory."""
    graph = rope(method, [2, 4, 64, 64])().graph.finalize()
    (choice,) = heuristics.best_config(graph, targets.of("sm_90a")).choices
    assert choice.engine.name == "pointwise"


@pytest.mark.parametrize(
    ("target", "engine"), [("sm_90a", "sdpa_fwd_sm90"), ("sm_80", "sdpa_sm80")]
)
def test_attention_reads_what_is_rotated(target, engine):
    """Rotated Q and K have their own type, not that of the arithmetic."""
    g = dnnc.pygraph("rotated", io_data_type="f16", intermediate_data_type="f32")
    q, k, v = (g.tensor([2, 4, 128, 64]) for _ in "qkv")
    freqs = g.tensor([1, 1, 128, 64], data_type="f32")
    o, _ = g.sdpa(g.rope(q, freqs), g.rope(k, freqs), v, generate_stats=False)
    o.set_output()
    config = heuristics.best_config(g.graph.finalize(), targets.of(target))
    assert [c.engine.name for c in config.choices] == ["pointwise", "pointwise", engine]


def test_a_graph_of_cudnn_frontend_has_it():
    """Rotated Q and K of an attention, as its users write them."""
    import dnnc.cudnn as cudnn

    g = cudnn.pygraph(
        io_data_type=cudnn.data_type.HALF, intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT, sm_version=90,
    )  # fmt: skip
    q, k, v = (g.tensor(dim=[1, 2, 64, 64], name=name) for name in "qkv")
    freqs = g.tensor(dim=[64, 1, 1, 64], data_type=cudnn.data_type.FLOAT, name="freqs")
    rotated = [g.rope(input=x, freqs=freqs, output_scale=s) for x, s in ((q, 0.125), (k, 1.0))]
    o, _ = g.sdpa(q=rotated[0], k=rotated[1], v=v, generate_stats=False)
    for tensor in (*rotated, o):
        tensor.set_output(True).set_data_type(cudnn.data_type.HALF)
    g.validate()
    g.build_operation_graph()
    g.create_execution_plans([cudnn.heur_mode.A])
    found = reference(g.graph, given := random_inputs(g.graph, {}))
    own = rope("rope", [1, 2, 64, 64], freqs=[64, 1, 1, 64], output_scale=0.125)
    wanted = values(own, given[q.get_uid()], given[freqs.get_uid()])
    np.testing.assert_allclose(found[rotated[0].get_uid()], wanted, rtol=1e-3, atol=1e-3)
    assert g.get_plan_name_at_index(0).count("+") >= 1
