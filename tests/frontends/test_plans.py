"""pygraph's answers about engines and plans, and the filters over its list."""

import pytest

import dnnc
from dnnc.engines import ENGINES
from tests.engines.product.test_matmul_sm80 import product


def planned(operand="HALF", target="sm_90a", modes=("A", "FALLBACK"), size=256):
    g, _ = product(dnnc.data_type.HALF if operand == "HALF" else operand, size, size, size)
    g._target = target
    g.build_operation_graph()
    g.create_execution_plans(modes)
    return g


def left(g):
    return [i for i in range(g.get_execution_plan_count()) if i not in g._planned().barred]


def test_engines_and_their_knobs():
    g = planned()
    taken = {}
    for index in range(g.get_engine_count()):
        try:
            taken[index] = g.get_knobs_for_engine(index)
        except dnnc.cudnnGraphNotSupportedError:
            assert index not in {engine.index for engine in ENGINES}
    assert {index for index, knobs in taken.items() if knobs} == {2, 4, 5}
    tile = next(k for k in taken[4] if k.type is dnnc.knob_type.TILE_M)
    assert (tile.min_value, tile.max_value, tile.stride) == (32, 256, 32)
    assert tile.values == (32, 64, 128, 256)
    g.create_execution_plan(4, {tile.type: 64})
    assert "TILE_M=64" in g.get_plan_name_at_index(g.get_execution_plan_count() - 1)
    assert g.get_engine_info(4).numerical_notes == ("TENSOR_CORE",)
    with pytest.raises(ValueError, match="no engine has index 99"):
        g.get_knobs_for_engine(99)


def test_notes_of_plans():
    g = planned(target="sm_80")
    assert g.get_behavior_notes_for_plan_at_index(0) == [
        dnnc.behavior_note.RUNTIME_COMPILATION,
        dnnc.behavior_note.SUPPORTS_CUDA_GRAPH_NATIVE_API,
    ]
    assert g.get_numeric_notes_for_plan_at_index(0) == [dnnc.numerical_note.TENSOR_CORE]
    with pytest.raises(RuntimeError, match="no plan is built"):
        g.get_behavior_notes()
    g.deselect_engines(["eng4"]).build_plans()
    assert g.get_behavior_notes() == g.get_behavior_notes_for_plan_at_index(0)


def test_behavior_notes_filter():
    g = planned()
    count = len(left(g))
    g.select_behavior_notes([dnnc.behavior_note.SUPPORTS_CUDA_GRAPH_NATIVE_API])
    g.deselect_behavior_notes([dnnc.behavior_note.CUBLASLT_DEPENDENCY])
    assert len(left(g)) == count
    g.select_behavior_notes([dnnc.behavior_note.REQUIRES_FILTER_INT8x32_REORDER])
    assert left(g) == []
    with pytest.raises(dnnc.cudnnGraphNotSupportedError, match="filters bar all"):
        g.check_support()
    g = planned().deselect_behavior_notes(["RUNTIME_COMPILATION"])
    assert left(g) == []


def test_numeric_notes_filter():
    g = planned(dnnc.data_type.FLOAT)
    rounding = dnnc.numerical_note.DOWN_CONVERT_INPUTS
    assert any(rounding in g.get_numeric_notes_for_plan_at_index(i) for i in left(g))
    g.deselect_numeric_notes([rounding])
    assert left(g)
    assert not any(rounding in g.get_numeric_notes_for_plan_at_index(i) for i in left(g))
    g.select_numeric_notes([dnnc.numerical_note.TENSOR_CORE])
    assert {g.get_plan_name_at_index(i).split("_")[0] for i in left(g)} == {"eng4"}


def test_shared_memory_limit():
    g = planned(target="sm_80", modes=["A"])
    every = left(g)
    g.deselect_shared_mem_greater_than(48 << 10)
    assert 0 < len(left(g)) < len(every)
    g.build_plans()
    (program,) = g.plan.plan.programs
    (kernel,) = program.kernels
    launched = [s.launch for v in program.variants for s in v.steps if s.launch]
    dynamic = max(g.plan.plan.expression(s.dynamic_smem_bytes).constant for s in launched)
    assert 0 < dynamic + kernel.static_smem_bytes <= 48 << 10


def test_a_barred_plan_is_not_built():
    g = planned().deselect_engines(["eng5"])
    barred = min(g._planned().barred)
    with pytest.raises(ValueError, match=f"plan {barred} is barred"):
        g.build_plan_at_index(barred)
    with pytest.raises(IndexError):
        g.build_plan_at_index(10_000)


def test_modes_by_their_enumerators():
    g = planned(modes=[dnnc.heur_mode.INSTANT])
    assert g.get_execution_plan_count() == 1
    assert g.get_engine_and_knobs_at_index(0)[0] == 5


