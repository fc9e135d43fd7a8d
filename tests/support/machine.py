"""Machines that run the plans of tests: the interpreter, or in tests/gpu the CUDA device."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dnnc.interpreter.plans import run_plan

from . import device, seeds


@dataclass(frozen=True)
class Machine:
    """run: (plan, inputs, sizes=, seed=) -> uid -> stored array.

    target: what graphs are compiled for, unless a test says.  seed: added to that of inputs.
    cut: allowed of sums of convolutions that cancel, which tensor cores cut and do not round.
    """

    run: Callable[..., dict[int, Any]]
    target: str
    seed: int = 0
    cut: float = 0.0


INTERPRETER = Machine(partial(run_plan, watch_global=True), "sm_80")
_current = INTERPRETER


def current():
    return _current


def use(machine):
    """Makes later checks run there; gives what they ran on before."""
    global _current
    before, _current = _current, machine
    return before


def cuda():
    """The CUDA device, with fresh inputs."""
    return Machine(device.run_plan, device.target(), seeds.BASE, 1e-4)
