"""Packed boolean outputs of engine matmul_sm90 in the interpreter: masks of what a product gives.

Operands are whole numbers, so that sums are exact and no comparison depends on their order.
"""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing.heuristics import best_config
from dnnc.dialect.fusion import partition
from dnnc.engines import ENGINES
from dnnc.target import of
from tests.support.checked import check, random_inputs

from .test_grouped_matmul import operands
from .test_matmul_sm80 import depth_allowance
from .test_matmul_sm90 import SMALL, TALL, M, new_graph, softmax, strides

N = dnnc.Dim("N", max=4096, multiple_of=8)


def run(g, sizes=None, knobs=SMALL, first=None, **options):
    """first: rows where groups begin."""
    graph = g.graph.finalize()
    inputs = {
        uid: np.rint(value) if value.dtype.kind == "f" else value
        for uid, value in random_inputs(graph, sizes or {}).items()
    }
    if first is not None:
        inputs[graph.tensor("first").uid] = np.array(first, np.int32).reshape(-1, 1, 1)
    options = {"engine": "matmul_sm90", "target": "sm_90a", **options}
    return check(g, sizes, inputs=inputs, knobs=knobs, **options)


def product(m, n, k=40, operand=dtypes.f16, batch=1):
    """A graph and its product; B has contiguous columns, which every tile takes."""
    g = new_graph(operand)
    b = g.tensor([1, k, n], strides(k, n, "column"))
    return g, g.matmul(g.tensor([batch, m, k]), b)


def add_mask(g, c, stride=None):
    """The mask of a relu, as an output."""
    mask = g.cmp_gt(c, 0).set_output().set_data_type(dtypes.i1)
    return mask if stride is None else mask.set_stride(stride)


def relu_with_mask(m, n, **options):
    g, c = product(m, n, **options)
    add_mask(g, c)
    g.relu(c).set_output()
    return g


# ---- sizes and tiles


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("m", [1, 37, 64, 75])
@pytest.mark.parametrize("n", [8, 56, 64, 72, 200])
def test_relu_and_its_mask(m, n):
    run(relu_with_mask(m, n))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("tall", [SMALL, TALL], ids=["64", "128"])
@pytest.mark.parametrize("columns", [8, 16, 32, 64, 96, 192])
def test_tiles(tall, columns):
    """Words of one, two and four bytes; a row that ends inside a word."""
    run(relu_with_mask(133, columns + 24), knobs={**tall, "TILE_N": columns})


@pytest.mark.in_turn
def test_two_blocks_of_rows_of_a_warpgroup():
    run(relu_with_mask(300, 72), knobs={**SMALL, "TILE_M": 256})


def test_tiles_that_divide_the_sizes():
    run(relu_with_mask(128, 128))


@pytest.mark.parametrize("batch", [[3], [2, 2]], ids=str)
def test_batches(batch):
    g = new_graph(dtypes.f16)
    a, b = g.tensor([*batch, 37, 24]), g.tensor([*batch, 24, 40])
    c = g.matmul(a, b)
    add_mask(g, c)
    g.relu(c).set_output()
    run(g)


def test_sizes_known_at_run_time():
    run(relu_with_mask(M, N), {"M": 70, "N": 88})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)], ids=str)
def test_clusters_some_of_whose_blocks_lie_past_the_end(cluster):
    knobs = {**SMALL, "TILE_CGA_M": cluster[0], "TILE_CGA_N": cluster[1]}
    run(relu_with_mask(40, 72), knobs=knobs)
    run(relu_with_mask(3 * 64, 3 * 64), knobs=knobs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("splits", "columns"), [(2, 16), (2, 64), (4, 96), (4, 8), (8, 64)])
def test_split_k(splits, columns):
    """Slices of one to four bytes of a row; of one, not every block has a slice."""
    g = relu_with_mask(40, columns + 8, k=64 * splits)
    run(g, knobs={**SMALL, "TILE_N": columns, "SPLIT_K_SLC": splits})


# ---- what comes before and beside


def test_a_boolean_output_alone():
    g, c = product(70, 88)
    add_mask(g, c)
    run(g)


@pytest.mark.in_turn
@pytest.mark.feature
def test_two_boolean_outputs_and_two_others():
    g, c = product(70, 88)
    add_mask(g, c)
    g.cmp_lt(c, g.tensor([1, 1, 88])).set_output().set_data_type(dtypes.i1)
    g.relu(c).set_output()
    g.add(c, g.tensor([1, 70, 88])).set_output().set_data_type(dtypes.f32)
    run(g)


@pytest.mark.rotating
@pytest.mark.parametrize("operand", ["bf16", "f32", "i8", "f8E4M3FN"])
def test_operand_types(operand):
    operand = dtypes.of(operand)
    g, c = product(37, 48, k=64, operand=operand)
    add_mask(g, c)
    c.set_output().set_data_type(dtypes.i32 if operand.is_integer else dtypes.f32)
    # Sums of fp8 products keep some 14 bits before they are promoted; tf32 rounds the operands.
    allowed = {"f32": 2.0**-10, "i8": 0.0, "f8E4M3FN": 2.0**-11}
    run(g, allowance=allowed.get(str(operand), depth_allowance(64)))


def test_outputs_that_are_stored_from_registers_beside_it():
    g, c = product(37, 72)
    add_mask(g, c)
    g.relu(c).set_output().set_stride(strides(37, 72, "gaps"))
    run(g)


def test_rows_with_gaps_and_bytes_between_them():
    g, c = product(37, 72)
    add_mask(g, c, strides(37, 72, "row", 24))
    plan = run(g)
    assert "st.global.b8" in plan.blobs[1].decode()


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("dims", [[1, 70, 1], [1, 1, 136], [1, 1, 1]], ids=str)
def test_reductions_at_the_exit_beside_it(dims):
    g, c = product(70, 136)
    add_mask(g, c)
    g.reduction(c, "max").set_dim(dims).set_output().set_data_type(dtypes.f32)
    run(g)


