"""Every wait of the products and convolutions of Hopper matters."""

import pytest

from dnnc import dtypes
from dnnc.interpreter import plans

from .conv.convs import image
from .conv.test_pattern import new_graph as conv_graph
from .conv.test_sm90 import SMALL as CONV_SMALL
from .product.test_fragments_sm90 import SWAPPED, weights_of_8_bits
from .product.test_grouped_matmul import operands
from .product.test_matmul_sm80 import new_graph as matmul_graph
from .product.test_matmul_sm80 import strides
from .product.test_matmul_sm90 import SMALL, TALL, softmax
from .removed_waits import (
    HOPPER_WAITS,
    MORE_REGISTERS,
    ONE_WARP,
    SPIN,
    removed,
    survivors,
)

# ---- Hopper: three panels of k, so that loops unrolled by two take their odd path too


def tiles_with_a_residual():
    """Three tiles for one block, of two chunks each: every ring goes round."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 120, 136]), g.tensor([1, 136, 136], strides(136, 136, "column"))
    residual = g.tensor([1, 120, 136], data_type=dtypes.f32)
    g.add(g.matmul(x, w), residual).set_output()
    return g, {**TALL, "TILE_N": 64}


def weights_through_registers():
    g = matmul_graph(dtypes.f16)
    w = g.tensor([1, 136, 136], strides(136, 136, "column"), data_type=dtypes.i8)
    wide = g.mul(w, g.tensor([1, 1, 136])).set_data_type(dtypes.f16)
    g.matmul(g.tensor([1, 56, 136]), wide).set_output()
    return g, SMALL


def cluster_of_two():
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 120, 136]), g.tensor([1, 136, 136], strides(136, 136, "column"))
    g.matmul(x, w).set_output()
    return g, {**SMALL, "TILE_CGA_M": 2}


def ping_pong():
    """Five tiles: three of one warpgroup, two of the other; two stages for three panels."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 56, 136]), g.tensor([1, 136, 304], strides(136, 304, "column"))
    g.matmul(x, w).set_output()
    return g, {**SMALL, "WARP_SPEC_CFG": 4}


def ping_pong_with_a_residual():
    """Seven tiles; of each a fourth use of the ring brings the residual."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 56, 136]), g.tensor([1, 136, 432], strides(136, 432, "column"))
    g.add(g.matmul(x, w), g.tensor([1, 56, 432])).set_output()
    return g, {**SMALL, "WARP_SPEC_CFG": 4}


def split_k():
    """Two tiles, each by four blocks, two of which add."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 40, 264]), g.tensor([1, 264, 24], strides(264, 24, "column"))
    g.matmul(x, w).set_output()
    return g, {**SMALL, "TILE_N": 16, "SPLIT_K_SLC": 4}


def experts():
    """Pairs of tiles along the rows and along the columns, of which warpgroups have no rows.

    Offsets are up to 9, so that the last expert has two whole tiles of rows and a part of a third.
    Seven panels of k: the loop in which a warpgroup lets every stage go is unrolled by four.
    """
    g = matmul_graph(dtypes.f16)
    g.moe_grouped_matmul(*operands(g, 300, 3, 392, 128)).set_output()
    return g, {**TALL, "TILE_CGA_M": 2}


def weights_in_the_registers_of_consumers():
    """Three tiles for one block."""
    return weights_of_8_bits(dtypes.i8, 56, 136, 144), SWAPPED


def relu_with_its_mask():
    """Three tiles for one block; the mask is stored from registers, the rest by TMA."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 120, 136]), g.tensor([1, 136, 136], strides(136, 136, "column"))
    y = g.matmul(x, w)
    g.cmp_gt(y, 172.0).set_output().set_data_type(dtypes.i1)
    g.relu(y).set_output()
    return g, {**TALL, "TILE_N": 64}


def rows_over_a_cluster():
    """Three tiles for a pair of blocks, and four exchanges of each."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 150, 136]), g.tensor([1, 136, 40], strides(136, 40, "column"))
    softmax(g, g.matmul(x, w), [1, 150, 1]).set_output()
    return g, {**SMALL, "TILE_N": 32, "TILE_CGA_N": 2}


