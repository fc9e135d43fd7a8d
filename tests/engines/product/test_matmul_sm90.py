"""Engine matmul_sm90 in the interpreter: types, layouts, edges, tiles, clusters, g1 and g2."""

import itertools

import pytest

import dnnc
from dnnc import dtypes
from dnnc.engines.product.epilogue_sm90 import uses_since
from dnnc.engines.product.knobs_sm90 import COLUMNS
from dnnc.errors import cudnnGraphNotSupportedError
from tests.support import multiprocessors
from tests.support.checked import check

from .test_matmul_sm80 import depth_allowance, strides

M = dnnc.Dim("M", max=4096)
TYPES = {
    "f16": dtypes.f16,
    "bf16": dtypes.bf16,
    "tf32": dtypes.f32,
    "i8": dtypes.i8,
    "e4m3": dtypes.f8e4m3,
}
SMALL = {
    "TILE_M": 64, "TILE_N": 64, "STAGES": 2, "TILE_CGA_M": 1, "TILE_CGA_N": 1, "SWAP_AB": 0,
    "SPLIT_K_SLC": 1, "WARP_SPEC_CFG": 1, "SWIZZLE": 2048,
}  # fmt: skip
TALL = {**SMALL, "TILE_M": 128}


def allowance(name, k):
    """Beside the output's rounding: of tf32 operands, and of the sums.

    Sums of fp8 products keep some 14 bits within the 128 products before they are promoted.
    """
    return {"tf32": 2.0**-10, "e4m3": 2.0**-11}.get(name, depth_allowance(k))


def new_graph(operand, **options):
    integers = operand.is_integer
    defaults = {
        "io_data_type": operand,
        "intermediate_data_type": dtypes.i32 if integers else dtypes.f32,
        "compute_data_type": dtypes.i32 if integers else dtypes.f32,
        "target": "sm_90a",
    }
    return dnnc.pygraph("matmul", **{**defaults, **options})


def product(operand, m, n, k, layouts=("row", "column"), out="row", output=None, pad=0):
    g = new_graph(operand)
    a = g.tensor([1, m, k], strides(m, k, layouts[0], pad), name="a")
    b = g.tensor([1, k, n], strides(k, n, layouts[1], pad), name="b")
    c = g.matmul(a, b).set_output().set_stride(strides(m, n, out))
    return g, c.set_data_type(output or (dtypes.i32 if operand.is_integer else operand))


