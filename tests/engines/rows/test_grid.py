"""Engine grid in the interpreter: batch norms and their gradients, masks, a tensor's amax."""

import re
from functools import partial

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines.rows.grid import GRID
from dnnc.errors import DnncError
from dnnc.options import Options
from dnnc.target import TARGETS, of
from tests.support import machine, multiprocessors
from tests.support.checked import check, random_inputs


@pytest.fixture(autouse=True)
def _few_multiprocessors(monkeypatch):
    """Blocks that meet are interpreted all at once."""
    multiprocessors.few(monkeypatch, 24)


CONFIG = {"TILE_ROWS": 64, "ARRAY_SIZE_PER_THREAD": 1, "SPECFILT": 0, "STAGES": 4}
ALONG = {**CONFIG, "TILE_ROWS": 512}


def run(g, sizes=None, knobs=CONFIG, **options):
    """A device's rsqrt and division are off by some units of f32, in which statistics are."""
    options = {"target": "sm_90a", "slack": 4.0, "allowance": 1e-6, **options}
    return check(g, sizes, engine="grid", knobs=knobs, **options)


def new_graph(io):
    return dnnc.pygraph(
        "grid", io_data_type=io, intermediate_data_type="f32", compute_data_type="f32"
    )


class Images:
    """Tensors [n, c, h, w] with channels last, and [1, c, 1, 1] in f32."""

    def __init__(self, g, n, c, *spatial):
        self.g, self.dims = g, [n, c, *spatial]
        self.channels = c

    def image(self, name, **options):
        return self.g.tensor(self.dims, channels_last(self.dims), name=name, **options)

    def channel(self, name):
        return self.g.tensor(
            [1, self.channels, *[1] * (len(self.dims) - 2)], data_type="f32", name=name
        )


def channels_last(dims):
    _, c, *spatial = dims
    strides, step = [], c
    for extent in reversed(spatial):
        strides.insert(0, step)
        step = step * extent
    return [step, 1, *strides]


def batchnorm(n, c, *spatial, io="f16", running=True, after=None):
    """after: (graph, images, y) -> what is stored in y's place."""
    g = new_graph(io)
    of_images = Images(g, n, c, *spatial)
    old = [of_images.channel(name) if running else None for name in ("old_mean", "old_var")]
    y, *statistics = g.batchnorm(
        input=of_images.image("x"), scale=of_images.channel("scale"),
        bias=of_images.channel("bias"), in_running_mean=old[0], in_running_var=old[1],
        epsilon=g.tensor_scalar(1e-3), momentum=g.tensor_scalar(0.1) if running else None,
    )  # fmt: skip
    for tensor in statistics:
        if tensor is not None:
            tensor.set_output().set_data_type("f32")
    made = after(g, of_images, y) if after else y
    made.set_output().set_name("y")
    return g


def add_relu_mask(g, images, y):
    made = g.relu(g.add(y, images.image("z")))
    mask = g.cmp_gt(made, 0.0).set_output().set_data_type(dtypes.i1).set_name("mask")
    mask.set_stride(channels_last(images.dims))
    return made


def gradients(n, c, *spatial, io="f16", masked=False):
    g = new_graph(io)
    images = Images(g, n, c, *spatial)
    dy = images.image("dy")
    if masked:
        dy = g.mul(dy, images.image("mask", data_type=dtypes.i1)).set_output().set_name("dz")
    results = g.batchnorm_backward(
        dy, images.image("x"), *(images.channel(name) for name in ("scale", "mean", "rstd"))
    )
    for i, tensor in enumerate(results):
        tensor.set_output().set_data_type("f32" if i else io)
    return g


def quantised(rows, columns, io="bf16"):
    g = new_graph(io)
    x = g.tensor([rows, columns], name="x")
    largest = g.reduction(x, "amax").set_dim([1, 1]).set_output().set_data_type("f32")
    g.div(g.mul(x, 448.0), largest).set_output().set_data_type("f8E4M3FN").set_name("y")
    return g


