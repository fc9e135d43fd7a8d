"""A decoder layer as data: what prefill and decode do, step by step, on values by name.

    h = norm(x)      q, k, v = h @ w_qkv      q, k = rotary(q), rotary(k)
    x1 = x + attention(q, k, v) @ w_o      h = norm(x1)
    y = x1 + (silu(h @ w_gate) * (h @ w_up)) @ w_down

Prefill's tokens see those of their own prompt up to themselves; its keys and values go into a run
of blocks of the cache.  Decode's one new token of each sequence is appended to the cache first,
then sees all of its sequence there.
Source: Touvron et al., Llama (arXiv 2302.13971); Su et al., RoFormer (arXiv 2104.09864); Kwon et
al., paged attention (arXiv 2309.06180).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from dnnc.errors import DnncError, Status

CACHES = ("cache_k", "cache_v")  # values


@dataclass(frozen=True)
class Model:
    """Sizes of a layer.  inner: columns of the feed-forward block.  theta: of rotary embedding."""

    name: str
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_size: int = 128
    inner: int = 14336
    theta: float = 500000.0
    epsilon: float = 1e-5

    @property
    def rotated_heads(self) -> int:
        """Heads of queries and keys."""
        return self.heads + self.kv_heads

    @property
    def rotated_columns(self) -> int:
        return self.rotated_heads * self.head_size

    @property
    def qkv_columns(self) -> int:
        """Columns of queries' heads, then keys', then values'."""
        return self.rotated_columns + self.kv_heads * self.head_size

    @cached_property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes as they lie in memory, [out, in]."""
        return {
            "scale1": (self.hidden,),
            "w_qkv": (self.qkv_columns, self.hidden),
            "w_o": (self.hidden, self.heads * self.head_size),
            "scale2": (self.hidden,),
            "w_gate": (self.inner, self.hidden),
            "w_up": (self.inner, self.hidden),
            "w_down": (self.hidden, self.inner),
        }


# By name.  llama3-8b: of Llama 3 8B, and of 3.1.  small: for the interpreter.
MODELS = {
    model.name: model
    for model in (
        Model("llama3-8b"),
        Model("small", hidden=128, heads=4, kv_heads=2, head_size=32, inner=256),
    )
}


def model_of(name: str) -> Model:
    """One of MODELS; another name is BAD_PARAM."""
    if name not in MODELS:
        raise DnncError(Status.BAD_PARAM, f"model {name!r}", ", ".join(MODELS), "model")
    return MODELS[name]


@dataclass(frozen=True)
class Place:
    """Where a tensor begins: a value, and elements after its first."""

    value: str
    offset: int = 0


@dataclass(frozen=True)
class Value:
    """An array in memory.  dtype: bf16, f32 or i32."""

    shape: tuple[int, ...]
    dtype: str = "bf16"


@dataclass(frozen=True)
class Step:
    """A plan, once.  plan: its name.  inputs, outputs: where its tensors are, by their names.

    flops: multiplications and additions of its products.
    """

    name: str
    plan: str
    inputs: Mapping[str, Place]
    outputs: Mapping[str, Place]
    flops: float = 0.0


@dataclass(frozen=True)
class Append:
    """A new token's keys or values of each sequence, copied to its place in the cache.

    row: elements from one sequence's to the next one's.
    """

    name: str
    source: Place
    row: int
    cache: str


@dataclass(frozen=True)
class Phase:
    """A layer's pass over `batch` prompts of `keys` tokens, or over a new token of as many
    sequences of up to `keys` tokens, that included.

    block: tokens of a block of the cache.
    """

    model: Model
    batch: int
    keys: int
    block: int
    is_decode: bool

    def __post_init__(self) -> None:
        if self.keys % self.block:
            what = f"{self.keys} tokens in blocks of {self.block}"
            raise DnncError(Status.BAD_PARAM, what, "a multiple of the block", self.name)
        if self.block & (self.block - 1):
            raise DnncError(
                Status.BAD_PARAM, f"blocks of {self.block}", "a power of two", self.name
            )

    @property
    def name(self) -> str:
        """llama3-8b-prefill-1x2048-p64"""
        kind = "decode" if self.is_decode else "prefill"
        return f"{self.model.name}-{kind}-{self.batch}x{self.keys}-p{self.block}"

    @property
    def tokens(self) -> int:
        """Rows of the layer's input."""
        return self.batch if self.is_decode else self.batch * self.keys

    @property
    def pages(self) -> int:
        """Pages of a sequence."""
        return self.keys // self.block

    # ---- values

    @cached_property
    def values(self) -> dict[str, Value]:
        m, tokens = self.model, self.tokens
        rows = {
            "x": m.hidden,
            "normed1": m.hidden,
            "qkv": m.qkv_columns,
            "qk": m.rotated_columns,
            "mixed": m.heads * m.head_size,
            "x1": m.hidden,
            "normed2": m.hidden,
            "inner": m.inner,
            "y": m.hidden,
        }
        blocks = Value((self.batch * self.pages, m.kv_heads, self.block, m.head_size))
        angles = Value((tokens, m.head_size // 2), "f32")
        found = {name: Value((tokens, columns)) for name, columns in rows.items()}
        found |= {name: Value(shape) for name, shape in m.weights.items()}
        found |= {"positions": Value((tokens,), "i32")}
        found |= dict.fromkeys(("cos", "sin", "minus_sin"), angles)
        found |= {"frequencies": Value((m.head_size // 2,), "f32")}
        found |= dict.fromkeys(CACHES, blocks)
        if self.is_decode:
            found |= {"table": Value((self.batch, self.pages), "i32")}
            found |= {name: Value((self.batch,), "i32") for name in ("lengths", "ones")}
        return found

    @property
    def made(self) -> set[str]:
        """The values that steps write from nothing."""
        written = {
            place.value
            for step in self.steps
            if isinstance(step, Step)
            for place in step.outputs.values()
        }
        return written

    @property
    def given(self) -> list[str]:
        """All others."""
        return [name for name in self.values if name not in self.made]

    # ---- steps

    @cached_property
    def steps(self) -> tuple[Step | Append, ...]:
        return tuple(self._steps())

    def _steps(self) -> Iterator[Step | Append]:
        high = self.model.head_size // 2
        yield self._step("angles", {n: n for n in ("positions", "frequencies")},
                         {n: n for n in ("cos", "sin", "minus_sin")})  # fmt: skip
        yield self._step("norm1", {"x": "x", "scale": "scale1"}, {"y": "normed1"}, "norm")
        yield self._step("qkv", {"x": "normed1", "w": "w_qkv"}, {"y": "qkv"})
        low = {"x": "qkv", "other": Place("qkv", high), "cos": "cos", "sin": "minus_sin"}
        yield self._step("rotary_low", low, {"y": "qk"}, "rotary")
        upper = {"x": Place("qkv", high), "other": "qkv", "cos": "cos", "sin": "sin"}
        yield self._step("rotary_high", upper, {"y": Place("qk", high)}, "rotary")
        yield from self._decode() if self.is_decode else self._prefill()
        yield self._step("out", {"x": "mixed", "w": "w_o", "residual": "x"}, {"y": "x1"})
        yield self._step("norm2", {"x": "x1", "scale": "scale2"}, {"y": "normed2"}, "norm")
        gate_up = {name: name for name in ("w_gate", "w_up")}
        yield self._step("gate_up", {"x": "normed2", **gate_up}, {"y": "inner"})
        yield self._step("down", {"x": "inner", "w": "w_down", "residual": "x1"}, {"y": "y"})

    @property
    def _keys(self) -> Place:
        return Place("qk", self.model.heads * self.model.head_size)

    @property
    def _values(self) -> Place:
        return Place("qkv", self.model.rotated_columns)

    def _prefill(self) -> Iterator[Step | Append]:
        yield self._step("attention", {"q": "qk", "k": self._keys, "v": self._values},
                         {"y": "mixed"})  # fmt: skip
        yield self._step("blocks_k", {"x": self._keys}, {"y": "cache_k"})
        yield self._step("blocks_v", {"x": self._values}, {"y": "cache_v"})

    def _decode(self) -> Iterator[Step | Append]:
        yield Append("append_k", self._keys, self.model.rotated_columns, "cache_k")
        yield Append("append_v", self._values, self.model.qkv_columns, "cache_v")
        lengths = {name: name for name in ("table", "lengths", "ones")}
        yield self._step("attention", {"q": "qk", "k": "cache_k", "v": "cache_v", **lengths},
                         {"y": "mixed"})  # fmt: skip

    def _step(
        self, name: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], graph: str = ""
    ) -> Step:
        """A value by name is read from its beginning."""
        graph = graph or name

        def places(given: Mapping[str, Any]) -> dict[str, Place]:
            return {n: p if isinstance(p, Place) else Place(p) for n, p in given.items()}

        return Step(name, self.plan_name(graph), places(inputs), places(outputs),
                    self._flops.get(graph, 0.0))  # fmt: skip

    @cached_property
    def _flops(self) -> dict[str, float]:
        """Operations of the whole batch, by graph; causal attention counts visible keys only."""
        m, tokens = self.model, self.tokens
        products = {
            "qkv": m.hidden * m.qkv_columns,
            "out": m.heads * m.head_size * m.hidden,
            "gate_up": 2 * m.hidden * m.inner,
            "down": m.inner * m.hidden,
        }
        seen = self.keys if self.is_decode else (self.keys + 1) / 2
        found = {name: 2.0 * tokens * count for name, count in products.items()}
        return found | {"attention": 4.0 * tokens * seen * m.heads * m.head_size}

    # ---- plans

    def plan_name(self, graph: str) -> str:
        """attention@llama3-8b-decode-16x4096-p64; of graphs that know rows alone:
        qkv@llama3-8b-2048."""
        depends = ("attention", "blocks_k", "blocks_v")
        return f"{graph}@{self.name if graph in depends else f'{self.model.name}-{self.tokens}'}"

    @property
    def graphs(self) -> dict[str, Callable[[], Any]]:
        """Makers of graphs by the plan's name; calling one loads `dnnc`'s frontend."""
        from . import graphs

        m, tokens = self.model, self.tokens
        heads = (m.heads, m.kv_heads)
        makers: dict[str, Callable[[str], Any]] = {
            "angles": partial(graphs.angles, tokens=tokens, half=m.head_size // 2),
            "norm": partial(graphs.norm, tokens=tokens, hidden=m.hidden, epsilon=m.epsilon),
            "qkv": partial(graphs.linear, tokens=tokens, columns=m.qkv_columns, depth=m.hidden),
            "rotary": partial(graphs.rotary, tokens=tokens, heads=heads, head_size=m.head_size),
            "out": partial(graphs.linear, tokens=tokens, columns=m.hidden,
                           depth=m.heads * m.head_size, has_residual=True),
            "gate_up": partial(graphs.gated, tokens=tokens, columns=m.inner, depth=m.hidden),
            "down": partial(graphs.linear, tokens=tokens, columns=m.hidden, depth=m.inner,
                            has_residual=True),
        }  # fmt: skip
        if self.is_decode:
            makers["attention"] = partial(
                graphs.paged, batch=self.batch, keys=self.keys, block=self.block, heads=heads,
                head_size=m.head_size,
            )  # fmt: skip
        else:
            makers["attention"] = partial(
                graphs.causal, batch=self.batch, queries=self.keys, heads=heads,
                head_size=m.head_size,
            )  # fmt: skip
            rows = {"blocks_k": m.rotated_columns, "blocks_v": m.qkv_columns}
            for graph, row in rows.items():
                makers[graph] = partial(
                    graphs.to_blocks, pages=self.batch * self.pages, block=self.block,
                    heads=m.kv_heads, head_size=m.head_size, row=row,
                )  # fmt: skip
        return {
            self.plan_name(graph): partial(make, self.plan_name(graph))
            for graph, make in makers.items()
        }


_NAME = re.compile(r"(.+)-(prefill|decode)-(\d+)x(\d+)-p(\d+)")


def phases_of(names: Iterable[str]) -> list[Phase]:
    """The phases that plans of some names are for, in the order of the names."""
    found = dict.fromkeys(name.partition("@")[2] for name in names)
    matches = (_NAME.fullmatch(name) for name in found)
    return [
        Phase(model_of(model), int(batch), int(keys), int(block), kind == "decode")
        for model, kind, batch, keys, block in (match.groups() for match in matches if match)
    ]
