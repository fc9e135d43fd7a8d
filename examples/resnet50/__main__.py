"""ResNet-50's forward pass in f16: compiled ahead of time into one bundle, run from that file.

    python -m examples.resnet50 build         # any machine
    python -m examples.resnet50 run           # one with a GPU

Each layer, convolution + bias + residual + ReLU, is a graph; equal layers share a plan.  Filters
and images come from a seed.  `run` checks every layer and the logits: by torch, if it is there and
has the GPU, or else the first image by NumPy.  Then it times each layer, all of them launched one
by one, and as one CUDA graph.  Without a GPU, the network `small` runs in the interpreter:

    python -m examples.resnet50 build --network small --batch 2 --bundle build/small.dnnplan
    python -m examples.resnet50 run --network small --bundle build/small.dnnplan
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dnnc.errors import DnncError
from dnnc.interpreter import InterpreterError

from .network import NETWORKS

BUNDLE = Path("build/resnet50.dnnplan")
BATCHES = (32, 256)
ANY = "any"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m examples.resnet50",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = made.add_subparsers(dest="command", required=True)

    def command(name: str, what: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=what, description=what)
        added.add_argument("--network", choices=NETWORKS, default="resnet50")
        added.add_argument("--bundle", type=Path, default=BUNDLE, help="the file (%(default)s)")
        return added

    build = command("build", "compiles the bundle and shows its plans; needs no GPU")
    build.add_argument("--target", default="sm_90a", help="several by commas (%(default)s)")
    build.add_argument(
        "--batch", action="append", metavar="N", type=_batch,
        help="images, may be repeated; 'any': plans for all numbers, somewhat slower, since three "
        "configs at most serve them (default: 32 and 256)",
    )  # fmt: skip
    build.add_argument(
        "--jobs", type=_positive, default=min(8, os.cpu_count() or 1),
        help="compile workers at once (%(default)s)",
    )  # fmt: skip
    build.add_argument("--no-cache", action="store_true", help="compile what was compiled before")
    run = command("run", "checks and times a bundle; needs a GPU but for the network small")
    run.add_argument(
        "--batch", action="append", metavar="N", type=_positive,
        help="images, may be repeated (default: those that the bundle was built for)",
    )  # fmt: skip
    run.add_argument("--seed", type=int, default=0, help="of filters and images (%(default)s)")
    run.add_argument("--no-check", action="store_true", help="time only")
    run.add_argument("--no-times", action="store_true", help="check only")
    return made


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}; accepted: 1 or more")
    return number


def _batch(text: str) -> int | str:
    return text if text == ANY else _positive(text)


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        if given.command == "build":
            from .build_command import build

            batches = given.batch or BATCHES
            build(given.network, batches, given.target, given.bundle, given.jobs, given.no_cache)
            return 0
        from .run_command import run

        wanted = {"is_checked": not given.no_check, "is_timed": not given.no_times}
        return 0 if run(given.network, given.bundle, given.batch, given.seed, **wanted) else 1
    except (DnncError, InterpreterError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
