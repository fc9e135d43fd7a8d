"""Views at the borders of a fusion: the same numbers in the same places of memory."""

import math
import random

import numpy as np
from numpy.lib.stride_tricks import as_strided

import dnnc
from dnnc.dialect.fusion import partition
from dnnc.dialect.ops.views import View
from dnnc.engines.product.ends import ends_of

F64 = {"io_data_type": "f64", "intermediate_data_type": "f64", "compute_data_type": "f64"}


def whole(g):
    """The graph as one fusion."""
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return fusion


def views(fusion):
    return [op for op in fusion.ops if isinstance(op, View)]


class Memory:
    """Flat arrays by uid: what lies in memory around a fusion."""

    def __init__(self, sizes):
        self.sizes, self.flat = sizes, {}

    def seen(self, tensor):
        dims, strides = (
            [n.evaluate(self.sizes) for n in values] for values in (tensor.shape, tensor.layout)
        )
        array = self.flat[tensor.uid][tensor.offset :]
        last = sum((n - 1) * s for n, s in zip(dims, strides, strict=True))
        assert last < len(array), f"{tensor.label} ends past its memory"
        return as_strided(array, dims, [8 * s for s in strides])


def run(fusion, given, sizes):
    """The arrays that a fusion leaves in memory, uid -> flat array; given: what lay there."""
    memory = Memory(sizes)
    memory.flat = {uid: array.copy() for uid, array in given.items()}
    values = {}
    for op in fusion.ops:
        operands = [
            np.full([1] * t.rank, t.value) if t.is_constant
            else values[t] if t in fusion.producers else memory.seen(t).copy()
            for t in op.operands
        ]  # fmt: skip
        (values[op.results[0]],) = (op.reference(*operands, sizes=sizes),)
    for tensor in fusion.outputs:
        memory.seen(tensor)[...] = values[tensor]
    return {tensor.uid: memory.flat[tensor.uid] for tensor in fusion.outputs}


def assert_same(g, sizes=None):
    """The fusion as engines see it does what the graph's operations do; gives it."""
    sizes, fusion = sizes or {}, whole(g)
    rng = np.random.default_rng(7)
    ends = (*fusion.in_graph.inputs, *fusion.in_graph.outputs)
    given = {t.uid: rng.integers(-4, 5, t.span().evaluate(sizes)).astype(float) for t in ends}
    wanted = run(fusion.in_graph, given, sizes)
    found = run(fusion, given, sizes)
    assert wanted.keys() == found.keys()
    for uid, array in wanted.items():
        np.testing.assert_array_equal(found[uid], array)
    return fusion


def reshaped(g, x, dims, mode="LOGICAL"):
    y = g.reshape(x, reshape_mode=getattr(dnnc.reshape_mode, mode))
    return y.set_dim(dims).set_stride([math.prod(dims[i + 1 :]) for i in range(len(dims))])


def out(tensor, dims=None, strides=None):
    tensor.set_output()
    if strides:
        tensor.set_dim(dims).set_stride(strides)
    return tensor


def product(g, rows, columns, depth=3, batch=1):
    return g.matmul(g.tensor([batch, rows, depth]), g.tensor([batch, depth, columns]))


# ---- what is loaded


def test_parts_of_one_tensor_are_read_where_they_lie():
    g = dnnc.pygraph(**F64)
    packed = g.tensor([1, 10, 24])
    q, k = (
        g.transpose(
            reshaped(
                g, g.slice(packed, [slice(0, 1), slice(0, 10), slice(s, s + 12)]), [2, 5, 3, 4]
            ),
            order,
        )
        for s, order in ((0, [0, 2, 1, 3]), (12, [0, 2, 3, 1]))
    )
    out(g.matmul(q, k))
    fusion = assert_same(g)
    assert not views(fusion)
    assert [t.offset for t in fusion.inputs] == [0, 12]
    assert {t.uid for t in fusion.inputs} == {packed.uid}
    assert [t.alignment for t in fusion.inputs] == [16, 16]


def test_a_part_is_aligned_as_its_first_element():
    g = dnnc.pygraph(**F64)
    a = g.slice(g.tensor([1, 8, 9]), [slice(0, 1), slice(1, 8, 2), slice(0, 9)])
    out(g.matmul(a, g.tensor([1, 9, 2])))
    fusion = assert_same(g)
    assert (fusion.inputs[0].offset, fusion.inputs[0].alignment) == (9, 8)


