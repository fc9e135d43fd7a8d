# pyright: basic
"""assign-workspace: gives each buffer that lives inside the plan its place in the workspace.

Precondition: `dnn.program`.  Postcondition: arguments and memsets that named a workspace buffer,
or a virtual tensor that fusions pass on, hold an offset; `workspace_bytes` is the total.

    {kind = "workspace", buffer = "fusion0_reduction.partial"}
->  {kind = "workspace", offset = "M*256"}

Buffers are laid one after the other, each at a multiple of 256 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, ClassVar

from ..dialect import dnn, structure
from ..dialect.tensor import Tensor
from ..expr import Dim, Expr, ceildiv, parse
from .pass_base import Pass

ALIGNMENT = 256


@dataclass(frozen=True)
class AssignWorkspace(Pass):
    """The pass; see the file's docstring."""

    name: ClassVar[str] = "assign-workspace"
    takes: ClassVar[str] = "kernel"
    makes: ClassVar[str] = "kernel"

    def run(self, module: Any) -> None:
        program = structure.read_program(module)
        dims = {dim.name: dim for dim in dnn.read_symbols(dnn.graph_function(module))}
        offsets, total = _offsets(program, module, dims)
        program["steps"] = [_placed(step, offsets, dims) for step in program["steps"]]
        program["workspace_bytes"] = str(total)
        program["buffers"] = []
        structure.write_program(module, program)


def _offsets(
    program: dict[str, Any], module: Any, dims: Mapping[str, Dim]
) -> tuple[dict[Any, Expr], Expr]:
    """(buffer name or uid -> offset, total bytes)."""
    wanted: dict[Any, Expr] = {}
    uids = {
        _uid(argument)
        for step in program["steps"]
        for argument in step.get("launch", {}).get("args", [])
        if argument["kind"] in ("pointer", "tensor_map")
    }
    for tensor in _passed_on(module, uids):
        wanted[tensor.uid] = ceildiv(tensor.span() * tensor.type.bits, 8)
    for buffer in program["buffers"]:
        wanted[buffer["name"]] = parse(buffer["bytes"], dims)
    offsets: dict[Any, Expr] = {}
    total = Expr.of(0)
    for key, size in wanted.items():
        offsets[key] = total
        total = total + ceildiv(size, ALIGNMENT) * ALIGNMENT
    return offsets, total


def _passed_on(module: Any, uids: Set[int]) -> list[Tensor]:
    """The virtual tensors with some uids, which fusions pass on.

    Where all uids are of the graph's own arguments and results, its operations are not read.
    """
    function = dnn.graph_function(module)
    ends = [*dnn.read_arguments(function).values(), *structure.read_results(function)]
    if uids <= {-1, *(tensor.uid for tensor in ends)}:
        return []
    ops = dnn.from_mlir(module).live_ops
    found = dict.fromkeys(tensor for op in ops for tensor in op.results)
    return [tensor for tensor in found if tensor.is_virtual and tensor.uid in uids]


def _placed(
    step: dict[str, Any], offsets: dict[Any, Expr], dims: Mapping[str, Dim]
) -> dict[str, Any]:
    if "memset" in step:
        record = dict(step["memset"])
        if record.get("buffer"):
            record["offset"] = str(offsets[record.pop("buffer")])
        elif record["uid"] in offsets:
            record |= {"uid": -1, "offset": str(offsets[record["uid"]])}
        return {"memset": record}
    launch = dict(step["launch"])
    launch["args"] = [_placed_argument(argument, offsets, dims) for argument in launch["args"]]
    return {"launch": launch}


def _placed_argument(
    argument: dict[str, Any], offsets: dict[Any, Expr], dims: Mapping[str, Dim]
) -> dict[str, Any]:
    if argument["kind"] == "workspace" and argument.get("buffer"):
        return {"kind": "workspace", "offset": str(offsets[argument["buffer"]])}
    if argument["kind"] == "tensor_map" and argument.get("buffer"):
        recipe = _placed_map(argument["tensor_map"], offsets[argument["buffer"]], dims)
        return {"kind": "tensor_map", "tensor_map": recipe}
    uid = _uid(argument)
    if argument["kind"] == "pointer" and uid in offsets:
        return {"kind": "workspace", "uid": uid, "offset": str(offsets[uid])}
    if argument["kind"] == "tensor_map" and uid in offsets:
        recipe = _placed_map(argument["tensor_map"], offsets[uid], dims)
        return {**argument, "tensor_map": {**recipe, "uid": -1}}
    return argument


def _placed_map(recipe: dict[str, Any], offset: Expr, dims: Mapping[str, Dim]) -> dict[str, Any]:
    """A map may begin elsewhere than its tensor, which lies at an offset of the workspace."""
    return {**recipe, "offset": str(offset + parse(recipe["offset"], dims))}


def _uid(argument: dict[str, Any]) -> int:
    """The tensor that an argument refers to, -1 for none."""
    return (argument.get("tensor_map") or argument).get("uid", -1)
