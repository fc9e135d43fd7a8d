"""Engine matmul_sm80 in the interpreter: types, layouts, edges, tiles, g1 and g2."""

import itertools

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.engines.product.knobs_sm80 import WARPS
from tests.support.checked import check, random_inputs

M = dnnc.Dim("M", max=4096)
TYPES = {"f16": dtypes.f16, "bf16": dtypes.bf16, "tf32": dtypes.f32, "i8": dtypes.i8}


def new_graph(operand, **options):
    integers = operand.is_integer
    defaults = {
        "io_data_type": operand,
        "intermediate_data_type": dtypes.i32 if integers else dtypes.f32,
        "compute_data_type": dtypes.i32 if integers else dtypes.f32,
        "target": "sm_80",
    }
    return dnnc.pygraph("matmul", **{**defaults, **options})


def strides(rows, columns, layout, pad=0):
    """Row-major, column-major, or with gaps along both axes."""
    if layout == "row":
        return [rows * (columns + pad), columns + pad, 1]
    if layout == "column":
        return [columns * (rows + pad), 1, rows + pad]
    return [rows * columns * 4, columns * 4, 2]


def product(operand, m, n, k, layouts=("row", "row"), out="row", pad=0, output=None):
    g = new_graph(operand)
    a = g.tensor([1, m, k], strides(m, k, layouts[0], pad), name="a")
    b = g.tensor([1, k, n], strides(k, n, layouts[1], pad), name="b")
    c = g.matmul(a, b).set_output().set_stride(strides(m, n, out))
    return g, c.set_data_type(output or (dtypes.i32 if operand.is_integer else operand))


def depth_allowance(k):
    return 2.0**-23 * max(1, k / 16) * 4


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("layouts", list(itertools.product(("row", "column"), repeat=2)), ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_types_and_operand_layouts(name, layouts):
    operand = TYPES[name]
    g, _ = product(operand, 40, 72, 56, layouts, output=None if name == "i8" else dtypes.f32)
    check(g, engine="matmul_sm80", knobs={"TILE_M": 32, "TILE_N": 64},
          allowance=depth_allowance(56))  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", TYPES)
def test_odd_sizes_and_no_unit_stride(name):
    """Nothing is aligned: every operand goes through registers, element by element."""
    operand = TYPES[name]
    for layouts in (("row", "row"), ("column", "column"), ("gaps", "gaps")):
        g, _ = product(operand, 37, 45, 29, layouts, output=None if name == "i8" else dtypes.f32)
        check(g, engine="matmul_sm80", knobs={"TILE_M": 32, "TILE_N": 64},
              allowance=depth_allowance(29))  # fmt: skip


@pytest.mark.rotating
@pytest.mark.parametrize("pad", [2, 4, 8])
def test_alignments_between_copies_and_registers(pad):
    g, _ = product(dtypes.f16, 33, 40, 24, pad=pad)
    plan = check(g, engine="matmul_sm80", knobs={"TILE_M": 32, "TILE_N": 64})
    ptx = plan.blobs[1].decode()
    width = {2: 4, 4: 8, 8: 16}[pad]
    assert "shared.global [%rd" in ptx
    assert f"], {width}" in ptx


@pytest.mark.rotating
@pytest.mark.parametrize("tile", WARPS, ids=str)
def test_every_tile(tile):
    g, _ = product(dtypes.f16, tile[0] + 3, tile[1] + 8, 72, output=dtypes.f32)
    knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "TILEK": 32, "STAGES": 3}
    check(g, engine="matmul_sm80", knobs=knobs, allowance=depth_allowance(72))


@pytest.mark.rotating
@pytest.mark.parametrize(("depth", "stages"), [(32, 2), (32, 6), (64, 2), (64, 3)])
@pytest.mark.parametrize("k", [8, 64, 200])
def test_depths_and_stages(depth, stages, k):
    g, _ = product(dtypes.bf16, 32, 64, k)
    knobs = {"TILE_M": 32, "TILE_N": 64, "TILEK": depth, "STAGES": stages}
    check(g, engine="matmul_sm80", knobs=knobs)


