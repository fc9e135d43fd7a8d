"""python -m benchmarks: kernels, resnet50, variants, sweep, judge, host, compile, report, ..."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from . import DRAWN_NAMES, RESNET50_COLUMNS, SET_NAMES

FOLDER = Path(__file__).parent / "results"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)

    def command(name: str, what: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=what, description=what)
        added.add_argument(
            "--out", type=Path, default=FOLDER / f"{name}.json",
            help=f"results file; default {FOLDER.name}/{name}.json, gone on with where it exists",
        )  # fmt: skip
        return added

    def timed(name: str, what: str, rounds: int) -> argparse.ArgumentParser:
        added = command(name, what)
        added.add_argument("--rounds", type=int, default=rounds, help="default: %(default)s")
        added.add_argument("--jobs", type=int, default=1, help="compilers at once (%(default)s)")
        return added

    def of_cases(added: argparse.ArgumentParser) -> None:
        added.add_argument("--set", choices=(*SET_NAMES, *DRAWN_NAMES), help="of cases (all)")
        added.add_argument(
            "--seed", type=int, help="of a set that is drawn; without --set, memory-unlisted"
        )
        added.add_argument("--match", default="", help="regular expression over case ids")

    def with_energy(added: argparse.ArgumentParser) -> None:
        added.add_argument(
            "--energy", action="store_true",
            help="also joules a call, watts and the clock, of two seconds of each column",
        )  # fmt: skip

    def choosing(added: argparse.ArgumentParser, columns: str) -> None:
        of_cases(added)
        added.add_argument("--columns", default=columns, help="default: %(default)s")
        added.add_argument(
            "--cudnn-plans", type=Path,
            help="what cudnn-plans wrote: cuDNN's fastest plan of all, for the cases in it",
        )  # fmt: skip
        added.add_argument(
            "--tune-seconds", type=float, default=4.0,
            help="for cuDNN's best plan, of each other case (%(default)s)",
        )  # fmt: skip

    kernels = timed("kernels", "our kernels beside cuDNN and torch, on a GPU", 7)
    choosing(kernels, "dnnc,cudnn,torch,torch_compile")
    with_energy(kernels)
    kernels.add_argument("--list", action="store_true", help="print the cases and stop")
    kernels.add_argument(
        "--mode", choices=("sustained", "cool", "both"), default="sustained",
        help="each sample after 30 ms of the same work, or of idling; both: sustained is judged "
        "(%(default)s)",
    )  # fmt: skip
    kernels.add_argument(
        "--plans", type=_named_folder, action="append", default=[], metavar="COLUMN=FOLDER",
        help="also time what `plans` wrote, as by another version of dnnc; may be repeated",
    )  # fmt: skip
    kernels.add_argument(
        "--adapter", type=Path, action="append", default=[], metavar="FILE",
        help="a Python file whose CONTESTANTS are columns that may be chosen, too, of libraries "
        "not known here; may be repeated",
    )  # fmt: skip
    written = commands.add_parser("plans", help="write the plan of each case, without a GPU")
    written.add_argument("--out", type=Path, required=True, help="a folder")
    written.add_argument("--target", default="sm_90a", help="default: %(default)s")
    written.add_argument("--jobs", type=int, default=1, help="compilers at once (%(default)s)")
    of_cases(written)
    plans = command("cudnn-plans", "cuDNN's fastest plan of each case, of all it has, on a GPU")
    plans.add_argument("--jobs", type=int, default=4, help="processes that build (%(default)s)")
    plans.add_argument(
        "--by-f16", action="store_true",
        help="search in f16 for bf16 cases, too: `kernels` replays engine and knobs for these",
    )  # fmt: skip
    of_cases(plans)
    resnet50 = timed("resnet50", "ResNet-50 beside cuDNN and torch, on a GPU", 7)
    resnet50.add_argument(
        "--train", action="store_true", help="whole training steps instead, beside torch's"
    )
    resnet50.add_argument(
        "--batch", type=int, action="append",
        help="images; may be repeated (32 and 256, of training 64 and 256)",
    )  # fmt: skip
    resnet50.add_argument(
        "--columns", default=",".join(RESNET50_COLUMNS),
        help="of the whole pass; there is torch_compile_max, too (%(default)s)",
    )  # fmt: skip
    resnet50.add_argument(
        "--layer-rounds", type=int, default=3,
        help="of each operation beside cuDNN, 0 for none of them (%(default)s)",
    )  # fmt: skip
    resnet50.add_argument(
        "--tune-seconds", type=float, default=1.0,
        help="for cuDNN's best plan, of each operation (%(default)s)",
    )  # fmt: skip
    resnet50.add_argument(
        "--compile-seconds", type=float, default=120.0,
        help="after which a torch.compile is given up (%(default)s)",
    )  # fmt: skip
    variants = timed("variants", "configurations of an engine on one case, on a GPU", 5)
    with_energy(variants)
    variants.add_argument("--case", required=True, help="id; of any sizes, if matmul or fused")
    variants.add_argument("--engine", required=True)
    variants.add_argument(
        "--knobs", action="append", default=[],
        help="TILE_M=128,TILE_N=256: the rest as in the nearest candidate; may be repeated",
    )  # fmt: skip
    variants.add_argument("--all", action="store_true", help="the engine's candidates too")
    variants.add_argument("--most", type=int, default=64, help="of the candidates (%(default)s)")
    sweep = timed("sweep", "an engine's candidates on generated matmuls, on a GPU", 3)
    sweep.add_argument("--seed", type=int, default=1, help="of the shapes (%(default)s)")
    sweep.add_argument("--count", type=int, default=20, help="shapes (%(default)s)")
    sweep.add_argument("--most", type=int, default=64, help="candidates of a shape (%(default)s)")
    sweep.add_argument("--engine", default="matmul_sm80", help="default: %(default)s")
    sweep.add_argument(
        "--also", action="append", default=[],
        help="SWIZZLE=512: each candidate with these knobs, too; may be repeated",
    )  # fmt: skip
    sweep.add_argument(
        "--peer", action="append", default=[], help="torch: a column beside; may be repeated"
    )
    sweep.add_argument(
        "--case", action="append", default=[],
        help="id, of any sizes, as `variants` takes it, instead; may be repeated",
    )  # fmt: skip
    sweep.add_argument(
        "--set", choices=(*SET_NAMES, *DRAWN_NAMES), help="its cases instead; of --seed, if drawn"
    )
    sweep.add_argument(
        "--match",
        default="",
        help="the cases, of --set or of all lists, of this regular expression",
    )
    judge = commands.add_parser(
        "judge", help="today's choices among configurations that sweeps timed, without a GPU"
    )
    judge.add_argument("files", nargs="+", type=Path, help="results of sweep and variants")
    judge.add_argument("--target", default="sm_90a", help="default: %(default)s")
    profile = command("profile", "counters of kernels by Nsight Compute (ncu), on a GPU")
    profile.add_argument("--jobs", type=int, default=1, help="compilers at once (%(default)s)")
    choosing(profile, "dnnc")
    command("host", "host time of one execution, on a GPU")
    alone = command("host-alone", "Python's part of the host time, without a GPU")
    alone.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    compile_ = command("compile", "compile times, without a GPU")
    compile_.add_argument("--rounds", type=int, default=9, help="default: %(default)s")
    commands.add_parser(
        "plots", help="bar charts of results files for docs/performance; needs matplotlib"
    )
    report = commands.add_parser("report", help="Markdown tables of results files")
    report.add_argument("files", nargs="+", type=Path)
    report.add_argument("--match", default="", help="regular expression over case ids")
    return made


def _named_folder(text: str) -> tuple[str, Path]:
    """before=FOLDER"""
    name, _, folder = text.partition("=")
    if not name or not folder:
        raise argparse.ArgumentTypeError(f"{text!r} is not COLUMN=FOLDER")
    return name, Path(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    if given.command == "report":
        for path in given.files:
            print(tables(path, given.match))
        return 0
    if given.command == "plots":
        from .plots import write_plots

        for path in write_plots():
            print(f"{path.name}: {path.stat().st_size:,} bytes")
        return 0
    if given.command == "compile":
        from . import compile_times
        from .results import Results

        made = Results(given.out, "compile", compile_times.metadata())
        compile_times.run_compile_times(made, given.rounds)
        return 0
    if given.command == "host-alone":
        from . import host_alone
        from .results import Results

        made = Results(given.out, "host", host_alone.metadata())
        host_alone.run_host_alone(made, given.rounds)
        return 0
    if given.command == "judge":
        from .judge import run_judge

        print(run_judge(given.files, given.target))
        return 0
    try:
        import torch
    except ImportError:
        print("python -m benchmarks needs PyTorch for this command", file=sys.stderr)
        return 2
    from . import on_device

    if given.command == "kernels" and given.list:
        for case in on_device.chosen(given):
            print(f"{case.id:50s} {case.flops / 1e9:9.1f} GFLOP {case.bytes / 1e6:9.1f} MB")
        return 0
    if given.command == "plans":
        on_device.write_plans(given)
        return 0
    if torch.cuda.device_count() == 0:
        print("no CUDA device", file=sys.stderr)
        return 2
    if given.command == "profile":
        from . import profile, results

        return profile.run_profile(given, results.Results(given.out, "profile", results.metadata()))
    if given.command == "cudnn-plans":
        from . import results
        from .peers import cudnn_search

        cases = on_device.listed(given.set, given.seed)
        ids = cudnn_search.matching(cases, given.match, by_f16=given.by_f16)
        made = results.Results(given.out, "cudnn-plans", results.metadata())
        cudnn_search.run_search(given, ids, made)
        return 0
    if given.command == "host":
        from . import host, results

        torch.manual_seed(0)
        host.run_host(results.Results(given.out, "host", results.metadata()))
    else:
        from .watch import watched

        watched(on_device.run, given)
    return 0


def tables(path: Path, match: str = "") -> str:
    """The Markdown of one results file."""
    from . import compile_times, host_table, profile, resnet50_table, results

    data = json.loads(path.read_text())
    if data["kind"] == "kernels":
        return results.markdown(data, match)
    if data["kind"] == "profile":
        return profile.summary(data["rows"])
    if data["kind"] == "resnet50":
        return resnet50_table.markdown(data)
    if data["kind"] == "compile":
        return compile_times.markdown(data)
    if data["kind"] == "host":
        return host_table.markdown(data)
    lines = [f"| {data['kind']} | |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {n} | {row} |" for n, row in data["rows"].items())])


if __name__ == "__main__":
    sys.exit(main())
