"""`dnnc.autotune` with timers that need no device, and what compilations make of its records."""

import json
import logging
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest

import dnnc
from dnnc import record
from dnnc.choosing import heuristics
from dnnc.choosing.inputs import Inputs
from dnnc.compiler import compile_graph
from dnnc.errors import DnncError, Status
from dnnc.options import Options
from dnnc.record import Record
from dnnc.target import of
from dnnc.tuning import autotune, compile_candidates, time_candidates
from dnnc.tuning.candidates import candidates, compiled
from dnnc.tuning.race import Rules
from tests.cli.commands import dnnc as command

from .fakes import FakeTimer, choice_of, ffn

QUICK = Rules(rounds=2)
OTHER = "TILE_M=64"


def prefers_other_tiles(text, sizes):
    """Configs that predictions would not choose."""
    return 1e-5 if OTHER in text else 2e-5


@pytest.fixture(scope="module")
def threads():
    """One thread, whose compile worker serves all tests of this file."""
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.fixture(scope="module")
def tuned(threads):
    """ffn at M = 64, tuned with a timer to which other tiles are fastest."""
    timer = FakeTimer(prefers_other_tiles)
    found = autotune(
        ffn(), sizes={"M": 64}, modes=["A"], most=5, timer=timer, executor=threads, rules=QUICK
    )
    assert not timer.is_closed  # it is the caller's
    return found


def test_the_fastest_comes_first_and_into_the_record(tuned):
    assert OTHER in tuned.best.candidate.choices
    (entry,) = tuned.record.entries
    assert entry.choices == tuned.best.candidate.choices
    assert (entry.seconds, entry.sizes, entry.device) == (1e-5, {"s0": 64}, "a fake device")
    stopped = [row for row in tuned.rows if row.timed.is_stopped]
    assert stopped
    assert all(OTHER not in row.candidate.choices for row in stopped)
    assert all(len(row.timed.rounds) == 1 for row in stopped)


def test_a_compilation_takes_what_was_fastest(tuned):
    """An equal graph with other names."""
    same = ffn(name="another", x="activations")
    before = dnnc.compile(same, "sm_80", variants=1, in_process=True)
    after = dnnc.compile(same, "sm_80", variants=1, tuning=tuned.record, in_process=True)
    assert OTHER not in choice_of(before)
    assert choice_of(after) == tuned.best.candidate.choices
    assert before.key != after.key


def test_a_record_is_an_input_of_the_key_only_where_it_has_the_graph(tuned):
    """Entries of other graphs change nothing."""
    other = dnnc.pygraph("other", io_data_type="HALF", intermediate_data_type="FLOAT")
    other.exp(other.tensor([64])).set_output()
    keys = {
        dnnc.compile(other, "sm_80", tuning=given, in_process=True).key
        for given in (None, Record(), tuned.record)
    }
    assert len(keys) == 1


def test_plans_for_all_sizes_keep_it_where_it_was_timed(tuned):
    graph = ffn().graph.finalize()
    options = Options(tuning=tuned.record.text())
    (program,) = compile_graph(graph, "sm_80", options).programs
    module = next(f.module for f in program.fusions if f.knobs["TILE_M"] == 64)
    names = {k.name for k in program.kernels if k.module == module}
    taken = next(v for v in program.variants if _holds(v.guard, 64))
    assert {s.launch.kernel for s in taken.steps if s.launch} <= names


def _holds(guard, rows):
    return guard == "1" or rows <= int(guard.removeprefix("M <= "))


def test_several_sizes_have_a_config_each(threads):
    """Guards of the plan lie between the sizes."""

    def by_size(text, sizes):
        wanted = "TILE_M=32" if sizes["M"] == 16 else "TILE_M=64"
        return 1e-5 if wanted in text else 3e-5

    sizes = [{"M": 16}, {"M": 4096}]
    found = autotune(
        ffn(), sizes=sizes, modes=["A"], most=5, timer=FakeTimer(by_size), rules=QUICK,
        executor=threads,
    )  # fmt: skip
    assert len(found.record.entries) == 2
    (program,) = dnnc.compile(ffn(), "sm_80", tuning=found.record, in_process=True).programs
    tiles = {
        rows: program.fusions[
            next(k.module for k in program.kernels
                 for s in next(v for v in program.variants if _holds(v.guard, rows)).steps
                 if s.launch and k.name == s.launch.kernel)
        ].knobs["TILE_M"]
        for rows in (16, 4096)
    }  # fmt: skip
    assert tiles == {16: 32, 4096: 64}


