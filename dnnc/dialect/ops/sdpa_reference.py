"""Attention on NumPy in float64, straight from its definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .block_mask_load import SDPA_BLOCK, seen_of

if TYPE_CHECKING:
    from .sdpa import Sdpa
    from .sdpa_backward import SdpaBackward

Array = Any


def attention(op: Sdpa, given: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Every result that the operation may have, by name, and `share`: the probabilities after
    dropout; given: operands by name."""
    q = np.asarray(given["q"], np.float64)
    skv = op.columns.evaluate(sizes)
    k, v = (_heads(_unpaged(given, name, skv), q.shape[1]) for name in ("k", "v"))
    with np.errstate(all="ignore"):
        scores = _masked_scores(op, given, q, k)
        sink = given.get("sink_token", np.full((1, 1, 1, 1), -np.inf))
        largest = np.maximum(np.max(scores, axis=3, keepdims=True, initial=-np.inf), sink)
        base = np.where(largest == -np.inf, 0.0, largest)
        exponential = np.exp(scores - base)
        total = np.sum(exponential, axis=3, keepdims=True) + np.exp(sink - base)
        share = exponential / np.where(total == 0, 1.0, total)
        mask, scale = _dropout(op, given, sizes)
        share = share * np.where(_inside(given, scores.shape), mask, 0.0) * scale
        v = np.where(_rows_inside(given, "seq_len_kv", skv), v, 0.0)
        stats = largest + np.log(total)
        return {
            "o": share @ v,
            "share": share,
            "stats": stats * np.log2(np.e) if op.stats_use_log2 else stats,
            "score_max": largest,
            "score_sum_exp": total,
            "rng_dump": mask,
        }


def gradients(
    op: SdpaBackward,
    given: Mapping[str, Array],
    sizes: Mapping[str, int],
    taken: Callable[[str, Array], Array] = lambda name, values: values,
) -> dict[str, Array]:
    """Every result that the operation may have, by name; given: operands by name.

    taken: what the products take in place of "p", the weights after dropout, and of "ds", the
    gradient of the scores before their scale.
    """
    whole = {name: np.asarray(given[name], np.float64) for name in ("q", "k", "v", "o", "do")}
    q, k, v = whole["q"], whole["k"], whole["v"]
    # Past the lengths there are no rows and no keys, whatever memory holds.
    rows = _rows_inside(given, "seq_len_q", q.shape[2])
    columns = _rows_inside(given, "seq_len_kv", k.shape[2])
    q, o, do = (np.where(rows, whole[name], 0.0) for name in ("q", "o", "do"))
    stats = np.where(rows, np.asarray(given["stats"], np.float64), -np.inf)
    keys, values = (_heads(np.where(columns, x, 0.0), q.shape[1]) for x in (k, v))
    with np.errstate(all="ignore"):
        scores = _masked_scores(op, given, q, keys)
        base = np.where(stats == -np.inf, 0.0, stats * (np.log(2) if op.stats_use_log2 else 1.0))
        share = np.where(scores == -np.inf, 0.0, np.exp(scores - base))
        mask, scale = _dropout(op, given, sizes)
        kept = np.where(_inside(given, scores.shape), mask, 0.0) * scale
        delta = np.sum(do * o, axis=3, keepdims=True)
        ds = share * (do @ np.swapaxes(values, 2, 3) * kept - delta)
        of_scores = taken("ds", ds * number(given, "attn_scale"))
        found = {
            "dq": of_scores @ keys,
            "dk": _summed(np.swapaxes(of_scores, 2, 3) @ q, k.shape),
            "dv": _summed(np.swapaxes(taken("p", share * kept), 2, 3) @ do, v.shape),
            "rng_dump": mask,
        }
        if "bias" in given:
            dims = np.shape(given["bias"])
            found["dbias"] = _summed(ds, (1,) * (4 - len(dims)) + dims)
        if "sink_token" in given:
            lost = np.where(rows, -np.exp(given["sink_token"] - base) * delta, 0.0)
            found["dsink_token"] = _summed(lost, np.shape(given["sink_token"]))
        return found


def _summed(whole: Array, dims: tuple[int, ...]) -> Array:
    """Sums of as many elements that follow each other as leave such dims."""
    for axis, n in enumerate(dims):
        shape = (*whole.shape[:axis], n, -1, *whole.shape[axis + 1 :])
        whole = whole if whole.shape[axis] == n else whole.reshape(shape).sum(axis=axis + 1)
    return whole