def scaled_by_amax(rows, columns):
    """x divided by its amax, in types of every architecture."""
    g = new_graph("bf16")
    x = g.tensor([rows, columns])
    g.div(x, g.reduction(x, "amax").set_dim([1, 1])).set_output()
    return g


def whole(g):
    graph = g.graph.finalize()
    return partition(graph, [graph.live_ops])[0]


# ---- graphs


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(("c", "io"), [(64, "bf16"), (36, "f16"), (7, "f32"), (1000, "bf16")])
def test_batch_norm(c, io):
    rows = 64 if c < 100 else 16
    # The mean of a channel may be far smaller than its elements.
    run(batchnorm(3, c, 5, 7, io=io), knobs={**CONFIG, "TILE_ROWS": rows}, allowance=1e-4)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("dims", [(2, 40, 3, 4, 5), (700, 16), (1, 8, 1, 2), (2, 24, 40, 1)])
def test_batch_norm_of_other_ranks_and_sizes(dims):
    run(batchnorm(*dims, running=False))


@pytest.mark.in_turn
def test_batch_norm_with_channels_ahead():
    """The fastest axis is reduced: a block has one channel at a time."""
    g = new_graph("f16")
    x = g.tensor([2, 5, 12, 12])
    scale, bias = (g.tensor([1, 5, 1, 1], data_type="f32") for _ in range(2))
    y, *statistics = g.batchnorm(x, scale, bias, None, None, g.tensor_scalar(1e-3), None)
    for tensor in (y, *statistics[:2]):
        tensor.set_output()
    run(g, knobs=ALONG)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("io", ["bf16", "f32"])
def test_residual_activation_and_packed_mask(io):
    g = batchnorm(3, 40, 5, 7, io=io, after=add_relu_mask)
    run(g, knobs={**CONFIG, "STAGES": 2}, allowance=1e-4)  # as above


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("c", [16, 72])
def test_gradients(c, masked):
    run(gradients(3, c, 6, 7, masked=masked))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("dims", [(300, 128), (7, 33), (1, 8)])
def test_a_whole_tensor_is_quantised(dims):
    run(quantised(*dims), knobs=ALONG)


@pytest.mark.in_turn
def test_sizes_known_at_run_time():
    g = batchnorm(dnnc.Dim("N", max=64), 24, 5, dnnc.Dim("W", max=64))
    for n, w in ((1, 1), (3, 17), (64, 9)):
        run(g, {"N": n, "W": w})


@pytest.mark.in_turn
def test_levels_that_are_no_variance():
    """Softmax over pixels: the largest, then the sum of exponentials: two meetings more."""
    g = new_graph("f16")
    x = g.tensor([600, 24], name="x")
    e = g.exp(g.sub(x, g.reduction(x, "max").set_dim([1, 24])))
    g.div(e, g.reduction(e, "add").set_dim([1, 24])).set_output()
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("mode", ["min", "mul", "norm1", "norm2", "avg", "mul_no_zeros"])
def test_modes(mode):
    g = new_graph("f32")
    x = g.tensor([70, 12], name="x")
    total = g.reduction(x, mode).set_dim([1, 12])
    g.sub(x, total).set_output()
    run(g, slack=16.0)


@pytest.mark.in_turn
def test_integers_and_doubles():
    for kind in ("i32", "f64"):
        g = dnnc.pygraph(
            "sums", io_data_type=kind, intermediate_data_type=kind, compute_data_type=kind
        )
        x = g.tensor([90, 20], name="x")
        g.sub(x, g.reduction(x, "add").set_dim([1, 20])).set_output()
        run(g)


# ---- knobs


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("rows", [4, 64, 512])
@pytest.mark.parametrize(("held", "stages"), [(0, 1), (3, 2), (8, 8)])
def test_knobs(rows, held, stages):
    knobs = {**CONFIG, "TILE_ROWS": rows, "ARRAY_SIZE_PER_THREAD": held, "STAGES": stages}
    run(batchnorm(2, 24, 10, 30), knobs=knobs)


