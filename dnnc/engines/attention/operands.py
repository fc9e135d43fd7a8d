"""Operands of an attention's products in memory: read through views, gathers, products by numbers
and selections of zeros past lengths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ... import dtypes
from ...codegen.ampere.operand_tile import access_bytes, is_unit
from ...codegen.memory.smem import CHUNK_BYTES
from ...dialect.fusion import Fusion
from ...dialect.op import Op
from ...dialect.ops import (
    Concatenate,
    PagedCacheLoad,
    Pointwise,
    RaggedLoad,
    Reshape,
    Slice,
    Transpose,
)
from ...dialect.pointwise_modes import TRIGONOMETRIC
from ...dialect.tensor import Tensor, packed_strides
from ...errors import Status
from ...expr import Expr
from ..engine import Reason
from ..surface import pattern_reason

PART_ELEMENTS = 8  # of queries that are computed together
ACCEPTED = "softmax between two matmuls, pointwise operations on scores, weights and result"


@dataclass(frozen=True, eq=False)
class Operand:
    """A tensor in memory that a product reads.

    is_transposed: its last two axes are exchanged.  load: what gathers its rows, None: they lie in
    place.  batch: its axes of heads.  lengths: of entries of the batch, past which rows in place
    are zeros; None: all are there.  made_by: gives the tensor,
    which the kernel computes as it loads it; None: it is in memory.
    """

    tensor: Tensor
    is_transposed: bool
    load: PagedCacheLoad | RaggedLoad | None
    batch: tuple[Expr, ...]
    lengths: Tensor | None = None
    made_by: Op | None = None


class NoMatch(Exception):
    """The fusion is no attention: what was found, what would be accepted."""

    def __init__(self, what: str, accepted: str = ACCEPTED):
        super().__init__(what)
        self.reason = pattern_reason(what, accepted)


class OperandReader:
    """Finds where the operands of a fusion's products lie."""

    def __init__(self, fusion: Fusion):
        self.fusion = fusion

    def _multiple(self, op: Op) -> Tensor | None:
        """The value that an operation multiplies by numbers, which multiply the scores as well;
        None: it is another."""
        if not isinstance(op, Pointwise) or op.mode != "mul" or op.compute_type != dtypes.f32:
            return None
        along = [t for t in op.operands if t.shape == op.y.shape]
        others = [t for t in op.operands if t not in along]
        is_multiple = len(along) == 1 and all(self._is_number(t) for t in others)
        return along[0] if is_multiple else None

    def _is_number(self, tensor: Tensor) -> bool:
        """Whether it is one element in memory, or a constant."""
        return tensor.elements().constant == 1 and tensor not in self.fusion.producers

    def operand(
        self, tensor: Tensor, *, may_be_scaled: bool = False, may_be_cut: bool = False
    ) -> Operand:
        """The operand that is read in memory, through views; may_be_scaled: and products by
        numbers; may_be_cut: and a selection of zeros past lengths, which a load that is cut to
        the same lengths makes a second time."""
        is_transposed, label = False, tensor.label
        lengths: Tensor | None = None
        while (op := self.fusion.producers.get(tensor)) is not None:
            if isinstance(op, PagedCacheLoad | RaggedLoad):
                if lengths not in (None, op.sequence):
                    raise NoMatch(f"{label} is cut to other lengths than those of {op.label}")
                return self._gathered(op, is_transposed)
            if may_be_scaled and (along := self._multiple(op)) is not None:
                tensor = along
                continue
            if (
                may_be_cut
                and lengths is None
                and not is_transposed
                and (cut := self._cut(op)) is not None
            ):
                tensor, lengths = cut
                continue
            if isinstance(op, Transpose) and exchanges_last(op):
                is_transposed = not is_transposed
            elif lengths is not None or not (isinstance(op, Reshape) and regroups(op)):
                raise NoMatch(f"{label} is computed by {op.label}", "operands in memory")
            tensor = op.x
        return Operand(tensor, is_transposed, None, tensor.shape[:-2], lengths)

    def queries(self, tensor: Tensor) -> Operand:
        """The first operand of the first product: in memory, or rotated, which the kernel computes:
        concatenated of what views and pointwise work without cosines make of tensors in memory."""
        op = self.fusion.producers.get(tensor)
        while isinstance(op, Reshape) and regroups(op):
            op = self.fusion.producers.get(op.x)
        if not isinstance(op, Concatenate):
            return self.operand(tensor, may_be_scaled=True)
        is_whole = all((t.shape[-1].constant or 1) % PART_ELEMENTS == 0 for t in op.inputs)
        is_of_rows = op.axis == op.y.rank - 1 and is_whole and op.y.type.bits == 16
        heavy = [other for other in self.fusion.upstream(op.y) if not self._is_light(other)]
        if heavy or not is_of_rows:
            maker = heavy[0] if heavy else op
            raise NoMatch(f"{tensor.label} is computed by {maker.label}", "operands in memory")
        packed = replace(op.y, strides=packed_strides(op.y.shape))
        return Operand(packed, False, None, op.y.shape[:-2], made_by=op)

    def _is_light(self, op: Op) -> bool:
        """Whether an operation can be computed as an operand is loaded.

        Cosines of a row are the same for all heads: a kernel ahead that has some heads at once
        computes them once (4x32x4096 rows of 128 on an H200: 79 us, 212 inside attention).
        """
        if isinstance(op, Pointwise):
            return op.mode not in TRIGONOMETRIC
        return isinstance(op, Transpose | Reshape | Slice | Concatenate)

    def _cut(self, op: Op) -> tuple[Tensor, Tensor] | None:
        """(rows, lengths) of an operation that replaces rows past a length of each entry of the
        batch by zeros; None: it does something else."""
        if not isinstance(op, Pointwise) or op.mode != "binary_select":
            return None
        zero, condition, rows = op.b, op.t, op.x
        if zero is None or condition is None or zero.value != 0 or op.compute_type != dtypes.f32:
            return None
        if condition.type != dtypes.i1:
            return None
        test = self.fusion.producers.get(condition)
        if rows.shape != op.y.shape or rows.type != op.y.type or not isinstance(test, Pointwise):
            return None
        if test.b is None or test.compute_type != dtypes.i32:
            return None
        sides = {"cmp_lt": (test.x, test.b), "cmp_gt": (test.b, test.x)}.get(test.mode)
        if sides is None:
            return None
        row, lengths = sides
        index = self.fusion.producers.get(row)
        if not isinstance(index, Pointwise) or index.mode != "gen_index" or row.type != dtypes.i32:
            return None
        if index.axis != rows.rank - 2 or index.compute_type != dtypes.i32:
            return None
        is_fit = lengths.type == dtypes.i32 and all(
            own in (whole, Expr.of(1)) for own, whole in zip(lengths.shape, rows.shape, strict=True)
        )
        is_of_entries = all(n.constant == 1 for n in lengths.shape[-2:])
        is_simple = all(self.is_simple(o) for o in self.fusion.upstream(lengths))
        return (rows, lengths) if is_fit and is_of_entries and is_simple else None

    def _gathered(self, op: PagedCacheLoad | RaggedLoad, is_transposed: bool) -> Operand:
        memory = op.packed if isinstance(op, RaggedLoad) else op.container
        for tensor in op.operands:
            # Lengths and offsets may be made of others, by simple work.
            is_simple = isinstance(op, RaggedLoad) and tensor is not memory
            made_by = self.fusion.upstream(tensor)
            if made_by and not (is_simple and all(self.is_simple(o) for o in made_by)):
                raise NoMatch(f"{tensor.label} of {op.label} is computed", "operands in memory")
        return Operand(memory, is_transposed, op, op.y.shape[:-2])

    def is_simple(self, op: Op) -> bool:
        return isinstance(op, Pointwise) or op.role == "view"

    def keeps_rows(self, op: Op) -> bool:
        """Whether an operation leaves every element at its row and column."""
        return isinstance(op, Pointwise) or (isinstance(op, Reshape) and regroups(op))


