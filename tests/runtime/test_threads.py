"""Contexts, devices and threads, against a stand-in for the driver."""

import dataclasses
import random
import struct
import sys
import threading
import time
from collections import Counter

import pytest

from dnnc.runtime import load
from tests.plan.plans import WHOLE

from .fake_driver import FakeDriver, FakeTorchTensor

X, Y, WORKSPACE = 0x10000, 0x800000, 0x1000000
SMALL = {"M": 64, "N": 1}


@pytest.fixture
def fake(monkeypatch):
    made = FakeDriver(devices=4)
    made.install(monkeypatch)
    return made


def pack_on(device, m=64, base=0):
    def tensor(address):
        place = address + base
        return FakeTorchTensor(place, (m, 64), (64, 1), "torch.bfloat16", index=device)

    return {"x": tensor(X), "y": tensor(Y)}


# ---- contexts


@pytest.mark.parametrize("before", [None, 0, 1], ids=str)
def test_a_thread_keeps_its_context(fake, before):
    """Buffers say the device, whatever context the thread has, and it has the same one after."""
    fake.use(before)
    was = fake.current
    plan = load(WHOLE)
    bound = plan.bind(pack_on(1), sizes={"N": 1})
    assert fake.current == was
    for _ in range(2):
        bound()
        plan.execute(pack_on(1), sizes={"N": 1})
        assert fake.current == was
    assert {launch.device for launch in fake.launches} == {1}
    assert len(fake.launches) == 4


def test_a_context_is_left_as_it_was_when_a_launch_fails(fake):
    bound = load(WHOLE).bind(pack_on(1), sizes={"N": 1})
    fake.before["cuLaunchKernelEx"] = lambda: fake._allowed.update({k: -1 for k in fake._allowed})
    with pytest.raises(RuntimeError, match="cuLaunchKernelEx failed: CUDA_ERROR_INVALID_VALUE"):
        bound()
    assert fake.current == 0x1000


def test_a_context_that_is_not_the_primary_one(fake):
    """Code is of the primary context of the device that the thread's own context is of."""
    fake.foreign[0x99] = 2
    fake.home = 2
    fake._thread.context = 0x99
    plan = load(WHOLE)
    for _ in range(2):
        plan.execute({1: X, 2: Y}, sizes=SMALL)
    assert [launch.device for launch in fake.launches] == [2, 2]
    assert fake.current == 0x99


def test_addresses_alone_follow_the_current_context(fake):
    plan = load(WHOLE)
    for device in (0, 1, 0, 1):
        fake.use(device)
        fake.home = device
        plan.execute({1: X, 2: Y}, sizes=SMALL)
    assert [launch.device for launch in fake.launches] == [0, 1, 0, 1]
    assert len(fake.modules) == 2


def test_code_is_loaded_in_the_mode_that_a_capture_allows(fake):
    """Calls that CUDA forbids while a stream is captured are made in relaxed mode, and only so."""
    modes = []
    for name in ("cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute"):
        fake.before[name] = lambda: modes.append(fake.capture_mode.name)
    before = fake.capture_mode
    plan = load(WHOLE)
    peers = {1: {2: 0xA000}}
    plan.bind({1: X, 2: Y}, WORKSPACE, sizes={"M": 128, "N": 2}, peers=peers)
    assert set(modes) == {"CU_STREAM_CAPTURE_MODE_RELAXED"}
    assert fake.capture_mode == before


def test_shared_memory_that_was_allowed_stays_allowed(fake):
    """A size that needs less does not take from the launches of one that needs more."""
    program = WHOLE.programs[0]
    memset, step = program.variants[1].steps
    launch = dataclasses.replace(step.launch, dynamic_smem_bytes="M*1024")
    variant = dataclasses.replace(
        program.variants[1], steps=(memset, dataclasses.replace(step, launch=launch))
    )
    plan = load(
        dataclasses.replace(WHOLE, programs=(dataclasses.replace(program, variants=(variant,)),))
    )
    peers = {1: {2: 0xA000}}
    bound = [
        plan.bind({1: X, 2: Y}, WORKSPACE, sizes={"M": m, "N": 1}, peers=peers)
        for m in (64, 200, 8, 72)
    ]
    for each in bound:
        each()
    assert [launch.smem // 1024 for launch in fake.launches] == [64, 200, 8, 72]
    assert fake.calls["cuFuncSetAttribute"] == 3  # large clusters, 64 KiB, 200 KiB


# ---- threads


def in_threads(work, count=8):
    """Runs work(i) in as many threads at once; what one raises is raised here."""
    failed = []
    ready = threading.Barrier(count)

    def run(i):
        ready.wait()
        try:
            work(i)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if failed:
        raise failed[0]


@pytest.fixture
def _switching_often():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_switching_often")
def test_many_threads_execute_one_plan(fake):
    """Each launch has the device, stream, grid and arguments of its own call."""
    plan = load(WHOLE)
    calls = 150
    wanted = [Counter() for _ in range(8)]

    def work(i):
        draw = random.Random(i)
        fake.use(draw.choice([None, 0, 1, 2, 3]))
        was = fake.current
        for _ in range(calls):
            device, m = draw.randrange(4), 8 * draw.randrange(1, 9)
            base, stream = 0x100 * draw.randrange(4), draw.randrange(1, 4)
            plan.execute(pack_on(device, m, base), stream=stream, sizes={"N": 1})
            wanted[i][device, m, base, stream] += 1
            assert fake.current == was

    in_threads(work)
    assert len(fake.launches) == 8 * calls
    found = Counter(
        (made.device, made.grid[0], struct.unpack("<Q", made.args[0])[0] - X, made.stream)
        for made in fake.launches
    )
    assert found == sum(wanted, Counter())
    assert len(fake.modules) == len({device for device, *_ in found}) == 4


def test_each_launch_is_of_its_own_thread(fake):
    """Equal calls in every thread, told apart by stream: none is lost, none is another's."""
    plan = load(WHOLE)
    in_threads(lambda i: [
        plan.execute(pack_on(0, m), stream=i + 1, sizes={"N": 1}) for m in (8, 16, 24) * 40
    ])  # fmt: skip
    for stream in range(1, 9):
        grids = [launch.grid[0] for launch in fake.launches if launch.stream == stream]
        assert grids == [8, 16, 24] * 40


def test_threads_share_a_bound_plan(fake):
    plan = load(WHOLE)
    bound = plan.bind({1: X, 2: Y}, sizes=SMALL, stream=3)
    in_threads(lambda i: [bound() for _ in range(100)])
    assert len(fake.launches) == 800
    assert len(set(fake.launches)) == 1


def test_a_device_that_loads_slowly_holds_up_no_other(fake):
    plan = load(WHOLE)
    slow = threading.Event()
    fake.before["cuModuleLoadData"] = lambda: fake.current == 0x1001 and slow.wait(30)
    thread = threading.Thread(target=lambda: plan.execute(pack_on(1), sizes={"N": 1}))
    thread.start()
    while not fake.calls["cuModuleLoadData"]:
        time.sleep(0.001)
    plan.execute(pack_on(0), sizes={"N": 1})
    assert [launch.device for launch in fake.launches] == [0]
    slow.set()
    thread.join(30)
    assert [launch.device for launch in fake.launches] == [0, 1]


def test_threads_that_come_first_together_load_once(fake):
    plan = load(WHOLE)
    fake.before["cuModuleLoadData"] = lambda: time.sleep(0.01)
    in_threads(lambda i: plan.execute(pack_on(i % 2), sizes={"N": 1}))
    assert len(fake.modules) == 2
