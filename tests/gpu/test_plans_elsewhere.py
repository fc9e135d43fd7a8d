"""Plans that were made elsewhere: for a device's properties, as bytes, in bundles."""

import subprocess
import sys

import pytest

import dnnc
from dnnc.runtime import driver

torch = pytest.importorskip("torch")

# In a process that never calls the driver: what it compiles for is in the file.
ELSEWHERE = """
import sys
import dnnc
from dnnc.runtime import driver
driver._api = None
device = dnnc.create_device_properties(open(sys.argv[1]).read())
M = dnnc.Dim("M", max=4096)
g = dnnc.pygraph("far", io_data_type="HALF", intermediate_data_type="FLOAT", device_property=device)
x, w = g.tensor([M, 64], name="x", uid=1), g.tensor([64, 128], name="w", uid=2)
g.relu(g.matmul(x, w)).set_output().set_name("y").set_uid(3)
g.build()
open(sys.argv[2], "wb").write(g.serialize())
"""


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elsewhere")
    device, plan = folder / "device.json", folder / "far.dnnplan"
    device.write_text(dnnc.create_device_properties(0).serialize())
    subprocess.run([sys.executable, "-c", ELSEWHERE, str(device), str(plan)], check=True)
    return plan


def pack(m=37):
    x = torch.randn(m, 64, device="cuda", dtype=torch.float16)
    w = torch.randn(64, 128, device="cuda", dtype=torch.float16)
    return {1: x, 2: w, 3: torch.full((m, 128), float("nan"), device="cuda", dtype=x.dtype)}


def assert_right(tensors):
    torch.cuda.synchronize()
    exact = (tensors[1].double() @ tensors[2].double()).relu()
    torch.testing.assert_close(tensors[3].double(), exact, rtol=4e-3, atol=4e-2)


def test_properties_are_those_of_the_device():
    found, place = dnnc.create_device_properties(0), driver.device(0)
    assert found.variables == place.variables
    assert found.capability == place.capability
    assert found.target.sm_count == place.sm_count
    assert dnnc.create_device_properties().serialize() == found.serialize()


def test_a_graph_from_elsewhere_is_executed(plan_file):
    g = dnnc.pygraph()
    handle = dnnc.create_handle()
    dnnc.set_stream(handle, torch.cuda.current_stream().cuda_stream)
    g.deserialize(handle, plan_file.read_bytes())
    for m in (1, 37, 4096):
        tensors = pack(m)
        size = g.get_workspace_size({"M": m})
        workspace = torch.empty(max(1, size), device="cuda", dtype=torch.uint8)
        g.execute(tensors, workspace if size else None)
        assert_right(tensors)


def test_plans_of_a_bundle_are_executed(plan_file, tmp_path):
    bundle = tmp_path / "model.dnnplan"
    command = [sys.executable, "-m", "dnnc", "bundle", str(bundle)]
    subprocess.run([*command, f"a={plan_file}", f"b={plan_file}"], check=True)
    plans = dnnc.load_bundle(bundle)
    for name in plans:
        tensors = pack()
        size = plans[name].workspace_size({"M": 37})
        workspace = torch.empty(max(1, size), device="cuda", dtype=torch.uint8)
        stream = torch.cuda.current_stream().cuda_stream
        plans[name].execute(tensors, workspace if size else None, stream=stream)
        assert_right(tensors)
