# pyright: basic
"""Results of a tile in shared memory to rows that lie anywhere, as no tensor map has them.

A buffer's rows are those of `StagedStore`, swizzled.  Threads side by side store 16 bytes each of a
row, so that whole lines are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...codegen import ops
from ...codegen.hopper import wgmma
from ...codegen.hopper.staged_store import StagedStore, swizzle_of
from ...codegen.memory.smem import CHUNK_BYTES, pointer_to
from ...codegen.memory.tensors import GlobalTensor, register_type
from ...codegen.state import each
from ...codegen.walk.index import Coordinate

# (row, column, neighbours, whether they lie along the rows) -> (coordinates, whether there are any)
Place = Callable[[Any, Any, int, bool], tuple[Sequence[Coordinate], Any]]


def scatter(
    target: GlobalTensor, store: StagedStore, lines: int, source: Any, thread: Any, place: Place
) -> None:
    """Stores the first lines of a buffer, by all threads of a warpgroup.

    source: i32 address of the buffer.  place: of elements, from the buffer's first on.
    """
    elems, row_bytes = CHUNK_BYTES // store.element_bytes, store.box.row_bytes
    type_ = ops.vector_type(register_type(store.box.tensor.type), elems)
    chunks = row_bytes // CHUNK_BYTES
    count = lines * chunks
    # Else where a buffer's rows lie would stay in registers, beside the sums, for the next one that
    # has the same rows.
    thread = ops.opaque(thread)

    # A loop that stays one: written out, its rows' places would lie beside the sums, too.
    rounds = ops.opaque(ops.const(-(-count // wgmma.WARPGROUP_THREADS)))

    @each(0, rounds)
    def _(i: Any) -> None:
        number = thread + i * wgmma.WARPGROUP_THREADS
        is_own = ops.less(number, count) if count % wgmma.WARPGROUP_THREADS else None
        line = number // chunks
        chunk = number - line * chunks
        inner = (chunk * CHUNK_BYTES) ^ swizzle_of(row_bytes, line)
        from_ = pointer_to(source + (line * row_bytes + inner))
        along = chunk * elems
        row, column = (along, line) if store.is_transposed else (line, along)
        at, inside = place(row, column, elems, store.is_transposed)
        target.store(at, ops.load(from_, type_, CHUNK_BYTES), ops.both(is_own, inside))
