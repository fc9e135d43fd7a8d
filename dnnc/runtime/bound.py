# pyright: basic
"""BoundPlan: the launches of a plan with every argument laid out."""

from __future__ import annotations

from typing import Any

from . import driver
from .laid_out import KernelStep, MemsetStep, Steps
from .streams import handle_of


class BoundPlan:
    """Launches of a plan with every argument laid out.

    Calling it launches and does nothing else: it allocates nothing, waits for nothing, and may be
    called from a stream that a CUDA graph is captured from.  The calling thread's current context
    is what it was afterwards.  A call writes nothing of it, so threads may call it at the same
    time; what their kernels do to one set of buffers is for the caller's streams to order.

    stream: the handle of what it launches on.  calls: (the driver's function, arguments) of each
    step, in order.
    """

    def __init__(self, place: driver.Device, steps: Steps, stream: Any, keep: Any = None):
        """stream: as `handle_of` takes it.  keep: buffers to keep alive."""
        self._keep = keep
        self._steps = list(steps)
        self._configs = [
            driver.launch_config(step.sized.grid, step.sized.smem, step.sized.launch)
            for step in steps
            if isinstance(step, KernelStep)
        ]
        self._launch, self._memset, self._current = driver.calls()
        self._context = place.context
        self.set_stream(stream)

    def set_stream(self, stream: Any) -> None:
        """Makes later calls launch on another stream; not while another thread calls it.

        stream: a `torch.cuda.Stream`, an object with `__cuda_stream__`, a stream of CuPy or
        cuda-bindings, an integer handle, or None: the legacy default stream.
        """
        self.stream = handle_of(stream)
        self._kept_stream = stream  # objects of some libraries destroy their stream when they end
        for config in self._configs:
            config.hStream = self.stream
        configs = iter(self._configs)
        self.calls: list[tuple[Any, tuple[Any, ...]]] = [
            (self._launch, (next(configs), step.sized.function, step.arguments.address, 0))
            if isinstance(step, KernelStep)
            else self._memset_call(step)
            for step in self._steps
        ]

    def _memset_call(self, step: MemsetStep) -> tuple[Any, tuple[Any, ...]]:
        return self._memset, (step.address, step.value, step.bytes, self.stream)

    def __call__(self, context: Any = None) -> None:
        """context: the thread's current one, where the caller has just asked for it."""
        if context is None:
            result, context = self._current()
            if result:
                raise driver.call_failed(self._current, result)
        if context != self._context:
            self._call_elsewhere(context)
            return
        for call, arguments in self.calls:
            (result,) = call(*arguments)
            if result:
                raise driver.call_failed(call, result)

    def _call_elsewhere(self, context: Any) -> None:
        """Launches while the device's own context is current, and goes back to the thread's."""
        driver.set_current(self._context)
        try:
            self(self._context)
        finally:
            driver.set_current(context)
