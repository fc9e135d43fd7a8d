# pyright: basic
"""The CUDA driver: the only module that calls it."""

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import DnncError, Status
from ..plan import bounds
from ..plan.plan import TENSOR_MAP_TYPES, Launch, TensorMap
from .streams import DEFAULT_STREAM


@functools.cache
def _api() -> Any:
    """The driver bindings, initialised; NOT_INITIALIZED where there is no driver or no device."""
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DnncError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
            "the package cuda-bindings is not installed",
            "pip install cuda-bindings",
        ) from error
    try:
        result = driver.cuInit(0)[0]
    except RuntimeError as error:
        raise DnncError(
            Status.NOT_INITIALIZED,
            f"no CUDA driver: {str(error).rstrip('.')}",
            "an NVIDIA driver; without one, a target by name to compile for (`--target sm_90a`),"
            " and `dnnc run` with --device cpu or --device interpreter",
            "cuInit",
        ) from error
    if result != driver.CUresult.CUDA_SUCCESS:
        raise _failed(driver, "cuInit", result, Status.NOT_INITIALIZED)
    return driver


def _failed(api: Any, call: str, result: Any, status: Status) -> DnncError:
    text = api.cuGetErrorString(result)[1]
    said = text.decode() if text else "unknown error"
    return DnncError(status, f"{call} failed: {result.name} ({said})", where=call)


def _call(name: str, *arguments: Any, status: Status = Status.EXECUTION_FAILED_CUDA_DRIVER) -> Any:
    """Calls the driver; gives what it returns beside its result code."""
    api = _api()
    result, *values = getattr(api, name)(*arguments)
    if result != api.CUresult.CUDA_SUCCESS:
        raise _failed(api, name, result, status)
    return values[0] if len(values) == 1 else tuple(values)


def is_available() -> bool:
    """Whether there is a driver and a device."""
    try:
        return device_count() > 0
    except DnncError:
        return False


def device_count() -> int:
    return _call("cuDeviceGetCount")


@dataclass(frozen=True)
class Device:
    """A device and its primary context.

    capability: (major, minor).  sm_count, max_dynamic_smem_bytes: limits that plans may use.
    """

    ordinal: int
    name: str
    capability: tuple[int, int]
    sm_count: int
    max_dynamic_smem_bytes: int
    context: Any

    @property
    def variables(self) -> dict[str, int]:
        """The variables that expressions of a plan may name beside its symbols."""
        return {
            "sm_count": self.sm_count,
            "max_dynamic_smem_bytes": self.max_dynamic_smem_bytes,
        }


_devices: dict[int, Device] = {}
_lock = threading.Lock()


def device(ordinal: int | None = None) -> Device:
    """A device, by default the one of the current context, else device 0."""
    if ordinal is None:
        ordinal = _current_ordinal()
    found = _devices.get(ordinal)
    if found is not None:
        return found
    with _lock:
        if ordinal not in _devices:
            _devices[ordinal] = _open(ordinal)
        return _devices[ordinal]


def _current_ordinal() -> int:
    context = _call("cuCtxGetCurrent")
    return int(_call("cuCtxGetDevice")) if int(context) else 0


def _open(ordinal: int) -> Device:
    api = _api()
    count = device_count()
    if not 0 <= ordinal < count:
        raise DnncError(
            Status.BAD_PARAM_OUT_OF_BOUND, f"device {ordinal}", f"0 to {count - 1}", "device"
        )
    handle = _call("cuDeviceGet", ordinal)

    def attribute(name: str) -> int:
        kind = getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return _call("cuDeviceGetAttribute", kind, handle)

    return Device(
        ordinal=ordinal,
        name=_call("cuDeviceGetName", 256, handle).split(b"\0")[0].decode(),
        capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        sm_count=attribute("MULTIPROCESSOR_COUNT"),
        max_dynamic_smem_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        context=_call("cuDevicePrimaryCtxRetain", handle),
    )


def is_current(where: Device) -> bool:
    """Whether the device's primary context is current in this thread."""
    return int(_call("cuCtxGetCurrent")) == int(where.context)


def make_current(where: Device) -> None:
    """Makes the device's primary context current in this thread, if another or none is."""
    if not is_current(where):
        _call("cuCtxSetCurrent", where.context)


def set_current(context: Any) -> None:
    """Makes a context current in this thread."""
    _call("cuCtxSetCurrent", context)


