"""Progress of long calls: texts and shares that only grow, whatever is kept already."""

import pytest

import dnnc
from dnnc import compiler
from dnnc.choosing import spills
from dnnc.choosing.choice_text import choice_text
from dnnc.options import Options
from dnnc.progress import BEGIN, STAGES, Parts, StageTimes


def graph(name="g"):
    g = dnnc.pygraph(name, io_data_type="f16", intermediate_data_type="f32", target="sm_80")
    g.relu(g.tensor([dnnc.Dim("n", max=64), 16], name="x")).set_output()
    return g


def told(call):
    """The reports of a call: (text, share of the whole)."""
    found = []

    def report(what, done, count):
        assert 0 <= done <= count
        found.append((what, done / count))

    call(report)
    assert [share for _, share in found] == sorted(share for _, share in found)
    return found


def test_its_stages_are_the_compilers():
    assert STAGES == ("choose", *compiler.STAGES[1:-1])


@pytest.mark.parametrize("in_process", [False, True])
def test_compile(in_process):
    options = {"in_process": in_process, "cache": False}
    found = told(lambda report: dnnc.compile(graph(), "sm_80,sm_86", report=report, **options))
    assert found[0] == ("sm_80: starting", 0.0)
    assert ("sm_80: choose is done", 1 / 14) in found
    assert ("sm_86: cubin is done", 1.0) in found
    assert found[-1] == ("the plan is there", 1.0)


@pytest.fixture
def spilling(monkeypatch):
    """The first choice of each target spills, as far as is known."""
    seen = set()

    def choices(plan):
        (program,) = plan.programs
        if program.target in seen:
            return ()
        seen.add(program.target)
        (fusion,) = program.fusions
        return (choice_text(fusion.engine, fusion.knobs),)

    monkeypatch.setattr(spills, "spilling_choices", choices)
    return seen


@pytest.mark.parametrize("targets", ["sm_80", "sm_80,sm_86"])
def test_targets_that_are_compiled_again(targets, spilling):
    options = {"in_process": True, "cache": False}
    g = dnnc.pygraph("again", io_data_type="f16", intermediate_data_type="f32")
    g.matmul(g.tensor([1, 64, 32]), g.tensor([1, 32, 64])).set_output()
    found = told(lambda report: dnnc.compile(g, targets, report=report, **options))
    assert spilling == set(targets.split(","))
    chosen = [what for what, _ in found if what.endswith("choose is done")]
    assert chosen == [f"{t}: choose is done" for t in targets.split(",") for _ in range(2)]


def test_targets_of_an_explicit_choice():
    options = Options(partition="0", choices="pointwise:ARRAY_SIZE_PER_THREAD=1:LOAD_SIZE=16")
    times = StageTimes(["sm_80", "sm_86"])
    compiler.compile_graph(graph().graph, "sm_80,sm_86", options, report=times)
    assert [set(seconds) for seconds in times.by_target] == [set(STAGES) - {"choose"}] * 2


def test_a_plan_that_is_kept():
    dnnc.compile(graph(), "sm_80")
    found = told(lambda report: dnnc.compile(graph(), "sm_80", report=report))
    assert found == [("sm_80: starting", 0.0), ("the plan is there", 1.0)]


def test_plans_of_a_graph():
    found = told(lambda report: graph().build(report=report))
    assert found[0] == ("plan 0: sm_80: starting", 0.0)
    assert found[-1] == ("plan 0: the plan is there", 1.0)
    g = graph()
    g.build_operation_graph()
    g.create_execution_plans()
    count = g.get_execution_plan_count()
    found = told(lambda report: g.build_plans("ALL", report=report))
    assert {what.partition(":")[0] for what, _ in found} == {f"plan {i}" for i in range(count)}
    assert found[-1][1] == 1.0


def test_an_error_of_the_report_ends_the_call():
    def stop(what, done, count):
        raise KeyError(what)

    g = graph()
    with pytest.raises(KeyError, match="starting"):
        g.build(report=stop)
    g.build_plans()
    assert g.plan is not None


def test_what_is_no_function():
    for call in (graph().build, lambda report: dnnc.compile(graph(), report=report)):
        with pytest.raises(dnnc.DnncError, match="report: a int 5; accepted: a function of"):
            call(report=5)


def test_stages_that_are_left_out_or_come_again():
    found = []
    times = StageTimes(["a", "b"], lambda *said: found.append(said))
    stages = ("choose", "ptx", "fused", "cubin", "choose", "cubin", BEGIN, "choose", "cubin")
    for stage in (BEGIN, *stages):
        times(stage, 0.0 if stage == BEGIN else 1.0)
    assert [done for _, done, _ in found] == [0, 1, 6, 6, 7, 7, 7, 8, 14]
    assert times.by_target[0] == {"choose": 2.0, "ptx": 1.0, "fused": 1.0, "cubin": 2.0}


def test_more_parts_than_were_expected():
    found = []
    parts = Parts(lambda *said: found.append(said), 1)
    for name in ("one", "two"):
        parts.next(name)("x", 1, 2)
    assert found == [("one: x", 1, 2), ("two: x", 3, 4)]