def exchanges_last(op: Transpose) -> bool:
    rank = op.x.rank
    return tuple(op.permutation) == (*range(rank - 2), rank - 1, rank - 2)


def regroups(op: Reshape) -> bool:
    """Whether a reshape leaves the last two axes as they are."""
    has_both = op.x.rank > 2 and op.y.rank > 2 and op.x.shape[-2:] == op.y.shape[-2:]
    return has_both and op.counts_up


def copy_reasons(operands: Iterable[tuple[str, Operand, tuple[int, int]]]) -> list[Reason]:
    """Why `cp.async` can't load operands: (name, operand, (axis of elements, axis of rows))."""
    reasons: list[Reason] = []
    supported = "contiguous elements of a head, other strides and the address multiples of 16 bytes"
    for name, operand, (elements, _) in operands:
        tensor = operand.tensor
        if not (is_unit(tensor, elements) or tensor.shape[elements].constant == 1):
            what = f"a stride of {tensor.layout[elements]} between elements of a head"
        elif (known := access_bytes(tensor, elements)) < CHUNK_BYTES:
            what = f"rows aligned to {known} bytes"
        else:
            continue
        reasons.append(Reason(Status.NOT_SUPPORTED_LAYOUT, f"{name} by cp.async", what, supported))
    return reasons
