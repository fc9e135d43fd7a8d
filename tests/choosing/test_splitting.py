"""Graphs as several fusions: what is computed again, and when that beats one kernel."""

import numpy as np
import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.choosing.splitting import grown_groups
from dnnc.choosing.splitting_by_axes import groups_by_axes
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines import ENGINES
from dnnc.errors import DnncError
from dnnc.options import Options
from dnnc.target import of
from tests.support.checked import check, random_inputs

from ..engines.conv.convs import around, image

SM90A = of("sm_90a")
OF_ONE_LEVEL = [engine for engine in ENGINES if engine.name not in ("rows", "grid")]


def batchnorm(n, c, h, w):
    g = dnnc.pygraph("bn", io_data_type="f16", intermediate_data_type="f32")
    x = g.tensor([n, c, h, w], [c * h * w, 1, w * c, c], name="x")
    scale, bias, mean, variance = (
        g.tensor([1, c, 1, 1], data_type="f32", name=name)
        for name in ("scale", "bias", "mean", "variance")
    )
    results = g.batchnorm(
        input=x, scale=scale, bias=bias, in_running_mean=mean, in_running_var=variance,
        epsilon=g.tensor_scalar(1e-3), momentum=g.tensor_scalar(0.1),
    )  # fmt: skip
    for i, tensor in enumerate(results):
        tensor.set_output().set_data_type("f32" if i else "f16")
    return g


def split(g):
    graph = g.graph.finalize()
    groups = grown_groups(graph, SM90A, OF_ONE_LEVEL)
    return graph, partition(graph, groups)


def test_pointwise_work_is_done_again_rather_than_stored():
    graph, fusions = split(batchnorm(2, 16, 5, 5))
    (x, *_) = graph.inputs
    assert len(fusions) == 3
    for fusion in fusions:
        assert x in fusion.inputs
        for tensor in fusion.outputs:  # nothing of x's size but the result itself
            assert tensor.shape != x.shape or not tensor.is_virtual
    stored = [tensor for fusion in fusions for tensor in fusion.outputs]
    assert len(stored) == len(set(stored))
    assert set(graph.outputs) <= set(stored)


def test_what_is_cheaper_to_store_is_stored():
    """A sum of many inputs is read again as one tensor."""
    g = dnnc.pygraph("sums", io_data_type="f32")
    total = g.tensor([64, 4096])
    for _ in range(4):
        total = g.add(total, g.tensor([64, 4096]))
    mean = g.reduction(total, "avg").set_dim([64, 1])
    g.sub(total, mean).set_output()
    _, fusions = split(g)
    assert [tensor.shape for tensor in fusions[0].outputs].count(total.shape) == 1


def test_split_batchnorm_computes_what_the_reference_computes():
    g = batchnorm(3, 16, 5, 4)
    graph = g.graph.finalize()
    config = heuristics.split_config(graph, SM90A, OF_ONE_LEVEL)
    plan = check(
        g, target="sm_90a", partition=config.partition_text(graph), choices=config.choice_text,
        allowance=1e-6,
    )  # fmt: skip
    assert len(plan.programs[0].fusions) == 3


def test_images_are_one_kernel_of_the_whole_grid_and_small_ones_of_a_block():
    large = heuristics.best_config(batchnorm(64, 64, 56, 56).graph.finalize(), SM90A)
    assert [choice.engine.name for choice in large.choices] == ["grid"]
    small = heuristics.best_config(batchnorm(2, 64, 4, 4).graph.finalize(), SM90A)
    assert [choice.engine.name for choice in small.choices] == ["rows"]


def test_images_of_symbolic_sizes_are_one_kernel_too():
    config = heuristics.best_config(
        batchnorm(dnnc.Dim("N", max=256), 64, 56, 56).graph.finalize(), SM90A
    )
    assert [choice.engine.name for choice in config.choices] == ["grid"]


def test_a_graph_that_one_kernel_takes_slowly_is_split(monkeypatch):
    without_grid = [engine for engine in ENGINES if engine.name != "grid"]
    monkeypatch.setattr(heuristics, "all_engines", lambda: without_grid)
    graph = batchnorm(64, 64, 56, 56).graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    slow = heuristics.choices(whole, SM90A, without_grid)[0]
    config = heuristics._faster_split(graph, SM90A, slow)
    assert slow.engine.name == "rows"
    assert len(config.choices) == 3
    assert "faster than one fusion" in config.split_reason


@pytest.mark.parametrize(
    "text", ["0 1|1 2", "0 0 1 2", "0 1", "0 1 2|", "0 1 -1", "0 1 +2", "0 1 3"]
)
def test_partitions_are_checked(text):
    """Only pointwise and view operations may be in several fusions."""
    g = dnnc.pygraph("sum", io_data_type="f32")
    x = g.tensor([4, 8])
    y = g.reduction(g.exp(x), "add").set_dim([4, 1])
    g.relu(y).set_output()
    with pytest.raises(DnncError, match="partition"):
        compile_graph(g.graph.finalize(), "sm_90a", Options(partition=text))


