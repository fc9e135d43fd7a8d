"""Runs a plan on the CUDA device as `interpreter.plans.run_plan` does in the interpreter.

Buffers lie between guard zones; outputs and gaps hold 0xA5 before, so that what no kernel wrote
and what a kernel wrote beside its tensor is seen.  With DNNC_TEST_PLACE=first each buffer begins
where its mapped memory begins, with `last` it ends there, but for what fills 256 bytes: then a
read beside it is seen too, as an illegal address.
"""

import os

import numpy as np

from dnnc import dtypes, runtime
from dnnc.errors import DnncError
from dnnc.interpreter.plans import element_places, scattered
from dnnc.runtime import driver

GUARD_BYTES = 4096
POISON = 0xA5
PLACE = os.environ.get("DNNC_TEST_PLACE", "guarded")
_ALIGNMENT = 256  # of addresses, as cuMemAlloc gives them


def has_device():
    try:
        return driver.device_count() > 0
    except DnncError:
        return False


def target():
    """The target whose code the device and later ones run: that of sm_90a has to be named."""
    major, minor = driver.device().capability
    return f"sm_{major}{minor}"


class Memory:
    """Device memory, by `PLACE`, freed at the end of a `with` block."""

    def __init__(self):
        self._buffers = []

    def __enter__(self):
        driver.make_current(driver.device())
        self._blocks = _Mapped if PLACE in ("first", "last") else _Guarded
        return self

    def __exit__(self, *_):
        for block, _, _ in self._buffers:
            block.free()

    def holding(self, data):
        """The address of a copy of bytes, in a block that holds poison around it."""
        block = self._blocks(data.size)
        whole = np.full(block.size, POISON, np.uint8)
        whole[block.offset : block.offset + data.size] = data
        driver.upload(block.base, whole)
        self._buffers.append((block, block.offset, data.size))
        return block.base + block.offset

    def download(self, address, size):
        data = np.empty(size, np.uint8)
        driver.download(data, address)
        return data

    def verify_guards(self):
        for block, offset, size in self._buffers:
            end = offset + size
            before = max(0, offset - GUARD_BYTES)
            for first, last in ((before, offset), (end, min(end + GUARD_BYTES, block.size))):
                if first == last:
                    continue
                zone = self.download(block.base + first, last - first)
                if (zone != POISON).any():
                    raise AssertionError("a kernel wrote beside a buffer")


class _Guarded:
    """Memory with a guard zone on both sides."""

    def __init__(self, size):
        self.offset, self.size = GUARD_BYTES, size + 2 * GUARD_BYTES
        self.base = driver.allocate(self.size)

    def free(self):
        driver.free(self.base)


