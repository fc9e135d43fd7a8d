"""When a graph is refused, and how: as cudnn-frontend 1.32 was seen to do it."""

import inspect

import pytest

import dnnc.cudnn as cudnn
from dnnc.cudnn import moments
from dnnc.cudnn.operations import OPERATIONS
from tests.cudnn.graphs import D, channel, image, new, output
from tests.support.checked import check

UNSUPPORTED = cudnn.cudnnGraphNotSupportedError
STEPS = ("validate", "build_operation_graph", "create_execution_plans")
EACH = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}


def unset_dim(g):
    return g.reshape(image(g))


# Name -> (what is built, the step that refuses it, the class of the error).
REFUSED = {
    "inner sizes": (
        lambda g: g.matmul(g.tensor([1, 8, 16]), g.tensor([1, 8, 16])), "validate", ValueError,
    ),
    "shapes": (lambda g: g.add(g.tensor([4, 8]), g.tensor([4, 7])), "validate", ValueError),
    "no dims": (unset_dim, "validate", ValueError),
    "ranks of a product": (
        lambda g: g.matmul(g.tensor([1, 8, 16]), g.tensor([1, 1, 16, 8])),
        "build_operation_graph", RuntimeError,
    ),
    "reduced dims": (
        lambda g: g.reduction(image(g), mode=cudnn.reduction_mode.ADD).set_dim([1, 3, 1, 1]),
        "build_operation_graph", RuntimeError,
    ),
    "channels": (
        lambda g: g.conv_fprop(image(g), g.tensor([16, 6, 3, 3]), **EACH),
        "build_operation_graph", RuntimeError,
    ),
    "no padding": (
        lambda g: g.conv_fprop(image(g), g.tensor([16, 8, 1, 1])), "validate", ValueError,
    ),
    "sizes of a reshape": (
        lambda g: g.reshape(image(g)).set_dim([3, 5]).set_stride([5, 1]),
        "build_operation_graph", RuntimeError,
    ),
    "permutation": (
        lambda g: g.transpose(image(g), [0, 0, 1, 2]), "validate", RuntimeError,
    ),
    "few slices": (lambda g: g.slice(image(g), [slice(0, 1)]), "validate", ValueError),
    "no phase": (
        lambda g: g.layernorm(image(g), channel(g), channel(g), channel(g))[0],
        "validate", TypeError,
    ),
    "a type of sm_100": (
        lambda g: g.identity(image(g, data_type=D.FP4_E2M1)), "create_execution_plans", UNSUPPORTED,
    ),
    "heads": (
        lambda g: g.sdpa(
            image(g), g.tensor([2, 3, 4, 6]), g.tensor([2, 3, 4, 6]), generate_stats=False
        )[0],
        "validate", UNSUPPORTED,
    ),
    "neither stats nor inference": (
        lambda g: g.sdpa(image(g), image(g), image(g))[0], "validate", ValueError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_graph_is_refused_at_the_step(case):
    g = new()
    build, step, kind = REFUSED[case]
    output(build(g))
    for name in STEPS[: STEPS.index(step)]:
        getattr(g, name)()
    for _ in range(2):  # a second call says the same
        with pytest.raises(kind) as raised:
            getattr(g, step)()
    assert isinstance(raised.value, UNSUPPORTED) == (kind is UNSUPPORTED)


@pytest.mark.parametrize("method", [m for m, row in OPERATIONS.items() if row.missing])
def test_what_dnnc_lacks_is_refused_with_the_reason(method):
    g = new()
    x = image(g)
    made = getattr(g, method)(x, x)
    output(made[0] if isinstance(made, list) else made)
    step = OPERATIONS[method].missing.step
    for name in STEPS[: STEPS.index(step)]:
        getattr(g, name)()
    with pytest.raises(UNSUPPORTED, match=f"{method} '{method}.0'"):
        getattr(g, step)()


def test_a_graph_without_operations_or_outputs_is_refused_late():
    g = new()
    g.validate()
    with pytest.raises(RuntimeError, match="without operations"):
        g.build_operation_graph()
    g.relu(image(g))
    g.build_operation_graph()
    with pytest.raises(UNSUPPORTED, match="virtual"):
        g.create_execution_plans()


def test_a_graph_that_was_refused_can_be_put_right():
    g = new()
    y = output(unset_dim(g))
    with pytest.raises(ValueError, match="dims"):
        g.validate()
    y.set_dim([16, 24]).set_stride([24, 1])
    g.create_execution_plans()


def test_results_have_the_types_of_the_graph():
    g = new()
    x = image(g)
    larger = output(g.cmp_gt(x, x))
    index = output(g.gen_index(g.binary_select(x, x, larger), axis=1))
    g.validate()
    assert (larger.get_data_type(), index.get_data_type()) == (D.HALF, D.HALF)
    assert index.get_stride() == [192, 1, 48, 8]
    bits = output(new().cmp_gt(image(g), image(g)), D.BOOLEAN)
    assert bits.get_data_type() is D.BOOLEAN


def test_plans_are_counted_from_the_start():
    g = new()
    assert (g.get_execution_plan_count(), g.plans) == (0, [])
    output(g.relu(image(g)))
    with pytest.raises(RuntimeError, match="create_execution_plans"):
        g.select_plan(0)
    g.build_operation_graph()
    assert g.get_execution_plan_count() == 0
    g.create_execution_plans([cudnn.heur_mode.OPENSOURCE, cudnn.heur_mode.A])
    count = g.get_execution_plan_count()
    assert count == len(g.plans) == len(g.backend_plan_entries()) > 1
    assert g.selected_engine is None
    for use in (g.get_plan_name_at_index, g.get_engine_and_knobs_at_index, g.select_plan):
        with pytest.raises(IndexError):
            use(count)


def test_filters_may_come_before_the_plans():
    g = new()
    output(g.relu(image(g)))
    g.build_operation_graph()
    name = "eng"
    assert g.deselect_engines([name]) is g
    g.select_numeric_notes([cudnn.numerical_note.STRICT_NAN_PROP])
    g.create_execution_plans()
    with pytest.raises(UNSUPPORTED, match="filters bar all"):
        g.check_support()


def test_an_engine_can_be_asked_and_taken_without_a_ranking():
    ranked, g = new(), new()
    for graph in (ranked, g):
        output(graph.relu(image(graph)))
    ranked.create_execution_plans()
    engine, knobs = ranked.get_engine_and_knobs_at_index(1)
    g.build_operation_graph()
    known = {knob.type: knob for knob in g.get_knobs_for_engine(engine)}
    assert set(knobs) <= set(known) <= set(cudnn.knob_type)
    assert all(known[k].min_value <= v <= known[k].max_value for k, v in knobs.items())
    g.create_execution_plan(engine, knobs)
    assert g.plans == [cudnn.PlanConfig(engine, knobs, 0)]
    assert g.get_plan_name_at_index(0) == ranked.get_plan_name_at_index(1)
    with pytest.raises(RuntimeError, match="engine 1000"):
        g.get_knobs_for_engine(1000)
    with pytest.raises(RuntimeError, match="engine 1000"):
        g.create_execution_plan(1000, {})


def test_errors_name_the_line_of_the_program():
    lines = []

    def line():
        lines.append(inspect.currentframe().f_back.f_lineno)

    g = new()
    x = g.tensor([4, 8])
    line(), output(g.add(x, g.tensor([4, 7])))
    with pytest.raises(ValueError, match="dim 1") as raised:
        g.validate()
    assert raised.value.made_at == (__file__, lines[0], 0)
    g = new()
    line(), output(g.moe_grouped_matmul_bwd(image(g), image(g), image(g)))
    with pytest.raises(UNSUPPORTED) as raised:
        g.build_operation_graph()
    assert raised.value.made_at == (__file__, lines[1], 0)


def test_places_of_errors_are_understood():
    g = new()
    output(unset_dim(g))
    with pytest.raises(ValueError, match=r"\(C1\)") as raised:
        g.validate()
    assert moments._place(raised.value.where) == ("reshape", "C1")
    assert moments._place("tensor 'x' (uid 1)") == ("tensor", "")


def test_score_modifications_use_tensors_of_the_graph():
    g = new()
    q, k, v = (g.tensor([2, 2, 128, 64]) for _ in "qkv")
    lengths = [g.tensor([2, 1, 1, 1], data_type=D.INT32) for _ in "qk"]
    slope = g.tensor([1, 2, 1, 1], data_type=D.FLOAT, name="slope")
    seen = []

    def modified(graph, scores):
        seen.append((scores.get_dim(), scores.get_data_type()))
        assert lengths[0].get_dim() == [2, 1, 1, 1]
        return graph.mul(a=graph.tanh(scores, name="soft"), b=slope)

    o, stats = g.sdpa(
        q, k, v, generate_stats=True, score_mod=modified, seq_len_q=lengths[0],
        seq_len_kv=lengths[1], name="n",
    )  # fmt: skip
    output(o)
    g.validate()
    assert set(map(str, seen)) == {"([2, 2, 128, 128], <data_type.FLOAT: 1>)"}
    assert (o.get_dim(), o.get_data_type()) == ([2, 2, 128, 64], D.HALF)
    assert stats.get_data_type() is D.FLOAT
    text = repr(g)
    assert '"name": "soft"' in text
    assert '"name": "slope"' in text
    other = new()
    output(other.sdpa(*(image(other) for _ in "qkv"), generate_stats=False,
                      score_mod=lambda graph, scores: 1.0)[0])  # fmt: skip
    with pytest.raises(TypeError, match="score modification"):
        other.validate()


NORMS = {
    "rows": ("layernorm", [6, 8, 1, 1], [8, 1, 8, 8], None, [6, 1, 1, 1]),
    "tokens": ("rmsnorm", [2, 3, 16], [48, 16, 1], [2, 3, 1], [2, 3, 1]),
    "all but the batch": ("rmsnorm", [2, 3, 16], [48, 16, 1], None, [2, 1, 1]),
}


@pytest.mark.parametrize("case", NORMS)
def test_norms_may_have_no_scale(case):
    """Norms without one are over all axes but the first, or those that statistics have not."""
    method, dims, strides, asked, stats = NORMS[case]
    g = new(target="sm_80")
    results = getattr(g, method)(
        input=g.relu(g.tensor(dims, strides)), norm_forward_phase=cudnn.norm_forward_phase.TRAINING,
        epsilon=g.tensor_scalar(1e-3),
    )  # fmt: skip
    for result in results:
        output(result, D.HALF if result is results[0] else D.FLOAT)
    if asked:
        results[-1].set_dim(asked).set_stride([3, 1, 1])
    g.validate()
    assert results[-1].get_dim() == stats
    check(g._own, target="sm_80")


def test_gradients_of_norms_may_have_no_scale():
    g = new()
    x, stat = g.tensor([6, 8, 1, 1]), g.tensor([6, 1, 1, 1], data_type=D.FLOAT)
    for dx, *others in (
        g.layernorm_backward(x, x, None, stat, stat),
        g.rmsnorm_backward(x, x, None, stat, has_dbias=False),
    ):
        assert others == [None, None]
        output(dx)
    g.create_execution_plans()


KINDS = (TypeError, ValueError, RuntimeError, UNSUPPORTED)


@pytest.mark.parametrize("method", OPERATIONS)
def test_wrong_arguments_end_in_errors_of_the_frontends_classes(method):
    """Each argument in turn is of another kind than any method takes there."""
    row = OPERATIONS[method]
    others = {"name", "axis", "group_offset"}
    for argument in row.arguments:
        for value in (object(), "x", [None], -1, (0.5, None), {}):
            g = new()
            given = {name: image(g) for name in row.arguments[:3] if name not in others}
            given.update({name: image(g) for name in row.required} | {argument: value})
            try:
                made = getattr(g, method)(**given)
                for result in made if isinstance(made, list) else [made]:
                    result and output(result)
                g.build_operation_graph()
            except KINDS:
                continue
            # What dnnc has not is refused when plans are made, before anybody looks at arguments.
            is_later = row.missing or argument == "group_offset"
            assert is_later or type(value) is not object, f"{argument} takes anything"


def test_a_graph_asks_for_the_retention_it_was_given(monkeypatch):
    monkeypatch.delenv("CUDNN_CUDA_GRAPH_RETENTION", raising=False)
    modes = cudnn.cuda_graph_retention
    assert new().get_cuda_graph_retention() is modes.PER_GRAPH
    assert new(cuda_graph_retention=modes.NONE).get_cuda_graph_retention() is modes.NONE
    monkeypatch.setenv("CUDNN_CUDA_GRAPH_RETENTION", "NONE")
    assert new().get_cuda_graph_retention() is modes.NONE


def test_the_gradient_of_attention():
    """A function of the scores and its own gradient, with what the first one kept."""
    g = new()
    dims = [2, 2, 16, 8]
    q, k, v, o, do = (g.tensor(dims, name=name) for name in ("q", "k", "v", "o", "do"))
    stats = g.tensor([2, 2, 16, 1], data_type=D.FLOAT, name="stats")
    bias = g.tensor([1, 2, 16, 16], name="bias")
    made_of_bias = g.tensor([1, 2, 16, 16], name="dbias")
    kept = []

    def modified(graph, scores):
        kept.append(graph.tanh(scores))
        return kept[0]

    def backwards(graph, gradient):
        lost = graph.mul(gradient, graph.mul(kept[0], kept[0]))
        return graph.sub(gradient, lost)

    results = g.sdpa_backward(
        q, k, v, o, do, stats, attn_scale=0.5, bias=bias, dBias=made_of_bias,
        score_mod=modified, score_mod_bprop=backwards, use_deterministic_algorithm=True,
    )  # fmt: skip
    for tensor in (*results, made_of_bias):
        output(tensor)
    g.validate()
    assert [(t.get_dim(), t.get_data_type()) for t in results] == [(dims, D.HALF)] * 3
    titles = [op.title for op in g._own.graph.ops]
    assert titles.count("matmul") == 5
    assert titles.count("pointwise:tanh_fwd") == 1
    wrong = new()
    output(wrong.sdpa_backward(*(image(wrong) for _ in "qkvod"), image(wrong))[0])
    with pytest.raises((ValueError, RuntimeError), match=r"sdpa_backward.*C4"):
        wrong.build()


@pytest.mark.parametrize("mode", [cudnn.heur_mode.A, cudnn.heur_mode.B])
def test_a_mode_alone_plans_what_takes_several_kernels(mode):
    g = new(target="sm_80")
    q, k, v, o, do = (g.tensor(dim=[1, 2, 64, 60], name=n) for n in ("q", "k", "v", "o", "do"))
    stats = g.tensor(dim=[1, 2, 64, 1], data_type=cudnn.data_type.FLOAT, name="stats")
    for gradient in g.sdpa_backward(q, k, v, o, do, stats, attn_scale=0.125):
        output(gradient)
    g.validate()
    g.build_operation_graph()
    g.create_execution_plans([mode])
    g.check_support()
    assert "+" in g.get_plan_name_at_index(0)


ABSENT = {
    "TypeError": "reduction reshape conv_dgrad conv_wgrad sdpa sdpa_backward sdpa_fp8 "
    "rmsnorm_backward layernorm_backward adalayernorm_backward instancenorm_backward "
    "batchnorm_backward",
    "ValueError": "conv_fprop genstats slice transpose concatenate layernorm rmsnorm "
    "adalayernorm instancenorm batchnorm batchnorm_inference moe_grouped_matmul rope "
    "rope_backward sdpa_fp8_backward",
}


@pytest.mark.parametrize("method", [name for name, row in OPERATIONS.items() if not row.missing])
def test_what_is_missing_is_named(method):
    """The method itself names it where cudnn-frontend's does, else `validate`; None is nothing."""
    row, g = OPERATIONS[method], new()
    first = row.arguments[0]
    if method in " ".join(ABSENT.values()).split():
        made = getattr(g, method)(**{first: None})
        output(made[0] if row.is_listed else made)
        with pytest.raises(ValueError if method in ABSENT["ValueError"].split() else TypeError,
                           match=f"{method} '{method}.0': no {first}; accepted: "):  # fmt: skip
            g.validate()
    else:
        for given, said in (({}, f"required argument: '{first}'"), ({first: None}, first)):
            others = dict.fromkeys(row.required[1:], 1.0) if given else {}
            with pytest.raises(TypeError, match=rf"{method}\(\): .*{said}"):
                getattr(g, method)(**given, **others)
