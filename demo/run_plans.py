"""Runs carried plan files on a GPU, in a process that has no compiler.

    python -m demo.run_plans build/demo

The folder is one that `python -m demo` wrote, on any machine: plans, and a file of real inputs
with the outputs they must give.  Needs NumPy and cuda-bindings, and no MLIR.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import dnnc
from dnnc.plan.format import SUFFIX

from . import cases, device
from .tables import table

HEADERS = ("plan", "layer", "tokens", "us a launch", "error", "allowed", "")


def loaded_compiler() -> list[str]:
    """The modules of MLIR that this process has loaded."""
    return [name for name in sys.modules if name.partition(".")[0] == "numba_cuda_mlir"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.run_plans", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the plans and cases.npz are")
    folder = parser.parse_args(arguments).folder
    try:
        found = cases.read(folder / cases.FILE)
        plans = {name: dnnc.load(folder / f"{name}{SUFFIX}") for name in {c.graph for c in found}}
        print(f"{len(plans)} plans of {folder} on {device.describe()}")
        rows, all_good = [], True
        for case in found:
            y, seconds = device.run(plans[case.graph], case.inputs, is_timed=True)
            verdict = case.judge(y)
            all_good &= verdict.is_good
            rows.append(
                (
                    case.graph,
                    case.layer,
                    case.tokens,
                    f"{1e6 * seconds:.1f}",
                    f"{verdict.error:.2e}",
                    f"{verdict.bound:.2e}",
                    "ok" if verdict.is_good else "WRONG",
                )
            )
    except (OSError, dnnc.DnncError) as error:
        print(f"can't run the plans of {folder}: {error}")
        return 1
    print(table(HEADERS, rows))
    assert not loaded_compiler(), f"MLIR was loaded: {loaded_compiler()}"
    print("no MLIR module was loaded in this process")
    print("all match float64" if all_good else "SOME DO NOT MATCH")
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