# Threads have six or seven fragments each, those of 512 rows one or none.
@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    "more",
    [
        {"SPECFILT": 4},
        {"SPECFILT": 6, "STAGES": 2},
        {"SPECFILT": 6, "ARRAY_SIZE_PER_THREAD": 0},
        {"SPECFILT": 2, "TILE_ROWS": 512},
    ],
    ids=str,
)
def test_fragments_stay_in_registers(more):
    run(batchnorm(2, 24, 10, 30), knobs={**CONFIG, "TILE_ROWS": 4, **more})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("masked", [False, True])
def test_fragments_of_two_tensors_stay_in_registers(masked):
    knobs = {**CONFIG, "TILE_ROWS": 4, "SPECFILT": 4, "STAGES": 2}
    run(gradients(2, 24, 10, 30, masked=masked), knobs=knobs, allowance=1e-4)


@pytest.mark.in_turn
def test_fragments_along_rows_stay_in_registers():
    g = new_graph("f32")
    x = g.tensor([4, 3, 60, 1000], name="x")
    mean = g.reduction(x, "avg").set_dim([1, 3, 1, 1])
    g.sub(x, mean).set_output()
    run(g, knobs={**ALONG, "ARRAY_SIZE_PER_THREAD": 2, "SPECFILT": 12}, allowance=1e-4)


@pytest.mark.in_turn
def test_passes_between_the_first_and_the_last_find_registers():
    run(softmax_of_columns(600, 24), knobs={**CONFIG, "TILE_ROWS": 4, "SPECFILT": 4})


def softmax_of_columns(rows, columns):
    g = new_graph("f16")
    x = g.tensor([rows, columns], name="x")
    largest = g.reduction(x, "max").set_dim([1, columns])
    exponentials = g.exp(g.sub(x, largest))
    total = g.reduction(exponentials, "add").set_dim([1, columns])
    g.div(exponentials, total).set_output()
    return g


@pytest.mark.in_turn
def test_results_repeat_bit_for_bit():
    g = gradients(4, 24, 20, 13)
    graph = g.graph.finalize()
    plan = compile_graph(graph, "sm_90a", Options(engine="grid"))
    inputs = random_inputs(graph, {})
    found = [machine.current().run(plan, inputs, sizes={}, seed=seed) for seed in range(3)]
    for uid in found[0]:
        np.testing.assert_array_equal(found[0][uid], found[1][uid])
        np.testing.assert_array_equal(found[0][uid], found[2][uid])


@pytest.mark.in_turn
def test_mean_and_variance_are_one_level():
    """Blocks meet twice for a level; two levels of softmax meet twice as often."""
    assert meetings(batchnorm(64, 64, 56, 56)) == 2
    assert meetings(gradients(64, 64, 56, 56)) == 2


def meetings(g):
    plan = compile_graph(g.graph.finalize(), "sm_90a", Options(engine="grid"))
    text = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    return len(re.findall(r"red\.release\.gpu", text))


# ---- numbers


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_special_values_stay_in_their_channels(special):
    g = batchnorm(3, 8, 9, 10, io="f32")
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    x = next(t for t in graph.inputs if t.name == "x")
    inputs[x.uid][1, 3, 4, 5] = special
    with np.errstate(invalid="ignore"):
        run(g, inputs=inputs)


# ---- what is taken


@pytest.mark.in_turn
@pytest.mark.parametrize("is_last", [False, True])
def test_inputs_of_several_layouts(is_last):
    """The first of the widest inputs says which way fragments lie, in the plan as in `legal`."""
    g = new_graph("f16")
    dims = [4, 96 if is_last else 12, 6, 6]
    z = g.tensor(dims, channels_last(dims) if not is_last else None, name="z")
    x = g.tensor(dims, channels_last(dims) if is_last else None, name="x")
    total = g.reduction(x, "add").set_dim([1, dims[1], 1, 1])
    g.add(g.relu(z), g.mul(x, total)).set_output()
    run(g, knobs={**(CONFIG if is_last else ALONG), "STAGES": 2}, allowance=1e-4)


