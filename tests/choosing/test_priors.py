"""Outputs that are added to what they held, in the interpreter: engines, splits, refusals."""

import numpy as np
import pytest

import dnnc
from dnnc import DnncError, Status, dtypes, mlir
from dnnc.choosing import declined
from dnnc.choosing.declined import reasons_against
from dnnc.compiler import compile_graph
from dnnc.dialect import dnn, json_form
from dnnc.dialect.fusion import partition
from dnnc.engines import ENGINES, engine_named
from dnnc.interpreter.plans import run_plan as interpreted
from dnnc.options import Options
from dnnc.record import structure_key
from dnnc.target import of
from tests.support import machine
from tests.support.checked import check
from tests.support.reread import Watch

from ..engines.conv import test_pattern as test_conv
from ..engines.conv import test_sm90 as hopper
from ..engines.conv.convs import N, around, image, packed, ptx_of
from ..engines.conv.test_halo_sm90 import with_halo
from ..engines.elementwise.test_resample import channels_last as last
from ..engines.elementwise.test_resample import parameters

Y = 100


@pytest.fixture(autouse=True)
def watch(monkeypatch):
    """No kernel reads what it has written of Y."""
    return Watch(monkeypatch, "y")


def run(watch, g, sizes=None, **options):
    """Checks a graph, in another order of its blocks too."""
    plan = check(g, sizes, **options)
    allowance = options.get("allowance", 0.0)
    check(g, sizes, seed=1, plan=plan, slack=options.get("slack", 2.0), allowance=allowance)
    assert watch.reads or machine.current() is not machine.INTERPRETER
    return plan


def new_graph(io="f16", target="sm_80"):
    return test_conv.new_graph(dtypes.of(io), target=target)


def accumulated(g, x, strides, *, beta=0.5, dtype=None):
    """Y = x + beta * what Y held."""
    prior = g.tensor(x.get_dim(), strides, data_type=dtype)
    prior.prior_of = Y
    scaled = g.mul(prior, beta)
    y = g.add(x, scaled).set_output().set_uid(Y).set_name("y").set_stride(strides)
    return y.set_data_type(dtype) if dtype else y


def convolution(x, w, parameters, *, io="f16", target="sm_80", strides=None, reads=False, **more):
    """A convolution that is added to Y, and ReLU of Y where `reads`."""
    g = new_graph(io, target)
    raw = g.conv_fprop(image(g, x), image(g, w), **parameters)
    y = accumulated(g, raw, (strides or last)(raw.get_dim()), **more)
    if reads:
        g.relu(y).set_output()
    return g


SMALL = ([2, 16, 5, 7], [24, 16, 3, 3], around(1))
both_layouts = pytest.mark.parametrize("strides", [last, packed], ids=["nhwc", "nchw"])
slow = pytest.mark.slow
SHORT = {"LOAD_SIZE": 4, "ARRAY_SIZE_PER_THREAD": 2}


