"""Small graphs whose operands repeat: of fewer dims, of no dims, of stride 0, broadcast.

POINTWISE, MATMUL, REDUCTION, EXAMPLES: as the entries of `examples.EXAMPLES`.  RANK_0: with outputs
that have no dims.
"""

import dnnc
from dnnc import dtypes

M = dnnc.Dim("M", min=1, max=512)
B = dnnc.Dim("B", min=1, max=64, multiple_of=2)


def of(build, io=dtypes.f32):
    """A builder of a graph, by what gives its outputs."""

    def made():
        g = dnnc.pygraph(
            "repeated",
            io_data_type=io,
            intermediate_data_type=dtypes.f32,
            compute_data_type=dtypes.f32,
            target="sm_90",
        )
        outputs = build(g)
        for tensor in outputs if isinstance(outputs, list) else [outputs]:
            tensor.set_output(True)
        return g

    return made


def chain_of_fewer_dims(g):
    """A chain of operations on fewer dims, with an index along one of them, before a broadcast."""
    bias = g.tensor([6])
    index = g.gen_index(bias, 0).set_data_type(dtypes.i32)
    return g.add(g.tensor([2, M, 6]), g.mul(g.exp(bias), index))


def read_in_two_ranks(g):
    """One form serves both; the result of fewer dims is in memory."""
    x = g.relu(g.tensor([6]))
    return [g.mul(g.tensor([M, 6]), x), g.exp(x)]


def scalar_from_a_reshape(g):
    total = g.reduction(g.tensor([M, 4]), "add").set_dim([1, 1]).set_stride([1, 1])
    one = g.reshape(total, reshape_mode="LOGICAL").set_dim([])
    return [g.mul(g.tensor([3, 4]), one), one]


def both_repeat(g):
    """Neither operand alone has all dims in memory."""
    return g.add(g.tensor([B, M], [1, 0]), g.tensor([B, M], [0, 1]))


def bounded_product(g):
    """M * B is as large as a test's sizes make it."""
    g.bound(M * B, max=20)
    return g.add(g.tensor([B, M, 3]), g.tensor([3]))


def select_by_constant(g):
    mask = g.cmp_gt(g.gen_index(g.constant(0, [M, 6]), 1), g.constant(2, [6]))
    return g.binary_select(g.tensor([M, 6]), g.constant(-1.5, [M, 6]), mask)


POINTWISE = [
    of(lambda g: g.relu(g.add(g.tensor([2, M, 6]), g.tensor([6])))),
    of(lambda g: g.sub(g.tensor([M, 1]), g.tensor([B, 1, 6])), dtypes.f16),
    of(lambda g: g.mul(g.tensor([2, 3]), g.tensor([]))),
    of(lambda g: g.add(g.tensor([2, M, 6]), g.tensor([2, M, 6], [0, 6, 1]))),
    of(lambda g: g.mul(g.tensor([4, M], [1, 0]), g.tensor([4, 1]))),
    of(lambda g: g.identity(g.tensor([6])).set_dim([M, 6]).set_stride([6, 1])),
    of(chain_of_fewer_dims),
    of(read_in_two_ranks),
    of(both_repeat),
    of(bounded_product),
]

RANK_0 = [
    of(lambda g: g.exp(g.add(g.tensor([]), g.tensor([])))),
    of(scalar_from_a_reshape),
    of(lambda g: g.reduction(g.tensor([]), "max").set_dim([])),
    of(lambda g: g.constant(3, []), dtypes.i32),
    of(lambda g: g.binary_select(g.tensor([]), g.constant(2.5, []), g.constant(True, []))),
]

MATMUL = [
    of(lambda g: g.add(g.matmul(g.tensor([B, M, 4]), g.tensor([4, 5])), g.tensor([5]))),
    of(lambda g: g.matmul(g.tensor([6, M, 4]), g.tensor([B, 2, 4, 5]))),
    of(lambda g: g.matmul(g.tensor([B, M, 4], [0, 4, 1]), g.tensor([B, 4, 5]))),
    of(lambda g: g.matmul(g.tensor([B, 3, 4], [0, 4, 1]), g.tensor([B, 4, 5], [0, 1, 0]))),
    of(
        lambda g: g.matmul(
            g.tensor([B, 2, 3, 4], [0, 12, 4, 1]), g.tensor([B, 2, 4, 5], [20, 0, 5, 1])
        )
    ),
    of(lambda g: g.matmul(g.tensor([2, 3, 4]), g.broadcast(g.tensor([4, 5]), [2, 4, 5]))),
]

REDUCTION = [
    of(lambda g: g.reduction(g.tensor([4, M], [1, 0]), "add").set_dim([4, 1])),
]

EXAMPLES = [
    of(lambda g: g.broadcast(g.tensor([4, 1], name="x"), [2, 4, M], name="wide")),
    of(lambda g: g.broadcast(g.tensor([]), [3, 4])),
    of(lambda g: g.constant(2.5, [M, 3])),
    of(lambda g: g.mul(g.tensor([M, 6]), g.constant(2, [6]))),
    of(lambda g: g.add(g.tensor([M, 6]), g.broadcast(g.exp(g.tensor([6])), [M, 6]))),
    of(lambda g: g.exp(g.broadcast(g.transpose(g.tensor([4, 1]), [1, 0]), [M, 4]))),
    of(lambda g: g.transpose(g.broadcast(g.tensor([M, 1]), [M, 4]), [1, 0])),
    of(select_by_constant),
]
