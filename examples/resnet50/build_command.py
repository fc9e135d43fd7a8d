"""`build`: the bundle, and a table of its plans."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from demo.progress import bar
from demo.tables import table

from . import building
from .graphs import ANY_BATCH
from .network import network_of


def build(
    name: str, batches: Sequence[int | str], target: str, path: Path, jobs: int, no_cache: bool
) -> None:
    """Compiles a network for each batch (a number, or "any") into one file."""
    network = network_of(name)
    sizes = [n if isinstance(n, int) else ANY_BATCH for n in dict.fromkeys(batches)]
    began = time.perf_counter()
    with bar(len(building.parts(network, sizes))) as shown:
        made = building.compile_all(network, sizes, target, jobs, shown.step, cache=not no_cache)
    seconds = time.perf_counter() - began
    building.write(path, made)
    first = target.partition(",")[0].strip()
    print(table(building.HEADERS, building.rows(made, first)))
    print()
    print("layers: that share a plan; the last line of a batch adds them up.")
    print(f"us: predicted for {first}.  floor us: GFLOP or MB at its usual part's nominal rates.")
    if ANY_BATCH in sizes:
        print(f"Plans for any batch are shown at {building.SHOWN_IMAGES} images.")
    print(
        f"{len(network.layers)} layers, {network.parameters / 1e6:.2f} million parameters, "
        f"{network.flops(1) / 2e9:.3g} billion multiply-adds an image."
    )
    print(f"{path}: {len(made)} plans, {building.verified(path):,} bytes, after {seconds:.1f} s")
