"""moe_grouped_matmul by engine matmul_sm90, in the interpreter."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.fusion import partition
from dnnc.engines import ENGINES
from dnnc.target import of
from tests.support.checked import check, random_inputs

from ..elementwise.test_pointwise import new_graph
from .test_grouped_matmul import OFFSETS, T, operands
from .test_matmul_sm90 import SMALL, TALL


def graph_of(io, **options):
    return new_graph(io, target="sm_90a", **options)


def run(g, first, sizes=None, knobs=SMALL, **options):
    graph = g.graph.finalize()
    inputs = random_inputs(graph, sizes or {})
    inputs[graph.tensor("first").uid] = np.array(first, np.int32).reshape(-1, 1, 1)
    return check(
        g, sizes, inputs=inputs, engine="matmul_sm90", knobs=knobs, target="sm_90a", **options
    )


@pytest.mark.rotating
@pytest.mark.parametrize("first", OFFSETS.values(), ids=OFFSETS.keys())
@pytest.mark.parametrize("scale", [1, 11])
def test_offsets(first, scale):
    """Groups of a part of a tile, and of several tiles."""
    g = graph_of(dtypes.bf16)
    g.moe_grouped_matmul(*operands(g, 13 * scale, 4, 72, 72)).set_output()
    run(g, [scale * row for row in first])


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("io", [dtypes.f16, dtypes.f32, dtypes.f8e4m3], ids=str)
@pytest.mark.parametrize("layout", ["row", "column"])
def test_types_and_layouts_of_weights(io, layout):
    g = graph_of(io)
    token, weight, first = operands(g, 70, 3, 136, 80)
    if layout == "row":
        weight.set_stride([136 * 80, 80, 1])
    y = g.moe_grouped_matmul(token, weight, first).set_output()
    y.set_data_type(dtypes.f32)
    allowance = {"f16": 2.0**-18, "f32": 2.0**-10}.get(io.name, 2.0**-11)
    run(g, [0, 20, 60], allowance=allowance)


@pytest.mark.in_turn
def test_tall_tiles_of_which_half_have_no_rows():
    g = graph_of(dtypes.f16)
    g.moe_grouped_matmul(*operands(g, 300, 3, 64, 128)).set_output()
    run(g, [0, 40, 240], knobs={**TALL, "TILE_N": 128})


@pytest.mark.in_turn
def test_more_experts_than_lanes():
    g = graph_of(dtypes.f16)
    g.moe_grouped_matmul(*operands(g, 150, 70, 16, 16)).set_output()
    rng = np.random.default_rng(5)
    first = np.sort(rng.integers(0, 150, 70))
    first[0] = 0
    run(g, first)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("swap", [0, 1])
def test_clusters(cluster, swap):
    """A block of a cluster may have no rows of the group."""
    knobs = {**SMALL, "TILE_CGA_M": cluster[0], "TILE_CGA_N": cluster[1], "SWAP_AB": swap}
    g = graph_of(dtypes.f16)
    g.moe_grouped_matmul(*operands(g, 200, 3, 72, 192)).set_output()
    run(g, [0, 30, 110], knobs=knobs)


PAIRS = {**SMALL, "TILE_CGA_M": 2}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("n", [64, 128, 136, 200])
@pytest.mark.parametrize("io", [dtypes.bf16, dtypes.f32], ids=str)
def test_pairs_of_tiles(n, io):
    """Groups of 0 to 5 tiles of rows; the last one of an odd number lies beside another column's,
    or, of an odd number of columns, beside none."""
    g = graph_of(io)
    g.moe_grouped_matmul(*operands(g, 64 * 11 - 20, 6, 72, n)).set_output()
    run(g, [0, 3, 3, 195, 323, 640], knobs=PAIRS, allowance=2.0**-10 if io == dtypes.f32 else 0.0)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("layout", ["row", "column"])
@pytest.mark.parametrize("k", [64, 30])
def test_pairs_of_sizes_known_at_run_time(layout, k):
    """With unaligned rows each block fetches its own operands."""
    g = graph_of(dtypes.f16)
    token, weight, first = operands(g, T, dnnc.Dim("E", max=64), k, 72)
    if layout == "row":
        weight.set_stride([k * 72, 72, 1])
    y = g.moe_grouped_matmul(token, weight, first)
    g.add(y, g.tensor([1, T, 72])).set_output()
    knobs = {**PAIRS, "TILE_N": 128}
    plan = run(g, [0, 2, 70], {"T": 290, "E": 3}, knobs=knobs)
    run(g, [0], {"T": 1, "E": 1}, plan=plan)
    run(g, [0, 1, 1, 65, 130], {"T": 330, "E": 5}, plan=plan)


@pytest.mark.in_turn
def test_pairs_of_large_tiles_with_a_gated_pair():
    g = graph_of(dtypes.bf16)
    token, gate, first = operands(g, 500, 3, 64, 200)
    up = g.tensor([3, 64, 200], [64 * 200, 1, 64])
    gated = g.swish(g.moe_grouped_matmul(token, gate, first))
    g.mul(gated, g.moe_grouped_matmul(token, up, first)).set_output()
    run(g, [0, 30, 260], knobs={**TALL, "TILE_M": 128, "TILE_N": 96, "TILE_CGA_M": 2}, slack=3.0)


@pytest.mark.in_turn
def test_pairs_of_tokens_whose_rows_are_contiguous():
    """Each block fetches its own."""
    g = graph_of(dtypes.f16)
    _, weight, first = operands(g, 200, 3, 64, 72)
    token = g.tensor([1, 200, 64], [200 * 64, 1, 200])
    g.moe_grouped_matmul(token, weight, first).set_output()
    run(g, [0, 5, 50], knobs=PAIRS)


@pytest.mark.in_turn
def test_pairs_of_more_rows_than_follow_each_other():
    """Where pairs along the rows end with a run of `SWIZZLE`, the next number lies across."""
    g = graph_of(dtypes.f16)
    g.moe_grouped_matmul(*operands(g, 64 * 9 + 70, 2, 64, 136)).set_output()
    run(g, [0, 64 * 9 - 10], knobs={**PAIRS, "SWIZZLE": 512})


@pytest.mark.rotating
@pytest.mark.parametrize("columns", [8, 32])
def test_few_rows_of_an_expert_swapped(columns):
    g = graph_of(dtypes.bf16)
    g.moe_grouped_matmul(*operands(g, 21, 5, 64, 72)).set_output()
    run(g, [0, 3, 3, 4, 15], knobs={**SMALL, "TILE_M": columns, "SWAP_AB": 1})


@pytest.mark.in_turn
def test_split_k():
    g = graph_of(dtypes.f16)
    g.moe_grouped_matmul(*operands(g, 150, 3, 256, 64)).set_output()
    run(g, [0, 3, 90], knobs={**TALL, "SPLIT_K_SLC": 2})


@pytest.mark.in_turn
@pytest.mark.parametrize("k", [64, 30])
def test_sizes_known_at_run_time(k):
    """One plan; with unaligned rows, the operands go through registers."""
    experts = dnnc.Dim("E", max=64)
    g = graph_of(dtypes.bf16)
    g.moe_grouped_matmul(*operands(g, T, experts, k, 64)).set_output()
    plan = run(g, [0, 2, 70], {"T": 90, "E": 3})
    run(g, [0], {"T": 1, "E": 1}, plan=plan)
    run(g, [0, 1, 1, 65, 130], {"T": 131, "E": 5}, plan=plan)


@pytest.mark.in_turn
def test_rows_that_begin_anywhere_are_read_within_the_tensor():
    """Behind g1 a tile's rows are clamped to the tensor, though their number is whole tiles."""
    g = graph_of(dtypes.f16)
    token, weight, first = operands(g, 128, 3, 64, 64)
    scaled = g.mul(token, g.tensor([1, 128, 1])).set_data_type(dtypes.f16)
    g.moe_grouped_matmul(scaled, weight, first).set_output()
    run(g, [0, 33, 101])


