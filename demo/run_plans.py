"""Runs the encoder from carried files on a GPU, in a process that has no compiler.

    python -m demo.run_plans build/demo

The folder is one that `python -m demo` wrote, on any machine: a bundle of plans, and a file with
the model's parameters and its embeddings of a few sentences.  Needs NumPy and cuda-bindings, and no
MLIR.  Every step is compared with float64 on what it was given, the vectors with those of a model
that rounds nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import dnnc

from . import carried, device
from .carried import Carried
from .checks import judge_step, judge_vectors
from .forward import Forward, Plans
from .numerics import Verdict
from .tables import table

BUNDLE = "minilm.dnnplan"
HEADERS = ("plan", "steps", "us a launch", "error", "allowed", "")


def loaded_compiler() -> list[str]:
    """The modules of MLIR that this process has loaded."""
    return [name for name in sys.modules if name.partition(".")[0] == "numba_cuda_mlir"]


def run(one: Carried, plans: Plans) -> bool:
    """Prints a line for each plan and one for the vectors; whether all are good."""
    batch = one.batch
    found: dict[str, list[tuple[float, Verdict]]] = {}
    with Forward(batch, plans) as forward:
        for step, inputs, y, seconds in forward.results():
            verdict = judge_step(step.graph, y, inputs, batch.dtype)
            found.setdefault(step.graph, []).append((seconds, verdict))
        vectors, whole = forward.vectors(), forward.seconds()
    rows = [_row(f"{graph}_{batch.dtype}", mine) for graph, mine in found.items()]
    verdict = judge_vectors(vectors, one.exact, len(batch.steps), batch.dtype)
    rows.append(_row("vectors", [(whole, verdict)]))
    print(table(HEADERS, rows), end="\n\n")
    return all(v.is_good for mine in found.values() for _, v in mine) and verdict.is_good


def _row(name: str, mine: list[tuple[float, Verdict]]) -> tuple[object, ...]:
    """The worst of some steps, and the median of their seconds."""
    worst = max((verdict for _, verdict in mine), key=lambda v: v.error / v.bound)
    seconds = sorted(seconds for seconds, _ in mine)[len(mine) // 2]
    return (
        name,
        len(mine),
        f"{1e6 * seconds:.1f}",
        f"{worst.error:.2e}",
        f"{worst.bound:.2e}",
        "ok" if all(verdict.is_good for _, verdict in mine) else "WRONG",
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.run_plans", description=__doc__)
    parser.add_argument("folder", type=Path, help=f"where {BUNDLE} and {carried.FILE} are")
    folder = parser.parse_args(arguments).folder
    try:
        batches = carried.read(folder / carried.FILE)
        plans = dnnc.load_bundle(folder / BUNDLE)
        print(f"{len(plans)} plans of {folder} on {device.describe()}\n")
        all_good = all([run(one, plans) for one in batches])
    except (OSError, dnnc.DnncError) as error:
        print(f"can't run the plans of {folder}: {error}")
        return 1
    assert not loaded_compiler(), f"MLIR was loaded: {loaded_compiler()}"
    print("vectors: of all steps, launched one by one by the host")
    print("no MLIR module was loaded in this process")
    print("all match float64" if all_good else "SOME DO NOT MATCH")
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