def reduction_at_the_exit():
    """Three tiles for one block, and sums of their columns."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 120, 136]), g.tensor([1, 136, 72], strides(136, 72, "column"))
    c = g.matmul(x, w).set_output()
    g.reduction(c, "add").set_dim([1, 1, 72]).set_output().set_data_type(dtypes.f32)
    return g, {**TALL, "TILE_N": 32}


def promoted():
    """Sums of 128 products each, added in f32.  272 is a stride that TMA takes."""
    g = matmul_graph(dtypes.f8e4m3)
    x, w = g.tensor([1, 56, 272]), g.tensor([1, 272, 72], strides(272, 72, "column"))
    g.matmul(x, w).set_output().set_data_type(dtypes.f32)
    return g, {**SMALL, "TILE_N": 32}


HOPPER_CASES = {
    "wide rows": (rows_over_a_cluster, 2),
    "exit": (reduction_at_the_exit, 1),
    "promoted": (promoted, 1),
    "residual": (tiles_with_a_residual, 1),
    "registers": (weights_through_registers, 1),
    "cluster": (cluster_of_two, 2),
    "ping-pong": (ping_pong, 1),
    "ping-pong and residual": (ping_pong_with_a_residual, 1),
    "split k": (split_k, 8),
    "experts": (experts, 2),
    "fragments": (weights_in_the_registers_of_consumers, 1),
    "mask": (relu_with_its_mask, 1),
}
_WAITED_TWICE = "the residual's stage has been waited for before ping-pong ended"
_LAST_EXCHANGE = "each block has waited for the last exchange, after which none writes to it"

HOPPER_UNOBSERVABLE = {
    "wide rows": {
        **{("bar", place): ONE_WARP for place in (-6, -5, -4, -3)},
        ("barrier", -1): _LAST_EXCHANGE,
    },
    "exit": {("setmaxnreg", -2): MORE_REGISTERS},
    "experts": {("setmaxnreg", -2): MORE_REGISTERS},
    "residual": {
        ("bar", -6): ONE_WARP,
        ("bar", -3): ONE_WARP,
        ("setmaxnreg", -2): MORE_REGISTERS,
    },
    "split k": {("bar", -4): ONE_WARP, ("bar", -1): ONE_WARP},
    "mask": {("setmaxnreg", -2): MORE_REGISTERS},
    "ping-pong": {("setmaxnreg", -2): MORE_REGISTERS},
    "ping-pong and residual": {
        ("setmaxnreg", -2): MORE_REGISTERS,
        ("bar", -3): ONE_WARP,
        (SPIN, -5): _WAITED_TWICE,
    },
}


# In CI stay those that tell the waits of one part each.
SLOW = (
    "wide rows", "ping-pong and residual", "residual", "experts", "mask",
    "registers", "ping-pong", "exit", "fragments", "split k",
)  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in HOPPER_CASES]
)
def test_each_wait_of_hopper_is_needed(name, monkeypatch):
    """One cluster works through all tiles, whatever the "sm_90a" of the table has."""
    build, blocks = HOPPER_CASES[name]
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": blocks})
    found, alive = survivors(build, "matmul_sm90", "sm_90a", lambda *of: removed(*of, HOPPER_WAITS))
    assert len(found) > 15
    assert alive == set(HOPPER_UNOBSERVABLE.get(name, {}))


# ---- pixels that warps compute: three tiles for one block, of three taps each


def computed_pixels(dims, knobs):
    def build():
        g = conv_graph()
        x = g.add(image(g, dims), g.tensor([1, dims[1], 1, 1])).set_data_type(dtypes.f16)
        g.conv_fprop(x, image(g, [40, dims[1], 1, 3]), padding=[0, 1]).set_output()
        return g, knobs

    return build


COMPUTED = {
    "stages": computed_pixels([1, 40, 8, 20], CONV_SMALL),
    # All filters stay: else their ring keeps the producer from running ahead with pixels.
    "halo": computed_pixels(
        [1, 128, 6, 14], {**CONV_SMALL, "TILE_ROWS": 2, "SWAP_AB": 1, "STAGES": 6}
    ),
    # A tile's rows are stored by a copy each.
    "halo of some columns": computed_pixels(
        [1, 128, 4, 14],
        {**CONV_SMALL, "TILE_ROWS": 2, "TILE_COLS": 8, "SWAP_AB": 1, "STAGES": 6},
    ),
}
_OF_HALOS = {
    ("bar", -1): ONE_WARP,
    ("bar", -2): ONE_WARP,
    ("setmaxnreg", -2): MORE_REGISTERS,
}
COMPUTED_UNOBSERVABLE = {
    "stages": {("bar", -1): ONE_WARP},
    "halo": _OF_HALOS,
    "halo of some columns": _OF_HALOS,
}


@pytest.mark.parametrize(
    "name",
    [n if n == "stages" else pytest.param(n, marks=pytest.mark.slow) for n in COMPUTED],
)
def test_each_wait_of_computed_pixels_is_needed(name, monkeypatch):
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": 1})
    found, alive = survivors(
        COMPUTED[name], "conv_sm90", "sm_90a", lambda *of: removed(*of, HOPPER_WAITS)
    )
    assert len(found) > 15
    assert alive == set(COMPUTED_UNOBSERVABLE.get(name, {}))


# ---- few channels: three tiles for one block, of two shares of k each

_OTHER_WORDS = "words of the next share have registers of their own, until they are assembled"
FEW_CHANNELS_UNOBSERVABLE = {
    ("bar", -3): ONE_WARP,
    ("setmaxnreg", -2): MORE_REGISTERS,
    ("wgmma.commit_group", -2): _OTHER_WORDS,
    ("wgmma.wait_group", -2): _OTHER_WORDS,
}


def few_channels():
    g = conv_graph()
    g.conv_fprop(image(g, [3, 8, 5, 10]), image(g, [24, 8, 7, 7]), padding=[3, 3]).set_output()
    return g, {"TILE_M": 128, "TILE_N": 32, "STAGES": 2}


@pytest.mark.slow
def test_each_wait_of_few_channels_is_needed(monkeypatch):
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": 1})
    found, alive = survivors(
        few_channels, "conv_stem_sm90", "sm_90a", lambda *of: removed(*of, HOPPER_WAITS)
    )
    assert len(found) > 15
    assert alive == set(FEW_CHANNELS_UNOBSERVABLE)
