"""The example of docs/execution.md, against stand-ins for the driver and for torch."""

import sys
from types import SimpleNamespace

import cuda.bindings
import pytest

from tests.support.documents import examples

from .fake_driver import FakeDriver, FakeTorchTensor
from .fake_libraries import FakeTorch


class ExampleTorch(FakeTorch):
    """The part of torch that the example needs."""

    testing = SimpleNamespace(assert_close=lambda found, wanted: None)

    def __init__(self):
        super().__init__()
        self.cuda.synchronize = lambda: None
        self.cuda.current_stream = lambda device=0: Stream()

    def randn(self, rows, columns, device, dtype):
        return Tensor(self.memory.take(), (rows, columns), (columns, 1), dtype)

    def empty_like(self, other):
        return self.randn(*other.shape, "cuda", other.dtype)

    def relu(self, value):
        return value


class Stream:
    cuda_stream = 7


Stream.__module__ = "torch.cuda"


class Tensor(FakeTorchTensor):
    def __add__(self, other):
        return self

    def neg_(self):
        return self


@pytest.fixture
def fake(monkeypatch):
    made = FakeDriver(argument_bytes={"fusion0_pointwise": (8,) * 3})
    made.install(monkeypatch)
    monkeypatch.setattr(cuda.bindings, "driver", made)
    monkeypatch.setitem(sys.modules, "torch", ExampleTorch())
    return made


def test_the_example_runs(fake):
    (code,) = examples("execution.md")
    exec(compile(code, "docs/execution.md", "exec"), {})
    assert {launch.stream for launch in fake.launches} == {7}
    # A call; three executes, two sizes among them; the bound plan; the entry; the graph, before and
    # after its update.
    called, first, small, again, bound, entry, graph, updated = fake.launches
    assert small.grid != called.grid
    assert {launch.grid for launch in fake.launches} == {small.grid, called.grid}
    assert again.args == bound.args == entry.args == graph.args
    assert len({launch.args for launch in (called, first, again, updated)}) == 4
    assert len(fake.modules) == 1
