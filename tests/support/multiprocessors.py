"""Devices of few SMs, so that small tensors give every block as much to do as large
ones on a whole device."""

import dataclasses

from dnnc import target as targets

from . import machine


def few(monkeypatch, count, name="sm_90a"):
    """Compiles for, and interprets, a device of so many; one that is there keeps its own.

    Gives how many there are then.  With fewer than 12, clusters of eight blocks can't be ranked.
    """
    if machine.current() is machine.INTERPRETER:
        row = dataclasses.replace(targets.of(name), sm_count=count)
        monkeypatch.setitem(targets._BY_NAME, name, row)
    return targets.of(name).sm_count
