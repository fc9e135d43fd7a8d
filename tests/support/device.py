"""Runs a plan on the CUDA device as `interpreter.plans.run_plan` does in the interpreter.

Buffers lie between guard zones; outputs and gaps hold 0xA5 before, so that what no kernel wrote
and what a kernel wrote beside its tensor is seen.
"""

import numpy as np

from dnnc import dtypes, runtime
from dnnc.errors import DnncError
from dnnc.interpreter.plans import element_places, scattered
from dnnc.runtime import driver

GUARD_BYTES = 4096
POISON = 0xA5


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
    """Guarded device memory, freed at the end of a `with` block."""

    def __init__(self):
        self._buffers = []

    def __enter__(self):
        driver.make_current(driver.device())
        return self

    def __exit__(self, *_):
        for base, _ in self._buffers:
            driver.free(base)

    def holding(self, data):
        """The address of a copy of bytes; guard zones lie around it."""
        whole = np.full(data.size + 2 * GUARD_BYTES, POISON, np.uint8)
        whole[GUARD_BYTES : GUARD_BYTES + data.size] = data
        base = driver.allocate(whole.size)
        driver.upload(base, whole)
        self._buffers.append((base, data.size))
        return base + GUARD_BYTES

    def download(self, address, size):
        data = np.empty(size, np.uint8)
        driver.download(data, address)
        return data

    def verify_guards(self):
        for base, size in self._buffers:
            for zone in (base, base + GUARD_BYTES + size):
                if (self.download(zone, GUARD_BYTES) != POISON).any():
                    raise AssertionError("a kernel wrote beside a buffer")


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
