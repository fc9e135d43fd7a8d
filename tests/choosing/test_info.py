"""Engines describe themselves, to all who ask."""

import pytest

import dnnc
from dnnc import dtypes
from dnnc import target as targets
from dnnc.choosing.info import KnobInfo, behavior_notes, engine_at, engine_count, info
from dnnc.dialect.fusion import partition
from dnnc.engines import ENGINES, engine_named
from dnnc.errors import Status
from dnnc.frontends import enums

from ..engines.elementwise.test_resample import USUAL, new_graph, pooled
from ..engines.product.test_matmul_sm80 import product

SM80 = targets.of("sm_80")

# Indices are global: they never change, and none is given again.
INDICES = {
    "pointwise": 1, "fallback": 2, "reduction": 3, "matmul_sm80": 4, "matmul_sm90": 5, "rows": 6,
    "resample": 7, "grid": 8, "transpose": 9, "peers": 10,
}  # fmt: skip


def said(name, g, target=SM80):
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    return info(engine_named(name), whole, target)


def pool():
    g = new_graph()
    pooled(g, [2, 16, 8, 8], "MAXPOOL", USUAL)
    return g


def test_indices_are_stable():
    assert {engine.name: engine.index for engine in ENGINES}.items() >= INDICES.items()
    assert len({engine.index for engine in ENGINES}) == len(ENGINES)
    assert engine_count() == 1 + max(engine.index for engine in ENGINES)
    assert engine_at(4).name == "matmul_sm80"


@pytest.mark.parametrize(
    ("index", "status"),
    [(0, Status.NOT_SUPPORTED), (-1, Status.BAD_PARAM), (engine_count(), Status.BAD_PARAM)],
)
def test_indices_without_an_engine(index, status):
    with pytest.raises(dnnc.DnncError) as error:
        engine_at(index)
    assert error.value.status is status


def test_an_engine_that_takes_the_graph():
    found = said("matmul_sm80", product(dtypes.f32, 256, 256, 256)[0])
    assert (found.name, found.index, found.reasons) == ("matmul_sm80", 4, ())
    assert found.numerical_notes == ("TENSOR_CORE",)
    assert set(found.possible_notes) == {"TENSOR_CORE", "DOWN_CONVERT_INPUTS"}
    assert found.behavior_notes == ("RUNTIME_COMPILATION", "SUPPORTS_CUDA_GRAPH_NATIVE_API")
    names = [knob.name for knob in found.knobs]
    assert names == ["TILE_M", "TILE_N", "TILEK", "STAGES", "TF32"]
    assert found.knob("TF32").default == 3
    assert found.knob("NONE") is None
    for knob in found.knobs:
        assert knob.min_value <= knob.default <= knob.max_value
        assert knob.default in knob.values
        assert knob.doc
    assert found.support


def test_all_knobs_are_those_of_some_fusion():
    """`all_knobs` has each value that some type of operands takes, and no others."""
    engine, values = engine_named("matmul_sm80"), {}
    for operand in (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.i8):
        for knob in said("matmul_sm80", product(operand, 64, 64, 64)[0]).knobs:
            values.setdefault(knob.name, set()).update(knob.values)
    assert values == {knob.name: set(knob.values) for knob in engine.all_knobs}


def test_an_engine_that_declines_it():
    found = said("pointwise", product(dtypes.f16, 64, 64, 64)[0])
    assert found.reasons[0].clause == "operations"
    assert (found.knobs, found.layouts, found.numerical_notes) == ((), (), ())


@pytest.mark.parametrize(
    ("values", "stride"), [((2, 3, 4), 1), ((32, 64, 256), 32), ((64, 128), 64), ((1,), 0)]
)
def test_values_on_a_stride(values, stride):
    knob = KnobInfo("K", values, values[0], "")
    assert knob.stride == stride
    if stride:
        assert set(values) <= set(range(knob.min_value, knob.max_value + 1, stride))


def test_layouts():
    found = said("resample", pool())
    assert {layout.types for layout in found.layouts} == {("PREFERRED_NHWC",)}
    assert len(found.layouts) == 2
    assert said("matmul_sm80", product(dtypes.f16, 64, 64, 64)[0]).layouts == ()


def test_what_several_engines_do_is_what_all_of_them_do():
    peers, rows = engine_named("peers"), engine_named("rows")
    assert behavior_notes(rows, rows) == behavior_notes(rows)
    assert behavior_notes(rows, peers) == ("RUNTIME_COMPILATION",)


def test_the_enumerations_have_every_name():
    """pygraph gives enumerators of cudnn-frontend's for what engines say."""
    assert {k.name for e in ENGINES for k in e.all_knobs} <= set(enums.knob_type.__members__)
    notes = {note for engine in ENGINES for note in behavior_notes(engine)}
    assert notes <= set(enums.behavior_note.__members__)
    for g in (product(dtypes.f32, 64, 64, 64)[0], product(dtypes.f16, 64, 64, 64)[0], pool()):
        for engine in ENGINES:
            found = said(engine.name, g, targets.of("sm_90a"))
            assert {knob.name for knob in found.knobs} <= {k.name for k in engine.all_knobs}
            assert set(found.possible_notes) <= set(enums.numerical_note.__members__)
