"""`run`: a bundle's passes, checked and timed on the device, or checked in the interpreter."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dnnc
from demo.device import describe, why_none
from demo.tables import table
from dnnc.errors import DnncError, Status

from . import checks
from .checks import Verdict
from .forward import ANY, Forward, batches_of, plans_of
from .network import ELEMENT_BYTES, Layer, Operation, bytes_of, elements, flops_of, network_of

if TYPE_CHECKING:
    from dnnc.runtime import LoadedBundle

    from .device import Device


def bundle_of(name: str, path: Path, options: str = "") -> LoadedBundle:
    """A file's plans.  options: of `build` besides the network and the file."""
    try:
        return dnnc.load_bundle(path)
    except DnncError:
        if path.exists():
            raise
    raise DnncError(
        Status.BAD_PARAM,
        "no such file",
        f"a bundle that `build{options} --network {name} --bundle {path}` has made",
        str(path),
    )


def run(
    name: str, path: Path, batches: Sequence[int] | None, seed: int, *,
    is_checked: bool = True, is_timed: bool = True,
) -> bool:  # fmt: skip
    """Whether all that was checked is within its bound.

    batches: None for those that the bundle was built for.
    """
    network, bundle = network_of(name), bundle_of(name, path)
    built = batches_of(bundle)
    sizes = batches or [int(n) for n in built if n != ANY]
    if not sizes:
        raise DnncError(
            Status.BAD_PARAM, "no number of images", "--batch N: plans are for any", str(path)
        )
    passes = [Forward(network, n, plans_of(bundle, network, n)) for n in sizes]
    missing = why_none()
    if missing:
        print(f"no CUDA device: {missing}")
        return all([_interpret(forward, seed) for forward in passes])
    return all([_on_device(forward, seed, is_checked, is_timed) for forward in passes])


def _interpret(forward: Forward, seed: int) -> bool:
    from .interpreted import Interpreted, refusal

    why = refusal(forward.network, forward.n)
    if why:
        raise DnncError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, why, "a GPU, or --network small"
        )
    print(f"Instead, the plans' PTX of {forward.n} images in the interpreter.\n")
    work = Interpreted(forward, seed)
    is_good = _show_verdicts(work.layer_verdicts())
    return _show_logits(work.network_verdict()) and is_good


def _on_device(forward: Forward, seed: int, is_checked: bool, is_timed: bool) -> bool:
    from .device import Device

    values = forward.n * sum(elements(layer.op.y_shape) for layer in forward.network.layers)
    print(
        f"{forward.n} images on {describe()}.  Arena: {forward.arena.bytes / 1e6:.1f} MB, for "
        f"{values * ELEMENT_BYTES / 1e6:.1f} MB of values and "
        f"{sum(forward.workspaces.values()) / 1e6:.1f} MB of workspaces.\n"
    )
    with Device(forward, seed) as device:
        is_good = not is_checked or _check(device)
        if is_timed:
            _show_times(device)
    return is_good


def _check(device: Device) -> bool:
    from . import device_checks

    seen = device_checks.memory()
    is_good = _show_verdicts(device_checks.layer_verdicts(device, seen))
    exact = device_checks.exact_logits(device, seen)
    launched, replayed = device.logits(device.launch), device.replayed_logits()
    if launched.tobytes() != replayed.tobytes():
        print("WRONG: as a CUDA graph, the layers give other bits than launched one by one")
        is_good = False
    verdict = checks.network_verdict(device.forward.network, replayed[: len(exact)], exact)
    print(f"Compared with {seen.arithmetic.what}, {len(exact)} of {device.forward.n} images.")
    return _show_logits(verdict) and is_good


# ---- what is shown


def _show_verdicts(found: Iterable[tuple[Layer, Verdict]]) -> bool:
    """A line an operation, of its worst layer, and one for each layer that is wrong."""
    worst: dict[Operation, tuple[int, Verdict]] = {}
    wrong: list[tuple[Layer, Verdict]] = []
    for layer, verdict in found:
        if not verdict.is_good:
            wrong.append((layer, verdict))
        count, before = worst.get(layer.op, (0, verdict))
        worst[layer.op] = count + 1, max(before, verdict, key=lambda v: v.share)
    rows = [
        (op.id, count, f"{v.error:.2e}", f"{v.bound:.2e}", f"{v.element_error:.2e}")
        for op, (count, v) in worst.items()
    ]
    print(table(("operation", "layers", "error", "allowed", "of an element"), rows))
    print("\nerror: ||y - exact|| / ||exact|| of the worst layer, given what those before it made.")
    for layer, verdict in wrong:
        print(f"WRONG: {layer.name}, {layer.op.id}: {verdict}")
    return not wrong


def _show_logits(verdict: Verdict) -> bool:
    is_good = verdict.is_good
    print(f"Logits: error {verdict.error:.2e}, {verdict.bound:.2e} allowed.")
    print("All are within what is allowed.\n" if is_good else f"WRONG: {verdict}\n")
    return is_good


def _show_times(device: Device) -> None:
    """A line an operation: its layers' median, and all of them."""
    times, n = device.times(), device.forward.n
    rows: list[tuple[object, ...]] = []
    for op, count in device.forward.network.operations.items():
        mine = [times.layers[x.name] for x in device.forward.network.layers if x.op == op]
        rows.append((op.id, count, *_rates(statistics.median(mine), op, n), _us(sum(mine))))
    print(table(("operation", "layers", "us", "TFLOP/s", "GB/s", "all us"), rows))
    print(
        "\nus: of a layer, in a CUDA graph with an event after each, which add about 1 us.\n"
        f"All layers there: {_us(sum(times.layers.values()))} us.  "
        f"Launched one by one: {_us(times.launched)} us.\n"
        f"As one CUDA graph: {_us(times.replayed)} us, {n / times.replayed:.0f} images a second.\n"
    )


def _rates(seconds: float, op: Operation, n: int) -> tuple[str, str, str]:
    flops, bytes_ = flops_of(op, n) / seconds, bytes_of(op, n) / seconds
    return _us(seconds), f"{flops / 1e12:.0f}", f"{bytes_ / 1e9:.0f}"


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:.1f}"
