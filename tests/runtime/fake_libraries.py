"""Stand-ins for array libraries: as much of each as the runtime asks of it to allocate arrays.

Memory is never used twice, and each array says on which stream of the library it was allocated.
"""

import contextlib
import itertools
from types import SimpleNamespace

from .fake_driver import Array, FakeTorchTensor, Place

CURRENT, OTHER = 0x7700, 0x8800


class _Memory:
    def __init__(self):
        self._ends = itertools.count(1 << 40, 1 << 32)
        self.on = CURRENT  # the stream that is current now

    def take(self):
        return next(self._ends)

    @contextlib.contextmanager
    def use(self, stream):
        before, self.on = self.on, stream
        yield
        self.on = before


class _Stream:
    def __init__(self, memory, handle, device=0):
        self._memory, self.cuda_stream, self.ptr, self.device = memory, handle, handle, device

    def __enter__(self):
        self._inside = self._memory.use(self.cuda_stream)
        self._inside.__enter__()

    def __exit__(self, *error):
        self._inside.__exit__(*error)


class FakeTorch:
    """The module torch.  made: tensors that were allocated."""

    float16, bfloat16, uint8 = "torch.float16", "torch.bfloat16", "torch.uint8"

    def __init__(self):
        self.memory, self.made, self.has_gradients = _Memory(), [], True
        self.cuda = SimpleNamespace(
            current_stream=lambda device: _Stream(self.memory, self.memory.on, device),
            default_stream=lambda device: _Stream(self.memory, 0, device),
            ExternalStream=lambda handle, device: _Stream(self.memory, handle, device),
            stream=lambda stream: stream,
        )

    def is_grad_enabled(self):
        return self.has_gradients

    def device(self, kind, index):
        return Place(kind, index)

    def empty_strided(self, dims, strides, dtype, device):
        made = FakeTorchTensor(self.memory.take(), dims, strides, dtype, device.type, device.index)
        made.allocated_on = self.memory.on
        self.made.append(made)
        return made


class FakeCuPy:
    """The module cupy."""

    def __init__(self):
        self.memory, self.made = _Memory(), []
        self.device = None
        self.cuda = SimpleNamespace(
            Device=self._on_device,
            get_current_stream=lambda: _Stream(self.memory, self.memory.on),
            Stream=SimpleNamespace(null=_Stream(self.memory, 0)),
            ExternalStream=lambda handle: _Stream(self.memory, handle),
            alloc=lambda count: SimpleNamespace(bytes=count),
        )

    @contextlib.contextmanager
    def _on_device(self, ordinal):
        before, self.device = self.device, ordinal
        yield
        self.device = before

    def ndarray(self, dims, dtype, memptr, strides):
        made = CuPyArray(self.memory.take(), dims, dtype.str, tuple(strides))
        made.allocated_on, made.on_device, made.bytes = self.memory.on, self.device, memptr.bytes
        self.made.append(made)
        return made


class CuPyArray(Array):
    """An array of cupy."""


CuPyArray.__module__ = "cupy"


class FakeJax:
    """The module jax.  waits: how often an array was waited for."""

    def __init__(self):
        self.memory, self.waits = _Memory(), 0
        self.numpy = SimpleNamespace(empty=self._empty)

    def local_devices(self):
        return [SimpleNamespace(local_hardware_id=i) for i in range(2)]

    def _empty(self, dims, dtype, device):
        return self.array(dims, dtype.str)

    def array(self, dims, typestr):
        made = JaxArray(self.memory.take(), dims, typestr)
        made.library = self
        return made


class JaxArray(Array):
    def block_until_ready(self):
        self.library.waits += 1
        return self


JaxArray.__module__ = "jaxlib._jax"
