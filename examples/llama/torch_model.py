"""Decoder layers of a Llama and its loss in PyTorch, around a given attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

# (query, key, value, is_causal=, enable_gqa=) -> result, as torch's scaled_dot_product_attention.
Attend = Callable[..., torch.Tensor]

THETA = 500000.0


@dataclass(frozen=True)
class Size:
    """Sizes of a model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    feed_forward: int
    tokens: int

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.hidden // self.heads


SIZES = {
    "small": Size(layers=2, hidden=64, heads=4, kv_heads=2, feed_forward=96, tokens=256),
    "llama3-8b": Size(
        layers=2, hidden=4096, heads=32, kv_heads=8, feed_forward=14336, tokens=32000
    ),
}


class Layer(nn.Module):
    """x + attention(norm(x)), then x + SwiGLU(norm(x)).

    x [batch, tokens, hidden]; angles: cos and sin [tokens, head / 2].
    """

    def __init__(self, size: Size, attend: Attend):
        super().__init__()
        self.size, self.attend = size, attend
        self.norm1, self.norm2 = nn.RMSNorm(size.hidden), nn.RMSNorm(size.hidden)
        kv = size.kv_heads * size.head
        self.q = nn.Linear(size.hidden, size.hidden, bias=False)
        self.k, self.v = (nn.Linear(size.hidden, kv, bias=False) for _ in "kv")
        self.out = nn.Linear(size.hidden, size.hidden, bias=False)
        self.gate, self.up = (
            nn.Linear(size.hidden, size.feed_forward, bias=False) for _ in range(2)
        )
        self.down = nn.Linear(size.feed_forward, size.hidden, bias=False)

    def forward(self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        y = self.norm1(x)
        q, k = (_rotated(self._heads(part(y)), *angles) for part in (self.q, self.k))
        o = self.attend(q, k, self._heads(self.v(y)), is_causal=True, enable_gqa=True)
        x = x + self.out(o.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, heads * head] as [batch, heads, tokens, head]."""
        return x.unflatten(-1, (-1, self.size.head)).transpose(1, 2)


class Llama(nn.Module):
    """Embedding, layers, norm, and the loss of the next tokens."""

    def __init__(self, size: Size, attend: Attend):
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(size.tokens, size.hidden)
        self.layers = nn.ModuleList(Layer(size, attend) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.hidden)
        self.head = nn.Linear(size.hidden, size.tokens, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The mean loss of the tokens [batch, count] but the first of each row."""
        x = self.embedding(tokens[:, :-1])
        angles = self._angles(x)
        for layer in self.layers:
            x = layer(x, angles)
        logits = self.head(self.norm(x)).float()
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def _angles(self, x: torch.Tensor) -> tuple[Any, Any]:
        half = self.size.head // 2
        places = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
        steps = torch.arange(half, device=x.device, dtype=torch.float32)
        turns = places[:, None] * THETA ** (-steps / half)
        return turns.cos().to(x.dtype), turns.sin().to(x.dtype)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The rotary embedding of [batch, heads, tokens, head]."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
