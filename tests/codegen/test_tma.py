"""Boxes of tensors: recipes, and what TMA can't move."""

import pytest

from dnnc import Dim, dtypes
from dnnc.codegen.hopper import tma
from dnnc.codegen.hopper.staged_store import StagedStore, swizzle_of
from dnnc.dialect.tensor import Tensor
from dnnc.expr import Expr

M = Dim("M", min=1, max=4096)


def tensor(dims, strides, dtype=dtypes.bf16, alignment=16):
    return Tensor(
        uid=3,
        dims=tuple(map(Expr.of, dims)),
        strides=tuple(map(Expr.of, strides)),
        dtype=dtype,
        alignment=alignment,
    )


def test_a_recipe_has_sizes_as_expressions_innermost_first():
    t = tensor([4, M, 64], [M * 64, 64, 1])
    box = tma.Box(t, (2, 1), (64, 128))
    recipe = box.recipe
    assert box.map_axes == (2, 1, 0)
    assert recipe.dims == ("64", "M", "4")
    assert recipe.strides == ("128", "M*128")
    assert recipe.box == (64, 128, 1)
    assert recipe.swizzle == "128B"
    assert (box.row_bytes, box.bytes) == (128, 128 * 128)


def test_broadcast_axes_and_axes_of_one_are_not_in_the_map():
    t = tensor([1, 5, 32, 64], [0, 0, 64, 1])
    assert tma.Box(t, (3, 2), (64, 32)).map_axes == (3, 2)


def test_a_stride_over_one_row_is_made_valid():
    t = tensor([1, 20], [3, 1])
    assert tma.refusal(t, (1, 0)) is None
    assert tma.Box(t, (1, 0), (16, 64)).recipe.strides == ("48",)


def test_sizes_that_may_be_0_are_1_in_the_map():
    rows = Dim("rows", min=0, max=4096)
    t = tensor([4, rows, 64], [rows * 64, 64, 1])
    assert tma.refusal(t, (2, 1)) is None
    recipe = tma.Box(t, (2, 1), (64, 128)).recipe
    assert recipe.dims == ("64", "max(rows, 1)", "4")
    assert recipe.strides == ("128", "max(rows*128, 16)")


def test_rows_of_a_symbol_are_as_long_as_its_least_multiple():
    k = Dim("K", multiple_of=8)
    t = tensor([M, k], [k, 1])
    assert tma.refusal(t, (1, 0)) is None
    assert tma.Box(t, (1, 0), (64, 64)).recipe.strides == ("K*2",)


@pytest.mark.parametrize(
    ("made", "axes", "what"),
    [
        (lambda: tensor([32, 60], [60, 1]), (1, 0), "a stride of 60 elements"),
        (lambda: tensor([32, 64], [128, 2]), (1, 0), "not contiguous"),
        (lambda: tensor([32, 64], [64, 1], alignment=8), (1, 0), "an alignment of 8 bytes"),
        (lambda: tensor([32, 64], [64, 1], dtypes.i64), (1, 0), "i64 elements"),
        (lambda: tensor([32, 64], [64, 1], dtypes.i1), (1, 0), "i1 elements"),
        (lambda: tensor([0, 64], [64, 1]), (1, 0), "an extent of 0"),
        (lambda: tensor([2] * 4 + [32, 64], [2 ** (14 - i) for i in range(4)] + [64, 1]), (5, 4),
         "6 axes"),
    ],
)  # fmt: skip
def test_what_the_copy_engine_cannot_move(made, axes, what):
    reason = tma.refusal(made(), axes)
    assert reason is not None
    assert what in reason


@pytest.mark.parametrize(("dtype", "columns"), [(dtypes.bf16, 64), (dtypes.f32, 32),
                                                (dtypes.i8, 64), (dtypes.bf16, 16)])  # fmt: skip
def test_staged_chunks_are_swizzled_as_the_map_says(dtype, columns):
    """The swizzle by rows is the driver's by address bits: bits 4-6 get bits 7-9."""
    t = tensor([128, 512], [512, 1], dtype)
    store = StagedStore(tma.Box(t, (1, 0), (columns, 64)))
    span = store.box.row_bytes
    mask = span // 16 - 1
    for row in range(64):
        address = row * span
        assert swizzle_of(span, row) == (address >> 7 & mask) << 4
    assert store.bytes % 1024 == 0
