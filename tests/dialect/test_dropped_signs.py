"""Signs of what dropout drops, where S is stored as F16x16; gradients of attention from it."""

import json

import numpy as np
import pytest

import dnnc
from dnnc.dialect.json_form import from_json
from tests.mha_graphs import KEPT, SmallAttention, small_gradient
from tests.support.checked import check

SMALL = {"batch": 1, "queries": 32, "keys": 48, "depth": 16, "is_padded": False}


def by_name(g, given):
    """Outputs of the reference: name -> array, of matrices where it is of tiles."""
    found = {key: np.float64(value) for key, value in dnnc.reference(g, given).items()}
    return {tensor.name: as_matrices(found[tensor.uid]) for tensor in g.graph.outputs}


def as_matrices(array):
    """[1, H, M, N] of what lies in memory as F16x16; other arrays are what they are."""
    if array.ndim != 8:
        return array
    return array.reshape(1, len(array), np.prod(array.shape[1:4]), -1)


@pytest.mark.parametrize("dropout", ["drawn", "given"])
def test_the_sign_says_what_was_dropped(dropout):
    """The magnitudes are those of no dropout, and O is what it is without signs."""
    plain, signed = (
        SmallAttention(**SMALL, dropout=dropout, reordering=order) for order in ("NONE", "F16x16")
    )
    one, other = (by_name(made.g, made.inputs()) for made in (plain, signed))
    kept = one["s"] != 0
    assert 0.5 < kept.mean() < 1
    np.testing.assert_array_equal(other["s"] > 0, kept)
    np.testing.assert_array_equal(other["s"][kept], one["s"][kept])
    np.testing.assert_allclose(np.abs(other["s"]).sum(-1), 1, atol=2e-3)
    np.testing.assert_array_equal(other["o"], one["o"])


FORMS = {
    "mask first": (lambda g, p, mask: g.mul(mask, p), 1),
    "a number after it": (lambda g, p, mask: g.mul(g.mul(p, mask), 3.0), 3),
    "numbers after it": (lambda g, p, mask: g.mul(2.0, g.mul(g.mul(p, mask), 3.0)), 6),
}


@pytest.mark.rotating
@pytest.mark.parametrize("name", FORMS)
def test_forms_of_the_product(name):
    form, factor = FORMS[name]
    g = dnnc.pygraph("forms", io_data_type="f16", intermediate_data_type="f32")
    x, mask = (g.tensor([1, 1, 16, 32], name=name) for name in ("x", "mask"))
    s = form(g, g.softmax(x, axis=-1), mask)
    s.set_output().set_data_type("f16").set_name("s").set_reordering_type("F16x16")
    g.add(s, 1.0).set_output().set_name("beside")
    rng = np.random.default_rng(0)
    given = {"x": rng.normal(size=(1, 1, 16, 32)), "mask": rng.random((1, 1, 16, 32)) < 0.5}
    given = {key: np.asarray(value, np.float16) for key, value in given.items()}
    found = by_name(g, given)
    powers = np.exp(np.float64(given["x"]))
    wanted = factor * powers / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(found["s"], np.where(given["mask"], wanted, -wanted), atol=4e-3)
    np.testing.assert_allclose(found["beside"], 1 + wanted * given["mask"], atol=8e-3)
    check(g, inputs={t.uid: given[t.name] for t in g.graph.inputs}, allowance=2.0**-10)


def masked_weights(g, x, mask):
    return g.mul(g.softmax(x, axis=-1), mask)


OTHERS = {
    "no order": (masked_weights, "NONE"),
    "no mask": (lambda g, x, mask: g.softmax(x, axis=-1), "F16x16"),
    "no weights": (lambda g, x, mask: g.mul(g.exp(x), mask), "F16x16"),
    "logarithms": (
        lambda g, x, mask: g.mul(g.softmax(x, axis=-1, algorithm="LOG"), mask), "F16x16"
    ),
    "no input": (lambda g, x, mask: g.mul(g.softmax(x, axis=-1), g.abs(mask)), "F16x16"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_stored_as_the_graph_says(name):
    make, order = OTHERS[name]
    g = dnnc.pygraph("others", io_data_type="f16", intermediate_data_type="f32")
    x, mask = (g.tensor([1, 1, 16, 32], name=name) for name in ("x", "mask"))
    make(g, x, mask).set_output().set_reordering_type(order)
    assert "pointwise:neg" not in [op.title for op in g.graph.finalize().ops]


def test_a_validated_graph_stays_as_it_was_written():
    made = SmallAttention(**SMALL, dropout="drawn", reordering="F16x16")
    before = list(made.g.graph.ops)
    made.g.graph.validate()
    assert made.g.graph.ops == before
    assert len(made.g.graph.finalize().ops) == len(before) + 4
    text = made.g.graph.canonical_text()
    assert from_json(json.loads(text)).finalize().canonical_text() == text  # no signs twice


# ---- the way back


def test_gradients_from_what_was_stored():
    """They are the slopes of O along directions of Q, K and V; the mask is S's sign alone."""
    made = SmallAttention(**SMALL, dropout="given", reordering="F16x16")
    given = made.inputs()
    names = {tensor.name: tensor.uid for tensor in made.g.graph.inputs}
    q, kt, v, mask = (np.float64(given[names[name]]) for name in ("q", "k", "v", "mask"))
    d_o = np.random.default_rng(1).normal(size=q.shape)
    back = small_gradient(made.dims, 16)
    swapped = v.swapaxes(-1, -2)
    (s,) = (tensor.uid for tensor in made.g.graph.outputs if tensor.name == "s")
    found = by_name(
        back,
        {"s": dnnc.reference(made.g, given)[s], "q": q, "k": kt.swapaxes(-1, -2), "vt": swapped,
         "do": d_o},
    )  # fmt: skip

    def loss(q, kt, v):
        powers = np.exp(q @ kt * 0.125)
        weights = powers / powers.sum(-1, keepdims=True) * mask * KEPT
        return (weights @ v * d_o).sum()

    step, rng = 1e-4, np.random.default_rng(2)
    for name, place in (("dq", 0), ("dk", 1), ("dv", 2)):
        points = [q, kt, v]
        direction = rng.normal(size=points[place].shape)
        ends = []
        for sign in (1, -1):
            moved = list(points)
            moved[place] = moved[place] + sign * step * direction
            ends.append(loss(*moved))
        slope = (ends[0] - ends[1]) / (2 * step)
        gradient = found[name].swapaxes(-1, -2) if name == "dk" else found[name]
        assert np.isclose((gradient * direction).sum(), slope, rtol=2e-2, atol=0.05), name