class entered:
    """Inside, a device's primary context is current, and what CUDA forbids while a stream is
    captured (loading code, for one) is allowed: nothing here waits for a stream.

    Afterwards the thread's context and its capture mode are as they were.
    """

    def __init__(self, where: Device):
        self._own = where.context

    def __enter__(self) -> None:
        self._before = _call("cuCtxGetCurrent")
        if int(self._before) != int(self._own):
            set_current(self._own)
        relaxed = _api().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._mode = _call("cuThreadExchangeStreamCaptureMode", relaxed)

    def __exit__(self, *error: object) -> None:
        _call("cuThreadExchangeStreamCaptureMode", self._mode)
        if int(self._before) != int(self._own):
            set_current(self._before)


def load_module(code: bytes) -> Any:
    """Loads a cubin, or PTX that the driver then compiles."""
    return _call("cuModuleLoadData", code, status=Status.NOT_SUPPORTED_ARCH_MISMATCH)


def kernel(module: Any, name: str) -> Any:
    """A kernel of a module."""
    return _call("cuModuleGetFunction", module, name.encode())


_MOST_PARAMETERS = 1 << 15  # bytes that all of a kernel's may have


def parameter_bytes(function: Any) -> list[int] | None:
    """Bytes of each of a kernel's parameters; None where the driver does not tell (before 12.4)."""
    api = _api()
    ask = getattr(api, "cuFuncGetParamInfo", None)
    found: list[int] = []
    # A driver that never says which is the last, as one that does nothing, does not tell.
    while ask is not None and len(found) <= _MOST_PARAMETERS:
        try:
            result, _, bytes_ = ask(function, len(found))
        except RuntimeError:  # the bindings have the function, the driver has not
            return None
        if result == api.CUresult.CUDA_ERROR_INVALID_VALUE:
            return found  # past the last
        if result != api.CUresult.CUDA_SUCCESS:
            return None
        found.append(bytes_)
    return None


def allow_dynamic_smem(function: Any, bytes_: int) -> None:
    """Lets launches of a kernel ask for as many bytes, and no more: without it, for 48 KiB."""
    kind = _api().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    _call("cuFuncSetAttribute", function, kind, bytes_)


def allow_large_clusters(function: Any) -> None:
    """Lets launches of a kernel have clusters of more than 8 blocks."""
    kind = _api().CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    _call("cuFuncSetAttribute", function, kind, 1)


def launch_config(grid: Sequence[int], dynamic_smem_bytes: int, launch: Launch) -> Any:
    """The configuration of a launch; its stream is set before it is used."""
    api = _api()
    config = api.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes = dynamic_smem_bytes
    kinds = _node_attributes(launch)
    if launch.programmatic:
        kinds.append("PROGRAMMATIC_STREAM_SERIALIZATION")
    if kinds:
        config.attrs = [_launch_attribute(kind, launch) for kind in kinds]
    config.numAttrs = len(kinds)
    return config


