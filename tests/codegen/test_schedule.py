"""The order of tiles."""

import itertools

import pytest

from dnnc.codegen.tiles.schedule import TileOrder
from dnnc.expr import Expr


class Numbers:
    """A kernel whose sizes are numbers."""

    def size(self, size):
        return Expr.of(size).constant

    def divide(self, number, divisor):
        return number // Expr.of(divisor).constant

    def remainder(self, number, divisor, quotient=None):
        return number % Expr.of(divisor).constant


def places(rows, columns, matrices, group_rows):
    order = TileOrder(Expr.of(rows), Expr.of(columns), Expr.of(matrices), group_rows)
    count = order.tiles.constant
    return [tuple(map(int, order.place(Numbers(), n))) for n in range(count)]


def test_the_docstrings_example():
    wanted = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    assert [(r, c) for _, r, c in places(3, 2, 1, 2)] == wanted


@pytest.mark.parametrize(("rows", "columns", "matrices"), [(1, 1, 1), (5, 7, 1), (8, 3, 4)])
@pytest.mark.parametrize("group_rows", [1, 3, 16])
def test_every_tile_comes_once(rows, columns, matrices, group_rows):
    found = places(rows, columns, matrices, group_rows)
    wanted = itertools.product(range(matrices), range(rows), range(columns))
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("is_of_columns", [False, True])
def test_matrices_follow_each_other_for_some_tiles(is_of_columns):
    """Three rows of tiles of each of four matrices, then the one that is left."""
    sizes = (2, 7) if is_of_columns else (7, 2)
    order = TileOrder(*map(Expr.of, sizes), Expr.of(4), 2, 3, is_of_columns)
    found = [tuple(map(int, order.place(Numbers(), n))) for n in range(7 * 2 * 4)]
    assert len(set(found)) == len(found)
    along = [column if is_of_columns else row for _, row, column in found]
    assert [sorted(set(along[i : i + 24])) for i in (0, 24, 48)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [matrix for matrix, _, _ in found[24:48:6]] == [0, 1, 2, 3]