def _masked_scores(op: Sdpa, given: Mapping[str, Array], q: Array, k: Array) -> Array:
    """Scores with scale, bias and ALiBi, minus infinity where they are masked."""
    scores = q @ np.swapaxes(k, 2, 3) * number(given, "attn_scale")
    scores = scores + given.get("bias", 0.0)
    if op.use_alibi_mask:
        distance = np.arange(k.shape[2]) - np.arange(q.shape[2])[:, None]
        scores = scores + alibi_slopes(q.shape[1])[:, None, None] * distance
    return np.where(_seen(op, given, scores.shape), scores, -np.inf)


def alibi_slopes(heads: int) -> Array:
    """The slopes of so many heads: 2 ** (-8 (h + 1) / n), n the largest power of two up to the
    number of heads; those left over take every other one of 2n heads, from the first.

    Source: Press, Smith, Lewis, "Train short, test long" (ICLR 2022), and its code.
    """
    n = 1 << (heads.bit_length() - 1)
    first = [2.0 ** (-8 * (h + 1) / n) for h in range(n)]
    rest = [2.0 ** (-4 * (2 * h + 1) / n) for h in range(heads - n)]
    return np.array(first + rest)


def number(given: Mapping[str, Array], name: str) -> Array:
    return np.asarray(given.get(name, 1.0), np.float64)


def _heads(array: Array, heads: int) -> Array:
    return np.repeat(array, heads // max(1, array.shape[1]), axis=1)


def _unpaged(given: Mapping[str, Array], name: str, skv: int) -> Array:
    """K or V in one piece; keys past the length of a paged one are zeros."""
    whole = np.asarray(given[name], np.float64)
    table = given.get(f"page_table_{name}")
    if table is None:
        return whole
    return paged(whole, table, given["seq_len_kv"], skv)


def paged(container: Array, table: Array, lengths: Array, skv: int) -> Array:
    """[B, H, skv, D] of a container [blocks, H, block size, D] and a table [B, 1, pages, 1]."""
    blocks, heads, size, depth = container.shape
    made = np.zeros((table.shape[0], heads, skv, depth), container.dtype)
    for batch, length in enumerate(np.asarray(lengths).reshape(-1).astype(int)):
        for key in range(min(length, skv)):
            block = int(table[batch, 0, key // size, 0])
            made[batch, :, key] = container[block, :, key % size] if 0 <= block < blocks else 0
    return made


def _seen(op: Sdpa, given: Mapping[str, Array], dims: tuple[int, ...]) -> Array:
    """Which scores are not masked."""
    row, column = np.arange(dims[2])[:, None], np.arange(dims[3])
    seen = np.ones(dims, bool)
    shift: Array = dims[3] - dims[2]
    if "seq_len_kv" in given:
        seen &= _inside(given, dims)
        rows, columns = (np.asarray(given[n]).reshape(-1, 1, 1, 1) for n in _LENGTHS)
        shift = columns - rows
    diagonal = row + (shift if op.diagonal_alignment == "BOTTOM_RIGHT" else 0)
    if op.right_bound is not None:
        seen &= column <= diagonal + op.right_bound
    if op.left_bound is not None:
        seen &= column > diagonal - op.left_bound
    if "block_mask" in given:
        seen &= seen_of(np.asarray(given["block_mask"]), list(dims[2:]), (SDPA_BLOCK, SDPA_BLOCK))
    return seen


_LENGTHS = ("seq_len_q", "seq_len_kv")


def _inside(given: Mapping[str, Array], dims: tuple[int, ...]) -> Array:
    """Which scores are of rows and columns below the lengths: all, if there are none."""
    if "seq_len_kv" not in given:
        return np.ones(dims, bool)
    rows, columns = (np.asarray(given[n]).reshape(-1, 1, 1, 1) for n in _LENGTHS)
    return (np.arange(dims[2])[:, None] < rows) & (np.arange(dims[3]) < columns)


def _rows_inside(given: Mapping[str, Array], lengths: str, rows: int) -> Array:
    """[B, 1, rows, 1]: which queries or keys are below the lengths."""
    if lengths not in given:
        return np.ones((1, 1, rows, 1), bool)
    return np.arange(rows)[:, None] < np.asarray(given[lengths]).reshape(-1, 1, 1, 1)


def _dropout(op: Sdpa, given: Mapping[str, Array], sizes: Mapping[str, int]) -> tuple[Array, Array]:
    """(mask, scale)."""
    if op.dropout_probability is None:
        return given.get("dropout_mask", 1.0), number(given, "dropout_scale")
    assert op.seed is not None
    assert op.offset is not None
    from ..tensor import Tensor

    drawn = op.drawn_mask(op.seed, op.offset, Tensor())
    mask = drawn.reference(given["seed"], given["offset"], sizes=sizes)
    return mask, 1 / (1 - op.dropout_probability)
