"""Objects that count as a stream, at every door that takes one."""

from types import SimpleNamespace

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings import runtime as cudart

import dnnc
from dnnc.errors import DnncError
from dnnc.runtime import load
from dnnc.runtime.streams import handle_of
from tests.plan.plans import WHOLE

from .fake_driver import Array, FakeDriver, FakeTorchTensor

X, Y = 0x10000, 0x800000
SMALL = {"M": 64, "N": 1}
HANDLE = 0x7F0000001230


class OfProtocol:
    def __init__(self, answer=(0, HANDLE)):
        self._answer = answer

    def __cuda_stream__(self):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class OfTorch:
    cuda_stream = HANDLE


class LaterOfTorch(OfTorch):
    """A subclass of a user."""


class OfCuPy:
    ptr = HANDLE


class MemoryOfCuPy:
    ptr = HANDLE


OfTorch.__module__ = "torch.cuda.streams"
OfCuPy.__module__ = "cupy.cuda.stream"
MemoryOfCuPy.__module__ = "cupy.cuda.memory"

STREAMS = {
    "none": (None, 0), "integer": (HANDLE, HANDLE), "numpy": (np.uint64(HANDLE), HANDLE),
    "protocol": (OfProtocol(), HANDLE), "torch": (OfTorch(), HANDLE),
    "a subclass": (LaterOfTorch(), HANDLE), "cupy": (OfCuPy(), HANDLE),
    "driver": (cuda.CUstream(HANDLE), HANDLE), "runtime": (cudart.cudaStream_t(HANDLE), HANDLE),
}  # fmt: skip
REFUSED = {
    "boolean": (True, "a bool True"), "text": ("7", "a str '7'"), "float": (7.0, "a float 7.0"),
    "negative": (-1, "a int -1"), "too large": (1 << 64, "a int"),
    "memory with ptr": (MemoryOfCuPy(), "a MemoryOfCuPy"),
    "tensor": (FakeTorchTensor(X, (1,), (1,), "torch.int64"), "a FakeTorchTensor"),
    "array": (Array(X, [1], "<i8"), "a Array"),
    "context": (cuda.CUcontext(HANDLE), "a CUcontext"),
    "another's attribute": (SimpleNamespace(cuda_stream=HANDLE), "a SimpleNamespace"),
    "later protocol": (OfProtocol((1, HANDLE)), "version 1 of __cuda_stream__"),
    "no pair": (OfProtocol(HANDLE), "a OfProtocol that can't be read: TypeError"),
    "no handle": (OfProtocol((0, None)), "a OfProtocol"),
    "raises": (OfProtocol(OSError("gone")), "can't be read: OSError: gone"),
    "class": (OfProtocol, "a type that can't be read"),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_streams(name):
    stream, handle = STREAMS[name]
    found = handle_of(stream)
    assert (type(found), found) == (int, handle)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_stream_is_named(name):
    stream, said = REFUSED[name]
    with pytest.raises(DnncError) as caught:
        handle_of(stream)
    assert said in str(caught.value)
    assert caught.value.where == "stream"


def through_bind(plan, stream):
    plan.bind({1: X, 2: Y}, sizes=SMALL, stream=stream)()


def through_set_stream(plan, stream):
    bound = plan.bind({1: X, 2: Y}, sizes=SMALL)
    bound.set_stream(stream)
    bound()


def through_execute(plan, stream):
    plan.execute({1: X, 2: Y}, sizes=SMALL, stream=stream)


def through_a_call(plan, stream):
    plan(X, outputs=Y, sizes=SMALL, stream=stream)


def through_entry(plan, stream):
    plan.entry(SMALL)((X, Y), 0, stream)


def through_a_handle(plan, stream):
    handle = dnnc.create_handle()
    dnnc.set_stream(handle, stream)
    plan.execute({1: X, 2: Y}, sizes=SMALL, stream=dnnc.frontends.handle.get_stream(handle))


DOORS = (
    through_bind, through_set_stream, through_execute, through_a_call, through_entry,
    through_a_handle,
)  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_every_door_takes_the_same_streams(door, monkeypatch):
    fake = FakeDriver()
    fake.install(monkeypatch)
    plan = load(WHOLE)
    for stream, handle in STREAMS.values():
        door(plan, stream)
        assert fake.launches.pop().stream == handle
    for stream, said in REFUSED.values():
        with pytest.raises(DnncError) as caught:
            door(plan, stream)
        assert said in str(caught.value)
    assert not fake.launches


def test_a_bound_plan_keeps_the_object_of_its_stream(monkeypatch):
    """Some libraries destroy a stream with its object."""
    FakeDriver().install(monkeypatch)
    ended = []

    class Ending(OfProtocol):
        def __del__(self):
            ended.append(self)

    plan = load(WHOLE)
    bound = plan.bind({1: X, 2: Y}, sizes=SMALL, stream=Ending())
    assert not ended
    bound.set_stream(None)
    assert len(ended) == 1
    plan.execute({1: X, 2: Y}, sizes=SMALL, stream=Ending())
    assert len(ended) == 2  # what execute remembers keeps nothing
