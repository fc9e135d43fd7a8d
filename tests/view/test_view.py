"""Parts, work, roofline and drawing of pages, against numbers derived by hand."""

import pytest

import dnnc
from dnnc.dialect.fusion import partition
from dnnc.engines.engine import Prediction
from dnnc.plan.plan import FusionRecord
from dnnc.target import of
from dnnc.view.drawing import MOST_BOXES, drawing_of
from dnnc.view.numbers import percent, si
from dnnc.view.parts import Estimate, Part, ProgramParts
from dnnc.view.roofline import roofline_of
from dnnc.view.work import Roof, Work, bandwidth, work_of
from tests.long_graphs import chain
from tests.plan.plans import WHOLE

H100 = of("sm_90a")


def graph(**options):
    return dnnc.pygraph("g", io_data_type="f16", intermediate_data_type="f32", **options)


def whole(made):
    finalized = made.graph.finalize()
    (fusion,) = partition(finalized, [finalized.live_ops])
    return fusion


# ---- work


def test_work_of_a_product():
    g = graph()
    x, w = g.tensor([2, 64, 32], name="x"), g.tensor([1, 32, 16], name="w")
    g.relu(g.matmul(x, w)).set_output()
    work = work_of(whole(g), ("TENSOR_CORE",), H100)
    assert work.operations == 2 * (2 * 64 * 16) * 32 + 2 * 64 * 16
    assert work.bytes == 2 * (2 * 64 * 32 + 32 * 16 + 2 * 64 * 16)
    assert work.roof == Roof("tensor cores, 16 bits", 989e12)
    plain = work_of(whole(g), (), H100).roof
    assert (plain.name, plain.rate) == ("f32 arithmetic", pytest.approx(66.9e12))


def test_work_of_a_convolution():
    g = graph()
    x = g.tensor([1, 8, 6, 6], [288, 1, 48, 8])
    w = g.tensor([4, 8, 3, 3], [72, 1, 24, 8])
    g.conv_fprop(x, w, padding=[1, 1], stride=[1, 1], dilation=[1, 1]).set_output()
    work = work_of(whole(g), ("TENSOR_CORE",), H100)
    assert work.operations == 2 * (4 * 6 * 6) * (8 * 3 * 3)


def test_attention_reads_its_operands_through_views():
    g = graph()
    q, k, v = (g.tensor([1, heads, 64, 32]) for heads in (4, 2, 2))
    g.sdpa(q, k, v, generate_stats=False)[0].set_output()
    work = work_of(whole(g), ("TENSOR_CORE",), H100)
    assert work.roof.name == "tensor cores, 16 bits"
    products = 2 * (2 * 4 * 64 * 64 * 32)
    assert products < work.operations < 1.5 * products


def test_views_compute_nothing():
    g = graph()
    g.transpose(g.tensor([8, 16, 4]), permutation=[0, 2, 1]).set_output()
    assert work_of(whole(g), (), H100).operations == 0


# ---- variants


@pytest.mark.parametrize(
    ("wanted", "sizes", "taken"),
    [
        ({}, ({"M": 64, "N": 64}, {"M": 1024, "N": 64}), 1),
        ({"M": 8, "N": 2}, ({"M": 8, "N": 2}, {"M": 4096, "N": 2}), 0),
    ],
)
def test_each_variant_has_sizes_that_take_it(wanted, sizes, taken):
    program = WHOLE.programs[0]
    parts = ProgramParts(WHOLE, program, dnnc.pygraph("g").graph, H100, wanted)
    assert tuple(case.sizes for case in parts.cases) == sizes
    assert [case.is_taken for case in parts.cases] == [taken == 0, taken == 1]
    assert parts.taken is parts.cases[taken]
    assert [case.guard for case in parts.cases] == ["M <= 64", "other sizes"]
    assert [part.number for part in parts.parts] == [1, 2]


def test_predictions_are_for_the_sizes_asked_for():
    def seconds(tokens):
        g = graph()
        x = g.tensor([1, dnnc.Dim("tokens", max=65536), 384], name="x")
        g.relu(x).set_output()
        plan = dnnc.compile(g, "sm_80")
        parts = ProgramParts(plan, plan.programs[0], g.graph, of("sm_80"), {"tokens": tokens})
        return parts.taken.seconds, next(parts.parts).estimate.work

    (small, few), (large, many) = seconds(1024), seconds(65536)
    assert small < large
    assert (few.bytes, many.bytes) == (2 * 2 * 384 * 1024, 2 * 2 * 384 * 65536)


# ---- roofline


