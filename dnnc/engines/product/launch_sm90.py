# pyright: basic
"""Builds and launches the kernel of a product on Hopper's main loop, and what goes with it."""

from __future__ import annotations

from collections.abc import Callable

from ...codegen.hopper.cluster import Cluster, resident_clusters
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
    if tiling.shared.bytes > (
        most := output.target.limits.smem_block_bytes
    ):  # what `legal` has to see
        what = f"{tiling.shared.bytes} bytes of shared memory"
        raise DnncError(Status.INTERNAL_ERROR, what, f"at most {most} on {output.target}")
    kernel = output.kernel("", tiling.block.threads)
    kernel.min_blocks = 1  # without it the assembler ignores `setmaxnreg`
    blocks = Cluster(*tiling.grid.cluster, tiling.grid.splits).blocks
    kernel.cluster = blocks
    with kernel.body():
        emitter = Emitter(kernel, region, tiling, matrices_of(kernel, region, tiling))
        emitter.emit()
    clusters = resident_clusters(device_dim("sm_count"), blocks)
    if (beside := emitter.matrices.beside) > 1:
        clusters = maximum(clusters // beside, 1) * beside
    if not emitter.matrices.zeros:  # those are stored by blocks without tiles, too
        clusters = minimum(emitter.tiles.most, clusters)
    output.launch(kernel, (clusters * blocks, 1, 1))
    emitter.epilogue.exits.emit_second(output)
