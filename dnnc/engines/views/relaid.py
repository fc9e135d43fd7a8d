# pyright: basic
"""Tensors in a layout that an engine does not take, copied to one that it does.

    x [NCHW] --copy--> twin [NHWC, workspace] --the engine's kernel--> twin --copy--> y [NCHW]

A twin has its tensor's dims and type, lies in the workspace, and stands in its place in the fusion
and the region that the engine looks at.  Copies are kernels of their own, of engine transpose or
pointwise, whichever is predicted to be faster.  The twin of a tensor that is an input cast to
another type stands for the cast, too: the copy does it on the way.  What is computed before the
cast is part of its kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

from ... import dtypes
from ...codegen.output import Output
from ...codegen.region import Region, copy_region, read_values
from ...codegen.walk.region_walk import inputs_of
from ...dialect import dnn
from ...dialect.fusion import Fusion, remembered_at_sizes
from ...dialect.op import Op
from ...dialect.ops import Pointwise
from ...dialect.tensor import Tensor, packed_strides
from ...expr import Expr
from ...mlir import ir
from ...target import Target
from ..elementwise.pointwise import (
    POINTWISE,
    FragmentChoice,
    PointwiseEngine,
    tiling_of_region,
)
from ..elementwise.transpose import TRANSPOSE
from ..engine import Knobs, Reason

_FIRST_UID = 1 << 62  # of twins, of those that no tensor of a region has
_ALIGNMENT = 256  # of what lies in the workspace
_ENGINES: tuple[PointwiseEngine, ...] = (TRANSPOSE, POINTWISE)

_FEW = 4  # inputs of a kernel ahead whose threads work on many fragments

Rule = Callable[[Tensor], Tensor | None]


@dataclass(frozen=True, eq=False)
class Cast:
    """A cast that gives an input, or what is computed of some, the type of its twin, which stands
    for the result.

    op: of a fusion a Pointwise, of a region a `linalg.generic`.  twin: of its result.
    """

    op: Any
    twin: Callable[[Tensor], Tensor]


def twin_of(tensor: Tensor, order: Sequence[int], pitch: int) -> Tensor:
    """A tensor of the same elements, packed in an order of its axes, outermost first.

    pitch: elements from one to the next along the innermost axis but one.
    """
    last = order[-1]
    padded = [*tensor.shape]
    padded[last] = Expr.of(pitch)
    return twin_at(tensor, packed_strides(padded, order))


def twin_at(tensor: Tensor, strides: tuple[Expr, ...]) -> Tensor:
    """A tensor of the same elements, some strides apart."""
    return replace(
        tensor, strides=strides, is_virtual=True, is_output=False, alignment=_ALIGNMENT,
        prior_of=None, offset=0,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Copy:
    """A copy of a tensor to one of another layout.

    cast: the operation of a region that gives its elements another type; None: they keep theirs.
    """

    source: Tensor
    result: Tensor
    cast: Any = None

    @cached_property
    def _fusion(self) -> Fusion:
        """The copy as a fusion of its own: signless; bytes that are only moved as i8."""
        moves = self.source.type == self.result.type
        source, result = (
            replace(t, dtype=dtypes.i8) if t.type.bits == 8 and (moves or t.type.is_integer) else t
            for t in (self.source, self.result)
        )
        values = {"mode": "identity", "x": source, "y": result, "compute_type": dtypes.f32}
        return Fusion(0, (Pointwise(**values),), (result,))

    def reasons(self, target: Target) -> tuple[Reason, ...]:
        """Why no engine makes it."""
        return POINTWISE.supports(self._fusion, target)

    def choice(self, target: Target) -> tuple[PointwiseEngine, Knobs, float]:
        """The engine with its knobs, and the seconds that are predicted."""
        return _choice(self._fusion, target)

    def emit(self, output: Output, number: int) -> None:
        """Adds its kernel to a fusion's."""
        engine, knobs, _ = self.choice(output.target)
        made = engine.rewritten(self._fusion)
        module, (source,), (result,) = ir.Module.create(), made.inputs, made.outputs
        region = copy_region(module, source, result, self.cast)
        tile = engine.completed(engine.tile_of(self._fusion, knobs, output.target), region)
        own = _beside(output, f"copy{number}")
        engine.emit(region, knobs, tile, own)
        _join(output, own)

    def seconds(self, target: Target) -> float:
        """The seconds that are predicted."""
        return self.choice(target)[2]