@pytest.mark.rotating
@pytest.mark.parametrize("out", ["row", "column", "gaps"])
def test_output_layouts(out):
    g, _ = product(dtypes.f16, 40, 72, 32, out=out)
    check(g, engine="matmul_sm80", knobs={"TILE_M": 32, "TILE_N": 64})


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("a_batch", "b_batch"), [([3], [3]), ([1], [3]), ([3], [1]), ([2, 1], [1, 3]), ([2, 3], [1, 1])]
)
def test_batches_and_broadcast_batches(a_batch, b_batch):
    g = new_graph(dtypes.f16)
    a, b = g.tensor([*a_batch, 20, 24]), g.tensor([*b_batch, 24, 40])
    g.matmul(a, b).set_output()
    check(g, engine="matmul_sm80", knobs={"TILE_M": 32, "TILE_N": 64})


@pytest.mark.rotating
@pytest.mark.parametrize("m", [1, 2, 31, 32, 33, 64, 100])
def test_one_plan_serves_every_size(m):
    g = new_graph(dtypes.f16)
    x, w = g.tensor([1, M, 40], name="x"), g.tensor([1, 40, 72])
    g.matmul(x, w).set_output()
    check(g, {"M": m}, engine="matmul_sm80", knobs={"TILE_M": 32, "TILE_N": 64})


@pytest.mark.in_turn
@pytest.mark.parametrize("products", [1, 3])
def test_f32_as_tf32(products):
    g, _ = product(dtypes.f32, 33, 40, 96)
    tolerance = {3: depth_allowance(96), 1: 2.0**-11}[products]
    knobs = {"TILE_M": 32, "TILE_N": 64, "TF32": products}
    plan = check(g, engine="matmul_sm80", knobs=knobs, allowance=tolerance)
    noted = "DOWN_CONVERT_INPUTS" in plan.programs[0].fusions[0].notes
    assert noted == (products == 1)


def test_tf32_is_never_chosen_silently():
    g, _ = product(dtypes.f32, 256, 256, 256)
    g.build_operation_graph()
    g.create_execution_plans()
    notes = [config.notes for config in g._plans.configs]
    assert "DOWN_CONVERT_INPUTS" not in notes[0]
    assert any("DOWN_CONVERT_INPUTS" in n for n in notes)


def test_infinities_and_nan_pass_through_split_products():
    g, _ = product(dtypes.f32, 32, 64, 32)
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    a = inputs[graph.tensor("a").uid]
    a[0, 0, 0], a[0, 1, 1], a[0, 2, 2], a[0, 3, 3] = np.inf, -np.inf, np.nan, 3.4e38
    b = inputs[graph.tensor("b").uid]
    b[0, 3] = np.float32(0.25)
    check(g, engine="matmul_sm80", knobs={"TILE_M": 32, "TILE_N": 64, "TF32": 3},
          inputs=inputs, allowance=1e-5)  # fmt: skip


# ---- g1 and g2


@pytest.mark.feature
def test_bias_gelu_residual_and_two_outputs():
    g = new_graph(dtypes.f16)
    x, w = g.tensor([1, M, 48]), g.tensor([1, 48, 72])
    bias, residual = g.tensor([1, 1, 72]), g.tensor([1, M, 72])
    product_ = g.matmul(x, w)
    biased = g.bias(product_, bias).set_output().set_data_type(dtypes.f32)
    g.add(g.gelu(biased), residual).set_output()
    check(g, {"M": 21}, engine="matmul_sm80", knobs={"TILE_M": 32, "TILE_N": 64}, slack=3.0)


@pytest.mark.in_turn
def test_product_used_twice_and_column_broadcasts():
    g = new_graph(dtypes.bf16)
    x, w = g.tensor([2, 40, 48]), g.tensor([1, 48, 64])
    row, batch = g.tensor([1, 40, 1]), g.tensor([2, 1, 1])
    c = g.matmul(x, w)
    g.mul(g.add(c, row), g.sigmoid(g.mul(c, batch))).set_output()
    check(g, engine="matmul_sm80", knobs={"TILE_M": 32, "TILE_N": 64}, slack=3.0)


