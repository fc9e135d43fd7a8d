"""The default target, where neither the caller nor the graph names one.

A device that is here decides.  Without one, a plan gets code for any card: for sm_80, whose PTX
newer architectures take, and for Hopper, whose own engines are twice as fast there.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from .. import log
from .. import target as targets
from ..errors import DnncError, cudnnGraphNotSupportedError
from ..target import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dialect.graph import OperationGraph
    from ..options import Options
    from ..plan.plan import Plan

_log = log.logger(__name__)


def default_rows() -> tuple[Target, ...]:
    """The row of the current device, else those of one plan for any card."""
    here = _row_here()
    return (here,) if here is not None else targets.of_list(targets.PORTABLE)


def single_target() -> str:
    """The name of the current device's target, else sm_90a: where one target is wanted."""
    here = _row_here()
    return here.name if here is not None else targets.SINGLE


def _row_here() -> Target | None:
    """The row of the current device; None without a driver, a device, or a row for it."""
    try:
        ctypes.CDLL("libcuda.so.1")  # far quicker than the bindings say that there is none
    except OSError:
        return None
    from ..runtime import driver

    try:
        return targets.of_capability(*driver.device().capability)
    except DnncError as error:
        _log.info("no device decides the target: %s", error)
        return None


def compiled_for_default(
    graph: OperationGraph,
    options: Options,
    compile_for: Callable[[tuple[Target, ...]], Plan],
) -> Plan:
    """The plan of a graph that names no target; compile_for makes it for some rows.

    A graph that one of a portable plan's rows can't run gets code for the others, which is logged
    with the reason.  One that none can run is the error of the last.
    """
    rows = default_rows()
    try:
        return compile_for(rows)
    except cudnnGraphNotSupportedError:
        if len(rows) == 1:
            raise
        fitting, refused = _fitting_rows(graph, options)
        if not fitting:
            raise refused[-1] from None
        if fitting == rows:
            raise
    for error in refused:
        _log.warning("%s", error.summary)
    return compile_for(fitting)


def _fitting_rows(
    graph: OperationGraph, options: Options
) -> tuple[tuple[Target, ...], list[DnncError]]:
    """(the rows of a plan for any card that can run the graph, why others can't).

    sm_89 stands in for sm_80 where a graph needs what sm_80 lacks, such as fp8 conversion.
    """
    from ..choosing import heuristics
    from ..choosing.inputs import inputs_of
    from ..choosing.nearest import no_config_error

    inputs = inputs_of(options)
    oldest, hopper = targets.of_list(targets.PORTABLE)
    found: list[Target] = []
    refused: list[DnncError] = []
    for rows in ((oldest, targets.of(targets.OLDEST_WITH_FP8)), (hopper,)):
        for row in rows:
            if next(iter(heuristics.configs(graph, row, options.modes, inputs)), None) is not None:
                found.append(row)
                break
            refused.append(no_config_error(graph, row, inputs))
    return tuple(found), refused