def run(g, sizes=None, knobs=SMALL, **options):
    options = {"target": "sm_90a", **options}
    return check(g, sizes, engine="matmul_sm90", knobs=knobs, **options)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("layouts", list(itertools.product(("row", "column"), repeat=2)), ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_types_and_operand_layouts(name, layouts):
    """16-bit operands are loaded by TMA in every layout, others where k is contiguous."""
    operand = TYPES[name]
    g, _ = product(operand, 80, 96, 160, layouts, output=None if name == "i8" else dtypes.f32)
    plan = run(g, allowance=allowance(name, 160))
    noted = "DOWN_CONVERT_INPUTS" in plan.programs[0].fusions[0].notes
    assert noted == (name == "tf32")


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", TYPES)
def test_odd_sizes_and_no_unit_stride(name):
    """Nothing is aligned: every operand goes through registers, element by element."""
    operand = TYPES[name]
    for layouts in (("row", "row"), ("column", "column"), ("gaps", "gaps")):
        g, _ = product(operand, 37, 45, 29, layouts, output=None if name == "i8" else dtypes.f32)
        run(g, allowance=allowance(name, 29))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("types", [("FP8_E4M3", "FP8_E5M2"), ("FP8_E5M2", "FP8_E4M3")], ids=str)
@pytest.mark.parametrize("compute", ["FLOAT", "FAST_FLOAT_FOR_FP8"])
def test_fp8_types_mix_and_sums_are_promoted_where_float_is_asked_for(types, compute):
    a_type, b_type = map(dtypes.of, types)
    g = new_graph(a_type, compute_data_type=dtypes.of(compute))
    a = g.tensor([1, 64, 256])
    b = g.tensor([1, 256, 64], strides(256, 64, "column"), data_type=b_type)
    g.matmul(a, b).set_output().set_data_type(dtypes.f32)
    plan = run(g, allowance=2.0**-11)
    assert ("add.rn.f32" in plan.blobs[1].decode()) == (compute == "FLOAT")


@pytest.mark.in_turn
@pytest.mark.parametrize("rows", [512, pytest.param(1024, marks=pytest.mark.slow)])
def test_tiles_may_follow_each_other_in_other_orders(rows):
    """Tiles of a 10 x 3 product go by groups of 8 rows of tiles, or of all rows."""
    g, _ = product(dtypes.f16, 640, 192, 64)
    plan = run(g, knobs={**SMALL, "SWIZZLE": rows}, allowance=2.0**-18)
    (fusion,) = plan.programs[0].fusions
    assert fusion.knobs["SWIZZLE"] == rows


@pytest.mark.in_turn
def test_some_hundred_rows_may_lie_along_the_columns_of_instructions():
    """Swapped tiles of 200x128 are right; 777x4096x14336 has 128 of them, and 112 of 128x256."""
    g, _ = product(dtypes.f16, 250, 264, 72)
    run(g, knobs={**SMALL, "TILE_M": 200, "TILE_N": 128, "SWAP_AB": 1}, allowance=2.0**-18)


@pytest.mark.rotating
@pytest.mark.parametrize("columns", COLUMNS)
def test_every_width_of_an_instruction(columns):
    knobs = {**SMALL, "TILE_N": columns}
    layouts = ("row", "row") if columns % 64 == 0 else ("row", "column")
    g, _ = product(dtypes.f16, 70, columns + 8, 72, layouts, output=dtypes.f32)
    run(g, knobs=knobs, allowance=depth_allowance(72))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(("rows", "columns"), [(128, 256), (256, 128), (256, 64), (128, 192)])
def test_large_tiles(rows, columns):
    knobs = {**SMALL, "TILE_M": rows, "TILE_N": columns, "STAGES": 3}
    g, _ = product(dtypes.bf16, rows + 70, columns + 40, 264)
    run(g, knobs=knobs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("cluster", [(2, 1), (1, 2), (2, 2)], ids=str)
@pytest.mark.parametrize("layouts", [("row", "column"), ("column", "row")], ids=str)
def test_clusters_share_their_loads(cluster, layouts):
    tile = 128 if layouts[0] == "row" else 64 * max(cluster)
    knobs = {**SMALL, "TILE_M": min(256, tile), "TILE_N": min(256, tile),
             "TILE_CGA_M": cluster[0], "TILE_CGA_N": cluster[1]}  # fmt: skip
    if knobs["TILE_M"] * knobs["TILE_N"] > 256 * 128:
        knobs["TILE_M"] = 128
    g, _ = product(dtypes.f16, 304, 264, 200, layouts)
    plan = run(g, knobs=knobs)
    launch = plan.programs[0].variants[0].steps[0].launch
    assert launch.cluster == (cluster[0] * cluster[1], 1, 1)
    assert ".multicast::cluster" in plan.blobs[1].decode()


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)], ids=str)
def test_blocks_of_a_cluster_that_lie_past_the_end(cluster):
    """Sizes are whole tiles but not whole clusters, and stores go straight to memory."""
    g, _ = product(dtypes.f16, 16, 3 * 64, 72)
    blocks = {"TILE_CGA_M": cluster[0], "TILE_CGA_N": cluster[1]}
    run(g, knobs={**SMALL, **blocks, "TILE_M": 16, "SWAP_AB": 1})
    g, _ = product(dtypes.f16, 16, 3 * 64, 71)  # operands through registers
    run(g, knobs={**SMALL, **blocks, "TILE_M": 16, "SWAP_AB": 1})
    g, _ = product(dtypes.f16, 3 * 64, 3 * 64, 72, out="column")
    run(g, knobs={**SMALL, **blocks})


@pytest.mark.rotating
@pytest.mark.parametrize("stages", [2, 5])
@pytest.mark.parametrize("k", [8, 136, 512])
def test_stages_and_depths(stages, k):
    g, _ = product(dtypes.bf16, 64, 72, k)
    run(g, knobs={**SMALL, "STAGES": stages})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("columns", [64, 192])