def _launch_attribute(kind: str, launch: Launch) -> Any:
    api = _api()
    made = api.CUlaunchAttribute()
    made.id = getattr(api.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{kind}")
    _set_attribute(made.value, kind, launch)
    return made


def _node_attributes(launch: Launch) -> list[str]:
    """Attributes that a launch and a node of a graph have alike."""
    kinds = ["CLUSTER_DIMENSION"] if launch.cluster != (1, 1, 1) else []
    return [*kinds, "COOPERATIVE"] if launch.cooperative else kinds


def _set_attribute(value: Any, kind: str, launch: Launch) -> None:
    if kind == "CLUSTER_DIMENSION":
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = launch.cluster
    elif kind == "COOPERATIVE":
        value.cooperative = 1
    else:
        value.programmaticStreamSerializationAllowed = 1


class Calls(NamedTuple):
    """Driver functions for callers that loop over launches.

    Each returns a tuple whose first item is its result, which is 0 where it succeeded.
    launch: cuLaunchKernelEx.  memset: cuMemsetD8Async.  current: cuCtxGetCurrent.
    """

    launch: Callable[..., Any]
    memset: Callable[..., Any]
    current: Callable[[], Any]


def calls() -> Calls:
    api = _api()
    return Calls(api.cuLaunchKernelEx, api.cuMemsetD8Async, api.cuCtxGetCurrent)


def call_failed(call: Callable[..., Any], result: Any) -> DnncError:
    """The error of one of `calls` that returned another result than 0."""
    return _failed(_api(), call.__name__, result, Status.EXECUTION_FAILED_CUDA_DRIVER)


def synchronize(stream: int = DEFAULT_STREAM) -> None:
    """Waits for a stream."""
    _call("cuStreamSynchronize", stream)


def allocate(bytes_: int) -> int:
    """Device memory, for `dnnc run` and tests; `free` gives it back."""
    status = Status.INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
    return int(_call("cuMemAlloc", max(1, bytes_), status=status))


def free(address: int) -> None:
    _call("cuMemFree", address)


def allocate_on(stream: int, bytes_: int) -> int:
    """Device memory that is there for what a stream does from now on."""
    return int(_call("cuMemAllocAsync", bytes_, stream))


def free_on(stream: int, address: int) -> None:
    """Gives memory of `allocate_on` back after what a stream does until now."""
    _call("cuMemFreeAsync", address, stream)


def copy_on(stream: int, target: int, source: int, bytes_: int) -> None:
    """Copies device memory in the order of a stream."""
    _call("cuMemcpyDtoDAsync", target, source, bytes_, stream)


def memory_device(address: int) -> int | None:
    """The device that an address belongs to; None for memory that CUDA does not know."""
    api = _api()
    kind = api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    ordinal = ctypes.c_int()
    failed = _pointer_attribute(api)(ctypes.byref(ordinal), int(kind), int(address))
    return None if failed else ordinal.value


def bytes_from(address: int) -> int | None:
    """How many bytes CUDA allocated from an address on; None for memory that it does not know."""
    api = _api()
    kinds = api.CUpointer_attribute
    found: list[int] = []
    for kind in (
        kinds.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        kinds.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ):
        value = ctypes.c_uint64()
        if _pointer_attribute(api)(ctypes.byref(value), int(kind), int(address)):
            return None
        found.append(value.value)
    start, count = found
    return start + count - address


@functools.cache
def _pointer_attribute(api: Any) -> Callable[..., int]:
    """The driver's cuPointerGetAttribute: versions of cuda-bindings read the ordinal from a field
    that they never write, and say 0 for all devices (its issue 2928)."""
    result, address, *_ = api.cuGetProcAddress(b"cuPointerGetAttribute", 4000, 0)
    if result != api.CUresult.CUDA_SUCCESS:
        status = Status.EXECUTION_FAILED_CUDA_DRIVER
        raise _failed(api, "cuGetProcAddress", result, status)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)
    return kind(int(address))


def upload(address: int, data: Any) -> None:
    """Copies a contiguous host array to the device."""
    _call("cuMemcpyHtoD", address, data.ctypes.data, data.nbytes)


def download(data: Any, address: int) -> None:
    """Copies device memory to a contiguous host array."""
    _call("cuMemcpyDtoH", data.ctypes.data, address, data.nbytes)


def driver_version() -> str:
    """13.0, as the driver says."""
    version = _call("cuDriverGetVersion")
    return f"{version // 1000}.{version % 1000 // 10}"


# ---- tensor maps

Encoder = Callable[[int, Sequence[int], Sequence[int]], bytes]


def tensor_map_encoder(recipe: TensorMap) -> Encoder:
    """A function of (address, dims, strides) that makes the 128 bytes of a tensor map.

    dims, strides: the recipe's, evaluated.
    """
    api = _api()

    def name(kind: str, value: str) -> Any:
        return getattr(getattr(api, f"CUtensorMap{kind}"), f"CU_TENSOR_MAP_{value}")

    u64, u32 = api.cuuint64_t, api.cuuint32_t
    dtype = name("DataType", f"DATA_TYPE_{TENSOR_MAP_TYPES[recipe.dtype]}")
    steps = list(map(u32, recipe.element_strides))
    tail = (
        steps,
        name("Interleave", f"INTERLEAVE_{recipe.interleave}"),
        name("Swizzle", f"SWIZZLE_{recipe.swizzle}"),
        name("L2promotion", f"L2_PROMOTION_{recipe.l2_promotion}"),
        name("FloatOOBfill", f"FLOAT_OOB_FILL_{recipe.oob_fill}"),
    )
    if recipe.mode == "tiled":
        call, box = "cuTensorMapEncodeTiled", (list(map(u32, recipe.box)),)
    else:
        call = "cuTensorMapEncodeIm2col"
        corners = (list(recipe.lower), list(recipe.upper))
        box = (*corners, recipe.channels_per_pixel, recipe.pixels_per_column)

    def encode(address: int, dims: Sequence[int], strides: Sequence[int]) -> bytes:
        try:
            sizes = list(map(u64, dims)), list(map(u64, strides))
        except OverflowError:
            raise bounds.no_map(dims, strides) from None
        made = _call(call, dtype, len(dims), address, *sizes, *box, *tail)
        return ctypes.string_at(made.getPtr(), 128)

    return encode


