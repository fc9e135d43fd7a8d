# pyright: basic
"""`dnnc run`: a graph or a plan on arrays, on a GPU, the NumPy reference or the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from . import console
from .arguments import GraphOrPlan, OneTarget, PlanName, Sizes, parse_settings
from .problem import Problem, inputs_of, read_problem


class Device(StrEnum):
    """Where it runs."""

    cuda = "cuda"
    cpu = "cpu"
    interpreter = "interpreter"


def register(app: typer.Typer) -> None:
    console.add_command(
        app,
        "run",
        run,
        "dnnc run ffn.dnnplan inputs.npz -o outputs.npz",
        "dnnc run ffn.py x=x.npy w=w.npy b=b.npy --device cpu -o y.npy",
        "dnnc run ffn.dnnplan --random --size tokens=37 --device interpreter --check",
    )


def run(
    file: GraphOrPlan,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="FILE.npz, NAME=FILE.npy or NAME=NUMBER; NAME is a tensor's name or uid.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the outputs: .npz, or .npy if there is one.",
        ),
    ] = None,
    device: Annotated[
        Device | None,
        typer.Option(
            "--device",
            "-d",
            help="cuda: a GPU.  cpu: the NumPy reference.  interpreter: the plan's PTX on NumPy, "
            "for small sizes.  [dim]\\[default: cuda where there is one, else cpu][/]",
            show_default=False,
        ),
    ] = None,
    size: Sizes = None,
    random: Annotated[
        bool, typer.Option("--random", help="Fill inputs that are not given with random numbers.")
    ] = False,
    seed: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Seed of --random and of the interpreter's schedule."
        ),
    ] = 0,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Compare with the float64 reference; exit with 1 if an error is over its bound.",
        ),
    ] = False,
    target: OneTarget = None,
    plan: PlanName = None,
) -> None:
    """Runs a graph or a plan on arrays, and shows or writes the outputs.

    Arrays have the tensors' logical dims; they are stored with the tensors' strides, and rounded
    to their types.  bf16 and fp8 outputs are written as float32, which holds them exactly.
    """
    sizes = parse_settings(size or [], "--size")
    problem = read_problem(file, plan)
    if output is not None:
        from .arrays import verify_output

        verify_output(output, problem.graph)
    chosen = device or _default_device()
    arrays, found = inputs_of(problem.graph, inputs or [], sizes, seed=seed, is_random=random)
    if chosen is Device.cpu and target is not None:
        raise typer.BadParameter("no kernel runs with --device cpu", param_hint="--target")
    outputs = _RUNNERS[chosen](problem, arrays, found, target, seed)
    _show_outputs(problem, outputs)
    if output is not None:
        from .arrays import write_outputs

        write_outputs(output, problem.graph, outputs)
        console.field("wrote", str(output))
    if check:
        _check(problem, arrays, found, outputs)


def _default_device() -> Device:
    from ..runtime import driver

    return Device.cuda if driver.is_available() else Device.cpu


# ---- the three ways


def _on_cuda(
    problem: Problem, arrays: Any, sizes: Mapping[str, int], target: str | None, seed: int
) -> dict[int, Any]:
    from ..runtime import driver
    from .on_device import loaded

    place = driver.device()
    plan = problem.plan_for(target)
    capability = ".".join(map(str, place.capability))
    console.field("device", f"cuda ({place.name}, compute capability {capability})")
    with loaded(plan, arrays, sizes) as work:
        work.call()
        return work.outputs()


def _on_cpu(
    problem: Problem, arrays: Any, sizes: Mapping[str, int], target: str | None, seed: int
) -> dict[int, Any]:
    from ..dialect.reference import reference

    console.field("device", "cpu (NumPy reference; no kernel ran)")
    with console.working("running the reference"):
        return reference(problem.graph, arrays, sizes=sizes)


def _in_interpreter(
    problem: Problem, arrays: Any, sizes: Mapping[str, int], target: str | None, seed: int
) -> dict[int, Any]:
    from ..dialect.reference import undefined_parts
    from ..interpreter.plans import run_plan

    plan = problem.plan_for(target)
    name = plan.programs[0].target
    console.field("device", f"interpreter (the plan's PTX for {name} on NumPy, seed {seed})")
    partial = undefined_parts(problem.graph, arrays, sizes=sizes)
    with console.working("interpreting"):
        return run_plan(plan, arrays, sizes=sizes, target=name, seed=seed, partial=partial.keys())


_RUNNERS = {Device.cuda: _on_cuda, Device.cpu: _on_cpu, Device.interpreter: _in_interpreter}


# ---- what came out


def _show_outputs(problem: Problem, outputs: Mapping[int, Any]) -> None:
    import numpy as np

    from ..rounding import widen
    from .arrays import key_of

    table = console.table("output", "type", "dims", ">min", ">max", ">mean", "first elements")
    for tensor in problem.graph.outputs:
        assert tensor.uid is not None
        array = widen(outputs[tensor.uid])
        facts = (array.min(), array.max(), np.mean(array)) if array.size else ()
        numbers = [_number_text(v) for v in facts] or ["", "", ""]
        first = " ".join(map(_number_text, array.ravel()[:4]))
        table.add_row(
            key_of(problem.graph, tensor),
            tensor.type.name,
            console.shape_text(array.shape),
            *numbers,
            first,
        )
    console.show(table)


def _number_text(value: Any) -> str:
    """An integer whole, a float by five digits."""
    import numpy as np

    return str(value) if isinstance(value, np.integer) else f"{value:.5g}"


def _check(
    problem: Problem, arrays: Any, sizes: Mapping[str, int], outputs: Mapping[int, Any]
) -> None:
    """A line an output; exit status 1 if one is over its bound."""
    from .arrays import key_of
    from .check import compare

    table = console.table(
        "check", ">relative error", ">bound", ">worst in its row", ">bound", "verdict"
    )
    verdicts = compare(problem.graph, arrays, sizes, outputs)
    for verdict in verdicts:
        strange = f" ({verdict.strange} NaN or infinities elsewhere)" if verdict.strange else ""
        table.add_row(
            key_of(problem.graph, verdict.tensor),
            f"{verdict.error:.3g}",
            f"{verdict.bound:.3g}",
            f"{verdict.worst:.3g}",
            f"{verdict.worst_bound:.3g}",
            "good" if verdict.is_good else f"OVER THE BOUND{strange}",
        )
    console.blank()
    console.show(table)
    if not all(verdict.is_good for verdict in verdicts):
        raise typer.Exit(1)