def test_blocks_work_through_many_tiles(columns, monkeypatch):
    """More tiles than SMs: the rings go on from tile to tile."""
    blocks = multiprocessors.few(monkeypatch, 4)
    g, _ = product(dtypes.f16, 64 * (blocks // 4 + 2), columns * 5, 72)
    run(g, knobs={**SMALL, "TILE_N": columns})


@pytest.mark.parametrize("chunks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_when_a_buffer_was_last_used(chunks, buffers):
    used = [(tile, i, i % buffers) for tile in range(4) for i in range(chunks)]
    for now, (tile, i, slot) in enumerate(used):
        if tile == 3:
            before = max(t for t in range(now) if used[t][2] == slot)
            assert uses_since(i, chunks, buffers) == now - before


@pytest.mark.rotating
@pytest.mark.parametrize("out", ["row", "column", "gaps"])
@pytest.mark.parametrize("swap", [0, 1])
def test_output_layouts(out, swap):
    g, _ = product(dtypes.f16, 72, 88, 40, out=out)
    plan = run(g, knobs={**SMALL, "SWAP_AB": swap})
    stores = "cp.async.bulk.tensor.2d.global" in plan.blobs[1].decode()
    assert stores == (out == ("column" if swap else "row"))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("split", [1, pytest.param(2, marks=pytest.mark.exchange)])
@pytest.mark.parametrize(("m", "rows"), [(37, 128), (128, 128), (200, 208)])
def test_swapped_results_leave_transposed(m, rows, split):
    """A residual comes transposed, too, where k is not split, and two results leave so, of 208 rows
    in six copies of 32 and one of 16."""
    g = new_graph(dtypes.bf16)
    x, w = g.tensor([1, M, 200]), g.tensor([1, 200, 136], strides(200, 136, "column"))
    y = g.matmul(x, w).set_output().set_data_type(dtypes.f16)
    g.add(g.relu(y), g.tensor([1, M, 136])).set_output()
    knobs = {**SMALL, "TILE_M": rows, "TILE_N": 64, "SWAP_AB": 1, "SPLIT_K_SLC": split}
    plan = run(g, {"M": m}, knobs=knobs)
    ptx = plan.blobs[1].decode()
    assert "stmatrix.sync.aligned.m8n8.x4.trans" in ptx
    assert "st.global.b16" not in ptx
    assert ("ldmatrix.sync.aligned.m8n8.x4.trans" in ptx) == (split == 1)


@pytest.mark.rotating
@pytest.mark.parametrize("n", [39, 44, 48])
def test_rows_that_end_inside_16_bytes_are_not_stored_by_tma(n):
    """A product of one row, whose stride does not matter."""
    g, _ = product(dtypes.f16, 1, n, 16)
    plan = run(g, knobs={**SMALL, "TILE_N": 8})
    stores = "cp.async.bulk.tensor.2d.global" in plan.blobs[1].decode()
    assert stores == (n % 8 == 0)


@pytest.mark.rotating
@pytest.mark.parametrize("output", ["f32", "f16", "f8E4M3FN", "i8", "i32", "f64", "i64"])
def test_output_types(output):
    g, _ = product(dtypes.f16, 72, 80, 40, output=dtypes.of(output))
    run(g, allowance=depth_allowance(40))


@pytest.mark.rotating
@pytest.mark.parametrize("output", [dtypes.f16, dtypes.f32], ids=str)
@pytest.mark.parametrize("swap", [0, 1])
def test_products_in_half(output, swap):
    """Sums of f32, rounded to f16 once, before what follows."""
    g = new_graph(dtypes.f16, compute_data_type=dtypes.f16, intermediate_data_type=dtypes.f16)
    x, w = g.tensor([1, 70, 200]), g.tensor([1, 200, 72], strides(200, 72, "column"))
    y = g.relu(g.matmul(x, w), compute_data_type=dtypes.f32)
    y.set_output().set_data_type(output)
    run(g, knobs={**SMALL, "SWAP_AB": swap}, allowance=2.0**-10)


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("m", [1, 17, 64])
def test_few_rows_swapped(m):
    g = new_graph(dtypes.bf16)
    x, w = g.tensor([1, M, 200]), g.tensor([1, 200, 136], strides(200, 136, "column"))
    bias = g.tensor([1, 1, 136])
    g.relu(g.bias(g.matmul(x, w), bias)).set_output()
    run(g, {"M": m}, knobs={**SMALL, "TILE_M": 16, "TILE_N": 64, "STAGES": 4, "SWAP_AB": 1})


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("a_batch", "b_batch"), [([3], [3]), ([1], [3]), ([3], [1]), ([2, 1], [1, 3]), ([2, 3], [1, 1])]
)
def test_batches_and_broadcast_batches(a_batch, b_batch):
    g = new_graph(dtypes.f16)
    a, b = g.tensor([*a_batch, 72, 24]), g.tensor([*b_batch, 24, 40])
    g.matmul(a, b).set_output()
    run(g)


@pytest.mark.parametrize("m", [1, 64, 200])
def test_one_plan_serves_every_size(m):
    g = new_graph(dtypes.f16)
    x, w = g.tensor([1, M, 40], name="x"), g.tensor([1, 40, 72])
    g.matmul(x, w).set_output()
    run(g, {"M": m})


@pytest.mark.parametrize("rows", [0, 70])
def test_rows_that_may_be_none_and_a_depth_of_a_symbol_come_by_tma(rows):
    m, k = dnnc.Dim("rows", min=0, max=4096), dnnc.Dim("depth", multiple_of=8)
    g = new_graph(dtypes.bf16)
    product = g.matmul(g.tensor([2, m, k]), g.tensor([2, k, 72]))
    g.relu(g.add(product, g.tensor([2, m, 72]))).set_output()
    plan = run(g, {"rows": rows, "depth": 136})
    moved = plan.blobs[1].decode()
    assert "cp.async.bulk.tensor.3d.shared" in moved
    assert "cp.async.bulk.tensor.3d.global" in moved
    assert "ld.global" not in moved


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.exchange
@pytest.mark.parametrize(
    ("splits", "columns", "swap"), [(2, 8, 1), (8, 8, 1), (4, 32, 1), (8, 32, 1), (4, 64, 0)]
)
def test_split_k_adds_in_one_order(splits, columns, swap):
    """Blocks of a cluster share k; a slice of columns is finished by each, or fewer of them."""
    tile = {"TILE_M": columns, "TILE_N": 64} if swap else {"TILE_M": 64, "TILE_N": columns}
    g = new_graph(dtypes.bf16)
    x, w = g.tensor([1, M, 520]), g.tensor([1, 520, 200], strides(520, 200, "column"))
    g.add(g.matmul(x, w), g.tensor([1, M, 200])).set_output()
    knobs = {**SMALL, **tile, "SWAP_AB": swap, "SPLIT_K_SLC": splits}
    run(g, {"M": 5 if swap else 100}, knobs=knobs)


# ---- g1 and g2


@pytest.mark.in_turn
@pytest.mark.feature
def test_bias_gelu_residual_and_two_outputs():
    g = new_graph(dtypes.f16)
    x, w = g.tensor([1, M, 48]), g.tensor([1, 48, 72])
    bias, residual = g.tensor([1, 1, 72]), g.tensor([1, M, 72])
    biased = g.bias(g.matmul(x, w), bias).set_output().set_data_type(dtypes.f32)
    g.add(g.gelu(biased), residual).set_output()
    run(g, {"M": 70}, slack=3.0)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_residuals_are_loaded_by_tma_ahead_of_the_epilogue(dtype):
    g = new_graph(dtypes.f16)
    x, w = g.tensor([1, M, 264]), g.tensor([1, 264, 136], strides(264, 136, "column"))
    residual = g.tensor([1, M, 136], data_type=dtypes.of(dtype))
    scale = g.tensor([1, 1, 136])
    g.swish(g.add(g.mul(g.matmul(x, w), scale), residual)).set_output()
    plan = run(g, {"M": 200}, knobs={**TALL, "TILE_N": 128}, slack=3.0)
    maps = [a for a in plan.programs[0].variants[0].steps[0].launch.args if a.tensor_map]
    assert len(maps) == 4


def test_product_used_twice_and_column_broadcasts():
    g = new_graph(dtypes.bf16)
    x, w = g.tensor([2, 72, 48]), g.tensor([1, 48, 64])
    row, batch = g.tensor([1, 72, 1]), g.tensor([2, 1, 1])
    c = g.matmul(x, w)
    g.mul(g.add(c, row), g.sigmoid(g.mul(c, batch))).set_output()
    run(g, slack=3.0)


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("layout", "rows", "producers"),
    [("row", 64, 1), ("column", 64, 1), ("row", 128, 2), ("column", 128, 2)],
)
def test_weights_of_8_bits_are_dequantised_on_the_way(layout, rows, producers):
    g = new_graph(dtypes.f16)
    x, residual = g.tensor([1, 24, 136]), g.tensor([1, 24, 80])
    w = g.tensor([1, 136, 80], strides(136, 80, layout), data_type=dtypes.i8)
    wide = g.mul(w, g.tensor([1, 1, 80])).set_data_type(dtypes.f16)
    g.add(g.matmul(x, wide), residual).set_output()
    run(g, knobs={**SMALL, "TILE_M": rows, "STAGES": 3, "WARP_SPEC_CFG": producers})


@pytest.mark.feature
def test_two_producers_alternate_from_tile_to_tile(monkeypatch):
    """Three steps a tile, and more tiles than blocks: each producer begins where it left off."""
    batch = multiprocessors.few(monkeypatch, 4) // 4 + 1
    g = new_graph(dtypes.f16)
    x = g.tensor([1, 16, 136])
    w = g.tensor([batch, 136, 32], strides(136, 32, "column"), data_type=dtypes.i8)
    wide = g.mul(w, g.tensor([1, 1, 32])).set_data_type(dtypes.f16)
    g.matmul(x, wide).set_output()
    run(g, knobs={**SMALL, "TILE_M": 128, "TILE_N": 8, "WARP_SPEC_CFG": 2})


def test_operand_a_behind_a_graph_with_broadcasts():
    g = new_graph(dtypes.bf16)
    x, w = g.tensor([1, M, 40]), g.tensor([1, 40, 64])
    scale, shift = g.tensor([1, M, 1]), g.tensor([1, 1, 40])
    a = g.relu(g.add(g.mul(x, scale), shift)).set_data_type(dtypes.bf16)
    g.matmul(a, w).set_output()
    run(g, {"M": 75}, slack=3.0)


@pytest.mark.rotating
@pytest.mark.parametrize(("tile", "splits"), [(8, 1), (16, 1), (96, 4), (64, 4)])
def test_narrow_chunks_of_bytes_are_refused_or_stored(tile, splits):
    """A row of a box has 16 bytes at least."""
    g = new_graph(dtypes.f8e4m3)
    x, w = g.tensor([1, 64, 512]), g.tensor([1, 512, 96], strides(512, 96, "column"))
    g.matmul(x, w).set_output()
    knobs = {**SMALL, "TILE_N": tile, "SPLIT_K_SLC": splits}
    if tile // splits % 16:
        with pytest.raises(dnnc.DnncError, match="chunks of 8 columns of 1 bytes"):
            run(g, knobs=knobs)
    else:
        run(g, knobs=knobs, allowance=2.0**-11)


def test_narrow_chunks_of_bytes_are_refused_swapped():
    g, _ = product(dtypes.f8e4m3, 64, 96, 128, out="column")
    with pytest.raises(dnnc.DnncError, match="chunks of 8 columns of 1 bytes"):
        run(g, knobs={**SMALL, "TILE_M": 8, "SWAP_AB": 1})


@pytest.mark.in_turn
def test_operands_behind_g1_of_layouts_that_differ_from_what_it_reads():
    g = new_graph(dtypes.bf16)
    x, b = g.tensor([1, 64, 64], strides(64, 64, "column")), g.tensor([1, 64, 64])
    a = g.identity(x).set_data_type(dtypes.bf16).set_stride([4096, 64, 1])
    g.matmul(a, b).set_output()
    run(g, knobs={**SMALL, "TILE_M": 8, "SWAP_AB": 1})
    g = new_graph(dtypes.f32)
    w = g.tensor([1, 64, 64], data_type=dtypes.i8)
    g.matmul(g.tensor([1, 64, 64]), g.identity(w).set_data_type(dtypes.f32)).set_output()
    run(g, knobs={**SMALL, "TILE_N": 8}, allowance=2.0**-10)


def test_int8_with_scales_to_int8():
    g = new_graph(dtypes.i8)
    x, w = g.tensor([1, 40, 64]), g.tensor([1, 64, 48], strides(64, 48, "column"))
    scale = g.tensor([1, 1, 48], data_type=dtypes.f32)
    c = g.matmul(x, w)
    g.mul(c, scale, compute_data_type=dtypes.f32).set_output().set_data_type(dtypes.i8)
    run(g)


# ---- several products, reductions


@pytest.mark.in_turn
def test_two_products_of_one_epilogue_have_one_k():
    """The main loop goes through both at once."""
    g = new_graph(dtypes.f16)
    short = g.matmul(g.tensor([1, 64, 64]), g.tensor([1, 64, 48]))
    g.add(short, g.matmul(g.tensor([1, 64, 128]), g.tensor([1, 128, 48]))).set_output()
    with pytest.raises(cudnnGraphNotSupportedError, match="products of K = 128 and 64"):
        run(g)
    check(g, target="sm_90a", slack=3.0)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.parametrize("swap", [0, 1])
def test_gated_pair(swap):
    """SwiGLU: two products of one A, one output; A is loaded once."""
    g = new_graph(dtypes.bf16)
    x = g.tensor([1, M, 136])
    w1, w2 = (g.tensor([1, 136, 72], strides(136, 72, "column")) for _ in range(2))
    g.mul(g.swish(g.matmul(x, w1)), g.matmul(x, w2)).set_output()
    plan = run(g, {"M": 70}, knobs={**SMALL, "SWAP_AB": swap}, slack=4.0)
    maps = [a for a in plan.programs[0].variants[0].steps[0].launch.args if a.tensor_map]
    assert len(maps) == (3 if swap else 4)


def softmax(g, c, dims):
    highest = g.reduction(c, "max").set_dim(dims)
    e = g.exp(g.sub(c, highest))
    return g.div(e, g.reduction(e, "add").set_dim(dims))


@pytest.mark.rotating
@pytest.mark.parametrize("n", [64, 40, 33])
def test_softmax_of_rows_that_fit_a_tile(n):
    g = new_graph(dtypes.bf16)
    a, b = g.tensor([2, 70, 48]), g.tensor([1, 48, n], strides(48, n, "column"))
    softmax(g, g.matmul(a, b), [2, 70, 1]).set_output()
    run(g, slack=3.0)


@pytest.mark.feature
def test_rms_norm_of_rows_and_its_statistics():
    g = new_graph(dtypes.bf16)
    x, w = g.tensor([1, M, 64]), g.tensor([1, 64, 96], strides(64, 96, "column"))
    gain = g.tensor([1, 1, 96])
    c = g.matmul(x, w)
    mean = g.reduction(g.mul(c, c), "avg").set_dim([1, M, 1])
    inverse = (
        g.rsqrt(g.add(mean, g.tensor([1, 1, 1], is_pass_by_value=True)))
        .set_output()
        .set_data_type(dtypes.f32)
    )
    g.mul(g.mul(c, inverse), gain).set_output()
    run(g, {"M": 130}, knobs={**TALL, "TILE_N": 96}, slack=3.0, allowance=1e-5)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("mode", "dims"),
    [
        *(("add", dims) for dims in ([2, 70, 1], [2, 1, 136], [1, 1, 136], [2, 1, 1], [1, 1, 1])),
        ("min", [2, 70, 1]),
        ("max", [1, 1, 136]),
        ("amax", [1, 1, 1]),
    ],
    ids=str,
)
def test_reductions_at_the_exit(mode, dims):
    g = new_graph(dtypes.f16)
    a, b = g.tensor([2, 70, 40]), g.tensor([2, 40, 136], [40 * 136, 136, 1])
    c = g.relu(g.matmul(a, b)).set_output()
    total = g.reduction(c, mode).set_dim(dims).set_output().set_data_type(dtypes.f32)
    assert total is not None
    # The greatest is one of C's elements, each rounded to f16; a sum's errors cancel.
    run(g, allowance=1e-5 if mode == "add" else 2.0**-11)


