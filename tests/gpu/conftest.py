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
def _on_device(request):
    if not device.has_device():
        pytest.skip("no CUDA device")
    if request.node.get_closest_marker("sm90") and device.target() != "sm_90":
        pytest.skip("code of sm_90a runs on Hopper only")
    before = machine.use(machine.cuda())
    yield
    machine.use(before)
