# ruff: noqa: F403, F405
"""The use cases of the reference of cuDNN 8.0.3, section 9.3, call by call.

Its text sets up a grouped 3D convolution that adds half of what Y holds (beta is 0.5).  The calls
run to the end, with and without that, and so do those with a matmul in the convolution's place.
"""

import numpy as np
import pytest

import dnnc
from dnnc import DnncError, Status
from dnnc.backend import *
from dnnc.engines import ENGINES
from dnnc.interpreter.plans import run_plan
from dnnc.runtime import driver
from tests.demo.interpreted_driver import InterpretedDriver
from tests.support.compare import assert_close

from .building import device, heuristics, pointwise, tensor

n, g, c, d, h, w = 2, 3, 4, 5, 6, 7
k, t, r, s = 8, 3, 3, 3
o, p, q = d - t + 1, h - r + 1, w - s + 1


def packed(dims):
    return [int(np.prod(dims[axis + 1 :])) for axis in range(len(dims))]


def tensor_9_3_1(uid, dims):
    """Steps 1 and 2: a tensor descriptor."""
    desc = create_descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
    dtype = CUDNN_DATA_FLOAT
    set_attribute(desc, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, dtype)
    alignment = 4
    rank = len(dims)
    set_attribute(desc, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dims)
    set_attribute(desc, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, packed(dims))
    set_attribute(desc, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, ord(uid))
    set_attribute(desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, alignment)
    finalize(desc)
    return desc


def convolution_9_3_1(filter_strides=(1, 1, 1)):
    """Step 3: a convolution descriptor."""
    conv_dim = 3
    comp_type, mode = CUDNN_DATA_FLOAT, CUDNN_CONVOLUTION
    pad, dilation = [0, 0, 0], [1, 1, 1]
    desc = create_descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
    set_attribute(desc, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, conv_dim)
    set_attribute(desc, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, comp_type)
    set_attribute(desc, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, mode)
    set_attribute(desc, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, conv_dim, pad)
    set_attribute(desc, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, conv_dim, pad)
    set_attribute(desc, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, conv_dim, dilation)
    count = len(filter_strides)
    name = CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES
    set_attribute(desc, name, CUDNN_TYPE_INT64, count, filter_strides)
    finalize(desc)
    return desc


def fprop_9_3_1(x_desc, w_desc, y_desc, c_desc, beta=0.5, alpha=1.0):
    """Step 4: a convolution forward operation."""
    fprop = create_descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
    for name, desc in (
        (CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x_desc),
        (CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w_desc),
        (CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y_desc),
        (CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, c_desc),
    ):
        set_attribute(fprop, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, desc)
    name = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA
    set_attribute(fprop, name, CUDNN_TYPE_FLOAT, 1, alpha)
    set_attribute(fprop, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, beta)
    finalize(fprop)
    return fprop


def operation_graph_9_3_1(handle, *ops):
    """Step 5: an operation graph."""
    op_graph = create_descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    name = CUDNN_ATTR_OPERATIONGRAPH_OPS
    set_attribute(op_graph, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, len(ops), ops)
    name = CUDNN_ATTR_OPERATIONGRAPH_HANDLE
    set_attribute(op_graph, name, CUDNN_TYPE_HANDLE, 1, handle)
    finalize(op_graph)
    return op_graph


def engine_9_3_2(op_graph, gidx=0, target=None):
    """Step 1 of the second use case; target: for where there is no GPU."""
    engine = create_descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR)
    name = CUDNN_ATTR_ENGINE_OPERATION_GRAPH
    set_attribute(engine, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, op_graph)
    set_attribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, gidx)
    if target is not None:
        name = CUDNN_ATTR_ENGINE_DEVICEPROP
        set_attribute(engine, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, device(target))
    finalize(engine)
    return engine


def engine_config_9_3_2(engine):
    """Step 2."""
    engcfg = create_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
    name = CUDNN_ATTR_ENGINECFG_ENGINE
    set_attribute(engcfg, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, engine)
    finalize(engcfg)
    return engcfg


def plan_9_3_3(engcfg):
    """Step 1 of the third use case: (plan, bytes of its workspace)."""
    plan = create_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
    name = CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG
    set_attribute(plan, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, engcfg)
    finalize(plan)
    name = CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE
    count, (workspace_size,) = get_attribute(plan, name, CUDNN_TYPE_INT64, 1)
    assert count == 1
    return plan, workspace_size


def variant_pack_9_3_3(dev_ptrs, uids, workspace):
    """Step 2."""
    varpack = create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    name = CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS
    set_attribute(varpack, name, CUDNN_TYPE_VOID_PTR, 3, dev_ptrs)
    set_attribute(varpack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uids)
    set_attribute(varpack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, workspace)
    finalize(varpack)
    return varpack