@pytest.mark.in_turn
@pytest.mark.parametrize("dims", [[1, 1, 1], [1, 1, 40]], ids=str)
def test_reductions_of_what_a_row_leads_to_are_another_kernel(dims):
    g = new_graph(dtypes.bf16)
    a, b = g.tensor([1, 70, 48]), g.tensor([1, 48, 40], strides(48, 40, "column"))
    y = softmax(g, g.matmul(a, b), [1, 70, 1]).set_output()
    g.reduction(y, "amax").set_dim(dims).set_output().set_data_type(dtypes.f32)
    with pytest.raises(cudnnGraphNotSupportedError, match="of what reduction:max leads to"):
        run(g)
    assert len(check(g, target="sm_90a", slack=3.0).programs[0].fusions) > 1


def test_amax_for_fp8_scaling_beside_the_scaled_output():
    g = new_graph(dtypes.f8e4m3)
    x, w = g.tensor([1, 64, 128]), g.tensor([1, 128, 80], strides(128, 80, "column"))
    descale = g.tensor([1, 1, 1], data_type=dtypes.f32)
    scale = g.tensor([1, 1, 1], data_type=dtypes.f32)
    c = g.mul(g.matmul(x, w), descale)
    g.reduction(c, "amax").set_dim([1, 1, 1]).set_output().set_data_type(dtypes.f32)
    g.mul(c, scale).set_output()
    run(g, allowance=2.0**-11)


