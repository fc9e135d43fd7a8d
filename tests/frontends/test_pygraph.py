"""pygraph takes its arguments as they are: nothing is dropped, cut or ignored."""

import inspect
import json
import re

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.errors import DnncError
from dnnc.frontends.handle import destroy_handle
from tests.runtime.fake_driver import FakeDriver

M = dnnc.Dim("M", max=64)


def new_graph(io="FLOAT", **options):
    return dnnc.pygraph("front", io_data_type=io, intermediate_data_type="FLOAT", **options)


@pytest.fixture
def fake(monkeypatch):
    made = FakeDriver()
    made.install(monkeypatch)
    return made


def sums():
    """x + z of [M, 8], with its plan, and the pack of three addresses."""
    g = new_graph(target="sm_90")
    x, z = g.tensor([M, 8], name="x"), g.tensor([M, 8], name="z")
    y = g.add(x, z).set_output()
    g.build()
    return g, {x: 0x10000, z: 0x20000, y: 0x30000}, x


@pytest.mark.parametrize("axis", [slice(0, -1), slice(-3, None), slice(None, -2)], ids=str)
def test_a_slice_from_the_end_of_a_symbol_is_refused(axis):
    g = new_graph()
    with pytest.raises(dnnc.DnncError, match="known at run time only"):
        g.slice(g.tensor([M, 8]), [axis])


@pytest.mark.parametrize("dims", [[2.7, 3], ["a", 3], [None, 3]], ids=str)
def test_sizes_are_whole(dims):
    with pytest.raises(dnnc.DnncError, match="an integer or a dnnc"):
        new_graph().tensor(dims)


def test_leaky_relu_computes_in_the_type_it_is_given():
    g = new_graph("DOUBLE")
    x = g.tensor([2, 3], name="x")
    y = g.leaky_relu(x, negative_slope=0.3, compute_data_type="DOUBLE")
    dx = g.leaky_relu_backward(x, y, negative_slope=0.3, compute_data_type="DOUBLE")
    dx.set_output()
    assert [op.compute_type for op in g.graph.ops] == [dtypes.f64, dtypes.f64]
    values = np.array([[-1.0, 2.0, -0.1], [0.5, -3.0, 1e-9]])
    (found,) = dnnc.reference(g, {"x": values}, exact_outputs=True).values()
    y_exact = np.where(values > 0, values, 0.3 * values)
    np.testing.assert_array_equal(found, np.where(y_exact > 0, values, 0.3 * values))


def test_fast_products_as_the_default_leave_other_operations_in_float():
    g = new_graph("FP8_E4M3", compute_data_type=dnnc.data_type.FAST_FLOAT_FOR_FP8)
    c = g.matmul(g.tensor([2, 3]), g.tensor([3, 4], data_type="FP8_E5M2"))
    y = g.leaky_relu(g.add(c, 1.0), negative_slope=0.5)
    g.reduction(y, "amax").set_dim([1, 1]).set_output()
    g.conv_fprop(g.tensor([1, 2, 5]), g.tensor([2, 2, 3])).set_output()
    scale = g.tensor([1, 3])
    epsilon = g.tensor_scalar(1e-5)
    g.layernorm("TRAINING", g.tensor([2, 3]), scale, scale, epsilon)[0].set_output()
    g.validate()
    types = {op.op_name: op.compute_type for op in g.graph.ops}
    fast = dnnc.data_type.FAST_FLOAT_FOR_FP8
    assert (types.pop("matmul"), types.pop("conv_fprop")) == (fast, fast)
    assert set(types) == {"pointwise", "reduction", "layernorm"}
    assert set(types.values()) == {dtypes.f32}


def test_fast_products_can_be_asked_of_one_matmul():
    g = new_graph("FP8_E5M2")
    a, b = g.tensor([3, 3]), g.tensor([3, 3])
    g.matmul(a, b).set_output()
    g.matmul(a, b, compute_data_type="FAST_FLOAT_FOR_FP8").set_output()
    g.validate()
    assert [op.compute_type.cudnn for op in g.graph.ops] == ["FLOAT", "FAST_FLOAT_FOR_FP8"]


@pytest.mark.parametrize("method", ["exp", "layernorm"])
def test_fast_products_asked_of_another_operation_are_refused(method):
    g = new_graph()
    fast = dnnc.data_type.FAST_FLOAT_FOR_FP8
    x = g.tensor([2, 4])
    if method == "exp":
        g.exp(x, compute_data_type=fast).set_output()
    else:
        scale = g.tensor([1, 4])
        results = g.layernorm("TRAINING", x, scale, scale, g.tensor_scalar(1e-5), fast)
        for tensor in results:
            tensor.set_output()
    with pytest.raises(dnnc.DnncError, match=rf"{method}.*compute type FAST_FLOAT_FOR_FP8"):
        g.validate()