@pytest.mark.in_turn
def test_tokens_whose_rows_are_contiguous():
    g = graph_of(dtypes.f16)
    _, weight, first = operands(g, 96, 3, 64, 64)
    token = g.tensor([1, 96, 64], [96 * 64, 1, 96])
    g.moe_grouped_matmul(token, weight, first).set_output()
    run(g, [0, 5, 50])
    g = graph_of(dtypes.f16)
    _, weight, first = operands(g, 96, 3, 64, 64)
    token = g.relu(g.tensor([1, 96, 64], [96 * 64, 1, 96])).set_data_type(dtypes.f16)
    g.moe_grouped_matmul(token, weight, first).set_output()
    run(g, [0, 5, 50])


@pytest.mark.in_turn
@pytest.mark.parametrize("swap", [0, 1])
def test_operations_before_and_after(swap):
    g = graph_of(dtypes.f16)
    token, weight, first = operands(g, T, 3, 64, 64)
    weight.set_data_type(dtypes.i8)
    scaled = g.mul(weight, g.tensor([3, 1, 64])).set_data_type(dtypes.f16)
    shifted = g.add(first, 1, compute_data_type=dtypes.i32).set_data_type(dtypes.i32)
    first = g.sub(shifted, 1, compute_data_type=dtypes.i32).set_data_type(dtypes.i32)
    y = g.moe_grouped_matmul(g.relu(token).set_data_type(dtypes.f16), scaled, first)
    y = g.add(g.add(y, g.tensor([1, 1, 64])), g.tensor([1, T, 64]))
    g.swish(y).set_output().set_data_type(dtypes.f32)
    y.set_output()
    # swish reads y as it is stored: another order of sums may round it to its neighbour.
    run(g, [0, 40, 40], {"T": 90}, knobs={**SMALL, "SWAP_AB": swap}, allowance=2.0**-10)


@pytest.mark.in_turn
@pytest.mark.parametrize("swap", [0, 1])
def test_residuals_whose_rows_are_contiguous(swap):
    g = graph_of(dtypes.f16)
    y = g.moe_grouped_matmul(*operands(g, 96, 3, 64, 64))
    g.add(y, g.tensor([1, 96, 64], [96 * 64, 1, 96])).set_output()
    run(g, [0, 5, 50], knobs={**SMALL, "SWAP_AB": swap})


