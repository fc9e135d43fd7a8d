"""A device that is the interpreter."""

import pytest

from dnnc.runtime import driver
from tests.demo.interpreted_driver import InterpretedDriver


@pytest.fixture
def gpu(monkeypatch):
    made = InterpretedDriver()
    made.install(monkeypatch)
    made.live = set()

    def allocate(bytes_):
        made.live.add(made.memory.allocate(bytes_))
        return max(made.live)

    monkeypatch.setattr(driver, "allocate", allocate)
    monkeypatch.setattr(driver, "free", made.live.remove)
    return made
