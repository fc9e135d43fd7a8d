"""Random configs of drawn graphs: `any_config`."""

from dnnc import target as targets
from dnnc.choosing import heuristics
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named

from .support import machine

# Knobs for small graphs: code that is unrolled far takes seconds to assemble.
_SMALL = {
    "ARRAY_SIZE_PER_THREAD": (1, 1, 1, 2, 4),
    "TILE_ROWS": (1, 2, 4, 8, 16, 32, 64),
    "SPLIT_K_SLC": (1, 1, 1, 2, 8, 32),
    "TILE_M": (32, 32, 64),
    "TILE_N": (64, 64, 128),
    "STAGES": (2, 3, 4),
    "TF32": (3, 3, 1),
}


_SMALL_HOPPER = {
    "TILE_M": (16, 64, 64, 64, 128),
    "TILE_N": (8, 32, 64, 64, 128),
    "STAGES": (2, 3, 4),
    "TILE_CGA_M": (1, 1, 2),
    "TILE_CGA_N": (1, 1, 2),
    "SPLIT_K_SLC": (1, 1, 2),
    "WARP_SPEC_CFG": (1, 1, 2),
}
# What is seldom legal is tried more often.
_SMALL_FRAGMENTS = {
    **_SMALL_HOPPER,
    "TILE_CGA_M": (1, 1, 1, 2),
    "TILE_CGA_N": (1, 1, 1, 2),
    "SPLIT_K_SLC": (1, 2, 2, 4),
    "WARP_SPEC_CFG": (1, 2, 3, 3, 3, 3),
}
_SMALL_OF = {
    "matmul_sm90": _SMALL_HOPPER, "grouped": _SMALL_FRAGMENTS, "bits": _SMALL_FRAGMENTS
}  # fmt: skip


TRIES = 5000  # to find legal knobs at random


def any_knobs(engine, fusion, rng, surface=""):
    """Legal knobs of an engine, at random; surface: of which the graph is, if of one."""
    small = _SMALL_OF.get(surface or engine.name, _SMALL)
    place = target(engine.name)
    for _ in range(TRIES):
        knobs = {
            knob.name: int(rng.choice(_values_of(knob, small)))
            for knob in engine.knobs(fusion, place)
        }
        if not engine.legal(knobs, fusion, place):
            return knobs
    candidates = engine.candidates(fusion, place)
    assert candidates, f"{engine.name} supports {fusion} with no knobs"
    return candidates[int(rng.integers(0, len(candidates)))]


def _values_of(knob, small):
    """Returns the knob's values that small graphs take; all, if it has none of these."""
    return [value for value in small.get(knob.name, ()) if value in knob.values] or knob.values


def any_config(drawn, rng):
    """A config of a drawn graph: the best, or its engines (the intended one) with other knobs."""
    graph = drawn.graph
    config = heuristics.best_config(graph, target(drawn.engine))
    if rng.random() < 0.15:
        return config
    picks = [(choice.engine, choice.fusion) for choice in config.choices]
    if drawn.engine:
        picks = [(engine_named(drawn.engine), *partition(graph, [graph.live_ops]))]
    choices = [
        heuristics.with_knobs(
            engine, fusion, any_knobs(engine, fusion, rng, drawn.surface), target(drawn.engine)
        )
        for engine, fusion in picks
    ]
    return heuristics.EngineConfig(tuple(choices), config.split_reason)


def target(engine=""):
    """Returns the target of graphs that are run, in the interpreter or on the device.

    engine: whose surface they were drawn from.
    """
    return targets.of("sm_90a" if engine == "matmul_sm90" else machine.current().target)