def test_what_no_strides_say_stays_a_view():
    g = dnnc.pygraph(**F64)
    rows = reshaped(g, g.tensor([2, 4, 6], [56, 14, 2]), [1, 4, 12])
    out(g.matmul(rows, g.tensor([1, 12, 2])))
    assert len(views(assert_same(g))) == 1


# ---- what is stored


def test_views_sink_below_what_follows_a_product():
    g = dnnc.pygraph(**F64)
    y = reshaped(g, product(g, 10, 6), [2, 5, 6])
    y = g.add(g.mul(y, g.tensor([1, 1, 6])), g.tensor([2, 5, 6], [60, 6, 1]))
    y = g.transpose(g.bias(y, g.tensor_scalar(3.0)), [0, 2, 1])
    out(g.relu(y), [2, 6, 5], [40, 1, 7])
    fusion = whole(g)  # rows of the output are 7 apart, images 40: no step says both
    assert len(views(fusion)) == 2
    g = dnnc.pygraph(**F64)
    y = reshaped(g, product(g, 10, 6), [2, 5, 6])
    y = g.add(g.mul(y, g.tensor([1, 1, 6])), g.tensor([2, 5, 6], [35, 7, 1]))
    y = g.transpose(g.bias(y, g.tensor_scalar(3.0)), [0, 2, 1])
    out(g.relu(y), [2, 6, 5], [40, 1, 8])
    fusion = assert_same(g)
    assert not views(fusion)
    assert [str(s) for s in fusion.outputs[0].layout[1:]] == ["8", "1"]


def test_reductions_of_a_view():
    g = dnnc.pygraph(**F64)
    y = reshaped(g, product(g, 10, 6), [2, 5, 6])
    total = g.reduction(y, mode=dnnc.reduction_mode.ADD)
    total.set_dim([2, 5, 1]).set_stride([5, 1, 1])
    out(total)
    out(g.mul(y, total))
    assert not views(assert_same(g))
    g = dnnc.pygraph(**F64)  # a part of what the rows were made of
    y = reshaped(g, product(g, 10, 6), [2, 5, 6])
    out(g.reduction(y, mode=dnnc.reduction_mode.ADD).set_dim([2, 1, 6]).set_stride([6, 6, 1]))
    assert len(views(assert_same(g))) == 1


def test_a_tensor_that_is_read_by_itself_too_is_stored_twice():
    g = dnnc.pygraph(**F64)
    c = out(product(g, 4, 6))
    out(g.transpose(c, [0, 2, 1]), [1, 6, 4], [24, 4, 1])
    out(g.transpose(c, [1, 0, 2]))
    fusion = assert_same(g)
    assert not views(fusion)
    assert len(fusion.outputs) == 3
    assert fusion.in_graph.outputs == tuple(g.graph.outputs)


def test_numbers_of_a_symbol():
    n = dnnc.Dim("n", max=64)
    g = dnnc.pygraph(**F64)
    x = g.transpose(g.tensor([4, n, 3]), [1, 0, 2])
    y = g.matmul(x, g.tensor([1, 3, 2]))
    z = g.reshape(y, reshape_mode=dnnc.reshape_mode.LOGICAL).set_dim([1, 4 * n, 2])
    out(z.set_stride([8 * n, 2, 1]))
    for size in (1, 5):
        assert not views(assert_same(g, {"n": size}))


def test_fusions_without_a_product_keep_their_views():
    g = dnnc.pygraph(**F64)
    out(g.relu(g.transpose(g.tensor([2, 3]), [1, 0])))
    fusion = whole(g)
    assert fusion.in_graph is fusion
    assert len(views(fusion)) == 1


# ---- at random


