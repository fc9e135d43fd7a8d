"""Engine sdpa_fwd_sm90: masks that compare numbers in memory leave out blocks of keys."""

import numpy as np
import pytest

import dnnc
from dnnc.compiler import compile_graph
from dnnc.options import Options
from tests.attention_graphs import Pattern, documents
from tests.support import machine
from tests.support.checked import check, random_inputs

from .test_block_mask import SM80
from .test_fwd_sm90 import SMALL, TARGET, inputs_of

pytestmark = [pytest.mark.sm90, pytest.mark.registers]

KNOBS = SMALL | {"TILE_M": 64, "TILE_N": 64}
SHAPE = {"queries": 200, "keys": 200, "depth": 16, "batch": (1, 2)}


def run(pattern, sizes=None, allowance=1e-5, **numbers):
    given = inputs_of(pattern, **numbers)
    plan = check(
        pattern.g, sizes, engine="sdpa_fwd_sm90", knobs=KNOBS, target=TARGET, slack=4.0,
        allowance=allowance, inputs=given,
    )  # fmt: skip
    assert any(kernel.name.endswith("_ranges") for kernel in plan.programs[0].kernels)
    assert all(kernel.spill_store_bytes == 0 for kernel in plan.programs[0].kernels)
    return plan, given


def assert_hidden_is_not_read(pattern, plan, given, hidden):
    """Values of keys in blocks that no tile sees may be no numbers."""
    (v,) = [t for t in pattern.g.graph.inputs if t.name == "v"]
    assert hidden.any()
    holes = {**given, v.uid: np.where(hidden[:, None], np.nan, given[v.uid])}
    found = machine.current().run(plan, holes)
    for uid, wanted in machine.current().run(plan, given).items():
        np.testing.assert_array_equal(found[uid], wanted)


def both_of(p):
    """(numbers of rows, of columns)."""
    batch, rows, columns = p.dims[0], p.dims[-2], p.dims[-1]
    own = p.g.tensor([batch, 1, rows, 1], name="own", data_type="INT32")
    return own, p.g.tensor([batch, 1, 1, columns], name="other", data_type="INT32")


def compared(name, **options):
    def mask(p, s):
        made = getattr(p.g, name)(*both_of(p), **options)
        return p.masked(p.scaled(s), p.flag(made))

    return mask


def apart(p, s):
    """Less than 20 places later."""
    own, other = both_of(p)
    return p.masked(p.scaled(s), p.integer("cmp_lt", p.integer("sub", own, other), 20))


def prefix_or_same(p, s):
    return p.masked(p.scaled(s), p.either(p.integer("cmp_lt", p.column(s), 10), same_of(p)))


def causal_documents(p, s):
    return p.masked(documents(p, s), p.integer("cmp_le", p.column(s), p.row(s)))


def transposed(p, s):
    """The numbers of columns are those of rows, by a transposition."""
    own = p.g.tensor([p.dims[0], 1, p.dims[-2], 1], name="own", data_type="INT32")
    is_same = p.integer("cmp_eq", own, p.g.transpose(own, [0, 1, 3, 2]))
    return p.masked(p.scaled(s), is_same)


def bounds(p, s):
    """Keys from a start to an end of each row."""
    batch, rows = p.dims[0], p.dims[-2]
    ends = [p.g.tensor([batch, 1, rows, 1], name=n, data_type="INT32") for n in ("own", "end")]
    column = p.column(s)
    inside = p.both(p.integer("cmp_ge", column, ends[0]), p.integer("cmp_lt", column, ends[1]))
    return p.masked(p.scaled(s), inside)


def sliced(p, s):
    """The first entry of a larger batch."""
    own = p.g.tensor([3, 1, p.dims[-2], 1], name="own", data_type="INT32")
    first = p.g.slice(own, [slice(0, 1), slice(0, 1), slice(0, 200), slice(0, 1)])
    other = p.g.tensor([1, 1, 1, p.dims[-1]], name="other", data_type="INT32")
    return p.masked(p.scaled(s), p.integer("cmp_eq", first, other))


def multiplied(p, s):
    """A product that 64 bits would not hold either."""
    own, other = both_of(p)
    for _ in range(2):
        own = p.integer("mul", own, 2**29 + 1)
    return p.masked(p.scaled(s), p.either(same_of(p), p.integer("cmp_le", own, other)))


def wrapping_places(p, s):
    """A comparison of places that wrap around, or of numbers."""
    row, column = (p.integer("mul", place, 25264513) for place in (p.row(s), p.column(s)))
    return p.masked(p.scaled(s), p.either(p.integer("cmp_lt", column, row), same_of(p)))


def same_of(p):
    return p.integer("cmp_eq", *both_of(p))


PLACES = np.arange(200)
SORTED = PLACES // 70