@pytest.mark.parametrize("name", ["deselect_engines", "deselect_behavior_notes"])
def test_a_text_is_no_list(name):
    g = planned()
    with pytest.raises(dnnc.DnncError, match="a list"):
        getattr(g, name)("eng2")


def test_unknown_notes_are_errors():
    with pytest.raises(dnnc.DnncError, match=r"notes BLAH; accepted: .*TENSOR_CORE"):
        planned().deselect_numeric_notes(["BLAH"])


def test_operations_that_no_graph_has_yet_are_refused_by_name():
    with pytest.raises(
        dnnc.DnncError, match=r"NOT_SUPPORTED_GRAPH_PATTERN.*operation sdpa_mxfp8_backward"
    ):
        dnnc.pygraph().sdpa_mxfp8_backward(1, 2, 3)
    assert not hasattr(dnnc.pygraph(), "no_such_operation")


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda g: g.create_execution_plans("A"), r"modes: a str 'A'; accepted: a list: \['A'\]"),
        (lambda g: g.create_execution_plans([]), "no heuristic modes; accepted: INSTANT, A"),
        (lambda g: g.create_execution_plans(["Z"]), "heuristic mode 'Z'; accepted: INSTANT, A"),
        (lambda g: dnnc.compile(g, modes="A,FALLBACK"), "modes: a str .* accepted: a list"),
        (lambda g: dnnc.compile(g, modes=3), "modes: a int 3; accepted: a list"),
        (lambda g: dnnc.compile(g, in_process="x"), "in_process: a str 'x'; accepted: True or F"),
        (lambda g: dnnc.compile(g, cache=5), "cache: a int 5; accepted: True or False"),
        (lambda g: dnnc.compile(g, modes=()), "no heuristic modes"),
        (lambda g: dnnc.compile(g, driver="newest"), "driver='newest'; accepted: a version"),
    ],
)
def test_what_no_compilation_takes(use, said):
    with pytest.raises(dnnc.DnncError, match=said) as caught:
        use(small())
    assert caught.value.status is dnnc.Status.BAD_PARAM


def test_policies_and_limits_are_checked():
    g = small()
    g.create_execution_plans()
    with pytest.raises(dnnc.DnncError, match="'SOME'; accepted: HEURISTICS_CHOICE, ALL"):
        g.build_plans("SOME")
    for limit in (g.deselect_workspace_greater_than, g.deselect_shared_mem_greater_than):
        with pytest.raises(dnnc.DnncError, match="-1 bytes; accepted: 0 or more"):
            limit(-1)
        for value in (None, "64K"):
            with pytest.raises(dnnc.DnncError, match=r"bytes_: .*; accepted: an integer"):
                limit(value)


def test_a_plan_that_is_barred_after_it_was_built_is_not_given():
    g = small()
    g.create_execution_plans()
    g.build_plans()
    name = g.get_plan_name_at_index(0)
    g.deselect_engines([name])
    with pytest.raises(dnnc.DnncError, match="barred by a filter since then"):
        g.serialize()
    with pytest.raises(dnnc.DnncError, match="plan 0 is barred by a filter"):
        g.get_workspace_size_plan_at_index(0)
    g.build_plans()
    assert g.plan is not None
    assert repr(g.plan).startswith("<executable <plan of graph 'small' for sm_80: ")


def test_compile_takes_the_target_that_a_graph_names():
    assert dnnc.compile(small()).programs[0].target == "sm_80"
    assert dnnc.compile(small(), "sm_86").programs[0].target == "sm_86"
    assert [p.target for p in dnnc.compile(small(target=None)).programs] == ["sm_80", "sm_90a"]
    assert dnnc.compile(small(target=None, sm_version=89)).programs[0].target == "sm_89"
    few = small(sm_count=7).named_target
    assert (few.target.name, few.target.sm_count) == ("sm_80", 7)


def test_knobs_may_be_enumerators():
    g = dnnc.pygraph("products", io_data_type="f16", intermediate_data_type="f32")
    g.matmul(g.tensor([64, 64]), g.tensor([64, 64])).set_output()
    knobs = {dnnc.knob_type.TILE_M: 64}
    plan = dnnc.compile(g, "sm_80", engine="matmul_sm80", knobs=knobs, modes=[dnnc.heur_mode.A])
    assert plan.programs[0].fusions[0].knobs["TILE_M"] == 64


def small(target="sm_80", **options):
    g = dnnc.pygraph("small", io_data_type="FLOAT", target=target, **options)
    g.relu(g.tensor([8, 64], name="x")).set_output().set_name("y")
    g.build_operation_graph()
    return g