class _Mapped:
    """Memory that is mapped alone: on both sides lie addresses that nothing is mapped at."""

    def __init__(self, size):
        api = _cuda()
        at = api.CUmemAllocationProp()
        at.type = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        at.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        at.location.id = _checked(api.cuCtxGetDevice())
        least = api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self._granule = _checked(api.cuMemGetAllocationGranularity(at, least))
        self.size = -(-max(size, 1) // self._granule) * self._granule
        self._reserved = _checked(
            api.cuMemAddressReserve(self.size + 2 * self._granule, self._granule, 0, 0)
        )
        self.base = int(self._reserved) + self._granule
        self._handle = _checked(api.cuMemCreate(self.size, at, 0))
        _checked(api.cuMemMap(self.base, self.size, 0, self._handle, 0))
        access = api.CUmemAccessDesc()
        access.location = at.location
        access.flags = api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        _checked(api.cuMemSetAccess(self.base, self.size, [access], 1))
        self.offset = 0
        if PLACE == "last":
            self.offset = self.size - -(-size // _ALIGNMENT) * _ALIGNMENT

    def free(self):
        api = _cuda()
        driver.synchronize()
        _checked(api.cuMemUnmap(self.base, self.size))
        _checked(api.cuMemRelease(self._handle))
        _checked(api.cuMemAddressFree(self._reserved, self.size + 2 * self._granule))


def _cuda():
    from cuda.bindings import driver as api

    return api


def _checked(answer):
    """The value that a call of the driver gives beside its result code."""
    code, *values = answer
    assert int(code) == 0, str(code)
    return values[0] if values else None


def stored_bytes(value, dtype, dims, places, size):
    array = np.asarray(value)
    array = array.astype(bool) if dtype.kind == "b" else array.astype(dtype.numpy)
    array = np.broadcast_to(array, dims)
    return scattered(array, places, dtype, size) if array.size else np.zeros(0, np.uint8)


def gathered(data, places, dtype):
    if dtype.kind == "b":
        return (data[places >> 3] >> (places & 7) & 1).astype(bool)
    size = dtype.bits // 8
    flat = data[: data.size // size * size].reshape(-1, size)[places.ravel()]
    return np.ascontiguousarray(flat).reshape(-1).view(dtype.numpy).reshape(places.shape)


def verify_gaps(data, places, dtype, name):
    """Only a tensor's own elements were written."""
    size = dtype.bits // 8
    if dtype.kind == "b":  # eight lie in a byte
        size, places = 1, places >> 3
    rows = data[: data.size // size * size].reshape(-1, size)
    gaps = np.ones(len(rows), bool)
    gaps[places.ravel()] = False
    assert (rows[gaps] == POISON).all(), f"{name}: a kernel wrote between the elements"


def _record(plan, key):
    """The record that is bound for a key; a prior's is its output's."""
    return plan.tensor(key) or next(t for t in plan.tensors if t.prior == key)


def run_plan(plan, inputs, *, sizes=None, seed=0, repeats=2, load=runtime.load, partial=()):
    """uid -> stored array, of peers' tensors too; run `repeats` times, which must give the same
    bytes.  load: makes of a plan what has the runtime's `workspace_size` and `bind`."""
    executable = load(plan)
    given = {_record(plan, key if isinstance(key, int | str) else key.uid).uid: value
             for key, value in inputs.items()}  # fmt: skip
    sizes = _sizes(plan, given, sizes or {})
    with Memory() as memory:
        pack, outputs = {}, {}
        for record in plan.tensors:
            dtype = dtypes.of(record.dtype)
            value = given.get(record.uid)
            if record.is_by_value:
                if value is not None:
                    pack[record.uid] = np.asarray(value).reshape(()).item()
                continue
            dims, strides = (
                [plan.expression(text).evaluate(sizes) for text in texts]
                for texts in (record.dims, record.strides)
            )
            places = element_places(dims, strides)
            size = dtype.storage_bytes(int(places.max(initial=-1)) + 1)
            if record.role == "input" or record.prior is not None:
                data = stored_bytes(value, dtype, dims, places, size)
            else:
                data = np.full(size, POISON, np.uint8)
            if record.role == "output" or record.is_peer:
                outputs[record.uid] = (record, places, data)
            pack[record.uid] = memory.holding(data)
        needed = executable.workspace_size(sizes)
        workspace = memory.holding(np.full(needed, POISON, np.uint8)) if needed else None
        bound = executable.bind(pack, workspace, sizes=sizes)
        results = []
        for _ in range(repeats):
            for uid, (_, _, data) in outputs.items():
                driver.upload(pack[uid], data)
            bound()
            driver.synchronize()
            results.append({uid: memory.download(pack[uid], entry[2].size)
                            for uid, entry in outputs.items()})  # fmt: skip
        memory.verify_guards()
        fusions = [fusion for program in plan.programs for fusion in program.fusions]
        may_differ = any("NONDETERMINISTIC" in fusion.notes for fusion in fusions)
        found = {}
        for uid, (record, places, _) in outputs.items():
            dtype = dtypes.of(record.dtype)
            is_same = all((r[uid] == results[0][uid]).all() for r in results)
            assert is_same or may_differ, "runs differ"
            verify_gaps(results[0][uid], places, dtype, record.name)
            found[uid] = gathered(results[0][uid], places, dtype)
        return found


def _sizes(plan, given, sizes):
    """Sizes of the plan's symbols; tests may name more than a graph of theirs has."""
    found = {name: size for name, size in sizes.items() if name in plan.dims}
    for record in plan.tensors:
        shape = np.shape(given.get(record.uid, ()))
        if len(shape) == len(record.dims):
            for text, extent in zip(record.dims, shape, strict=True):
                if text in plan.dims:
                    found.setdefault(text, extent)
    return found
