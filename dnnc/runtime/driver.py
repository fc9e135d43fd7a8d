# pyright: basic
"""The CUDA driver: the only module that calls it."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DnncError, Status
from ..plan.plan import TENSOR_MAP_TYPES, TensorMap

# CUDA driver API: a stream that is the default one, and what a stream says while it captures.
DEFAULT_STREAM = 0


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
            f"no CUDA driver: {error}",
            "an NVIDIA driver; without one, `dnnc run` with --device cpu or --device interpreter",
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
        """What expressions of a plan may name beside its symbols."""
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


def make_current(where: Device) -> None:
    """Makes the device's primary context current in this thread, if another or none is."""
    if int(_call("cuCtxGetCurrent")) != int(where.context):
        _call("cuCtxSetCurrent", where.context)


def load_module(code: bytes) -> Any:
    """Loads a cubin, or PTX that the driver then compiles."""
    return _call("cuModuleLoadData", code, status=Status.NOT_SUPPORTED_ARCH_MISMATCH)


def kernel(module: Any, name: str, dynamic_smem_bytes: int, clustered: bool = False) -> Any:
    """A kernel of a module, allowed as much dynamic shared memory as it asks for."""
    api = _api()
    function = _call("cuModuleGetFunction", module, name.encode())
    if dynamic_smem_bytes > 48 * 1024:
        kind = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _call("cuFuncSetAttribute", function, kind, dynamic_smem_bytes)
    if clustered:
        kind = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        _call("cuFuncSetAttribute", function, kind, 1)
    return function


def launch_config(
    grid: Sequence[int],
    block: Sequence[int],
    dynamic_smem_bytes: int,
    cluster: Sequence[int] = (1, 1, 1),
    cooperative: bool = False,
    programmatic: bool = False,
) -> Any:
    """A launch configuration; its stream is set before each launch."""
    api = _api()
    config = api.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = dynamic_smem_bytes
    attributes = []

    def attribute(kind: str) -> Any:
        made = api.CUlaunchAttribute()
        made.id = getattr(api.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{kind}")
        attributes.append(made)
        return made.value

    if tuple(cluster) != (1, 1, 1):
        value = attribute("CLUSTER_DIMENSION")
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster
    if cooperative:
        attribute("COOPERATIVE").cooperative = 1
    if programmatic:
        attribute("PROGRAMMATIC_STREAM_SERIALIZATION").programmaticStreamSerializationAllowed = 1
    if attributes:
        config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


def launcher() -> tuple[Any, Any, Any]:
    """(cuLaunchKernelEx, cuMemsetD8Async, CUDA_SUCCESS): for callers that loop over launches."""
    api = _api()
    return api.cuLaunchKernelEx, api.cuMemsetD8Async, api.CUresult.CUDA_SUCCESS


def launch_failed(call: str, result: Any) -> DnncError:
    return _failed(_api(), call, result, Status.EXECUTION_FAILED_CUDA_DRIVER)


def synchronize(stream: int = DEFAULT_STREAM) -> None:
    """Waits for a stream."""
    _call("cuStreamSynchronize", stream)


def allocate(bytes_: int) -> int:
    """Device memory, for `dnnc run` and tests; `free` gives it back."""
    status = Status.INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
    return int(_call("cuMemAlloc", max(1, bytes_), status=status))


def free(address: int) -> None:
    _call("cuMemFree", address)


def memory_device(address: int) -> int | None:
    """The device that an address belongs to; None for memory that CUDA does not know."""
    api = _api()
    kind = api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    result, ordinal = api.cuPointerGetAttribute(kind, address)
    return int(ordinal) if result == api.CUresult.CUDA_SUCCESS else None


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


def tensor_map(
    recipe: TensorMap, address: int, dims: Sequence[int], strides: Sequence[int]
) -> bytes:
    """The 128 bytes of a tensor map; dims, strides: the recipe's, evaluated."""
    import ctypes

    api = _api()

    def name(kind: str, value: str) -> Any:
        return getattr(getattr(api, f"CUtensorMap{kind}"), f"CU_TENSOR_MAP_{value}")

    u64 = [api.cuuint64_t(value) for value in dims], [api.cuuint64_t(value) for value in strides]
    u32 = [api.cuuint32_t(value) for value in recipe.element_strides]
    tail = (
        name("Interleave", f"INTERLEAVE_{recipe.interleave}"),
        name("Swizzle", f"SWIZZLE_{recipe.swizzle}"),
        name("L2promotion", f"L2_PROMOTION_{recipe.l2_promotion}"),
        name("FloatOOBfill", f"FLOAT_OOB_FILL_{recipe.oob_fill}"),
    )
    head = (name("DataType", f"DATA_TYPE_{TENSOR_MAP_TYPES[recipe.dtype]}"), len(dims), address)
    if recipe.mode == "tiled":
        box = [api.cuuint32_t(value) for value in recipe.box]
        made = _call("cuTensorMapEncodeTiled", *head, *u64, box, u32, *tail)
    else:
        made = _call(
            "cuTensorMapEncodeIm2col", *head, *u64, list(recipe.lower), list(recipe.upper),
            recipe.channels_per_pixel, recipe.pixels_per_column, u32, *tail,
        )  # fmt: skip
    return ctypes.string_at(made.getPtr(), 128)
