"""`train`: steps of a small Llama in PyTorch, whose attention is `dnnc.torch.sdpa`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

import dnnc.torch
from demo.tables import table

from .torch_model import SIZES, Attend, Llama

RATE = 1e-3


@dataclass(frozen=True)
class Trained:
    """losses: of each step.  gradients: of the first step, by the parameter's name."""

    losses: list[float]
    gradients: dict[str, torch.Tensor]


def train(model: str, device: str, batch: int, tokens: int, steps: int, seed: int) -> bool:
    """Prints losses and errors; whether ours are as near to float32 as torch's own attention.

    The same weights and tokens three times: attention by dnnc, by torch, and by torch in float32.
    On a CPU weights are float32, and dnnc's attention is its reference.
    """
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    given = (model, device, batch, tokens, steps, seed)
    ours = trained(*given, dnnc.torch.sdpa, dtype)
    torchs = trained(*given, scaled_dot_product_attention, dtype)
    exact = trained(*given, scaled_dot_product_attention, torch.float32)
    rows = [
        (str(i), *(f"{found.losses[i]:.5f}" for found in (ours, torchs, exact)))
        for i in range(steps)
    ]
    print(table(("step", "dnnc", "torch", "torch, float32"), rows))
    own, theirs = (_worst(found, exact) for found in (ours, torchs))
    print(f"\nlargest relative error of a gradient: dnnc {own:.2e}, torch {theirs:.2e}")
    return own <= 1.5 * max(theirs, 1e-5)


def trained(
    model: str, device: str, batch: int, tokens: int, steps: int, seed: int,
    attend: Attend, dtype: torch.dtype,
) -> Trained:  # fmt: skip
    """Steps of AdamW on random tokens."""
    torch.manual_seed(seed)
    size = SIZES[model]
    made = Llama(size, attend).to(device=device, dtype=dtype)
    optimizer = torch.optim.AdamW(made.parameters(), lr=RATE)
    text = torch.randint(size.tokens, (batch, tokens + 1), device=device)
    losses, gradients = [], {}
    for _ in range(steps):
        optimizer.zero_grad()
        loss = made(text)
        loss.backward()
        if not gradients:
            gradients = {
                name: each.grad.detach().float().clone()
                for name, each in made.named_parameters()
                if each.grad is not None
            }
        optimizer.step()
        losses.append(float(loss.detach()))
    return Trained(losses, gradients)


def _worst(found: Trained, exact: Trained) -> float:
    """The largest relative error of a parameter's gradient."""
    return max(
        float((found.gradients[name] - wanted).norm() / wanted.norm())
        for name, wanted in exact.gradients.items()
    )
