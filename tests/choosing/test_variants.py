"""Which configs a plan of symbols holds, and that each size gets its own."""

import itertools

import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.choosing.variants import MOST, guarded_configs
from dnnc.compiler import compile_graph
from dnnc.expr import Dim, assuming, typical, typical_dim
from dnnc.options import Options
from dnnc.plan import format
from dnnc.target import of
from tests.support.checked import check, random_inputs

SM90A = of("sm_90a")


def ffn(rows, n=1536, k=384, target="sm_90a"):
    g = dnnc.pygraph("ffn", io_data_type="bf16", intermediate_data_type="f32", target=target)
    x, w = g.tensor([1, rows, k], name="x"), g.tensor([1, k, n], [k * n, 1, k], name="w")
    g.relu(g.matmul(x, w)).set_output().set_name("y")
    return g


def guarded(graph, **options):
    return guarded_configs(graph, SM90A, heuristics.best_config(graph, SM90A), **options)


def seconds(config, sizes):
    with assuming(sizes):
        return sum(c.engine.predict(c.fusion, c.knobs, SM90A).seconds for c in config.choices)


def test_sizes_may_be_assumed_within_their_range():
    dim = Dim("M", min=16, max=512, multiple_of=16)
    assert typical_dim(dim) == 512
    with assuming({"M": 100}):
        assert typical_dim(dim) == 96
        with assuming({"N": 3, "M": 1}):
            assert typical(dim * 2 + Dim("N")) == 35
        assert typical_dim(dim) == 96
    assert typical_dim(dim) == 512


def test_a_symbols_range_is_covered_by_configs_that_are_predicted_to_be_faster():
    graph = ffn(dnnc.Dim("M", max=65536)).graph.finalize()
    base, found = heuristics.best_config(graph, SM90A), guarded(graph)
    assert 1 < len(found) <= MOST
    assert found[-1].guard == "1"
    bounds = [int(entry.guard.removeprefix("M <= ")) for entry in found[:-1]]
    assert bounds == sorted(set(bounds))
    for low, entry in zip([1, *bounds], found, strict=True):
        sizes = {"M": 2 * low if low > 1 else 1}
        assert seconds(entry.config, sizes) <= seconds(base, sizes)
    # On either side of a guard its neighbours are about as good.
    for bound, (lower, upper) in zip(bounds, itertools.pairwise(found), strict=True):
        at = {"M": bound}
        assert seconds(lower.config, at) < 1.1 * seconds(upper.config, at)


def test_one_config_where_one_is_enough():
    graph = ffn(dnnc.Dim("M", min=8192, max=8448)).graph.finalize()
    assert [entry.guard for entry in guarded(graph)] == ["1"]
    graph = ffn(dnnc.Dim("M", max=65536)).graph.finalize()
    assert [entry.guard for entry in guarded(graph, most=1)] == ["1"]
    assert [entry.guard for entry in guarded(ffn(64).graph.finalize())] == ["1"]


def test_configs_that_are_not_allowed_are_left_out():
    graph = ffn(dnnc.Dim("M", max=65536)).graph.finalize()
    names = {entry.config.name for entry in guarded(graph)}
    base = heuristics.best_config(graph, SM90A).name
    kept = guarded(graph, is_allowed=lambda config: config.name not in names)
    assert {entry.config.name for entry in kept}.isdisjoint(names - {base})


def test_other_configs_do_not_round_what_the_first_does_not():
    g = dnnc.pygraph("tf32", io_data_type="f32", target="sm_90a")
    g.matmul(g.tensor([1, dnnc.Dim("M", max=65536), 512]), g.tensor([1, 512, 512])).set_output()
    graph = g.graph.finalize()
    found = guarded(graph)
    for entry in found:
        assert "DOWN_CONVERT_INPUTS" not in entry.config.notes
    (first,) = found[-1].config.choices
    rounding = [c for c in heuristics.choices(first.fusion, SM90A) if c.notes != first.notes]
    assert min(c.prediction.seconds for c in rounding) < first.prediction.seconds


CHOICES = (
    "matmul_sm90:TILE_M=8:TILE_N=64:STAGES=2:TILE_CGA_M=1:TILE_CGA_N=1:SPLIT_K_SLC=1:"
    "WARP_SPEC_CFG=1:SWAP_AB=1",
    "matmul_sm80:TILE_M=32:TILE_N=64:TILEK=32:STAGES=2",
)


@pytest.mark.registers
def test_each_size_runs_its_own_config(tmp_path):
    """A config that two guards name is compiled once; files keep all of it."""
    g = ffn(dnnc.Dim("M", max=4096), 64, 64)
    graph = g.graph.finalize()
    guards = (("M <= 8", CHOICES[0]), ("M <= 40", CHOICES[1]), ("1", CHOICES[0]))
    plan = compile_graph(graph, "sm_90a", Options(partition="0 1", guards=guards))
    (program,) = plan.programs
    assert [fusion.module for fusion in program.fusions] == [0, 1]
    assert [kernel.name for kernel in program.kernels] == [
        "fusion0_matmul_sm90", "fusion0_matmul_sm80_v1",
    ]  # fmt: skip
    used = [variant.steps[0].launch.kernel for variant in program.variants]
    assert used == ["fusion0_matmul_sm90", "fusion0_matmul_sm80_v1", "fusion0_matmul_sm90"]
    format.write(str(tmp_path / "a.dnnplan"), plan)
    again = format.read(str(tmp_path / "a.dnnplan"))
    for rows in (8, 9, 40, 41):
        inputs = random_inputs(graph, {"M": rows})
        check(g, {"M": rows}, inputs=inputs, plan=again, target="sm_90a")


def test_an_engine_that_is_asked_for_is_the_only_one():
    graph = ffn(dnnc.Dim("M", max=65536), 64, 64, "sm_80").graph.finalize()
    plan = compile_graph(graph, "sm_80", Options(engine="matmul_sm80"))
    assert len(plan.programs[0].variants) == 1
    plan = compile_graph(graph, "sm_80", Options(most_variants=1))
    assert len(plan.programs[0].variants) == 1


def test_the_first_plan_of_a_pygraph_is_guarded_by_what_its_filters_leave():
    engines = {}
    for deselected in ([], ["eng4"]):
        g = ffn(dnnc.Dim("M", max=65536), k=36)  # rows that TMA can't take
        g.validate()
        g.build_operation_graph()
        g.create_execution_plans([dnnc.heur_mode.A])
        g.deselect_engines(deselected)
        g.build_plans()
        program = g._planned().selected().plan.programs[0]
        engines[len(deselected)] = {fusion.engine for fusion in program.fusions}
        assert len(program.variants) > 1
    assert engines == {0: {"matmul_sm80", "matmul_sm90"}, 1: {"matmul_sm90"}}
