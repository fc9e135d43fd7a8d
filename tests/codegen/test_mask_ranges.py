"""Ranges of columns that a mask may keep, and keeps all of, against every row and column."""

from random import Random

import numpy as np
import pytest

from dnnc.codegen.attention.mask_conditions import Anything, Both, Compare, Either, Linear, negated
from dnnc.codegen.attention.mask_ranges import Ranges, is_triangular, ranges

ROWS, COLUMNS = np.arange(24)[:, None], np.arange(30)[None]
TERMS = {"a": 7, "b": -3, "c": 0}
AT = (("loop", 0),)  # how terms are addressed, which is nothing to ranges
FAR = Ranges.everywhere().some_end
HOLDS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "slt": np.less,
    "sle": np.less_equal,
    "sgt": np.greater,
    "sge": np.greater_equal,
}


def load(leaf, access):
    assert access == AT
    return TERMS[leaf]


def drawn(random, joints):
    if joints == 0:
        if random.random() < 0.05:
            return Anything()
        return Compare(random.choice(list(HOLDS)), linear(random))
    kind = random.choice(("and", "and", "or", "or", "not"))
    if kind == "not":
        return negated(drawn(random, joints - 1))
    parts = [drawn(random, random.randint(0, joints - 1)) for _ in range(random.choice((1, 2, 3)))]
    return Both(tuple(parts)) if kind == "and" else Either(tuple(parts))


def linear(random):
    terms = ((random.choice((-1, 1, 2)), leaf, AT) for leaf in TERMS if random.random() < 0.2)
    return Linear(
        random.choice((0, 0, 1, 1, -1, 2, -3)),
        random.choice((0, 1, 1, 1, -1, -1, 2)),
        random.randint(-30, 30),
        tuple(terms),
    )


def table(condition):
    """(Where it is known to hold, where it is known not to), of every row and column."""
    if isinstance(condition, Compare):
        form = condition.form
        loaded = sum(factor * TERMS[leaf] for factor, leaf, _ in form.terms)
        total = form.row * ROWS + form.column * COLUMNS + form.number + loaded
        return HOLDS[condition.predicate](total, 0), ~HOLDS[condition.predicate](total, 0)
    if isinstance(condition, Anything):
        nowhere = np.zeros(np.broadcast_shapes(ROWS.shape, COLUMNS.shape), bool)
        return nowhere, nowhere
    yes, no = zip(*map(table, condition.parts), strict=True)
    both, either = np.logical_and.reduce, np.logical_or.reduce
    return (both(yes), either(no)) if isinstance(condition, Both) else (either(yes), both(no))


@pytest.mark.parametrize("seed", range(10))
def test_ranges_hold_what_they_say(seed):
    random = Random(seed)
    left_out = taken = 0
    for _ in range(200):
        condition = drawn(random, random.choice((0, 1, 1, 2, 3)))
        yes, no = table(condition)
        first = random.randrange(len(ROWS))
        last = random.randint(first, len(ROWS) - 1)
        found = ranges(condition, first, last, load)
        is_out = ((COLUMNS < found.some) | (COLUMNS >= found.some_end))[0]
        is_whole = ((COLUMNS >= found.all) & (COLUMNS < found.all_end))[0]
        assert no[first : last + 1, is_out].all(), (condition, first, last, found)
        assert yes[first : last + 1, is_whole].all(), (condition, first, last, found)
        left_out += is_out.any()
        taken += is_whole.any()
    assert left_out > 20
    assert taken > 20


@pytest.mark.parametrize("seed", range(5))
def test_negations_hold_where_conditions_do_not(seed):
    random = Random(1000 + seed)
    for _ in range(100):
        condition = drawn(random, random.choice((0, 1, 2, 3)))
        yes, no = table(negated(condition))
        for one, other in zip((no, yes), table(condition), strict=True):
            np.testing.assert_array_equal(one, other)


ROW, COLUMN = Linear(row=1), Linear(column=1)


def compare(a, predicate, b):
    return Compare(predicate, a.plus(b, -1))


CAUSAL = compare(COLUMN, "sle", ROW)
RECENT = compare(COLUMN, "sgt", ROW.plus(Linear(number=-4)))
PREFIX = compare(COLUMN, "slt", Linear(number=10))
LENGTH = compare(COLUMN, "slt", Linear(terms=((1, "a", AT),)))
LATER = compare(ROW, "sge", Linear(number=4))

# Of rows 3 to 5.
EXPECTED = {
    "causal": (CAUSAL, Ranges(0, 6, 0, 4)),
    "what causal hides": (negated(CAUSAL), Ranges(4, FAR, 6, FAR)),
    "window": (Both((CAUSAL, RECENT)), Ranges(0, 6, 2, 4)),
    "prefix": (Either((CAUSAL, PREFIX)), Ranges(0, 10, 0, 10)),
    "length": (LENGTH, Ranges(0, 7, 0, 7)),
    "diagonal": (compare(COLUMN, "eq", ROW), Ranges(3, 6, 0, 0)),
    "some rows": (LATER, Ranges(0, FAR, 0, 0)),
    "no row": (compare(ROW, "slt", Linear(number=3)), Ranges(0, 0, 0, 0)),
    "every row": (compare(ROW, "slt", Linear(number=6)), Ranges(0, FAR, 0, FAR)),
    "unknown beside causal": (Both((CAUSAL, Anything())), Ranges(0, 6, 0, 0)),
    "every other column": (compare(COLUMN.times(2), "slt", ROW), Ranges.unknown()),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_ranges_are_as_narrow_as_can_be(name):
    condition, expected = EXPECTED[name]
    assert ranges(condition, 3, 5, load) == expected


TRIANGULAR = {
    "causal": CAUSAL,
    "written the other way": compare(ROW.times(2), "sge", COLUMN),
    "hidden": negated(compare(ROW, "slt", COLUMN)),
    "with a length": Both((CAUSAL, LENGTH)),
    "of some rows": Both((Either((LATER, PREFIX)), CAUSAL)),
}
NOT_TRIANGULAR = {
    "window": Both((CAUSAL, RECENT)),
    "from the row on": compare(COLUMN, "sge", ROW),
    "the other way": compare(COLUMN, "sle", Linear(row=-1, number=20)),
    "diagonal": compare(COLUMN, "eq", ROW),
    "prefix": Either((CAUSAL, PREFIX)),
    "the same for all rows": LENGTH,
    "rows alone": LATER,
    "steep columns": compare(COLUMN.times(2), "sle", ROW),
    "unknown": Both((CAUSAL, Anything())),
}


@pytest.mark.parametrize("name", TRIANGULAR)
def test_triangular_conditions(name):
    assert is_triangular(TRIANGULAR[name])


@pytest.mark.parametrize("name", NOT_TRIANGULAR)
def test_conditions_that_are_not(name):
    assert not is_triangular(NOT_TRIANGULAR[name])


@pytest.mark.parametrize("seed", range(5))
def test_no_row_of_a_triangle_drops_what_one_before_keeps(seed):
    random = Random(2000 + seed)
    count = 0
    for _ in range(1000):
        condition = drawn(random, random.choice((0, 1, 1, 2)))
        if is_triangular(condition):
            # Those that are no triangles hide whole rows, or columns of all rows.
            for part in triangles_of(condition):
                yes, _ = table(part)
                assert (yes[1:] >= yes[:-1]).all(), condition
                count += 1
    assert count > 10


def triangles_of(condition):
    if isinstance(condition, Both):
        return [part for inner in condition.parts for part in triangles_of(inner)]
    return [condition] if is_triangular(condition) else []
