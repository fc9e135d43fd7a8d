"""Random graphs whose operands repeat: of fewer dims, of stride 0, broadcast; constants."""

import random

import dnnc

DIMS = (2, 3, 4)  # of all tensors, or 1, or fewer
MODES = ("add", "max", "mul", "min")


def random_graph(seed, io="f32"):
    """A pygraph of a few operations on tensors whose dims are those of DIMS, or 1."""
    rng = random.Random(seed)
    g = dnnc.pygraph(f"broadcasts_{seed}", io_data_type=io, intermediate_data_type="f32")
    known = [_input(g, rng) for _ in range(3)]
    for _ in range(rng.randint(2, 7)):
        made = _operation(g, rng, known)
        if rng.random() < 0.2:
            made.set_output()
        known.append(made)
    if known[-1].get_is_virtual():
        known[-1].set_output()
    return g


def _shape(rng):
    rank = rng.choice([0, 1, 2, 3, 3, 3])
    return [rng.choice([n, n, 1]) for n in DIMS[3 - rank :]]


def _input(g, rng):
    dims = _shape(rng)
    strides, inside = [], 1
    for n in reversed(dims):
        strides.append(0 if rng.random() < 0.3 else inside)
        inside *= n if strides[-1] else 1
    return g.tensor(dims, strides[::-1])


def _operation(g, rng, known):
    x = rng.choice(known[-4:])
    dims = x.get_dim()
    kind = rng.choice(["unary", "binary", "binary", "select", "broadcast", "constant", "index",
                       "transpose", "reduction", "matmul"])  # fmt: skip
    if kind == "binary":
        return getattr(g, rng.choice(MODES))(x, rng.choice(known))
    if kind == "select":
        mask = g.cmp_gt(rng.choice(known), rng.choice(known))
        return g.binary_select(x, rng.choice(known), mask)
    if kind == "broadcast":
        return g.broadcast(x, list(DIMS[3 - rng.randint(len(dims), 3) :]))
    if kind == "constant":
        return g.add(x, g.constant(rng.choice([0.5, -2.0]), _shape(rng)))
    if kind == "index" and dims:
        return g.add(x, g.gen_index(x, rng.randrange(len(dims))).set_data_type("i32"))
    if kind == "transpose" and len(dims) > 1:
        order = rng.sample(range(len(dims)), len(dims))
        back = [order.index(axis) for axis in range(len(dims))]
        return g.transpose(g.relu(g.transpose(x, order)), back)
    if kind == "reduction" and dims:
        kept = [1 if rng.random() < 0.5 else n for n in dims]
        return g.reduction(x, "add").set_dim(kept)
    if kind == "matmul" and len(dims) > 1:
        k = g.tensor([*rng.choice([[], [1], [2]]), dims[-1], DIMS[-1]])
        left = g.broadcast(x, [*DIMS[:1], *dims[-2:]]) if len(k.get_dim()) == 3 else x
        return g.matmul(left, k)
    return g.abs(x)