ORDERS = {
    "sorted": SORTED,
    "falling": SORTED[::-1],
    "repeating": PLACES % 3,
    "again": PLACES // 64 % 2,
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("scores", [documents, causal_documents])
def test_documents_in_any_order(scores, order):
    run(Pattern(**SHAPE, scores=scores), own=ORDERS[order], other=ORDERS[order])


HIDDEN = {
    "documents": (documents, SORTED, np.where(PLACES // 64 == 1, 9, SORTED)),
    "in float": (compared("cmp_eq"), SORTED, np.where(PLACES // 64 == 1, 9, SORTED)),
    "not after": (
        compared("cmp_ge", compute_data_type="INT32"), PLACES, np.where(PLACES // 64 == 1, 999, 0)
    ),
    "distances": (apart, PLACES, np.where(PLACES // 64 == 1, -999, PLACES)),
    "a prefix or the same": (prefix_or_same, SORTED, np.where(PLACES // 64 == 1, 9, SORTED)),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_blocks_are_not_read(name):
    scores, own, other = HIDDEN[name]
    pattern = Pattern(**SHAPE, scores=scores)
    plan, given = run(pattern, own=own, other=other)
    assert_hidden_is_not_read(pattern, plan, given, PLACES // 64 == 1)


@pytest.mark.in_turn
def test_bounds_of_each_row():
    pattern = Pattern(**SHAPE, scores=bounds)
    start = np.where(PLACES < 128, 0, 130)
    plan, given = run(pattern, own=start, end=start + 60)
    assert_hidden_is_not_read(pattern, plan, given, PLACES // 64 == 1)


@pytest.mark.in_turn
def test_numbers_that_are_a_slice():
    numbers = np.stack([SORTED, SORTED + 1, SORTED + 2])
    run(Pattern(**SHAPE, scores=sliced), own=numbers, other=SORTED)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("scores", [multiplied, wrapping_places])
def test_sums_that_wrap_around_leave_out_nothing_that_is_seen(scores):
    pattern = Pattern(**SHAPE, scores=scores)
    given = inputs_of(pattern, own=PLACES * 37 - 50, other=PLACES * 1000 - 90000)
    check(
        pattern.g, engine="sdpa_fwd_sm90", knobs=KNOBS, target=TARGET, slack=4.0, allowance=1e-5,
        inputs=given,
    )  # fmt: skip


@pytest.mark.in_turn
def test_rows_that_see_no_key():
    pattern = Pattern(**SHAPE, scores=documents)
    plan, given = run(pattern, own=SORTED, other=SORTED + 3)
    assert_hidden_is_not_read(pattern, plan, given, np.ones(200, bool))


EXTREMES = np.where(PLACES < 100, -(2**31), 2**31 - 1)
MASKS = {
    "extremes": (documents, EXTREMES, EXTREMES[::-1]),
    "not the same": (compared("cmp_neq", compute_data_type="INT32"), SORTED, np.full(200, 1)),
    "not after": (compared("cmp_ge", compute_data_type="INT32"), PLACES, PLACES[::-1]),
    "before": (compared("cmp_lt", compute_data_type="INT32"), PLACES, PLACES),
    "in float": (compared("cmp_eq"), SORTED, SORTED),
    "distances": (apart, PLACES, PLACES),
    "distances that overflow": (apart, EXTREMES, EXTREMES),
    "a prefix or the same": (prefix_or_same, SORTED, SORTED),
    "one tensor": (transposed, SORTED, None),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", MASKS)
def test_comparisons(name):
    scores, own, other = MASKS[name]
    run(Pattern(**SHAPE, scores=scores), own=own, **({} if other is None else {"other": other}))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", ["cmp_eq", "cmp_le"])
def test_numbers_that_f32_rounds(name):
    """2^25 + 1 is 2^25 in f32: the graph says so, unlike the reference, whose numbers are exact."""
    pattern = Pattern(**SHAPE, scores=compared(name))
    given = inputs_of(pattern, own=np.full(200, 2**25 + 1), other=SORTED + 2**25)
    graph = pattern.g.graph.finalize()
    found = {}
    for engine, knobs in (("sdpa_fwd_sm90", KNOBS), ("sdpa_sm80", SM80)):
        options = Options(engine=engine, knobs=tuple(knobs.items()))
        found[engine] = machine.current().run(compile_graph(graph, TARGET, options), given)
    for uid, wanted in found["sdpa_sm80"].items():
        np.testing.assert_allclose(
            found["sdpa_fwd_sm90"][uid].astype(float), wanted.astype(float), rtol=2e-2, atol=1e-2
        )


@pytest.mark.in_turn
def test_numbers_of_each_entry_of_the_batch_and_sizes_of_symbols():
    rows, columns = dnnc.Dim("R", max=4096), dnnc.Dim("C", max=4096)
    pattern = Pattern(queries=rows, keys=columns, depth=16, batch=(2, 2), scores=documents)
    graph = pattern.g.graph.finalize()
    sizes = {"R": 70, "C": 150}
    given = random_inputs(graph, sizes)
    for tensor in graph.inputs:
        if tensor.name in ("own", "other"):
            shape = given[tensor.uid].shape
            count = int(np.prod(shape[1:]))
            given[tensor.uid] = np.stack([np.arange(count) // 40, np.arange(count) // 90]).reshape(
                shape
            )
    check(
        pattern.g, sizes, engine="sdpa_fwd_sm90", knobs=KNOBS, target=TARGET, slack=4.0,
        allowance=1e-5, inputs=given,
    )  # fmt: skip


@pytest.mark.in_turn
def test_few_keys_need_no_ranges():
    pattern = Pattern(queries=80, keys=80, scores=documents)
    plan = check(
        pattern.g, engine="sdpa_fwd_sm90", knobs=KNOBS, target=TARGET, slack=4.0, allowance=1e-5,
        inputs=inputs_of(pattern, own=PLACES[:80] // 30, other=PLACES[:80] // 30),
    )  # fmt: skip
    assert len(plan.programs[0].kernels) == 1
