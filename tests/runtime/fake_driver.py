"""A stand-in for the CUDA driver: it records what would be launched.

Its types are those of cuda-bindings; of its functions there are those that the runtime calls.  They
refuse what the driver refuses: no context, a function of another context, a launch that asks for
more shared memory than its kernel was allowed.
"""

import ctypes
import hashlib
import itertools
import threading
from collections import Counter
from types import SimpleNamespace
from typing import NamedTuple

from cuda.bindings import driver as real

from dnnc.runtime import driver

OK = real.CUresult.CUDA_SUCCESS
NO_CONTEXT = real.CUresult.CUDA_ERROR_INVALID_CONTEXT
WRONG_HANDLE = real.CUresult.CUDA_ERROR_INVALID_HANDLE
WRONG_VALUE = real.CUresult.CUDA_ERROR_INVALID_VALUE
_IDS = real.CUlaunchAttributeID
_RANGE = (
    real.CUpointer_attribute.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    real.CUpointer_attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
)

# cuPointerGetAttribute, as C calls it.
POINTER_ATTRIBUTE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)

# Sizes of the arguments of the hand-made plan's kernels, as their code would tell.
ARGUMENT_BYTES = {"main": (128, 128, 8, 8, 8, 4, 8, 4, 3), "small": (8,)}


class Launch(NamedTuple):
    """A kernel that was launched, or that a node launches."""

    kernel: str
    device: int
    grid: tuple
    block: tuple
    smem: int
    stream: int | None
    cluster: tuple
    cooperative: bool
    programmatic: bool
    args: tuple
    addresses: tuple


class Memset(NamedTuple):
    address: int
    value: int
    bytes: int
    stream: int | None


