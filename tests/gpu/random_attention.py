"""Random attention on the device against float64, by many processes: thousands in minutes.

    python -m tests.gpu.random_attention --first 0 --count 3000 --processes 14

A seed is a graph, an engine, knobs and inputs.  Of eight seeds three are of 16 bits through
`sdpa_fwd_sm90`, two of 16 bits through `sdpa_sm80`, two of fp8 through the one and one of fp8
through the other: "hopper", "any", "fp8" and "any-fp8".  Of those of 16 bits one in four has large
scores and many keys in place of a little of everything (`tests/random_large_attention.py`):
"hopper-large" and "any-large".  With `--only` all seeds are of one kind; `--only gradient` is of
gradients, through `sdpa_bwd_sm90`, and `--only any-gradient` through `sdpa_bwd_sm80`.  Other
options: `many_seeds.py`.
"""

from __future__ import annotations

import argparse
import sys
from random import Random
from typing import NamedTuple

from . import many_seeds


class Kind(NamedTuple):
    """engine, target: None for the device's own.  is_fp8: whether operands are.  is_large: whether
    scores are large, and keys many."""

    engine: str
    target: str | None = None
    is_fp8: bool = False
    is_large: bool = False


KINDS = {
    "hopper": Kind("sdpa_fwd_sm90", "sm_90a"),
    "fp8": Kind("sdpa_fwd_sm90", "sm_90a", is_fp8=True),
    "any": Kind("sdpa_sm80"),
    "any-fp8": Kind("sdpa_sm80", "sm_90a", is_fp8=True),
    "hopper-large": Kind("sdpa_fwd_sm90", "sm_90a", is_large=True),
    "any-large": Kind("sdpa_sm80", is_large=True),
    "gradient": Kind("sdpa_bwd_sm90", "sm_90a"),
    "any-gradient": Kind("sdpa_bwd_sm80", "sm_80"),
}
# Of a seed's remainder.  Of those of 16 bits one in four is of large scores, which is one in six.
TURNS = ("hopper", "any", "hopper", "fp8", "hopper", "any", "any-fp8", "fp8")
_LARGE = 0.25


def kind_of(seed: int, only: str = "") -> str:
    if only:
        return only
    found = TURNS[seed % len(TURNS)]
    # A generator of its own: what others draw does not depend on it.
    is_large = Random(f"large {seed}").random() < _LARGE and f"{found}-large" in KINDS
    return f"{found}-large" if is_large else found


def check(seed: int, name: str, options: argparse.Namespace) -> None:
    from tests import checked_gradient
    from tests.checked_attention import run

    kind = KINDS[name]
    engine = kind.engine, kind.target
    most = options.keys if kind.is_large else options.most
    if engine in (checked_gradient.SM90, checked_gradient.SM80):
        depths = checked_gradient.EVERY_DEPTH
        checked_gradient.run_seed(seed, most, options.heads, engine, depths)
    else:
        drawn = {"is_fp8": kind.is_fp8, "is_large": kind.is_large}
        run(kind.engine, seed, most, options.heads, kind.target, **drawn)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--most", type=int, default=260, help="queries, or keys, of a head")
    parser.add_argument("--keys", type=int, help="of a head where scores are large; 2048 or 600")
    parser.add_argument("--heads", type=int, default=4, help="of all entries of the batch")


def _finish(options: argparse.Namespace) -> None:
    if options.keys is None:  # interpreted, 2048 would take too long
        options.keys = 600 if options.interpreted else 2048


COMMAND = many_seeds.Command(
    "random_attention", tuple(KINDS), kind_of, check, _add_options, _finish
)


def main(arguments: list[str] | None = None) -> int:
    return many_seeds.main(COMMAND, arguments)


if __name__ == "__main__":
    sys.exit(main())