@pytest.mark.in_turn
def test_a_norm_of_distances_is_of_moments():
    g = new_graph("f16")
    x = g.tensor([4, 2048, 8, 8], channels_last([4, 2048, 8, 8]))
    off = g.sub(x, g.reduction(x, "avg").set_dim([1, 2048, 1, 1]))
    g.div(off, g.reduction(off, "norm2").set_dim([1, 2048, 1, 1])).set_output()
    for knobs in GRID.candidates(whole(g), of("sm_90a")):
        options = Options(engine="grid", knobs=tuple(knobs.items()))
        plan = compile_graph(g.graph, "sm_90a", options)
        step = plan.programs[0].variants[0].steps[-1]
        assert int(step.launch.dynamic_smem_bytes) <= of("sm_90a").limits.smem_block_bytes


@pytest.mark.in_turn
def test_levels_of_several_totals_where_every_block_combines_all():
    """More groups than slices: totals stay in shared memory, where the next parts come."""
    g = new_graph("f16")
    x = g.tensor([40, 1024], name="x")
    off = g.sub(x, g.reduction(x, "max").set_dim([1, 1024]))
    least = g.reduction(off, "min").set_dim([1, 1024])
    total = g.reduction(g.exp(off), "add").set_dim([1, 1024])
    g.add(g.div(g.exp(off), total), least).set_output()
    run(g, knobs={**CONFIG, "STAGES": 2})


def refusal(g, target="sm_90a"):
    (reason, *_) = GRID.supports(whole(g), of(target))
    return reason


def test_sizes_that_may_be_0_are_refused():
    """A split takes them: there is no last element that loads could repeat."""
    g = new_graph("f16")
    x = g.tensor([dnnc.Dim("n", min=0, max=99), 8, 4, 4], [128, 1, 32, 8])
    g.div(x, g.reduction(x, "amax").set_dim([1, 8, 1, 1])).set_output()
    assert "which may be empty" in str(refusal(g))


def test_refusals_name_what_is_wrong():
    g = new_graph("f16")
    x = g.tensor([8, 16, 32])
    first = g.reduction(x, "add").set_dim([1, 16, 32])
    g.add(g.add(x, first), g.reduction(x, "add").set_dim([8, 1, 32])).set_output()
    assert "equal dims, axes" in str(refusal(g))
    g = new_graph("f16")
    g.reduction(g.tensor([8, 16]), "add").set_dim([1, 16]).set_output()
    assert "an output of the reduced tensor's dims" in str(refusal(g))
    # A mean and a variance are found in one pass, unless distances are from a mean of 16 bits.
    for io, said in (("f32", "a reduction of what another gives"), ("f16", "")):
        g = new_graph("f16")
        x = g.tensor([8, 16])
        mean = g.reduction(x, "avg").set_dim([1, 16]).set_output().set_data_type(io)
        centred = g.sub(x, mean)
        g.reduction(g.mul(centred, centred), "avg").set_dim([1, 16]).set_output()
        assert said in str(refusal(g)) if said else not GRID.supports(whole(g), of("sm_90a"))
    g = new_graph("f16")
    g.relu(g.tensor([8, 16])).set_output()
    assert "one reduction at least" in str(refusal(g))
    g = new_graph("f16")
    x = g.transpose(g.tensor([8, 16]), [1, 0])
    g.sub(x, g.reduction(x, "add").set_dim([1, 8])).set_output()
    assert "transpose" in str(refusal(g))
    assert "boolean" in str(refusal(batchnorm(2, 36, 4, 4, after=add_relu_mask)))
    assert "groups of kept elements" in str(refusal(batchnorm(2, 1 << 17, 1, 2)))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ARRAY_SIZE_PER_THREAD": 48}, "shared memory"),
        ({"STAGES": 8}, "registers"),
        ({"SPECFILT": 16}, "registers"),
        ({"TILE_ROWS": 512}, "groups of kept elements"),
    ],
    ids=str,
)
def test_knobs_are_checked(more, said):
    g = gradients(2, 1000, 4, 4, io="f32", masked=True)
    with pytest.raises(DnncError, match=said):
        run(g, knobs={**CONFIG, "TILE_ROWS": 16, "STAGES": 2, **more})