def part(number, work, seconds):
    record = FusionRecord(("a",), "rows", 0, {})
    estimate = Estimate(Prediction(seconds, "memory"), work)
    return Part(number, 0, (record,), (), 0, estimate)


def corners(line):
    return [tuple(map(float, point.split(","))) for point in line.points.split()]


def test_what_takes_its_least_time_is_on_the_roof():
    roof = Roof("f32 arithmetic", 66.9e12)
    works = [Work(10**9, 10**9, roof), Work(10**12, 10**9, roof)]  # memory, arithmetic
    made = roofline_of([part(i, w, w.least_seconds(H100)) for i, w in enumerate(works)], H100)
    memory, arithmetic = map(corners, made.lines)
    (x0, y0), (x1, y1) = memory
    bound_by_memory, bound_by_arithmetic = made.dots
    on_slope = y0 + (bound_by_memory.x - x0) / (x1 - x0) * (y1 - y0)
    assert bound_by_memory.y == pytest.approx(on_slope, abs=0.3)
    assert bound_by_arithmetic.y == pytest.approx(arithmetic[0][1], abs=0.3)
    assert arithmetic[0] == memory[1]
    assert x1 < bound_by_arithmetic.x < arithmetic[1][0]


def test_slower_ones_are_below_and_numbers_stay_apart():
    roof = Roof("f32 arithmetic", 66.9e12)
    work = Work(10**9, 10**9, roof)
    seconds = work.least_seconds(H100)
    made = roofline_of([part(i, work, seconds * (1 + i / 100)) for i in range(5)], H100)
    assert [dot.y for dot in made.dots] == sorted(dot.y for dot in made.dots)
    places = [dot.label[1] for dot in made.dots]
    assert all(abs(a - b) >= 16 for i, a in enumerate(places) for b in places[:i])


def test_what_only_moves_bytes_stands_at_the_left():
    work = Work(0, 10**9, Roof("f32 arithmetic", 66.9e12))
    made = roofline_of([part(1, work, 2 * 10**9 / bandwidth(H100))], H100)
    (dot,) = made.dots
    assert dot.is_moving
    assert dot.x == made.left
    assert dot.whole.endswith("50% of the bandwidth")


def test_without_predictions_there_is_none():
    assert roofline_of([Part(1, 0, (), (), 0, Estimate(why_not="none"))], H100) is None


# ---- drawing


def test_large_graphs_are_drawn_by_fusions_or_not_at_all():
    made = chain(2 * MOST_BOXES).graph.finalize()
    ops = made.live_ops
    assert drawing_of(made, (), ()) is None
    groups = [ops[i : i + 100] for i in range(0, len(ops), 100)]
    fusions = partition(made, groups)
    drawn = drawing_of(made, fusions, [("1 pointwise", "2 us")] * len(fusions))
    assert [box.kind for box in drawn.boxes].count("fusion") == len(fusions) == 8
    assert not drawn.frames
    assert len(drawn.arrows) == 2 * 8  # input, 7 between, output


def test_boxes_do_not_overlap_and_frames_hold_theirs():
    g = graph()
    x, w = g.tensor([1, 64, 32], name="x"), g.tensor([1, 32, 16], name="w" * 500)
    g.softmax(g.matmul(x, w), axis=-1).set_output()
    made = g.graph.finalize()
    fusions = partition(made, [made.live_ops])
    drawn = drawing_of(made, fusions, [("1 matmul_sm80", "2 us")])
    kinds = [box.kind for box in drawn.boxes]
    assert "composite" in kinds  # the softmax is one box
    for i, a in enumerate(drawn.boxes):
        assert 0 <= a.x
        assert a.x + a.width <= drawn.width
        for b in drawn.boxes[:i]:
            is_apart = (
                a.x + a.width <= b.x or b.x + b.width <= a.x
                or a.y + a.height <= b.y or b.y + b.height <= a.y
            )  # fmt: skip
            assert is_apart, (a, b)
    (frame,) = drawn.frames
    for box in drawn.boxes:
        if box.kind in ("anchor", "composite", "pointwise"):
            assert frame.x < box.x
            assert box.x + box.width < frame.x + frame.width
            assert frame.y + 2 * 17 < box.y


# ---- numbers


@pytest.mark.parametrize(
    ("value", "text"), [(989e12, "989 T"), (3350e9, "3.35 T"), (1024, "1.02 k"), (7, "7 ")]
)
def test_si(value, text):
    assert si(value) == text


def test_percent():
    assert [percent(share) for share in (0.976, 0.1, 0.0042)] == ["98%", "10%", "0.4%"]
