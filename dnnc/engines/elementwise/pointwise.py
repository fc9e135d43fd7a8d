# pyright: basic
"""Engine pointwise: a graph of pointwise and view operations as one kernel.

Every output has the same dims; a thread works on fragments of up to 16 bytes of consecutive
elements, read and written by vector accesses where strides and alignment allow:

    fragment f = (block * unroll + u) * threads + thread
    f -> coordinates along the loop groups (axes that all tensors agree on are one group)
    load the leaves of all u, compute, store

Where the last group is not known to be whole fragments, a block that reaches past the end
works on single elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.output import Output
from ...codegen.region import Access, Region, identity_access, loop_groups
from ...codegen.state import each
from ...codegen.walk.index import Coordinate, Group, Index, Part
from ...codegen.walk.loops import Loops, coordinates_of
from ...codegen.walk.patches import Patches, apart
from ...codegen.walk.region_walk import Reducer, Walk
from ...dialect.fusion import Fusion
from ...dialect.patterns import AnyPattern
from ...dialect.tensor import Tensor, dense_order, stride_order, text
from ...errors import Status
from ...expr import ceildiv, product
from ...target import Target
from ..engine import Engine, Knob, Knobs, Prediction, Reason
from ..knob_values import KnobValues
from ..surface import LAUNCH_SECONDS, bytes_of, fp8_reasons, memory_seconds, too_large_reasons
from ..views.accesses import reads, takes_apart
from ..views.refined import REFINED
from .shared import costly_of_fusion, shared_places, shared_seconds
from .sweep import Sweep

Iteration = tuple[tuple[tuple[int, ...], ...], int]

_THREADS = 256
_MOST_SHARED = 8  # fragments of a thread that share costly functions
_MOST_HELD = 192  # registers of a thread, for elements that are to be stored


@dataclass(frozen=True)
class FragmentChoice(KnobValues):
    """One value of each knob.

    load_bytes: of the widest access.  fragments: that a thread works on.
    """

    load_bytes: Annotated[int, "LOAD_SIZE"]
    fragments: Annotated[int, "ARRAY_SIZE_PER_THREAD"] = 1


@dataclass(frozen=True)
class FragmentTiling:
    """The tiling that `dnn.tile` says.

    loops: groups of axes.  vector_elems: elements of a fragment.  threads: of a block.
    unroll: fragments of a thread.  patch: axes, and places along each, of a thread's fragments;
    empty: they are neighbours.
    """

    loops: tuple[tuple[int, ...], ...]
    vector_elems: int
    threads: int
    unroll: int
    patch: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class FragmentEngine(Engine):
    """Engines whose threads compute fragments of the outputs, which have equal dims.

    reducer: how a thread computes an element of what is no pointwise operation.
    """

    tiling = FragmentTiling
    updates_outputs: bool = True
    reducer: Reducer | None = None

    def _boolean_reasons(self, fusion: Fusion) -> list[Reason]:
        """A byte of eight booleans has one writer: the output must be packed."""
        booleans = [t for t in fusion.outputs if t.type.kind == "b"]
        orders = {_dense_axes(t) for t in booleans}
        if len(orders) > 1 or None in orders:
            return [
                Reason(
                    Status.NOT_SUPPORTED_LAYOUT,
                    "boolean output",
                    "a boolean output with gaps, or several in different orders of the axes",
                    "packed boolean outputs with the same order of axes",
                )
            ]
        return []

    def _blocks(self, fusion: Fusion, knobs: Knobs) -> int:
        size, choice = min(t.type.bits for t in fusion.tensors) or 8, FragmentChoice.of(knobs)
        width = max(1, choice.load_bytes * 8 // max(8, size))
        elements = fusion.outputs[0].elements().bounds()[1]
        return -(-elements // (width * _THREADS * choice.fragments))

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> FragmentTiling:
        choice = FragmentChoice.of(knobs)
        groups, width = iteration_of(self.rewritten(fusion), choice.load_bytes)
        return FragmentTiling(groups, width, _THREADS, choice.fragments)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: FragmentTiling, output: Output) -> None:
        kernel = output.kernel("", tile.threads)
        if tile.patch:
            patches = _patches_of(region, tile)
            with kernel.body():
                _emit_patches(kernel, region, patches, self.reducer)
            output.launch(kernel, (ceildiv(patches.loops.fragments, tile.threads), 1, 1))
            return
        with kernel.body():
            loops = loops_of(region, tile)
            _emit_body(kernel, region, loops, tile.unroll, self.reducer)
        per_block = tile.threads * tile.unroll
        output.launch(kernel, (ceildiv(loops.fragments, per_block), 1, 1))


@dataclass(frozen=True)
class PointwiseEngine(FragmentEngine):
    """See the file's docstring."""

    name: str = "pointwise"
    index: int = 1
    families: tuple[str, ...] = ("pointwise",)
    patterns: tuple[AnyPattern, ...] = REFINED
    support: tuple[str, ...] = (
        "graphs of pointwise, transpose, slice, reshape, concatenate; one or more outputs of "
        "equal dims; rank 1 to 8, any strides, broadcasts",
        "boolean outputs packed, in one order of their axes for all of them",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        reasons: list[Reason] = []
        strange = [op for op in fusion.ops if op.role not in ("pointwise", "view")]
        if strange:
            reasons.append(
                Reason(
                    Status.NOT_SUPPORTED_GRAPH_PATTERN,
                    "operations",
                    f"{', '.join(op.label for op in strange)}",
                    "pointwise, transpose, slice, reshape, concatenate",
                )
            )
        reasons += fp8_reasons(fusion, target) + too_large_reasons(fusion)
        first, *others = self.rewritten(fusion).outputs
        for output in others:
            if output.shape != first.shape:
                reasons.append(
                    Reason(
                        Status.NOT_SUPPORTED_SHAPE,
                        "output dims",
                        f"outputs of dims {text(first.shape)} and {text(output.shape)}",
                        "outputs of equal dims",
                    )
                )
        return (*reasons, *self._boolean_reasons(fusion))

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("LOAD_SIZE", (16, 8, 4, 2, 1), "bytes of the widest access"),
        Knob("ARRAY_SIZE_PER_THREAD", (4, 2, 1, 8), "fragments a thread works on"),
    )

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        unrolls = (4, 2, 1) if len(fusion.inputs) <= 4 else (2, 1)
        if shared_places(fusion.outputs[0], costly_of_fusion(fusion), _MOST_SHARED):
            unrolls = (_MOST_SHARED, *unrolls)
        return [FragmentChoice(16, unroll).knobs for unroll in unrolls]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        """Seconds that memory takes, that costly functions take where a thread may share them, and
        that gathers add where inputs run across the outputs."""
        memory = memory_seconds(fusion, target, blocks=self._blocks(fusion, knobs))
        shared = shared_seconds(fusion, FragmentChoice.of(knobs).fragments, target.f32_tflops)
        if shared > memory.seconds - LAUNCH_SECONDS:
            return Prediction(memory.seconds + shared, "trigonometric functions")
        if shared:
            return Prediction(memory.seconds + shared, memory.bound)
        gathered = Sweep.of_fusion(fusion).gathered_bytes()
        if not gathered:
            return memory
        more = gathered / bytes_of((*fusion.inputs, *fusion.outputs))
        return Prediction(memory.seconds + more * (memory.seconds - LAUNCH_SECONDS), "gathers")

    def register_pressure(self, knobs: Knobs) -> int:
        choice = FragmentChoice.of(knobs)
        return choice.fragments * choice.load_bytes

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> FragmentTiling:
        """A thread's fragments lie along an axis where they share costly functions, if there is
        one."""
        tile, fusion = super().tile_of(fusion, knobs, target), self.rewritten(fusion)
        first = fusion.outputs[0]
        found = shared_places(first, costly_of_fusion(fusion), tile.unroll)
        is_boolean = any(tensor.type.kind == "b" for tensor in fusion.outputs)
        if found is None or is_boolean:
            return tile
        axis, places = found
        groups = apart(tile.loops, [axis])
        row = product(first.shape[axis] for axis in groups[-1])
        if row.known_divisor() % tile.vector_elems:  # fragments would reach past a row
            return tile
        return replace(tile, loops=groups, patch=((axis, places),))


