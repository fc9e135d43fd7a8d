"""The device's clock, with a stand-in for the driver: what is called, in which order."""

import pytest

from dnnc.runtime import driver
from dnnc.runtime.clock import DeviceClock

from .fake_driver import FakeDriver

L2_BYTES = 1000


class Recorded:
    """The driver's calls; a replay or a launch takes as many milliseconds as it has launches."""

    def __init__(self):
        self.calls = []

    def __call__(self, name, *arguments, **_):
        self.calls.append((name, *arguments))
        given = {
            "cuStreamCreate": 7, "cuEventCreate": object(), "cuStreamEndCapture": "graph",
            "cuGraphInstantiate": "replay", "cuDeviceGetAttribute": L2_BYTES,
            "cuEventElapsedTime": 6.0,
        }  # fmt: skip
        return given.get(name)

    def names(self):
        """Since the last time that they were asked for."""
        found, self.calls = [call[0] for call in self.calls], []
        return found


@pytest.fixture
def calls(monkeypatch):
    FakeDriver().install(monkeypatch)
    pytest.importorskip("cuda.bindings.driver")
    import cuda.bindings.driver as api

    made, place = Recorded(), driver.device(0)
    monkeypatch.setattr(driver, "device", lambda: place)
    monkeypatch.setattr(driver, "make_current", lambda place: None)
    monkeypatch.setattr(driver, "_api", lambda: api)
    monkeypatch.setattr(driver, "_call", made)
    monkeypatch.setattr(driver, "synchronize", lambda stream=0: made("synchronize", stream))
    monkeypatch.setattr(driver, "allocate", lambda bytes_: made("allocate", bytes_) or 64)
    monkeypatch.setattr(driver, "free", lambda address: made("free", address))
    return made


TIMED = ["cuEventRecord", "cuGraphLaunch", "cuEventRecord", "synchronize", "cuEventElapsedTime"]


def test_warm_launches_are_replayed(calls):
    clock = DeviceClock(driver.device())
    assert clock.stream == 7
    calls.names()
    assert clock.seconds(lambda: calls("launch"), 3) == pytest.approx(2e-3)
    assert calls.names() == [
        "launch", "synchronize", "cuStreamBeginCapture", *["launch"] * 3, "cuStreamEndCapture",
        "cuGraphInstantiate", "cuGraphDestroy", *TIMED,
    ]  # fmt: skip


def test_a_replay_is_kept(calls):
    clock = DeviceClock(driver.device())

    def launch():
        calls("launch")

    clock.seconds(launch, 2)
    calls.names()
    clock.seconds(launch, 2)
    assert calls.names() == TIMED
    clock.close()
    assert calls.names() == [
        "synchronize", "cuGraphExecDestroy", *["cuEventDestroy"] * 2, "cuStreamDestroy",
    ]  # fmt: skip


def test_cold_launches_are_timed_one_by_one_after_the_cache_is_written(calls):
    clock = DeviceClock(driver.device(), cold_l2=True)
    assert ("allocate", 2 * L2_BYTES) in calls.calls
    calls.names()
    assert clock.seconds(lambda: calls("launch"), 2) == pytest.approx(6e-3)
    memset, *_ = calls.calls
    assert memset == ("cuMemsetD8Async", 64, 0, 2 * L2_BYTES, 7)
    alone = ["cuMemsetD8Async", *TIMED[:1], "launch", *TIMED[2:]]
    assert calls.names() == 2 * alone
    clock.close()
    assert ("free", 64) in calls.calls


def test_a_launch_that_fails_ends_the_capture(calls):
    clock = DeviceClock(driver.device())
    count = 0

    def launch():
        nonlocal count
        count += 1
        if count > 1:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        clock.seconds(launch, 2)
    assert calls.names()[-1] == "cuStreamEndCapture"
