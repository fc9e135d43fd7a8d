"""Plans as C, compiled by the machine's C compiler and run on the device: as a shared library, and
the program of docs/c.md."""

import ctypes
import functools
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.emit import Interface, write_c
from dnnc.options import Options
from dnnc.runtime import driver
from tests.attention_plans import DECODE, PREFILL, decode, prefill
from tests.emit import c_compiler
from tests.emit.built import C_TYPES
from tests.emit.example import write_files
from tests.emit.test_calls import grouped, new_graph, product, scaled, twice
from tests.engines.elementwise.test_pointwise import M
from tests.engines.rows.test_grid import CONFIG, batchnorm
from tests.support import device, machine
from tests.support.checked import check, random_inputs


@functools.cache
def libcuda():
    """The path of the driver's library that this process has loaded."""
    driver.device()
    found = re.findall(r"\s(/\S*libcuda\.so\S*)", Path("/proc/self/maps").read_text())
    assert found, "the driver is loaded, and has no file"
    return found[0]


class InC:
    """A plan in C, with what `device.run_plan` calls of an ExecutionPlan."""

    def __init__(self, plan):
        self.plan, self.interface = plan, Interface(plan, "made")
        folder = Path(tempfile.mkdtemp(prefix="dnnc-c-"))
        _, source = write_c(folder / "made", plan)
        library = folder / "made.so"
        c_compiler.c("-O2", "-shared", "-fPIC", source, libcuda(), "-o", library)
        self.library = ctypes.CDLL(str(library))
        self.library.made_error_string.restype = ctypes.c_char_p
        self.library.made_run.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p,
        ]  # fmt: skip
        fields = [(a.name, C_TYPES[a.type]) for a in self.interface.arguments]
        self.Args = type("Args", (ctypes.Structure,), {"_fields_": fields})
        self.handle = ctypes.c_void_p()
        driver.make_current(driver.device())
        self.check(self.library.made_load(ctypes.byref(self.handle)))

    def __del__(self):
        if self.handle:
            self.check(self.library.made_unload(self.handle))

    def check(self, error):
        assert error == 0, self.library.made_error_string(error).decode()

    def workspace_size(self, sizes):
        found = ctypes.c_size_t()
        values = [ctypes.c_int64(sizes[a.symbol.name]) for a in self.interface.sizes]
        self.check(self.library.made_workspace_size(self.handle, *values, ctypes.byref(found)))
        return found.value

    def bind(self, pack, workspace, *, sizes, stream=0):
        args = self.Args()
        for argument in self.interface.arguments:
            if argument.symbol is not None:
                value = sizes[argument.symbol.name]
            else:
                value = pack.get(argument.tensor.uid, argument.tensor.value)
            setattr(args, argument.name, value)

        def launch():
            self.check(
                self.library.made_run(self.handle, ctypes.byref(args), workspace or 0, stream)
            )

        return launch


@pytest.fixture(autouse=True)
def _in_c(_on_device):
    before = machine.current()
    run = functools.partial(device.run_plan, load=InC)
    machine.use(machine.Machine(run, before.target, before.seed))
    yield
    machine.use(before)


@pytest.mark.feature
@pytest.mark.parametrize("m", [1, 37, 4096])
def test_strides_and_numbers(m):
    check(scaled(), {"M": m})


def test_numbers_of_small_types():
    """A number by value in f16 is given as float, rounded and passed as two bytes."""
    g = new_graph("small")
    alpha = g.tensor([1, 1], data_type="f16", is_pass_by_value=True, name="alpha")
    g.mul(g.tensor([M, 72], name="x"), alpha).set_output()
    check(g, {"M": 19})


@pytest.mark.parametrize("m", [1, 100, 4096])
def test_variants(m):
    check(product(), {"M": m}, allowance=2.0**-18)


def test_ptx_of_an_earlier_architecture():
    if device.target() == "sm_80":
        pytest.skip("code of sm_80 is this device's own")
    check(product(), {"M": 100}, target="sm_80", allowance=2.0**-18)