@dataclass(frozen=True, eq=False)
class Computing:
    """A kernel ahead of pointwise work, whose result is a twin.

    inputs: that it reads.  fusion: of a fusion, what computes it.  region: the same of a region.
    """

    result: Tensor
    inputs: tuple[Tensor, ...]
    fusion: Fusion | None = None
    region: Region | None = None

    @property
    def _choice(self) -> FragmentChoice:
        return FragmentChoice(16, 4 if len(self.inputs) <= _FEW else 2)

    def reasons(self, target: Target) -> tuple[Reason, ...]:
        """Why no engine makes it."""
        assert self.fusion is not None, "computed in a fusion"
        return POINTWISE.supports(self.fusion, target)

    def seconds(self, target: Target) -> float:
        """The seconds that are predicted."""
        assert self.fusion is not None, "computed in a fusion"
        return POINTWISE.predict(self.fusion, self._choice.knobs, target).seconds

    def emit(self, output: Output, number: int) -> None:
        """Adds its kernel to a fusion's."""
        assert self.region is not None, "computed in a region"
        own = _beside(output, f"before{number}")
        tile = tiling_of_region(self.region, self._choice)
        POINTWISE.emit(self.region, self._choice.knobs, tile, own)
        _join(output, own)


def _beside(output: Output, name: str) -> Output:
    """The output of a kernel beside a fusion's own."""
    return Output(output.gpu_module, output.target, f"{output.name}_{name}", tensors=output.tensors)


def _join(output: Output, own: Output) -> None:
    """Appends what such a kernel needs to a fusion's output."""
    output.steps += own.steps
    output.buffers |= own.buffers


@remembered_at_sizes
def _choice(fusion: Fusion, target: Target) -> tuple[PointwiseEngine, Knobs, float]:
    found = [
        (engine, knobs, engine.predict(fusion, knobs, target).seconds)
        for engine in _ENGINES
        if not engine.supports(fusion, target)
        for knobs in engine.candidates(fusion, target)
    ]
    return min(found, key=lambda each: each[2])


@dataclass(frozen=True, eq=False)
class RelaidFusion:
    """fusion: with twins.  before, after: copies ahead of its kernel, and behind it.
    arguments: its inputs in the order of the region's arguments."""

    fusion: Fusion
    before: tuple[Copy | Computing, ...]
    after: tuple[Copy, ...]
    arguments: tuple[Tensor, ...]

    @staticmethod
    def of(fusion: Fusion, rule: Rule, *casts: Cast) -> RelaidFusion:
        """rule: the twin of an input or output; None: its layout is taken."""
        computing = {cast.op.y: _upstream(fusion, cast) for cast in casts}
        made = {op for ops in computing.values() for op in ops}
        rest = tuple(op for op in fusion.ops if op not in made)
        inner = Fusion(fusion.index, rest, fusion.outputs)
        twins = _twins((*inner.inputs, *inner.outputs), rule)
        twins |= {cast.op.y: cast.twin(cast.op.y) for cast in casts}
        if not twins:
            return RelaidFusion(fusion, (), (), fusion.inputs)
        ops = tuple(op.with_tensors(twins) for op in rest)
        outputs = tuple(twins.get(t, t) for t in inner.outputs)
        before = [_ahead(fusion, t, twins[t], computing.get(t)) for t in inner.inputs if t in twins]
        after = _copies_back(twins, inner.outputs)
        read = {t for op in rest for t in op.read_operands}
        gone = {t for op in made for t in op.operands} - read
        arguments = [twins.get(t, t) for t in fusion.inputs if t not in gone]
        arguments += [twins[cast.op.y] for cast in casts]
        relaid = Fusion(fusion.index, ops, outputs, fusion.must_repeat)
        return RelaidFusion(relaid, tuple(before), after, tuple(arguments))

    @property
    def places(self) -> list[int]:
        """The argument of the relaid region that each input of the relaid fusion is; -1: none."""
        place = {t: n for n, t in enumerate(self.arguments)}
        return [place.get(t, -1) for t in self.fusion.inputs]

    def reasons(self, target: Target) -> tuple[Reason, ...]:
        """Why a tensor can't be copied."""
        copies = (*self.before, *self.after)
        return tuple(reason for each in copies for reason in each.reasons(target))

    def seconds(self, target: Target) -> float:
        """Seconds of the copies."""
        return sum(each.seconds(target) for each in (*self.before, *self.after))


