# pyright: basic
"""Rewrite patterns over the functions of a module, by MLIR's greedy driver.

    %y = "dnn.softmax"(%x)   ->   %0 = "dnn.reduction"(%x) ...  %y = "dnn.pointwise"(%4, %5)
    func.func @g_fusion0(%x: tensor<8x64x...>)   ->   func.func @g_fusion0(%x: tensor<8x2x32x...>)

The patterns are those of `patterns`.  One over `Op` is rooted at that operation: it is read off
the module with what makes its operands, and what the pattern gives is written ahead of it, at its
location.  One over `Fusion` is rooted at `func.func`: the function of what it gives replaces the
fusion's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import mlir
from ..errors import DnncError, Status
from ..expr import Dim
from ..mlir import apply_patterns, apply_patterns_to, ir
from . import dnn, structure
from .fusion import Fusion, rewritten_fusion
from .op import Op
from .ops import BY_NAME
from .patterns import FUNCTION, AnyPattern, FusionPattern, Pattern, in_steps
from .tensor import Tensor


def rewrite(function: Any, patterns: Sequence[AnyPattern]) -> Any:
    """Applies patterns to the function of a graph or of a fusion, and gives the function that
    stands there then.

    One step after the other, in order (`patterns.in_steps`): patterns of operations until none of
    them matches, each pattern of fusions once.
    Operations whose results nothing uses are dropped; those that replace one of a fusion have its
    role.  Nothing is verified meanwhile: `passes.run` verifies the module that a pass leaves.
    Patterns of fusions on the function of a graph are BAD_PARAM.
    """
    if "dnn.fusion" in function.operation.attributes:
        return rewrite_fusion(function, patterns)[0]
    for step in in_steps(tuple(patterns)):
        if isinstance(step[0], FusionPattern):
            what = f"rewrite pattern {step[0].name} on @{function.name.value}, a graph"
            raise DnncError(Status.BAD_PARAM, what, "the functions of fusions, as fuse makes them")
        _rewrite_operations(function, step)
    return function


def rewrite_fusion(
    function: Any, patterns: Sequence[AnyPattern], fusion: Fusion | None = None
) -> tuple[Any, Fusion]:
    """(the function of a fusion to which patterns were applied, what stands there then).

    fusion: what stands there now, if it was read.
    """
    fusion = fusion or structure.read_as_written(function)
    for step in in_steps(tuple(patterns)):
        if isinstance(step[0], FusionPattern):
            function, fusion = _replace_function(function, step, fusion)
            continue
        _rewrite_operations(function, step)
        fusion = structure.read_as_written(function)
        structure.write_roles(function, fusion)
    return function, fusion


def _replace_function(function: Any, patterns: Any, fusion: Fusion) -> tuple[Any, Fusion]:
    """The function of a fusion, replaced where patterns match; and the fusion that it has."""

    made = fusion

    def replaced(operation: Any) -> list[Any] | None:
        nonlocal made
        if made is not fusion:  # the driver has come to what was written
            return None
        made = rewritten_fusion(fusion, patterns)
        if made is fusion:
            return None
        _verify_ends(fusion, made, patterns)
        structure.write_in_place_of(operation, made)
        return []

    return apply_patterns_to(function, {FUNCTION: replaced}), made


def _verify_ends(fusion: Fusion, made: Fusion, patterns: Sequence[FusionPattern]) -> None:
    """Refuses patterns that change which memory a fusion reads and writes."""
    by = ", ".join(pattern.name for pattern in patterns)
    wanted, given = ([t.uid for t in each.outputs] for each in (fusion, made))
    if wanted != given:
        what = f"rewrite patterns {by} of {fusion} give outputs {given}"
        raise DnncError(Status.BAD_PARAM, what, f"outputs {wanted}, by uid, in this order")
    known = {t.uid for t in fusion.inputs}
    if strange := [t.uid for t in made.inputs if t.uid not in known]:
        what = f"rewrite patterns {by} of {fusion} read {strange}"
        raise DnncError(
            Status.BAD_PARAM, what, f"inputs of {sorted(t or 0 for t in known)}, by uid"
        )
    _verify_order(made, by)


def _verify_order(fusion: Fusion, by: str) -> None:
    """Refuses operations, and outputs, ahead of what makes the tensors that they are of."""
    made = {*fusion.inputs}
    for op in fusion.ops:
        if any(t not in made and not t.is_constant for t in op.operands):
            what = f"rewrite patterns {by} give {op.label} ahead of what makes its operands"
            raise DnncError(Status.BAD_PARAM, what, "operations in topological order")
        made.update(op.results)
    if missing := [t.uid for t in fusion.outputs if t not in made]:
        what = f"rewrite patterns {by} give no operation that makes outputs {missing}"
        raise DnncError(Status.BAD_PARAM, what, "operations that make each output")


def _rewrite_operations(function: Any, patterns: Any) -> None:
    symbols = dnn.read_symbols(function)
    by_root: dict[str, list[Pattern]] = {}
    for pattern in patterns:
        by_root.setdefault(pattern.root, []).append(pattern)
    apply_patterns(function, {root: _rewriting(found, symbols) for root, found in by_root.items()})


def _rewriting(
    patterns: Sequence[Pattern], symbols: Sequence[Dim]
) -> Callable[[Any], list[Any] | None]:
    names = [dim.name for dim in symbols]

    def rewrite_one(operation: Any) -> list[Any] | None:
        found = _Around(symbols)
        op = found.op(operation)
        for pattern in patterns:
            steps = pattern.rewrite(op, found.producer)
            if steps is not None:
                dnn.emit_ops(steps, found.values, names)
                if dnn.ROLE in operation.attributes:
                    for step in steps:
                        made = found.values[step.results[0]].owner
                        made.attributes[dnn.ROLE] = operation.attributes[dnn.ROLE]
                values = [found.values[tensor] for tensor in op.results]
                for value, old in zip(values, operation.results, strict=True):
                    _as_typed(value, old, symbols, op)
                return values
        return None

    return rewrite_one


class _Around:
    """An operation of a module with what makes its operands, as far as it is asked for.

    values: tensor -> value, of all that was read.
    """

    def __init__(self, symbols: Sequence[Dim]):
        self.values: dict[Tensor, Any] = {}
        self._symbols = symbols
        self._tensors: dict[Any, Tensor] = {}

    def op(self, operation: Any) -> Op:
        """The operation, verified by now."""
        for value in operation.operands:
            self._read(value)
        kind = BY_NAME[operation.name.removeprefix("dnn.")]
        known = [self._tensors.get(value) for value in operation.results]
        op = dnn.read_op(operation, kind, self._tensors, self._symbols)
        for value, made, own in zip(operation.results, op.results, known, strict=True):
            if own is not None:  # an operand of what was read before: it stays the same tensor
                op.replace_tensors({made: own})
            tensor = own or made
            tensor.is_virtual = not mlir.is_returned(value)
            tensor.is_output = not tensor.is_virtual
            self.values[tensor], self._tensors[value] = value, tensor
        return op

    def producer(self, tensor: Tensor) -> Op | None:
        """The operation of the function that makes a tensor."""
        value = self.values.get(tensor)
        if value is None or isinstance(value.owner, ir.Block):
            return None
        owner = value.owner.operation
        is_known = owner.name.removeprefix("dnn.") in BY_NAME
        return self.op(owner) if is_known else None

    def _read(self, value: Any) -> None:
        if value not in self._tensors:
            tensor = _tensor_of(value, self._symbols)
            self.values[tensor], self._tensors[value] = value, tensor


def _as_typed(value: Any, old: Any, symbols: Sequence[Dim], op: Op) -> None:
    """Gives a value the type of the result that it replaces, whose layout may be left out."""
    if value == old:
        what, accepted = f"a rewrite pattern of {op.label} leaves a result out", "all of them"
        raise DnncError(Status.BAD_PARAM, what, accepted)
    if value.type == old.type:
        return
    if dnn.read_layout(value.type, symbols) != dnn.read_layout(old.type, symbols):
        what = f"a rewrite pattern of {op.label} gives {value.type}"
        raise DnncError(Status.BAD_PARAM, what, f"{old.type}")
    value.set_type(old.type)


def _tensor_of(value: Any, symbols: Sequence[Dim]) -> Tensor:
    """The tensor of an argument, of a constant or of another operation's result."""
    if isinstance(value.owner, ir.Block):
        function = value.owner.owner
        records = function.attributes["arg_attrs"] if "arg_attrs" in function.attributes else None
        record = dnn.dict_of(records[value.arg_number]) if records else {}
        return dnn.read_tensor(value.type, record, symbols, "dnn.")
    operation = value.owner.operation
    if operation.name == "dnn.constant":
        return dnn.read_constant(operation, symbols)
    tensor = dnn.read_tensors(operation, symbols)[ir.OpResult(value).result_number]
    tensor.is_virtual = not mlir.is_returned(value)
    tensor.is_output = not tensor.is_virtual
    return tensor
