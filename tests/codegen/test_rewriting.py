"""A tile is rewritten row by row: which rows the threads take, in tiles of any height."""

from types import SimpleNamespace

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.codegen import ops
from dnnc.codegen.hopper.rewriting import THREADS, RawRows, Rewriting
from dnnc.codegen.memory import smem
from dnnc.codegen.memory.tensors import GlobalTensor
from dnnc.codegen.walk.index import Index
from tests.support import machine

from .kernels import WARP, plan_of, tensor

CHUNK, CHUNKS = 8, 8  # elements of 16 bytes; of a row
ROWS, K = (THREADS + WARP) // CHUNKS, CHUNK * CHUNKS  # in shared memory: a tile has fewer rows


def kept(rows, together):
    """[row][k] of what is kept of a tile of ones as it is rewritten; 0 elsewhere."""
    x, y = (tensor(uid, dtypes.bf16, [ROWS, K]) for uid in (1, 2))

    def emit(output):
        kernel = output.kernel("", THREADS + WARP)
        with kernel.body():
            memory, token = kernel.dynamic_shared(ROWS * K * 2, 1024), ops.const(0)
            source, target = GlobalTensor(kernel, x), GlobalTensor(kernel, y)
            row, chunk = ops.thread_id() // CHUNKS, ops.thread_id() % CHUNKS
            at = [Index(row), Index(chunk * CHUNK, 1, CHUNK)]
            ones = source.load(at, CHUNK)
            place = smem.SwizzledTile(1, K * 2).offset(row, chunk)
            ops.store(smem.byte_pointer(memory, place), ones, 16)
            target.store(at, ops.zeros(ones.type))
            ops.barrier()
            region = SimpleNamespace(
                leaves=lambda kernel: {}, symbols=(), dims_of=lambda value: x.shape,
                accesses=lambda value, whole: [(token, whole)],
            )  # fmt: skip
            rewriting = Rewriting(
                kernel, region, token, dtypes.bf16, [RawRows(token, x, 0, K)], K, 0
            )

            def keep(row, k, fragment, is_there):
                target.store([Index.of(row), k], fragment)

            with ops.if_(ops.less(WARP - 1, ops.thread_id())):
                columns = rewriting.columns(ops.const(0), ops.const(0))
                rewriting.rewrite(
                    memory, rows, columns, lambda row: None, lambda: None, keep, together=together
                )
        output.launch(kernel, (1, 1, 1))

    given = {1: np.ones((ROWS, K), np.float32)}
    return machine.current().run(plan_of(emit, [x], [y]), given)[2]


# Threads take 12 rows at a time.
@pytest.mark.parametrize(("rows", "together"), [(5, 0), (5, 4), (15, 4)])
def test_rows_of_a_tile_are_rewritten_and_no_other(rows, together):
    found = kept(rows, together)
    assert (found == (np.arange(ROWS) < rows)[:, None]).all()
