"""A launch's shape, and the special registers that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .failure import failure
from .ptxtypes import Array

WARP = 32
Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Geometry:
    """grid: CTAs (x, y, z).  block: threads of a CTA.  cluster: CTAs of a cluster."""

    grid: Dim3
    block: Dim3
    cluster: Dim3 = (1, 1, 1)

    def __post_init__(self) -> None:
        sizes = (*self.grid, *self.block, *self.cluster)
        if min(sizes) < 1 or any(g % c for g, c in zip(self.grid, self.cluster, strict=True)):
            raise failure(f"{self}: sizes are at least 1 and the grid is made of whole clusters")
        if self.threads > 1024:
            raise failure(f"{self}: a CTA has at most 1024 threads")

    @property
    def ctas(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Warps of a CTA; the last may be partly empty."""
        return -(-self.threads // WARP)

    def coordinates(self, cta: int) -> Dim3:
        """Block index (x, y, z) of a linear CTA number."""
        x, y, z = split(np.array(cta), self.grid)
        return int(x), int(y), int(z)

    def clusters_first(self) -> Array:
        """Linear CTA numbers [clusters, CTAs of a cluster]."""
        numbers = np.arange(self.ctas).reshape(self.grid[::-1])
        (gx, gy, gz), (cx, cy, cz) = self.grid, self.cluster
        tiled = numbers.reshape(gz // cz, cz, gy // cy, cy, gx // cx, cx)
        return tiled.transpose(0, 2, 4, 1, 3, 5).reshape(-1, cx * cy * cz)


def split(linear: Array, sizes: Dim3) -> tuple[Array, Array, Array]:
    """Linear numbers to (x, y, z), x fastest."""
    x = linear % sizes[0]
    rest = linear // sizes[0]
    return x, rest % sizes[1], rest // sizes[1]


def special_register(
    name: str, geometry: Geometry, cta: Array, thread: Array, shared_bytes: tuple[int, int]
) -> Array:
    """A special register of every lane (uint32), from its linear CTA and thread numbers.

    shared_bytes: dynamic and total shared memory of a CTA.
    """
    stem, _, axis = name.partition(".")
    if axis:
        return _axis(stem, "xyzw".index(axis), geometry, cta, thread).astype(np.uint32)
    lane = thread % WARP
    one = np.uint64(1)
    bit = one << lane.astype(np.uint64)
    values: dict[str, Array | int] = {
        "laneid": lane,
        "warpid": thread // WARP,
        "nwarpid": geometry.warps,
        "smid": cta % 132,
        "nsmid": 132,
        "gridid": 1,
        "lanemask_eq": bit,
        "lanemask_lt": bit - one,
        "lanemask_le": (bit << one) - one,
        "lanemask_ge": ~(bit - one),
        "lanemask_gt": ~((bit << one) - one),
        "cluster_ctarank": _cluster_rank(geometry, cta),
        "cluster_nctarank": geometry.cluster_ctas,
        "is_explicit_cluster": int(geometry.cluster != (1, 1, 1)),
        "dynamic_smem_size": shared_bytes[0],
        "total_smem_size": shared_bytes[1],
    }
    if name not in values:
        raise failure(f"special register %{name} is not modelled")
    return np.broadcast_to(np.asarray(values[name]), cta.shape).astype(np.uint32)


def _axis(stem: str, axis: int, geometry: Geometry, cta: Array, thread: Array) -> Array:
    if axis == 3:
        return np.full(cta.shape, int(stem in ("ntid", "nctaid", "cluster_nctaid", "nclusterid")))
    if stem == "tid":
        return split(thread, geometry.block)[axis]
    if stem == "ctaid":
        return split(cta, geometry.grid)[axis]
    inside, cluster, size = _cluster_axis(geometry, cta, axis)
    values = {
        "ntid": geometry.block[axis],
        "nctaid": geometry.grid[axis],
        "cluster_ctaid": inside,
        "cluster_nctaid": size,
        "clusterid": cluster,
        "nclusterid": geometry.grid[axis] // size,
    }
    return np.broadcast_to(np.asarray(values[stem]), cta.shape)


def _cluster_axis(geometry: Geometry, cta: Array, axis: int) -> tuple[Array, Array, int]:
    """Along one axis: index in the cluster, index of the cluster, size of a cluster."""
    at, size = split(cta, geometry.grid)[axis], geometry.cluster[axis]
    return at % size, at // size, size


def _cluster_rank(geometry: Geometry, cta: Array) -> Array:
    x, y, z = (_cluster_axis(geometry, cta, axis)[0] for axis in range(3))
    return x + geometry.cluster[0] * (y + geometry.cluster[1] * z)