def random_view(g, random, x, dims):
    """(a view of a tensor, its dims)"""
    kind = random.choice(["transpose", "split", "join", "slice"])
    if kind == "transpose":
        order = random.sample(range(len(dims)), len(dims))
        return g.transpose(x, order), [dims[i] for i in order]
    if kind == "slice" and random.random() < 0.3:
        return g.slice(x, [slice(0, n) for n in dims]), dims
    if kind == "join" and len(dims) > 2:
        at = random.randrange(len(dims) - 1)
        dims = [*dims[:at], dims[at] * dims[at + 1], *dims[at + 2 :]]
        return reshaped(g, x, dims), dims
    at = random.randrange(len(dims))
    part = random.choice([n for n in range(1, dims[at] + 1) if dims[at] % n == 0])
    if len(dims) < 5:
        dims = [*dims[:at], dims[at] // part, part, *dims[at + 1 :]]
    return reshaped(g, x, dims), dims


def random_strides(random, dims):
    order, strides, step = random.sample(range(len(dims)), len(dims)), [0] * len(dims), 1
    if random.random() < 0.7:
        order = list(reversed(range(len(dims))))
    for axis in order:
        strides[axis] = step
        step *= dims[axis] + (random.random() < 0.2)
    return strides


def random_graph(seed):
    random_ = random.Random(seed)
    g = dnnc.pygraph(**F64)
    a = g.tensor([2, 4, 6], random_strides(random_, [2, 4, 6]))
    dims = [2, 4, 6]
    for _ in range(random_.randrange(3)):
        a, dims = random_view(g, random_, a, dims)
    if len(dims) < 3:
        a, dims = reshaped(g, a, [2, 4, 6]), [2, 4, 6]
    columns = random_.choice([2, 6])
    y = g.matmul(a, g.tensor([*[1] * (len(dims) - 2), dims[-1], columns]))
    dims = [*dims[:-1], columns]
    for _ in range(random_.randrange(1, 6)):
        kind = random_.choice(["view", "view", "input", "number", "square", "sum", "output"])
        if kind == "view":
            y, dims = random_view(g, random_, y, dims)
        elif kind == "input":
            own = [random_.choice([n, n, 1]) for n in dims]
            y = g.add(y, g.tensor(own, random_strides(random_, own)))
        elif kind == "number":
            y = g.mul(y, g.tensor_scalar(2.0))
        elif kind == "square":
            y = g.mul(y, g.relu(y))
        elif kind == "output":
            out(y, dims, random_strides(random_, dims))
            y = g.relu(y)
        else:
            own = [random_.choice([n, 1]) for n in dims]
            total = g.reduction(y, mode=dnnc.reduction_mode.ADD)
            y = g.sub(y, total.set_dim(own).set_stride(random_strides(random_, own)))
    out(y, dims, random_strides(random_, dims))
    return g


def test_random_views():
    fewer = 0
    for seed in range(40):
        fusion = assert_same(random_graph(seed))
        fewer += len(views(fusion)) < len(views(fusion.in_graph))
    assert fewer > 10


# ---- what is stored in parts


def random_parts(seed):
    """Views of a product's columns as outputs, in any places of memory."""
    random_ = random.Random(seed)
    g = dnnc.pygraph(**F64)
    batch, rows, columns = random_.choice([(1, 6, 16), (2, 4, 24), (1, 1, 48)])
    y = g.relu(product(g, rows, columns, batch=batch))
    for _ in range(random_.randrange(1, 4)):
        part, dims = y, [batch, rows, columns]
        for _ in range(random_.randrange(1, 5)):
            axis, size = random_.randrange(len(dims)), random_.choice([1, 2, 8, 16])
            if random_.random() < 0.5 and dims[axis] >= size:
                first = random_.randrange(0, dims[axis] - size + 1, size)
                cut = [slice(0, n) for n in dims]
                cut[axis] = slice(first, first + size)
                part, dims = g.slice(part, cut), [*dims[:axis], size, *dims[axis + 1 :]]
            else:
                part, dims = random_view(g, random_, part, dims)
        out(part, dims, random_strides(random_, dims))
    return g


def test_random_parts():
    parted = 0
    for seed in range(50):
        fusion = assert_same(random_parts(seed))
        parted += bool(ends_of(fusion).of_outputs)
    assert parted > 5


def test_parts_with_heads_are_a_slice_and_a_reshape_each():
    g = dnnc.pygraph(**F64)
    y = product(g, 10, 48)
    for i in range(3):  # queries, keys, values: [B * S, H * D] as [B, H, S, D]
        part = g.slice(y, [slice(0, 1), slice(0, 10), slice(16 * i, 16 * i + 16)])
        out(
            g.transpose(reshaped(g, part, [2, 5, 2, 8]), [0, 2, 1, 3]), [2, 2, 5, 8], [80, 40, 8, 1]
        )
    fusion = assert_same(g)
    assert [op.op_name for op in fusion.ops] == ["matmul", *["slice", "reshape"] * 3]
    ends = ends_of(fusion)
    assert [op.op_name for op in ends.fusion.ops] == ["matmul"]
    (parts,) = ends.of_outputs
    assert [(part.start, part.stop) for part in parts] == [(0, 16), (16, 32), (32, 0)]
    assert {part.axes for part in parts} == {((0,), (1, 2), (3, 4))}
    assert (ends.grains[0].rows, ends.grains[0].columns) == (5, 8)
