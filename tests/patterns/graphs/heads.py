"""Heads of attention for the graphs beside it: [batch, heads, sequence, head size]."""

import math

import dnnc

BATCH, HEADS, LENGTH, SIZE = 2, 4, 128, 64
DIMS = [BATCH, HEADS, LENGTH, SIZE]
SCORES = [BATCH, HEADS, LENGTH, LENGTH]
SCALE = 1 / math.sqrt(SIZE)


def head(g, name, data_type=None):
    return g.tensor(DIMS, data_type=data_type, name=name)


def transposed(g, name, data_type=None):
    """A tensor over the same memory with its last two axes exchanged."""
    b, h, n, d = DIMS
    strides = [h * n * d, n * d, 1, d]
    return g.tensor([b, h, d, n], strides, data_type=data_type, name=name)


def column(g, value, mode):
    return g.reduction(value, dnnc.reduction_mode[mode]).set_dim([BATCH, HEADS, LENGTH, 1])


def causal(g, scores, masked=-1e30):
    """Minus infinity, or another number, above the diagonal."""
    rows, columns = g.gen_index(scores, axis=2), g.gen_index(scores, axis=3)
    return g.binary_select(scores, masked, g.cmp_ge(rows, columns))


def softmax(g, scores):
    """(Probabilities, logarithms of the sums), of the rows."""
    largest = column(g, scores, "MAX")
    powers = g.exp(g.sub(scores, largest))
    total = column(g, powers, "ADD")
    return g.div(powers, total), g.add(g.log(total), largest)


def dropped(g, probabilities):
    """A tenth of them is zero, the others are as much larger."""
    seed, offset = (g.tensor([1, 1, 1, 1], data_type="INT64", name=n) for n in ("seed", "offset"))
    kept = g.rng(seed, offset, "BERNOULLI", bernoulli_probability=0.9, dim=SCORES)
    return g.mul(g.mul(probabilities, kept), 1 / 0.9)