def test_one_row_of_an_output_with_gaps():
    """The stride of an axis of 1 is never taken, and may be anything."""
    g = graph_of(dtypes.f16)
    y = g.moe_grouped_matmul(*operands(g, 1, 2, 64, 64)).set_output()
    y.set_dim([1, 1, 64]).set_stride([4096, 4096, 1])
    run(g, [0, 0])


@pytest.mark.in_turn
def test_residuals_are_loaded_ahead():
    g = graph_of(dtypes.f16)
    y = g.moe_grouped_matmul(*operands(g, 250, 3, 64, 128))
    g.add(y, g.tensor([1, 250, 128])).set_output()
    plan = run(g, [0, 40, 140], knobs={**TALL, "TILE_N": 128})
    maps = [arg for arg in plan.programs[0].variants[0].steps[0].launch.args if arg.tensor_map]
    assert len({arg.tensor_map.uid for arg in maps}) == 4


@pytest.mark.in_turn
@pytest.mark.feature
def test_a_gated_pair():
    g = graph_of(dtypes.bf16)
    token, gate, first = operands(g, 100, 3, 64, 64)
    up = g.tensor([3, 64, 64], [64 * 64, 1, 64])
    gated = g.swish(g.moe_grouped_matmul(token, gate, first))
    g.mul(gated, g.moe_grouped_matmul(token, up, first)).set_output()
    run(g, [0, 30, 64], slack=3.0)


def test_nothing_is_written_past_an_expert():
    """Rows of other experts keep what they hold: each is written by its own tile only."""
    g = graph_of(dtypes.f16)
    y = g.moe_grouped_matmul(*operands(g, 140, 2, 64, 64)).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    inputs[graph.tensor("first").uid] = np.array([0, 70]).reshape(2, 1, 1)
    inputs[graph.tensor("weight").uid][0] = np.nan
    expected = dnnc.reference(graph, inputs)[y.uid]
    assert np.isnan(expected).all(axis=(0, 2)).tolist() == [True] * 70 + [False] * 70
    check(g, inputs=inputs, engine="matmul_sm90", knobs=SMALL, target="sm_90a")


# ---- refusals


def reasons_of(g):
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    engine = next(e for e in ENGINES if e.name == "matmul_sm90")
    return [f"{reason}" for reason in engine.supports(whole, of("sm_90a"))]


def test_reductions_after_a_grouped_product_are_refused():
    g = graph_of(dtypes.f16)
    y = g.moe_grouped_matmul(*operands(g, 64, 2, 64, 64), name="experts")
    g.reduction(y, mode=dnnc.reduction_mode.AMAX).set_output().set_dim([1, 1, 1])
    assert any("after a grouped product" in reason for reason in reasons_of(g))


def test_more_experts_than_the_table_holds_are_refused():
    g = graph_of(dtypes.f16)
    g.moe_grouped_matmul(*operands(g, 64, 1025, 16, 16)).set_output()
    assert any("at most 1024" in reason for reason in reasons_of(g))


def test_products_of_other_offsets_are_refused():
    g = graph_of(dtypes.f16)
    token, weight, first = operands(g, 64, 2, 64, 64)
    other = g.tensor([2, 1, 1], data_type=dtypes.i32)
    y = g.moe_grouped_matmul(token, weight, first)
    g.mul(y, g.moe_grouped_matmul(token, weight, other)).set_output()
    assert any("of the same offsets" in reason for reason in reasons_of(g))


@pytest.mark.in_turn
def test_a_product_that_the_next_one_reads():
    """Two kernels; rows of the first one's result lie in the workspace, which begins elsewhere."""
    g = graph_of(dtypes.f16)
    token, up, first = operands(g, 70, 3, 80, 72)
    hidden = g.relu(g.moe_grouped_matmul(token, up, first)).set_data_type(dtypes.f16)
    down = g.tensor([3, 72, 64], [72 * 64, 1, 72])
    g.moe_grouped_matmul(hidden, down, first).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    inputs[graph.tensor("first").uid] = np.array([0, 20, 60], np.int32).reshape(-1, 1, 1)
    plan = check(g, {}, inputs=inputs, target="sm_90a", slack=2.0)
    assert [fusion.engine for fusion in plan.programs[0].fusions] == ["matmul_sm90"] * 2


@pytest.mark.in_turn
def test_short_rows_of_a_second_output_are_stored_by_threads():
    """TMA takes 128-byte addresses in shared memory: a row of 32 bytes begins at any 32 of them."""
    g = graph_of(dtypes.f16)
    y = g.moe_grouped_matmul(*operands(g, 140, 3, 64, 64))
    y.set_data_type(dtypes.f32).set_output()
    g.identity(y).set_data_type(dtypes.f8e4m3).set_output()
    run(g, [0, 45, 108], knobs={**SMALL, "TILE_N": 64}, slack=3.0)
