"""Entries: launches on addresses that are written in place, against a stand-in for the driver."""

import random
import threading
from collections import Counter

import numpy as np
import pytest

from dnnc.errors import DnncError
from dnnc.plan.plan import Plan
from dnnc.runtime import load
from tests.plan.plans import WHOLE

from . import fake_driver as driver
from .fake_driver import FakeDriver, FakeTorchTensor

X, Y, WORKSPACE = 0x10000, 0x800000, 0x1000000
LARGE, SMALL = {"M": 128, "N": 2}, {"M": 64, "N": 1}
PEERS = {1: {2: 0xA000}}


@pytest.fixture
def fake(monkeypatch):
    made = FakeDriver()
    made.install(monkeypatch)
    return made


def entry(plan: Plan = WHOLE, sizes=LARGE, **options):
    return load(plan).entry(sizes, peers=PEERS, **options)


def done(fake):
    """Returns the launches and memsets since the last call, without the arguments' addresses."""
    made = ([launch._replace(addresses=()) for launch in fake.launches], fake.memsets[:])
    fake.launches.clear()
    fake.memsets.clear()
    return made


def test_it_launches_what_a_bound_plan_does(fake):
    """Tensor maps, pointers with offsets, a memset, a peer's address, numbers and a stream."""
    draw = random.Random(1)
    plan = load(WHOLE)
    launch = plan.entry(LARGE, peers=PEERS)
    for turn in range(60):
        x, y = (place + 256 * draw.randrange(4) for place in (X, Y))
        workspace = WORKSPACE + 256 * draw.randrange(4)
        stream = draw.choice((0, 5))
        launch((x, y), workspace, stream)
        found = done(fake)
        plan.bind({1: x, 2: y}, workspace, stream=stream, sizes=LARGE, peers=PEERS)()
        assert found == done(fake), turn


def test_the_order_is_inputs_then_outputs_without_numbers(fake):
    launch = entry()
    assert [tensor.name for tensor in launch.tensors] == ["x", "y"]
    assert launch.workspace_bytes == 128 * 256 + 2 * 401408 + 512


def test_new_addresses_encode_no_tensor_map(fake):
    """A launch on addresses that were never seen writes them; nothing is asked or laid out."""
    launch = entry()
    launch((X, Y), WORKSPACE)
    fake.calls.clear()
    launch((X, Y), WORKSPACE)
    bare = {"cuCtxGetCurrent": 1, "cuMemsetD8Async": 1, "cuLaunchKernelEx": 1}
    assert fake.calls == bare
    fake.calls.clear()
    launch([X + 256, Y + 256], WORKSPACE + 256)
    assert fake.calls == {**bare, "cuTensorMapReplaceAddress": 2}
    fake.calls.clear()
    launch((X + 256, Y), WORKSPACE + 256)  # no map is of y
    assert fake.calls == bare


def test_numbers_are_those_of_the_entry(fake):
    for numbers, wanted in ((None, b"\0\0\0?"), ({"s": 2}, b"\0\0\0@"), ({3: 2.0}, b"\0\0\0@")):
        entry(numbers=numbers)((X, Y), WORKSPACE)
        assert fake.launches.pop().args[7] == wanted
    with pytest.raises(DnncError, match="a buffer; accepted: a by-value tensor"):
        entry(numbers={"x": 2.0})
    with pytest.raises(DnncError, match="a list; accepted: a mapping"):
        entry(numbers=[2.0])
    with pytest.raises(DnncError, match="a number or a host array of one"):
        entry(numbers={"s": "2"})


def test_sizes_of_an_entry_are_whole(fake):
    with pytest.raises(DnncError, match="the size N follows from no buffer"):
        entry(sizes={"M": 64})
    with pytest.raises(DnncError, match="M = 12; accepted"):
        entry(sizes={"M": 12, "N": 1})


def test_counts_are_checked(fake):
    launch = entry()
    for addresses, said in (((X,), "1 addresses"), ((X, Y, X), "3 addresses")):
        with pytest.raises(DnncError, match=f"{said}; accepted: 2, in this order: x, y"):
            launch(addresses, WORKSPACE)
    for workspace in (0, None):
        with pytest.raises(DnncError, match="none is given; accepted: 836096 bytes"):
            launch((X, Y), workspace)
    small = entry(sizes=SMALL)
    for workspace in (0, None, WORKSPACE):
        small((X, Y), workspace)
    assert len(fake.launches) == 3