# ---- 9.3.1: the grouped convolution

GROUPED = ([n, g, c, d, h, w], [g, k, c, t, r, s], [n, g, k, o, p, q])
PACKED = ([n, g * c, d, h, w], [g * k, c, t, r, s], [n, g * k, o, p, q])


def convolved(dims, beta=0.0, alpha=1.0):
    """The operation graph of the first use case."""
    tensors = [tensor_9_3_1(uid, shape) for uid, shape in zip("xwy", dims, strict=True)]
    fprop = fprop_9_3_1(*tensors, convolution_9_3_1(), beta, alpha)
    return operation_graph_9_3_1(dnnc.create_handle(), fprop)


@pytest.mark.parametrize("alpha", [1.0, 2.5])
@pytest.mark.parametrize(("beta", "titles"), [(1.0, []), (0.5, ["pointwise:mul"])])
def test_beta_adds_what_y_held(alpha, beta, titles):
    graph = operation_graph(convolved(GROUPED, beta, alpha))
    scaled = ["pointwise:mul"] if alpha != 1.0 else []
    wanted = ["conv_fprop", *scaled, *titles, "pointwise:add"]
    assert [op.title for op in graph.ops] == wanted
    rng = np.random.default_rng(7)
    inputs = {
        ord(u): rng.standard_normal(n, np.float32) for u, n in zip("xwy", PACKED, strict=True)
    }
    found = dnnc.reference(graph, inputs, exact_outputs=True)[ord("y")]
    plain = operation_graph(convolved(GROUPED))
    product = dnnc.reference(plain, inputs, exact_outputs=True)[ord("y")]
    np.testing.assert_allclose(found, alpha * product + beta * inputs[ord("y")], 1e-5, 1e-5)


def test_a_virtual_result_held_nothing():
    x, weight = (tensor_9_3_1(uid, shape) for uid, shape in zip("xw", PACKED, strict=False))
    y = tensor(ord("y"), PACKED[2], virtual=True)
    with pytest.raises(DnncError, match="holds nothing before") as caught:
        fprop_9_3_1(x, weight, y, convolution_9_3_1())
    assert caught.value.status is Status.BAD_PARAM
    assert caught.value.where == "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA"
    fprop_9_3_1(x, weight, y, convolution_9_3_1(), beta=0.0)


def test_alpha_scales_the_result():
    graphs = [operation_graph(convolved(PACKED, alpha=alpha)) for alpha in (1.0, 2.5)]
    assert [op.title for op in graphs[1].ops] == ["conv_fprop", "pointwise:mul"]
    rng = np.random.default_rng(7)
    inputs = {ord(u): rng.standard_normal(n) for u, n in zip("xw", PACKED, strict=False)}
    plain, scaled = (dnnc.reference(g, inputs, exact_outputs=True)[ord("y")] for g in graphs)
    np.testing.assert_allclose(scaled, 2.5 * plain)


@pytest.mark.parametrize("dims", [GROUPED, PACKED], ids=["grouped", "packed"])
def test_a_grouped_convolution_is_the_same_in_both_forms(dims):
    graph = operation_graph(convolved(dims))
    (op,) = graph.ops
    assert (op.op_name, op.groups, op.convolution_mode) == ("conv_fprop", g, "CONVOLUTION")
    shapes = [[n.constant for n in tensor.shape] for tensor in (op.x, op.w, op.y)]
    assert shapes == [*PACKED]
    assert [tensor.uid for tensor in (op.x, op.w, op.y)] == [ord(uid) for uid in "xwy"]
    rng = np.random.default_rng(7)
    x, taps = rng.standard_normal(PACKED[0]), rng.standard_normal(PACKED[1])
    found = dnnc.reference(graph, {ord("x"): x, ord("w"): taps}, exact_outputs=True)[ord("y")]
    first = x[:1, :c, :t, :r, :s] * taps[:1, :, ::-1, ::-1, ::-1]
    np.testing.assert_allclose(found[0, 0, 0, 0, 0], first.sum())


def test_a_tensor_with_groups_has_no_other_operation():
    tensors = [tensor_9_3_1(uid, shape) for uid, shape in zip("xwy", GROUPED, strict=True)]
    fprop = fprop_9_3_1(*tensors, convolution_9_3_1(), 0.0)
    after = pointwise(CUDNN_POINTWISE_RELU_FWD, X=tensors[2], Y=tensor_9_3_1("z", GROUPED[2]))
    with pytest.raises(DnncError, match="has a dim of groups") as caught:
        operation_graph_9_3_1(dnnc.create_handle(), fprop, after)
    assert caught.value.status is Status.NOT_SUPPORTED_GRAPH_PATTERN


