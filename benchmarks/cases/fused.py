"""The fused cases: gated pairs, softmax and norm of a product's rows, products by expert.

bf16 operands and outputs; weights are stored as [n, k].  An id is fused/bf16/kind/sizes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from ..graphs.fused import EPSILON
from ..peers.torch_later import functional, torch
from . import kinds
from .case import Buffers, Case, row_step, unit
from .kinds import TOLERANCES

# Of a grouped case, so many elements are checked: some rows of every expert.
_GROUPED_ELEMENTS = 1 << 24


def swiglu(m: int, n: int, k: int) -> Case:
    """y [m, n] = silu(a [m, k] @ g^T) * (a @ u^T), with g and u [n, k]."""
    step = row_step(m, max(n, k))

    def make() -> Buffers:
        return {"a": _normal(m, k), "g": _weight(n, k), "u": _weight(n, k), "y": _empty(m, n)}

    def exact(s: Buffers) -> Buffers:
        a = s["a"][::step]
        return {"y": functional.silu(_product(a, s["g"])) * _product(a, s["u"])}

    p = {"m": m, "n": n, "k": k}
    return _case("swiglu", p, make, exact, 4.0 * m * n * k, m * k + 2 * n * k + m * n, step)


def softmax(m: int, n: int, k: int) -> Case:
    """y [m, n]: of each row of a [m, k] @ w^T, with w [n, k]."""

    def exact(s: Buffers, c: Any) -> Any:
        return torch.softmax(c, -1)

    return _of_rows("softmax", m, n, k, dict, exact)


def rms_norm(m: int, n: int, k: int) -> Case:
    """y [m, n]: each row of a [m, k] @ w^T by its root mean square, times gamma [n]."""

    def more() -> Buffers:
        return {"gamma": (_normal(n, scale=0.1) + 1.0)}

    def exact(s: Buffers, c: Any) -> Any:
        mean = (c * c).mean(-1, keepdim=True)
        return c * torch.rsqrt(mean + EPSILON) * s["gamma"].double()

    return _of_rows("rms_norm", m, n, k, more, exact)


def grouped(e: int, t: int, n: int, k: int) -> Case:
    """y [t, n]: each row of token [t, k] times its expert's weight, of [e, n, k].

    Buffer "first" [e, 1, 1] has the first row of each expert, "ends" [e] the row after its last.
    """
    counts = rows_of_experts(e, t)
    ends = list(itertools.accumulate(counts))
    step = row_step(t, max(n, k), _GROUPED_ELEMENTS)

    def make() -> Buffers:
        after = torch.tensor(ends, dtype=torch.int32, device=kinds.DEVICE)
        before = torch.tensor(counts, dtype=torch.int32, device=kinds.DEVICE)
        return {
            "token": _normal(t, k),
            "weight": _normal(e, n, k, scale=k**-0.5),
            "first": (after - before).reshape(e, 1, 1),
            "ends": after,
            "y": _empty(t, n),
        }

    def exact(s: Buffers) -> Buffers:
        found = []
        for weight, count, end in zip(s["weight"], counts, ends, strict=True):
            begin = -(-(end - count) // step) * step
            if begin < end:  # the expert has rows of those that are checked
                found.append(_product(s["token"][begin:end:step], weight))
        return {"y": torch.cat(found)}

    # The weights of an expert without rows are not read.
    read = sum(count > 0 for count in counts)
    elements = t * k + read * n * k + t * n
    p = {"e": e, "t": t, "n": n, "k": k}
    return _case("grouped", p, make, exact, 2.0 * t * n * k, elements, step)


def rows_of_experts(e: int, t: int) -> list[int]:
    """t rows in exponential shares, always the same; the expert in the middle has none."""
    draw = random.Random(e)
    shares = [draw.expovariate(1.0) for _ in range(e)]
    if e > 1:
        shares[e // 2] = 0.0
    sums = list(itertools.accumulate(shares))
    ends = [round(t * value / sums[-1]) for value in sums]
    return [end - begin for begin, end in itertools.pairwise([0, *ends])]


KINDS: dict[str, Callable[..., Case]] = {
    "swiglu": swiglu,
    "softmax": softmax,
    "rms_norm": rms_norm,
    "grouped": grouped,
}


def fused_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    _, _, kind, sizes = id_.split("/")
    made = KINDS[kind](*(int(size) for size in sizes.split("x")))
    if made.id != id_:
        raise ValueError(f"{id_!r} is spelled {made.id!r}")
    return made


# ---- what they share


def _of_rows(
    kind: str,
    m: int,
    n: int,
    k: int,
    more: Callable[[], Buffers],
    exact_of: Callable[[Buffers, Any], Any],
) -> Case:
    """y [m, n]: exact_of(buffers, a [m, k] @ w^T in float64), with w [n, k]; more: buffers."""
    step = row_step(m, max(n, k))

    def make() -> Buffers:
        return {"a": _normal(m, k), "w": _weight(n, k), "y": _empty(m, n), **more()}

    def exact(s: Buffers) -> Buffers:
        return {"y": exact_of(s, _product(s["a"][::step], s["w"]))}

    p = {"m": m, "n": n, "k": k}
    return _case(kind, p, make, exact, 2.0 * m * n * k, m * k + n * k + m * n, step)


def _case(
    kind: str,
    p: dict[str, int],
    make: Callable[[], Buffers],
    exact: Callable[[Buffers], Buffers],
    flops: float,
    elements: int,
    step: int,
) -> Case:
    """elements: that are read or written, of 2 bytes each."""
    bytes_ = 2.0 * elements
    return Case(
        id=f"fused/bf16/{kind}/{'x'.join(map(str, p.values()))}",
        kind=kind,
        p=p,
        make=make,
        exact=exact,
        flops=flops,
        bytes=bytes_,
        unit=unit(flops, bytes_),
        tolerance=TOLERANCES["bf16"],
        row_step=step,
    )


def _normal(*dims: int, scale: float = 1.0) -> Any:
    """Drawn in place: the weights of all experts in f32 would be twice as large, and copied."""
    return _empty(*dims).normal_(std=scale)


def _weight(n: int, k: int) -> Any:
    """[n, k], such that products with it are of unit size."""
    return _normal(n, k, scale=k**-0.5)


def _empty(*dims: int) -> Any:
    return torch.empty(*dims, dtype=torch.bfloat16, device=kinds.DEVICE)


def _product(a: Any, w: Any) -> Any:
    """a [m, k] @ w^T, with w [n, k], in float64."""
    return a.double() @ w.double().mT
