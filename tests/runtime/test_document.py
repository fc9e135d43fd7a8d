"""The example of docs/execution.md, against stand-ins for the driver and for torch."""

import sys
from types import SimpleNamespace

import cuda.bindings
import pytest

from tests.support.documents import examples

from .fake_driver import FakeDriver, FakeTorchTensor


class FakeTorch:
    """As much of torch as the example needs: tensors at new addresses; stream 7."""

    float16 = "torch.float16"
    testing = SimpleNamespace(assert_close=lambda found, wanted: None)
    cuda = SimpleNamespace(
        synchronize=lambda: None, current_stream=lambda: SimpleNamespace(cuda_stream=7)
    )

    def __init__(self):
        self.end = 0x10000

    def randn(self, rows, columns, device, dtype):
        self.end += 0x100000
        return Tensor(self.end, (rows, columns), (columns, 1), dtype)

    def empty_like(self, other):
        return self.randn(*other.shape, "cuda", other.dtype)

    def relu(self, value):
        return value


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
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    return made


def test_the_example_runs(fake):
    (code,) = examples("execution.md")
    exec(compile(code, "docs/execution.md", "exec"), {})
    assert {launch.stream for launch in fake.launches} == {7}
    # Three executes, two sizes among them; the bound plan; the graph, before and after its update.
    assert len(fake.launches) == 6
    grids = [launch.grid for launch in fake.launches]
    assert grids[0] == grids[2] == grids[3] == grids[4] == grids[5] != grids[1]
    assert fake.launches[2].args == fake.launches[3].args == fake.launches[4].args
    assert fake.launches[5].args != fake.launches[4].args
    assert len(fake.modules) == 1