WRONG = {
    "tensor": ((FakeTorchTensor(X, (1,), (1,), "torch.bfloat16"), Y), "a FakeTorchTensor"),
    "none": ((X, None), "a NoneType"),
    "text": ((X, "y"), "a str 'y'"),
    "negative": ((-256, Y), "a int -256"),
    "too large": ((X, 1 << 64), "a int"),
    "float": ((X + 0.5, Y), "a float"),
    "mapping": ({1: X, 2: Y}, "a dict; accepted: a tuple or list"),
    "array": (np.array([X, Y]), "a ndarray; accepted: a tuple or list"),
    "number": (5, "a int 5; accepted: a tuple or list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_address_is_an_error(fake, name):
    """At the first call, and at one that follows others; those after it are right again."""
    addresses, said = WRONG[name]
    launch = entry()
    for _ in range(2):
        with pytest.raises(DnncError) as caught:
            launch(addresses, WORKSPACE)
        assert said in str(caught.value)
        assert done(fake) == ([], [])
        launch((X, Y), WORKSPACE)
        right = done(fake)
        entry()((X, Y), WORKSPACE)
        assert right == done(fake)


def test_an_address_that_the_driver_refuses(fake):
    """A call may fail after it wrote some addresses; the next call writes all of its own."""
    launch = entry()
    launch((X, Y), WORKSPACE)
    right = done(fake)
    with pytest.raises(DnncError, match="cuTensorMapReplaceAddress failed"):
        launch((X + 4, Y + 256), WORKSPACE)
    assert done(fake) == ([], [])
    launch((X, Y), WORKSPACE)
    assert done(fake) == right


def test_an_empty_tensor_has_no_address(fake):
    launch = entry()
    for x in (0, X, 0):
        launch((x, Y), WORKSPACE)
        (made,), _ = done(fake)
        assert int.from_bytes(made.args[0][:8], "little") == (x or 256)


@pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["a launch", "a memset and a launch"])
def test_the_threads_context_is_left_as_it_was(fake, sizes):
    """The device's own is current for the launch, also where the thread has none."""
    launch = entry(device=1, sizes=sizes)
    for device in (0, None, 1, 0):
        fake.use(device)
        was = fake.current
        for x in (X, X + 256):
            launch((x, Y), WORKSPACE)
        assert fake.current == was
    assert {made.device for made in fake.launches} == {1}
    assert len(fake.launches) == 8
    fake.use(1)
    entry()((X, Y), WORKSPACE)  # of the current context's device
    assert fake.launches[-1].device == 1


def test_launches_alone_ask_for_no_context(fake):
    """The driver refuses a kernel of another context; a memset it would take."""
    launch = entry(sizes=SMALL)
    launch((X, Y))
    fake.calls.clear()
    for x in (X, X + 16):
        launch((x, Y))
    assert fake.calls == {"cuLaunchKernelEx": 2}


def test_a_launch_that_fails_is_not_made_again(fake):
    launch, wrong = entry(sizes=SMALL), driver.real.CUresult.CUDA_ERROR_LAUNCH_FAILED
    launch((X, Y))
    fake._cuLaunchKernelEx = lambda *arguments: (wrong,)
    del fake.cuLaunchKernelEx
    with pytest.raises(DnncError, match="CUDA_ERROR_LAUNCH_FAILED"):
        entry(sizes=SMALL)((X, Y))
    assert fake.calls["cuLaunchKernelEx"] == 2


def test_threads_launch_their_own_addresses(fake):
    """Two threads that are both about to launch: neither has written over the other's."""
    launch = entry(sizes=SMALL)
    launch((X, Y))
    fake.launches.clear()
    both = threading.Barrier(2, timeout=30)
    fake.before["cuLaunchKernelEx"] = both.wait
    failed = []

    def run(i):
        try:
            fake.use(0)
            for turn in range(20):
                launch((X + 0x1000 * i + 16 * turn, Y), 0, i + 1)
        except BaseException as error:
            failed.append(error)
            both.abort()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    found = Counter((made.stream, int.from_bytes(made.args[0], "little")) for made in fake.launches)
    wanted = [(i + 1, X + 0x1000 * i + 16 * turn) for i in range(2) for turn in range(20)]
    assert found == Counter(wanted)
