"""The tests of engine peers on the device; and devices that exchange statistics as they run: two
plans on two streams of one device, and on two devices that access each other's memory."""

import contextlib
import time

import numpy as np
import pytest

from dnnc import dtypes, runtime
from dnnc.compiler import compile_graph
from dnnc.dialect.reference import reference
from dnnc.runtime import driver
from tests.engines.elementwise.test_peers import *  # noqa: F403
from tests.engines.elementwise.test_peers import BUILDERS, IMAGES
from tests.support import device, machine
from tests.support.checked import random_inputs

DEVICES = 2
SECONDS = 20.0  # after which the devices are taken to wait for each other forever


class Side:
    """One of the devices that run a batch norm: its graph, plan, stream and buffers."""

    def __init__(self, rank, ordinal, build, dims, io, fused):
        self.rank, self.place = rank, driver.device(ordinal)
        self.graph = build(DEVICES, rank, dims, io, fused=fused).graph.finalize()
        self.plan = runtime.load(compile_graph(self.graph, device.target()))
        self.taken, self.pack, self.bound = [], {}, None
        self.enter()
        flags = 1  # CU_STREAM_NON_BLOCKING
        self.stream = driver._call("cuStreamCreate", flags)
        dims = [n.constant for n in self.graph.tensor("peer0").shape]
        self.zeros = np.zeros(dims, np.float32).reshape(-1).view(np.uint8)
        self.own = self.holding(self.zeros)

    def enter(self):
        driver.make_current(self.place)

    def holding(self, data):
        self.taken.append(driver.allocate(data.size))
        driver.upload(self.taken[-1], data)
        return self.taken[-1]

    def allow(self, other):
        """This device's kernels access the other's memory."""
        if other.place.ordinal == self.place.ordinal:
            return
        api = driver._api()
        self.enter()
        (result,) = api.cuCtxEnablePeerAccess(other.place.context, 0)
        already = api.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
        assert result in (api.CUresult.CUDA_SUCCESS, already)

    def bind(self, inputs, buffers):
        """inputs: by name, arrays of the logical dims.  buffers: of each rank's peers."""
        self.enter()
        self.outputs = {}
        for record in self.plan.plan.tensors:
            if record.is_peer:
                self.pack[record.uid] = buffers[int(record.name.removeprefix("peer"))]
                continue
            dims, strides = ([int(n) for n in texts] for texts in (record.dims, record.strides))
            places = device.element_places(dims, strides)
            dtype = dtypes.of(record.dtype)
            size = dtype.storage_bytes(int(places.max()) + 1)
            if record.role == "input":
                data = device.stored_bytes(inputs[record.name], dtype, dims, places, size)
            else:
                data = np.full(size, device.POISON, np.uint8)
                self.outputs[record.uid] = (dtype, places, size)
            self.pack[record.uid] = self.holding(data)
        needed = self.plan.workspace_size(device=self.place.ordinal)
        workspace = self.holding(np.zeros(needed, np.uint8)) if needed else None
        self.bound = self.plan.bind(
            self.pack, workspace, stream=int(self.stream), device=self.place.ordinal
        )

    def is_done(self):
        self.enter()
        api = driver._api()
        (result,) = api.cuStreamQuery(self.stream)
        assert result in (api.CUresult.CUDA_SUCCESS, api.CUresult.CUDA_ERROR_NOT_READY)
        return result == api.CUresult.CUDA_SUCCESS

    def found(self):
        self.enter()
        made = []
        for tensor in self.graph.outputs:
            dtype, places, size = self.outputs[tensor.uid]
            data = np.empty(size, np.uint8)
            driver.download(data, self.pack[tensor.uid])
            made.append(device.gathered(data, places, dtype))
        return made

    def close(self):
        self.enter()
        driver._call("cuStreamDestroy", self.stream)
        for address in self.taken:
            driver.free(address)


@contextlib.contextmanager
def sides(ordinals, *graph):
    made = [Side(rank, ordinal, *graph) for rank, ordinal in enumerate(ordinals)]
    try:
        for one, other in ((made[0], made[1]), (made[1], made[0])):
            one.allow(other)
        yield made
    finally:
        for side in made:
            side.close()
        driver.make_current(driver.device(0))


def run_together(made):
    """Zeroed buffers first, on all devices; then all launches; then all results."""
    for side in made:
        side.enter()
        driver.upload(side.own, side.zeros)
        driver.synchronize()
    for side in made:
        side.enter()
        side.bound()
    until = time.monotonic() + SECONDS
    while not all(side.is_done() for side in made):
        assert time.monotonic() < until, "the devices wait for each other"
    return [side.found() for side in made]


def check_together(ordinals, name, fused, io, dims):
    """Channels' results are the same bits everywhere; all are those of one device with all
    images."""
    build = BUILDERS[name]
    whole = build(1, 0, (dims[0] * DEVICES, *dims[1:]), io, fused=fused).graph.finalize()
    inputs = random_inputs(whole, {})
    wanted = reference(whole, inputs, exact_outputs=True)
    given = [{}, {}]
    for tensor in whole.inputs:
        value = inputs[tensor.uid]
        parts = np.split(value, DEVICES) if tensor.name in IMAGES else [value] * DEVICES
        for pack, part in zip(given, parts, strict=True):
            pack[tensor.name] = part
    with sides(ordinals, build, dims, io, fused) as made:
        buffers = [side.own for side in made]
        for side, pack in zip(made, given, strict=True):
            side.bind(pack, buffers)  # before any runs: loading code may wait for what does
        results = [run_together(made) for _ in range(3)]
    tolerance = 2e-5 if io is dtypes.f32 else 4e-3
    for again in results[1:]:
        for rank in range(DEVICES):
            for one, other in zip(results[0][rank], again[rank], strict=True):
                assert one.tobytes() == other.tobytes(), "runs differ"
    for place, tensor in enumerate(whole.outputs):
        got = [results[0][rank][place] for rank in range(DEVICES)]
        if tensor.shape[0].constant != 1:
            got = [np.concatenate(got)]
        assert len({one.tobytes() for one in got}) == 1, "devices differ"
        found = np.asarray(got[0], np.float64)
        off = np.abs(found - wanted[tensor.uid]).max() / np.abs(wanted[tensor.uid]).max()
        assert off <= tolerance


SIZES = [(3, 8, 2, 3), (4, 300, 7, 5), (8, 64, 28, 28)]


@pytest.mark.parametrize("dims", SIZES, ids=str)
@pytest.mark.parametrize("io", [dtypes.f32, dtypes.f16], ids=str)
@pytest.mark.parametrize("fused", [False, True], ids=["alone", "fused"])
@pytest.mark.parametrize("name", BUILDERS)
def test_two_streams_of_one_device(name, fused, io, dims):
    check_together([0, 0], name, fused, io, dims)


@pytest.mark.parametrize("dims", SIZES, ids=str)
@pytest.mark.parametrize("io", [dtypes.f32, dtypes.f16], ids=str)
@pytest.mark.parametrize("fused", [False, True], ids=["alone", "fused"])
@pytest.mark.parametrize("name", BUILDERS)
def test_two_devices(name, fused, io, dims):
    if driver.device_count() < 2:
        pytest.skip("one device")
    api = driver._api()
    for one, other in ((0, 1), (1, 0)):
        if not driver._call("cuDeviceCanAccessPeer", api.CUdevice(one), api.CUdevice(other)):
            pytest.skip("devices that don't access each other's memory")
    check_together([0, 1], name, fused, io, dims)


def test_the_machine_is_a_device():
    assert machine.current() is not machine.INTERPRETER
