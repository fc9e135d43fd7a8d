"""Random graphs, with random knobs, on the device by many processes; each element has its bounds.

    python -m tests.gpu.random_graphs --first 0 --count 2000 --processes 14

Of eight seeds three are drawn from the operations' constraints alone ("draw"), two from the support
surfaces of the engines of every target ("inside"), one of that of `matmul_sm90` ("hopper"), one is
a grouped product ("grouped"), one has boolean outputs ("bits").  With `--only` all seeds are of one
kind.  Other options: `many_seeds.py`; a failing seed is shown by `python -m tests.random_graphs`.
"""

from __future__ import annotations

import argparse
import sys

from . import many_seeds

TURNS = ("draw", "inside", "hopper", "draw", "grouped", "draw", "inside", "bits")
KINDS = tuple(dict.fromkeys(TURNS))
_SURFACES = {"hopper": "matmul_sm90", "grouped": "grouped", "bits": "bits"}


def kind_of(seed: int, only: str = "") -> str:
    return only or TURNS[seed % len(TURNS)]


def check(seed: int, kind: str, options: argparse.Namespace) -> None:
    from tests.random_graphs import draw, draw_inside
    from tests.test_random_graphs import check_interpreted

    drawn = draw(seed) if kind == "draw" else draw_inside(seed, _SURFACES.get(kind, ""))
    telling: list[tuple[int, int]] = []
    check_interpreted(drawn, telling)
    assert telling or kind == "draw", "no engine takes it"


def main(arguments: list[str] | None = None) -> int:
    return many_seeds.main(many_seeds.Command("random_graphs", KINDS, kind_of, check), arguments)


if __name__ == "__main__":
    sys.exit(main())
