"""`dnnc tune`, with a stand-in for a GPU, and what the other commands make of its record."""

import json

import pytest

from dnnc import record
from dnnc.plan import format
from dnnc.tuning import timer
from tests.tuning.fakes import FakeTimer, choice_of

from .commands import dnnc, error_of

OTHER = "TILE_M=64"


@pytest.fixture
def gpu(monkeypatch):
    """A device on which other tiles than predicted are fastest."""
    made = FakeTimer(lambda text, sizes: 1e-5 if OTHER in text else 2e-5)
    made.asked = []

    def open_timer(ordinal=None, *, cold_l2=False, clock=None):
        made.asked.append(cold_l2)
        made.l2 = "cold" if cold_l2 else "warm"
        return made

    monkeypatch.setattr("dnnc.tuning.search.DeviceTimer", open_timer)
    monkeypatch.setattr("dnnc.tuning.files.DeviceTimer", open_timer)
    assert timer.DeviceTimer is not open_timer
    return made


def lines(result):
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_from_a_graph_to_a_plan(ffn, gpu, here):
    said = lines(
        dnnc("tune", ffn, "-s", "M=64", "--mode", "a", "--most", 5, "--rounds", 2, "-j", 1)
    )
    assert said[0] == "M=64"
    assert said[1] == "config measured predicted rounds remark"
    assert said[2].startswith("0 matmul_sm80:")
    assert OTHER in said[2]
    assert said[2].endswith("10 us " + said[2].split("10 us ")[1])
    assert any(line.endswith("1 2.00x, stopped") for line in said)
    assert said[-1] == "record dnnc-tuning.json (1 entry)"
    assert gpu.is_closed
    (entry,) = record.read("dnnc-tuning.json").entries
    explained = lines(dnnc("engines", ffn, "-t", "sm_80", "--tuning", "dnnc-tuning.json"))
    tuned = "tuned config 0 comes from the tuning record: 10 us on a fake device, warm L2 at M=64"
    assert tuned in explained
    made = ["compile", ffn, "-t", "sm_80", "--variants", 1, "-o", "a.dnnplan"]
    lines(dnnc(*made, "--tuning", "dnnc-tuning.json"))
    assert choice_of(format.read("a.dnnplan")) == entry.choices


def test_compiled_here_and_timed_there(ffn, gpu, here):
    made = ["tune", ffn, "-t", "sm_80", "-s", "M=16,64", "--mode", "A", "--most", 2, "-j", 1]
    (said,) = lines(dnnc(*made, "--compile-only", "candidates"))
    assert said.startswith("wrote candidates (on the GPU's machine: dnnc tune --time candidates)")
    assert gpu.asked == []
    said = lines(dnnc("tune", "--time", "candidates", "--cold-l2", "-o", "record.json"))
    assert gpu.asked == [True]
    assert [line for line in said if line.startswith("M=")] == ["M=16", "M=64"]
    found = record.read("record.json")
    assert {(e.l2, e.sizes["s0"]) for e in found.entries} == {("cold", 16), ("cold", 64)}
    # What the file holds already is kept.
    lines(dnnc("tune", "--time", "candidates", "-o", "record.json"))
    assert len(record.read("record.json").entries) == 4


@pytest.mark.parametrize(
    "arguments",
    [[], ["g.py", "--time", "d"], ["--time", "d", "--compile-only", "e"], ["g.py", "-s", "M"],
     ["g.py", "-s", "M=1", "-s", "M=2"], ["g.py", "-s", "M=1,x"], ["g.py", "--most", "0"]],
    ids=" ".join,
)  # fmt: skip
def test_wrong_uses(arguments, here, folder):
    (here / "g.py").write_text((folder / "ffn.py").read_text())
    assert dnnc("tune", *arguments).exit_code == 2


def test_errors(ffn, gpu, here):
    assert "no index" in error_of(dnnc("tune", "--time", "."))
    assert "no size is called 'N'" in error_of(dnnc("tune", ffn, "-s", "N=3"))
    (here / "later.json").write_text(json.dumps({"dnnc_tuning": 2}))
    assert "tuning record" not in dnnc("engines", ffn, "--tuning", "later.json").stdout
    (here / "none.json").write_text("{}")
    assert "dnnc_tuning" in error_of(dnnc("engines", ffn, "--tuning", "none.json"))


def test_the_cache_tells_records_and_errata_apart(ffn, gpu, cache, here, monkeypatch):
    """A graph file whose bytes are the same has another plan with them."""
    (here / "ffn.json").write_text(dnnc("inspect", ffn, "--graph").stdout)
    rule = {"id": "none", "why": "a test", "engine": "matmul_sm80"}
    (here / "rules.json").write_text(json.dumps({"dnnc_errata": 1, "rules": [rule]}))
    lines(dnnc("tune", "ffn.json", "-s", "M=64", "--mode", "a", "--most", 5, "-j", 1))

    def choice(*arguments):
        made = ["compile", "ffn.json", "-t", "sm_80", "--variants", 1, "--in-process"]
        lines(dnnc(*made, *arguments, "-o", "a.dnnplan"))
        return choice_of(format.read("a.dnnplan"))

    for _ in range(2):  # made, then found
        plain, tuned = choice(), choice("--tuning", "dnnc-tuning.json")
        barred = choice("--errata", "rules.json")
        assert OTHER not in plain
        assert OTHER in tuned
        assert barred.startswith("fallback")
    monkeypatch.setenv("DNNC_ERRATA_FILE", "rules.json")
    assert choice() == barred
