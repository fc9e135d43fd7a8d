# pyright: basic
"""Fusions that differ in uids and names alone: their kernels are made once, and launched for each.

    @g_fusion1(%x {uid = 14}, %w {uid = 5}) -> {uid = 17}      kernel fusion1_matmul_sm90, emitted
    @g_fusion3(%x {uid = 20}, %w {uid = 11}) -> {uid = 23}     steps of fusion1 with 20, 11 and 23

A network has the same layer many times; each has its own launches and workspace, the code is one.
The code is made as if its fusion were a graph's only one, so that it is the same in every graph.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..codegen.output import Output
from ..dialect import structure
from ..expr import Expr
from ..plan.plan import Arg, Step

_NAME = re.compile(r'dnn\.name = "(?:[^"\\]|\\.)*"(?:, )?')
_UID = re.compile(r"\bdnn\.(uid|prior_of) = (-?\d+)")
# Where a function stands, and how messages and records call its operations.
_APART = ("dnn.fusion", "dnn.ops", "dnn.notes", "dnn.places")


def key_of(function: Any) -> tuple[str, list[int]]:
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


@dataclass(frozen=True)
class Made:
    """A fusion's kernels, with the steps that run them.

    place: of its module among those of the graph.  index: of the first fusion that has them.
    uids: the tensors of that fusion, as its key lists them.  output: filled by the engine.
    """

    place: int
    index: int
    uids: Sequence[int]
    output: Output

    def steps(self, index: int, uids: Sequence[int], suffix: str) -> list[Step]:
        """The steps of an equal fusion, with tensors and buffers of its own.

        suffix: of the names of kernels.
        """
        other = _Other(self.index, index, dict(zip(self.uids, uids, strict=True)), suffix)
        return list(map(other.step, self.output.steps))

    def buffers(self, index: int) -> dict[str, Expr]:
        """The workspace buffers of an equal fusion, name -> bytes."""
        return {buffer_name(n, index): size for n, size in self.output.buffers.items()}


def buffer_name(name: str, index: int) -> str:
    """The name in the graph of a buffer of a fusion."""
    return structure.name_in_graph(name, index) if name else name


@dataclass(frozen=True)
class _Other:
    """Where an equal fusion stands.  first: index of the fusion whose kernels it has."""

    first: int
    index: int
    uids: Mapping[int, int]
    suffix: str

    def uid(self, number: int) -> int:
        return self.uids.get(number, number)

    def argument(self, arg: Arg) -> Arg:
        recipe = arg.tensor_map
        if recipe is not None:
            recipe = replace(recipe, uid=self.uid(recipe.uid))
        buffer = buffer_name(arg.buffer, self.index)
        return replace(arg, uid=self.uid(arg.uid), buffer=buffer, tensor_map=recipe)

    def step(self, made: Step) -> Step:
        if made.memset is not None:
            memset = made.memset
            buffer = buffer_name(memset.buffer, self.index)
            return replace(made, memset=replace(memset, uid=self.uid(memset.uid), buffer=buffer))
        launch = made.launch
        assert launch is not None, "a step is a launch or a memset"
        kernel = structure.name_in_graph(launch.kernel, self.first, self.suffix)
        args = tuple(map(self.argument, launch.args))
        return replace(made, launch=replace(launch, kernel=kernel, args=args))
