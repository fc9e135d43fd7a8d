"""Host time of the first execution at a size: one plan, whose number of rows is a symbol."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dnnc

N, K = 1536, 384
MOST_ROWS = 1 << 16
COUNT = 30

Arrays = Mapping[str, Any]
Execute = Callable[[int, Arrays], None]


class SymbolicPlan:
    """y [1, M, N] = relu(x [1, M, K] @ w [1, K, N] + b [1, 1, N]), bf16, compiled for a target.

    w is stored as [N, K].
    """

    def __init__(self, target: str, stream: int):
        kind = dnnc.data_type
        handle = dnnc.create_handle()
        dnnc.set_stream(handle, stream)
        self.graph = dnnc.pygraph(
            "ffn", kind.BFLOAT16, kind.FLOAT, kind.FLOAT, handle=handle, target=target
        )
        m = dnnc.Dim("M", max=MOST_ROWS)
        x = self.graph.tensor([1, m, K], name="x")
        w = self.graph.tensor([1, K, N], [N * K, 1, K], name="w")
        b = self.graph.tensor([1, 1, N], name="b")
        y = self.graph.relu(self.graph.bias(self.graph.matmul(x, w), b)).set_output()
        self.tensors = {"x": x, "w": w, "b": b, "y": y}
        self.graph.build()
        self.stream = stream

    def workspace_size(self) -> int:
        return self.graph.get_workspace_size()

    def through_symbol(self, workspace: Any) -> Execute:
        """M is read off the dims of x and y."""

        def execute(rows: int, arrays: Arrays) -> None:
            self.graph.plan.execute(self._pack(arrays), workspace, stream=self.stream)

        return execute

    def through_overrides(self, workspace: Any) -> Execute:
        """M follows from the dims that override those of x and y."""
        uids = [self.tensors[name].uid for name in ("x", "y")]

        def execute(rows: int, arrays: Arrays) -> None:
            self.graph.execute(
                self._pack(arrays), workspace,
                override_uids=uids,
                override_shapes=[[1, rows, K], [1, rows, N]],
                override_strides=[[rows * K, K, 1], [rows * N, N, 1]],
            )  # fmt: skip

        return execute

    def _pack(self, arrays: Arrays) -> dict[Any, Any]:
        return {tensor: arrays[name] for name, tensor in self.tensors.items()}


MOVES, MOVE_BYTES = 1000, 256  # more than a plan remembers


def moving(addresses: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Addresses that all move on from one to the next; none is one that a plan remembers."""
    steps = range(0, MOVES * MOVE_BYTES, MOVE_BYTES)
    return itertools.cycle([tuple([each + step for each in addresses]) for step in steps])


def row_counts(count: int = COUNT, seed: int = 0) -> list[int]:
    """Distinct, log-uniform up to MOST_ROWS, in no order."""
    draw = random.Random(seed)
    found: dict[int, None] = {}
    while len(found) < count:
        found[min(MOST_ROWS, round(2 ** draw.uniform(0, 16)))] = None
    return list(found)


def first_times(
    execute: Execute,
    arrays_of: Callable[[int], Arrays],
    synchronize: Callable[[], object],
    counts: Sequence[int],
) -> dict[str, float]:
    """Median and worst microseconds of the host, of all but the first: that loads the code.

    A plan may have several kernels for different sizes; to load those after the first counts.
    arrays_of: arrays of so many rows.
    """
    found: list[float] = []
    for rows in counts:
        arrays = arrays_of(rows)
        synchronize()
        began = time.perf_counter()
        execute(rows, arrays)
        found.append(1e6 * (time.perf_counter() - began))
    synchronize()
    later = found[1:]
    return {"host_us": round(statistics.median(later), 2), "worst_us": round(max(later), 2)}
