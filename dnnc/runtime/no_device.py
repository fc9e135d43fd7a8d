# pyright: basic
"""Checks of a call, as far as they need no device.

Without a driver or a device every call fails; who prepares one on such a machine is told first what
would fail everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import DnncError, Status
from ..expr import DEVICE_VARIABLES
from ..plan.plan import Plan
from .buffers import (
    NO_BUFFER,
    Buffer,
    Span,
    verify_apart,
    verify_buffer,
    verify_workspace_form,
)
from .sized import tensors_at


def verify_buffers(plan: Plan, buffers: Sequence[Buffer], sizes: Mapping[str, int]) -> list[Span]:
    """Buffers fit the plan's tensors at these sizes and lie apart; gives what they take.

    buffers: in the order of the plan's tensors, NO_BUFFER for numbers and what is not given.
    """
    spans: list[Span] = []
    for tensor, buffer in zip(tensors_at(plan, sizes), buffers, strict=True):
        if buffer is not NO_BUFFER:
            verify_buffer(tensor, buffer, None)
            spans.append(Span(tensor.record, buffer.address, tensor.bytes))
    verify_apart(spans, plan.may_alias)
    return spans


def verify_workspace(
    plan: Plan, spans: Sequence[Span], workspace: Buffer, sizes: Mapping[str, int], where: str
) -> None:
    """A workspace is as large as the plan needs it on any device, aligned and apart.

    where: what errors call it.
    """
    needed = _workspace_bytes(plan, sizes)
    if needed and workspace is NO_BUFFER:
        raise DnncError(Status.BAD_PARAM, "none is given", f"{needed} bytes", where)
    if needed:
        verify_workspace_form(workspace, needed, spans, where)


def _workspace_bytes(plan: Plan, sizes: Mapping[str, int]) -> int:
    """The least workspace that any program needs at these sizes; 0 where that is the device's."""
    least: list[int] = []
    for program in plan.programs:
        for variant in program.variants:
            texts = variant.guard, variant.workspace_bytes
            if any(name in text for name in DEVICE_VARIABLES for text in texts):
                return 0
            if plan.guard(variant.guard).compiled()(sizes):
                least.append(plan.expression(variant.workspace_bytes).evaluate(sizes))
                break
    return min(least, default=0)