@dataclass(frozen=True, eq=False)
class RelaidRegion:
    """The region of a relaid fusion."""

    region: Region
    before: tuple[Copy | Computing, ...]
    after: tuple[Copy, ...]

    @staticmethod
    def of(region: Region, rule: Rule, *casts: Cast) -> RelaidRegion:
        """rule: as of a fusion."""
        arguments = dict(region.arguments)
        sources = dict[Tensor, Any]()  # the operation that casts to each
        found = dict[Tensor, Tensor]()
        gone = {op for cast in casts for op in generics_before(cast.op)}
        for cast in casts:
            (value,) = cast.op.results
            made = dnn.read_tensor(value.type, {}, region.symbols)
            arguments[value], sources[made] = made, cast.op
            found[made] = cast.twin(made)
        for argument in {v for op in gone for v in read_values(op) if v in region.arguments}:
            if all(use.owner.operation in gone for use in argument.uses):
                del arguments[argument]
        inputs, outputs = list(arguments.values()), [t for _, t in region.outputs]
        found = _twins((*inputs, *outputs), rule) | found
        taken = {tensor.uid for tensor in (*region.arguments.values(), *outputs)}
        free = (uid for uid in count(_FIRST_UID) if uid not in taken)
        twins = {tensor: replace(twin, uid=next(free)) for tensor, twin in found.items()}
        before = tuple(_ahead_in(region, t, twins[t], sources.get(t)) for t in inputs if t in twins)
        arguments = {value: twins.get(t, t) for value, t in arguments.items()}
        results = tuple((value, twins.get(t, t)) for value, t in region.outputs)
        inner = replace(region, arguments=arguments, outputs=results)
        return RelaidRegion(inner, before, _copies_back(twins, outputs))

    def emit(self, output: Output, kernel: Callable[[], None]) -> None:
        """Adds the copies around what `kernel` adds."""
        twins = [c.result for c in self.before] + [c.source for c in self.after]
        for twin in dict.fromkeys(twins):
            output.tensor(twin)
        for number, ahead in enumerate(self.before):
            ahead.emit(output, number)
        kernel()
        for number, behind in enumerate(self.after, len(self.before)):
            behind.emit(output, number)


def lone_cast(fusion: Fusion, op: Op, tensor: Tensor) -> Pointwise | None:
    """The identity that gives an operand of `op` its type, of an input or of what pointwise work
    makes of some in f32, if nothing else needs that."""
    cast = fusion.producers.get(tensor)
    if not isinstance(cast, Pointwise) or cast.mode != "identity" or cast.x.shape != tensor.shape:
        return None
    if cast.x in fusion.producers:
        is_taken = cast.x.type == dtypes.f32  # what is stored in 16 bits may serve others, too
    else:
        is_taken = not cast.x.is_by_value and cast.x.type.kind != "b"
    own = fusion.upstream(tensor)
    known = own | frozenset[Op]((op,))
    made = {t for each in own for t in each.results}
    others = [
        other for other in fusion.ops if other not in known and made.intersection(other.operands)
    ]
    is_alone = not others and not made.intersection(fusion.outputs)
    is_pointwise = all(each.role == "pointwise" for each in own)
    return cast if is_taken and is_alone and is_pointwise else None


def _upstream(fusion: Fusion, cast: Cast) -> tuple[Op, ...]:
    """The operations that give what a cast gives, in order."""
    found = fusion.upstream(cast.op.y)
    return tuple(op for op in fusion.ops if op in found)


def _ahead(
    fusion: Fusion, tensor: Tensor, twin: Tensor, computing: Sequence[Op] | None
) -> Copy | Computing:
    """The kernel ahead of a fusion that stores a twin; computing: what gives the tensor; None: it
    is in memory."""
    if computing is None:
        return Copy(tensor, twin)
    if (
        len(computing) == 1
        and isinstance(cast := computing[0], Pointwise)
        and len(cast.operands) == 1
    ):
        return Copy(cast.x, twin)
    ops = tuple(op.with_tensors({tensor: twin}) for op in computing)
    own = Fusion(fusion.index, ops, (twin,))
    return Computing(twin, own.inputs, fusion=own)


def _ahead_in(region: Region, tensor: Tensor, twin: Tensor, cast: Any) -> Copy | Computing:
    """Kernel ahead of a region that stores a twin; cast: what gives the tensor; None: nothing."""
    if cast is None:
        return Copy(tensor, twin)
    generics, (value,) = generics_before(cast), cast.results
    if len(generics) == 1:
        (argument,) = inputs_of(cast)
        return Copy(region.arguments[argument], twin, cast)
    read = {v for op in generics for v in read_values(op)}
    arguments = {v: t for v, t in region.arguments.items() if v in read}
    own = replace(region, arguments=arguments, outputs=((value, twin),))
    return Computing(twin, tuple(arguments.values()), region=own)


def generics_before(operation: Any) -> list[Any]:
    """A generic and those whose results it is made of, each once."""
    found, pending = list[Any](), [operation]
    while pending:
        op = pending.pop()
        if op.name == "linalg.generic" and op not in found:
            found.append(op)
            pending += [v.owner for v in read_values(op) if not isinstance(v.owner, ir.Block)]
    return found


def _twins(tensors: Sequence[Tensor], rule: Rule) -> dict[Tensor, Tensor]:
    found = ((tensor, rule(tensor)) for tensor in dict.fromkeys(tensors))
    return {tensor: twin for tensor, twin in found if twin is not None}


def _copies_back(twins: Mapping[Tensor, Tensor], outputs: Sequence[Tensor]) -> tuple[Copy, ...]:
    return tuple(Copy(twins[t], t) for t in outputs if t in twins)
