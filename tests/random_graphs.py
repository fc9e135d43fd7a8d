"""Random operation graphs: valid ones from the operations' constraints, and ones that lie inside
an engine's stated support surface.

    python -m tests.random_graphs SEED [pointwise|reduction|fallback|broken]
    python -m tests.random_graphs SEED [matmul_sm80|matmul_sm90|grouped|bits]

A seed gives the same graph every time.  Values are kept tame while a graph grows: every node has
a sketch, a few dozen values that its elements might have, and an operation is taken only if its
result's sketch is finite and not large.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from tests.random_builder import KINDS, VIEWS, Builder
from tests.random_hopper_surfaces import inside_bits, inside_grouped, inside_hopper
from tests.random_nodes import Drawn, Untenable, describe, pick
from tests.random_surfaces import inside_fallback, inside_matmul, inside_pointwise, inside_reduction


def draw(seed: int) -> Drawn:
    """A valid graph of 1 to 8 operations, drawn from the operations' constraints alone."""
    return _first_tenable(0, seed, _draw)


def _first_tenable(kind: int, seed: int, make: Callable[[Builder, int], Drawn], **options) -> Drawn:
    for attempt in range(200):
        try:
            return make(Builder([kind, seed, attempt], **options), seed)
        except Untenable:
            continue
    raise AssertionError(f"seed {seed} gives no graph")


def _draw(builder: Builder, seed: int) -> Drawn:
    count = pick(builder.rng, {1: 10, 2: 16, 3: 18, 4: 16, 5: 14, 6: 10, 7: 8, 8: 8})
    flavour = pick(builder.rng, {"mixed": 6, "pointwise": 2, "moving": 1, "sums": 1})
    kinds = {
        "mixed": KINDS,
        "pointwise": {"pointwise": 1},
        "moving": {"pointwise": 2, **dict.fromkeys(VIEWS, 1)},
        "sums": {"pointwise": 4, "matmul": 3, "reduction": 3},
    }[flavour]
    for _ in range(count):
        builder.step(kinds)
    results = builder.results()
    sinks = [node for node in results if not node.uses]
    if len(sinks) > 1 and builder.chance(0.05):
        sinks.pop()  # an operation whose result nobody needs
    also = [node for node in results if node.uses and builder.chance(0.1)]
    builder.set_outputs([*sinks, *also], prune=False)
    return builder.drawn(seed)


def draw_inside(seed: int, engine: str = "") -> Drawn:
    """A graph from an engine's stated support surface; the engines for every target take turns.

    engine: of `INSIDE`, which has two parts of matmul_sm90's beside engines.
    """
    engine = engine or EVERYWHERE[seed % len(EVERYWHERE)]
    kind = 1 + list(INSIDE).index(engine)
    drawn = _first_tenable(kind, seed, INSIDE[engine], max_count=(1 << 31) - 1)
    drawn.surface = engine
    return drawn


INSIDE: dict[str, Callable[[Builder, int], Drawn]] = {
    "pointwise": inside_pointwise,
    "reduction": inside_reduction,
    "matmul_sm80": inside_matmul,
    "fallback": inside_fallback,
    "matmul_sm90": inside_hopper,
    "grouped": inside_grouped,
    "bits": inside_bits,
}

# Those that take every target.
EVERYWHERE = ("pointwise", "reduction", "matmul_sm80", "fallback")


def main(arguments: Sequence[str]) -> None:
    seed, kind = int(arguments[0]), arguments[1] if len(arguments) > 1 else ""
    if kind == "broken":
        from .random_broken import draw_broken

        print(draw_broken(seed).description)
        return
    print(describe(draw_inside(seed, kind) if kind else draw(seed)))


if __name__ == "__main__":
    main(sys.argv[1:])
