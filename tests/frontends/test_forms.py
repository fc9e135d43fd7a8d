"""Forms in which a call may give what it means, and errors as soon as they are known."""

import ml_dtypes
import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.errors import DnncError
from dnnc.frontends import enums


def new_graph(**options):
    return dnnc.pygraph("forms", **({"io_data_type": "f32"} | options))


class TorchDtype:
    """A data type that is shown as torch's are; torch itself is not needed."""

    def __init__(self, name):
        self.name_ = name

    def __repr__(self):
        return f"torch.{self.name_}"


# ---- data types


@pytest.mark.parametrize(
    ("given", "row"),
    [
        (np.float16, dtypes.f16), (np.dtype("int8"), dtypes.i8), (np.bool_, dtypes.i1),
        (bool, dtypes.i1), (ml_dtypes.bfloat16, dtypes.bf16),
        (np.dtype(ml_dtypes.float8_e4m3fn), dtypes.f8e4m3), (TorchDtype("float16"), dtypes.f16),
        (TorchDtype("bfloat16"), dtypes.bf16), (TorchDtype("float8_e5m2"), dtypes.f8e5m2),
        (TorchDtype("bool"), dtypes.i1), ("half", dtypes.f16), ("Float", dtypes.f32),
        ("fp8_E4m3", dtypes.f8e4m3), ("float64", dtypes.f64), ("UINT8", dtypes.ui8),
        (float, None), (int, None), ("float128", None),
    ],
    ids=str,
)  # fmt: skip
def test_data_types(given, row):
    g = new_graph()
    if row is None:
        with pytest.raises(DnncError, match="is not a data type"):
            g.tensor([2], data_type=given)
        return
    y = g.identity(g.tensor([2], data_type=given)).set_data_type(given)
    assert g.tensor_scalar(1, data_type=given).get_data_type() == row
    assert y.get_data_type() == row
    assert new_graph(io_data_type=given, intermediate_data_type=given).graph.io_type == row


def test_compute_types():
    g = new_graph(compute_data_type=np.float64)
    a, b = g.tensor([4, 4]), g.tensor([4, 4])
    g.matmul(a, b)
    g.matmul(a, b, compute_data_type=TorchDtype("float32"))
    assert [op.compute_type for op in g.graph.ops] == [dtypes.f64, dtypes.f32]


# ---- names of modes, in any case of letters


@pytest.mark.parametrize(
    ("build", "attribute", "value"),
    [
        (lambda g, x: g.reduction(x, "ADD"), "mode", "add"),
        (lambda g, x: g.reduction(x, enums.reduction_mode.AMAX), "mode", "amax"),
        (lambda g, x: g.reduction(x, "Mul_No_Zeros"), "mode", "mul_no_zeros"),
        (lambda g, x: g.resample(x, "maxpool", [0, 0], [0, 0], [2, 2], [2, 2]),
         "resample_mode", "MAXPOOL"),
        (lambda g, x: g.resample(x, "avgpool_include_padding", 0, 0, 2, 2, "zero_pad"),
         "padding_mode", "ZERO_PAD"),
        (lambda g, x: g.conv_fprop(x, x, convolution_mode="convolution"),
         "convolution_mode", "CONVOLUTION"),
        (lambda g, x: g.reshape(x, "logical"), "reshape_mode", "LOGICAL"),
        (lambda g, x: g.softmax(x, algorithm="fast"), "algorithm", "FAST"),
        (lambda g, x: g.rng(1, 0, "uniform", dim=[4], uniform_minimum=0.0, uniform_maximum=1.0),
         "distribution", "UNIFORM"),
        (lambda g, x: g.layernorm("training", x, x, x, 1e-5), "norm_forward_phase", "TRAINING"),
    ],
)  # fmt: skip
def test_names_in_any_case(build, attribute, value):
    g = new_graph()
    build(g, g.tensor([2, 4, 8, 8]))
    assert getattr(g.graph.ops[-1], attribute) == value


def test_other_names_in_any_case():
    g = new_graph(target="sm_80")
    assert g.tensor_scalar(1.0, "runtime_param").is_by_value
    assert not g.tensor_scalar(1.0, "Compile_Time_Const").is_by_value
    assert g.tensor([16, 16], reordering_type="f16X16").reordering == "F16x16"
    assert g.tensor([16, 16]).set_reordering_type("int8x32").reordering == "INT8x32"
    assert enums.modes_of(["a", "fallback"]) == ("A", "FALLBACK")
    assert enums.build_all_of("all")
    g.relu(g.tensor([16])).set_output()
    g.build_operation_graph()
    g.create_execution_plans(["a"])
    g.deselect_numeric_notes(["tensor_core"])


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda g: g.tensor_scalar(1.0, "constant"), "scalar_type='constant'; accepted: RUNTIME"),
        (lambda g: enums.build_all_of("some"), "policy='some'"),
        (lambda g: enums.modes_of(["C"]), "heuristic mode 'C'"),
    ],
)
def test_names_of_nothing(build, said):
    g = new_graph()
    with pytest.raises(DnncError, match=said):
        build(g)


def test_a_mode_that_there_is_not():
    g = new_graph()
    g.reduction(g.tensor([2, 2]), "sum").set_dim([2, 1]).set_output()
    with pytest.raises(DnncError, match="mode='sum'; accepted: add, mul"):
        g.validate()


