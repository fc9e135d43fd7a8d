"""`run`: a bundle's phases, checked and timed on the device, or checked in the interpreter."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import dnnc
from demo.device import describe, why_none
from demo.tables import table
from dnnc.errors import DnncError, Status

from .phases import Phase, Step, phases_of
from .reference import Verdict
from .walk import Plans
from .work import work_of

if TYPE_CHECKING:
    from .device import Device


def run(
    path: Path, seed: int, *, is_interpreted: bool = False, is_checked: bool = True,
    is_timed: bool = True,
) -> bool:  # fmt: skip
    """Whether all that was checked is within its bound."""
    bundle = dnnc.load_bundle(path)
    phases = phases_of(bundle)
    missing = [name for phase in phases for name in _plans(phase) if name not in bundle]
    if missing or not phases:
        what = f"no plan {missing[0]}" if missing else "no plan of a phase"
        raise DnncError(Status.BAD_PARAM, what, "a bundle that `build` wrote", str(path))
    if is_interpreted:
        return all([_interpret(phase, bundle, seed) for phase in phases])
    if why := why_none():
        raise DnncError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, f"no CUDA device: {why}",
            "a GPU, or --interpreted and a bundle of the model small",
        )  # fmt: skip
    return all([_on_device(phase, bundle, seed, is_checked, is_timed) for phase in phases])


def _plans(phase: Phase) -> list[str]:
    return [step.plan for step in phase.steps if isinstance(step, Step)]


def _interpret(phase: Phase, plans: Plans, seed: int) -> bool:
    from .interpreted import Interpreted, refusal

    if why := refusal(phase):
        raise DnncError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, why,
            "a GPU, or a bundle of the model small", phase.name,
        )  # fmt: skip
    print(f"{phase.name}: the plans' PTX in the interpreter.\n")
    work = Interpreted(phase, plans, seed)
    is_good = _show_verdicts(work.verdicts())
    return _show_layer(work.layer_verdict()) and is_good


def _on_device(phase: Phase, plans: Plans, seed: int, is_checked: bool, is_timed: bool) -> bool:
    from .device import Device

    print(f"{phase.name} on {describe()}.\n")
    with Device(phase, plans, seed) as device:
        is_good = not is_checked or _check(device)
        if is_timed:
            _show_times(device)
    return is_good


def _check(device: Device) -> bool:
    from . import device_checks

    seen = device_checks.memory()
    is_good = _show_verdicts(device_checks.verdicts(device, seen))
    launched, replayed = device.output(device.launch), device.replayed_output()
    if launched.tobytes() != replayed.tobytes():
        print("WRONG: as a CUDA graph, the steps give other bits than launched one by one")
        is_good = False
    print(f"Compared with {seen.what}.")
    return _show_layer(device_checks.layer_verdict(device, seen, replayed)) and is_good


# ---- what is shown


def _show_verdicts(found: Iterable[tuple[Step, Verdict]]) -> bool:
    """A line a step."""
    rows: list[tuple[object, ...]] = []
    is_good = True
    for step, v in found:
        is_good &= v.is_good
        figures = (f"{x:.2e}" for x in (v.error, v.bound, v.element_error))
        rows.append((step.name, step.plan, *figures, "ok" if v.is_good else "WRONG"))
    print(table(("step", "plan", "error", "allowed", "of an element", ""), rows))
    print("\nerror: ||y - exact|| / ||exact||, given what the steps before made.")
    return is_good


def _show_layer(verdict: Verdict) -> bool:
    print(f"The layer's output: error {verdict.error:.2e}, {verdict.bound:.2e} allowed.")
    good = "All are within what is allowed.\n" if verdict.is_good else f"WRONG: {verdict}\n"
    print(good)
    return verdict.is_good


def _show_times(device: Device) -> None:
    """A line a step, and the whole."""
    times, rows = device.times(), list[tuple[object, ...]]()
    for step in device.phase.steps:
        seconds = times.steps[step.name]
        if isinstance(step, Step):
            flops, bytes_ = work_of(device.plans[step.plan].plan, step, device.used)
            rates = f"{flops / seconds / 1e12:.0f}", f"{bytes_ / seconds / 1e9:.0f}"
        else:
            rates = "", ""
        rows.append((step.name, _us(seconds), *rates))
    print(table(("step", "us", "TFLOP/s", "GB/s"), rows))
    tokens = device.phase.tokens / times.replayed
    print(
        "\nus: in a CUDA graph with an event after each step, which add about 1 us.\n"
        f"All steps there: {_us(sum(times.steps.values()))} us.  "
        f"Launched one by one: {_us(times.launched)} us.\n"
        f"As one CUDA graph: {_us(times.replayed)} us, {tokens:.0f} tokens a second and layer.\n"
    )


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:.1f}"