def test_two_launches_only_where_a_reduction_needs_several_tiles():
    def launches(n, knobs):
        g = new_graph(dtypes.f16)
        a, b = g.tensor([1, 70, 40]), g.tensor([1, 40, n])
        c = g.matmul(a, b)
        g.reduction(c, "add").set_dim([1, 70, 1]).set_output().set_data_type(dtypes.f32)
        plan = run(g, knobs=knobs, allowance=1e-4)
        return len(plan.programs[0].variants[0].steps)

    assert launches(64, SMALL) == 1
    assert launches(72, SMALL) == 2


# ---- refusals


def refusal(g, clause, **options):
    with pytest.raises(dnnc.DnncError) as caught:
        run(g, **options)
    assert clause in caught.value.what
    return caught.value


def test_refusals_name_the_clause():
    g, _ = product(dtypes.f16, 64, 64, 64)
    error = refusal(g, "architecture", target="sm_90")
    assert error.status is dnnc.Status.NOT_SUPPORTED_ARCH_MISMATCH
    g = new_graph(dtypes.f16)
    g.matmul(g.tensor([1, 8, 8]), g.tensor([1, 8, 8], data_type=dtypes.bf16)).set_output()
    refusal(g, "operand types")
    g = new_graph(dtypes.f16)
    c = g.matmul(g.tensor([1, 8, 8]), g.tensor([1, 8, 1024]))
    g.sub(c, g.reduction(c, "max").set_dim([1, 8, 1])).set_output()
    refusal(g, "reductions of rows of up to 768")
    g = new_graph(dtypes.f16)
    c = g.matmul(g.tensor([1, 8, 8]), g.tensor([1, 8, 8]))
    g.matmul(c, g.tensor([1, 8, 8])).set_output()
    refusal(g, "operations")


def test_knobs_are_checked():
    g, _ = product(dtypes.f16, 64, 64, 64)
    for knobs, what in (
        ({"TILE_M": 44}, "knob TILE_M=44"),
        ({"TILE_M": 256, "TILE_N": 256}, "sums in two rows"),
        ({"TILE_M": 16}, "tile 16x64"),
        ({"TILE_CGA_M": 2, "TILE_CGA_N": 4}, "cluster"),
        ({"SPLITS": 2}, "no knob SPLITS"),
        ({"TILE_M": 128, "TILE_N": 256, "STAGES": 8}, "shared memory"),
    ):
        with pytest.raises(dnnc.DnncError, match=what):
            run(g, knobs={**SMALL, **knobs})