def test_tensors_that_are_no_convolution_are_bad_parameters():
    tensors = [tensor_9_3_1(u, dims) for u, dims in zip("xwy", GROUPED, strict=True)]
    wrong = tensor_9_3_1("w", [g, k, c + 1, t, r, s])
    with pytest.raises(DnncError) as caught:
        fprop_9_3_1(tensors[0], wrong, tensors[2], convolution_9_3_1())
    assert caught.value.status is Status.BAD_PARAM_SHAPE_MISMATCH
    with pytest.raises(DnncError) as caught:
        convolution_9_3_1(filter_strides=[1, 1])
    assert caught.value.status is Status.BAD_PARAM
    assert "SPATIAL_DIMS = 3" in caught.value.supported


@pytest.mark.parametrize("apart", ["x", "w", "y", "xwy"])
def test_groups_may_lie_apart(apart):
    """A reshape joins them with the channels; the tensor keeps the dims of its descriptor."""
    ends = zip("xwy", GROUPED, PACKED, strict=True)
    tensors, inputs, shapes = [], {}, {}
    rng = np.random.default_rng(11)
    for uid, dims, joined in ends:
        is_apart = uid in apart
        strides = apart_by(8, dims, 0 if uid == "w" else 1) if is_apart else packed(dims)
        tensors.append(tensor(ord(uid), dims, strides, alignment=4))
        inputs[ord(uid)] = rng.standard_normal(joined, np.float32)
        shapes[ord(uid)] = dims if is_apart else joined
    fprop = fprop_9_3_1(*tensors, convolution_9_3_1(), beta=0.5, alpha=2.5)
    op_graph = operation_graph_9_3_1(dnnc.create_handle(), fprop)
    graph = operation_graph(op_graph)
    assert [op.op_name for op in graph.ops].count("reshape") == len(apart)
    joined = operation_graph(convolved(PACKED, 0.5, 2.5))
    exact = dnnc.reference(joined, inputs, exact_outputs=True)[ord("y")]
    given = {uid: array.reshape(shapes[uid]) for uid, array in inputs.items()}
    found = dnnc.reference(graph, given, exact_outputs=True)[ord("y")]
    np.testing.assert_array_equal(found.ravel(), exact.ravel())
    if apart == "xwy":
        (config, *_) = heuristics(op_graph)
        plan = execution_plan(plan_9_3_3(config)[0]).plan
        y = run_plan(plan, given)[ord("y")]
        assert_close(y.reshape(PACKED[2]), exact, dnnc.data_type.FLOAT, slack=8.0)


def apart_by(gap, dims, axis):
    """Strides of a tensor in which the parts along an axis have a gap between them."""
    strides = packed(dims)
    strides[axis] += gap
    for outer in reversed(range(axis)):
        strides[outer] = strides[outer + 1] * dims[outer + 1]
    return strides


@pytest.mark.parametrize("end", ["ALPHA", "BETA"])
def test_one_factor_is_taken(end):
    """The reference says one or more elements and not what more mean; cuDNN 9.19.1 takes one."""
    fprop = create_descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
    name = cudnnBackendAttributeName_t[f"CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_{end}"]
    with pytest.raises(DnncError, match=f"{end}.*2 elements.*accepted: 1") as caught:
        set_attribute(fprop, name, CUDNN_TYPE_FLOAT, 2, [1.0, 1.0])
    assert caught.value.status is Status.BAD_PARAM


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_engines_take_the_convolution_or_say_why_they_decline_it(beta):
    graph = convolved(GROUPED, beta)
    taking = [e for e in ENGINES if e.name in ("conv_sm80", "conv_depthwise", "fallback")]
    for engine in taking:
        engine_9_3_2(graph, engine.index, "sm_80")
    for declining in (e for e in ENGINES if e not in taking):
        with pytest.raises(DnncError) as caught:
            engine_9_3_2(graph, declining.index, "sm_80")
        assert caught.value.status.category is Status.NOT_SUPPORTED
        assert caught.value.what
        assert caught.value.supported
    assert len(heuristics(graph)) > 1


# ---- 9.3.2 and 9.3.3: to the end


@pytest.fixture
def interpreted(monkeypatch):
    made = InterpretedDriver()
    made.install(monkeypatch)
    return made


