# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Attention of torch tensors, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from ..errors import DnncError, Status
from ..places import Place, current_place, noted
from .calls import Kind, Like, called, require_one_device

_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_SEEDS = 1 << 62
_RANK = 4  # of the graph's tensors


def sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    window: int | None = None,
    deterministic: bool = False,
) -> torch.Tensor:
    """softmax(scale * query key^T + attn_mask) value, as torch's scaled_dot_product_attention.

    query [..., Hq, L, E], key [..., H, S, E], value [..., H, S, Ev], any strides; [..., L, Ev] is
    returned, laid out as query is.  float16, bfloat16, float32 or float64, all of one type.
    attn_mask: broadcasts to [..., Hq, L, S]; booleans (True: seen), or numbers that are added,
    which may require a gradient.  dropout_p: the probability of a 0; the mask is drawn from torch's
    generator of the device.  is_causal: row i sees columns up to i; beside a mask, both hold.
    scale: default 1 / sqrt(E).  enable_gqa: whether H may be a divisor of Hq.  window: a row sees
    so many columns up to its diagonal, its own included (default: all).  deterministic: whether
    gradients have to have the same bits each time.
    A row that sees no column gives zeros.  Gradients are computed once: there is no second
    derivative.  Shapes and types that can't be are a DnncError (BAD_PARAM), which is a ValueError.
    Source: torch.nn.functional.scaled_dot_product_attention.
    """
    given = {"query": query, "key": key, "value": value}
    for name, tensor in {**given, "attn_mask": attn_mask}.items():
        if not isinstance(tensor, torch.Tensor) and (tensor is not None or name != "attn_mask"):
            raise _error(f"{name}: a {type(tensor).__name__}", "a torch.Tensor")
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, *_TYPES):
        accepted = ", ".join(map(str, (torch.bool, *_TYPES)))
        raise _error(f"attn_mask of {attn_mask.dtype}", accepted)
    require_one_device("sdpa", given if attn_mask is None else {**given, "attn_mask": attn_mask})
    _verify(given, dropout_p, scale, window, enable_gqa)
    q, k, v, lead = _four_axes(query, key, value)
    bias = seed = None
    if attn_mask is not None:
        bias = _bias(_added(attn_mask, q.dtype), (*lead, q.shape[2], k.shape[2]))
    if dropout_p > 0:
        seed = torch.randint(_SEEDS, (1, 1, 1, 1), device=q.device)
    options = _Options(
        scale=1 / math.sqrt(q.shape[-1]) if scale is None else float(scale),
        is_causal=bool(is_causal),
        window=window,
        dropout=float(dropout_p),
        deterministic=bool(deterministic),
        is_double=q.dtype == torch.float64,
    )
    place = current_place()
    made: torch.Tensor = _Attention.apply(q, k, v, bias, seed, options, place)  # pyright: ignore
    return made.reshape(*lead, *made.shape[2:])