@pytest.mark.parametrize("of", [dnnc.data_type.FAST_FLOAT_FOR_FP8, "FAST_FLOAT_FOR_FP8"], ids=str)
def test_a_tensor_of_a_compute_type_is_refused(of):
    g = new_graph()
    g.exp(g.tensor([4], data_type=of)).set_output()
    with pytest.raises(dnnc.DnncError, match="a compute type only"):
        g.validate()


def test_large_integers_stay_whole():
    g = new_graph("INT32", compute_data_type="INT32")
    x = g.tensor([3], name="x")
    y = g.add(x, (1 << 24) + 1, compute_data_type="INT32").set_output()
    (found,) = dnnc.reference(g, {"x": np.zeros(3, np.int32)}).values()
    assert y.dtype == dtypes.i32
    assert found.tolist() == [(1 << 24) + 1] * 3


@pytest.mark.parametrize(
    "override",
    [
        {"override_strides": [[1, 4]]},
        {"override_shapes": [[4, 9]]},
        {"override_shapes": [[4]]},
        {"override_shapes": [[4, 8], [4, 8]]},
        {"override_shapes": [[4, 8]], "override_strides": [[9, 1]]},
    ],
    ids=str,
)
def test_overrides_that_a_plan_can_not_follow_are_refused(fake, override):
    g, pack, x = sums()
    with pytest.raises(dnnc.DnncError, match="override"):
        g.execute(pack, override_uids=[x.uid], **override)
    assert not fake.launches


def test_overrides_give_sizes(fake):
    g, pack, x = sums()
    g.execute(pack, override_uids=[x.uid], override_shapes=[[4, 8]], override_strides=[[8, 1]])
    assert len(fake.launches) == 1


def test_a_destroyed_handle_launches_nothing(fake):
    g, pack, x = sums()
    g.handle = dnnc.create_handle()
    destroy_handle(g.handle)
    with pytest.raises(dnnc.DnncError, match="the handle was destroyed"):
        g.execute(pack, override_uids=[x.uid], override_shapes=[[4, 8]])
    assert not fake.launches


def test_a_graph_without_operations_shows_what_it_has():
    g = dnnc.pygraph("empty")
    assert json.loads(repr(g)) == {
        "dnnc_graph": 1, "name": "empty", "symbols": [], "tensors": [], "ops": [],
    }  # fmt: skip
    g.tensor([M, 8], name="x")
    (tensor,) = json.loads(repr(g))["tensors"]
    assert tensor == {"uid": 1, "dims": ["M", 8], "strides": [8, 1], "name": "x"}


def test_showing_a_graph_that_is_being_built_changes_nothing():
    g = new_graph()
    x = g.tensor([M, 8], name="x")
    y = g.relu(x, name="first")
    assert json.loads(repr(g))["ops"][0]["operands"] == {"x": 1}
    assert (x.uid, x.dtype, y.uid, y.dtype, g.graph.is_finalized) == (None, None, None, None, False)
    y.set_data_type("HALF")
    z = g.add(y, g.tensor([1, 8], name="b").set_uid(1)).set_output()
    shown = repr(g)
    assert (x.uid, z.uid, z.dtype, g.graph.is_finalized) == (None, None, None, False)
    g.build_operation_graph()
    assert repr(g) == shown  # what could be finalized is shown as it would be
    assert x.uid == 2


def test_a_graph_that_is_wrong_is_shown_too():
    g = new_graph()
    x, other = g.tensor([M, 8], uid=5), g.tensor([dnnc.Dim("M", max=32), 8], uid=5)
    g.add(x, other, name="sum")
    shown = json.loads(repr(g))
    assert [symbol["max"] for symbol in shown["symbols"]] == [32, 64]
    assert [tensor["uid"] for tensor in shown["tensors"]] == [5, 5, 1]
    assert "dtype" not in shown["tensors"][2]


def test_a_graph_that_was_compiled_may_grow_and_is_then_another():
    """Its key, by which plans are kept, is not that of the graph as it was."""
    g = new_graph(target="sm_80")
    y = g.relu(g.tensor([8, 8], name="x")).set_output().set_name("y")
    key = g.key()
    assert [t.name for t in dnnc.compile(g, "sm_80").tensors] == ["x", "y"]
    g.exp(y).set_output().set_name("z")
    assert g.key() != key
    assert [t.name for t in dnnc.compile(g, "sm_80").tensors] == ["x", "y", "z"]
    y.set_name("other")
    assert [t.name for t in dnnc.compile(g, "sm_80").tensors] == ["x", "other", "z"]


