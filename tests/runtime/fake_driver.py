"""A stand-in for the CUDA driver: it records what would be launched."""

from types import SimpleNamespace

from dnnc.runtime import driver


class FakeDriver:
    """Installed over dnnc.runtime.driver's functions by the fixture `fake`."""

    def __init__(self, capability=(9, 0), ordinal=0):
        self.launches = []
        self.memsets = []
        self.modules = []
        self.tensor_maps = []
        self.memory_of = {}  # address -> device, None for the host; others are the device's own
        self.place = driver.Device(ordinal, "fake", capability, 132, 232448, context=1)

    def install(self, monkeypatch):
        replacements = {
            "is_available": lambda: True,
            "device": lambda ordinal=None: self.place,
            "make_current": lambda place: None,
            "load_module": self._load,
            "kernel": lambda module, name, smem, clustered=False: (module, name, smem),
            "launch_config": self._config,
            "launcher": lambda: (self._launch, self._memset, 0),
            "tensor_map": self._tensor_map,
            "memory_device": lambda address: self.memory_of.get(address, self.place.ordinal),
        }
        for name, function in replacements.items():
            monkeypatch.setattr(driver, name, function)

    def _load(self, code):
        self.modules.append(code)
        return len(self.modules) - 1

    def _config(self, grid, block, smem, cluster=(1, 1, 1), cooperative=False, programmatic=False):
        return SimpleNamespace(
            grid=tuple(grid), block=tuple(block), smem=smem, cluster=tuple(cluster),
            cooperative=cooperative, programmatic=programmatic, hStream=None,
        )  # fmt: skip

    def _launch(self, config, function, parameters, extra):
        self.launches.append((config, function, parameters))
        return (0,)

    def _memset(self, address, value, count, stream):
        self.memsets.append((address, value, count, stream))
        return (0,)

    def _tensor_map(self, recipe, address, dims, strides):
        self.tensor_maps.append((recipe.mode, address, list(dims), list(strides)))
        return bytes(128)


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
    """What the runtime looks at of a torch tensor."""

    def __init__(self, address, shape, strides, dtype, device="cuda", index=0):
        self._address, self.shape, self._strides = address, shape, strides
        self.dtype = dtype
        self.device = SimpleNamespace(type=device, index=index if device == "cuda" else None)

    def data_ptr(self):
        return self._address

    def stride(self):
        return self._strides


FakeTorchTensor.__module__ = "torch"
