# pyright: basic
"""`dnnc bench`: how long a plan takes on this machine's GPU."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import console
from .arguments import GraphOrPlan, OneTarget, PlanName, Sizes, parse_settings
from .problem import inputs_of, read_problem

if TYPE_CHECKING:
    from .on_device import Loaded

# A round is as many calls as take about this long, so that the clock's grain does not matter.
_ROUND_SECONDS = 0.05
_WARM_CALLS = 10
# Below this the launch from Python takes longer than the kernel.
_LAUNCH_SECONDS = 20e-6


def register(app: typer.Typer) -> None:
    console.add_command(
        app,
        "bench",
        bench,
        "dnnc bench ffn.dnnplan --size tokens=4096",
        "dnnc bench ffn.py --rounds 21 --target sm_90a --plot ffn.svg",
    )


def bench(
    file: GraphOrPlan,
    size: Sizes = None,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Timed rounds.")] = 7,
    target: OneTarget = None,
    plan: PlanName = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also draw the rounds: a .svg, .png or .pdf file; needs the extra bench.",
        ),
    ] = None,
) -> None:
    """Times a plan on the GPU, with random inputs.

    A round is many calls of the bound plan between two synchronizations of the device, on the
    host's clock.  The bandwidth counts each element of the inputs and outputs once.  The buffers
    stay the same, so that small ones are read from the L2 cache.
    """
    from ..runtime import driver
    from .on_device import loaded
    from .plot import plot as draw
    from .plot import require_plot

    if plot is not None:
        require_plot(plot)
    sizes = parse_settings(size or [], "--size")
    place = driver.device()
    problem = read_problem(file, plan)
    arrays, found = inputs_of(problem.graph, [], sizes, seed=0, is_random=True)
    made = problem.plan_for(target)
    console.field("device", f"cuda ({place.name})")
    with loaded(made, arrays, found) as work:
        seconds, calls = _timed(work, rounds)
        _show(seconds, calls, work.element_bytes)
        if plot is not None:
            at = "".join(f", {name} = {value:,}" for name, value in found.items())
            title = f"{made.name}{at} on {place.name}"
            draw(plot, title, seconds, calls, work.element_bytes)
            console.field("plot", str(plot))


def _timed(work: Loaded, rounds: int) -> tuple[list[float], int]:
    """(seconds a call of each round, calls a round)."""
    _round(work, _WARM_CALLS)
    calls = max(1, round(_ROUND_SECONDS / _round(work, _WARM_CALLS)))
    with console.working("timing"):
        return [_round(work, calls) for _ in range(rounds)], calls


def _round(work: Loaded, calls: int) -> float:
    """Seconds a call."""
    from ..runtime import driver

    driver.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        work.call()
    driver.synchronize()
    return (time.perf_counter() - began) / calls


def _show(seconds: list[float], calls: int, bytes_: int) -> None:
    median = statistics.median(seconds)
    spread = f"{console.seconds_text(min(seconds))} to {console.seconds_text(max(seconds))}"
    console.field("time", f"{console.seconds_text(median)} a call (median of {len(seconds)} rounds")
    console.field("", f"of {calls} calls, {spread})")
    console.field("bandwidth", f"{bytes_ / median / 1e9:.4g} GB/s for {bytes_:,} bytes")
    if median < _LAUNCH_SECONDS:
        console.field("note", "so short a time is that of the launch from Python, not the kernel's")
