"""Autotuning on the device: its clock, its timer, and the whole way."""

import pytest

import dnnc
from dnnc.choosing.choice_text import choice_text
from dnnc.compiler import compile_graph
from dnnc.runtime import driver
from dnnc.tuning import DeviceTimer, autotune, compile_candidates, time_candidates
from dnnc.tuning.race import Rules
from tests.attention_plans import decode, prefill
from tests.cli.commands import dnnc as cli
from tests.support import device
from tests.tuning.fakes import choice_of, ffn

RULES = Rules(rounds=3, round_seconds=1e-3)


def copy(elements):
    g = dnnc.pygraph("copy", io_data_type="FLOAT", intermediate_data_type="FLOAT")
    g.relu(g.tensor([elements])).set_output()
    return g.graph.finalize()


@pytest.mark.parametrize("cold", [False, True])
def test_the_clock_goes_with_the_work(cold):
    """Twice the bytes take about twice the time; nothing moves bytes faster than 20 TB/s."""
    seconds = []
    with DeviceTimer(cold_l2=cold) as timer:
        for elements in (1 << 26, 1 << 27):
            run = timer.load(compile_graph(copy(elements), device.target()), {})
            run(2)
            seconds.append(min(run(4) for _ in range(3)))
            assert seconds[-1] > 8 * elements / 20e12
    assert 1.6 < seconds[1] / seconds[0] < 2.5


def test_a_cold_cache_is_slower_than_a_warm_one():
    """8 MB in and out, which L2 of every device that is supported holds."""
    plan, seconds = compile_graph(copy(1 << 20), device.target()), {}
    for cold in (False, True):
        with DeviceTimer(cold_l2=cold) as timer:
            run = timer.load(plan, {})
            run(3)
            seconds[timer.l2] = min(run(16) for _ in range(5))
    assert seconds["cold"] > 1.05 * seconds["warm"]


def test_the_whole_way():
    said = []
    found = autotune(
        ffn(), device.target(), sizes=[{"M": 16}, {"M": 4096}], most=6, rules=RULES,
        report=lambda what, done, count: said.append(what),
    )  # fmt: skip
    assert {"compiling", "timing M=16", "timing M=4096"} <= set(said)
    assert len(found.record.entries) == 2
    place = driver.device()
    for entry in found.record.entries:
        assert (entry.device, entry.l2) == (place.name, "warm")
        assert 5e-7 < entry.seconds < 1e-2
    assert not any(row.timed.error for row in found.rows)
    plan = dnnc.compile(ffn(), device.target(), tuning=found.record, device=place.name)
    assert found.best.candidate.choices in {
        f"{f.engine}:" + ":".join(f"{k}={v}" for k, v in sorted(f.knobs.items()))
        for f in plan.programs[0].fusions
    }


@pytest.mark.sm90
def test_the_engine_of_hopper():
    found = autotune(ffn(256), "sm_90a", most=8, rules=RULES)
    (entry,) = found.record.entries
    plan = dnnc.compile(ffn(256), "sm_90a", tuning=found.record)
    assert choice_of(plan) == entry.choices
    assert not any(row.timed.error for row in found.rows)


def assert_attention_is_tuned(graph, target, sizes):
    """Every candidate ran, and the fastest of each set of sizes is what a compilation takes."""
    found = autotune(graph, target, sizes=sizes, most=6, rules=RULES)
    assert not [row.timed.error for row in found.rows if row.timed.error]
    assert len(found.record.entries) == len(sizes)
    place = driver.device()
    plan = dnnc.compile(graph, target, tuning=found.record, device=place.name)
    assert found.best.candidate.choices in {
        choice_text(f.engine, f.knobs) for f in plan.programs[0].fusions
    }


def test_attention_of_few_queries():
    """Page tables and lengths that are timed are of blocks and keys that there are."""
    assert_attention_is_tuned(decode(), device.target(), [{"B": 1}, {"B": 64}])


@pytest.mark.sm90
def test_attention_of_many_queries():
    sizes = [{"B": 1, "Sq": 512, "Skv": 512}, {"B": 4, "Sq": 2048, "Skv": 2048}]
    assert_attention_is_tuned(prefill(), "sm_90a", sizes)


def test_from_files(tmp_path):
    compile_candidates(ffn(64), tmp_path, device.target(), most=3)
    found = time_candidates(tmp_path, rules=RULES, cold_l2=True)
    assert [entry.l2 for entry in found.record.entries] == ["cold"]


def test_the_command(tmp_path, monkeypatch):
    from tests.cli.commands import FFN

    monkeypatch.chdir(tmp_path)
    (tmp_path / "ffn.py").write_text(FFN)
    result = cli("tune", "ffn.py", "--size", "M=256", "--most", 3, "--rounds", 2)
    assert result.exit_code == 0, result.output
    assert "measured" in result.stdout
    result = cli("engines", "ffn.py", "-t", _device_target(), "--tuning", "dnnc-tuning.json")
    assert "config 0 comes from the tuning record" in result.stdout


def _device_target():
    from dnnc import target

    return target.of_capability(*driver.device().capability).name
