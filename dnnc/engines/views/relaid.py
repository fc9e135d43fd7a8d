# pyright: basic
"""Tensors in a layout that an engine does not take, copied to one that it does.

    x [NCHW] --copy--> twin [NHWC, workspace] --the engine's kernel--> twin --copy--> y [NCHW]

A twin has its tensor's dims and type, lies in the workspace, and stands in its place in the fusion
and the region that the engine looks at.  Copies are kernels of their own, of engine transpose or
pointwise, whichever is predicted to be faster.  The twin of a tensor that is an input cast to
another type stands for the cast, too: the copy does it on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

from ... import dtypes
from ...codegen.output import Output
from ...codegen.region import Region, copy_region
from ...codegen.walk.region_walk import inputs_of
from ...dialect import dnn
from ...dialect.fusion import Fusion, remembered
from ...dialect.ops import Pointwise
from ...dialect.tensor import Tensor, packed_strides
from ...expr import Expr
from ...mlir import ir
from ...target import Target
from ..elementwise.pointwise import POINTWISE
from ..elementwise.transpose import TRANSPOSE
from ..engine import Engine, Knobs, Reason

_FIRST_UID = 1 << 62  # of twins, of those that no tensor of a region has
_ALIGNMENT = 256  # of what lies in the workspace
_ENGINES: tuple[Engine, ...] = (TRANSPOSE, POINTWISE)

Rule = Callable[[Tensor], Tensor | None]


@dataclass(frozen=True, eq=False)
class Cast:
    """A cast that gives an input the type of its twin, which stands for the result.

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
    def _ends(self) -> tuple[Tensor, Tensor]:
        """As the kernel takes them: signless, bytes that are only moved of any type."""
        moves = self.source.type == self.result.type
        source, result = (
            replace(t, dtype=dtypes.i8) if t.type.bits == 8 and (moves or t.type.is_integer) else t
            for t in (self.source, self.result)
        )
        return source, result

    @cached_property
    def _fusion(self) -> Fusion:
        x, y = self._ends
        values: dict[str, Any] = {"mode": "identity", "x": x, "y": y, "compute_type": dtypes.f32}
        return Fusion(0, (Pointwise(**values),), (y,))

    def reasons(self, target: Target) -> tuple[Reason, ...]:
        """Why no engine makes it."""
        return POINTWISE.supports(self._fusion, target)

    def choice(self, target: Target) -> tuple[Engine, Knobs, float]:
        """The engine with its knobs, and the seconds that are predicted."""
        return _choice(self._fusion, target)

    def emit(self, output: Output, number: int) -> None:
        """Adds its kernel to a fusion's."""
        engine, knobs, _ = self.choice(output.target)
        module = ir.Module.create()
        region = copy_region(module, *self._ends, self.cast)
        name = f"{output.name}_copy{number}"
        own = Output(output.gpu_module, output.target, name, tensors=output.tensors)
        engine.emit(region, knobs, engine.tile(region, knobs, output.target), own)
        output.steps += own.steps
        output.buffers |= own.buffers


@remembered
def _choice(fusion: Fusion, target: Target) -> tuple[Engine, Knobs, float]:
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
    arguments: its inputs in the order of the region's arguments, but for changes that other views
    of the fusion make of that."""

    fusion: Fusion
    before: tuple[Copy, ...]
    after: tuple[Copy, ...]
    arguments: tuple[Tensor, ...]

    @staticmethod
    def of(fusion: Fusion, rule: Rule, *casts: Cast) -> RelaidFusion:
        """rule: the twin of an input or output; None: its layout is taken."""
        made = {cast.op for cast in casts}
        rest = tuple(op for op in fusion.ops if op not in made)
        inner = Fusion(fusion.index, rest, fusion.outputs)
        twins = _twins((*inner.inputs, *inner.outputs), rule)
        twins |= {cast.op.y: cast.twin(cast.op.y) for cast in casts}
        if not twins:
            return RelaidFusion(fusion, (), (), fusion.inputs)
        ops = tuple(op.with_tensors(twins) for op in rest)
        outputs = tuple(twins.get(t, t) for t in inner.outputs)
        sources = {cast.op.y: cast.op.x for cast in casts}
        before = [Copy(sources.get(t, t), twins[t]) for t in inner.inputs if t in twins]
        after = _copies_back(twins, inner.outputs)
        read = {t for op in rest for t in op.read_operands}
        gone = {cast.op.x for cast in casts} - read
        arguments = [twins.get(t, t) for t in fusion.inputs if t not in gone]
        arguments += [twins[cast.op.y] for cast in casts]
        relaid = Fusion(fusion.index, ops, outputs, fusion.must_repeat)
        return RelaidFusion(relaid, tuple(before), after, tuple(arguments))

    def places(self, fusion: Fusion) -> list[int]:
        """The argument of the relaid region that each input of the relaid fusion is; -1: none.

        fusion: whose region was relaid; an engine may have relaid it with casts.
        """
        rank = {t.uid: n for n, t in enumerate(fusion.inputs)}
        arguments = sorted(self.arguments, key=lambda t: rank.get(t.uid, len(rank)))
        place = {t: n for n, t in enumerate(arguments)}
        return [place.get(t, -1) for t in self.fusion.inputs]

    def reasons(self, target: Target) -> tuple[Reason, ...]:
        """Why a tensor can't be copied."""
        copies = (*self.before, *self.after)
        return tuple(reason for each in copies for reason in each.reasons(target))

    def seconds(self, target: Target) -> float:
        """Seconds of the copies."""
        return sum(each.choice(target)[2] for each in (*self.before, *self.after))


@dataclass(frozen=True, eq=False)
class RelaidRegion:
    """The region of a relaid fusion."""

    region: Region
    before: tuple[Copy, ...]
    after: tuple[Copy, ...]

    @staticmethod
    def of(region: Region, rule: Rule, *casts: Cast) -> RelaidRegion:
        """rule: as of a fusion."""
        arguments = dict(region.arguments)
        sources = dict[Tensor, tuple[Tensor, Any]]()  # of what is cast, and the operation
        found = dict[Tensor, Tensor]()
        for cast in casts:
            (argument,), (value,) = inputs_of(cast.op), cast.op.results
            made = dnn.read_tensor(value.type, {}, region.symbols)
            arguments[value], sources[made] = made, (region.arguments[argument], cast.op)
            found[made] = cast.twin(made)
            if len(list(argument.uses)) == 1:
                del arguments[argument]
        inputs, outputs = list(arguments.values()), [t for _, t in region.outputs]
        found = _twins((*inputs, *outputs), rule) | found
        taken = {tensor.uid for tensor in (*region.arguments.values(), *outputs)}
        free = (uid for uid in count(_FIRST_UID) if uid not in taken)
        twins = {tensor: replace(twin, uid=next(free)) for tensor, twin in found.items()}
        before = tuple(
            Copy(source, twins[t], operation)
            for t in inputs
            if t in twins
            for source, operation in (sources.get(t, (t, None)),)
        )
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


def _twins(tensors: Sequence[Tensor], rule: Rule) -> dict[Tensor, Tensor]:
    found = ((tensor, rule(tensor)) for tensor in dict.fromkeys(tensors))
    return {tensor: twin for tensor, twin in found if twin is not None}


def _copies_back(twins: Mapping[Tensor, Tensor], outputs: Sequence[Tensor]) -> tuple[Copy, ...]:
    return tuple(Copy(twins[t], t) for t in outputs if t in twins)
