"""OperationGraph: tensors and operations, verified and inferred without any compiler."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import given
from ..dtypes import DType
from ..errors import DnncError, Status
from ..expr import Bound, Dim, Expr, Size, bound_of, bounded, with_dims
from ..places import Place, place_of_data
from . import prior
from .op import Op
from .patterns import expansions, rewritten
from .tensor import (
    SIGNED_ORDER,
    Tensor,
    is_injective,
    is_text,
    packed_strides,
    stride_order,
    strides_like,
    symbols_of,
    text,
)

MAX_OPS = 4096


class OperationGraph:
    """A dataflow graph: operations connected by the tensors they share.

    name: a label.  ops: in any order until finalized, then each after those it needs.
    io_type, intermediate_type, compute_type: what tensors and operations that leave their type
    open get (non-virtual tensors, virtual tensors, operations).
    inferred_strides: those that inference gave to virtual tensors, as cudnn-frontend would.
    shown_strides: of a finalized graph, those of them that are for the user to read, while the
    tensors lie otherwise in memory, if they lie there at all.
    """

    @given.checked
    def __init__(
        self,
        name: str = "graph",
        *,
        io_type: DType | None = None,
        intermediate_type: DType | None = None,
    ):
        self.name = name
        self.io_type = io_type
        self.intermediate_type = intermediate_type
        self.ops: list[Op] = []
        self.is_finalized = False
        self.shown_strides: dict[Tensor, tuple[Expr, ...]] = {}
        self.inferred_strides: dict[Tensor, tuple[Expr, ...]] = {}
        self._loose: list[Tensor] = []
        self.bounds: list[tuple[Bound, Mapping[str, Dim]]] = []
        self.repeats = False  # whether results must have the same bits each time
        self._expanded: list[Op] | None = None
        self._composites: list[tuple[Op, list[Op]]] = []
        self._forms: Mapping[Tensor, Tensor] = {}
        self._text: str | None = None

    # ---- building

    def add(self, op: Op) -> Op:
        """Appends an operation; RuntimeError (BAD_PARAM_NOT_FINALIZED) once it is finalized."""
        self._require_open()
        self.ops.append(op)
        return op

    def add_tensor(self, tensor: Tensor) -> Tensor:
        """Declares a tensor ahead of its use, so that its uid is reserved."""
        self._require_open()
        self._loose.append(tensor)
        return tensor

    def bound(self, product: Size, *, max: int) -> None:
        """States that a product of sizes is `max` at most, as of batch * length.

        Kernels may rely on it; whoever runs the plan with larger sizes gets an error.
        """
        self._require_open()
        self.bounds.append(bound_of(product, max))

    def _require_open(self) -> None:
        if self.is_finalized:
            raise DnncError(
                Status.BAD_PARAM_NOT_FINALIZED,
                "the graph is finalized and can't change",
                "a new graph",
                f"graph '{self.name}'",
            )

    # ---- its parts

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that an operation uses, each once, in order of use."""
        return tuple(dict.fromkeys([t for op in self.ops for t in (*op.operands, *op.results)]))

    @property
    def declared(self) -> tuple[Tensor, ...]:
        """Every tensor there is: those declared ahead of their use, and all of `tensors`."""
        return tuple(dict.fromkeys((*self._loose, *self.tensors)))

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Tensors that no operation makes, by-value ones included, constants not."""
        made = set(self.producers)
        return tuple(t for t in self.tensors if t not in made and not t.is_constant)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Tensors that an operation makes and that are not virtual."""
        return tuple(t for t in self.producers if not t.is_virtual)

    @property
    def producers(self) -> dict[Tensor, Op]:
        """Tensor -> the operation that makes it."""
        return {tensor: op for op in self.ops for tensor in op.results}

    @property
    def live_ops(self) -> list[Op]:
        """The operations that are run, in order: those that an output depends on, a composite
        one as what it stands for.  The graph must be finalized."""
        if self._expanded is None:
            self._expanded = self._live(self._expansion())
        return self._expanded

    def _live(self, ops: Sequence[Op]) -> list[Op]:
        producers, live = {t: op for op in ops for t in op.results}, set[Op]()
        pending = [self._forms.get(tensor, tensor) for tensor in self.outputs]
        while pending:
            op = producers.get(pending.pop())
            if op is not None and op not in live:
                live.add(op)
                pending.extend(op.operands)
        return [op for op in ops if op in live]

    def _expansion(self) -> list[Op]:
        """The operations, composite ones replaced, on plain operands; new tensors have uids that
        are free."""
        # Written with operations, which need NumPy.
        from .nested_reductions import in_steps
        from .plain_operands import plain
        from .sliced_products import with_sliced_products

        patterns = expansions()
        expanded = [(op, rewritten([op], patterns)) for op in self.ops]
        for op, parts in expanded:
            for part in parts:
                part.made_at = op.made_at
        found = plain(in_steps([part for _, parts in expanded for part in parts]))
        self._forms = found.forms
        self._composites = [
            (op, [step for part in parts for step in found.places.get(part, ())])
            for op, parts in expanded
            if parts != [op]
        ]
        ops = with_sliced_products(found.ops)
        used = (t for op in ops for t in (*op.operands, *op.results))
        give_uids(dict.fromkeys((*self.declared, *used)))
        return ops

    def form_of(self, tensor: Tensor) -> Tensor:
        """The tensor that stands for one in `live_ops`: itself, or one of its uid."""
        return self._forms.get(tensor, tensor) if self.live_ops else tensor

    @property
    def composites(self) -> list[tuple[Op, list[Op]]]:
        """(an operation, those of `live_ops` that stand for it), of each that stands for others."""
        live = set(self.live_ops)
        return [(op, [part for part in parts if part in live]) for op, parts in self._composites]

    @property
    def must_repeat(self) -> bool:
        """Whether results must have the same bits each time: the graph or an operation says so."""
        return self.repeats or any(op.must_repeat for op in self.ops)

    def consumers(self, tensor: Tensor) -> Iterator[Op]:
        return (op for op in self.ops if tensor in op.operands)

    @property
    def symbols(self) -> dict[str, Dim]:
        """The graph's symbols by name, sorted."""
        found = symbols_of(self.tensors)
        return {name: found[name] for name in sorted(found)}

    def tensor(self, key: int | str) -> Tensor:
        """The tensor with this uid, or with this name if only one has it."""
        found = [
            t for t in self.tensors if key in ((t.uid,) if isinstance(key, int) else (t.name,))
        ]
        if len(found) != 1:
            named = ", ".join(f"{t.uid}{f' ({t.name})' if t.name else ''}" for t in self.tensors)
            raise DnncError(
                Status.BAD_PARAM,
                f"{len(found)} tensors are called {key!r}",
                f"a uid or a unique name of: {named}",
                f"graph '{self.name}'",
            )
        return found[0]

    # ---- finalizing

    def finalize(self) -> OperationGraph:
        """Assigns uids, orders and infers, verifies; then the graph no longer changes."""
        if not self.is_finalized:
            self._validated()
            self._lay_out_inside()
            self.is_finalized = True
        return self

    def validate(self) -> None:
        """Every check and inference of `finalize`; the graph stays open, and as it was written."""
        undo = self._validated()
        undo()

    def _validated(self) -> Callable[[], None]:
        """Checks, orders and infers; gives what puts back what `_as_stored` has replaced."""
        if not self.ops:
            raise self._error(Status.BAD_PARAM, "no operations", "one operation at least")
        if len(self.ops) > MAX_OPS:
            raise self._error(Status.NOT_SUPPORTED, f"{len(self.ops)} operations", f"{MAX_OPS}")
        _verify_name(self.name)
        self._for_each_op(lambda op: _verify_name(op.name))
        self._for_each_op(lambda op: op.verify_fields())
        for tensor in self.declared:
            tensor.verify_fields()
        self._bound_sizes()
        self._expanded = self._text = None  # they are of the graph as it was
        undo = self._as_stored()
        try:
            self._assign_uids()
            self._verify_producers()
            self.ops = self._ordered()
            self._infer()
            self._verify()
        except DnncError:
            undo()
            raise
        return undo

    def _bound_sizes(self) -> None:
        """Gives the tensors' symbols the bounds of products that they are factors of."""
        if not self.bounds:
            return
        known = {name: replace(dim, within=()) for name, dim in symbols_of(self.tensors).items()}
        for bound, dims in self.bounds:
            for name, dim in dims.items():
                if known.get(name) != replace(dim, within=()):
                    raise self._error(
                        Status.BAD_PARAM,
                        f"a bound of {bound}, with {dim!r}",
                        f"{known[name]!r}" if name in known else f"sizes {', '.join(known)}",
                    )
        dims = bounded(known, [bound for bound, _ in self.bounds])
        for tensor in self.declared:
            if tensor.dims is not None:
                tensor.dims = tuple(with_dims(size, dims) for size in tensor.dims)
            if tensor.strides is not None:
                tensor.strides = tuple(with_dims(size, dims) for size in tensor.strides)

    def _error(
        self, status: Status, what: str, supported: str = "", made_at: Place | None = None
    ) -> DnncError:
        return DnncError(status, what, supported, f"graph '{self.name}'", made_at=made_at)

    def _for_each_op(self, check: Callable[[Op], None]) -> None:
        """Checks the operations in order; errors say where the one that they came of was made,
        unless they say where its tensor was."""
        for op in self.ops:
            try:
                check(op)
            except DnncError as error:
                error.made_at = error.made_at or op.made_at
                raise

    def _as_stored(self) -> Callable[[], None]:
        """Operations on elements where tensors are vectorized or reordered, and those that give
        signs to what dropout drops; tensors of memory keep their uids.

        Gives what undoes it.
        """
        has_vectors = any(tensor.is_vectorized for tensor in self.tensors)
        has_order = any(t.reordering == SIGNED_ORDER and not t.is_virtual for t in self.tensors)
        if not has_vectors and not has_order:
            return lambda: None
        # Operations, which need NumPy, which a cached plan does without.
        from . import dropped_signs, orders, vectors

        orders.require_known(self.tensors)
        for tensor in self.tensors:  # what is new gets its uid after them
            if tensor not in self._loose:
                self._loose.append(tensor)
        before = self.ops
        ops, as_vectors = vectors.unfold(before, self.io_type)
        ops = dropped_signs.with_signs(ops, self.io_type)
        self.ops, as_matrices = orders.unfold(ops, self.io_type)

        def undo() -> None:
            self.ops = before
            as_matrices()
            as_vectors()

        return undo

    def _assign_uids(self) -> None:
        taken: dict[int, Tensor] = {}
        for tensor in self.declared:
            if tensor.uid is None:
                continue
            if not 0 <= tensor.uid < 1 << 63:
                raise tensor.error(Status.BAD_PARAM, f"uid {tensor.uid}", "0 to 2**63 - 1")
            if tensor.uid in taken:
                raise tensor.error(
                    Status.BAD_PARAM_DUPLICATED_ENTRIES,
                    f"uid {tensor.uid} is also that of '{taken[tensor.uid].name}'",
                    "a uid for one tensor only",
                )
            taken[tensor.uid] = tensor
        give_uids(self.declared)

    def _verify_producers(self) -> None:
        made: dict[Tensor, Op] = {}
        for op in self.ops:
            for tensor in op.results:
                if tensor in made:
                    raise tensor.error(
                        Status.BAD_PARAM_DUPLICATED_ENTRIES,
                        f"made by {made[tensor].label} and by {op.label}",
                        "one operation that makes it",
                    )
                if tensor.is_by_value or tensor.value is not None:
                    raise tensor.error(
                        Status.BAD_PARAM, f"a scalar made by {op.label}", "a scalar as an input"
                    )
                made[tensor] = op
        for tensor in self.tensors:
            if tensor.is_virtual and tensor not in made:
                raise tensor.error(
                    Status.BAD_PARAM,
                    "virtual, but no operation makes it",
                    "an operation that makes it, or a tensor that is not virtual",
                )

    def _ordered(self) -> list[Op]:
        """The operations so that each comes after those it needs, ties as they were added."""
        made, ops = self.producers, self.ops
        place = {op: i for i, op in enumerate(ops)}
        needed = [{place[made[t]] for t in op.operands if t in made} for op in ops]
        waiting = [len(others) for others in needed]
        readers: list[list[int]] = [[] for _ in ops]
        for i, others in enumerate(needed):
            for other in others:
                readers[other].append(i)
        ready = [i for i, count in enumerate(waiting) if not count]  # sorted: a heap
        ordered: list[Op] = []
        while ready:
            first = heapq.heappop(ready)
            ordered.append(ops[first])
            for i in readers[first]:
                waiting[i] -= 1
                if not waiting[i]:
                    heapq.heappush(ready, i)
        if len(ordered) < len(ops):
            left = [op for op, count in zip(ops, waiting, strict=True) if count]
            raise self._error(
                Status.NOT_SUPPORTED_GRAPH_PATTERN,
                f"a cycle through {', '.join(op.label for op in left)}",
                "a graph in which no operation needs its own result",
                left[0].made_at,
            )
        return ordered

    def _lay_out_inside(self) -> None:
        """Gives virtual tensors whose strides are inferred the operations' `inner_strides`.

        A tensor that a reshape keeps the memory of stays in its order, which says what goes where.
        """
        kept: set[Tensor] = set()
        for op in self.ops:
            if op.keeps_memory:
                kept.update((*op.operands, *op.results))
        for op in self.ops:
            for tensor in op.results:
                is_inferred = self.inferred_strides.get(tensor) == tensor.strides
                if not tensor.is_virtual or not is_inferred:
                    continue
                self.shown_strides[tensor] = tensor.layout
                if tensor not in kept:
                    tensor.strides = op.inner_strides(tensor)
                elif not tensor.is_dense():
                    order = stride_order(tensor.shape, tensor.layout)
                    tensor.strides = packed_strides(tensor.shape, order)

    def _infer(self) -> None:
        made = self.producers
        is_open = [t for t in self.tensors if t.is_virtual and t.strides is None]
        for tensor in self.tensors:
            if tensor.dtype is None and tensor not in made:
                tensor.dtype = self.io_type
            tensor.normalize_value()
        self._for_each_op(self._infer_op)
        self.inferred_strides |= {tensor: tensor.layout for tensor in is_open}

    def _infer_op(self, op: Op) -> None:
        for _, tensor in op.tensors("operand"):
            tensor.verify()
        op.verify_rank_0()
        results = [tensor for tensor in op.results if tensor.strides is None]
        op.infer()
        for tensor in results:
            separate(tensor)
        for tensor in op.results:
            if tensor.dtype is None:
                wanted = self.intermediate_type if tensor.is_virtual else self.io_type
                like = op.operands[0].dtype if type(op).role == "view" else None
                tensor.dtype = wanted or self.io_type or like
            tensor.verify()
            if tensor.repeated_axes:
                raise tensor.error(
                    Status.NOT_SUPPORTED_LAYOUT,
                    f"strides {[str(s) for s in tensor.layout]} of a result put two elements in "
                    "one place",
                    "strides of 0 for inputs alone",
                )

    def _verify(self) -> None:
        self._for_each_op(lambda op: op.verify())
        self._verify_ragged()
        if not self.outputs:
            raise self._error(
                Status.BAD_PARAM, "every result is virtual", "one output at least, by set_output"
            )
        for tensor in self.outputs:
            if not is_injective(tensor.shape, tensor.layout):
                raise tensor.error(
                    Status.NOT_SUPPORTED_LAYOUT,
                    f"strides {text(tensor.layout)} put two elements in one place",
                    "an output whose elements do not overlap",
                )
        self._verify_peers()
        if any(tensor.prior_of is not None for tensor in self.tensors):
            prior.verify(self)
        symbols_of(self.tensors)

    def _verify_ragged(self) -> None:
        """No operation reads the offsets of a tensor: those of `ragged_load` are operands."""
        for tensor in self.tensors:
            if tensor.ragged_offset is not None:
                users = [op.label for op in self.ops if tensor in (*op.operands, *op.results)]
                raise tensor.error(
                    Status.NOT_SUPPORTED_LAYOUT,
                    f"ragged, sequences packed at offsets, and a tensor of {users[0]}",
                    "an operand or a result of pygraph's sdpa with lengths; else operations "
                    "ragged_load and ragged_store",
                )

    def _verify_peers(self) -> None:
        """Refuses other uses, in other operations, of what devices exchange values through."""
        used = Counter(tensor for op in self.ops for tensor in (*op.operands, *op.results))
        for op in self.ops:
            for field, tensor in op.tensors("operand"):
                if field.is_peer and used[tensor] > 1:
                    raise tensor.error(
                        Status.BAD_PARAM,
                        f"{field.name} of {op.label}, and used {used[tensor] - 1} times beside",
                        "tensors of its own for each operation of several devices",
                    )

    # ---- where a user's program made it

    def places(self) -> dict[str, Any]:
        """Where operations, in order, and tensors, by uid, were made: JSON data that goes beside
        the graph's own to another process."""
        tensors = {str(t.uid): t.made_at for t in self.tensors if t.made_at is not None}
        return {"ops": [op.made_at for op in self.ops], "tensors": tensors}

    def set_places(self, places: Any) -> OperationGraph:
        """Takes what `places` gave of an equal graph; gives itself."""
        for op, place in zip(self.ops, places["ops"], strict=True):
            op.made_at = place_of_data(place)
        for tensor in self.tensors:
            tensor.made_at = place_of_data(places["tensors"].get(str(tensor.uid)))
        return self

    # ---- identity

    def canonical_text(self) -> str:
        """The compact JSON form, equal for equal graphs; the graph must be finalized."""
        if not self.is_finalized:
            raise self._error(
                Status.BAD_PARAM_NOT_FINALIZED, "the graph is not finalized", "finalize() first"
            )
        if self._text is None:
            from .json_form import to_json

            self._text = json.dumps(to_json(self), separators=(",", ":"), sort_keys=True)
        return self._text

    def key(self) -> str:
        """SHA-256 of the canonical text: topology, sizes, types and names."""
        return hashlib.sha256(self.canonical_text().encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OperationGraph):
            return NotImplemented
        return self.canonical_text() == other.canonical_text()

    def __hash__(self) -> int:
        return hash(self.canonical_text())

    def __repr__(self) -> str:
        return f"<OperationGraph '{self.name}': {', '.join(op.label for op in self.ops)}>"


def _verify_name(name: str) -> None:
    if not is_text(name):
        raise DnncError(Status.BAD_PARAM, f"name {name!a:.80}", "text of UTF-8", "graph")


def give_uids(tensors: Iterable[Tensor]) -> None:
    """Gives tensors without a uid the smallest from 1 that none of them has."""
    listed = list(tensors)
    taken = {tensor.uid for tensor in listed}
    free = 1
    for tensor in listed:
        if tensor.uid is None:
            while free in taken:
                free += 1
            tensor.uid = free
            taken.add(free)


def separate(tensor: Tensor) -> None:
    """Packs a result that has the strides of an operand whose elements overlap."""
    dims, strides = tensor.dims, tensor.strides
    if dims is None or strides is None or len(dims) != len(strides):
        return  # `verify` says so
    tensor.strides = strides_like(tensor)