def test_knobs_are_of_the_engine_that_is_asked_for():
    g = new_graph("HALF")
    g.matmul(g.tensor([64, 64]), g.tensor([64, 64])).set_output()
    with pytest.raises(
        dnnc.DnncError, match=r"TILE_M=64 without an engine.* engine=, one of matmul_sm80$"
    ):
        dnnc.compile(g, "sm_80", knobs={"TILE_M": 64})
    with pytest.raises(dnnc.DnncError, match="accepted: none: no engine has them on sm_80"):
        dnnc.compile(g, "sm_80", knobs={"TILE_M": 64, "WARMTH": 3})
    plan = dnnc.compile(g, "sm_80", engine="matmul_sm80", knobs={"TILE_M": 64})
    assert plan.programs[0].fusions[0].knobs["TILE_M"] == 64


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda g, x: g.conv_fprop(x, x, padding=[1.5, 1]), "padding=1.5; accepted: an integer"),
        (lambda g, x: g.conv_fprop(x, x, padding=1.5), "padding=1.5; accepted: an integer"),
        (lambda g, x: g.conv_fprop(x, x, stride=[1 << 70, 1]), "an integer of 64 bits"),
        (lambda g, x: g.conv_fprop(x, x, dilation=["1", 1]), "dilation='1'; accepted: an integer"),
        (lambda g, x: g.softmax(x, axis=1.5), "axis=1.5"),
        (lambda g, x: g.slice(x, [slice(0.5, 3)]), "slice=0.5; accepted: an integer"),
        (lambda g, x: g.slice(x, 5), "slices 5; accepted: a list"),
        (lambda g, x: g.slice(x, [slice(None, None, 0)]), "of steps of at least 1"),
        (lambda g, x: g.concatenate([x, x], axis=1.0), "axis=1.0; accepted: an integer"),
        (lambda g, x: g.transpose(x, None), "permutation=None"),
        (lambda g, x: g.transpose(x, [0, 0, 1, 2]), "permutation [0, 0, 1, 2]"),
        (lambda g, x: g.resample(x, "MAXPOOL", [0, 0], [0, 0], [None, 1], [2, 2]),
         "stride=[None, 1]; accepted: a list of numbers"),
    ],
)  # fmt: skip
def test_parameters_that_are_no_integers_are_refused(build, message):
    def made():
        g = dnnc.pygraph(io_data_type="f16", compute_data_type="f32")
        build(g, g.tensor([8, 8, 5, 5])).set_output()
        g.validate()

    with pytest.raises(DnncError, match=re.escape(message)):
        made()


@pytest.mark.parametrize("ones", [np.array([1, 1]), [np.int64(1)] * 2, (1, 1), iter([1, 1])])
def test_integers_of_any_kind_are_taken(ones):
    g = dnnc.pygraph(io_data_type="f16", compute_data_type="f32")
    x, w = g.tensor([2, 8, 5, 5]), g.tensor([8, 8, 3, 3])
    assert g.conv_fprop(x, w, padding=ones).get_dim() == [2, 8, 5, 5]


UNKNOWN = {
    "did you mean 'compute_data_type'?": lambda g, x: g.matmul(x, x, compute_dtype="FLOAT"),
    "did you mean 'dim'?": lambda g, x: g.tensor(dims=[4]),
    "did you mean 'descale_q'?": lambda g, x: g.sdpa_fp8(x, x, x, descale_Q=1.0),
    "did you mean 'attn_scale'?": lambda g, x: g.sdpa(x, x, x, attn_scal=1.0),
    "pygraph() has no keyword 'io_datatype'": lambda g, x: dnnc.pygraph(io_datatype="HALF"),
    "set_output() has no keyword 'output'; accepted: value": lambda g, x: x.set_output(output=True),
}


@pytest.mark.parametrize("said", UNKNOWN)
def test_keywords_that_nobody_knows_are_told_the_nearest(said):
    g = new_graph()
    x = g.tensor([2, 2], name="x")
    with pytest.raises(TypeError, match=re.escape(said)):
        UNKNOWN[said](g, x)


def test_methods_keep_their_signatures():
    taken = inspect.signature(dnnc.pygraph.matmul).parameters
    assert list(taken) == ["self", "A", "B", "compute_data_type", "name"]
    assert "stride" in inspect.signature(dnnc.pygraph.tensor).parameters


def test_outputs_of_the_reference_by_uid_name_and_tensor():
    g = new_graph()
    x = g.tensor([3], name="x", uid=7)
    y, z = g.neg(x).set_output().set_name("y"), g.exp(x).set_output().set_uid(9)
    found = dnnc.reference(g, {"x": [1.0, 2.0, 3.0]})
    assert list(found) == [y.uid, 9]
    for key in (y.uid, np.int64(y.uid), "y", y):
        assert key in found
        assert found[key] is found.get(key)
        assert found[key].tolist() == [-1.0, -2.0, -3.0]
    assert found[z] is found[9]
    for key in (8, "x", "z", x, "", None, 2.5):
        assert key not in found
        assert found.get(key, "none") == "none"
        with pytest.raises(DnncError, match=r"is no output; accepted: .*\(y\), 9"):
            found[key]