@pytest.mark.rotating
@pytest.mark.parametrize("layout", ["row", "column"])
def test_weights_of_8_bits_are_dequantised_on_the_way(layout):
    g = new_graph(dtypes.f16)
    x = g.tensor([1, 24, 64])
    w = g.tensor([1, 64, 48], strides(64, 48, layout), data_type=dtypes.i8)
    scale = g.tensor([1, 1, 48])
    wide = g.mul(w, scale).set_data_type(dtypes.f16)
    g.matmul(x, wide).set_output()
    plan = check(g, knobs={"TILE_M": 32, "TILE_N": 64}, engine="matmul_sm80")
    assert len(plan.programs[0].variants[0].steps) == 1


@pytest.mark.in_turn
def test_operand_a_behind_a_graph_with_broadcasts():
    g = new_graph(dtypes.bf16)
    x, w = g.tensor([1, M, 40]), g.tensor([1, 40, 64])
    scale, shift = g.tensor([1, M, 1]), g.tensor([1, 1, 40])
    a = g.relu(g.add(g.mul(x, scale), shift)).set_data_type(dtypes.bf16)
    g.matmul(a, w).set_output()
    check(g, {"M": 35}, engine="matmul_sm80", knobs={"TILE_M": 32, "TILE_N": 64}, slack=3.0)


def test_transposed_and_sliced_operands():
    g = new_graph(dtypes.f16)
    x, w = g.tensor([1, 64, 40]), g.tensor([1, 96, 48])
    a = g.transpose(x, [0, 2, 1])
    b = g.slice(w, [slice(None), slice(16, 80), slice(None)])
    g.matmul(a, b).set_output()
    check(g, engine="matmul_sm80", knobs={"TILE_M": 32, "TILE_N": 64})


@pytest.mark.in_turn
def test_int8_with_scales_to_int8():
    g = new_graph(dtypes.i8)
    x, w = g.tensor([1, 40, 64]), g.tensor([1, 64, 48])
    scale = g.tensor([1, 1, 48], data_type=dtypes.f32)
    c = g.matmul(x, w)
    g.mul(c, scale, compute_data_type=dtypes.f32).set_output().set_data_type(dtypes.i8)
    check(g, engine="matmul_sm80", knobs={"TILE_M": 32, "TILE_N": 64})


# ---- refusals


def refusal(g, clause):
    with pytest.raises(dnnc.DnncError) as caught:
        check(g, engine="matmul_sm80")
    assert clause in caught.value.what
    return caught.value


def test_refusals_name_the_clause():
    g = new_graph(dtypes.f16)
    a, b = g.tensor([1, 8, 8]), g.tensor([1, 8, 8], data_type=dtypes.bf16)
    g.matmul(a, b).set_output()
    refusal(g, "operand types")
    g = new_graph(dtypes.i8)
    g.matmul(g.tensor([8, 8]), g.tensor([8, 8]), compute_data_type=dtypes.f32).set_output()
    refusal(g, "compute type")
    g = new_graph(dtypes.f16)
    c = g.matmul(g.tensor([1, 8, 8]), g.tensor([1, 8, 8]))
    g.softmax(c).set_output()
    refusal(g, "operations")


def test_knobs_are_checked():
    g, _ = product(dtypes.f16, 64, 64, 64)
    for knobs, what in (
        ({"TILE_M": 48}, "knob TILE_M=48"),
        ({"TILE_M": 256, "TILE_N": 256}, "tile 256x256"),
        ({"SPLITS": 2}, "no knob SPLITS"),
        ({"TILEK": 32, "TF32": 3}, "no knob TF32"),
        ({"TILE_M": 128, "TILE_N": 256, "STAGES": 6, "TILEK": 64}, "shared memory"),
    ):
        with pytest.raises(dnnc.DnncError, match=what):
            check(g, engine="matmul_sm80", knobs=knobs)