def test_knobs_choose_the_engine_that_takes_the_graph_whole():
    for sizes, name, knob in (
        ((2, 64, 4, 4), "rows", {"TILE_COLS": 4}),
        ((64, 64, 56, 56), "grid", {"TILE_ROWS": 128}),
    ):
        graph = batchnorm(*sizes).graph.finalize()
        config = heuristics.best_config(graph, SM90A, knobs=knob)
        assert [choice.engine.name for choice in config.choices] == [name]


def with_statistics(images, w, size, groups, parameters, *, keeps_x=False):
    """A convolution and the sums of each of its channels, and of their squares.

    keeps_x: what it convolves is computed and is an output, too.
    """
    g = dnnc.pygraph("stats", io_data_type="f16", intermediate_data_type="f32")
    x = image(g, [images, w[1] * groups, *size])
    if keeps_x:
        scaled = g.mul(x, g.tensor([1, w[1] * groups, 1, 1]))
        x = g.relu(scaled).set_output().set_data_type("f16")
    y = g.conv_fprop(x, image(g, w), **parameters).set_output()
    for tensor in g.genstats(y):
        tensor.set_output().set_data_type("f32")
    return g


LAYERS = {
    "conv_depthwise": ([96, 1, 3, 3], (56, 56), 96, around(1)),
    "conv_stem_sm90": ([64, 3, 7, 7], (224, 224), 1, around(3, 2)),
}


@pytest.mark.parametrize("engine", LAYERS)
def test_sums_of_what_an_engine_can_not_add_up_are_one_kernel(engine):
    graph = with_statistics(32, *LAYERS[engine]).graph.finalize()
    found = heuristics.best_config(graph, SM90A)
    assert [choice.engine.name for choice in found.choices] == [engine, "reduction"]


@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("keeps_x", [False, True])
def test_a_depthwise_layer_between_other_work_keeps_its_engine(target, keeps_x):
    """Two engines take it with what is around it, and both multiply element by element, or
    by zeros."""
    graph = with_statistics(32, *LAYERS["conv_depthwise"], keeps_x=keeps_x).graph.finalize()
    found = heuristics.best_config(graph, of(target), ["A", "FALLBACK"])
    engines = [choice.engine.name for choice in found.choices]
    assert engines == ["pointwise"] * keeps_x + ["conv_depthwise", "reduction"]


def test_sums_of_one_tensor_are_right():
    graph = (g := with_statistics(2, [16, 1, 3, 3], (7, 6), 16, around(1))).graph.finalize()
    declining = [engine for engine in ENGINES if engine.name not in ("conv_sm80", "fallback")]
    config = heuristics.split_config(graph, SM90A, declining)
    plan = check(
        g, target="sm_90a", partition=config.partition_text(graph), choices=config.choice_text,
        allowance=1e-3,
    )  # fmt: skip
    engines = [fusion.engine for fusion in plan.programs[0].fusions]
    assert engines == ["conv_depthwise", "reduction"]


def test_sums_that_need_each_other_stay_apart():
    """The second reads the first one's result, though both read x."""
    g = dnnc.pygraph("apart", io_data_type="f32")
    x = g.tensor([8, 64, 32])
    total = g.reduction(x, "add").set_dim([8, 64, 1]).set_output()
    g.reduction(g.mul(x, total), "add").set_dim([1, 64, 32]).set_output()
    _, fusions = split(g)
    assert len(fusions) == 2


# ---- a fusion for the reductions over the same axes


def outputs(results, *types):
    for tensor, type_ in zip(results, types, strict=True):
        tensor.set_output().set_data_type(type_)


def layernorm_backward(rows, columns, io="f16"):
    g = dnnc.pygraph("ln", io_data_type=io, intermediate_data_type="f32")
    dy, x, scale = (g.tensor([n, columns]) for n in (rows, rows, 1))
    mean, inverse = (g.tensor([rows, 1], data_type="f32") for _ in range(2))
    outputs(g.layernorm_backward(dy, x, scale, mean, inverse), io, "f32", "f32")
    return g


def adalayernorm_backward(batches, rows, columns):
    """Sums over the rows of each batch alone."""
    g = dnnc.pygraph("ada", io_data_type="f16", intermediate_data_type="f32")
    dy, x, scale = (g.tensor([batches, n, columns]) for n in (rows, rows, 1))
    mean, inverse = (g.tensor([batches, rows, 1], data_type="f32") for _ in range(2))
    outputs(g.adalayernorm_backward(dy, x, scale, mean, inverse), "f16", "f32", "f32")
    return g


