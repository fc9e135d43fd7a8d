"""ResNet-50 in f16: compiled ahead of time into one bundle, run or trained from that file.

    python -m examples.resnet50 build         # any machine
    python -m examples.resnet50 run           # one with a GPU

Each layer, convolution + bias + residual + ReLU, is a graph; equal layers share a plan.  Filters
and images come from a seed.  `run` checks every layer and the logits: by torch, if it is there and
has the GPU, or else the first image by NumPy.  Then it times each layer, all of them launched one
by one, and as one CUDA graph.  Without a GPU, the network `small` runs in the interpreter:

    python -m examples.resnet50 build --network small --batch 2 --bundle build/small.dnnplan
    python -m examples.resnet50 run --network small --bundle build/small.dnnplan

A training step, forward, loss, backward and SGD, is another bundle.  `train` compares gradients
and losses with torch's, if it is there, and times steps, each of them one CUDA graph.  Without a
GPU, the network `tiny` is trained in the interpreter:

    python -m examples.resnet50 build --training
    python -m examples.resnet50 train
    python -m examples.resnet50 build --training --network tiny --batch 2
    python -m examples.resnet50 train --network tiny
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dnnc.errors import DnncError, Status
from dnnc.interpreter import InterpreterError

from .network import NETWORKS

BUNDLE = Path("build/resnet50.dnnplan")
TRAINING_BUNDLE = Path("build/resnet50-training.dnnplan")
BATCHES = (32, 256)
TRAINING_BATCHES = (64, 256)
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
        added.add_argument("--bundle", type=Path, help=f"the file ({BUNDLE}, of training "
                           f"{TRAINING_BUNDLE})")  # fmt: skip
        return added

    build = command("build", "compiles the bundle and shows its plans; needs no GPU")
    build.add_argument("--training", action="store_true", help="a training step")
    build.add_argument("--target", default="sm_90a", help="several by commas (%(default)s)")
    build.add_argument(
        "--batch", action="append", metavar="N", type=_batch,
        help="images, may be repeated; 'any': plans for all numbers, somewhat slower, since three "
        "configs at most serve them, not for training (default: 32 and 256; training: 64 and 256)",
    )  # fmt: skip
    build.add_argument(
        "--jobs", type=_positive, default=min(8, os.cpu_count() or 1),
        help="compile workers at once (%(default)s)",
    )  # fmt: skip
    build.add_argument("--no-cache", action="store_true", help="compile what was compiled before")
    passes = {"run": "a bundle; needs a GPU but for the network small",
              "train": "training steps; needs a GPU but for the network tiny"}  # fmt: skip
    for name, what in passes.items():
        run = command(name, f"checks and times {what}")
        run.add_argument(
            "--batch", action="append", metavar="N", type=_positive,
            help="images, may be repeated (default: those that the bundle was built for)",
        )  # fmt: skip
        run.add_argument("--seed", type=int, default=0, help="of parameters, data (%(default)s)")
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
    is_training = given.command == "train" or (given.command == "build" and given.training)
    path = given.bundle or (TRAINING_BUNDLE if is_training else BUNDLE)
    try:
        if given.command == "build":
            return _build(given, path)
        wanted = {"is_checked": not given.no_check, "is_timed": not given.no_times}
        if is_training:
            from .train_command import train as run
        else:
            from .run_command import run
        return 0 if run(given.network, path, given.batch, given.seed, **wanted) else 1
    except (DnncError, InterpreterError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


def _build(given: argparse.Namespace, path: Path) -> int:
    how = given.target, path, given.jobs, given.no_cache
    if not given.training:
        from .build_command import build

        build(given.network, given.batch or BATCHES, *how)
        return 0
    from .training_building import build as build_training

    if ANY in (given.batch or ()):
        raise DnncError(Status.BAD_PARAM, f"--training --batch {ANY}", "numbers of images")
    build_training(given.network, given.batch or TRAINING_BATCHES, *how)
    return 0


if __name__ == "__main__":
    sys.exit(main())
