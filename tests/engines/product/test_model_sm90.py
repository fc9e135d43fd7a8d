"""The model of products on Hopper's tensor cores predicts operands that TMA can't take, what
bounds a product, and which engine is chosen where two models are compared."""

import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.engines.product.model_sm90 import (
    HopperBlock,
    HopperTile,
    OperandLoads,
    seconds_of_chunks,
)
from dnnc.engines.product.work import ProductWork
from dnnc.target import of

WORK = ProductWork(m=4096, n=1024, k=4097, count=1, moved_bytes=50_000_000)


def seconds(tile, cluster=(1, 1), narrow=(True, True), load_share=1.0):
    return predicted(WORK, tile, cluster, narrow, load_share).seconds


def predicted(work, tile, cluster=(1, 1), narrow=(False, False), load_share=1.0):
    target = of("sm_90a")
    block = HopperBlock(tile, cluster, stages=4, depth=64)
    operands = OperandLoads(load_share, narrow)
    rate = target.mma_tflops["bf16"]
    made = HopperTile(block, 1, operands, False, False, rate, target)
    return made.predict(work)


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)])
def test_blocks_of_a_cluster_share_what_the_copy_engine_brings_alone(cluster):
    tile, copied = (64, 128), {"narrow": (False, False), "load_share": 0.3}
    assert seconds(tile, cluster, **copied) < 0.9 * seconds(tile, **copied)
    assert seconds(tile, cluster) > seconds(tile)


def test_tiles_of_more_rows_than_threads_load_at_once_take_more_than_their_share():
    assert seconds((64, 64)) < seconds((128, 64)) / 2 * 1.5


def test_operands_that_come_element_by_element_take_longer():
    assert seconds((128, 128)) > 2 * seconds((128, 128), narrow=(False, False))
    assert seconds((128, 128), narrow=(True, False)) < seconds((128, 128))


@pytest.mark.parametrize(
    ("m", "n", "k", "bound"),
    [(8192, 8192, 8192, "tensor cores"), (64, 28672, 8192, "memory"), (128, 256, 4096, "latency")],
)
def test_what_bounds_a_product(m, n, k, bound):
    work = ProductWork(m, n, k, count=1, moved_bytes=2 * (m * k + k * n + m * n))
    assert predicted(work, (64, 128) if m == 64 else (128, 256)).bound == bound


def test_tiles_of_a_cluster_past_the_end_are_not_free():
    """In 5 x 22 tiles the last pair of rows is one too many; pairs of columns come out even."""
    work = ProductWork(m=523, n=2112, k=11392, count=1, moved_bytes=62_000_000)
    rows, columns = (predicted(work, (128, 96), pair).seconds for pair in ((2, 1), (1, 2)))
    assert rows > 1.1 * columns


@pytest.mark.parametrize(
    ("m", "n", "k", "tile"), [(777, 4096, 14336, (200, 128)), (523, 2088, 11392, (88, 128))]
)
def test_some_hundred_rows_lie_along_the_columns_where_that_fills_the_wave(m, n, k, tile):
    """128 tiles of 200x128, where 128x256 leaves 20 of 132 SMs without one; and pairs of 88x128
    that load the larger operand together: of 96x128 47 us, where pairs of 128x96 load the other
    one, 65."""
    knobs = chosen(m, n, k).knobs
    assert (knobs["TILE_M"], knobs["TILE_N"], knobs["SWAP_AB"]) == (*tile, 1)


@pytest.mark.rotating
@pytest.mark.parametrize("each", [(16, 8, 8, 4), (32, 1, 1, 1), (3, 5)])
@pytest.mark.parametrize("down", [1, 13, 33, 80])
def test_phases_take_as_long_as_the_cluster_that_has_most_to_do(each, down):
    """Clusters take the tiles of each chunk alternately, one phase after the other, every second
    round backwards."""
    across, chunk, clusters = 4, 33, 66
    tiles = []
    for first in range(0, down, chunk):
        rows = min(chunk, down - first)
        tiles += [seconds for seconds in each for _ in range(rows * across)]
    taken = [0] * clusters
    for first in range(0, len(tiles), clusters):
        numbers = range(clusters)
        if first // clusters % 2:
            numbers = reversed(numbers)
        for seconds, number in zip(tiles[first : first + clusters], numbers, strict=False):
            taken[number] += seconds
    assert seconds_of_chunks(each, down, across, chunk, clusters) == max(taken)


def chosen(m, n, k, names=("matmul_sm90", "matmul_sm80")):
    """The first choice of a product of bf16 on Hopper, among these engines."""
    g = dnnc.pygraph(io_data_type="bf16", intermediate_data_type="f32")
    g.matmul(g.tensor([1, m, k]), g.tensor([1, k, n])).set_output()
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    return heuristics.choices(whole, of("sm_90a"), [engine_named(name) for name in names])[0]


@pytest.mark.parametrize("n", [4096, 14336, 28672])
@pytest.mark.parametrize("m", [1, 8, 16, 64])
def test_hoppers_own_engine_takes_few_rows(m, n):
    """Both engines wait for the same memory there."""
    for k in (4096, 14336, 28672):
        assert chosen(m, n, k).engine.name == "matmul_sm90"


@pytest.mark.parametrize(
    ("m", "n", "k", "timed"),
    [(1, 28672, 8192, 157.1), (8, 4096, 4096, 13.9), (64, 4096, 14336, 44.2),
     (256, 8192, 8192, 55.4), (4096, 4096, 4096, 178.2), (8192, 8192, 8192, 1389.8)],
)  # fmt: skip
def test_products_take_as_long_as_they_were_timed_on_an_h100(m, n, k, timed):
    """timed: microseconds, in kernels-hopper-h100.json."""
    assert 1e6 * chosen(m, n, k).prediction.seconds == pytest.approx(timed, rel=0.1)