# ---- numbers for all spatial axes


def test_one_number_is_that_of_each_spatial_axis():
    g = new_graph()
    x, w = g.tensor([2, 4, 9, 8]), g.tensor([8, 4, 3, 3])
    g.conv_fprop(x, w, padding=1, stride=2, dilation=1)
    g.conv_fprop(x, w, pre_padding=2, post_padding=0)
    g.resample(x, "MAXPOOL", 0, 1, 2, np.int64(3))
    volume = g.tensor([2, 4, 9, 8, 7])
    g.resample(volume, "AVGPOOL_EXCLUDE_PADDING", 1, 1, 2, (3, 1, 3))
    a, b, c, d = g.graph.ops
    assert (a.pre_padding, a.post_padding, a.stride, a.dilation) == ((1, 1), (1, 1), (2, 2), (1, 1))
    assert (b.pre_padding, b.post_padding) == ((2, 2), (0, 0))
    assert (c.pre_padding, c.post_padding, c.stride, c.window) == ((0, 0), (1, 1), (2, 2), (3, 3))
    assert (d.stride, d.window) == ((2, 2, 2), (3, 1, 3))


# ---- slices


def test_a_slice_of_dims_that_are_not_known_yet():
    g = new_graph()
    made = g.reshape(g.tensor([4, 6], name="x"), name="flat")
    said = "dims of tensor 'flat::OUT_0' are not known yet; accepted: set_dim on it first"
    with pytest.raises(DnncError, match=said):
        g.slice(made, [slice(0, 3)])
    made.set_dim([24])
    assert g.slice(made, [slice(-3, None)]).get_dim() == [3]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (slice(None, None, -1), "slice ::-1 of axis 0: step -1; accepted: a step of at least 1"),
        (slice(6, 2), "slice 6:2 of axis 0: no element; accepted: at least one of the axis's 8"),
        (slice(-1, 0, 2), "slice -1:0:2 of axis 0: no element"),
        (slice(9, None), "slice 9: of axis 0: no element"),
    ],
)
def test_a_slice_that_is_refused_is_named_as_it_was_given(given, said):
    g = new_graph()
    with pytest.raises(DnncError, match=said):
        g.slice(g.tensor([8, 4]), [given])


def test_a_slice_from_the_end_of_a_symbolic_axis():
    g = new_graph()
    with pytest.raises(DnncError, match="slice -3: of axis 1: a negative bound"):
        g.slice(g.tensor([8, dnnc.Dim("n")]), [slice(None), slice(-3, None)])


# ---- shapes that can't fit


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda g, t: g.matmul(t("a", 4, 8), t("b", 7, 8), name="qk"),
         r"matmul 'qk' \(C2\) of A 'a' \[4, 8\], B 'b' \[7, 8\]: K of A is 8, K of B is 7"),
        (lambda g, t: g.matmul(t("a", 2, 4, 8), t("b", 3, 8, 8)), "batch dim 0 of tensor 'a'"),
        (lambda g, t: g.add(t("a", 4, 8), t("b", 4, 7)), "dim 1 of tensor 'b' is 7, not 8"),
        (lambda g, t: g.add(t("a", 4, 8), t("b", 7)), "dim 0 of tensor 'b' is 7, not 8"),
        (lambda g, t: g.conv_fprop(t("x", 1, 4, 8, 8), t("w", 8, 5, 3, 3)),
         r"image 'x' \[1, 4, 8, 8\], weight 'w' \[8, 5, 3, 3\]: C = 4"),
        (lambda g, t: g.concatenate([t("a", 4, 8), t("b", 4, 7)], axis=0), "tensor 'b' has dims"),
        (lambda g, t: g.matmul(g.relu(t("a", 4, 8)), t("b", 7, 8)), "K of A is 8, K of B is 7"),
        (lambda g, t: g.layernorm("INFERENCE", t("x", 4, 8), t("s", 1, 7), t("b", 1, 8), 1e-5),
         r"scale has dims \[1, 7\]"),
    ],
)  # fmt: skip
def test_shapes_that_can_not_fit_are_refused_by_the_call(build, said):
    g = new_graph()
    with pytest.raises(DnncError, match=said):
        build(g, lambda name, *dims: g.tensor(dims, name=name))
    assert not [op for op in g.graph.ops if op.title in ("matmul", "pointwise:add")]


def test_what_may_be_set_later_is_not_refused():
    g = new_graph()
    x, w = g.tensor([4, 8], data_type="i8"), g.tensor([8, 4])
    made = g.reshape(x)
    y = g.matmul(made, w).set_output()  # dims of an operand, then types
    made.set_dim([2, 16])
    w.set_dim([16, 4]).set_stride([4, 1])
    x.set_data_type("f32")
    g.validate()
    assert y.get_dim() == [2, 4]


# ---- symbols


def test_one_bound_of_a_symbol_is_named():
    with pytest.raises(DnncError, match=r"accepted: Dim\('n', max=4096\)"):
        dnnc.Dim("n", 4096)
    assert dnnc.Dim("n", 1, 4096) == dnnc.Dim("n", max=4096)
    assert dnnc.Dim("n", 4, max=64) == dnnc.Dim("n", min=4, max=64)
    assert (dnnc.Dim("n", min=4).min, dnnc.Dim("n", min=4).max) == (4, 65536)
