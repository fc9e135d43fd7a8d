"""A decoder layer of a Llama in bf16: compiled ahead of time into one bundle, run from that file.

    python -m examples.llama build         # any machine
    python -m examples.llama run           # one with a GPU
    python -m examples.llama train         # the same, and PyTorch

Prefill of whole prompts, and decode of a new token for each of several sequences, whose earlier
keys and values lie in a paged cache.  Weights, tokens and the cache come from a seed.  `run` checks
every step and the layer's output against float64: by torch, if it is there and has the GPU, or else
by NumPy.  Then it times each step, all of them launched one by one, and as one CUDA graph.  Without
a GPU, the model `small` runs in the interpreter:

    python -m examples.llama build --model small --prefill 1x32 --decode 3x48 --block 16 \\
        --bundle build/small.dnnplan
    python -m examples.llama run --interpreted --bundle build/small.dnnplan

`train` is PyTorch around `dnnc.torch.sdpa`: losses and gradients beside torch's own attention.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dnnc.errors import DnncError
from dnnc.interpreter import InterpreterError

from .phases import MODELS, Phase, model_of

BUNDLE = Path("build/llama.dnnplan")
PREFILL, DECODE = [(1, 2048)], [(16, 4096)]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m examples.llama",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = made.add_subparsers(dest="command", required=True)

    def command(name: str, what: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=what, description=what)
        added.add_argument("--bundle", type=Path, default=BUNDLE, help="the file (%(default)s)")
        return added

    build = command("build", "compiles the bundle and shows its plans; needs no GPU")
    build.add_argument("--model", choices=MODELS, default="llama3-8b")
    build.add_argument("--target", default="sm_90a", help="several by commas (%(default)s)")
    build.add_argument(
        "--prefill", action="append", metavar="BxS", type=_sizes,
        help="prompts and their tokens, may be repeated (default: 1x2048)",
    )  # fmt: skip
    build.add_argument(
        "--decode", action="append", metavar="BxS", type=_sizes,
        help="sequences and the most tokens of one, the new one included, may be repeated "
        "(default: 16x4096; with --prefill alone: none, and the other way round)",
    )  # fmt: skip
    build.add_argument(
        "--block", type=_positive, default=64, help="tokens of a block of the cache (%(default)s)"
    )
    build.add_argument(
        "--jobs", type=_positive, default=min(8, os.cpu_count() or 1),
        help="compile workers at once (%(default)s)",
    )  # fmt: skip
    build.add_argument("--no-cache", action="store_true", help="compile what was compiled before")
    run = command("run", "checks and times a bundle")
    run.add_argument("--interpreted", action="store_true", help="in the interpreter, unhurriedly")
    run.add_argument("--seed", type=int, default=0, help="of all numbers (%(default)s)")
    run.add_argument("--no-check", action="store_true", help="time only")
    run.add_argument("--no-times", action="store_true", help="check only")
    what = "trains two layers in PyTorch, whose attention is dnnc's, beside torch's own"
    train = commands.add_parser("train", help=what, description=what)
    train.add_argument("--model", choices=("small", "llama3-8b"), default="small")
    train.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="(%(default)s)")
    train.add_argument("--batch", type=_positive, default=2, help="rows of tokens (%(default)s)")
    train.add_argument("--tokens", type=_positive, default=128, help="of a row (%(default)s)")
    train.add_argument("--steps", type=_positive, default=5, help="(%(default)s)")
    train.add_argument("--seed", type=int, default=0, help="of all numbers (%(default)s)")
    return made


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}; accepted: 1 or more")
    return number


def _sizes(text: str) -> tuple[int, int]:
    batch, by, tokens = text.partition("x")
    if not by:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: two numbers, as 1x2048")
    return _positive(batch), _positive(tokens)


def phases(given: argparse.Namespace) -> list[Phase]:
    """The phases that a command line of `build` asks for."""
    model, is_default = model_of(given.model), not (given.prefill or given.decode)
    prefill, decode = (PREFILL, DECODE) if is_default else (given.prefill, given.decode)
    return [
        Phase(model, batch, tokens, given.block, is_decode)
        for wanted, is_decode in ((prefill, False), (decode, True))
        for batch, tokens in dict.fromkeys(wanted or ())
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        if given.command == "build":
            from .build_command import build

            build(phases(given), given.target, given.bundle, given.jobs, given.no_cache)
            return 0
        if given.command == "train":
            from .train_command import train

            sizes = (given.batch, given.tokens, given.steps)
            return 0 if train(given.model, given.device, *sizes, given.seed) else 1
        from .run_command import run

        wanted = {"is_interpreted": given.interpreted, "is_checked": not given.no_check,
                  "is_timed": not given.no_times}  # fmt: skip
        return 0 if run(given.bundle, given.seed, **wanted) else 1
    except (DnncError, InterpreterError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
