"""The driver as the runtime calls it, writing down the lines of fake_driver.c."""

import ctypes
import importlib

from dnnc.runtime import driver

CONTEXT = 0x1000


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)
def memory_of_device_0(ordinal, kind, address):
    ctypes.cast(ordinal, ctypes.POINTER(ctypes.c_int))[0] = 0
    return 0


class Recorder:
    """Stands for the module cuda.bindings.driver: its types, and functions of its own."""

    def __init__(self, capability=(9, 0), sm_count=132, smem=232448):
        self.bindings = importlib.import_module("cuda.bindings.driver")
        self.lines = []
        self.maps = []
        self.sizes = {}
        self.modules = 0
        kinds = self.bindings.CUdevice_attribute
        self.attributes = {
            kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: capability[0],
            kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: capability[1],
            kinds.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: sm_count,
            kinds.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: smem,
        }

    def install(self, monkeypatch):
        monkeypatch.setattr(driver, "_api", lambda: self)
        monkeypatch.setattr(driver, "_devices", {})

    def __getattr__(self, name):
        assert name in ("CUtensorMap",) or not name.startswith("cu") or name.startswith("cuuint")
        return getattr(self.bindings, name)

    @property
    def _done(self):
        return self.bindings.CUresult.CUDA_SUCCESS

    # ---- devices and code

    def cuDeviceGetCount(self):
        return self._done, 1

    def cuCtxGetCurrent(self):
        return self._done, CONTEXT

    def cuThreadExchangeStreamCaptureMode(self, mode):
        return self._done, mode

    def cuFuncGetParamInfo(self, function, index):
        return self.bindings.CUresult.CUDA_ERROR_NOT_SUPPORTED, None, None

    def cuCtxGetDevice(self):
        return self._done, 0

    def cuDeviceGet(self, ordinal):
        return self._done, ordinal

    def cuDeviceGetName(self, length, device):
        return self._done, b"recorded\0"

    def cuDeviceGetAttribute(self, kind, device):
        return self._done, self.attributes[kind]

    def cuDevicePrimaryCtxRetain(self, device):
        return self._done, CONTEXT

    def cuGetProcAddress(self, name, version, flags):
        return self._done, ctypes.cast(memory_of_device_0, ctypes.c_void_p).value, 0

    def cuModuleLoadData(self, code):
        self.modules += 1
        return self._done, self.modules

    def cuModuleGetFunction(self, module, name):
        whole = f"{module - 1}:{name.decode()}"
        return self._done, whole if whole in self.sizes else name.decode()

    def cuFuncSetAttribute(self, function, kind, value):
        return (self._done,)

    # ---- what is written down

    def cuMemsetD8Async(self, address, value, count, stream):
        self.lines.append(f"memset {address} {value} {count} {stream}")
        return (self._done,)

    def cuLaunchKernelEx(self, config, function, parameters, extra):
        kinds = self.bindings.CUlaunchAttributeID
        assert len(config.attrs) == config.numAttrs
        values = {attribute.id: attribute.value for attribute in config.attrs}
        cluster = values.get(kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        cluster = cluster and cluster.clusterDim
        cooperative = values.get(kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        early = values.get(kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        numbers = [
            *(config.gridDimX, config.gridDimY, config.gridDimZ),
            *(config.blockDimX, config.blockDimY, config.blockDimZ),
            *((cluster.x, cluster.y, cluster.z) if cluster else (1, 1, 1)),
            config.sharedMemBytes,
            cooperative.cooperative if cooperative else 0,
            early.programmaticStreamSerializationAllowed if early else 0,
            int(config.hStream),
        ]
        sizes = self.sizes[function]
        pointers = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
        texts = [self._argument(pointers[i], size) for i, size in enumerate(sizes)]
        self.lines.append(" ".join(["launch", function, *map(str, numbers), *texts]))
        return (self._done,)

    def _argument(self, address, size):
        data = ctypes.string_at(address, size)
        if size == 128:
            return f"[{self.maps[int.from_bytes(data[:8], 'little')]}]"
        return data.hex()

    def cuTensorMapEncodeTiled(self, type_, rank, address, dims, strides, box, steps, *tail):
        parts = ["tiled", int(type_), rank, address, *dims, *strides, *box, *steps, *tail]
        return self._map(parts)

    def cuTensorMapEncodeIm2col(
        self, type_, rank, address, dims, strides, lower, upper, channels, pixels, steps, *tail
    ):
        parts = ["im2col", int(type_), rank, address, *dims, *strides, *lower, *upper]
        return self._map([*parts, channels, pixels, *steps, *tail])

    def _map(self, parts):
        self.maps.append(
            " ".join(part if isinstance(part, str) else str(int(part)) for part in parts)
        )
        return self._done, _Map(len(self.maps) - 1)


class _Map:
    def __init__(self, number):
        self.bytes = ctypes.create_string_buffer(number.to_bytes(8, "little"), 128)

    def getPtr(self):
        return ctypes.addressof(self.bytes)
