# pyright: basic
"""Engine peers: statistics of several devices made those of all, as one kernel of one block.

    write   this device's a and b of every channel to row `peer_rank` of every device's tensor
    raise   every device's flag by 1, once all that is written (release, of the system)
    wait    until the own flag counts all devices (acquire, of the system)
    combine the rows of the own tensor in the order of the devices, and store

The flag is element 2 * C of row 0, a float; all is zeroed by the caller before each execution.
Peers' tensors are passed by their addresses: memory of other devices works as that of this one
where the caller has enabled the access, and atomics reach it (NVLink).  The kernel waits for the
others' kernels, so that all devices have to run the graph at the same time.
Source: PTX ISA, "Memory Consistency Model".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.state import each
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk, inputs_of
from ...dialect import structure
from ...dialect.fusion import Fusion
from ...dialect.ops import PeerReduction
from ...errors import Status
from ...mlir import llvm
from ...target import Target
from ..engine import Engine, Knobs, Prediction, Reason
from ..surface import LAUNCH_SECONDS, pattern_reason

_THREADS = 256
_EXCHANGE_SECONDS = 4.0e-6  # stores to other devices' memory and their flags, one way
_CHANNEL_SECONDS = 2.0e-9  # of one device
_MOST_ELEMENTS = 1 << 31


@dataclass(frozen=True)
class PeersTiling:
    """The tiling that `dnn.tile` says.  threads: of the one block."""

    threads: int


@dataclass(frozen=True)
class PeersEngine(Engine):
    """See the file's docstring."""

    tiling = PeersTiling
    name: str = "peers"
    index: int = 10
    families: tuple[str, ...] = ("exchange",)
    # Kernels of one device wait for those of others, which are launched by other graphs.
    behavior_notes: tuple[str, ...] = ("RUNTIME_COMPILATION",)
    support: tuple[str, ...] = (
        "one peer_reduction alone: the exchange of batchnorm and batchnorm_backward with "
        "peer_stats; of 1 to 32 devices that access each other's memory",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        first = next((op for op in fusion.ops if isinstance(op, PeerReduction)), None)
        others = [op for op in fusion.ops if op is not first]
        if first is None or others:
            beside = f" beside {first.label}" if first else ""
            return (pattern_reason(f"{others[0].label}{beside}", "one peer_reduction, alone"),)
        elements = max(tensor.elements().bounds()[1] for tensor in first.peers)
        if elements >= _MOST_ELEMENTS:
            what = f"peers' tensors of up to {elements} elements"
            supported = f"fewer than {_MOST_ELEMENTS}"
            return (Reason(Status.NOT_SUPPORTED_SHAPE, "size", what, supported),)
        return ()

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        return [{}]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        (op,) = fusion.ops
        assert isinstance(op, PeerReduction)
        channels = op.a.shape[1].bounds()[1] if op.a.shape[1].constant is not None else 1024
        work = channels * len(op.peers) * _CHANNEL_SECONDS
        return Prediction(LAUNCH_SECONDS + _EXCHANGE_SECONDS + work, "exchange")

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> PeersTiling:
        return PeersTiling(_THREADS)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: PeersTiling, output: Output) -> None:
        kernel = output.kernel("", tile.threads)
        with kernel.body():
            _Emitter(kernel, region).emit()
        output.launch(kernel, (1, 1, 1))


@dataclass(eq=False)
class _Emitter:
    """The body of the kernel."""

    kernel: Kernel
    region: Region

    def __post_init__(self) -> None:
        (first, *_) = [op for op in self.region.generics() if "dnn.peers" in op.attributes]
        self.a, self.b, *self.peers = inputs_of(first)
        self.rank = structure.from_attribute(first.attributes["dnn.peers"])["rank"]
        dims = self.region.dims_of(self.a)
        self.axes, self.channels = len(dims), dims[1]

    def emit(self) -> None:
        self._each_channel(self._write)
        # Every thread's writes before the block's one release.
        _assembly("fence.acq_rel.sys;")
        ops.barrier()
        devices = len(self.peers)
        with ops.if_(ops.thread_id() < devices):
            self._raise()
        with ops.if_(ops.thread_id().eq(0)):
            self._wait(devices)
        # No thread reads the rows before the one that waits has seen all flags.
        ops.barrier()
        self._each_channel(self._combine)

    @cached_property
    def pointers(self) -> list[Any]:
        return [self.kernel.pointer(self.region.arguments[value]) for value in self.peers]

    def _walk(self) -> Walk:
        """Peers' tensors are written, and may be read, at any time."""
        leaves = self.region.leaves(self.kernel)
        shared = {v: GlobalTensor(self.kernel, self.region.arguments[v], False) for v in self.peers}
        return Walk(self.kernel, {**leaves, **shared}, self.region.symbols)

    def _each_channel(self, work: Any) -> None:
        count = self.kernel.size(self.channels)

        @each(ops.thread_id(), count, _THREADS)
        def _(channel: Any) -> None:
            work(channel)

    def _at(self, channel: Any) -> list[Index]:
        at = [Index.of(0)] * self.axes
        at[1] = Index(channel)
        return at

    # ---- the steps

    def _write(self, channel: Any) -> None:
        walk = self._walk()
        count = self.kernel.size(self.channels)
        start = self.kernel.size(self.channels * 4) * self.rank + channel
        for place, value in enumerate((self.a, self.b)):
            number = walk.value(value, self._at(channel), 1)
            for pointer in self.pointers:
                where = start + count * place
                ops.store(ops.gep(pointer, where, ops.f32_type()), number, 4)

    def _flag(self, pointer: Any) -> Any:
        place = ops.gep(pointer, self.kernel.size(self.channels * 2), ops.f32_type())
        return llvm.PtrToIntOp(ops.i64_type(), place).result

    def _raise(self) -> None:
        """A thread for each device."""
        chosen = self.pointers[0]
        for number, pointer in enumerate(self.pointers[1:], 1):
            is_here = ops.thread_id().eq(number)
            chosen = ops.select(is_here, pointer, chosen)
        text = f"red.release.sys.global.add.f32 [$0], {_literal(1.0)};"
        _assembly(text, self._flag(chosen))

    def _wait(self, devices: int) -> None:
        text = (
            "{ .reg .pred p; .reg .f32 v; again: ld.acquire.sys.global.f32 v, [$0]; "
            f"setp.lt.f32 p, v, {_literal(float(devices))}; @p bra again; fence.acq_rel.sys; }}"
        )
        _assembly(text, self._flag(self.pointers[self.rank]))

    def _combine(self, channel: Any) -> None:
        walk, at = self._walk(), self._at(channel)
        found = [(walk.value(value, at, 1), t) for value, t in self.region.targets(self.kernel)]
        for value, target in found:
            target.store(at, value)


def _assembly(text: str, *operands: Any) -> None:
    kinds = ",".join("l" for _ in operands)
    llvm.inline_asm(None, list(operands), text, kinds, has_side_effects=True)


def _literal(value: float) -> str:
    return f"0f{struct.pack('>f', value).hex().upper()}"


PEERS = PeersEngine()
