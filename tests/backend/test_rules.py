"""Each call answers with the documented status, and what was wrong."""

from fractions import Fraction

import numpy as np
import pytest

import dnnc
from dnnc import DnncError, Status
from dnnc import backend as b

from .building import I64, D, device, graph_of, made, matmul, name_of, opened, pointwise, tensor

TENSOR = b.CUDNN_BACKEND_TENSOR_DESCRIPTOR
DIMS = b.CUDNN_ATTR_TENSOR_DIMENSIONS
UID = b.CUDNN_ATTR_TENSOR_UNIQUE_ID


def status_of(call, *arguments):
    """The status that a call raises, SUCCESS if it does not."""
    try:
        call(*arguments)
    except DnncError as error:
        return error.status
    return Status.SUCCESS


# ---- create and destroy


def test_create_knows_its_types():
    assert status_of(b.create_descriptor, 17) is Status.SUCCESS
    assert status_of(b.create_descriptor, 44) is Status.NOT_SUPPORTED
    assert status_of(b.create_descriptor, -1) is Status.NOT_SUPPORTED
    for wrong in ("TENSOR", None, True, b.CUDNN_TYPE_INT64):
        assert status_of(b.create_descriptor, wrong) is Status.BAD_PARAM


@pytest.mark.parametrize("kind", b.cudnnBackendDescriptorType_t)
def test_every_type_is_created_and_destroyed_once(kind):
    descriptor = b.create_descriptor(kind)
    assert status_of(b.destroy_descriptor, descriptor) is Status.SUCCESS
    assert status_of(b.destroy_descriptor, descriptor) is Status.BAD_PARAM


