"""Composite operations are run as what they stand for."""

import numpy as np
import pytest

import dnnc
from dnnc.dialect import dnn
from dnnc.dialect.op import Op
from dnnc.dialect.reference import reference
from tests.support import linalg_cpu

from .examples import ALL_EXAMPLES
from .norm_examples import batchnorm, norm, norm_backward


def layernorm(phase="TRAINING", name="ln"):
    g = dnnc.pygraph("norm", io_data_type="f16", intermediate_data_type="f32")
    x, scale, bias = g.tensor([6, 64]), g.tensor([1, 64]), g.tensor([1, 64])
    made = g.layernorm(phase, x, scale, bias, g.tensor_scalar(1e-5), name=name)
    for tensor in made:
        if tensor is not None:
            tensor.set_output().set_data_type("f16")
    return g.graph.finalize()


def kinds(ops):
    return [op.title for op in ops]


def test_engines_see_the_steps_and_the_graph_keeps_the_operation():
    graph = layernorm()
    assert kinds(graph.ops) == ["layernorm"]
    assert {op.role for op in graph.live_ops} == {"pointwise", "reduction"}
    assert {op.name for op in graph.live_ops} == {"ln"}
    for op in graph.live_ops:
        op.verify()


def test_the_same_graph_has_the_same_steps_and_uids():
    """A graph that comes back from its text has them too."""
    graph = layernorm()
    with dnn.context():
        again = dnn.from_mlir(dnn.to_mlir(graph))
    uids = [[t.uid for op in g.live_ops for t in op.results] for g in (graph, layernorm(), again)]
    assert uids[0] == uids[1] == uids[2]
    assert len(set(uids[0])) == len(uids[0])
    assert graph.live_ops[0] is graph.live_ops[0]


def test_steps_whose_results_nobody_wants_are_not_run():
    assert len(layernorm("INFERENCE").live_ops) == len(layernorm().live_ops) - 2


def test_results_are_stored_in_their_own_type_and_used_in_the_compute_type():
    graph = layernorm()
    stored = [op for op in graph.live_ops if op.results[0].type.name == "f16"]
    assert kinds(stored) == ["pointwise:identity", "pointwise:identity", "pointwise:add"]
    used = {t for op in graph.live_ops for t in op.operands}
    assert used.isdisjoint(graph.outputs)


REPLACED_AT_TIMES = ("matmul", "reduction", "resample_backward")


@pytest.mark.parametrize("build", [b for *_, b in ALL_EXAMPLES])
def test_operations_that_are_always_replaced_say_so(build):
    for op in build().graph.finalize().ops:
        if op.is_composite:
            assert op.expand() is not None
        elif type(op).expand is not Op.expand:
            assert op.role == "view" or type(op).op_name in REPLACED_AT_TIMES


COMPOSITE = {
    f"{op}-{i}": build
    for op, i, build in ALL_EXAMPLES
    if build().graph.finalize().ops[-1].expand() is not None
}


@pytest.mark.parametrize("build", COMPOSITE.values(), ids=COMPOSITE)
def test_steps_are_valid_and_make_what_was_promised(build):
    graph = build().graph.finalize()
    for step in graph.live_ops:
        assert step.expand() is None
        step.verify()
    made = {t for step in graph.live_ops for t in step.results}
    assert made >= set(graph.outputs)


def reductions(build):
    return [op.mode for op in build().graph.finalize().live_ops if op.op_name == "reduction"]


def test_gradients_of_channels_take_two_sums():
    """The averages of dX are what dscale and dbias are made of."""
    case = norm_backward("batchnorm_backward", [4, 6, 3], [1, 6, 1], [1, 6, 1])
    assert reductions(case) == ["add", "avg"]
    case = norm_backward("instancenorm_backward", [4, 6, 3], [1, 6, 1], [4, 6, 1])
    assert sorted(reductions(case)) == ["add"] * 3 + ["avg"]  # two sums are over 4 numbers


def test_elements_are_counted_where_a_size_is_a_symbol():
    n = dnnc.Dim("N", max=64)
    assert reductions(batchnorm([8, 6, 3])) == ["avg", "avg"]
    assert sorted(reductions(batchnorm([n, 6, 3]))) == ["avg", "avg", "max"]
    assert sorted(reductions(batchnorm([n, 6, n]))) == ["avg", "avg", "max", "max"]


@pytest.mark.parametrize(
    "build",
    [
        norm("layernorm", [4, 64], [1, 64]),
        norm("adalayernorm", [4, 2, 64], [4, 1, 64]),
        norm("instancenorm", [4, 2, 64], [1, 2, 1]),
        batchnorm([4, 2, 64]),
    ],
)
def test_variances_far_from_zero(build):
    """The mean of squares less the squared mean would leave no digit of them in FLOAT."""
    graph = build().graph.finalize()
    rng = np.random.default_rng(0)
    inputs = {t.uid: rng.uniform(0, 1, [int(str(n)) for n in t.shape]) for t in graph.inputs}
    inputs[graph.ops[0].x.uid] += 4096
    inputs[graph.ops[0].epsilon.uid] = np.full([1] * graph.ops[0].epsilon.rank, 1e-5)
    inputs = {uid: np.asarray(array, np.float32) for uid, array in inputs.items()}
    wanted, found = reference(graph, inputs), linalg_cpu.run(graph, inputs)
    uid = graph.ops[0].inv_variance.uid
    np.testing.assert_allclose(found[uid], wanted[uid], rtol=2e-3)


def test_uids_of_steps_are_free_ones():
    g = dnnc.pygraph("norm", io_data_type="f16")
    x, scale = g.tensor([8, 64]).set_uid((1 << 63) - 1), g.tensor([1, 64]).set_uid(3)
    g.layernorm("INFERENCE", x, scale, None, g.tensor_scalar(1e-5))[0].set_output()
    graph = g.graph.finalize()
    uids = {t.uid for op in graph.live_ops for t in (*op.operands, *op.results)}
    assert max(uids - {x.uid}) < 20
    with dnn.context():
        dnn.to_mlir(graph)
