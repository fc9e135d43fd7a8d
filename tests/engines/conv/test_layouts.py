"""Convolutions of Hopper's engines in other layouts than channels last: copied, or stored so."""

import pytest

from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.engines.conv.sm90 import CONV_SM90
from dnnc.target import of
from tests.support import machine
from tests.support.checked import check

from . import test_pattern as test_conv
from .convs import H, N, W, around, channels_last, image, packed
from .test_exits_sm90 import ROUNDED, genstats

TARGET = "sm_90a"
BASE = {"TILE_M": 128, "TILE_N": 64, "STAGES": 3, "TILE_ROWS": 0, "SPLIT_K_SLC": 1,
        "TILE_CGA_M": 1, "TILE_CGA_N": 1}  # fmt: skip
FORMS = {
    "along channels": {**BASE, "SWAP_AB": 0},
    "along pixels": {**BASE, "SWAP_AB": 1},
    "halo": {"TILE_ROWS": 4, "TILE_N": 64},
}
slow = pytest.mark.slow


def new_graph(io=dtypes.f16, **options):
    return test_conv.new_graph(io, target=TARGET, **options)


def run(g, sizes=None, *, engine="conv_sm90", knobs=None, allowance=0.0, **options):
    """(which of the launches are copies, the plan)."""
    knobs = FORMS["along channels"] if knobs is None else knobs
    allowance += machine.current().cut
    options = {"target": TARGET, **options}
    plan = check(g, sizes, engine=engine, knobs=knobs, allowance=allowance, **options)
    names = [step.launch.kernel for step in plan.programs[0].variants[0].steps if step.launch]
    copies = ["_copy" in name for name in names]
    return copies, plan


def first(g, dims, **options):
    """A tensor with channels first."""
    return g.tensor(dims, packed(dims), **options)


def layer(g, x, w, beside=image, y=image):
    """A 3x3 layer with a bias, a residual and ReLU; beside, y: layouts of the last two."""
    total = g.conv_fprop(x, w, **around(1))
    dims = [x.get_dim()[0], w.get_dim()[0], *x.get_dim()[2:]]
    total = g.add(g.add(total, g.tensor([1, dims[1], 1, 1])), beside(g, dims))
    out = g.relu(total).set_output()
    return out.set_stride(packed(dims) if y is first else channels_last(dims))


X, FILTER = [2, 72, 7, 9], [40, 72, 3, 3]


@pytest.mark.in_turn
@pytest.mark.parametrize("form", [f if f == "along channels" else pytest.param(f, marks=slow)
                                  for f in FORMS])  # fmt: skip
def test_everything_channels_first(form):
    g = new_graph()
    layer(g, first(g, X), first(g, FILTER), first, first)
    copies, _ = run(g, knobs=FORMS[form])
    before, after = (2, 0) if form == "along pixels" else (3, 1)
    assert copies == [True] * before + [False] + [True] * after


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("x", "w", "beside", "y", "count"),
    [
        (first, image, image, image, 1),
        (image, first, image, image, 1),
        (image, image, first, image, 1),
        (image, image, image, first, 1),
        pytest.param(image, image, image, image, 0, marks=slow),
    ],
    ids=["X", "W", "beside Y", "Y", "none"],
)
def test_what_is_not_channels_last_is_copied(x, w, beside, y, count):
    g = new_graph()
    layer(g, x(g, X), w(g, FILTER), beside, y)
    copies, plan = run(g)
    assert copies.count(True) == count
    assert (plan.programs[0].variants[0].workspace_bytes == "0") == (count == 0)


@pytest.mark.in_turn
def test_along_pixels_results_stay_as_they_are():
    g = new_graph()
    layer(g, image(g, X), image(g, FILTER), first, first)
    assert run(g, knobs=FORMS["along pixels"])[0] == [False]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("io", "channels"),
    [(dtypes.f16, 3), (dtypes.bf16, 20), pytest.param(dtypes.f32, 6, marks=slow),
     pytest.param(dtypes.f16, 66, marks=slow),
     (dtypes.bf16, 4), pytest.param(dtypes.f16, 2, marks=slow)],  # copied as one element each
)  # fmt: skip
def test_channels_that_are_no_multiple_of_16_bytes_get_gaps(io, channels):
    g = new_graph(io)
    x, w = image(g, [2, channels, 6, 7]), image(g, [24, channels, 3, 3])
    g.conv_fprop(x, w, **around(1)).set_output()
    rounding = 2.0**-10 if io == dtypes.f32 else 0.0  # tf32
    assert run(g, allowance=rounding)[0] == [True, True, False]


@pytest.mark.in_turn
@pytest.mark.parametrize("io", [dtypes.i8, pytest.param(dtypes.f8e4m3, marks=slow)], ids=str)
def test_bytes(io):
    g = test_conv.new_graph(
        io,
        target=TARGET,
        compute_data_type=dtypes.i32 if io is dtypes.i8 else dtypes.f32,
        intermediate_data_type=dtypes.i32 if io is dtypes.i8 else dtypes.f32,
    )
    y = g.conv_fprop(first(g, [2, 48, 6, 7]), first(g, [32, 48, 3, 3]), **around(1)).set_output()
    y.set_data_type(dtypes.i32 if io is dtypes.i8 else dtypes.f32).set_stride(packed([2, 32, 6, 7]))
    run(g)


