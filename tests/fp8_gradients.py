"""Operands of `sdpa_fp8_backward` that fit each other, and a run of one against its reference."""

import numpy as np

from dnnc.rounding import round_to, widen
from tests.attention_gradients import dims_of

NUMBERS = {
    "descale_q": 0.5, "descale_k": 1.5, "descale_v": 2.0, "descale_o": 0.25, "descale_do": 0.125,
    "descale_s": 1 / 250, "descale_dp": 1 / 60, "scale_s": 256.0, "scale_dq": 3.0,
    "scale_dk": 0.75, "scale_dv": 5.0, "scale_dp": 64.0,
}  # fmt: skip


def operands_of(op, seed, numbers=NUMBERS, sizes=None, **known):
    """Operands by field name, as they are stored; o and stats are those of the forward pass.

    numbers: descales and scales.  known: operands that are not random.
    """
    from dnnc.dialect.ops.sdpa_reference import attention

    rng, sizes, given = np.random.default_rng(seed), sizes or {}, {}
    for field, tensor in op.tensors("operand"):
        dims = dims_of(tensor, sizes)
        if field.name in numbers:
            given[field.name] = np.full(dims, numbers[field.name], np.float32)
        elif tensor.value is not None:
            given[field.name] = np.full([1, 1, 1, 1], float(tensor.value))
        elif field.name in ("seed", "offset"):
            given[field.name] = rng.integers(0, 1 << 31, dims)
        elif field.name in ("q", "k", "v", "do", "sink_token"):
            given[field.name] = round_to(rng.normal(size=dims), tensor.type)
        elif field.name not in ("o", "stats"):
            given[field.name] = op.draw(tensor, rng, sizes)
    given |= known
    wide = {n: widen(given[n]) * numbers[f"descale_{n}"] for n in "qkv"}
    made = attention(op, {**given, **wide}, sizes)
    given["o"] = round_to(made["o"] / numbers["descale_o"], op.o.type)
    given["stats"] = round_to(made["stats"], op.stats.type)
    return given
