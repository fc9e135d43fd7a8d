"""Without a driver, a call that would fail anywhere says why; one that would not says that."""

import dataclasses

import numpy as np
import pytest

from dnnc.errors import DnncError, Status
from dnnc.runtime import driver, load
from tests.plan.plans import WHOLE

from .fake_driver import Array, FakeDriver, FakeTorchTensor

X, Y, WORKSPACE = 0x10000, 0x800000, 0x1000000
SIZES = {"M": 128, "N": 2}
PLAN = dataclasses.replace(WHOLE, programs=WHOLE.programs[:1])  # the one that needs workspace


def tensor(address, dims=(128, 64), strides=(64, 1), dtype="torch.bfloat16", **options):
    return FakeTorchTensor(address, dims, strides, dtype, **options)


GOOD = {1: X, 2: Y}
# (variant pack, workspace, sizes)
BAD = {
    "no mapping": ([X, Y], WORKSPACE, SIZES),
    "a missing tensor": ({1: X}, WORKSPACE, SIZES),
    "an unknown one": ({**GOOD, "z": X}, WORKSPACE, SIZES),
    "one twice": ({**GOOD, "x": X}, WORKSPACE, SIZES),
    "a host array": ({**GOOD, 1: np.zeros((128, 64))}, WORKSPACE, SIZES),
    "a host tensor": ({**GOOD, 1: tensor(X, device="cpu")}, WORKSPACE, SIZES),
    "text": ({**GOOD, 1: "x"}, WORKSPACE, SIZES),
    "no number": ({**GOOD, 3: "a"}, WORKSPACE, SIZES),
    "address 0": ({**GOOD, 1: 0}, WORKSPACE, SIZES),
    "a data type": ({**GOOD, 1: Array(X, (128, 64), "<f4")}, WORKSPACE, SIZES),
    "dims": ({**GOOD, 1: tensor(X, (136, 64))}, WORKSPACE, SIZES),
    "rank": ({**GOOD, 1: tensor(X, (128, 64, 1), (64, 1, 1))}, WORKSPACE, SIZES),
    "strides": ({**GOOD, 1: tensor(X, strides=(128, 1))}, WORKSPACE, SIZES),
    "alignment": ({**GOOD, 2: Y + 16}, WORKSPACE, SIZES),
    "overlap": ({1: X, 2: X + 128}, WORKSPACE, SIZES),
    "a size": (GOOD, WORKSPACE, {"M": 12, "N": 2}),
    "no size": (GOOD, WORKSPACE, {"N": 2}),
    "an unknown size": (GOOD, WORKSPACE, {**SIZES, "m": 1}),
    "a size that is none": (GOOD, WORKSPACE, {**SIZES, "M": "a"}),
    "no workspace": (GOOD, None, SIZES),
    "workspace alignment": (GOOD, WORKSPACE + 128, SIZES),
    "a small workspace": (GOOD, Array(WORKSPACE, (1024,), "|u1"), SIZES),
    "workspace overlap": (GOOD, Y, SIZES),
    "workspace 0": (GOOD, 0, SIZES),
}

WAYS = {
    "bind": lambda plan, pack, workspace, sizes: plan.bind(
        pack, workspace, sizes=sizes, peers={1: {2: 0xA000}}
    ),
    "graph": lambda plan, pack, workspace, sizes: plan.populate_cuda_graph(
        pack, workspace, 5, sizes=sizes, peers={1: {2: 0xA000}}
    ),
    "execute": lambda plan, pack, workspace, sizes: plan.execute(pack, workspace, sizes=sizes),
}


def no_driver(monkeypatch):
    def absent():
        raise DnncError(Status.NOT_INITIALIZED, "no CUDA driver", "a driver", "cuInit")

    monkeypatch.setattr(driver, "_api", absent)
    monkeypatch.setattr(driver, "_devices", {})


def error_of(call, *given):
    with pytest.raises(DnncError) as caught:
        call(load(PLAN), *given)
    return caught.value


@pytest.mark.parametrize("case", BAD)
def test_a_bad_call_is_told_what_it_is_told_with_a_device(case, monkeypatch):
    FakeDriver().install(monkeypatch)
    wanted = error_of(WAYS["bind"], *BAD[case])
    assert wanted.status is not Status.NOT_INITIALIZED
    no_driver(monkeypatch)
    for call in WAYS.values():
        assert str(error_of(call, *BAD[case])) == str(wanted)


@pytest.mark.parametrize("way", WAYS)
def test_a_good_call_is_told_that_there_is_no_driver(way, monkeypatch):
    no_driver(monkeypatch)
    for workspace, sizes in ((WORKSPACE, SIZES), (None, {"M": 8, "N": 2})):
        assert error_of(WAYS[way], GOOD, workspace, sizes).status is Status.NOT_INITIALIZED


@pytest.mark.parametrize(
    ("sizes", "numbers"),
    [
        ({"M": 12, "N": 2}, None), ({"N": 2}, None), (None, None), ({**SIZES, "m": 1}, None),
        ({**SIZES, "M": "a"}, None), ([1], None), (SIZES, {3: "a"}), (SIZES, {"x": 1.0}),
        (SIZES, {"nobody": 1.0}), (SIZES, [1]),
    ],
)  # fmt: skip
def test_an_entry_is_told_of_wrong_sizes_and_numbers_first(sizes, numbers, monkeypatch):
    FakeDriver().install(monkeypatch)
    wanted = error_of(lambda plan: plan.entry(sizes, numbers=numbers))
    no_driver(monkeypatch)
    assert wanted.status is not Status.NOT_INITIALIZED
    assert str(error_of(lambda plan: plan.entry(sizes, numbers=numbers))) == str(wanted)
    assert error_of(lambda plan: plan.entry(SIZES)).status is Status.NOT_INITIALIZED


def test_a_call_with_arrays(monkeypatch):
    no_driver(monkeypatch)
    plan = load(PLAN)
    with pytest.raises(DnncError, match="data type f32; accepted: bf16"):
        plan(Array(X, (128, 64), "<f4"), sizes=SIZES)
    with pytest.raises(DnncError, match="no CUDA driver"):
        plan(X, sizes=SIZES)


def test_of_several_programs_the_least_workspace_counts(monkeypatch):
    no_driver(monkeypatch)
    with pytest.raises(DnncError, match="no CUDA driver"):
        load(WHOLE).bind(GOOD, sizes=SIZES)
