"""Host time without a device: cuda-bindings itself, on a driver that does nothing.

It is what Python takes of a call; the driver's own part, 2 to 4 us of a launch, is not in it.
Needs a C compiler, and neither PyTorch nor a GPU.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import new_sizes
from .host_table import ADDRESSES, BARE, BOUND, ENTRY, FIRST_ADDRESSES, NEW_ADDRESSES
from .results import Results

SOURCE = Path(__file__).with_name("idle_driver.c")
STREAM = 7
ROWS = 64


def metadata() -> dict[str, Any]:
    from dnnc import __version__

    return {
        "device": "none: a driver that does nothing", "processor": platform.machine(),
        "python": platform.python_version(), "dnnc": __version__,
    }  # fmt: skip


def run_host_alone(results: Results, rounds: int) -> None:
    """Measures in a process of its own, which finds the idle driver first."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libcuda.so.1"
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True
        )
        paths = [folder, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.host_alone", str(rounds)],
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(paths)},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    for name, row in json.loads(done.stdout).items():
        results.add(name, row)


def _measure(rounds: int) -> dict[str, dict[str, float]]:
    from dnnc.runtime import driver

    driver.make_current(driver.device())
    if driver.device().name != "idle":
        raise RuntimeError(f"the driver is that of {driver.device().name}, not the idle one")
    plan = new_sizes.SymbolicPlan("sm_90a", STREAM)
    executable = plan.graph.plan
    pack, sizes = _addresses(plan), {"M": ROWS}
    bound = executable.bind(pack, stream=STREAM, sizes=sizes)
    ((launch, arguments),) = bound.calls
    calls = {
        BARE: lambda: launch(*arguments),
        BOUND: bound,
        ADDRESSES: lambda: executable.execute(pack, stream=STREAM, sizes=sizes),
    }
    entry = executable.entry(sizes)
    by_uid = {tensor.uid: address for tensor, address in pack.items()}
    addresses = tuple(by_uid[tensor.uid] for tensor in entry.tensors)
    new = new_sizes.moving(addresses)
    calls[ENTRY] = lambda: entry(addresses, 0, STREAM)
    calls[NEW_ADDRESSES] = lambda: entry(next(new), 0, STREAM)
    calls[FIRST_ADDRESSES] = lambda: executable.execute(
        dict(zip(by_uid, next(new), strict=True)), stream=STREAM, sizes=sizes
    )
    rows = {name: {"host_us": _least(call, rounds)} for name, call in calls.items()}
    for name, way in (("a symbol", _through_symbol), ("override_shapes", _through_overrides)):
        other = new_sizes.SymbolicPlan("sm_90a", STREAM)  # which has seen no size
        rows[f"dnnc: first execute at a new size, through {name}"] = _first(way(other), rounds)
    return rows


def _addresses(plan: new_sizes.SymbolicPlan) -> dict[Any, int]:
    return {tensor: (i + 1) << 32 for i, tensor in enumerate(plan.tensors.values())}


def _least(call: Callable[[], object], rounds: int, calls: int = 200) -> float:
    """Microseconds a call of the quickest round: what else runs here only adds.

    A round is short, so that one of them runs without another process in its time.
    """
    found: list[float] = []
    for _ in range(20):
        call()
    for _ in range(5 * rounds):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - began) / calls)
    return round(1e6 * min(found), 3)


def _through_symbol(plan: new_sizes.SymbolicPlan) -> Callable[[int], None]:
    pack, executable = _addresses(plan), plan.graph.plan
    return lambda rows: executable.execute(pack, stream=STREAM, sizes={"M": rows})


def _through_overrides(plan: new_sizes.SymbolicPlan) -> Callable[[int], None]:
    execute, pack = plan.through_overrides(None), _addresses(plan)
    by_name = {name: pack[tensor] for name, tensor in plan.tensors.items()}
    return lambda rows: execute(rows, by_name)


def _first(execute: Callable[[int], None], rounds: int) -> dict[str, float]:
    """The quickest of some medians, and of their slowest sizes; no size comes twice."""
    sizes: Sequence[int] = new_sizes.row_counts(1 + rounds * new_sizes.COUNT)
    execute(sizes[0])  # loads the code
    medians, worst = [], []
    for start in range(1, len(sizes), new_sizes.COUNT):
        found: list[float] = []
        for rows in sizes[start : start + new_sizes.COUNT]:
            began = time.perf_counter()
            execute(rows)
            found.append(1e6 * (time.perf_counter() - began))
        medians.append(statistics.median(found))
        worst.append(max(found))
    return {"host_us": round(min(medians), 1), "worst_us": round(min(worst), 1)}


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]))))
