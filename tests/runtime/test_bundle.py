"""Bundles: opened by their index, each plan loaded when it is asked for."""

import builtins
import dataclasses
import threading

import pytest

import dnnc
from dnnc.plan import format
from dnnc.runtime import ExecutionPlan, executor
from tests.plan.plans import WHOLE

BIG = tuple(bytes([i]) * 100_000 for i in range(4))


def renamed(name, **changes):
    return dataclasses.replace(WHOLE, name=name, **changes)


@pytest.fixture
def path(tmp_path):
    """A bundle of a, b and c; a and b have the same code."""
    made = tmp_path / "model.dnnplan"
    format.write(
        made, [renamed("a", blobs=BIG), renamed("b", blobs=BIG), renamed("c", blobs=BIG[::-1])]
    )
    return made


def test_plans_by_name(path):
    bundle = dnnc.load_bundle(path)
    assert bundle.names == tuple(bundle) == ("a", "b", "c")
    assert len(bundle) == 3
    assert "b" in bundle
    assert "d" not in bundle
    assert isinstance(bundle["b"], ExecutionPlan)
    assert bundle["b"].plan == renamed("b", blobs=BIG)
    assert bundle["b"] is bundle["b"]
    with pytest.raises(dnnc.DnncError, match="no plan 'd'; accepted: one of a, b, c"):
        bundle["d"]
    assert dnnc.load_bundle(path.read_bytes())["c"].plan == renamed("c", blobs=BIG[::-1])
    bundle.verify()


def test_shared_code_is_there_once(path):
    assert path.stat().st_size < sum(map(len, BIG)) + 20_000


def test_opening_reads_the_index_alone(path, monkeypatch):
    read = []

    class Counted:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def seek(self, place):
            self.file.seek(place)

        def read(self, count):
            read.append(count)
            return self.file.read(count)

    opened = builtins.open
    monkeypatch.setattr(
        format, "open", lambda *a, **named: Counted(opened(*a, **named)), raising=False
    )
    bundle = dnnc.load_bundle(path)
    assert sum(read) < 5_000
    read.clear()
    assert bundle["a"].plan.name == "a"
    assert 400_000 < sum(read) < 410_000
    read.clear()
    bundle["a"]
    assert read == []


def test_a_plan_of_one_is_a_bundle_of_one(tmp_path):
    format.write(tmp_path / "p.dnnplan", WHOLE)
    assert dnnc.load_bundle(tmp_path / "p.dnnplan")["whole"].plan == WHOLE


def test_a_plan_that_is_altered_harms_no_other(path):
    data = bytearray(path.read_bytes())
    entry = next(e for e in format.Bundle(path)._entries if e.name == "c")
    start = format.Bundle(path)._base + entry.manifest.offset
    data[start + 5] ^= 1
    bundle = dnnc.load_bundle(bytes(data))
    assert bundle["a"].plan.name == "a"
    with pytest.raises(dnnc.DnncError, match="the SHA-256 of a manifest differs"):
        bundle["c"]
    with pytest.raises(dnnc.DnncError, match="SHA-256"):
        bundle.verify()


def test_threads_get_one_plan(path, monkeypatch):
    made = []
    plan_type = executor.ExecutionPlan
    monkeypatch.setattr(
        "dnnc.runtime.bundle.ExecutionPlan", lambda p: made.append(p) or plan_type(p)
    )
    bundle = dnnc.load_bundle(path)
    found = []
    threads = [threading.Thread(target=lambda: found.append(bundle["a"])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(set(map(id, found))) == 1


def test_a_bundle_that_is_not_there(tmp_path):
    with pytest.raises(dnnc.DnncError, match=r"missing\.dnnplan: can't be read"):
        dnnc.load_bundle(tmp_path / "missing.dnnplan")
