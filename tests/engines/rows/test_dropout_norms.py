"""Dropout, a residual and a norm are one kernel, in every form that rows have."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.options import Options
from dnnc.target import of
from tests.support import machine, multiprocessors
from tests.support.checked import check, random_inputs

from .test_engine import ACROSS, SMALL, new_graph

TARGET = "sm_90a"
KEEP = 0.75
M = dnnc.Dim("M", max=65536)


def dropped(g, x, mask_type=None):
    """Elements of x that stay, divided by the share of these.  mask_type: of the mask as an
    output."""
    ones = [1] * len(x.get_dim())
    seed, offset = (g.tensor(ones, data_type=dtypes.i64, name=name) for name in ("seed", "offset"))
    mask = g.rng(seed, offset, "BERNOULLI", KEEP, dim=x.get_dim())
    if mask_type:
        mask.set_output().set_name("mask").set_data_type(mask_type)
    return g.mul(g.mul(x, mask), 1 / KEEP)


def normalised(g, kind, x):
    columns = [*[1] * (len(x.get_dim()) - 1), x.get_dim()[-1]]
    if kind == "softmax":
        return g.softmax(x, axis=-1)
    scale, epsilon = g.tensor(columns, name="scale"), g.tensor_scalar(1e-3)
    if kind == "rms norm":
        y, *statistics = g.rmsnorm("TRAINING", x, scale, epsilon=epsilon)
    else:
        y, *statistics = g.layernorm("TRAINING", x, scale, g.tensor(columns, name="bias"), epsilon)
    for tensor in statistics:
        tensor.set_output().set_data_type(dtypes.f32)
    return y


def before(kind, dims, mask_type=None, io=dtypes.bf16):
    """norm(residual + dropout(x)); the sum is an output, too."""
    g = new_graph(io)
    total = g.add(g.tensor(dims, name="residual"), dropped(g, g.tensor(dims, name="x"), mask_type))
    normalised(g, kind, total.set_output().set_name("total").set_data_type(io)).set_output()
    return g


def after(kind, dims, mask_type=None, io=dtypes.bf16):
    """dropout(norm(x))"""
    g = new_graph(io)
    y = normalised(g, kind, g.tensor(dims, name="x"))
    dropped(g, y, mask_type).set_output()
    return g


def gradients(dims, io=dtypes.bf16):
    """The gradient of layer norm(residual + dropout(x)): the mask is drawn again, not read."""
    g = new_graph(io)
    dy, total = g.tensor(dims, name="dy"), g.tensor(dims, name="total")
    statistics = [g.tensor([*dims[:-1], 1], data_type=dtypes.f32) for _ in range(2)]
    scale = g.tensor([1, dims[-1]], name="scale")
    dtotal, *sums = g.layernorm_backward(dy, total, scale, *statistics)
    for tensor in sums:
        tensor.set_output().set_data_type(dtypes.f32)
    dtotal.set_output().set_data_type(io)
    dropped(g, dtotal).set_output()
    return g


def run(g, engine=None, knobs=None, sizes=None, allowance=1e-6):
    """One fusion, which is one kernel; gives the plan."""
    options = {"engine": engine, "knobs": knobs} if engine else {}
    plan = check(
        g, sizes, target=TARGET, slack=4.0, allowance=allowance, inputs=inputs_of(g, sizes),
        **options,
    )  # fmt: skip
    (program,) = plan.programs
    assert len({fusion.ops for fusion in program.fusions}) == 1
    assert all(len([s for s in v.steps if s.launch]) == 1 for v in program.variants)
    return plan


def inputs_of(g, sizes=None):
    graph = g.graph.finalize()
    given = random_inputs(graph, sizes or {})
    for tensor in graph.inputs:
        if tensor.name in ("seed", "offset"):
            given[tensor.uid] = np.full([1] * tensor.rank, 2**33 + 5)
    return given


# ---- what is chosen

KINDS = ("layer norm", "rms norm", "softmax")


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [before, after])
@pytest.mark.parametrize("target", ["sm_80", TARGET])
def test_one_kernel_is_chosen(kind, make, target):
    """Norms of short and long rows, many and few, with a packed mask as an output or without."""
    for dims in ([M, 1024], [4, M, 768], [M, 16384], [8, 100_000], [1, 8192]):
        for mask_type in (None, dtypes.i1, dtypes.i8):
            graph = make(kind, dims, mask_type).graph.finalize()
            config = heuristics.best_config(graph, of(target))
            (choice,) = config.choices
            assert choice.engine.name in ("rows", "grid")


def test_a_packed_mask_whose_bytes_two_rows_share_is_a_kernel_of_its_own():
    graph = before("layer norm", [8, 1001], dtypes.i1).graph.finalize()
    config = heuristics.best_config(graph, of(TARGET))
    assert [choice.engine.name for choice in config.choices] == ["pointwise", "rows"]


# ---- numbers

FORMS = {
    "held": ("rows", {"TILE_COLS": 64}),
    "cluster": ("rows", {"TILE_COLS": 32, "TILE_CGA": 2, "ARRAY_SIZE_PER_THREAD": 16}),
    "read again": ("rows", {"TILE_COLS": 64, "ARRAY_SIZE_PER_THREAD": 0}),
    "shared memory": ("rows", {"TILE_COLS": 64, "ARRAY_SIZE_PER_THREAD": 0, "STAGES": 1}),
    "ring": ("rows", {"TILE_COLS": 64, "CTA_COUNT": 1, "STAGES": 2}),
    "own rings": (
        "rows",
        {"TILE_COLS": 32, "ARRAY_SIZE_PER_THREAD": 16, "CTA_COUNT": 1, "STAGES": 2,
         "KERNEL_CFG": 2},
    ),
    "grid": ("grid", {"TILE_ROWS": 512, "ARRAY_SIZE_PER_THREAD": 1, "SPECFILT": 0, "STAGES": 2}),
}  # fmt: skip


def marks(form, kind, make):
    """Layer norms after dropout go through every form; of the rest, each is seen once or twice."""
    found = [ACROSS] if form == "cluster" else []
    is_seen = kind == "layer norm" and make is before
    is_seen |= form == {"rms norm": "held", "softmax": "read again"}.get(kind, "own rings")
    return [*found, *([] if is_seen else [pytest.mark.slow])]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("form", "kind", "make"),
    [
        pytest.param(form, kind, make, marks=marks(form, kind, make))
        for form in FORMS
        for kind in KINDS
        for make in (before, after)
    ],
)
def test_numbers(form, kind, make, monkeypatch):
    multiprocessors.few(monkeypatch, 4)
    engine, knobs = FORMS[form]
    knobs = knobs if engine == "grid" else SMALL | knobs
    run(make(kind, [9, 512], dtypes.i1), engine, knobs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("kind", KINDS)
def test_odd_rows_of_any_number(kind):
    """Groups of four numbers begin in one row and end in the next."""
    g = before(kind, [M, 131], dtypes.i8)
    plan = run(g, sizes={"M": 7})
    check(g, {"M": 1}, plan=plan, inputs=inputs_of(g, {"M": 1}), slack=4.0, allowance=1e-6)


@pytest.mark.in_turn
def test_every_pass_draws_the_same_numbers():
    """A kernel that keeps rows and one that goes over them three times agree with what pointwise
    alone draws."""
    found = []
    for form in ("held", "read again"):
        g = before("layer norm", [6, 200], dtypes.i8)
        knobs = tuple((SMALL | FORMS[form][1]).items())
        plan = compile_graph(g.graph.finalize(), TARGET, Options(engine="rows", knobs=knobs))
        found.append(machine.current().run(plan, inputs_of(g))[plan.tensor("mask").uid])
    g = new_graph(dtypes.i8)
    mask = g.rng(2**33 + 5, 2**33 + 5, "BERNOULLI", KEEP, dim=[6, 200]).set_output()
    plan = compile_graph(g.graph.finalize(), TARGET, Options(engine="pointwise"))
    wanted = machine.current().run(plan, {})[mask.uid]
    for values in found:
        np.testing.assert_array_equal(values, wanted)
    assert 0.6 < wanted.mean() < 0.9


@pytest.mark.in_turn
def test_gradients_draw_the_mask_again():
    """dx of the norm and of what went into dropout, and the sums over rows."""
    g = gradients([40, 512])
    plan = check(g, target=TARGET, engine="rows", slack=4.0, allowance=1e-5, inputs=inputs_of(g))
    assert [f.engine for f in plan.programs[0].fusions] == ["rows"]
    assert not [t for t in plan.tensors if t.name == "mask"]
