"""A stand-in for the CUDA driver that runs kernels: its memory and launches are the interpreter's.

Its architecture is later than all that plans have cubins for, so that they are loaded as PTX.
"""

import contextlib
import ctypes
from types import SimpleNamespace

from dnnc.interpreter import Memory, launch, parse
from dnnc.interpreter.program import program_of
from dnnc.runtime import driver

NAME = "an interpreted device"


class InterpretedDriver:
    """Installed over dnnc.runtime.driver's functions; launches: how many there were."""

    def __init__(self):
        self.memory = Memory()
        self.launches = 0
        self.place = driver.Device(0, NAME, (13, 0), 132, 232448, context=1)

    def install(self, monkeypatch):
        replacements = {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "device": lambda ordinal=None: self.place,
            "driver_version": lambda: "13.0",
            "make_current": lambda place: None,
            "entered": lambda place: contextlib.nullcontext(),
            "load_module": lambda code: parse(code.rstrip(b"\0").decode()),
            "kernel": lambda module, name: (module, name),
            "parameter_bytes": lambda function: None,
            "allow_dynamic_smem": lambda function, bytes_: None,
            "allow_large_clusters": lambda function: None,
            "launch_config": self._config,
            "calls": lambda: driver.Calls(self._launch, self._memset, lambda: (0, 1)),
            "synchronize": lambda stream=0: None,
            "allocate": self.memory.allocate,
            "free": lambda address: None,
            "memory_device": lambda address: 0,
            "upload": self.memory.upload,
            "download": self._download,
        }
        for name, function in replacements.items():
            monkeypatch.setattr(driver, name, function)

    def _config(self, grid, smem, launch):
        return SimpleNamespace(grid=tuple(grid), block=tuple(launch.block), smem=smem)

    def _memset(self, address, value, count, stream):
        raise NotImplementedError("no plan of the tests has a memset")

    def _launch(self, config, function, parameters, extra):
        module, name = function
        sizes = program_of(module, name).params
        pointers = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p * len(sizes))).contents
        launch(
            module,
            name,
            grid=config.grid,
            block=config.block,
            params=[ctypes.string_at(p, n) for p, n in zip(pointers, sizes, strict=True)],
            memory=self.memory,
            dynamic_smem_bytes=config.smem,
        )
        self.launches += 1
        return (0,)

    def _download(self, array, address):
        data = self.memory.download(address, array.nbytes)
        array.reshape(-1).view("uint8")[:] = data