def test_a_destroyed_descriptor_answers_no_call():
    descriptor = tensor(1, [2, 3])
    b.destroy_descriptor(descriptor)
    assert status_of(b.get_attribute, descriptor, UID, I64) is Status.BAD_PARAM
    assert status_of(b.set_attribute, descriptor, UID, I64, 1, 1) is Status.BAD_PARAM
    assert status_of(b.finalize, descriptor) is Status.BAD_PARAM
    holder = b.create_descriptor(b.CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
    name = b.CUDNN_ATTR_OPERATION_RESHAPE_XDESC
    assert status_of(b.set_attribute, holder, name, D, 1, descriptor) is Status.BAD_PARAM


def test_what_is_no_descriptor_is_refused():
    for call in (b.finalize, b.destroy_descriptor):
        assert status_of(call, None) is Status.BAD_PARAM_NULL_POINTER
        assert status_of(call, 17) is Status.BAD_PARAM
    assert status_of(b.set_attribute, "x", UID, I64, 1, 1) is Status.BAD_PARAM
    assert status_of(b.get_attribute, None, UID, I64) is Status.BAD_PARAM_NULL_POINTER


# ---- the order of calls


def test_get_before_finalize_and_set_after_it_are_not_initialized():
    descriptor = opened(TENSOR, (UID, I64, [1]))
    assert status_of(b.get_attribute, descriptor, UID, I64) is Status.NOT_INITIALIZED
    final = tensor(1, [2, 3])
    assert status_of(b.set_attribute, final, UID, I64, 1, 2) is Status.NOT_INITIALIZED
    assert b.get_attribute(final, UID, I64).elements == [1]


def test_a_second_finalize_is_refused_and_changes_nothing():
    final = tensor(1, [2, 3])
    assert status_of(b.finalize, final) is Status.BAD_PARAM
    assert b.get_attribute(final, DIMS, I64) == (2, [2, 3])


def test_a_failed_finalize_leaves_the_descriptor_open():
    descriptor = opened(TENSOR, (UID, I64, [1]), (DIMS, I64, [2, 3]))
    assert status_of(b.finalize, descriptor) is Status.BAD_PARAM
    for name, kind, value in (
        (b.CUDNN_ATTR_TENSOR_DATA_TYPE, b.CUDNN_TYPE_DATA_TYPE, dnnc.data_type.HALF),
        (b.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, I64, 2),
    ):
        b.set_attribute(descriptor, name, kind, 1, value)
    b.set_attribute(descriptor, b.CUDNN_ATTR_TENSOR_STRIDES, I64, 2, (3, 1))
    b.finalize(descriptor)
    data_type = b.get_attribute(descriptor, b.CUDNN_ATTR_TENSOR_DATA_TYPE, 1)
    assert data_type == (1, [b.CUDNN_DATA_HALF])


def test_the_last_value_that_is_set_holds():
    descriptor = opened(TENSOR, (DIMS, I64, [2, 3]), (DIMS, I64, [4]))
    for name, kind, value in (
        (UID, I64, 7), (b.CUDNN_ATTR_TENSOR_STRIDES, I64, [1]),
        (b.CUDNN_ATTR_TENSOR_DATA_TYPE, b.CUDNN_TYPE_DATA_TYPE, b.CUDNN_DATA_FLOAT),
        (b.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, I64, 4),
    ):  # fmt: skip
        b.set_attribute(descriptor, name, kind, 1, value)
    b.finalize(descriptor)
    assert b.get_attribute(descriptor, DIMS, I64) == (1, [4])


# ---- set


@pytest.mark.parametrize(
    ("name", "kind", "count", "value", "status"),
    [
        (DIMS, I64, 3, [1, 2, 3], Status.SUCCESS),
        (DIMS, I64, 2, [1, 2, 3], Status.SUCCESS),  # the first two
        (DIMS, I64, 2, np.array([4, 5]), Status.SUCCESS),
        (DIMS, I64, 1, 5, Status.SUCCESS),
        (DIMS, I64, 1, np.int64(5), Status.SUCCESS),
        (int(DIMS), int(I64), 1, 5, Status.SUCCESS),
        (DIMS, I64, 2, [dnnc.Dim("M"), 4], Status.SUCCESS),
        (UID, I64, 1, -5, Status.SUCCESS),
        (b.CUDNN_ATTR_OPERATION_MATMUL_ADESC, D, 1, None, Status.BAD_PARAM),  # of another kind
        ("DIMENSIONS", I64, 1, [1], Status.BAD_PARAM),
        (99999, I64, 1, [1], Status.BAD_PARAM),
        (True, I64, 1, [1], Status.BAD_PARAM),
        (DIMS, b.CUDNN_TYPE_INT32, 1, [1], Status.BAD_PARAM_ATTRIBUTE_TYPE),
        (DIMS, D, 1, [1], Status.BAD_PARAM_ATTRIBUTE_TYPE),
        (DIMS, 99, 1, [1], Status.BAD_PARAM_ATTRIBUTE_TYPE),
        (DIMS, "INT64", 1, [1], Status.BAD_PARAM_ATTRIBUTE_TYPE),
        (DIMS, I64, 0, [], Status.BAD_PARAM),
        (DIMS, I64, 9, [1] * 9, Status.BAD_PARAM),
        (DIMS, I64, -1, [1], Status.BAD_PARAM),
        (DIMS, I64, 1.0, [1], Status.BAD_PARAM),
        (DIMS, I64, True, [1], Status.BAD_PARAM),
        (UID, I64, 2, [1, 2], Status.BAD_PARAM),
        (DIMS, I64, 3, [1, 2], Status.BAD_PARAM_SIZE_INSUFFICIENT),
        (DIMS, I64, 1, None, Status.BAD_PARAM_NULL_POINTER),
        (DIMS, I64, 2, 5, Status.BAD_PARAM),
        (DIMS, I64, 1, 1.5, Status.BAD_PARAM),
        (DIMS, I64, 1, [True], Status.BAD_PARAM),
        (DIMS, I64, 1, "7", Status.BAD_PARAM),
        (UID, I64, 1, dnnc.Dim("M"), Status.BAD_PARAM),  # a uid is no size
        (DIMS, I64, 1, 1 << 63, Status.BAD_PARAM_OUT_OF_BOUND),
        (b.CUDNN_ATTR_TENSOR_IS_VIRTUAL, b.CUDNN_TYPE_BOOLEAN, 1, 1, Status.SUCCESS),
        (b.CUDNN_ATTR_TENSOR_IS_VIRTUAL, b.CUDNN_TYPE_BOOLEAN, 1, 2, Status.BAD_PARAM),
        (b.CUDNN_ATTR_TENSOR_DATA_TYPE, b.CUDNN_TYPE_DATA_TYPE, 1, 2, Status.SUCCESS),
        (b.CUDNN_ATTR_TENSOR_DATA_TYPE, b.CUDNN_TYPE_DATA_TYPE, 1, 77, Status.BAD_PARAM),
        (b.CUDNN_ATTR_TENSOR_DATA_TYPE, b.CUDNN_TYPE_DATA_TYPE, 1, "HALF", Status.BAD_PARAM),
        (b.CUDNN_ATTR_TENSOR_DATA_TYPE, b.CUDNN_TYPE_DATA_TYPE, 1, b.CUDNN_POINTWISE_MIN,
         Status.BAD_PARAM),
    ],
)  # fmt: skip
def test_what_may_be_set_on_a_tensor(name, kind, count, value, status):
    descriptor = b.create_descriptor(TENSOR)
    assert status_of(b.set_attribute, descriptor, name, kind, count, value) is status


def test_descriptors_that_are_set_are_of_the_right_kind():
    holder = b.create_descriptor(b.CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
    name = b.CUDNN_ATTR_OPERATION_MATMUL_DESC
    product = b.create_descriptor(b.CUDNN_BACKEND_MATMUL_DESCRIPTOR)
    wrong = status_of(b.set_attribute, holder, name, D, 1, [tensor(1, [2])])
    assert wrong is Status.BAD_PARAM_DESCRIPTOR_TYPE
    assert status_of(b.set_attribute, holder, name, D, 1, [None]) is Status.BAD_PARAM_NULL_POINTER
    assert status_of(b.set_attribute, holder, name, D, 1, [17]) is Status.BAD_PARAM
    # It may still be open; finalizing the holder looks at it.
    assert status_of(b.set_attribute, holder, name, D, 1, [product]) is Status.SUCCESS
    for end, uid in (("ADESC", 1), ("BDESC", 2), ("CDESC", 3)):
        b.set_attribute(holder, name_of("OPERATION_MATMUL", end), D, 1, tensor(uid, [4, 4]))
    assert status_of(b.finalize, holder) is Status.BAD_PARAM_NOT_FINALIZED
    kind = b.CUDNN_ATTR_MATMUL_COMP_TYPE
    b.set_attribute(product, kind, b.CUDNN_TYPE_DATA_TYPE, 1, b.CUDNN_DATA_FLOAT)
    b.finalize(product)
    assert status_of(b.finalize, holder) is Status.SUCCESS
    b.destroy_descriptor(product)  # what was made of it stays
    (again,) = b.get_attribute(holder, name, D).elements
    assert b.get_attribute(again, kind, b.CUDNN_TYPE_DATA_TYPE).elements == [b.CUDNN_DATA_FLOAT]


def test_a_descriptor_destroyed_before_its_holder_is_finalized_is_refused():
    x = tensor(1, [4])
    holder = opened(
        b.CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
        (b.CUDNN_ATTR_OPERATION_RESHAPE_XDESC, D, [x]),
        (b.CUDNN_ATTR_OPERATION_RESHAPE_YDESC, D, [tensor(2, [2, 2])]),
    )
    b.destroy_descriptor(x)
    assert status_of(b.finalize, holder) is Status.BAD_PARAM


def test_floats_are_rounded_as_c_rounds_them():
    kind = b.CUDNN_BACKEND_POINTWISE_DESCRIPTOR
    mode = (b.CUDNN_ATTR_POINTWISE_MODE, b.CUDNN_TYPE_POINTWISE_MODE, [b.CUDNN_POINTWISE_ELU_FWD])
    compute = (b.CUDNN_ATTR_POINTWISE_MATH_PREC, b.CUDNN_TYPE_DATA_TYPE, [0])
    name = b.CUDNN_ATTR_POINTWISE_ELU_ALPHA
    exact = made(kind, mode, compute, (name, b.CUDNN_TYPE_DOUBLE, [0.1]))
    rounded = made(kind, mode, compute, (name, b.CUDNN_TYPE_FLOAT, [0.1]))
    assert b.get_attribute(exact, name, b.CUDNN_TYPE_DOUBLE).elements == [0.1]
    assert b.get_attribute(exact, name, b.CUDNN_TYPE_FLOAT).elements == [float(np.float32(0.1))]
    assert b.get_attribute(rounded, name, b.CUDNN_TYPE_DOUBLE).elements == [float(np.float32(0.1))]
    open_ = b.create_descriptor(kind)
    too_large = status_of(b.set_attribute, open_, name, b.CUDNN_TYPE_FLOAT, 1, 1e300)
    assert too_large is Status.BAD_PARAM_OUT_OF_BOUND


def test_fractions_are_fractions():
    name, kind = b.CUDNN_ATTR_RESAMPLE_STRIDES, b.CUDNN_TYPE_FRACTION
    descriptor = b.create_descriptor(b.CUDNN_BACKEND_RESAMPLE_DESCRIPTOR)
    assert status_of(b.set_attribute, descriptor, name, kind, 2, [(1, 2), Fraction(3, 4)]) == 0
    assert status_of(b.set_attribute, descriptor, name, kind, 1, [(1, 0)]) is Status.BAD_PARAM
    assert status_of(b.set_attribute, descriptor, name, kind, 1, [0.5]) is Status.BAD_PARAM
    # The first element of (1, 2) is no fraction.
    assert status_of(b.set_attribute, descriptor, name, kind, 1, (1, 2)) is Status.BAD_PARAM


def test_read_only_attributes_and_descriptors():
    graph = b.create_descriptor(b.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    count = b.CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT
    assert status_of(b.set_attribute, graph, count, I64, 1, 3) is Status.BAD_PARAM
    for kind in ("KNOB_INFO", "LAYOUT_INFO", "INTERMEDIATE_INFO"):
        info = b.create_descriptor(getattr(b, f"CUDNN_BACKEND_{kind}_DESCRIPTOR"))
        assert status_of(b.finalize, info) is Status.NOT_SUPPORTED
        for name, attribute in info.kind.attributes.items():
            got = status_of(b.get_attribute, info, name, attribute.types[0])
            assert got is Status.NOT_INITIALIZED
            put = status_of(b.set_attribute, info, name, attribute.types[0], 1, 1)
            assert put is Status.NOT_SUPPORTED


@pytest.mark.parametrize(
    ("kind", "name", "attribute_type"),
    [
        ("VARIANT_PACK", "VARIANT_PACK_INTERMEDIATES", b.CUDNN_TYPE_VOID_PTR),
        ("EXECUTION_PLAN", "EXECUTION_PLAN_COMPUTED_INTERMEDIATE_UIDS", I64),
        ("ENGINECFG", "ENGINECFG_INTERMEDIATE_INFO", D),
        ("OPERATIONGRAPH", "OPERATIONGRAPH_IS_SAME_TOPOLOGY", b.CUDNN_TYPE_BOOLEAN),
    ],
)
def test_unsupported_attributes_are_not_supported(kind, name, attribute_type):
    descriptor = b.create_descriptor(getattr(b, f"CUDNN_BACKEND_{kind}_DESCRIPTOR"))
    name = getattr(b, f"CUDNN_ATTR_{name}")
    with pytest.raises(DnncError, match=r"\w+ \w+") as caught:
        b.set_attribute(descriptor, name, attribute_type, 1, 1)
    assert caught.value.status is Status.NOT_SUPPORTED
    assert name.name in caught.value.where


# ---- get


def test_get_gives_the_count_and_as_many_elements_as_are_asked_for():
    x = tensor(1, [2, 3, 4])
    assert b.get_attribute(x, DIMS, I64) == (3, [2, 3, 4])
    assert b.get_attribute(x, DIMS, I64, 2) == (3, [2, 3])
    assert b.get_attribute(x, DIMS, I64, 0) == (3, [])
    assert b.get_attribute(x, DIMS, I64, 8) == (3, [2, 3, 4])
    assert b.get_attribute(x, b.CUDNN_ATTR_TENSOR_VECTOR_COUNT, I64) == (1, [1])  # a default
    assert b.get_attribute(x, b.CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, I64) == (0, [])


@pytest.mark.parametrize(
    ("name", "kind", "requested", "status"),
    [
        (DIMS, I64, -1, Status.BAD_PARAM),
        (DIMS, I64, 1.0, Status.BAD_PARAM),
        (DIMS, b.CUDNN_TYPE_INT32, 1, Status.BAD_PARAM_ATTRIBUTE_TYPE),
        (b.CUDNN_ATTR_POINTWISE_MODE, b.CUDNN_TYPE_POINTWISE_MODE, 1, Status.BAD_PARAM),
    ],
)
def test_what_can_not_be_got(name, kind, requested, status):
    assert status_of(b.get_attribute, tensor(1, [2]), name, kind, requested) is status


def test_descriptors_are_got_new_or_in_those_that_were_made_for_them():
    name = b.CUDNN_ATTR_OPERATION_RESHAPE_XDESC
    reshape = made(
        b.CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
        (name, D, [tensor(1, [4])]),
        (b.CUDNN_ATTR_OPERATION_RESHAPE_YDESC, D, [tensor(2, [2, 2])]),
    )
    (x,) = b.get_attribute(reshape, name, D, 1).elements
    assert b.get_attribute(x, UID, I64).elements == [1]
    assert b.get_attribute(reshape, name, D, 0) == (1, [])
    mine = b.create_descriptor(TENSOR)
    assert b.get_attribute(reshape, name, D, 1, [mine]).elements == [mine]
    assert b.get_attribute(mine, UID, I64).elements == [1]
    b.destroy_descriptor(x)
    assert b.get_attribute(mine, DIMS, I64).elements == [4]
    wrong = b.create_descriptor(b.CUDNN_BACKEND_MATMUL_DESCRIPTOR)
    statuses = [
        status_of(b.get_attribute, reshape, name, D, 1, array) for array in ([wrong], [], [5])
    ]
    assert statuses == [
        Status.BAD_PARAM_DESCRIPTOR_TYPE, Status.BAD_PARAM_SIZE_INSUFFICIENT, Status.BAD_PARAM,
    ]  # fmt: skip


def test_text_counts_the_zero_at_its_end():
    name, kind = b.CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, b.CUDNN_TYPE_CHAR
    found = device("sm_90")
    count, text = b.get_attribute(found, name, kind)
    assert text == '{"dnnc_device": 1, "target": "sm_90"}'
    assert count == len(text) + 1
    assert b.get_attribute(found, name, kind, 5).elements == text[:5]
    for given, length in ((text, len(text)), (text, count), (text.encode(), count)):
        descriptor = b.create_descriptor(b.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
        b.set_attribute(descriptor, name, kind, length, given)
        b.finalize(descriptor)
        assert b.get_attribute(descriptor, name, kind).elements == text
    descriptor = b.create_descriptor(b.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
    too_long = status_of(b.set_attribute, descriptor, name, kind, count + 1, text)
    assert too_long is Status.BAD_PARAM_SIZE_INSUFFICIENT
    assert status_of(b.set_attribute, descriptor, name, kind, 0, text) is Status.BAD_PARAM
    assert status_of(b.set_attribute, descriptor, name, kind, 1, 5) is Status.BAD_PARAM


# ---- finalizing tensors and operations


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"DIMENSIONS": [2, 0]}, Status.BAD_PARAM),
        ({"STRIDES": [-3, 1]}, Status.BAD_PARAM),
        ({"STRIDES": [1]}, Status.BAD_PARAM_SHAPE_MISMATCH),
        ({"BYTE_ALIGNMENT": [3]}, Status.BAD_PARAM),
        ({"BYTE_ALIGNMENT": [2]}, Status.BAD_PARAM),  # of 4 bytes
        ({"BYTE_ALIGNMENT": [0]}, Status.BAD_PARAM),
        ({"VECTOR_COUNT": [4]}, Status.BAD_PARAM),  # of which dimension?
        ({"VECTOR_COUNT": [8], "VECTORIZED_DIMENSION": [1]}, Status.NOT_SUPPORTED_LAYOUT),
        ({"VECTOR_COUNT": [4], "VECTORIZED_DIMENSION": [2]}, Status.BAD_PARAM_OUT_OF_BOUND),
        ({"VECTOR_COUNT": [4], "VECTORIZED_DIMENSION": [-1]}, Status.BAD_PARAM_OUT_OF_BOUND),
        ({"DATA_TYPE": [b.CUDNN_DATA_INT8x4]}, Status.NOT_SUPPORTED),
        ({"DATA_TYPE": [b.CUDNN_DATA_UINT8x4]}, Status.NOT_SUPPORTED),
        ({"DATA_TYPE": [b.CUDNN_DATA_INT8x32]}, Status.NOT_SUPPORTED),
        ({"DATA_TYPE": [b.CUDNN_DATA_FP4_E2M1]}, Status.NOT_SUPPORTED_DATA_TYPE),
        ({"DATA_TYPE": [b.CUDNN_DATA_FAST_FLOAT_FOR_FP8]}, Status.NOT_SUPPORTED_DATA_TYPE),
        ({"UNIQUE_ID": None}, Status.BAD_PARAM),
        ({"DATA_TYPE": None}, Status.BAD_PARAM),
        ({"BYTE_ALIGNMENT": None}, Status.BAD_PARAM),
        ({"DIMENSIONS": None}, Status.BAD_PARAM),
        ({"STRIDES": None}, Status.BAD_PARAM),
    ],
)
def test_tensors_that_are_refused(changes, status):
    given = {
        "UNIQUE_ID": [1], "DATA_TYPE": [b.CUDNN_DATA_FLOAT], "BYTE_ALIGNMENT": [4],
        "DIMENSIONS": [2, 3], "STRIDES": [3, 1],
    } | changes  # fmt: skip
    kinds = {"DATA_TYPE": b.CUDNN_TYPE_DATA_TYPE}
    rows = [(name_of("TENSOR", n), kinds.get(n, I64), v) for n, v in given.items() if v]
    assert status_of(made, TENSOR, *rows) is status


def test_an_alignment_is_any_multiple_of_the_element():
    x = tensor(1, [4], alignment=12)
    assert b.get_attribute(x, b.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, I64).elements == [12]
    copy = pointwise(b.CUDNN_POINTWISE_IDENTITY, X=x, Y=tensor(2, [4], alignment=8))
    inside = b.operation_graph(graph_of(copy)).ops[0]
    assert (inside.x.alignment, inside.y.alignment) == (4, 8)


def test_an_operation_says_what_does_not_fit():
    a, other, c = tensor(1, [1, 4, 8]), tensor(2, [1, 9, 5]), tensor(3, [1, 4, 5])
    with pytest.raises(DnncError, match="K of A is 8, K of B is 9") as caught:
        matmul(a, other, c)
    assert caught.value.status is Status.BAD_PARAM_SHAPE_MISMATCH
    two = tensor(2, [1, 8, 5])
    assert status_of(matmul, a, two, c, b.CUDNN_DATA_INT32) is Status.NOT_SUPPORTED_DATA_TYPE
    # One uid, two tensors.
    assert status_of(matmul, a, two, tensor(1, [1, 4, 5])) is Status.BAD_PARAM_DUPLICATED_ENTRIES


def test_pointwise_tensors_belong_to_their_mode():
    x, y, z = (tensor(uid, [4, 8]) for uid in (1, 2, 3))
    relu, gradient, add = (
        b.CUDNN_POINTWISE_RELU_FWD, b.CUDNN_POINTWISE_RELU_BWD, b.CUDNN_POINTWISE_ADD,
    )  # fmt: skip

    def status(mode, **tensors):
        return status_of(lambda: pointwise(mode, **tensors))

    assert status(relu, X=x, Y=y) is Status.SUCCESS
    assert status(relu, X=x, B=z, Y=y) is Status.BAD_PARAM
    assert status(relu, X=x) is Status.BAD_PARAM
    assert status(add, X=x, Y=y) is Status.BAD_PARAM
    assert status(add, X=x, B=z, DX=y) is Status.BAD_PARAM
    assert status(gradient, X=x, DY=z, DX=y) is Status.SUCCESS
    assert status(gradient, X=x, B=z, Y=y) is Status.BAD_PARAM
    assert status(gradient, X=x, DX=y) is Status.BAD_PARAM
    assert status(gradient, Y=x, DY=z, DX=y) is Status.SUCCESS
    assert status(gradient, X=x, Y=z, DY=z, DX=y) is Status.BAD_PARAM
    clip = (b.CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, b.CUDNN_TYPE_DOUBLE, [6.0])
    wrong = status_of(lambda: pointwise(add, parameters=[clip], X=x, B=z, Y=y))
    assert wrong is Status.BAD_PARAM


def test_windows_are_of_the_spatial_dims():
    windows = made(
        b.CUDNN_BACKEND_RESAMPLE_DESCRIPTOR,
        (b.CUDNN_ATTR_RESAMPLE_MODE, b.CUDNN_TYPE_RESAMPLE_MODE, [b.CUDNN_RESAMPLE_MAXPOOL]),
        (b.CUDNN_ATTR_RESAMPLE_PADDING_MODE, b.CUDNN_TYPE_PADDING_MODE, [b.CUDNN_NEG_INF_PAD]),
        (b.CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, I64, [2]),
        (b.CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, I64, [2, 2]),
        (b.CUDNN_ATTR_RESAMPLE_STRIDES, b.CUDNN_TYPE_FRACTION, [Fraction(2), (4, 2)]),
        (b.CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, I64, [0, 0]),
        (b.CUDNN_ATTR_RESAMPLE_POST_PADDINGS, I64, [0, 0]),
    )

    def pooled(x, y, *more):
        return made(
            b.CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR,
            (b.CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, D, [windows]),
            (b.CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, D, [tensor(1, x)]),
            (b.CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, D, [tensor(2, y)]),
            *more,
        )

    (op,) = b.operation_graph(graph_of(pooled([2, 3, 8, 8], [2, 3, 4, 4]))).ops
    assert (op.stride, op.window, op.denominator, op.index) == ((2, 2), (2, 2), 1, None)
    # A convolution's tensors may have a dim of groups, a pooling's have not.
    error = status_of(pooled, [2, 3, 3, 8, 8], [2, 3, 3, 4, 4])
    assert error is Status.BAD_PARAM
    added = (b.CUDNN_ATTR_OPERATION_RESAMPLE_FWD_BETA, b.CUDNN_TYPE_FLOAT, [1.0])
    graph = b.operation_graph(graph_of(pooled([2, 3, 8, 8], [2, 3, 4, 4], added)))
    assert [op.title for op in graph.ops] == ["resample:MAXPOOL", "pointwise:add"]
    assert [t.prior_of for t in graph.inputs] == [None, 2]


def test_norms_by_mode_and_phase():
    x, y = tensor(1, [2, 3, 4]), tensor(2, [2, 3, 4])
    scale, epsilon = tensor(3, [1, 3, 4]), tensor(4, [1, 1, 1])

    def norm(mode, *more, phase=b.CUDNN_NORM_FWD_INFERENCE):
        return status_of(
            made,
            b.CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR,
            (b.CUDNN_ATTR_OPERATION_NORM_FWD_MODE, b.CUDNN_TYPE_NORM_MODE, [mode]),
            (b.CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, b.CUDNN_TYPE_NORM_FWD_PHASE, [phase]),
            (b.CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, D, [x]),
            (b.CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, D, [y]),
            (b.CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, D, [scale]),
            *more,
        )

    given = (b.CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, D, [epsilon])
    momentum = (b.CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, D, [epsilon])
    assert norm(b.CUDNN_LAYER_NORM, given) is Status.SUCCESS
    assert norm(b.CUDNN_RMS_NORM, given) is Status.SUCCESS
    assert norm(b.CUDNN_LAYER_NORM) is Status.BAD_PARAM  # no epsilon
    assert norm(b.CUDNN_LAYER_NORM, given, momentum) is Status.BAD_PARAM
    assert norm(b.CUDNN_GROUP_NORM, given) is Status.NOT_SUPPORTED
    training = norm(b.CUDNN_LAYER_NORM, given, phase=b.CUDNN_NORM_FWD_TRAINING)
    assert training is Status.BAD_PARAM  # no statistics


def test_a_graph_is_refused_for_its_operations_and_its_handle():
    x, y = tensor(1, [4]), tensor(2, [4])
    copy = pointwise(b.CUDNN_POINTWISE_IDENTITY, X=x, Y=y)
    assert status_of(graph_of, copy) is Status.SUCCESS
    assert status_of(graph_of, copy, copy) is Status.BAD_PARAM_DUPLICATED_ENTRIES
    handle = dnnc.create_handle()
    assert status_of(lambda: graph_of(copy, handle=handle)) is Status.SUCCESS
    dnnc.destroy_handle(handle)
    assert status_of(lambda: graph_of(copy, handle=handle)) is Status.BAD_PARAM
    assert status_of(lambda: graph_of(copy, handle=5)) is Status.BAD_PARAM
    unfinished = b.create_descriptor(b.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
    assert status_of(graph_of, unfinished) is Status.BAD_PARAM_NOT_FINALIZED
    assert status_of(graph_of, x) is Status.BAD_PARAM_DESCRIPTOR_TYPE
    assert status_of(graph_of) is Status.BAD_PARAM


def test_what_no_engine_reads_of_a_tensor_is_refused_with_the_graph():
    mode = b.CUDNN_TENSOR_REORDERING_F16x16
    kind = b.CUDNN_TYPE_TENSOR_REORDERING_MODE
    reordered = (b.CUDNN_ATTR_TENSOR_REORDERING_MODE, kind, [mode])
    ragged = (b.CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, D, [tensor(9, [3, 1])])
    for more in (reordered, ragged):
        x = tensor(1, [4, 2], None, b.CUDNN_DATA_HALF, more)
        y = tensor(2, [4, 2])
        copy = pointwise(b.CUDNN_POINTWISE_IDENTITY, X=x, Y=y)
        assert status_of(graph_of, copy) is Status.NOT_SUPPORTED_LAYOUT


def test_devices_that_meet_are_told_apart_by_their_handles():
    """A batch norm of two devices: the place among them is the handle's device."""
    dims, ones = [4, 6, 2], [1, 6, 1]
    x, y = tensor(1, dims), tensor(2, dims)
    small = {end: tensor(uid, ones) for uid, end in enumerate(
        ("SCALE_DESC", "BIAS_DESC", "MEAN_DESC", "INV_VARIANCE_DESC"), 3)}  # fmt: skip
    epsilon = tensor(7, [1, 1, 1])
    peers = [tensor(uid, [2, 24, 1]) for uid in (8, 9)]
    prefix = "OPERATION_NORM_FWD"
    norm = made(
        b.CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR,
        (name_of(prefix, "MODE"), b.CUDNN_TYPE_NORM_MODE, [b.CUDNN_BATCH_NORM]),
        (name_of(prefix, "PHASE"), b.CUDNN_TYPE_NORM_FWD_PHASE, [b.CUDNN_NORM_FWD_TRAINING]),
        (name_of(prefix, "XDESC"), D, [x]),
        (name_of(prefix, "YDESC"), D, [y]),
        (name_of(prefix, "EPSILON_DESC"), D, [epsilon]),
        (name_of(prefix, "PEER_STAT_DESCS"), D, peers),
        *((name_of(prefix, end), D, [value]) for end, value in small.items()),
    )
    for rank in (0, 1):
        graph = graph_of(norm, handle=dnnc.create_handle(rank))
        assert b.operation_graph(graph).ops[0].peer_rank == rank
    assert status_of(lambda: graph_of(norm)) is Status.BAD_PARAM
    assert status_of(lambda: graph_of(norm, handle=dnnc.create_handle())) is Status.BAD_PARAM
    assert status_of(lambda: graph_of(norm, handle=dnnc.create_handle(2))) is Status.BAD_PARAM
