"""Graphs as they are written down: tensors, nodes, names, orders of arguments."""

import numpy as np
import pytest

import dnnc.cudnn as cudnn
from tests.cudnn.graphs import D, channel, image, new, output

PHASE = cudnn.norm_forward_phase

# A call on an image and channels -> the names of its results, where the node is called n.
NAMED = {
    "relu": (lambda g, x, c: g.relu(x, name="n"), "OUT_0"),
    "genstats": (lambda g, x, c: g.genstats(x, name="n"), "SUM SQ_SUM"),
    "layernorm": (
        lambda g, x, c: g.layernorm(x, c, c, c, PHASE.TRAINING, name="n"), "Y MEAN INV_VARIANCE",
    ),
    "inference": (lambda g, x, c: g.layernorm(PHASE.INFERENCE, x, c, c, c, name="n"), "Y - -"),
    "rmsnorm": (
        lambda g, x, c: g.rmsnorm(
            norm_forward_phase=PHASE.TRAINING, input=x, scale=c, epsilon=c, name="n"
        ),
        "Y INV_VARIANCE",
    ),
    "rmsnorm_backward": (
        lambda g, x, c: g.rmsnorm_backward(x, x, c, c, has_dbias=False, name="n"), "DX Dscale -",
    ),
    "batchnorm": (
        lambda g, x, c: g.batchnorm(x, c, c, None, None, c, c, name="n"), "Y MEAN INV_VARIANCE - -",
    ),
    "sdpa": (lambda g, x, c: g.sdpa(x, x, x, is_inference=False, name="n"), "O Stats"),
    "no_stats": (lambda g, x, c: g.sdpa(x, x, x, generate_stats=False, name="n"), "O -"),
    "sdpa_fp8": (
        lambda g, x, c: g.sdpa_fp8(x, x, x, c, c, c, c, c, c, is_inference=True, name="n"),
        "O - Amax_S Amax_O",
    ),
    "sdpa_fp8_backward": (
        lambda g, x, c: g.sdpa_fp8_backward(*[x] * 5, *[c] * 13, name="n"),
        "dQ dK dV amax_dQ amax_dK amax_dV amax_dP",
    ),
    "sdpa_backward": (lambda g, x, c: g.sdpa_backward(x, x, x, x, x, c, name="n"), "dQ dK dV"),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
def test_results_are_named_as_cudnn_names_them(case):
    g = new()
    call, names = NAMED[case]
    made = call(g, image(g), channel(g))
    found = [t and t.get_name() for t in (made if isinstance(made, list) else [made])]
    assert found == [None if name == "-" else f"n::{name}" for name in names.split()]


def test_nodes_without_a_name_are_counted_by_method():
    g = new()
    x = image(g)
    assert [g.relu(x).name, g.relu(x).name, g.exp(x).name] == [
        "relu.0::OUT_0", "relu.1::OUT_0", "exp.0::OUT_0",
    ]  # fmt: skip


# Calls that mean one thing: as 1.32 orders arguments, as 1.23 did, and by keywords.
SAME = {
    "relu": (
        lambda g, x: g.relu(x, 0.5, None, None, "n", D.FLOAT),
        lambda g, x: g.relu(x, 0.5, None, None, D.FLOAT, "n"),
    ),
    "swish_backward": (
        lambda g, x: g.swish_backward(x, x, 2.0, "n", D.FLOAT),
        lambda g, x: g.swish_backward(x, x, D.FLOAT, 2.0, "n"),
    ),
    "reduction": (
        lambda g, x: g.reduction(x, mode=cudnn.reduction_mode.ADD, name="n"),
        lambda g, x: g.reduction(x, cudnn.reduction_mode.ADD, None, "n"),
    ),
    "reshape": (
        lambda g, x: g.reshape(x, cudnn.reshape_mode.LOGICAL, name="n"),
        lambda g, x: g.reshape(x, "n", cudnn.reshape_mode.LOGICAL),
    ),
    "moe_grouped_matmul": (
        lambda g, x: g.moe_grouped_matmul(
            x, x, x, None, None, cudnn.moe_grouped_matmul_mode.NONE, 2, name="n",
            compute_data_type=D.FLOAT,
        ),
        lambda g, x: g.moe_grouped_matmul(
            x, x, x, None, None, cudnn.moe_grouped_matmul_mode.NONE, D.FLOAT, 2, "n"
        ),
    ),
    "layernorm": (
        lambda g, x: g.layernorm(x, x, x, x, PHASE.INFERENCE, name="n"),
        lambda g, x: g.layernorm(PHASE.INFERENCE, x, x, x, x, name="n"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME)
def test_older_orders_of_arguments_are_understood(case):
    nodes = []
    for call in SAME[case]:
        g = new(compute_data_type=None)
        call(g, image(g, name="x"))
        nodes.append(g.inspect()["nodes"][0])
    assert nodes[0] == nodes[1]
    assert nodes[0]["name"] == "n"


@pytest.mark.parametrize(
    "call",
    [
        lambda g, x: g.relu(x, slope=1.0),
        lambda g, x: g.add(x),
        lambda g, x: g.add(x, x, x, x, x),
        lambda g, x: g.layernorm(x, bogus=1),
    ],
)
def test_calls_that_no_method_takes_are_type_errors(call):
    g = new()
    with pytest.raises(TypeError):
        call(g, image(g))
    assert g.nodes == []


def test_methods_refuse_no_graph():
    g = new()
    x = g.tensor([2, 3, 5])
    g.matmul(x, x)
    g.sdpa_backward(x, x, x, x, x, x)
    g.block_scale_quantize(x, block_size=32)
    g.gdn(x, x, x, x, x, x, output_final_state=True)
    assert [node.node_type for node in g.nodes] == [
        cudnn.NodeType.MATMUL, cudnn.NodeType.SDPA_BWD, cudnn.NodeType.BLOCK_SCALE_QUANTIZE,
        cudnn.NodeType.GDN,
    ]  # fmt: skip


def test_uids_of_callers_win_over_those_that_were_assigned():
    g = new()
    first, second = image(g), image(g, uid=7)
    y = g.relu(first).set_uid(first.uid)
    assert y.uid != first.uid == g.find_tensor(first.uid).uid
    assert g.find_tensor(y.uid) is y
    with pytest.raises(ValueError, match="uid 7"):
        y.set_uid(7)
    with pytest.raises(ValueError, match="uid 7"):
        image(g, uid=7)
    assert g.query_tensor_attributes_of_uid(7) is second
    with pytest.raises(ValueError, match="no tensor has uid 70"):
        g.query_tensor_attributes_of_uid(70)


def test_tensors_are_found_by_names_that_one_has():
    g = new()
    x, y = image(g, name="x"), image(g, name="x")
    z = output(g.add(x, y, name="sum")).set_name("z")
    assert (g.find_tensor("z"), g.find_tensor("w")) == (z, None)
    with pytest.raises(ValueError, match="2 tensors"):
        g.find_tensor("x")
    assert g.tensors == {"z": z}
    assert (g.get_inputs(), g.get_outputs()) == ([x, y], [z])
    assert g.get_node("sum").inputs == {"IN_0": x, "IN_1": y}


def test_arrays_stand_for_tensors_and_numbers():
    g = new()
    host = np.full((1, 1, 1, 1), 0.5, np.float32)
    made = g.tensor_like(host)
    assert made.get_is_pass_by_value()
    assert (made.pass_by_value, made.get_data_type()) == (0.5, D.FLOAT)
    g.mul(image(g), host)
    assert g.nodes[0].inputs["IN_1"].pass_by_value == 0.5
    scalar = g.tensor_scalar(3, cudnn.scalar_type.COMPILE_TIME_CONST)
    assert scalar.get_has_compile_time_constant()
    assert (scalar.get_dim(), scalar.get_data_type()) == ([1, 1, 1, 1], D.INT32)
    assert not g.tensor_scalar(3, cudnn.scalar_type.RUNTIME_PARAM).get_has_compile_time_constant()
    with pytest.raises(TypeError):
        g.tensor_like(object())


def test_a_tensor_like_another_has_its_form_and_not_its_uid():
    g = new()
    x = image(g, uid=3, data_type=D.INT8)
    like = g.tensor_like(x, name="like")
    assert (like.get_dim(), like.get_stride()) == (x.get_dim(), x.get_stride())
    assert (like.get_data_type(), like.name) == (D.INT8, "like")
    assert like.uid != 3


def test_dims_can_be_read_before_the_graph_is_whole():
    g = new()
    y = g.relu(image(g))
    assert y.get_dim() == [2, 8, 4, 6]
    y.set_dim([2, 8, 4, 7])
    assert y.get_dim() == [2, 8, 4, 7]
    assert g.reshape(y).get_dim() == []  # nothing tells them


def test_a_planned_graph_is_frozen():
    g = new()
    x = image(g)
    y = output(g.relu(x))
    g.create_execution_plans([cudnn.heur_mode.A])
    for change in (lambda: g.relu(x), lambda: y.set_dim([1]), lambda: y.set_name("y"),
                   lambda: g.create_execution_plans([cudnn.heur_mode.A])):  # fmt: skip
        with pytest.raises(RuntimeError, match="the graph has plans"):
            change()


def test_a_cache_of_graphs_forgets_the_oldest():
    made = []

    @cudnn.graph_cache(key_fn=lambda n: n, maxsize=2)
    def build(n):
        made.append(n)
        return n

    assert [build(n) for n in (1, 2, 1, 3, 2, 1)] == [1, 2, 1, 3, 2, 1]
    assert made == [1, 2, 3, 1]
