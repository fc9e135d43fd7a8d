"""Work of conv_wgrad_sm90 beside the gradient: sums of dY, work before X and dY."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.target import of
from tests.dialect.conv_gradient_examples import response_dims
from tests.support.checked import check, random_inputs

from .convs import around, image, packed, ptx_of
from .test_wgrad_sm90 import HALO, SMALL, TARGET, new_graph, reasons

# X, W, parameters, knobs.
SUMMED = {
    "odd channels, more parts than pixels": (
        [1, 64, 9, 9], [37, 64, 1, 1], around(0), {"SPLIT_K_BUF": 12}
    ),
    "groups side by side": ([2, 16, 5, 6], [32, 4, 3, 2], around(1), {}),
    "two blocks share k": ([2, 64, 9, 9], [64, 64, 1, 1], around(0), {"SPLIT_K_SLC": 2}),
    "two panels a warpgroup, tiles of other rows and columns": (
        [1, 128, 9, 9], [264, 128, 1, 1], around(0), {"TILE_M": 256, "TILE_CGA_N": 2}
    ),
    "warpgroups that share rows": ([1, 64, 9, 9], [64, 64, 3, 2], around(1), {"TILE_N": 384}),
    "halo": (
        [2, 64, 12, 16], [72, 64, 3, 3], around(1), {**HALO, "TILE_ROWS": 6, "SPLIT_K_BUF": 2}
    ),
    "a first layer": (
        [2, 3, 8, 16], [40, 3, 7, 7], {"pre_padding": [3, 3], "post_padding": [2, 3],
        "stride": [2, 2]}, {**HALO, "SPLIT_K_BUF": 2},
    ),
}  # fmt: skip


def with_sum(x, w, parameters, type_=dtypes.f16, n=None):
    g = new_graph(type_)
    dy = image(g, response_dims(x, w, parameters))
    g.conv_wgrad(image(g, x), dy, **parameters).set_dim(w).set_output()
    channels = [1, w[0], *[1] * (len(w) - 2)]
    db = g.relu(g.reduction(dy, "add").set_dim(channels))
    db.set_output().set_data_type(type_)
    g.add(db, g.tensor([1] * len(w))).set_output().set_data_type(dtypes.f32)
    return g, dy


def run(g, knobs=None, **options):
    knobs = {**SMALL, **(knobs or {})}
    return check(g, engine="conv_wgrad_sm90", knobs=knobs, target=TARGET, slack=4.0, **options)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.rotating
@pytest.mark.parametrize("name", SUMMED)
def test_sums_of_loss(name):
    """Each channel has its own, and infinities stay in theirs."""
    x, w, parameters, knobs = SUMMED[name]
    g, dy = with_sum(x, w, parameters, dtypes.bf16 if "halo" in name else dtypes.f16)
    inputs = random_inputs(g.graph.finalize(), {})
    inputs[dy.uid][0, w[0] - 1, -1, -1] = np.inf
    with np.errstate(all="ignore"):
        plan = run(g, knobs, inputs=inputs)
    kernels = [kernel.name for kernel in plan.programs[0].kernels]
    assert sum("_copy" not in name for name in kernels) == 2


@pytest.mark.in_turn
def test_sums_of_loss_are_the_same_bits_in_every_order_of_blocks():
    g, _ = with_sum([3, 64, 8, 8], [64, 64, 1, 1], around(0))
    ptx = ptx_of(run(g, {"SPLIT_K_BUF": 3}, seed=1))
    run(g, {"SPLIT_K_BUF": 3}, seed=2)
    assert "red.global" not in ptx
    assert "atom.global" not in ptx


@pytest.mark.in_turn
def test_a_training_layer_reads_its_loss_twice():
    """dY is read by the kernels of the two gradients, and summed by those of the filter's."""
    x, w = [2, 64, 6, 6], [72, 64, 1, 1]
    g = new_graph()
    filter_, dy = image(g, w), image(g, response_dims(x, w, {}))
    g.conv_dgrad(dy, filter_).set_dim(x).set_output()
    g.conv_wgrad(image(g, x), dy).set_dim(w).set_output()
    g.reduction(dy, "add").set_dim([1, 72, 1, 1]).set_output().set_data_type(dtypes.f16)
    plan = check(g, target=TARGET, slack=4.0)
    engines = sorted(fusion.engine for fusion in plan.programs[0].fusions)
    assert engines == ["conv_sm90", "conv_wgrad_sm90"]


