"""python -m benchmarks.profiled: one call of each case's columns, as `profile` has ncu see them.

A kernel that only waits stands before each call, so that a profile of kernels alone tells the
calls apart; what was called, in that order, is written to a file.
"""

from __future__ import annotations

import argparse
import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from . import on_device
from .compilers import Compilers
from .peers import contestants
from .peers import cudnn as cudnn_peers
from .peers.contestants import Bench
from .watch import Watch

_WARM_UPS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.profiled", description=__doc__)
    parser.add_argument("--set")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--match", default="")
    parser.add_argument("--columns", required=True)
    parser.add_argument("--tune-seconds", type=float, required=True)
    parser.add_argument("--cudnn-plans", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--calls", type=Path, required=True, help="written: what was called")
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    stream = torch.cuda.Stream()
    compilers = Compilers(given.jobs, contestants.target())
    bench = Bench(stream, compilers, Watch(), tune_seconds=given.tune_seconds)
    bench.cudnn_plans = cudnn_peers.read_winners(given.cudnn_plans)
    try:
        with torch.cuda.stream(stream):
            _call_all(given, bench)
    finally:
        compilers.close()
    return 0


def _call_all(given: Namespace, bench: Bench) -> None:
    cases = on_device.chosen(given)
    for case in cases:
        bench.compilers.ahead(case, contestants.our_options(case, bench.compilers.target))
    calls: list[dict[str, Any]] = []
    for case in cases:
        sets = [case.make()]
        for name in given.columns.split(","):
            try:
                made = contestants.ALL[name](case, sets, bench)
            except Exception as error:  # a peer that has no plan has no profile
                print(f"{case.id} {name}: {error}", file=sys.stderr)
                continue
            for column, (launch, information) in made.items():
                _profiled(launch)
                entry = {"case": case.id, "column": column, "bytes": case.bytes}
                calls.append(entry | {"flops": case.flops, "information": information})
                given.calls.write_text(json.dumps(calls))


def _profiled(launch: Any) -> None:
    for _ in range(_WARM_UPS):
        launch(0)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    torch.cuda._sleep(1)  # profile.MARKER
    launch(0)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    sys.exit(main())
