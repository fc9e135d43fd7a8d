"""Operands as engines take them: of equal ranks, without strides of 0, broadcasts folded."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes, mlir
from dnnc.dialect import dnn
from dnnc.dialect.json_form import from_json, to_json
from dnnc.dialect.reference import reference, single_steps
from dnnc.dialect.tensor import text
from tests.random_broadcasts import random_graph
from tests.support import linalg_cpu
from tests.support.checked import check
from tests.support.compare import assert_close

from .broadcast_examples import EXAMPLES, MATMUL, POINTWISE, RANK_0, REDUCTION, of
from .test_ops import random_inputs

SIZES = {"M": 5, "B": 4}
M = dnnc.Dim("M", max=512)


def steps_of(build):
    """mode or name of each operation that engines see -> dims of its operands, then its result."""
    graph = of(build)().graph.finalize()
    return [
        " ".join([op.title, *(text(t.shape) for t in (*op.operands, *op.results))])
        for op in graph.live_ops
    ]


@pytest.mark.parametrize(
    ("build", "steps"),
    [
        (lambda g: g.add(g.tensor([2, M, 6]), g.tensor([6])),
         ["pointwise:add [2, M, 6] [1, 1, 6] [2, M, 6]"]),
        (lambda g: g.mul(g.tensor([2, 6]), g.tensor([])), ["pointwise:mul [2, 6] [1, 1] [2, 6]"]),
        (lambda g: g.exp(g.tensor([])), ["pointwise:exp [1] [1]"]),
        (lambda g: g.add(g.tensor([2, M]), g.tensor([2, M], [1, 0])),
         ["pointwise:add [2, M] [2, 1] [2, M]"]),
        (lambda g: g.exp(g.tensor([2, M], [1, 0])),
         ["pointwise:identity [2, 1] [2, M]", "pointwise:exp [2, M] [2, M]"]),
        (lambda g: g.add(g.tensor([2, M]), g.broadcast(g.exp(g.tensor([M])), [2, M])),
         ["pointwise:exp [1, M] [1, M]", "pointwise:add [2, M] [1, M] [2, M]"]),
        (lambda g: g.add(g.tensor([2, M]), g.exp(g.tensor([M]))),
         ["pointwise:exp [1, M] [1, M]", "pointwise:add [2, M] [1, M] [2, M]"]),
        (lambda g: g.mul(g.tensor([2, M]), g.constant(3, [2, M])),
         ["pointwise:mul [2, M] [1, 1] [2, M]"]),
        (lambda g: g.broadcast(g.broadcast(g.tensor([1, 3]), [2, 3]), [M, 2, 3]),
         ["pointwise:identity [1, 1, 3] [M, 2, 3]"]),
        (lambda g: g.gen_index(g.broadcast(g.tensor([3]), [2, 3]), 0).set_data_type(dtypes.i32),
         ["pointwise:identity [1, 3] [2, 3]", "pointwise:gen_index [2, 3] [2, 3]"]),
        (lambda g: g.matmul(g.tensor([2, M, 4]), g.tensor([4, 5])),
         ["matmul [2, M, 4] [1, 4, 5] [2, M, 5]"]),
        (lambda g: g.matmul(g.tensor([2, M, 4]), g.tensor([2, 4, 5], [0, 5, 1])),
         ["matmul [2, M, 4] [1, 4, 5] [2, M, 5]"]),
        (lambda g: g.matmul(g.tensor([2, 3, 4]), g.transpose(g.tensor([2, 5, 4], [0, 4, 1]),
                                                             [0, 2, 1])),
         ["transpose [1, 5, 4] [1, 4, 5]", "matmul [2, 3, 4] [1, 4, 5] [2, 3, 5]"]),
        (lambda g: g.matmul(g.tensor([2, 7, 3, 4]), g.reshape(
            g.tensor([2, 4, 5], [0, 5, 1]), reshape_mode="LOGICAL").set_dim([2, 1, 4, 5])),
         ["reshape [1, 4, 5] [1, 1, 4, 5]", "matmul [2, 7, 3, 4] [1, 1, 4, 5] [2, 7, 3, 5]"]),
        (lambda g: g.matmul(g.tensor([8, 3, 4]), g.reshape(
            g.tensor([2, 4, 4, 5], [0, 20, 5, 1]), reshape_mode="LOGICAL").set_dim([8, 4, 5])),
         ["pointwise:identity [1, 4, 4, 5] [2, 4, 4, 5]", "reshape [2, 4, 4, 5] [8, 4, 5]",
          "matmul [8, 3, 4] [8, 4, 5] [8, 3, 5]"]),
        (lambda g: g.matmul(g.tensor([2, M, 4], [4, 0, 1]), g.tensor([2, 4, 5])),
         ["pointwise:identity [2, 1, 4] [2, M, 4]", "matmul [2, M, 4] [2, 4, 5] [2, M, 5]"]),
        (lambda g: g.reduction(g.tensor([2, M], [1, 0]), "add").set_dim([2, 1]),
         ["pointwise:identity [2, 1] [2, M]", "reduction:add [2, M] [2, 1]"]),
    ],
)  # fmt: skip
def test_what_engines_see(build, steps):
    assert steps_of(build) == steps


def test_a_form_has_the_buffer_of_its_tensor():
    g = of(lambda g: g.add(g.tensor([2, 6], uid=7), g.tensor([6], uid=9, name="b")))()
    graph = g.graph.finalize()
    b = graph.tensor("b")
    assert (graph.form_of(b).uid, graph.form_of(b).name) == (9, "b")
    assert [n.constant for n in (*graph.form_of(b).shape, *graph.form_of(b).layout)] == [1, 6, 6, 1]
    assert [n.constant for n in b.shape] == [6]
    assert graph.form_of(graph.tensor(7)) is graph.tensor(7)


def test_heads_of_stride_0_are_one_head():
    """An expanded K and V leave attention what it is, with one head of keys."""
    g = dnnc.pygraph("mqa", io_data_type="f16")
    q = g.tensor([2, 4, 16, 16])
    k, v = (g.tensor([2, 4, 16, 16], [256, 0, 16, 1]) for _ in range(2))
    g.sdpa(q, k, v, generate_stats=False)[0].set_output()
    products = [op for op in g.graph.finalize().live_ops if op.op_name == "matmul"]
    assert [text(op.b.shape) for op in products] == ["[2, 1, 16, 16]"] * 2


def test_a_reshape_in_memory_moves_what_repeats():
    """Rows that repeat, with their elements far apart, are none of the reshaped matrix's."""
    g = dnnc.pygraph("moved", io_data_type="f32", intermediate_data_type="f32")
    rows = g.identity(g.tensor([1, 1, 4])).set_dim([3, 1, 4]).set_stride([1, 3, 3])
    moved = g.reshape(rows).set_dim([3, 4]).set_stride([4, 1])
    g.mul(moved, g.tensor([3, 4])).set_output()
    check(g)