@pytest.mark.parametrize(
    ("summed", "what"),
    [
        (lambda g, x, dy: g.reduction(dy, "amax"), "amax"),
        (lambda g, x, dy: g.reduction(x, "add"), "add"),
        (lambda g, x, dy: g.reduction(dy, "add").set_dim([2, 64, 1, 1]), "add"),
    ],
    ids=["another mode", "another tensor", "of each image"],
)
def test_other_sums_are_refused(summed, what):
    g = new_graph()
    x, dy = image(g, [2, 64, 5, 5]), image(g, [2, 64, 5, 5])
    g.conv_wgrad(x, dy).set_dim([64, 64, 1, 1]).set_output()
    made = summed(g, x, dy)
    if made.get_dim() is None or len(made.get_dim()) == 0:
        made.set_dim([1, 64, 1, 1])
    made.set_output()
    (reason,) = reasons(g)
    assert what in reason.what
    assert "sum of DY" in reason.supported


# ---- work before


def computed(g, x):
    """relu(x * scale + bias), f32."""
    scale, bias = (g.tensor([1, x[1], 1, 1]) for _ in range(2))
    return g.relu(g.add(g.mul(image(g, x), scale), bias))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("target", [TARGET, "sm_80"])
@pytest.mark.parametrize("is_image", [True, False], ids=["X", "dY"])
def test_what_is_computed_in_f32_takes_the_other_type(is_image, target):
    """A kernel ahead computes an operand and rounds it to 16 bits.  Inputs are positive, so that no
    sum nearly cancels."""
    g, w = new_graph(), [64, 64, 3, 2]
    x, y = [2, 64, 6, 7], response_dims([2, 64, 6, 7], w, around(1))
    operands = (computed(g, x), image(g, y)) if is_image else (image(g, x), computed(g, y))
    dw = g.conv_wgrad(*operands, **around(1)).set_dim(w)
    g.add(dw, image(g, w)).set_output()
    engine = f"conv_wgrad_{target.removesuffix('a').replace('_', '')}"
    inputs = random_inputs(g.graph.finalize(), {}, low=0.25, high=2.0)
    knobs = {"KERNEL_CFG": 0} if target == TARGET else {}
    plan = check(g, engine=engine, target=target, knobs=knobs, inputs=inputs, slack=4.0)
    (fusion,), kernels = plan.programs[0].fusions, plan.programs[0].kernels
    assert "DOWN_CONVERT_INPUTS" in fusion.notes
    assert sum("_before" in kernel.name for kernel in kernels) == 1
    assert len(kernels) <= 3