def loops_of(region: Region, tile: FragmentTiling) -> Loops:
    """The iteration over a region's outputs that a tile says."""
    return Loops(region.outputs[0][1].shape, tile.loops, tile.vector_elems)


def _patches_of(region: Region, tile: FragmentTiling) -> Patches:
    """The iteration in patches of some places along some axes, as a tile says."""
    shape = region.outputs[0][1].shape
    return Patches(shape, tile.loops, tile.vector_elems, dict(tile.patch))


def tiling_of_region(region: Region, choice: FragmentChoice) -> FragmentTiling:
    """The tiling of a kernel of pointwise work beside a fusion's own, of which emission has nothing
    but the region, whose axes are not refined."""
    groups, width = iteration_of_region(region, choice.load_bytes)
    return FragmentTiling(groups, width, _THREADS, choice.fragments)


def iteration_of(fusion: Fusion, load_bytes: int) -> Iteration:
    """(loop groups, elements of a fragment) for the outputs of a fusion."""
    apart = partial(takes_apart, fusion)
    return _iteration(fusion.outputs, reads(fusion), load_bytes, apart)


def iteration_of_region(region: Region, load_bytes: int) -> Iteration:
    """The iteration for the outputs of a kernel beside a fusion's own."""
    outputs = [tensor for _, tensor in region.outputs]
    found = [(region.arguments[v], a) for v, a in region.reads() if v in region.arguments]
    return _iteration(outputs, found, load_bytes, region.takes_apart)


