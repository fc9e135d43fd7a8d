"""Prints a summary of the plan that `dnnc compile` made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..plan.plan import FusionRecord, Kernel, Plan, Program
from ..progress import STAGES
from . import console


def print_summary(
    plan: Plan, path: str, times: Sequence[dict[str, float]], explain: bool = False
) -> None:
    """The file, then a line a kernel, then the times of the stages.

    explain: whether the reasons of all engines are wanted.
    """
    size = Path(path).stat().st_size
    console.heading(f"{path}: plan '{plan.name}', {size:,} bytes, key {plan.key[:12]}")
    print_kernels(plan, explain)
    print_times(plan, times)


def print_kernels(plan: Plan, explain: bool = False) -> None:
    """A line a kernel, why there are several, and what would make them faster."""
    _print_kernels(plan)
    console.show_hints(plan)
    for program in plan.programs:
        if program.split_reason:
            console.show_split(f"{program.target}: ", program.split_reason, explain)


def print_times(plan: Plan, times: Sequence[dict[str, float]]) -> None:
    """The times of the stages; none: a remark that the plan was there."""
    if times:
        _print_times(plan, times)
    else:
        console.note("from the cache; --no-cache compiles anew")


def _print_kernels(plan: Plan) -> None:
    table = console.table(
        "target", "engine", "knobs", "kernel", ">registers", ">spills", ">shared memory"
    )
    for program in plan.programs:
        for sizes, index, fusion in placed_fusions(program):
            kernels = _own_kernels(program, index, fusion)
            for place, kernel in enumerate(kernels):
                target = program.target if sizes == "1" else f"{program.target}, {sizes}"
                first = (target, fusion.engine, console.knobs_text(fusion.knobs))
                table.add_row(
                    *(first if place == 0 else ("", "", "")),
                    kernel.name,
                    str(kernel.registers),
                    _spills_text(kernel),
                    _smem_text(program, kernel),
                )
    console.show(table)


def _own_kernels(program: Program, index: int, fusion: FusionRecord) -> list[Kernel]:
    """The kernels of a fusion; none where they are those of an equal one before it."""
    prefix = f"fusion{index}_"
    return [k for k in program.kernels if k.module == fusion.module and k.name.startswith(prefix)]


def placed_fusions(program: Program) -> Iterator[tuple[str, int, FusionRecord]]:
    """(guards of the variants that use it, place among its config's fusions, fusion)."""
    guards: dict[int, list[str]] = {}
    for variant in program.variants:
        guards.setdefault(program.config_of(variant), []).append(variant.guard)
    counts: dict[int, int] = {}
    for fusion in program.fusions:
        config = fusion.config_place
        index = counts.get(config, 0)
        counts[config] = index + 1
        taken = guards.get(config, ["1"])
        others = len(program.variants) > 1
        yield ", ".join("other sizes" if g == "1" and others else g for g in taken), index, fusion


def _spills_text(kernel: Kernel) -> str:
    """Bytes a thread spills, stores + loads."""
    return f"{kernel.spill_store_bytes + kernel.spill_load_bytes} B"


def _smem_text(program: Program, kernel: Kernel) -> str:
    """Bytes of shared memory of a block: static, and what its launches add."""
    dynamic = {
        step.launch.dynamic_smem_bytes
        for variant in program.variants
        for step in variant.steps
        if step.launch is not None and step.launch.kernel == kernel.name
    } - {"0"}
    parts = [str(kernel.static_smem_bytes)] if kernel.static_smem_bytes or not dynamic else []
    return " + ".join([*parts, *sorted(dynamic)]) + " B"


def _print_times(plan: Plan, times: Sequence[dict[str, float]]) -> None:
    taken = {stage for row in times for stage in row}
    stages = [stage for stage in STAGES if stage in taken]
    table = console.table("stage times", *(f">{stage}" for stage in stages), ">all")
    for program, row in zip(plan.programs, times, strict=False):
        shown = [console.seconds_text(row[s]) if s in row else "" for s in stages]
        table.add_row(program.target, *shown, console.seconds_text(sum(row.values())))
    console.blank()
    console.show(table)