def product():
    """x [1, 24, 40] @ w [1, 40, 16] = y, of FLOAT."""
    dims = ([1, 24, 40], [1, 40, 16], [1, 24, 16])
    x, weight, y = (tensor_9_3_1(uid, shape) for uid, shape in zip("xwy", dims, strict=True))
    desc = create_descriptor(CUDNN_BACKEND_MATMUL_DESCRIPTOR)
    set_attribute(desc, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, CUDNN_DATA_FLOAT)
    finalize(desc)
    op = create_descriptor(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
    for name, value in (
        (CUDNN_ATTR_OPERATION_MATMUL_ADESC, x),
        (CUDNN_ATTR_OPERATION_MATMUL_BDESC, weight),
        (CUDNN_ATTR_OPERATION_MATMUL_CDESC, y),
        (CUDNN_ATTR_OPERATION_MATMUL_DESC, desc),
    ):
        set_attribute(op, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, value)
    finalize(op)
    return op


def executed(op_graph, arrays):
    """Runs a graph of x, w and y in the interpreter; the last of the arrays is y."""
    engcfg = engine_config_9_3_2(engine_9_3_2(op_graph, target="sm_80"))
    plan, workspace_size = plan_9_3_3(engcfg)
    dev_ptrs = []
    for array in arrays:
        dev_ptrs.append(driver.allocate(array.nbytes, "tensor"))
        driver.upload(dev_ptrs[-1], array.reshape(-1).view(np.uint8))
    workspace = driver.allocate(workspace_size, "workspace") if workspace_size else None
    varpack = variant_pack_9_3_3(dev_ptrs, [ord(uid) for uid in "xwy"], workspace)
    execute(dnnc.create_handle(), plan, varpack)
    driver.download(arrays[-1], dev_ptrs[2])
    return arrays[-1]


def test_a_plan_is_set_up_and_executed(interpreted):
    rng = np.random.default_rng(3)
    x, weight = (rng.standard_normal(dims, np.float32) for dims in ([1, 24, 40], [1, 40, 16]))
    op_graph = operation_graph_9_3_1(dnnc.create_handle(), product())
    y = executed(op_graph, [x, weight, np.zeros([1, 24, 16], np.float32)])
    assert interpreted.launches >= 1
    exact = np.matmul(x.astype(np.float64), weight.astype(np.float64))
    assert_close(y, exact, dnnc.data_type.FLOAT, slack=4.0)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_the_convolution_is_executed(beta, interpreted):
    """The variant pack has one pointer for Y, which is read where beta is not 0."""
    graph = convolved(GROUPED, beta, alpha=2.5)
    rng = np.random.default_rng(5)
    x, taps, held = (rng.standard_normal(dims, np.float32) for dims in PACKED)
    inputs = {ord("x"): x, ord("w"): taps, ord("y"): held}
    y = executed(graph, [x, taps, held.copy()])
    exact = dnnc.reference(operation_graph(graph), inputs, exact_outputs=True)[ord("y")]
    assert_close(y, exact, dnnc.data_type.FLOAT, slack=8.0)


def test_executing_needs_a_handle_a_plan_and_a_pack(interpreted):
    handle = dnnc.create_handle()
    op_graph = operation_graph_9_3_1(handle, product())
    plan, _ = plan_9_3_3(engine_config_9_3_2(engine_9_3_2(op_graph, target="sm_80")))
    addresses = [driver.allocate(1 << 14, "tensor") for _ in range(3)]
    for address in addresses:
        driver.upload(address, np.zeros(1 << 14, np.uint8))
    pack = variant_pack_9_3_3(addresses, [ord(uid) for uid in "xwy"], None)
    unknown = variant_pack_9_3_3(addresses, [ord(uid) for uid in "xwz"], None)
    null = variant_pack_9_3_3([0, *addresses[1:]], [ord(uid) for uid in "xwy"], None)
    closed = dnnc.create_handle()
    dnnc.destroy_handle(closed)
    open_plan = create_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
    open_pack = create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    cases = [
        (None, plan, pack, Status.BAD_PARAM_NULL_POINTER),
        ("handle", plan, pack, Status.BAD_PARAM),
        (closed, plan, pack, Status.BAD_PARAM),
        (handle, None, pack, Status.BAD_PARAM_NULL_POINTER),
        (handle, pack, plan, Status.BAD_PARAM_DESCRIPTOR_TYPE),
        (handle, plan, op_graph, Status.BAD_PARAM_DESCRIPTOR_TYPE),
        (handle, open_plan, pack, Status.BAD_PARAM_NOT_FINALIZED),
        (handle, plan, open_pack, Status.BAD_PARAM_NOT_FINALIZED),
        (handle, plan, unknown, Status.BAD_PARAM),
        (handle, plan, null, Status.BAD_PARAM_NULL_POINTER),
    ]
    for *arguments, status in cases:
        with pytest.raises(DnncError) as caught:
            execute(*arguments)
        assert caught.value.status is status, arguments
    assert interpreted.launches == 0
    execute(handle, plan, pack)
    assert interpreted.launches >= 1