class FakeDriver:
    """Installed in place of cuda.bindings.driver by `install`.

    launches, memsets, modules, tensor_maps, allocated, copies, freed: what there was.
    calls: how often each function was called.  ranges: address -> bytes of its allocation from
    there on.  memory_of: address -> device, None for the host; others are of device `home`.
    foreign: contexts that are not the primary ones -> their device.
    """

    def __init__(self, capability=(9, 0), ordinal=0, devices=2, argument_bytes=ARGUMENT_BYTES):
        self.launches, self.memsets, self.modules, self.tensor_maps = [], [], [], []
        self.allocated, self.copies, self.freed = [], [], []
        self.calls = Counter()
        self.memory_of, self.ranges = {}, {}
        self.capability, self.home, self.devices = capability, ordinal, devices
        self.argument_bytes = argument_bytes
        self.max_dynamic_smem_bytes = 232448
        self.static_smem = {}  # bytes of a kernel's static shared memory
        self.parameters = {}  # bytes of a kernel's parameters, where it is to tell them
        self.foreign = {}
        self.before = {}  # name of a function -> what is called ahead of it
        self._functions = {}  # handle -> (name, device, module)
        self._allowed = {}  # handle -> bytes of dynamic shared memory
        self._handles = itertools.count(0x100)
        self._thread = threading.local()
        self.graphs = {}  # handle -> nodes in the order they were added
        self._pointer_attribute = POINTER_ATTRIBUTE(self._memory_of)

    def install(self, monkeypatch):
        monkeypatch.setattr(driver, "_api", lambda: self)
        monkeypatch.setattr(driver, "_devices", {})
        self.use(self.home)

    def __getattr__(self, name):
        """The types and enumerators of the binding; functions are counted."""
        if not name.startswith("cu") or name.startswith("cuuint"):
            return getattr(real, name)
        call = object.__getattribute__(self, f"_{name}")

        def counted(*arguments):
            self.calls[name] += 1
            if name in self.before:
                self.before[name]()
            return call(*arguments)

        counted.__name__ = name
        setattr(self, name, counted)
        return counted

    # ---- devices and contexts

    def use(self, device):
        """Makes a device's context current in this thread; None: none."""
        self._thread.context = 0 if device is None else 0x1000 + device

    @property
    def current(self):
        return getattr(self._thread, "context", 0)

    def _device_of(self, context):
        return self.foreign[context] if context in self.foreign else context - 0x1000

    def _cuDeviceGetCount(self):
        return OK, self.devices

    def _cuDriverGetVersion(self):
        return OK, 13000

    def _cuDeviceGet(self, ordinal):
        return OK, ordinal

    def _cuDeviceGetName(self, count, device):
        return OK, b"fake\0"

    def _cuDeviceGetAttribute(self, kind, device):
        values = {
            "COMPUTE_CAPABILITY_MAJOR": self.capability[0],
            "COMPUTE_CAPABILITY_MINOR": self.capability[1],
            "MULTIPROCESSOR_COUNT": 132,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": self.max_dynamic_smem_bytes,
        }
        return OK, values[kind.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def _cuDevicePrimaryCtxRetain(self, device):
        return OK, real.CUcontext(0x1000 + device)

    def _cuCtxGetCurrent(self):
        return OK, real.CUcontext(self.current)

    def _cuCtxSetCurrent(self, context):
        self._thread.context = int(context)
        return (OK,)

    def _cuCtxGetDevice(self):
        return OK, real.CUdevice(self._device_of(self.current))

    def _cuThreadExchangeStreamCaptureMode(self, mode):
        was = getattr(self._thread, "mode", real.CUstreamCaptureMode(0))
        self._thread.mode = mode
        return OK, was

    @property
    def capture_mode(self):
        return getattr(self._thread, "mode", real.CUstreamCaptureMode(0))

    def _cuGetErrorString(self, result):
        return OK, b"as the fake says"

    def _cuGetProcAddress(self, name, version, flags):
        assert name == b"cuPointerGetAttribute"
        return OK, ctypes.cast(self._pointer_attribute, ctypes.c_void_p).value, 0

    def _memory_of(self, value, kind, address):
        if real.CUpointer_attribute(kind) in _RANGE:
            if address not in self.ranges:
                return int(WRONG_VALUE)
            is_start = real.CUpointer_attribute(kind) == _RANGE[0]
            told = address - 256 if is_start else self.ranges[address] + 256
            ctypes.cast(value, ctypes.POINTER(ctypes.c_uint64))[0] = told
            return int(OK)
        found = self.memory_of.get(address, self.home)
        if found is None:
            return int(WRONG_VALUE)
        ctypes.cast(value, ctypes.POINTER(ctypes.c_int))[0] = found
        return int(OK)

    # ---- code

    def _cuModuleLoadData(self, code):
        if not self.current:
            return NO_CONTEXT, None
        self.modules.append(code)
        return OK, (len(self.modules) - 1, self._device_of(self.current))

    def _cuModuleGetFunction(self, module, name):
        handle = next(self._handles)
        self._functions[handle] = (name.decode(), module[1], module[0])
        self._allowed[handle] = 48 * 1024 - self.static_smem.get(name.decode(), 0)
        return OK, real.CUfunction(handle)

    def _cuFuncGetParamInfo(self, function, index):
        """Sizes of a kernel's parameters; a kernel without any is as on a driver before 12.4."""
        sizes = self.parameters.get(self._functions[int(function)][0])
        if sizes is None:
            return real.CUresult.CUDA_ERROR_NOT_SUPPORTED, None, None
        return (OK, 0, sizes[index]) if index < len(sizes) else (WRONG_VALUE, None, None)

    def _cuFuncSetAttribute(self, function, kind, value):
        if kind.name.endswith("MAX_DYNAMIC_SHARED_SIZE_BYTES"):
            name = self._functions[int(function)][0]
            if value + self.static_smem.get(name, 0) > self.max_dynamic_smem_bytes:
                return (WRONG_VALUE,)
            self._allowed[int(function)] = value
        return (OK,)

    def _cuTensorMapEncodeTiled(self, *arguments):
        return self._encode("tiled", *arguments)

    def _cuTensorMapEncodeIm2col(self, *arguments):
        return self._encode("im2col", *arguments)

    def _encode(self, mode, dtype, rank, address, dims, strides, *others):
        recipe = (mode, address, list(map(int, dims)), list(map(int, strides)))
        self.tensor_maps.append(recipe)
        made = real.CUtensorMap()
        # Its address first, which can be replaced; then what tells its other parts apart.
        rest = hashlib.sha256(repr((mode, *recipe[2:], str(dtype), rank)).encode()).digest()
        ctypes.memmove(made.getPtr(), address.to_bytes(8, "little") + rest, 40)
        return OK, made

    def _cuTensorMapReplaceAddress(self, map_, address):
        if not isinstance(address, int):
            raise TypeError("as the binding of it")
        if map_.getPtr() % 128 or address % 16:
            return (WRONG_VALUE,)
        ctypes.memmove(map_.getPtr(), address.to_bytes(8, "little"), 8)
        return (OK,)

    # ---- launches

    def _cuLaunchKernelEx(self, config, function, parameters, extra):
        attributes = {a.id: a.value for a in config.attrs[: config.numAttrs]}
        result, made = self._launch(config, function, parameters, int(config.hStream), attributes)
        if result == OK:
            self.launches.append(made)
        return (result,)

    def _launch(self, config, function, parameters, stream, attributes):
        name, device, _ = self._functions[int(function)]
        if not self.current:
            return NO_CONTEXT, None
        if device != self._device_of(self.current) or self.current in self.foreign:
            return WRONG_HANDLE, None
        if config.sharedMemBytes > self._allowed[int(function)]:
            return WRONG_VALUE, None
        sizes = self.argument_bytes.get(name, ())
        kind = ctypes.POINTER(ctypes.c_void_p * max(1, len(sizes)))
        addresses = tuple(ctypes.cast(parameters, kind).contents[: len(sizes)])
        dims = attributes.get(_IDS.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        cluster = dims.clusterDim if dims else SimpleNamespace(x=1, y=1, z=1)
        programmatic = _IDS.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION in attributes
        return OK, Launch(
            name, device, (config.gridDimX, config.gridDimY, config.gridDimZ),
            (config.blockDimX, config.blockDimY, config.blockDimZ), config.sharedMemBytes,
            stream, (cluster.x, cluster.y, cluster.z),
            _IDS.CU_LAUNCH_ATTRIBUTE_COOPERATIVE in attributes, programmatic,
            tuple(ctypes.string_at(p, n) for p, n in zip(addresses, sizes, strict=True)), addresses,
        )  # fmt: skip

    def _cuMemsetD8Async(self, address, value, count, stream):
        if not self.current:
            return (NO_CONTEXT,)
        self.memsets.append(Memset(address, value, count, stream))
        return (OK,)

    # ---- memory in the order of a stream

    def _cuMemAllocAsync(self, count, stream):
        self.allocated.append((count, stream))
        return OK, 0x7_0000_0000 + 0x100_0000 * len(self.allocated)

    def _cuMemcpyDtoDAsync(self, target, source, count, stream):
        self.copies.append((target, source, count, stream))
        return (OK,)

    def _cuMemFreeAsync(self, address, stream):
        self.freed.append((address, stream))
        return (OK,)

    # ---- graphs

    def graph(self):
        """A new empty graph."""
        handle = next(self._handles)
        self.graphs[handle] = []
        return handle

    def nodes(self, graph):
        """The work of the graph's nodes, in the order they were added."""
        return [node.work for node in self.graphs[int(graph)]]

    def _node(self, handle):
        return next(n for nodes in self.graphs.values() for n in nodes if n.handle == int(handle))

    def _add(self, graph, after, count, kind, work):
        assert len(after) == count
        assert all(type(node) is real.CUgraphNode for node in after)
        handle = next(self._handles)
        made = SimpleNamespace(handle=handle, kind=kind, work=work, after=list(map(int, after)))
        self.graphs[int(graph)].append(made)
        return OK, real.CUgraphNode(handle)

    def _kernel(self, params):
        result, made = self._launch(params, params.func, params.kernelParams, None, {})
        assert result == OK
        return made

    def _cuGraphAddKernelNode(self, graph, after, count, params):
        made = self._add(graph, after, count, "KERNEL", self._kernel(params))
        node = self._node(made[1])
        node.func = int(params.func)
        node.block = (params.blockDimX, params.blockDimY, params.blockDimZ)
        return made

    def _cuGraphCreate(self, flags):
        return OK, real.CUgraph(self.graph())

    def _cuGraphInstantiate(self, graph, flags):
        """Instantiates the graph as a dictionary: handle of a node -> its work."""
        return OK, {node.handle: node.work for node in self.graphs[int(graph)]}

    def _cuGraphLaunch(self, executable, stream):
        for work in executable.values():
            done = self.launches if isinstance(work, Launch) else self.memsets
            done.append(work._replace(stream=stream))
        return (OK,)

    def _cuGraphKernelNodeSetAttribute(self, handle, kind, value):
        assert type(value) is real.CUkernelNodeAttrValue
        node = self._node(handle)
        kind = _IDS(real.CUkernelNodeAttrID(kind))
        if kind == _IDS.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            dims = value.clusterDim
            node.work = node.work._replace(cluster=(dims.x, dims.y, dims.z))
        else:
            assert kind == _IDS.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, "no attribute of a node"
            node.work = node.work._replace(cooperative=bool(value.cooperative))
        return (OK,)

    def _cuGraphAddMemsetNode(self, graph, after, count, params, context):
        assert int(context) == self.current
        return self._add(graph, after, count, "MEMSET", self._memset(params))

    @staticmethod
    def _memset(params):
        assert (params.elementSize, params.height) == (1, 1)
        return Memset(int(params.dst), params.value, params.width, None)

    def _cuGraphKernelNodeSetParams(self, handle, params):
        node = self._node(handle)
        node.work, node.func = self._changed(node, params), int(params.func)
        return (OK,)

    def _cuGraphExecKernelNodeSetParams(self, executable, handle, params):
        executable[int(handle)] = self._changed(self._node(handle), params)
        return (OK,)

    def _changed(self, node, params):
        """The work of a node with other parameters; its attributes stay."""
        made = self._kernel(params)
        return made._replace(cluster=node.work.cluster, cooperative=node.work.cooperative)

    def _cuGraphMemsetNodeSetParams(self, handle, params):
        self._node(handle).work = self._memset(params)
        return (OK,)

    def _cuGraphExecMemsetNodeSetParams(self, executable, handle, params, context):
        executable[int(handle)] = self._memset(params)
        return (OK,)

    def _cuGraphGetNodes(self, graph, count=0):
        handles = [real.CUgraphNode(node.handle) for node in self.graphs[int(graph)]]
        return OK, handles[::-1][:count], len(handles)  # in no order that means anything

    def _cuGraphNodeGetDependencies(self, handle, count=0):
        after = [real.CUgraphNode(other) for other in self._node(handle).after]
        return OK, after[:count], len(after)

    def _cuGraphNodeGetType(self, handle):
        kinds = real.CUgraphNodeType
        return OK, getattr(kinds, f"CU_GRAPH_NODE_TYPE_{self._node(handle).kind}")

    def _cuGraphKernelNodeGetParams(self, handle):
        node = self._node(handle)
        found = real.CUDA_KERNEL_NODE_PARAMS()
        found.func = real.CUfunction(node.func)
        found.blockDimX, found.blockDimY, found.blockDimZ = node.block
        return OK, found


class Array:
    """A device array by its `__cuda_array_interface__`."""

    def __init__(self, address, shape, typestr, strides=None):
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": tuple(shape),
            "typestr": typestr,
            "strides": strides,
            "version": 3,
        }


class FakeTorchTensor:
    """A tensor with the members of torch's that the runtime reads."""

    def __init__(self, address, shape, strides, dtype, device="cuda", index=0):
        self._address, self.shape, self._strides = address, shape, strides
        self.dtype, self.is_cuda = dtype, device == "cuda"
        self.device = Place(device, index if device == "cuda" else None)

    def data_ptr(self):
        return self._address

    def stride(self):
        return self._strides

    def get_device(self):
        return self.device.index if self.is_cuda else -1


class Place(NamedTuple):
    type: str
    index: int | None


FakeTorchTensor.__module__ = "torch"