def _iteration(
    tensors: Sequence[Tensor],
    found: Sequence[tuple[Tensor, Access]],
    load_bytes: int,
    takes_apart: Callable[[Sequence[tuple[Tensor, Access]]], bool],
) -> Iteration:
    """tensors: the outputs.  found: how inputs are addressed."""
    first = tensors[0]
    accesses = [*((t, identity_access(t.rank)) for t in tensors), *found]
    if first.elements().constant == 1:
        return (), 1
    booleans = [t for t in tensors if t.type.kind == "b"]
    smallest = min(max(8, t.type.bits) for t, _ in accesses)
    width = max(1, load_bytes * 8 // smallest)
    if booleans:  # one group over the packed order: a thread writes whole bytes
        order = _dense_axes(booleans[0])
        assert order is not None
        return (order,), max(8, width)
    # One number of 64 bits is less work than divisions that give two of 32, if it is all.
    is_wide = not takes_apart(accesses)
    order = stride_order(first.shape, first.layout)
    groups = loop_groups(first.shape, order, accesses, is_wide=is_wide)
    if len(groups) > 1:
        inner = product(first.shape[axis] for axis in groups[-1])
        while inner.known_divisor() % width:
            width //= 2
    return groups, width


def _dense_axes(tensor: Tensor) -> tuple[int, ...] | None:
    """The axes that are not 1, outermost first, if the tensor is packed."""
    order = dense_order(tensor.shape, tensor.layout)
    if order is None:
        return None
    return tuple(axis for axis in order if tensor.shape[axis].constant != 1)


def _emit_body(
    kernel: Kernel, region: Region, loops: Loops, unroll: int, reducer: Reducer | None
) -> None:
    is_exclusive = len(region.generics()) > 1  # a graph of one operation may work in place
    leaves = region.leaves(kernel, is_exclusive=is_exclusive)
    walk = Walk(kernel, leaves, region.symbols, reducer)
    targets = region.targets(kernel, is_exclusive=is_exclusive)
    count = kernel.size(loops.fragments, loops.bits)
    per_block = kernel.threads * unroll
    base = loops.first_of(ops.block_id(), per_block)
    fragments = _Fragments(kernel, walk, targets, loops, base + ops.thread_id(), count, unroll)
    if loops.is_whole:
        fragments.emit_whole()
        return
    # One group whose end may fall inside a fragment: a block that ends before it needs no care.
    limit = kernel.size(loops.inner // loops.width, loops.bits)
    ops.if_else(base + per_block <= limit, fragments.emit_whole, fragments.emit_elements)


def _emit_patches(
    kernel: Kernel, region: Region, patches: Patches, reducer: Reducer | None
) -> None:
    """A patch a thread: all loads of its places stand ahead of the first store."""
    is_exclusive = len(region.generics()) > 1  # a graph of one operation may work in place
    leaves = region.leaves(kernel, is_exclusive=is_exclusive)
    walk = Walk(kernel, leaves, region.symbols, reducer)
    targets = region.targets(kernel, is_exclusive=is_exclusive)
    loops = patches.loops
    count = kernel.size(loops.fragments, loops.bits)
    fragment = loops.first_of(ops.block_id(), kernel.threads) + ops.thread_id()

    def work(places: Sequence[tuple[list[Coordinate], Any]]) -> None:
        ready = [
            (at, inside, [walk.value(value, at, patches.width) for value, _ in targets])
            for at, inside in places
        ]
        for at, inside, values in ready:
            with ops.if_(inside):
                for (_, target), value in zip(targets, values, strict=True):
                    target.store(at, value)
        walk.forget()

    with ops.if_(fragment < count):
        patches.emit(kernel, fragment, work)


@dataclass(frozen=True)
class _Fragments:
    """The fragments of a thread.  first: the number of its first one; its others are a block's
    threads apart.  count: of all."""

    kernel: Kernel
    walk: Walk
    targets: Sequence[tuple[Any, Any]]
    loops: Loops
    first: Any
    count: Any
    unroll: int

    def _at(self, linear: Index) -> list[Any]:
        """The coordinates of a fragment of one group over the packed order."""
        loops = self.loops
        group = Group(self.kernel, loops.extents(loops.groups[0]), linear, loops.width)
        parts = {axis: Part(group, i) for i, axis in enumerate(loops.groups[0])}
        return coordinates_of(len(loops.dims), parts)

    def _number(self, u: Any) -> Any:
        return self.first + u * self.kernel.threads

    def emit_whole(self) -> None:
        """All loads of the unrolled fragments stand ahead of the first store, unless registers
        can't hold what is stored: then each output is, before the next one is computed."""
        walk, targets, loops = self.walk, self.targets, self.loops
        held_bits = self.unroll * loops.width * sum(t.tensor.type.bits for _, t in targets)
        is_held = held_bits <= 32 * _MOST_HELD
        ready = []
        for u in range(self.unroll):
            fragment = self._number(u)
            # A fragment past the end repeats the last one, so that loads need no condition.
            clamped = ops.minimum(fragment, self.count - 1)
            at = coordinates_of(len(loops.dims), loops.coordinates(self.kernel, clamped))
            if is_held:
                values = [walk.value(value, at, loops.width) for value, _ in targets]
                ready.append((fragment < self.count, at, values))
                continue
            with ops.if_(fragment < self.count):
                for value, target in targets:
                    target.store(at, walk.value(value, at, loops.width))
                walk.forget()
        for condition, at, values in ready:
            with ops.if_(condition):
                for (_, target), value in zip(targets, values, strict=True):
                    target.store(at, value)
        walk.forget()

    def emit_elements(self) -> None:
        """The block at the end: element by element; bytes of booleans still have one writer."""
        if any(target.tensor.type.kind == "b" for _, target in self.targets):
            self._emit_boolean_end()
            return
        walk, loops = self.walk, self.loops
        end = self.kernel.size(loops.inner, loops.bits)

        @each(0, self.unroll * loops.width)
        def _(i: Any) -> None:
            fragment = self._number(i // loops.width)
            parts, number = loops.element(self.kernel, fragment, i % loops.width)
            at = coordinates_of(len(loops.dims), parts)
            with ops.if_(number < end):
                walk.forget()
                for value, target in self.targets:
                    target.store(at, walk.value(value, at, 1))
                walk.forget()

    def _emit_boolean_end(self) -> None:
        """Emits packed booleans: the eight of a byte are gathered and written together.

        Places past the end hold the last element again; a buffer of booleans is whole bytes.
        """
        walk, width = self.walk, self.loops.width
        last = self.kernel.size(self.loops.inner, self.loops.bits) - 1

        @each(0, self.unroll)
        def _(u: Any) -> None:
            fragment = self._number(u)
            with ops.if_(fragment < self.count):
                first = fragment * width
                lanes = tuple(ops.minimum(first + i, last) for i in range(width))
                at = self._at(Index(lanes=lanes))
                walk.forget()
                for value, target in self.targets:
                    found = walk.value(value, at, width)
                    if target.tensor.type.kind == "b":
                        target.store_bytes(self._at(Index(first, 1, width)), found, last)
                        continue
                    for i in range(width):
                        inside = first + i <= last
                        target.store([c.at(i) for c in at], ops.extract(found, i), inside)
                walk.forget()


POINTWISE = PointwiseEngine()
