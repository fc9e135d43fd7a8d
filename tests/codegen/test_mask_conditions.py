"""Conditions that are read off masks, as the linalg stage of an attention says them."""

import pytest

import dnnc
from dnnc import compiler
from dnnc.codegen.attention.mask_conditions import Anything, Both, Compare, Either, Linear
from dnnc.codegen.attention.mask_ranges import is_triangular
from dnnc.codegen.attention.region import AttentionRegion
from dnnc.codegen.region import Region
from dnnc.dialect import dnn, structure
from dnnc.options import Options
from dnnc.target import of
from tests.attention_graphs import Pattern

CAUSAL = Compare("sle", Linear(-1, 1))
FAR = dnnc.Dim("far", max=1 << 25)


def condition(mask, **shape):
    """mask: function (pattern, scores) -> what scores that are kept have."""
    pattern = Pattern(scores=lambda p, s: p.masked(p.scaled(s), mask(p, s)), **shape)
    with dnn.context():
        work = compiler.start(pattern.g.graph.finalize(), of("sm_90a"))
        compiler.advance(work, "linalg", Options(engine="sdpa_fwd_sm90"))
        (function,) = structure.fusion_functions(work.module)
        (found,) = AttentionRegion(Region.of(function)).masks.condition.parts
        return found


def indices(p, s, dtype):
    """(row, column) as the frontend makes them where nothing is said: computed in FLOAT."""
    return (p.g.gen_index(s, axis=axis).set_data_type(dtype) for axis in (2, 3))


def causal(p, s, dtype="INT32"):
    row, column = indices(p, s, dtype)
    return p.flag(p.g.cmp_le(column, row))


def window(p, s):
    row, column = indices(p, s, "INT32")
    return p.flag(p.g.cmp_gt(column, p.g.sub(row, 20.0).set_data_type("INT32")))


def band(p, s, joint="logical_and", **options):
    return p.flag(getattr(p.g, joint)(causal(p, s), window(p, s), **options))


def scaled_rows(p, s):
    row, column = indices(p, s, "FLOAT")
    return p.flag(p.g.cmp_lt(p.g.add(column, 3.0), p.g.mul(row, 2.0)))


def length(p, s):
    """A number of the batch's entry, of any size."""
    own = p.g.tensor([p.dims[0], 1, 1, 1], name="own", data_type="INT32")
    return p.flag(p.g.cmp_lt(p.g.gen_index(s, axis=3), own))


def between(p, s):
    """A place that is no integer."""
    row, column = indices(p, s, "FLOAT")
    return p.flag(p.g.cmp_lt(column, p.g.add(row, 0.5)))


def far_away(p, s):
    return p.flag(p.g.cmp_lt(p.g.gen_index(s, axis=3), 2.0**31))


READ = {
    "indices of integers": (causal, "sle", Linear(-1, 1)),
    "indices of floats": (lambda p, s: causal(p, s, "FLOAT"), "sle", Linear(-1, 1)),
    "a distance stored as an integer": (window, "sgt", Linear(-1, 1, 20)),
    "products and sums": (scaled_rows, "slt", Linear(-2, 1, 3)),
    "a number beyond all places": (far_away, "eq", Linear()),
}


@pytest.mark.parametrize("name", READ)
def test_comparisons_in_float_are_read_as_those_of_integers(name):
    mask, predicate, form = READ[name]
    assert condition(mask) == Compare(predicate, form)


@pytest.mark.parametrize("compute", [None, "BOOLEAN", "INT32"])
def test_conditions_are_joined_in_any_type(compute):
    options = {"compute_data_type": compute} if compute else {}
    parts = (CAUSAL, Compare("sgt", Linear(-1, 1, 20)))
    assert condition(lambda p, s: band(p, s, **options)) == Both(parts)
    assert condition(lambda p, s: band(p, s, "logical_or", **options)) == Either(parts)


def test_a_loaded_number_may_be_rounded():
    found = condition(length)
    assert (found.predicate, found.form.column, found.form.row) == ("slt", 1, 0)
    assert [factor for factor, *_ in found.form.terms] == [-1]


def test_places_that_are_no_integers_are_not_read():
    assert condition(between) == Anything()


@pytest.mark.parametrize("mask", [causal, window, lambda p, s: causal(p, s, "FLOAT")])
def test_places_that_f32_rounds_are_not_read(mask):
    assert condition(mask, queries=FAR, keys=FAR) == Anything()


def test_causal_masks_of_floats_have_their_longest_tiles_first():
    assert is_triangular(condition(lambda p, s: causal(p, s, "FLOAT")))


WITHIN = (Compare("sle", Linear(1, -1, -20)), Compare("sle", Linear(-1, 1, -20)))
BEYOND = (Compare("sgt", Linear(1, -1, -20)), Compare("sgt", Linear(-1, 1, -20)))


def distance(p, s, dtype, mode):
    """Row - column without its sign, in one of two ways."""
    row, column = indices(p, s, dtype)
    options = {"compute_data_type": dtype}
    ahead = p.g.sub(row, column, **options).set_data_type(dtype)
    if mode == "abs":
        return p.g.abs(ahead, **options).set_data_type(dtype)
    behind = p.g.sub(column, row, **options).set_data_type(dtype)
    return p.g.max(ahead, behind, **options).set_data_type(dtype)


@pytest.mark.rotating
@pytest.mark.parametrize("dtype", ["INT32", "FLOAT"])
@pytest.mark.parametrize("mode", ["abs", "max"])
@pytest.mark.parametrize(
    ("compare", "is_left", "wanted"),
    [
        ("cmp_le", True, Both(WITHIN)), ("cmp_gt", True, Either(BEYOND)),
        ("cmp_ge", False, Both(WITHIN)), ("cmp_lt", False, Either(BEYOND)),
        ("cmp_eq", True, Anything()),
    ],
)  # fmt: skip
def test_distances_on_both_sides(dtype, mode, compare, is_left, wanted):
    def mask(p, s):
        operands = (distance(p, s, dtype, mode), 20.0)
        made = getattr(p.g, compare)
        return p.flag(made(*(operands if is_left else operands[::-1]), compute_data_type=dtype))

    def swapped(found):
        """With all forms on the left of 0."""
        if isinstance(found, Compare):
            opposite = {"sge": "sle", "slt": "sgt"}.get(found.predicate)
            return Compare(opposite, found.form.times(-1)) if opposite else found
        return type(found)(tuple(map(swapped, found.parts))) if hasattr(found, "parts") else found

    assert swapped(condition(mask)) == wanted


def test_the_smaller_of_two_needs_one():
    def mask(p, s):
        row, column = indices(p, s, "INT32")
        smaller = p.g.min(row, column, compute_data_type="INT32").set_data_type("INT32")
        return p.flag(p.g.cmp_lt(smaller, 7.0, compute_data_type="INT32"))

    wanted = Either((Compare("slt", Linear(1, 0, -7)), Compare("slt", Linear(0, 1, -7))))
    assert condition(mask) == wanted