def tensor_map_in(memory: int) -> Any:
    """The tensor map whose 128 bytes lie at a host address, a multiple of 128."""
    return _api().CUtensorMap(_ptr=memory)


def map_mover() -> Callable[..., Any]:
    """cuTensorMapReplaceAddress, of a `tensor_map_in` and an address, in the manner of `calls`."""
    return _api().cuTensorMapReplaceAddress


# ---- CUDA graphs


def add_kernel_node(graph: Any, after: Sequence[Any], params: Any, launch: Launch) -> Any:
    """Adds a kernel to a CUgraph; params: of `kernel_node_params`."""
    node = _call("cuGraphAddKernelNode", graph, list(after), len(after), params)
    api = _api()
    for kind in _node_attributes(launch):
        value = api.CUkernelNodeAttrValue()
        _set_attribute(value, kind, launch)
        name = getattr(api.CUkernelNodeAttrID, f"CU_LAUNCH_ATTRIBUTE_{kind}")
        _call("cuGraphKernelNodeSetAttribute", node, name, value)
    return node


def kernel_node_params(
    function: Any, grid: Sequence[int], dynamic_smem_bytes: int, launch: Launch, arguments: int
) -> Any:
    """Parameters of a kernel node; arguments: address of the pointers to them, which are copied."""
    params = _api().CUDA_KERNEL_NODE_PARAMS()
    params.func = function
    params.gridDimX, params.gridDimY, params.gridDimZ = grid
    params.blockDimX, params.blockDimY, params.blockDimZ = launch.block
    params.sharedMemBytes = dynamic_smem_bytes
    params.kernelParams = arguments
    return params


def add_memset_node(graph: Any, after: Sequence[Any], params: Any, where: Device) -> Any:
    """Adds a memset to a CUgraph; params: of `memset_node_params`."""
    return _call("cuGraphAddMemsetNode", graph, list(after), len(after), params, where.context)


def memset_node_params(address: int, value: int, bytes_: int) -> Any:
    params = _api().CUDA_MEMSET_NODE_PARAMS()
    params.dst, params.value = address, value
    params.elementSize, params.width, params.height = 1, bytes_, 1
    return params


def set_kernel_node(node: Any, params: Any, executable: Any = None) -> None:
    """Changes a kernel node, or what an instantiated graph does in its place."""
    if executable is None:
        _call("cuGraphKernelNodeSetParams", node, params)
    else:
        _call("cuGraphExecKernelNodeSetParams", executable, node, params)


def set_memset_node(node: Any, params: Any, where: Device, executable: Any = None) -> None:
    """Changes a memset node, or what an instantiated graph does in its place."""
    if executable is None:
        _call("cuGraphMemsetNodeSetParams", node, params)
    else:
        _call("cuGraphExecMemsetNodeSetParams", executable, node, params, where.context)


def graph_nodes(graph: Any) -> list[Any]:
    """The nodes of a CUgraph."""
    _, count = _call("cuGraphGetNodes", graph)
    return list(_call("cuGraphGetNodes", graph, count)[0])[:count] if count else []


def node_handle(node: Any) -> Any:
    """A node of a graph, which may be given as its integer handle."""
    return _api().CUgraphNode(node) if isinstance(node, int) else node


def kernel_of(node: Any) -> Any:
    """(handle of its function, block) of a kernel node; None for a node of another kind."""
    kind = _call("cuGraphNodeGetType", node)
    if kind != _api().CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
        return None
    found = _call("cuGraphKernelNodeGetParams", node)
    # A number: what `func` gives is a view of the record, and ends with it.
    return int(found.func), (found.blockDimX, found.blockDimY, found.blockDimZ)


def is_memset(node: Any) -> bool:
    """Whether a node of a graph is a memset."""
    return _call("cuGraphNodeGetType", node) == _api().CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET


def nodes_before(node: Any) -> list[Any]:
    """The nodes that a node of a graph depends on."""
    *_, count = _call("cuGraphNodeGetDependencies", node)
    return list(_call("cuGraphNodeGetDependencies", node, count)[0])[:count] if count else []