class _Options(NamedTuple):
    """Options of a call of `sdpa`, beside its tensors."""

    scale: float
    is_causal: bool
    window: int | None
    dropout: float
    deterministic: bool
    is_double: bool

    def of_graph(self, graph: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments that the graph's methods of both passes share."""
        scale: Any = self.scale
        if self.is_double:  # other numbers of a graph are FLOAT
            scale = graph.tensor_scalar(scale, data_type="DOUBLE")
        found: dict[str, Any] = {"attn_scale": scale, "bias": tensors.get("bias")}
        if self.is_causal or self.window is not None:
            found["diagonal_band_right_bound"] = 0
        if self.window is not None:
            found["diagonal_band_left_bound"] = self.window
        if "seed" in tensors:
            found["dropout"] = (self.dropout, tensors["seed"], tensors["offset"])
        return found


class _Attention(torch.autograd.Function):
    """Attention of tensors of four axes.  place: of the call, which errors of both passes name."""

    @staticmethod
    def forward(
        ctx: Any, q: Any, k: Any, v: Any, bias: Any, seed: Any, options: Any, place: Place | None
    ) -> Any:
        given = _named(q=q, k=k, v=v, bias=bias, seed=seed)
        results = {"o": _in_order_of(q, (*q.shape[:3], v.shape[3]))}
        if any(ctx.needs_input_grad):
            results["stats"] = _statistics(q)
        with noted(place):
            o, *stats = called(_kind("sdpa", _forward, given, results, options), given)
        if stats:
            ctx.save_for_backward(q, k, v, bias, seed, o, *stats)
            ctx.options, ctx.place = options, place
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Any) -> Any:
        q, k, v, bias, seed, o, stats = ctx.saved_tensors
        given = _named(q=q, k=k, v=v, bias=bias, seed=seed, o=o, do=_dense(do), stats=stats)
        results = {f"d{name}": _in_order_of(given[name]) for name in "qkv"}
        if ctx.needs_input_grad[3]:
            results["dbias"] = _in_order_of(bias)
        with noted(ctx.place):
            made = called(_kind("sdpa_backward", _backward, given, results, ctx.options), given)
        dq, dk, dv, *dbias = made
        return dq, dk, dv, dbias[0] if dbias else None, None, None, None


def _kind(
    name: str,
    build: Any,
    given: Mapping[str, torch.Tensor],
    results: Mapping[str, Like],
    options: _Options,
) -> Kind:
    inputs = tuple((name, Like.of(tensor)) for name, tensor in given.items())
    arithmetic = "DOUBLE" if options.is_double else "FLOAT"
    return Kind(name, build, inputs, tuple(results.items()), options, arithmetic)


def _forward(graph: Any, tensors: Any, results: Mapping[str, Like], options: _Options) -> Any:
    has_stats = "stats" in results
    made = graph.sdpa(
        *(tensors[name] for name in "qkv"),
        generate_stats=has_stats,
        **options.of_graph(graph, tensors),
    )
    return made if has_stats else made[:1]


def _backward(graph: Any, tensors: Any, results: Mapping[str, Like], options: _Options) -> Any:
    written = []
    if "dbias" in results:
        written.append(graph.tensor(results["dbias"].dims, results["dbias"].strides))
    made = graph.sdpa_backward(
        *(tensors[name] for name in ("q", "k", "v", "o", "do", "stats")),
        dBias=written[0] if written else None,
        use_deterministic_algorithm=options.deterministic,
        **options.of_graph(graph, tensors),
    )
    return (*made, *written)