OVERLAPS = pytest.mark.overlaps  # panels of taps, which lie a few pixels apart
COMPUTED = {
    "halo, groups, sum of dY": (
        [2, 128, 3, 16], [64, 64, 3, 3], around(2, 1, 2), {**HALO, "TILE_ROWS": 1}
    ),
    "halo, columns": ([1, 64, 4, 16], [80, 64, 3, 3], around(1), {**HALO, "TILE_COLS": 8}),
    "strided, 72 channels": (
        [2, 72, 9, 7], [264, 72, 1, 1], around(0, 2), {"TILE_M": 256, "TILE_N": 128}
    ),
    "parts, blocks that share X": (
        [2, 64, 5, 7], [192, 64, 2, 1], around(0),
        {"SPLIT_K_BUF": 2, "TILE_M": 128, "TILE_N": 128, "TILE_CGA_M": 2},
    ),
    "helped, 72 channels": (
        [2, 72, 9, 7], [264, 72, 1, 1], around(0, 2),
        {"TILE_M": 256, "TILE_N": 128, "KERNEL_CFG": 3},
    ),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.rotating
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=OVERLAPS if "halo" in n else ()) for n in COMPUTED]
)
def test_blocks_compute_x(name):
    """In two launches, where padding is seen or there is none.  Inputs are positive, so that no sum
    nearly cancels."""
    x, w, parameters, knobs = COMPUTED[name]
    g = new_graph(dtypes.bf16 if "parts" in name else dtypes.f16)
    dy = image(g, response_dims(x, w, parameters))
    g.conv_wgrad(computed(g, x), dy, **parameters).set_dim(w).set_output()
    if "sum" in name:
        g.reduction(dy, "add").set_dim([1, w[0], 1, 1]).set_output().set_data_type(dtypes.f32)
    inputs = random_inputs(g.graph.finalize(), {}, low=0.25, high=2.0)
    plan = run(g, {"KERNEL_CFG": 1, **knobs}, inputs=inputs)
    (fusion,), kernels = plan.programs[0].fusions, plan.programs[0].kernels
    assert "DOWN_CONVERT_INPUTS" in fusion.notes
    assert [kernel.name.rpartition("_")[2] for kernel in kernels] == ["sm90", "sum"]


def test_tall_tiles_compute_x_once_for_all_their_rows():
    """Tiles of 256 rows are offered, and chosen where X is computed for 512, by two warpgroups."""
    g = new_graph()
    dy = image(g, [64, 512, 28, 28])
    x = computed(g, [64, 256, 56, 56])
    g.conv_wgrad(x, dy, **around(0, 2)).set_dim([512, 256, 1, 1]).set_output()
    config = heuristics.best_config(g.graph.finalize(), of(TARGET), ["A", "FALLBACK"])
    (choice,) = config.choices
    assert (choice.knobs["KERNEL_CFG"], choice.knobs["TILE_M"]) == (3, 256)


def test_a_warpgroup_more_computes_x_of_tiles_of_two_panels():
    g = new_graph()
    x = computed(g, [2, 64, 5, 6])
    g.conv_wgrad(x, image(g, [2, 64, 5, 6])).set_dim([64, 64, 1, 1]).set_output()
    with pytest.raises(dnnc.DnncError, match="KERNEL_CFG=3 with a tile of 128x64"):
        run(g, {"KERNEL_CFG": 3, "TILE_M": 128})


def test_blocks_compute_no_x_whose_padding_they_do_not_see():
    g = new_graph()
    x = computed(g, [2, 64, 5, 6])
    g.conv_wgrad(x, image(g, [2, 64, 5, 6]), **around(1)).set_dim([64, 64, 3, 3]).set_output()
    with pytest.raises(dnnc.DnncError, match="KERNEL_CFG=1 with an X of padding without TILE_ROWS"):
        run(g, {"KERNEL_CFG": 1})


def test_what_others_need_is_a_kernel_of_its_own():
    g = new_graph()
    x = computed(g, [2, 64, 5, 5])
    g.conv_wgrad(x, image(g, [2, 64, 5, 5])).set_dim([64, 64, 1, 1]).set_output()
    x.set_output().set_data_type(dtypes.f32)
    assert "is computed before it" in reasons(g)[0].what


@pytest.mark.parametrize("layout", ["channels first", "computed"])
def test_results_that_repeat_are_not_added(layout):
    """However the engine looks at operands."""
    g, n = new_graph(), [2, 64, 5, 6]
    x = computed(g, n) if layout == "computed" else g.tensor(n, packed(n))
    g.conv_wgrad(x, image(g, n)).set_dim([64, 64, 1, 1]).set_output()
    g.graph.repeats = True
    with pytest.raises(dnnc.DnncError, match="REDUCTION_MODE=1 of results that repeat"):
        run(g, {"REDUCTION_MODE": 1, "SPLIT_K_BUF": 3})