@pytest.mark.parametrize(
    "build", [*POINTWISE, *MATMUL, *REDUCTION, *EXAMPLES], ids=lambda build: ""
)
def test_the_steps_compute_what_the_graph_does(build):
    graph = build().graph.finalize()
    inputs = random_inputs(graph, SIZES)
    found = {}
    for step in single_steps(graph, inputs, sizes=SIZES):
        found |= {tensor.uid: array for tensor, _, array in step.results}
    for uid, wanted in reference(graph, inputs, sizes=SIZES).items():
        np.testing.assert_allclose(found[uid], wanted, rtol=1e-6)


def is_plain(tensor):
    return tensor.rank > 0 and not tensor.repeated_axes


@pytest.mark.parametrize("seed", range(40))
def test_steps_of_random_graphs(seed):
    """They are plain, and compute what the graph does."""
    graph = random_graph(seed).graph.finalize()
    for op in graph.live_ops:
        assert all(map(is_plain, (*op.operands, *op.results)))
        if op.title not in ("pointwise:identity", "reshape"):
            assert len({t.rank for t in (*op.operands, *op.results)}) == 1
    inputs = random_inputs(graph, {})
    found = {}
    for step in single_steps(graph, inputs):
        found |= {tensor.uid: array for tensor, _, array in step.results}
    for uid, wanted in reference(graph, inputs).items():
        np.testing.assert_allclose(found[uid].reshape(wanted.shape), wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(9))
def test_random_graphs(seed):
    g = random_graph(seed)
    check(g, inputs=random_inputs(g.graph.finalize(), {}), slack=16.0)


# ---- rank 0


@pytest.mark.parametrize("build", RANK_0, ids=lambda build: "")
def test_rank_0_through_every_form(build):
    graph = build().graph.finalize()
    assert from_json(to_json(graph)) == graph
    with dnn.context():
        made = str(dnn.to_mlir(graph))
        assert dnn.from_mlir(mlir.parse(made)) == graph
    fixed = linalg_cpu.with_sizes(graph, SIZES)
    inputs = random_inputs(fixed, {})
    actual = linalg_cpu.run(fixed, inputs)
    for uid, wanted in reference(fixed, inputs).items():
        assert actual[uid].shape == wanted.shape
        assert_close(actual[uid], wanted, fixed.tensor(uid).type, slack=4.0)
    check(build(), SIZES, inputs=random_inputs(graph, SIZES), slack=8.0)


@pytest.mark.parametrize("name", ["epsilon", "attn_scale"])
def test_scalars_of_operations_may_have_no_dims(name):
    g = dnnc.pygraph("scalars", io_data_type="f16", intermediate_data_type="f32")
    scalar = g.tensor([], data_type="f32", is_pass_by_value=True, name=name)
    if name == "epsilon":
        x, scale = g.tensor([4, 64]), g.tensor([1, 64])
        y = g.rmsnorm("INFERENCE", x, scale, epsilon=scalar)[0]
    else:
        q, k, v = (g.tensor([1, 2, 16, 16]) for _ in range(3))
        y = g.sdpa(q, k, v, attn_scale=scalar, generate_stats=False)[0]
    y.set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    check(g, inputs={**inputs, graph.tensor(name).uid: np.float32(0.5)}, slack=4.0)