def less_its_mean(io, *dims):
    g = new_graph(io)
    images = Images(g, *dims)
    x = images.image("x")
    g.sub(x, g.reduction(x, "avg").set_dim([1, dims[1], 1, 1])).set_output()
    return g


def by_the_mean_of_another(io, *dims):
    g = new_graph(io)
    images = Images(g, *dims)
    mean = g.reduction(images.image("x"), "avg").set_dim([1, dims[1], 1, 1])
    g.mul(images.image("z"), mean).set_output()
    return g


# Single bytes, fragments of an odd element, a tensor that is read once: nothing is kept.
@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "build",
    [
        partial(less_its_mean, "i8", 64, 64, 56, 56),
        partial(less_its_mean, "f8E4M3FN", 64, 64, 56, 56),
        partial(less_its_mean, "f16", 64, 63, 56, 56),
        partial(by_the_mean_of_another, "f16", 64, 64, 56, 56),
        partial(batchnorm, 64, 64, 56, 56),
        partial(gradients, 64, 64, 56, 56, masked=True),
        partial(quantised, 4097, 8191),
    ],
)
@pytest.mark.registers
def test_candidates_compile_without_spills(build):
    g = build()
    graph = g.graph.finalize()
    target = of("sm_90a")
    found = GRID.candidates(whole(g), target)
    found = sorted(found, key=lambda knobs: GRID.predict(whole(g), knobs, target).seconds)
    for knobs in found[:2]:
        plan = compile_graph(graph, target, Options(engine="grid", knobs=tuple(knobs.items())))
        (program,) = plan.programs
        assert not any(kernel.spill_store_bytes for kernel in program.kernels), knobs


@pytest.mark.in_turn
def test_other_knobs_may_leave_no_registers():
    plan = compile_graph(
        batchnorm(64, 64, 56, 56).graph.finalize(), "sm_90a",
        Options(engine="grid", knobs=(("STAGES", 8),)),
    )  # fmt: skip
    assert plan.programs[0].fusions[0].knobs["SPECFILT"] == 0


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("io", ["i8", "f16"])
def test_what_is_not_kept_is_read_again(io):
    """Bytes, and fragments of an odd element."""
    run(less_its_mean(io, 2, 24 if io == "i8" else 7, 10, 30), knobs={**CONFIG, "TILE_ROWS": 4})


def test_no_fragments_stay_in_registers_before_sm_90():
    with pytest.raises(DnncError, match=r"SPECFILT=2 for sm_80, .*; accepted: SPECFILT=0"):
        run(batchnorm(2, 24, 4, 4), knobs={**CONFIG, "SPECFILT": 2}, target="sm_80")


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_what_is_taken_has_candidates(target):
    for g in (batchnorm(64, 64, 56, 56), gradients(32, 1024, 14, 14), quantised(4096, 4096)):
        fusion = whole(g)
        if not GRID.supports(fusion, target):
            found = GRID.candidates(fusion, target)
            assert found
            for knobs in found:
                assert not GRID.legal(knobs, fusion, target)
                assert GRID.predict(fusion, knobs, target).seconds > 0


@pytest.mark.parametrize("build", [batchnorm, gradients])
@pytest.mark.parametrize("sizes", [(256, 64, 56, 56), (256, 1024, 14, 14), (32, 256, 56, 56)])
def test_images_are_taken_whole(build, sizes):
    config = heuristics.best_config(build(*sizes).graph.finalize(), of("sm_90a"))
    assert [choice.engine.name for choice in config.choices] == ["grid"]


@pytest.mark.parametrize("channels", [24, 136, 216])
def test_pixels_that_are_no_whole_sectors_are_not_shared(channels):
    config = heuristics.best_config(batchnorm(64, channels, 56, 56).graph.finalize(), of("sm_90a"))
    columns = 512 // config.choices[0].knobs["TILE_ROWS"]
    assert 8 * columns >= channels