def test_a_pygraph_takes_it(tuned):
    g = ffn()
    g._target = "sm_80"
    g.build_operation_graph()
    g.create_execution_plans(["A"], tuning=tuned.record)
    assert OTHER in g.get_plan_name_at_index(0)
    names = [g.get_plan_name_at_index(i) for i in range(g.get_execution_plan_count())]
    assert len(set(names)) == len(names)


def test_another_device_is_not_asked_for(tuned, caplog):
    caplog.set_level(logging.INFO, "dnnc")
    graph = ffn().graph.finalize()
    inputs = Inputs(record=tuned.record, device="a real device")
    assert heuristics.best_config(graph, of("sm_80"), inputs=inputs).measured is None
    assert "timed on a fake device, not on a real device" in caplog.text
    inputs = Inputs(record=tuned.record, device="a fake device")
    assert heuristics.best_config(graph, of("sm_80"), inputs=inputs).measured is not None


@pytest.mark.parametrize(
    ("field", "text"),
    [("choices", "matmul_sm80:STAGES=99"), ("choices", "none"), ("partition", "0|1|7"),
     ("choices", "matmul_sm80|pointwise")],
)  # fmt: skip
def test_an_entry_that_is_not_legal_any_more_is_ignored(tuned, caplog, field, text):
    plain = json.loads(tuned.record.text())
    plain["entries"][0][field] = text
    changed = record.of_text(json.dumps(plain))
    graph = ffn().graph.finalize()
    config = heuristics.best_config(graph, of("sm_80"), inputs=Inputs(record=changed))
    assert config.measured is None
    assert "its tuning entry is ignored" in caplog.text


def test_merging_into_a_record_keeps_the_better_one(tuned, threads):
    slower = FakeTimer(lambda text, sizes: 5e-5)
    again = autotune(
        ffn(), sizes={"M": 64}, timer=slower, most=1, rules=QUICK, record=tuned.record,
        executor=threads,
    )  # fmt: skip
    assert again.record == tuned.record


def test_nothing_runs(threads):
    with pytest.raises(DnncError, match="no candidate ran: EXECUTION_FAILED: it does not run"):
        autotune(ffn(), sizes={"M": 64}, timer=FakeTimer(lambda *_: None), most=1, executor=threads)


@pytest.mark.parametrize("sizes", [{"N": 3}, {"M": 0}, {"M": 5000}], ids=str)
def test_sizes_that_the_graph_has_not(sizes):
    with pytest.raises(DnncError, match="BAD_PARAM"):
        autotune(ffn(), sizes=sizes, timer=FakeTimer(prefers_other_tiles), most=1)


def test_a_graph_over_several_devices_is_refused():
    """Its kernels would wait for ever."""
    from tests.engines.elementwise.test_peers import forward

    with pytest.raises(DnncError, match=r"NOT_SUPPORTED: .*over several devices"):
        autotune(forward(2, 0), timer=FakeTimer(prefers_other_tiles))


def test_it_says_how_far_it_is():
    said = []
    autotune(
        ffn(64), timer=FakeTimer(prefers_other_tiles), most=2, rules=QUICK,
        report=lambda what, done, count: said.append((what, done, count)),
    )  # fmt: skip
    assert said[:2] == [("compiling", 1, 2), ("compiling", 2, 2)]
    assert said[-1] == ("timing", 4, 4)


# ---- executors


def two():
    graph = ffn(64).graph.finalize()
    return graph, candidates(graph, of("sm_80"), most=2, modes=["A"])


@pytest.mark.in_turn
def test_a_pool_of_processes_compiles():
    graph, every = two()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        plans = compiled(graph, of("sm_80"), every, processes)
    assert [choice_of(plan) for plan in plans] == [c.choices for c in every]


