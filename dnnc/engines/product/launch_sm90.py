# pyright: basic
"""Builds and launches the kernel of a product on Hopper's main loop, and what goes with it."""

from __future__ import annotations

from collections.abc import Callable

from ...codegen.hopper.cluster import Cluster, resident_clusters
from ...codegen.hopper.stream_sum import StreamSum
from ...codegen.kernel import Kernel
from ...codegen.output import Output
from ...codegen.region import Region
from ...errors import DnncError, Status
from ...expr import device_dim, maximum, minimum
from .kernel_sm90 import Emitter
from .matrices_sm90 import Matrices
from .tile_sm90 import Tiling


def emit_product(
    region: Region,
    tiling: Tiling,
    output: Output,
    matrices_of: Callable[[Kernel, Region, Tiling], Matrices],
) -> None:
    """matrices_of: what the kernel multiplies; its operands take the kernel's first arguments."""
    if tiling.shared.bytes > (most := output.target.smem_block_bytes):  # what `legal` has to see
        what = f"{tiling.shared.bytes} bytes of shared memory"
        raise DnncError(Status.INTERNAL_ERROR, what, f"at most {most} on {output.target}")
    kernel = output.kernel("", tiling.threads)
    kernel.min_blocks = 1  # without it the assembler ignores `setmaxnreg`
    blocks = Cluster(*tiling.cluster, tiling.splits).blocks
    kernel.cluster = blocks
    with kernel.body():
        emitter = Emitter(kernel, region, tiling, matrices_of(kernel, region, tiling))
        emitter.emit()
    clusters = resident_clusters(device_dim("sm_count"), blocks)
    if (beside := emitter.matrices.beside) > 1:
        clusters = maximum(clusters // beside, 1) * beside
    work = emitter.tiles.most
    if tiling.streams:
        work = work * emitter.matrices.steps
        # Slots in the workspace are as many as the target has SMs.
        clusters = minimum(clusters, output.target.sm_count)
        _make_slots(tiling, output)
    if tiling.is_dynamic:
        counter = output.workspace("tiles", 4)
        output.memset(counter, 4)
    grid = (minimum(work, clusters) * blocks, 1, 1)
    output.launch(kernel, grid, cooperative=tiling.streams)
    emitter.epilogue.exits.emit_second(output)


def _make_slots(tiling: Tiling, output: Output) -> None:
    """Buffers of the sums that blocks leave to each other, and flags, which are lowered."""
    blocks = output.target.sm_count
    output.workspace("slots", blocks * StreamSum.bytes(tiling.consumers, tiling.sums))
    bytes_ = blocks * StreamSum.flag_bytes(tiling.consumers)
    output.memset(output.workspace("flags", bytes_), bytes_)