@pytest.mark.rotating
@both_layouts
def test_conv_sm80(strides, watch):
    """With channels first the threads go along pixels."""
    g = convolution(*SMALL, strides=strides, reads=True)
    run(watch, g, engine="conv_sm80", target="sm_80")


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ([1, 6, 5, 7], [10, 6, 3, 2], {"io": "f32"}),
        ([1, 16, 5, 3], [16, 16, 3, 3], {"beta": 1.0, "dtype": dtypes.i8}),
        pytest.param([1, 16, 5, 3], [16, 16, 3, 3], {"dtype": dtypes.f32}, marks=slow),
        pytest.param([1, 32, 5, 7], [32, 8, 3, 3], {}, marks=slow),
    ],
    ids=["odd channels of f32", "into i8", "into f32", "groups side by side"],
)
def test_shapes_and_types(x, w, options, watch):
    run(watch, convolution(x, w, around(1), **options), engine="conv_sm80", target="sm_80", slack=4)


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("strides", "knobs"),
    [
        (last, {}),
        (packed, {"SWAP_AB": 1}),
        (last, {"SPLIT_K_SLC": 2}),
        pytest.param(packed, {}, marks=slow),
        pytest.param(last, {"SWAP_AB": 1}, marks=slow),
        pytest.param(last, {"WARP_SPEC_CFG": 4, "TILE_N": 128}, marks=slow),
        pytest.param(packed, {"WARP_SPEC_CFG": 4, "TILE_N": 128}, marks=slow),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_conv_sm90(strides, knobs, watch):
    """Read where it is, or by TMA; with channels first copied ahead, and the result back."""
    g = convolution(*SMALL, strides=strides, reads=True, target="sm_90a")
    run(watch, g, engine="conv_sm90", knobs={**hopper.SMALL, **knobs}, target="sm_90a")


def test_pixels_that_come_once(watch):
    g = convolution([1, 16, 5, 9], [24, 16, 3, 3], around(1), target="sm_90a")
    run(watch, g, engine="conv_sm90", knobs=with_halo(g, 4, STAGES=3), target="sm_90a")


def test_an_image_of_few_channels(watch):
    g = convolution([2, 3, 6, 24], [24, 3, 3, 3], around(1), reads=True, target="sm_90a")
    knobs = {"TILE_M": 128, "TILE_N": 64, "STAGES": 2}
    run(watch, g, engine="conv_stem_sm90", knobs=knobs, target="sm_90a")


def test_a_product_for_each_image(watch):
    g = new_graph(target="sm_90a")
    y = g.conv_fprop(g.tensor([2, 24, 6, 8]), g.tensor([40, 24, 1, 1]), **around(0))
    g.relu(accumulated(g, y, packed(y.get_dim()))).set_output()
    run(watch, g, engine="conv_product_sm90", target="sm_90a", slack=3.0)


def test_depthwise(watch):
    g = convolution([1, 8, 5, 9], [8, 1, 3, 3], around(1), reads=True)
    knobs = {"TILE_ROWS": 2, "TILE_COLS": 4, "ARRAY_SIZE_PER_THREAD": 2}
    run(watch, g, engine="conv_depthwise", knobs=knobs, target="sm_80")


@both_layouts
def test_groups_of_few_channels(strides, watch):
    """Rows that end past the image, and pixels past the last one, are others' once more."""
    g = convolution([1, 16, 5, 9], [32, 8, 3, 3], around(1), strides=strides, reads=True)
    knobs = {"TILE_ROWS": 2, "TILE_N": 16, "ARRAY_SIZE_PER_THREAD": 2}
    run(watch, g, engine="conv_grouped_sm80", knobs=knobs, target="sm_80")


@pytest.mark.parametrize("strides", [last, pytest.param(packed, marks=slow)])
def test_fallback(strides, watch):
    g = convolution([2, 8, 5, 7], [12, 8, 2, 2], around(1), strides=strides, reads=True)
    run(watch, g, engine="fallback", target="sm_80")


@pytest.mark.rotating
@pytest.mark.parametrize("tile", [1, 2])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_resample(backward, tile, watch):
    g = new_graph()
    mode, where = "AVGPOOL_INCLUDE_PADDING", parameters([0, 0], [0, 0], [2, 2], [2, 2])
    if backward:
        y = g.resample_backward(image(g, [2, 8, 3, 4]), mode, **where).set_dim([2, 8, 6, 8])
    else:
        y, _ = g.resample(image(g, [2, 8, 6, 8]), mode, **where)
    accumulated(g, y, last(y.get_dim()))
    knobs = {"LOAD_SIZE": 16, "ARRAY_SIZE_PER_THREAD": 1, "TILE_ROWS": tile, "TILE_COLS": tile}
    run(watch, g, engine="resample", knobs=knobs, target="sm_80")


@pytest.mark.parametrize("columns", [40, 41], ids=["whole fragments", "an end inside one"])
def test_pointwise(columns, watch):
    """The elements of several blocks, the last of which has few."""
    g = new_graph()
    y = accumulated(g, g.tensor([67, columns]), [columns, 1])
    g.relu(y).set_output()
    run(watch, g, engine="pointwise", target="sm_80", knobs=SHORT)


def test_every_size(watch):
    """One plan, whose last tiles end before what they would read."""
    g = convolution([N, 16, 5, 7], [24, 16, 3, 3], around(1))
    plan = run(watch, g, {"N": 3}, target="sm_80")
    check(g, {"N": 1}, plan=plan)


@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_what_reads_the_output_finds_the_new_values(target, watch):
    """conv_sm90 reduces what is in registers; conv_sm80 would read what it has written."""
    g = convolution(*SMALL, target=target)
    (y,) = g.graph.outputs
    g.reduction(y, "add").set_dim([1, 24, 1, 1]).set_output().set_data_type("f32")
    plan = run(watch, g, target=target, slack=4.0, allowance=machine.current().cut)
    engines = [fusion.engine for fusion in plan.programs[0].fusions]
    assert engines == (["conv_sm90"] if target == "sm_90a" else ["pointwise", "conv_sm80"])


def test_a_kernel_that_reads_again_is_found(monkeypatch):
    monkeypatch.setattr(type(engine_named("conv_sm80")), "reduces_in_registers", True)
    g = convolution(*SMALL)
    (y,) = g.graph.outputs
    g.reduction(y, "add").set_dim([1, 24, 1, 1]).set_output().set_data_type("f32")
    with pytest.raises(AssertionError, match="read after they were written"):
        check(g, engine="conv_sm80", target="sm_80")


# ---- refusals


def whole(g):
    graph = g.graph.finalize()
    return partition(graph, [graph.live_ops])[0]


def reasons(g, engine, target="sm_90a"):
    found = reasons_against(engine_named(engine), whole(g), of(target))
    return [reason for reason in found if reason.clause == "prior contents"]


def transposed(g):
    y = accumulated(g, g.tensor([40, 40]), [40, 1])
    g.transpose(y, [1, 0]).set_output()
    return g


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_engines_that_are_not_known_to_read_first_refuse(engine):
    g = convolution(*SMALL, target="sm_90a")
    found = reasons(g, engine.name)
    assert len(found) == (not engine.updates_outputs)
    assert all("written over what it held" in reason.what for reason in found)


def test_work_at_other_elements_is_refused():
    (reason,) = reasons(transposed(new_graph()), "pointwise")
    assert "is computed of what" in reason.what
    assert "a fusion that reads the output" in reason.supported
    check(transposed(new_graph()), target="sm_80")


def test_what_is_refused_would_be_wrong(monkeypatch, watch):
    """One block reads what another one has written."""
    monkeypatch.setattr(declined, "prior_reasons", lambda engine, fusion: ())
    g = transposed(new_graph())
    plan = compile_graph(g.graph.finalize(), "sm_80", Options(engine="pointwise"))
    with pytest.raises(AssertionError, match="read after they were written"):
        run(watch, g, plan=plan)


def test_an_output_of_two_fusions_is_refused():
    g = new_graph()
    y = accumulated(g, g.tensor([4, 40]), [40, 1])
    g.relu(y).set_output()
    g.exp(y).set_output()
    options = Options(partition="0 1 2|0 1 3", choices="pointwise|pointwise")
    with pytest.raises(DnncError, match="in several fusions") as caught:
        compile_graph(g.graph, "sm_80", options)
    assert caught.value.status is Status.BAD_PARAM


BROKEN = {
    "no output": (lambda g, prior: g.graph.outputs[0].set_uid(Y + 1), Status.BAD_PARAM),
    "other dims": (lambda g, p: p.set_dim([1, 40]), Status.BAD_PARAM_SHAPE_MISMATCH),
    "other strides": (lambda g, p: p.set_stride([48, 1]), Status.BAD_PARAM_SHAPE_MISMATCH),
    "another type": (lambda g, p: p.set_data_type("bf16"), Status.BAD_PARAM_SHAPE_MISMATCH),
    "another alignment": (lambda g, p: p.set_alignment(2), Status.BAD_PARAM_SHAPE_MISMATCH),
    "another reader": (
        lambda g, p: g.exp(p).set_output(), Status.NOT_SUPPORTED_GRAPH_PATTERN),
    "a reader of other elements": (
        lambda g, p: g.add(g.graph.ops[-1].operands[0], g.reduction(p, "add").set_dim([4, 1])),
        Status.NOT_SUPPORTED_GRAPH_PATTERN),
    "another one": (
        lambda g, p: setattr(g.graph.ops[-1].operands[0], "prior_of", Y),
        Status.BAD_PARAM_DUPLICATED_ENTRIES),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_no_output_held(name):
    g = new_graph()
    accumulated(g, g.tensor([4, 40]), [40, 1])
    change, status = BROKEN[name]
    change(g, next(t for t in g.graph.tensors if t.prior_of is not None))
    with pytest.raises(DnncError) as caught:
        g.graph.finalize()
    assert caught.value.status is status
    assert caught.value.supported


def test_packed_booleans_are_refused():
    g = dnnc.pygraph("bits", io_data_type="i1", compute_data_type="i1")
    prior = g.tensor([4, 40])
    prior.prior_of = Y
    g.logical_or(g.tensor([4, 40]), prior).set_output().set_uid(Y)
    with pytest.raises(DnncError, match="packed booleans") as caught:
        g.graph.finalize()
    assert caught.value.status is Status.NOT_SUPPORTED_DATA_TYPE


# ---- the forms of graphs and plans


def test_texts_keep_what_an_output_held():
    graph = convolution(*SMALL).graph.finalize()
    again = json_form.from_json(json_form.to_json(graph))
    with dnn.context():
        module = mlir.parse(str(dnn.to_mlir(graph)))
        through_mlir = dnn.from_mlir(module)
    assert again == graph == through_mlir


def test_structures_tell_it_from_another_input():
    graphs = [convolution(*SMALL).graph for _ in range(2)]
    for tensor in graphs[1].tensors:
        tensor.prior_of = None
    one, other = (structure_key(graph.finalize()) for graph in graphs)
    assert one != other


def test_a_plan_has_one_tensor_for_both():
    g = convolution(*SMALL)
    plan = compile_graph(g.graph, "sm_80", Options(engine="conv_sm80"))
    graph = g.graph
    (prior,) = (t for t in graph.inputs if t.prior_of is not None)
    assert [t.uid for t in plan.tensors] == [t.uid for t in (*graph.inputs, *graph.outputs)
                                             if t is not prior]  # fmt: skip
    assert {t.uid: t.prior for t in plan.tensors if t.prior is not None} == {Y: prior.uid}
    assert plan.may_alias == ()
    (step,) = plan.programs[0].variants[0].steps
    assert [arg.uid for arg in step.launch.args if arg.kind == "pointer"].count(Y) == 1
    assert "ld.global.nc" not in ptx_of(plan)  # which is for what no one writes


@pytest.mark.parametrize("key", ["uid", "the prior's", "tensor"])
def test_what_an_output_held_is_given_by_either(key):
    g = new_graph()
    accumulated(g, g.tensor([4, 40], name="x"), [40, 1])
    graph = g.graph.finalize()
    (prior,) = (t for t in graph.inputs if t.prior_of is not None)
    name = {"uid": Y, "the prior's": prior.uid, "tensor": graph.outputs[0]}[key]
    rng = np.random.default_rng(0)
    x, held = (rng.uniform(-2, 2, [4, 40]).astype(np.float16) for _ in range(2))
    plan = compile_graph(graph, "sm_80")
    found = interpreted(plan, {"x": x, name: held})[Y]
    np.testing.assert_array_equal(found, (x + held * np.float32(0.5)).astype(np.float16))
    expected = dnnc.reference(plan, {"x": x, name: held})[Y]
    np.testing.assert_array_equal(found, expected)
