"""`train`: a bundle's training steps, checked and timed on the device, or in the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from demo.device import describe, why_none
from demo.tables import table
from dnnc.errors import DnncError, Status

from . import training_checks as checks
from .network import network_of
from .run_command import bundle_of
from .training_calls import TrainingCalls, plans_of
from .training_device import LOSS_SCALE, RATE, TrainingDevice
from .training_steps import Training


def train(
    name: str, path: Path, batches: Sequence[int] | None, seed: int, *,
    is_checked: bool = True, is_timed: bool = True,
) -> bool:  # fmt: skip
    """Whether all that was checked is within its bound.

    batches: None for those that the bundle was built for.
    """
    training, bundle = Training(network_of(name)), bundle_of(name, path, " --training")
    built = dict.fromkeys(int(plan.rpartition("@")[2]) for plan in bundle)
    works = [TrainingCalls(training, n, plans_of(bundle, training, n)) for n in batches or built]
    missing = why_none()
    if missing:
        print(f"no CUDA device: {missing}")
        return all([_interpret(work, seed) for work in works])
    return all([_on_device(work, seed, is_checked, is_timed) for work in works])


def _interpret(work: TrainingCalls, seed: int) -> bool:
    from .training_host import MOST_GRADIENT_ERROR, interpreted_gradients, refusal

    why = refusal(work.training.network, work.n)
    if why:
        raise DnncError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, why, "a GPU, or --network tiny"
        )
    print(f"Instead, the plans' PTX of {work.n} images in the interpreter.\n")
    plans = {op: plan.plan for op, plan in work.plans.items()}
    loss, errors = interpreted_gradients(work.training, work.n, seed, plans)
    print(table(("gradient", "error"), [(name, f"{e:.2e}") for name, e in errors.items()]))
    wrong = [name for name, e in errors.items() if not e <= MOST_GRADIENT_ERROR]
    print(f"\nerror: beside the same step in float64; {MOST_GRADIENT_ERROR} allowed.")
    print(f"Loss: {loss:.4f}.  {f'WRONG: {wrong}' if wrong else 'All are within.'}\n")
    return not wrong


def _on_device(work: TrainingCalls, seed: int, is_checked: bool, is_timed: bool) -> bool:
    mega = 1e6
    values = sum(tenant.bytes for tenant in work.tenants)
    print(
        f"{work.n} images on {describe()}.  Arena: {work.arena.bytes / mega:.1f} MB, for "
        f"{values / mega:.1f} MB of values and workspaces, of which "
        f"{work.most_alive / mega:.1f} MB are there at once.\n"
    )
    with TrainingDevice(work, seed) as device:
        is_good = not is_checked or _check(device, seed)
        if is_timed:
            _show_times(device)
    return is_good


def losses_and_gradients(device: TrainingDevice) -> tuple[list[float], dict[str, Any]]:
    """The start of training: losses of checks.STEPS steps, gradients of the first."""
    device.reset()
    device.step()
    losses, gradients = [device.loss()], device.gradients()
    for _ in range(checks.STEPS - 1):
        device.step()
        losses.append(device.loss())
    return losses, gradients


def _check(device: TrainingDevice, seed: int) -> bool:
    losses, gradients = losses_and_gradients(device)
    again, _ = losses_and_gradients(device)
    is_good = losses == again
    if not is_good:
        print("WRONG: losses of the same steps differ from run to run")
    try:
        import torch  # noqa: F401
    except ImportError:
        print(f"Losses: {_numbers(losses)}.  Not compared: there is no torch.\n")
        return is_good and all(loss == loss for loss in losses)
    from .torch_training import reference

    network, n = device.work.training.network, device.work.n
    given = network, n, seed, RATE, LOSS_SCALE, checks.STEPS
    exact, exact_losses = reference(*given, is_half=False)
    half, half_losses = reference(*given, is_half=True)
    found = checks.compare_gradients(gradients, half, exact)
    found.append(checks.compare_losses(losses, half_losses, exact_losses))
    _show(found)
    rows: Mapping[str, Sequence[float]] = {
        "dnnc": losses, "f16 autocast": half_losses, "float32": exact_losses,
    }  # fmt: skip
    for name, numbers in rows.items():
        print(f"losses, {name}: {_numbers(numbers)}")
    print()
    return all(c.is_good for c in found) and is_good


def _numbers(numbers: Sequence[float]) -> str:
    return " ".join(f"{number:.5f}" for number in numbers)


def _show(found: Sequence[checks.Comparison]) -> None:
    """The worst of each kind of parameter, and all that are wrong."""
    kinds: dict[str, list[checks.Comparison]] = {}
    for comparison in found:
        kinds.setdefault(comparison.name.rpartition(".")[2], []).append(comparison)
    rows: list[tuple[object, ...]] = []
    for kind, mine in kinds.items():
        worst = max(mine, key=lambda c: c.ours / c.bound)
        rows.append((kind, len(mine), worst.name, f"{worst.ours:.2e}", f"{worst.theirs:.2e}",
                     f"{worst.ours / max(worst.theirs, 1e-30):.2f}"))  # fmt: skip
    headers = ("gradients", "of them", "the worst", "error", "of autocast", "ratio")
    print(table(headers, rows))
    print(f"\nerror: beside torch in float32; at most {checks.MOST} times that of autocast.")
    for c in found:
        if not c.is_good:
            print(f"WRONG: {c.name}: error {c.ours:.2e}, {c.bound:.2e} allowed")


def _show_times(device: TrainingDevice) -> None:
    replayed, launched = device.seconds()
    steps, n = device.step_seconds(), device.work.n
    kinds: dict[str, list[float]] = {}
    for step in device.work.training.steps:
        kinds.setdefault(type(step.op).__name__, []).append(steps[step.name])
    rows = [(kind, len(mine), f"{1e6 * sum(mine):.0f}") for kind, mine in kinds.items()]
    print(table(("operation", "steps", "us"), rows))
    slow = sorted(steps.items(), key=lambda item: -item[1])[:12]
    print("\nThe slowest: " + ", ".join(f"{name} {1e6 * s:.0f} us" for name, s in slow) + ".")
    print(
        f"All steps there: {1e6 * sum(steps.values()):.0f} us.  "
        f"Launched one by one: {1e6 * launched:.0f} us.\n"
        f"As one CUDA graph: {1e6 * replayed:.0f} us, {n / replayed:.0f} images a second.\n"
    )
