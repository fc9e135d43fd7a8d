"""Composite operations are run as what they stand for."""

import dnnc
from dnnc.dialect import dnn


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
    """Also when it comes back from its text."""
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