@pytest.mark.sm90
@pytest.mark.feature
@pytest.mark.parametrize("m", [1, 100, 4096])
def test_tensor_maps(m):
    g = product()
    check(g, {"M": m}, target="sm_90a", engine="matmul_sm90", allowance=2.0**-18)


@pytest.mark.sm90
def test_tensor_maps_of_groups():
    g = grouped()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    first = next(t for t in graph.inputs if t.type is dtypes.i32)
    inputs[first.uid] = np.array([0, 20, 60, 61], np.int32).reshape(-1, 1, 1)
    check(g, inputs=inputs, target="sm_90a", engine="matmul_sm90", allowance=2.0**-18)


def test_several_launches_and_a_workspace():
    check(twice(), {"M": 130}, slack=4.0, allowance=2.0**-16)


@pytest.mark.sm90
def test_a_cooperative_kernel():
    check(
        batchnorm(8, 64, 7, 7), target="sm_90a", engine="grid", knobs=CONFIG, slack=4.0,
        allowance=1e-6,
    )  # fmt: skip


@pytest.mark.sm90
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 131, 257), (2, 1024, 1024)], ids=str)
def test_attention_by_tensor_maps(sizes):
    check(
        prefill(), dict(zip(("B", "Sq", "Skv"), sizes, strict=True)), target="sm_90a",
        engine="sdpa_fwd_sm90", knobs=PREFILL, slack=4.0, allowance=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("batch", [1, 64])
def test_attention_shared_among_blocks(batch):
    check(
        decode(), {"B": batch}, engine="sdpa_sm80", knobs=DECODE, slack=4.0, allowance=1e-5
    )  # fmt: skip


def test_rows():
    g = new_graph("softmax")
    g.softmax(g.tensor([4, M, 4096], name="x"), axis=-1).set_output()
    check(g, {"M": 33})


def test_capture():
    """A captured call runs when the graph does, and not before."""
    g = new_graph("captured", "f32")
    g.relu(g.tensor([M, 8], name="x")).set_output().set_name("y")
    plan = compile_graph(g.graph.finalize(), device.target(), Options())
    api = driver._api()
    with device.Memory() as memory:
        x = np.arange(-20, 20, dtype=np.float32)
        poison = np.full(x.nbytes, device.POISON, np.uint8)
        pack = {"x": memory.holding(x.view(np.uint8)), "y": memory.holding(poison)}
        pack = {plan.tensor(name).uid: address for name, address in pack.items()}
        y = pack[plan.tensor("y").uid]
        stream = driver._call("cuStreamCreate", 1)
        launch = InC(plan).bind(pack, None, sizes={"M": 5}, stream=int(stream))
        mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        driver._call("cuStreamBeginCapture", stream, mode)
        launch()
        captured = driver._call("cuStreamEndCapture", stream)
        driver.synchronize(int(stream))
        assert (memory.download(y, x.nbytes) == device.POISON).all()
        driver._call("cuGraphLaunch", driver._call("cuGraphInstantiate", captured, 0), stream)
        driver.synchronize(int(stream))
        np.testing.assert_array_equal(memory.download(y, x.nbytes).view(np.float32), x.clip(0))


def test_the_program_of_the_page(tmp_path):
    write_files(tmp_path)
    program = tmp_path / "main"
    c_compiler.c(tmp_path / "main.c", tmp_path / "ffn.c", libcuda(), "-o", program)
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "y[0] = 0x4a80\n", "")


def test_no_code_for_this_device(tmp_path):
    """A plan for another architecture alone: an error, and its text."""
    other = "sm_100a" if device.target() != "sm_100" else "sm_90a"
    g = dnnc.pygraph("other", io_data_type="f32")
    g.relu(g.tensor([8])).set_output()
    plan = compile_graph(g.graph.finalize(), other, Options())
    with pytest.raises(AssertionError, match=f"no code for this device; there is code for {other}"):
        InC(plan)