@pytest.mark.in_turn
def test_dask_compiles():
    """In a process of the cluster: what goes there and comes back is pickled."""
    from dask import distributed

    graph, every = two()
    with (
        distributed.LocalCluster(n_workers=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        plans = compiled(graph, of("sm_80"), every, client.get_executor())
    assert [choice_of(plan) for plan in plans] == [c.choices for c in every]


def test_what_can_not_be_compiled_is_an_error_in_its_place(threads):
    graph, every = two()
    broken = type(every[0])(every[0].partition, "matmul_sm80:STAGES=99", {0: 1.0})
    plans = compiled(graph, of("sm_80"), [broken, every[1]], threads)
    assert plans[0].status is Status.BAD_PARAM
    assert choice_of(plans[1]) == every[1].choices


# ---- from files


@pytest.fixture(scope="module")
def folder(tmp_path_factory, threads):
    made = tmp_path_factory.mktemp("candidates")
    failed = compile_candidates(ffn(), made, "sm_80", sizes={"M": 64}, most=3, executor=threads)
    assert failed == []
    return made


def test_compiled_here_and_timed_there(folder):
    timer = FakeTimer(lambda text, sizes: 1e-5 + 1e-9 * len(text) * sizes["M"])
    found = time_candidates(folder, timer=timer, rules=QUICK)
    assert len(timer.calls) >= 3
    (entry,) = found.record.entries
    assert entry.sizes == {"s0": 64}
    config = heuristics.best_config(
        ffn().graph.finalize(), of("sm_80"), inputs=Inputs(record=found.record)
    )
    assert config.measured == entry


WITHOUT_COMPILER = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numba_cuda_mlir", "ml_dtypes", "typer", "rich", "platformdirs"):
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
from dnnc.runtime.executor import ExecutionPlan
from dnnc.tuning import DeviceTimer, time_candidates, values

class Timer:
    device, driver, target, l2 = "far away", "13.0", "sm_80", "cold"

    def load(self, plan, sizes):
        ExecutionPlan(plan)
        assert len(list(values.of_plan(plan, sizes))) == len(plan.tensors)
        return lambda calls: 1e-5

    def close(self):
        pass

found = time_candidates(sys.argv[1], timer=Timer())
assert not [name for name in sys.modules if name.startswith(("dnnc.mlir", "dnnc.engines"))]
print(found.record.pretty())
"""


def test_timing_needs_no_compiler(folder):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER, str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (entry,) = record.of_text(done.stdout).entries
    assert (entry.device, entry.l2) == ("far away", "cold")


def test_folders_that_are_not_whole(folder, tmp_path):
    with pytest.raises(DnncError, match=r"no index.*dnnc tune GRAPH --compile-only"):
        time_candidates(tmp_path, timer=FakeTimer(prefers_other_tiles))
    index = json.loads((folder / "index.json").read_text())
    for change, said in (
        ({"dnnc_candidates": 2}, "dnnc_candidates"),
        ({"versions": {"dnnc": "0.0.1"}}, r"candidates of dnnc 0\.0\.1"),
    ):
        (tmp_path / "index.json").write_text(json.dumps({**index, **change}))
        with pytest.raises(DnncError, match=said):
            time_candidates(tmp_path, timer=FakeTimer(prefers_other_tiles))
    del index["graph"]
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(DnncError, match="no graph"):
        time_candidates(tmp_path, timer=FakeTimer(prefers_other_tiles))


# ---- the passes


@pytest.fixture
def text(tmp_path):
    """ffn as a text at stage graph, and its path."""
    from dnnc.compiler import start
    from dnnc.dialect import dnn

    path = tmp_path / "ffn.mlir"
    with dnn.context():
        path.write_text(start(ffn().graph.finalize(), of("sm_80")).text())
    return path


def test_select_engine_takes_a_record(tuned, text, tmp_path):
    path = tmp_path / "record.json"
    record.update(path, tuned.record)
    plain = command("opt", text, "-p", "fuse,select-engine")
    named = command("opt", text, "-p", f"fuse,select-engine{{tuning={path}}}")
    both = command("opt", text, "-p", f"fuse{{tuning={path}}},select-engine{{tuning={path}}}")
    assert "TILE_M = 64" not in plain.stdout
    assert "TILE_M = 64" in named.stdout
    assert named.stdout == both.stdout


def test_a_record_of_other_fusions_is_not_for_select_engine(tuned, text, tmp_path):
    """Its config has one fusion, the text has two."""
    path = tmp_path / "record.json"
    record.update(path, tuned.record)
    split = command("opt", text, "-p", f"fuse{{partition='0|1'}},select-engine{{tuning={path}}}")
    assert split.exit_code == 0, split.output
    assert "TILE_M = 64" not in split.stdout


def test_select_engine_takes_errata(text, tmp_path):
    path = tmp_path / "errata.json"
    rule = {"id": "none", "why": "a test", "engine": "matmul_sm80"}
    path.write_text(json.dumps({"dnnc_errata": 1, "rules": [rule]}))
    made = command("opt", text, "-p", f"fuse,select-engine{{errata={path}}}")
    assert 'dnn.engine = "fallback"' in made.stdout
    chosen = f"fuse,select-engine{{errata={path} choices=matmul_sm80}}"
    refused = command("opt", text, "-p", chosen)
    assert refused.exit_code == 1
    assert "barred by errata rule 'none'" in refused.stderr


def test_a_graph_that_names_a_target_is_tuned_for_it(threads):
    g = dnnc.pygraph("named", io_data_type="FLOAT", target="sm_80")
    g.relu(g.tensor([8, 64], name="x")).set_output()
    timer = FakeTimer(prefers_other_tiles)
    found = autotune(g, most=1, timer=timer, executor=threads, rules=QUICK)
    assert found.record.entries[0].target == "sm_80"
