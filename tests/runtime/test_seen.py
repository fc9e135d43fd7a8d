"""Which calls of execute are taken for one that was checked before, and which are not."""

import gc
import itertools
import sys
import weakref
from types import ModuleType, SimpleNamespace

import pytest

from dnnc.errors import DnncError
from dnnc.runtime import load, seen
from dnnc.runtime.recent import Recent
from tests.plan.plans import WHOLE

from .fake_driver import Array, FakeDriver, FakeTorchTensor, Place

X, Y, WORKSPACE = 0x10000, 0x800000, 0x1000000
# What a launch of a call that was seen costs: no look at memory, no code, no tensor map.
QUICK = {"cuCtxGetCurrent": 1, "cuLaunchKernelEx": 1}


@pytest.fixture
def fake(monkeypatch):
    made = FakeDriver()
    made.install(monkeypatch)
    return made


def tensor(address, m=64, dtype="torch.bfloat16", **options):
    return FakeTorchTensor(address, (m, 64), (64, 1), dtype, **options)


def calls_of(fake, call):
    fake.calls.clear()
    call()
    return dict(fake.calls)


PACKS = {
    "tensors": ({"x": tensor(X), "y": tensor(Y)}, {"N": 1}),
    "addresses": ({1: X, 2: Y}, {"M": 64, "N": 1}),
    "both": ({1: tensor(X), 2: Y}, {"N": 1}),
    "a float": ({1: tensor(X), 2: Y, 3: 0.25}, {"N": 1}),
    "another library's": ({1: Array(X, (64, 64), "<i2"), 2: Y}, {"N": 1}),
}


@pytest.mark.parametrize("name", [name for name in PACKS if name != "another library's"])
def test_a_call_that_was_seen_only_launches(fake, name):
    pack, sizes = PACKS[name]
    plan = load(WHOLE)
    plan.execute(pack, sizes=sizes)
    assert calls_of(fake, lambda: plan.execute(pack, sizes=sizes)) == QUICK
    assert calls_of(fake, lambda: plan.execute(dict(pack), sizes=dict(sizes))) == QUICK
    assert fake.launches[0] == fake.launches[1] == fake.launches[2]