@pytest.mark.in_turn
def test_mask_of_a_softmax():
    g, c = product(70, 40)
    p = softmax(g, c, [1, 70, 1]).set_output()
    add_mask(g, g.sub(c, g.reduction(c, "avg").set_dim([1, 70, 1])))
    assert p is not None
    run(g, slack=3.0)


@pytest.mark.in_turn
def test_mask_of_a_gated_pair():
    g = new_graph(dtypes.bf16)
    x = g.tensor([1, 70, 40])
    a, b = (g.matmul(x, g.tensor([1, 40, 72])) for _ in range(2))
    add_mask(g, a)
    g.mul(g.relu(a), b).set_output()
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("columns", [72, 69])
def test_boolean_inputs_beside_the_product(columns):
    """A mask that is read: of whole bytes a row, and of rows that begin inside them."""
    g, c = product(37, columns)
    mask = g.tensor([1, 37, columns], data_type=dtypes.i1)
    row = g.tensor([1, 37, 1], data_type=dtypes.i1)
    g.binary_select(g.binary_select(c, 0, mask), g.neg(c), row).set_output()
    run(g)


def test_backward_of_relu_takes_the_mask_that_forward_stored():
    g, c = product(37, 72)
    mask = g.tensor([1, 37, 72], data_type=dtypes.i1)
    kept = g.binary_select(c, 0, mask)
    add_mask(g, kept)
    kept.set_output().set_data_type(dtypes.f16)
    run(g)


# ---- groups of rows


@pytest.mark.rotating
@pytest.mark.parametrize("first", [[0, 5, 5, 69], [0, 64, 65, 70]], ids=str)
def test_grouped_products(first):
    """The last rows of a group lie in one tile with the next one's."""
    g = new_graph(dtypes.bf16)
    c = g.moe_grouped_matmul(*operands(g, 70, 4, 40, 72))
    add_mask(g, c)
    g.relu(c).set_output()
    run(g, first=first)


# ---- swapped: columns of the output are contiguous


@pytest.mark.rotating
@pytest.mark.parametrize("columns", [8, 32, 96])
def test_contiguous_columns_swapped(columns):
    g, c = product(columns + 24, 75, batch=2)
    add_mask(g, c, strides(columns + 24, 75, "column", 8))
    g.relu(c).set_output()
    run(g, knobs={**SMALL, "TILE_M": columns, "SWAP_AB": 1})


def test_rows_of_one_element_are_columns():
    g, c = product(72, 1)
    add_mask(g, c)
    run(g, knobs={**SMALL, "SWAP_AB": 1})


# ---- refusals, and what is chosen


def refusal(g, **options):
    with pytest.raises(dnnc.DnncError) as caught:
        run(g, **options)
    return caught.value


def masked(m, n, stride=None):
    g, c = product(m, n)
    add_mask(g, c, stride)
    return g


@pytest.mark.parametrize(
    ("m", "n", "stride"),
    [(8, 12, None), (8, 16, [16 * 20, 20, 1]), (8, 16, [256, 32, 2]), (9, 16, [144, 1, 9])],
    ids=["length", "pitch", "gaps", "column length"],
)
def test_rows_of_parts_of_bytes_are_refused(m, n, stride):
    error = refusal(masked(m, n, stride))
    assert "boolean output" in error.what
    assert error.status is dnnc.Status.NOT_SUPPORTED_DATA_TYPE


def test_orders_that_no_tile_has_are_refused():
    g = masked(16, 16)
    c = g.graph.ops[0].c
    add_mask(g, c, [256, 1, 16])
    assert "boolean output" in refusal(g).what
    g, c = product(16, 16)
    flowing = g.sub(c, g.reduction(c, "max").set_dim([1, 16, 1]))
    add_mask(g, flowing, [256, 1, 16])
    assert "boolean output" in refusal(g).what
    g = new_graph(dtypes.f16)
    c = g.moe_grouped_matmul(*operands(g, 16, 2, 16, 16))
    add_mask(g, c, [256, 1, 16])
    assert "boolean output" in refusal(g, first=[0, 8]).what


def test_booleans_of_other_dims_are_refused():
    g, c = product(16, 16)
    add_mask(g, g.reduction(c, "max").set_dim([1, 16, 1]))
    c.set_output()
    assert "boolean output" in refusal(g).what


def test_the_wrong_side_is_no_legal_knob():
    assert "SWAP_AB=1" in refusal(masked(16, 16), knobs={**SMALL, "SWAP_AB": 1}).what
    assert "SWAP_AB=0" in refusal(masked(16, 16, [256, 1, 16])).what


@pytest.mark.parametrize(("stride", "swap"), [(None, 0), ([16 * 24, 1, 16], 1)])
def test_candidates_have_the_side_of_the_booleans(stride, swap):
    """The first output may lie otherwise, and rows may be few."""
    g, c = product(16, 24)
    g.relu(c).set_output().set_stride([16 * 24, 1, 16] if stride is None else [16 * 24, 24, 1])
    add_mask(g, c, stride)
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    engine = next(engine for engine in ENGINES if engine.name == "matmul_sm90")
    found = engine.candidates(fusion, of("sm_90a"))
    assert {knobs["SWAP_AB"] for knobs in found} == {swap}


def test_the_engine_is_chosen_for_a_forward_pass_with_its_mask():
    g = relu_with_mask(4096, 4096, k=1024)
    (choice,) = best_config(g.graph.finalize(), of("sm_90a")).choices
    assert choice.engine.name == "matmul_sm90"
