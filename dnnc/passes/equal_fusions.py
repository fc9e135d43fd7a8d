# pyright: basic
"""Fusions that differ in uids and names alone: their kernels are made once, and launched for each.

    @g_fusion1(%x {uid = 14}, %w {uid = 5}) -> {uid = 17}      kernel fusion1_matmul_sm90, emitted
    @g_fusion3(%x {uid = 20}, %w {uid = 11}) -> {uid = 23}     steps of fusion1 with 20, 11 and 23

A network has the same layer many times; each has its own launches and workspace, the code is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..codegen.output import Output
from ..dialect import structure
from ..expr import Expr
from ..plan.plan import Arg, Step

_NAME = re.compile(r'dnn\.name = "(?:[^"\\]|\\.)*"(?:, )?')
_UID = re.compile(r"\bdnn\.(uid|prior_of) = (-?\d+)")
# Where a function stands, and how messages and records call its operations.
_APART = ("dnn.fusion", "dnn.ops", "dnn.notes", "dnn.places")


class KernelsOfEqual:
    """Emits the kernels of each fusion, of equal ones once."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Output, list[int]]] = {}

    def output(self, function: Any, output: Output, emit: Callable[[], None]) -> Output:
        """output: empty, of the function; emit: fills it.  Returns it filled."""
        key, uids = _key_of(function)
        if key not in self._made:
            emit()
            self._made[key] = (output, uids)
            return output
        first, theirs = self._made[key]
        return _again(first, output, dict(zip(theirs, uids, strict=True)))


def _key_of(function: Any) -> tuple[str, list[int]]:
    """(text of a fusion's function and of its anchors, the uids in it as they come)."""
    calls = [op.operation for op in function.entry_block.operations
             if op.operation.name == "func.call"]  # fmt: skip
    parts = [_apart(function)]
    parts += [_apart(structure.anchor_of(call)) for call in calls]
    for number, call in enumerate(calls):
        callee = str(call.attributes["callee"])
        parts[0] = re.sub(rf"{re.escape(callee)}(?!\w)", f"@anchor{number}", parts[0])
    text = _NAME.sub("", "\n".join(parts))
    uids: dict[int, None] = dict.fromkeys(int(match[2]) for match in _UID.finditer(text))
    place = {uid: i for i, uid in enumerate(uids)}
    text = _UID.sub(lambda match: f"dnn.{match[1]} = #{place[int(match[2])]}", text)
    return text, list(uids)


def _apart(function: Any) -> str:
    """The text of a function without what does not count."""
    operation = function.operation
    removed = {name: operation.attributes[name] for name in _APART if name in operation.attributes}
    for name in removed:
        del operation.attributes[name]
    try:
        text = operation.get_asm(assume_verified=True)
    finally:
        for name, attribute in removed.items():
            operation.attributes[name] = attribute
    return re.sub(rf"@{re.escape(function.name.value)}(?!\w)", "@fusion", text)


def _again(first: Output, output: Output, uids: Mapping[int, int]) -> Output:
    """The steps of an equal fusion's output, with other tensors and buffers of its own."""

    def renamed(buffer: str) -> str:
        return output.name + buffer.removeprefix(first.name) if buffer else buffer

    def uid(number: int) -> int:
        return uids.get(number, number)

    def argument(arg: Arg) -> Arg:
        recipe = arg.tensor_map
        if recipe is not None:
            recipe = replace(recipe, uid=uid(recipe.uid))
        return replace(arg, uid=uid(arg.uid), buffer=renamed(arg.buffer), tensor_map=recipe)

    def step(made: Step) -> Step:
        if made.memset is not None:
            memset = made.memset
            memset = replace(memset, uid=uid(memset.uid), buffer=renamed(memset.buffer))
            return replace(made, memset=memset)
        assert made.launch is not None, "a step is a launch or a memset"
        args = tuple(map(argument, made.launch.args))
        return replace(made, launch=replace(made.launch, args=args))

    output.steps += map(step, first.steps)
    buffers: dict[str, Expr] = {renamed(name): size for name, size in first.buffers.items()}
    output.buffers |= buffers
    return output