def test_the_short_way_finds_tensors_and_addresses(fake):
    for name in ("tensors", "addresses", "both", "a float"):
        pack, sizes = PACKS[name]
        plan = load(WHOLE)
        plan.execute(pack, sizes=sizes)
        context = fake.cuCtxGetCurrent()[1]
        assert plan._seen.find(pack, None, 0, sizes, context) is not None, name
        assert plan._seen.find(pack, None, 9, sizes, context) is None
        assert plan._seen.find(pack, None, 0, {**sizes, "N": 2}, context) is None
        assert plan._seen.find(pack, WORKSPACE, 0, sizes, context) is None
        assert plan._seen.find({}, None, 0, sizes, context) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "torch.float16"}, "data type f16"),
        ({"shape": (64, 32)}, r"dims \[64, 32\]"),
        ({"_strides": (1, 64)}, r"strides \[1, 64\]"),
        ({"device": Place("cuda", 1)}, "a buffer on device"),
        ({"is_cuda": False, "device": Place("cpu", None), "numel": lambda: 4096}, "a tensor on"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_tensors_at_the_same_addresses_are_checked_when_they_changed(fake, change, message):
    """The short way goes by addresses; what else a tensor is may change in place."""
    plan = load(WHOLE)
    pack = {"x": tensor(X), "y": tensor(Y)}
    for _ in range(2):
        plan.execute(pack, sizes={"N": 1})
    vars(pack["x"]).update(change)
    with pytest.raises(DnncError, match=message):
        plan.execute(pack, sizes={"N": 1})
    assert len(fake.launches) == 2


def test_sizes_follow_tensors_at_the_same_addresses(fake):
    """Buffers that hold the largest size, and views of them that differ from call to call."""
    plan = load(WHOLE)
    for m in (8, 16, 8, 64, 16):
        plan.execute({"x": tensor(X, m), "y": tensor(Y, m)}, sizes={"N": 1})
    assert [launch.grid for launch in fake.launches] == [(m, 1, 1) for m in (8, 16, 8, 64, 16)]
    again = {"x": tensor(X, 8), "y": tensor(Y, 8)}
    assert calls_of(fake, lambda: plan.execute(again, sizes={"N": 1})) == QUICK


def test_calls_of_one_plan_in_every_form_take_turns(fake):
    plan = load(WHOLE)
    wanted = {}
    for name in [*PACKS, *reversed(PACKS), *PACKS]:
        pack, sizes = PACKS[name]
        if name == "another library's":
            with pytest.raises(DnncError, match="data type"):
                plan.execute(pack, sizes=sizes)
            continue
        plan.execute(pack, sizes=sizes)
        launch = fake.launches[-1]
        assert wanted.setdefault(name, launch) == launch
        assert launch.args == (X.to_bytes(8, "little"),)


class Subclass(FakeTorchTensor):
    """Its addresses are its own matter."""

    def data_ptr(self):
        return super().data_ptr()


def test_classes_of_tensors_take_turns(fake):
    plan = load(WHOLE)
    other = Subclass(X, (64, 64), (64, 1), "torch.bfloat16")
    for x in (tensor(X), other, X, other, tensor(X)):
        plan.execute({"x": x, "y": tensor(Y)}, sizes={"N": 1})
    assert [launch.args for launch in fake.launches] == [(X.to_bytes(8, "little"),)] * 5


def test_numbers_that_are_equal_but_not_the_same(fake):
    """-0.0 is not 0.0; and a float in place of an address is refused, though it equals one."""
    plan = load(WHOLE)
    pack = {1: X, 2: Y, 3: 0}
    sizes = {"M": 128, "N": 2}
    program = WHOLE.programs[0]
    assert program.variants[1].steps[1].launch.args[7].uid == 3
    peers = {1: {2: 0xA000}}
    for value in (0, 0.0, -0.0, 0):
        plan.bind({**pack, 3: value}, WORKSPACE, sizes=sizes, peers=peers)()
    assert [launch.args[7].hex() for launch in fake.launches] == [
        "00000000", "00000000", "00000080", "00000000",
    ]  # fmt: skip
    plan.execute({1: X, 2: Y}, sizes={"M": 64, "N": 1})
    with pytest.raises(DnncError, match="a float"):
        plan.execute({1: float(X), 2: Y}, sizes={"M": 64, "N": 1})
    context = fake.cuCtxGetCurrent()[1]

    def found(value):
        return plan._seen.find({1: X, 2: Y, 3: value}, None, 0, {"M": 64, "N": 1}, context)

    for value, other in ((0, -0.0), (0, 0.0), (0.0, -0.0), (-0.0, 0.0)):
        plan.execute({1: X, 2: Y, 3: value}, sizes={"M": 64, "N": 1})
        assert found(value) is not None
        assert found(other) is not found(value)


def test_nothing_keeps_tensors_alive(fake):
    plan = load(WHOLE)
    x, y = tensor(X), tensor(Y)
    plan.execute({"x": x, "y": y}, sizes={"N": 1})
    dead = [weakref.ref(value) for value in (x, y)]
    del x, y
    gc.collect()
    assert [ref() for ref in dead] == [None, None]


def test_workspaces_tell_calls_apart(fake):
    plan = load(WHOLE)
    for workspace in (WORKSPACE, 2 * WORKSPACE, WORKSPACE, None, tensor(WORKSPACE), WORKSPACE):
        plan.execute({1: X, 2: Y}, workspace, sizes={"M": 64, "N": 1})
    assert len(plan._seen._bound) == 4


def test_the_last_entries_are_kept():
    recent = Recent(3)
    for key in (1, 2, 3, 2, 4):
        recent.add(key, -key)
    assert [recent.get(key) for key in (1, 2, 3, 4)] == [None, -2, -3, -4]
    assert len(recent) == 3


# ---- torch's own check of tensors


class Tensor:
    def __init__(self, *about):
        self.about = about

    shape = property(lambda self: self.about[0])
    dtype = property(lambda self: self.about[1])
    device = property(lambda self: self.about[2])

    def stride(self):
        return self.about[3]


def torch_whose_check_sees(seen_parts):
    """A torch whose guards compare those parts of what a tensor is."""

    def zeros(*shape, dtype="f32", device="cpu"):
        strides = tuple(itertools.accumulate(reversed(shape[1:]), int.__mul__, initial=1))[::-1]
        return Viewed(shape, dtype, device, strides)

    class Viewed(Tensor):
        def t(self):
            return Viewed(self.shape[::-1], self.dtype, self.device, self.stride()[::-1])

        def __getitem__(self, key):
            return Viewed((4, 6), self.dtype, self.device, (12, 2))

    class TensorGuards:
        def __init__(self, *tensors, dynamic_dims_sizes, dynamic_dims_strides):
            self.known = [[t.about[i] for i in seen_parts] for t in tensors]

        def check(self, *tensors):
            found = [[t.about[i] for i in seen_parts] for t in tensors]
            return found == self.known and len({*map(id, tensors)}) == len(tensors)

    guards = SimpleNamespace(TensorGuards=TensorGuards)
    torch = ModuleType("torch")
    vars(torch).update(zeros=zeros, int32="i32", Tensor=Tensor)
    return torch, guards


@pytest.mark.parametrize("missed", [None, 0, 1, 2, 3], ids=str)
def test_torchs_check_is_used_only_if_it_sees_everything(monkeypatch, missed):
    torch, guards = torch_whose_check_sees([i for i in range(4) if i != missed])
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._C", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch._C._dynamo", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch._C._dynamo.guards", guards)
    assert (seen._torch_guards() is not None) == (missed is None)
    one, other = torch.zeros(4, 6), torch.zeros(4, 6)
    for tensors in ((one, other), (one, one)):  # one bound twice, as in place
        check = seen.described_as(tensors)
        assert check(*tensors)
        assert not check(one, torch.zeros(6, 4).t())
        assert not check(one, torch.zeros(4, 6, device="meta"))
