"""Random gradients of attention: `draw`."""

from __future__ import annotations

from dnnc import dtypes
from tests.dialect.attention_examples import lengths


def draw(random, most=12, depths=(4, 8, 24)):
    """(arguments of the call, a function of a graph; dims of the operands).

    most: rows and keys at most.
    """
    heads = random.choice([1, 2, 4, 6])
    batch, rows, columns = random.randint(1, 3), random.randint(1, most), random.randint(1, most)
    dims = {
        "batch": batch,
        "heads": heads,
        "kv_heads": random.choice([n for n in range(1, heads + 1) if heads % n == 0]),
        "rows": rows,
        "columns": columns,
        "depth": random.choice(depths),
        "value_depth": random.choice(depths),
    }
    scores = (batch, heads, rows, columns)
    bias = [random.choice([1, n]) for n in scores]
    mask = [random.choice([1, n]) for n in scores]
    has = {
        name: random.random() < 0.4
        for name in ("scale", "lengths", "left", "right", "end", "alibi", "bias", "sink", "log2")
    }
    dropout = random.choice(["none", "none", "drawn", "given"])
    left, right = random.randint(1, most), random.randint(0, 3)

    def arguments(g):
        given = {"stats_use_log2": has["log2"]}
        if has["scale"]:
            given["attn_scale"] = 0.3
        if has["lengths"]:
            given |= lengths(g, batch)
        if has["left"]:
            given["diagonal_band_left_bound"] = left
        if has["right"]:
            given["diagonal_band_right_bound"] = right
        if has["end"]:
            given["diagonal_alignment"] = "BOTTOM_RIGHT"
        given["use_alibi_mask"] = has["alibi"]
        if has["bias"]:
            given |= {"bias": g.tensor(bias, name="bias"), "dBias": g.tensor(bias)}
        if has["sink"]:
            dims = [1, heads, 1, 1]
            given |= {"sink_token": g.tensor(dims, name="sink"), "dSink_token": g.tensor(dims)}
        if dropout == "drawn":
            seed, offset = (g.tensor([1, 1, 1, 1], data_type=dtypes.i64) for _ in range(2))
            given["dropout"] = (0.25, seed, offset)
        if dropout == "given":
            given["dropout"] = (g.tensor(mask, name="mask"), g.tensor([1, 1, 1, 1], name="kept"))
        return given

    return arguments, dims
