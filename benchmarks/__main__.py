"""python -m benchmarks: kernels, sweep, host, compile, report."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)

    def command(name: str, what: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=what, description=what)
        added.add_argument(
            "--out", type=Path, help=f"results file; default {FOLDER.name}/{name}.json, "
            "gone on with where it exists",
        )  # fmt: skip
        return added

    kernels = command("kernels", "our kernels beside cuDNN and torch, on a GPU")
    kernels.add_argument("--match", default="", help="regular expression over case ids")
    kernels.add_argument("--columns", default="dnnc,cudnn,torch", help="default: %(default)s")
    kernels.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    kernels.add_argument("--list", action="store_true", help="print the cases and stop")
    sweep = command("sweep", "an engine's candidates on generated matmuls, on a GPU")
    sweep.add_argument("--seed", type=int, default=1, help="of the shapes (%(default)s)")
    sweep.add_argument("--count", type=int, default=20, help="shapes (%(default)s)")
    sweep.add_argument("--most", type=int, default=64, help="candidates of a shape (%(default)s)")
    sweep.add_argument("--engine", default="matmul_sm80", help="default: %(default)s")
    sweep.add_argument("--listed", action="store_true", help="the listed matmuls instead")
    command("host", "host time of one execution, on a GPU")
    compile_ = command("compile", "compile times, without a GPU")
    compile_.add_argument("--rounds", type=int, default=9, help="default: %(default)s")
    report = commands.add_parser("report", help="Markdown tables of results files")
    report.add_argument("files", nargs="+", type=Path)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    if given.command == "report":
        for path in given.files:
            print(tables(path))
        return 0
    out = given.out or FOLDER / f"{given.command}.json"
    from . import results

    if given.command == "compile":
        from . import compile_times

        made = results.Results(out, "compile", compile_times.metadata())
        compile_times.run_compile_times(made, given.rounds)
        return 0
    try:
        import torch
    except ImportError:
        print("python -m benchmarks needs PyTorch for this command", file=sys.stderr)
        return 2
    from . import cases

    if given.command == "kernels":
        chosen = [case for case in cases.all_cases() if re.search(given.match, case.id)]
        if given.list:
            for case in chosen:
                print(f"{case.id:50s} {case.flops / 1e9:9.1f} GFLOP {case.bytes / 1e6:9.1f} MB")
            return 0
    if not torch.cuda.is_available():
        print("no CUDA device", file=sys.stderr)
        return 2
    torch.manual_seed(0)
    made = results.Results(out, given.command, results.metadata())
    if given.command == "kernels":
        from . import kernels

        kernels.run_cases(chosen, given.rounds, given.columns.split(","), made)
    elif given.command == "sweep":
        from . import sweep

        shapes = cases.generated(given.seed, given.count)
        if given.listed:
            shapes = [case for case in cases.all_cases() if case.id.startswith("matmul/bf16/bias")]
        sweep.run_sweep(shapes, given.engine, given.most, made)
    else:
        from . import host

        host.run_host(made)
    return 0


def tables(path: Path) -> str:
    """The Markdown of one results file."""
    from . import compile_times, results

    data = json.loads(path.read_text())
    if data["kind"] == "kernels":
        return results.markdown(data)
    if data["kind"] == "compile":
        return compile_times.markdown(data)
    if data["kind"] == "host":
        return host_markdown(data)
    lines = [f"| {data['kind']} | |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {n} | {row} |" for n, row in data["rows"].items())])


def host_markdown(data: dict[str, Any]) -> str:
    """The table of host times."""
    lines = ["| call | us |", "|---|---:|"]
    for name, row in data["rows"].items():
        lines.append(f"| {name} | {row['host_us']:.1f} |" if "host_us" in row else f"| {name} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
