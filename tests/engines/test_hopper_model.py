"""What the model of products on Hopper's tensor cores knows of operands that TMA can't take."""

import pytest

from dnnc.engines.hopper_model import HopperTile, HopperWork
from dnnc.target import of

WORK = HopperWork(m=4096, n=1024, k=4097, count=1, moved_bytes=50_000_000)


def seconds(tile, cluster=(1, 1), narrow=(True, True), load_share=1.0):
    return predicted(WORK, tile, cluster, narrow, load_share).seconds


def predicted(work, tile, cluster=(1, 1), narrow=(False, False), load_share=1.0):
    target = of("sm_90a")
    made = HopperTile(
        tile, cluster, stages=4, depth=64, swaps=False, splits=1, products=1, is_heavy=False,
        is_direct=False, load_share=load_share, computed_rows=0, producers=1,
        mma_tflops=target.mma_tflops["bf16"], residents=132 // (cluster[0] * cluster[1]),
        streams=False, target=target, narrow=narrow,
    )  # fmt: skip
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
    [(8192, 8192, 8192, "tensor cores"), (8192, 8192, 8, "memory"), (128, 256, 4096, "latency")],
)
def test_what_bounds_a_product(m, n, k, bound):
    moved = 2 * (m * k + k * n + m * n) * (4 if bound == "memory" else 1)
    work = HopperWork(m, n, k, count=1, moved_bytes=moved)
    assert predicted(work, (128, 256)).bound == bound
