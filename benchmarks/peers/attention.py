"""Attention in torch: its flash and cuDNN backends, and flex_attention through inductor.

Each gives (o, stats), stats [b, h, s].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..cases.attention import is_seen
from ..cases.case import Buffers, Case

Call = Callable[[Buffers], Any]

# Gradients whose forward pass torch runs itself.
GRADIENTS = ("attention_backward", "packed_backward")
KINDS = (*GRADIENTS, "attention", "attention_fp8_backward", "packed", "paged")
FLASH_DEPTH = 256  # elements of a head that the flash and cuDNN backends take at most


def is_modified(case: Case) -> bool:
    """Whether its scores are more than those that torch's own backends have."""
    return case.p["scores"] not in ("full", "causal")


def backends(case: Case) -> dict[str, Call]:
    """Column -> call; none where scores are modified, and none of fp8."""
    if case.kind in ("paged", "attention_fp8_backward"):  # it has no kernels of its own for them
        return {}
    if case.kind == "packed":
        return {"torch": flash_of_packed(case)}
    if case.kind == "packed_backward":
        return {"torch": flash_gradient_of_packed(case)}
    if case.kind == "attention_backward":
        if is_modified(case):
            return {}
        return {"torch": gradient(case, "FLASH_ATTENTION"),
                "torch_cudnn": gradient(case, "CUDNN_ATTENTION")}  # fmt: skip
    if is_modified(case) or case.p["dtype"] == "e4m3":
        return {}
    if max(case.p["d"], case.p["dv"]) > FLASH_DEPTH:
        return {"torch": efficient(case)}
    return {"torch": flash(case), "torch_cudnn": of_cudnn(case)}


def flash(case: Case) -> Call:
    """The call that `scaled_dot_product_attention` makes under SDPBackend.FLASH_ATTENTION."""
    is_causal = bool(case.p["causal"])
    run = torch.ops.aten._scaled_dot_product_flash_attention
    return lambda s: run(s["q"], s["k"], s["v"], 0.0, is_causal)[:2]


def efficient(case: Case) -> Call:
    """The call that `scaled_dot_product_attention` makes under SDPBackend.EFFICIENT_ATTENTION.

    It has no heads that share keys: each gets its own copy, which is not timed; of one head of
    keys all read the same.
    """
    is_causal, h, rows = bool(case.p["causal"]), case.p["h"], case.p["q"]
    run = torch.ops.aten._scaled_dot_product_efficient_attention
    copies: dict[int, Any] = {}

    def of_each_head(x: Any) -> Any:
        shared = x.shape[1]
        return x.expand(-1, h, -1, -1) if shared == 1 else x.repeat_interleave(h // shared, 1)

    def call(s: Buffers) -> Any:
        if id(s) not in copies:
            copies[id(s)] = [of_each_head(s[name]) for name in "kv"]
        o, stats, *_ = run(s["q"], *copies[id(s)], None, True, 0.0, is_causal)
        return o, stats[..., :rows]

    return call


def gradient(case: Case, backend: str) -> Call:
    """(dq, dk, dv) by the operation that autograd calls for torch's attention under a backend."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    graphs: dict[int, Any] = {}

    def call(s: Buffers) -> Any:
        if id(s) not in graphs:
            inputs = [s[name].detach().requires_grad_() for name in "qkv"]
            with sdpa_kernel(getattr(SDPBackend, backend)):
                o = scaled_dot_product_attention(
                    *inputs, is_causal=bool(case.p["causal"]), enable_gqa=case.p["groups"] > 1
                )
            graphs[id(s)] = (o, inputs)
        o, inputs = graphs[id(s)]
        return torch.autograd.grad(o, inputs, s["do"], retain_graph=True)

    return call


def flash_of_packed(case: Case) -> Call:
    """The call that `torch.nn.attention.varlen.varlen_attn` makes: [t, h, d], stats [h, t]."""
    run, longest = torch.ops.aten._flash_attention_forward, max(case.p["lengths"])
    is_causal = bool(case.p["causal"])

    def call(s: Buffers) -> Any:
        q, k, v = (s[name][0].transpose(0, 1) for name in "qkv")
        first = s["first"].flatten()
        o, stats, *_ = run(q, k, v, first, first, longest, longest, 0.0, is_causal, False)
        return o.transpose(0, 1), stats

    return call


def flash_gradient_of_packed(case: Case) -> Call:
    """The call of the gradient of `flash_of_packed`, whose own results it takes: [t, h, d]."""
    forward = torch.ops.aten._flash_attention_forward
    run, longest = torch.ops.aten._flash_attention_backward, max(case.p["lengths"])
    taken: dict[int, Any] = {}

    def call(s: Buffers) -> Any:
        q, k, v, do = (s[name][0].transpose(0, 1) for name in ("q", "k", "v", "do"))
        first = s["first"].flatten()
        if id(s) not in taken:
            taken[id(s)] = forward(q, k, v, first, first, longest, longest, 0.0, True, False)
        o, stats, state, unused, *_ = taken[id(s)]
        found = run(do, q, k, v, o, stats, first, first, longest, longest, 0.0, True, state, unused)
        return tuple(x.transpose(0, 1) for x in found)

    return call


def of_cudnn(case: Case) -> Call:
    """The call that `scaled_dot_product_attention` makes under SDPBackend.CUDNN_ATTENTION."""
    is_causal = bool(case.p["causal"])
    run = torch.ops.aten._scaled_dot_product_cudnn_attention
    return lambda s: run(s["q"], s["k"], s["v"], None, True, 0.0, is_causal)[:2]


def flex(case: Case, buffers: Buffers) -> Call:
    """flex_attention, not compiled yet; blocks of keys that no row sees are left out.

    buffers: any set; documents and masks of blocks are the same in all of them.
    """
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

    p = case.p
    slopes = buffers["slopes"].flatten() if p["alibi"] else None

    def mask(b: Any, h: Any, row: Any, column: Any) -> Any:
        return is_seen(dict(p), row, column, buffers)

    def score(s: Any, b: Any, h: Any, row: Any, column: Any) -> Any:
        if p["softcap"]:
            s = p["softcap"] * torch.tanh(s / p["softcap"])
        if slopes is not None:
            s = s + slopes[h] * (column - row)
        return s

    blocks = create_block_mask(mask, None, None, p["s"], p["s"], device=buffers["q"].device)
    has_score = bool(p["softcap"] or p["alibi"])

    def call(s: Buffers) -> Any:
        o, more = flex_attention(
            s["q"],
            s["k"],
            s["v"],
            score_mod=score if has_score else None,
            block_mask=blocks,
            enable_gqa=p["groups"] > 1,
            return_aux=AuxRequest(lse=True),
        )
        return o, more.lse

    return call
