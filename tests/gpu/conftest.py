"""Every check of this folder runs on the CUDA device, with fresh inputs."""

from pathlib import Path

import pytest

from tests.support import device, machine

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def _on_device():
    if not device.has_device():
        pytest.skip("no CUDA device")
    before = machine.use(machine.cuda())
    yield
    machine.use(before)