@pytest.mark.in_turn
@pytest.mark.parametrize("rank", [1, pytest.param(3, marks=slow)])
def test_other_ranks(rank):
    spatial = [5, 6, 7][:rank]
    g = new_graph()
    x, w = first(g, [2, 16, *spatial]), first(g, [24, 16, *[3] * rank])
    y = g.conv_fprop(x, w, **around(1, spatial=rank)).set_output()
    y.set_stride(packed([2, 24, *spatial]))
    run(g)


@pytest.mark.in_turn
def test_groups():
    g = new_graph()
    y = g.conv_fprop(first(g, [2, 48, 5, 6]), first(g, [80, 24, 3, 3]), **around(1)).set_output()
    y.set_stride(packed([2, 80, 5, 6]))
    run(g)


@pytest.mark.in_turn
def test_one_plan_serves_every_size():
    g = new_graph()
    x, w = g.tensor([N, 16, H, W], [16 * H * W, H * W, W, 1]), first(g, [24, 16, 3, 3])
    y = g.conv_fprop(x, w, **around(1)).set_output()
    y.set_stride([24 * H * W, H * W, W, 1])
    _, plan = run(g, {"N": 1, "H": 4, "W": 5})
    run(g, {"N": 3, "H": 11, "W": 4}, plan=plan)


@pytest.mark.in_turn
def test_operations_before_and_statistics_after():
    g = new_graph()
    scale, bias = (g.tensor([1, 64, 1, 1]) for _ in range(2))
    x = g.relu(g.add(g.mul(first(g, [2, 64, 5, 6]), scale), bias)).set_data_type(dtypes.f16)
    y = g.conv_fprop(x, first(g, [72, 64, 3, 3]), **around(1)).set_data_type(dtypes.f16)
    y.set_output().set_stride(packed([2, 72, 5, 6]))
    genstats(g, y)
    copies, _ = run(g, allowance=ROUNDED)
    assert copies == [True, True, False, False, True]


@pytest.mark.slow
def test_what_is_computed_before_is_stored_channels_first():
    g = new_graph()
    x = g.relu(first(g, [2, 64, 5, 6])).set_data_type(dtypes.f16).set_output()
    x.set_stride(packed([2, 64, 5, 6]))
    g.conv_fprop(x, image(g, [72, 64, 1, 1]), **around(0)).set_output()
    run(g)


@pytest.mark.slow
def test_the_same_tensor_is_copied_once():
    """X, and what is added to a result of its dims."""
    g = new_graph()
    x = first(g, [2, 64, 5, 6])
    made = g.add(g.conv_fprop(x, image(g, [64, 64, 3, 3]), **around(1)), x).set_output()
    made.set_stride([64 * 5 * 6, 1, 64 * 6, 64])
    assert run(g)[0] == [True, False]


@pytest.mark.in_turn
@pytest.mark.parametrize("y", [image, pytest.param(first, marks=slow)], ids=["NHWC", "NCHW"])
def test_first_layer(y):
    g = new_graph()
    x, w = first(g, [2, 3, 16, 32]), first(g, [40, 3, 7, 7])
    out = g.relu(g.conv_fprop(x, w, **around(3, 2))).set_output()
    if y is first:
        out.set_stride(packed([2, 40, 8, 16]))
    copies, _ = run(g, engine="conv_stem_sm90", knobs={}, target="sm_90a")
    assert copies == ([True, False] if y is image else [True, False, True])


def test_copies_are_part_of_the_prediction():
    seconds = []
    for layout in (image, first):
        g = new_graph()
        dims = [32, 64, 56, 56]
        g.conv_fprop(layout(g, dims), image(g, [64, 64, 3, 3]), **around(1)).set_output()
        graph = g.graph.finalize()
        (fusion,) = partition(graph, [graph.live_ops])
        knobs = CONV_SM90.candidates(fusion, of(TARGET))[0]
        seconds.append(CONV_SM90.predict(fusion, knobs, of(TARGET)).seconds)
    moved = 2 * 32 * 64 * 56 * 56 * 2 / 3.35e12  # at the memory's nominal rate
    assert moved < seconds[1] - seconds[0] < 3 * moved


@pytest.mark.in_turn
def test_two_engines_copy_one_image_each_for_itself():
    """With pixels that begin elsewhere: four channels for one, eight places for the other."""
    g = new_graph()
    x = first(g, [2, 4, 8, 16])
    g.conv_fprop(x, image(g, [16, 4, 5, 5]), **around(2, 2)).set_output()
    g.conv_fprop(x, image(g, [24, 4, 3, 3]), **around(1, 2)).set_output()
    graph = g.graph.finalize()
    fusions = partition(graph, [[op] for op in graph.live_ops])
    engines = ("conv_stem_sm90", "conv_sm90")
    best = [
        heuristics.choices(fusion, of(TARGET), [engine_named(name)])[0]
        for fusion, name in zip(fusions, engines, strict=True)
    ]
    options = {"partition": "0|1", "choices": "|".join(choice.text for choice in best)}
    plan = check(g, target=TARGET, allowance=machine.current().cut, **options)
    steps = plan.programs[0].variants[0].steps
    assert ["_copy" in step.launch.kernel for step in steps] == [True, False, True, True, False]


@pytest.mark.in_turn
def test_uids_of_copies_are_nobody_elses():
    g = new_graph()
    x = g.tensor([1, 16, 5, 6], packed([1, 16, 5, 6]), uid=5)
    beside = image(g, [1, 16, 5, 6], uid=1 << 62)
    g.add(g.conv_fprop(x, image(g, [16, 16, 3, 3]), **around(1)), beside).set_output()
    run(g)