def _named(seed: torch.Tensor | None, **tensors: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Tensors that are there, by name; a seed has an offset of 0 beside it."""
    found = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    return found if seed is None else {**found, "seed": seed, "offset": torch.zeros_like(seed)}


# ---- layouts


def _in_order_of(model: torch.Tensor, dims: tuple[int, ...] | None = None) -> Like:
    """A tensor without gaps, whose axes are nested as those of a model are."""
    dims = tuple(model.shape) if dims is None else dims
    order = sorted(range(len(dims)), key=lambda axis: (model.stride(axis), -axis))
    strides, step = [0] * len(dims), 1
    for axis in order:
        strides[axis] = step
        step *= dims[axis]
    return Like(dims, tuple(strides), model.dtype)


def _statistics(q: torch.Tensor) -> Like:
    dims = (*q.shape[:3], 1)
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    return Like(dims, (dims[1] * dims[2], dims[2], 1, 1), wide)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy where an axis of several elements has a stride of 0, or the last one
    is not contiguous."""
    pairs = list(zip(tensor.shape, tensor.stride(), strict=True))
    is_spread = any(extent > 1 and stride == 0 for extent, stride in pairs)
    is_row = pairs[-1][0] == 1 or pairs[-1][1] == 1
    return tensor if is_row and not is_spread else tensor.contiguous()


def _four_axes(*tensors: torch.Tensor) -> tuple[Any, ...]:
    """(query, key and value as [B, H, rows, columns], the leading axes of the result).

    Without heads, H is 1.
    """
    own = 2 if tensors[0].dim() == _RANK - 1 else 3
    batch = torch.broadcast_shapes(*(t.shape[:-own] for t in tensors))
    whole = [t.expand(*batch, *t.shape[-own:]) for t in tensors]
    if own == 2:
        return (*(_dense(t.unsqueeze(1)) for t in whole), batch)
    lead = (*batch, tensors[0].shape[-3])
    return (*(_dense(t.reshape(-1, *t.shape[-3:])) for t in whole), lead)


def _added(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask as numbers: minus infinity where booleans are False."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -math.inf)


def _bias(mask: torch.Tensor, scores: tuple[int, ...]) -> torch.Tensor:
    """Numbers that are added to the scores, [1 or B, 1 or H, 1 or L, 1 or S].

    scores: their dims as the caller's tensors have them, of rank 3 without heads.
    """
    if mask.dim() > len(scores) or not _broadcasts(mask.shape, scores):
        raise _error(f"attn_mask {list(mask.shape)}", f"what broadcasts to {list(scores)}")
    whole = mask.reshape((1,) * (len(scores) - mask.dim()) + tuple(mask.shape))
    if len(scores) == _RANK - 1:
        whole, scores = whole.unsqueeze(1), (scores[0], 1, *scores[1:])
    if any(extent != 1 for extent in whole.shape[:-3]):
        whole = whole.expand(*scores[:-3], *whole.shape[-3:])
    return _dense(whole.reshape(-1, *whole.shape[-3:]))


def _broadcasts(dims: Any, whole: Any) -> bool:
    pairs = zip(reversed(tuple(dims)), reversed(tuple(whole)), strict=False)
    return all(own in (1, extent) for own, extent in pairs)


# ---- checks


def _verify(
    given: Mapping[str, torch.Tensor],
    dropout_p: float,
    scale: float | None,
    window: int | None,
    enable_gqa: bool,
) -> None:
    query, key, value = given.values()
    if len({t.dtype for t in given.values()}) > 1 or query.dtype not in _TYPES:
        what = ", ".join(f"{name} of {tensor.dtype}" for name, tensor in given.items())
        raise _error(what, f"one of {', '.join(map(str, _TYPES))} for all three")
    if len({t.dim() for t in given.values()}) > 1 or query.dim() < _RANK - 1:
        what = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in given.items())
        raise _error(what, "equal ranks of 3 or more")
    for name, tensor in given.items():
        if not tensor.numel():
            raise _error(f"{name} {list(tensor.shape)}", "at least one element")
    if key.shape[-1] != query.shape[-1] or key.shape[-2] != value.shape[-2]:
        what = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in given.items())
        raise _error(what, "query and key of one last dim, key and value of one last but one")
    if query.dim() >= _RANK:
        heads = query.shape[-3]
        for name, tensor in list(given.items())[1:]:
            own = tensor.shape[-3]
            if own != heads and not (enable_gqa and own and heads % own == 0):
                wanted = "that number, or a divisor with enable_gqa=True"
                raise _error(f"{name} of {own} heads beside {heads} of query", wanted)
    if not isinstance(dropout_p, Real) or not 0 <= dropout_p < 1:
        raise _error(f"dropout_p={dropout_p!r}", "at least 0, below 1")
    if scale is not None and not (isinstance(scale, Real) and math.isfinite(scale)):
        raise _error(f"scale={scale!r}", "a finite number, or None")
    is_count = isinstance(window, Integral) and not isinstance(window, bool) and window >= 1
    if window is not None and not is_count:
        raise _error(f"window={window!r}", "a whole number of columns, at least 1, or None")


def _error(what: str, supported: str) -> DnncError:
    return DnncError(Status.BAD_PARAM, what, supported, "sdpa")