def instancenorm_backward(n, c, h, w, strides=None):
    g = dnnc.pygraph("instance", io_data_type="f16", intermediate_data_type="f32")
    dy, x = (g.tensor([n, c, h, w], strides) for _ in range(2))
    scale = g.tensor([1, c, 1, 1], data_type="f32")
    mean, inverse = (g.tensor([n, c, 1, 1], data_type="f32") for _ in range(2))
    dx, *sums = g.instancenorm_backward(dy, x, scale, mean, inverse)
    outputs([dx, *sums], "f16", "f32", "f32")
    dx.set_stride(dy.get_stride())
    return g


def quantised_norm(rows, columns, *, has_bias=False, mode="amax"):
    """fp8 of a norm, and a reduction of all that it gives."""
    g = dnnc.pygraph("quantised", io_data_type="bf16", intermediate_data_type="f32")
    x, scale, factor = g.tensor([rows, columns]), g.tensor([1, columns]), g.tensor([1, 1])
    epsilon = g.tensor_scalar(1e-3)
    if has_bias:
        y, *_ = g.layernorm("INFERENCE", x, scale, g.tensor([1, columns]), epsilon)
    else:
        y, _ = g.rmsnorm("INFERENCE", x, scale, None, epsilon)
    total = g.reduction(y, mode).set_dim([1, 1])
    outputs([g.mul(y, factor), total], "f8E4M3FN", "f32")
    return g


LARGE = {  # a graph, and whether its last fusion has numbers of rows alone
    "rows that no cluster holds": (layernorm_backward(64, 1_000_000), False),
    "rows of an odd number": (layernorm_backward(8192, 100_001), False),
    "few long rows": (layernorm_backward(8, 1_000_000), False),
    "adaptive": (adalayernorm_backward(16, 1024, 2048), False),
    "instances": (instancenorm_backward(32, 256, 56, 56), True),
    "norm1": (quantised_norm(8192, 4096, mode="norm1"), True),
}


@pytest.mark.rotating
@pytest.mark.parametrize("case", LARGE)
def test_sums_of_the_same_axes_are_a_fusion(case):
    """Each goes through the large tensors once, and stores none but outputs."""
    g, is_small = LARGE[case]
    graph = g.graph.finalize()
    config = heuristics.best_config(graph, SM90A)
    assert len(config.choices) == 2
    sizes = [t.elements().constant for t in graph.inputs]
    for choice in config.choices:
        for tensor in choice.fusion.outputs:
            assert not tensor.is_virtual or tensor.elements().constant * 64 <= max(sizes)
    last = config.choices[-1].fusion
    assert (max(t.elements().constant for t in last.inputs) * 64 <= max(sizes)) == is_small


@pytest.mark.rotating
@pytest.mark.parametrize(
    "g",
    [
        layernorm_backward(40, 264),
        adalayernorm_backward(3, 10, 72),
        instancenorm_backward(4, 6, 5, 8),
        instancenorm_backward(3, 16, 4, 4, [256, 1, 64, 16]),
        quantised_norm(30, 136),
        quantised_norm(5, 1000, has_bias=True),
    ],
    ids=["layer", "adaptive", "instance", "instance of channels last", "amax", "amax of layer"],
)
def test_fusions_of_the_same_axes_compute_what_the_reference_computes(g):
    graph = g.graph.finalize()
    config = heuristics._split_by_axes(graph, SM90A, ENGINES, None)
    plan = check(
        g, target="sm_90a", partition=config.partition_text(graph), choices=config.choice_text,
        slack=4.0, allowance=2e-5,
    )  # fmt: skip
    assert len(plan.programs[0].fusions) == 2


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
def test_the_amax_of_all_is_nan_if_any_element_is():
    g = quantised_norm(6, 40)
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    x = next(t for t in graph.inputs if t.elements().constant == 240)
    inputs[x.uid][3, 7] = np.nan
    check(g, target="sm_90a", inputs=inputs)


def test_graphs_without_groups_of_axes():
    alone = batchnorm(2, 16, 5, 5).graph.finalize()
    assert groups_by_axes(alone) is None  # one group
    products = with_statistics(2, *LAYERS["conv_stem_sm90"]).graph.finalize()
    assert groups_by_axes(products) is None
    g = dnnc.pygraph("turns", io_data_type="f32")
    x = g.tensor([8, 16])
    rows = g.reduction(x, "max").set_dim([8, 1])
    columns = g.reduction(g.sub(x, rows), "add").set_dim([1, 16])
    again = g.reduction(g.mul(x, columns), "max").set_dim([8, 1])
    g.add(again, rows).set_output()
    assert groups_by_axes(g.graph.finalize()) is None  # rows and columns by turns
    g = dnnc.pygraph("beside", io_data_type="f32")
    x = g.tensor([8, 16])
    for dims in ([8, 1], [1, 16]):
        g.reduction(x, "add").set_dim(dims).set_output()
    g.relu(x).set_output()
    assert groups_by_axes(g.graph.finalize()) is None  # an output that no reduction leads to
