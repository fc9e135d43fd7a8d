# pyright: basic
"""What conv_sm90 reads off a region: how each operand and each output goes, as a `Tiling`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..codegen import tma, wgmma
from ..codegen.region import Region
from ..dialect import dnn, structure
from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..expr import Expr
from .conv import pixel_matrix
from .conv_call import shape_of_call
from .engine import Knobs
from .facts_sm90 import promotes_sums
from .knobs_sm90 import cluster_of, consumers_of
from .region_sm90 import instruction_of, product_calls, staged_loads
from .tile_sm90 import Tiling, chunk_columns, slices_of, stored_by_tma


def conv_tiling_of(region: Region, knobs: Knobs) -> Tiling:
    """knobs: of the main loop, see `main_loop_knobs`."""
    calls = product_calls(region)
    groups = shape_of_call(region, calls[0]).groups
    row = instruction_of(region, swaps=False)
    rows, columns, splits = knobs["TILE_M"], knobs["TILE_N"], knobs["SPLIT_K_SLC"]
    outputs = tuple(
        "tma" if pixels_stored_by_tma(tensor, groups) else "direct" for _, tensor in region.outputs
    )
    staged = tuple(
        tensor.type.bits // 8
        for (_, tensor), path in zip(region.outputs, outputs, strict=True)
        if path == "tma"
    )
    loads = staged_loads(region, calls, lambda t: pixels_move_by_tma(t, groups))
    loads = loads if splits == 1 else []
    arguments = list(region.arguments.values())
    loaded = tuple(arguments[place].type.bits // 8 for place in loads)
    compute = dnn.attribute_value(
        structure.anchor_of(calls[0]).attributes["dnn.compute_type"], DType
    )
    channels = region.dims_of(calls[0].results[0])[1]
    return Tiling(
        row=row,
        rows=rows,
        columns=columns,
        swaps=False,
        consumers=consumers_of(rows),
        stages=knobs["STAGES"],
        cluster=cluster_of(knobs),
        group_rows=max(1, knobs["SWIZZLE"] // (rows * knobs["TILE_CGA_M"])),
        operands=_operand_plans((rows, columns)),
        products=((0, 1),),
        promotes=promotes_sums(row.a, compute),
        loads=tuple(loads),
        outputs=outputs,
        staged_bytes=staged,
        loaded_bytes=loaded,
        chunk=chunk_columns(columns // slices_of(columns, splits), [*staged, *loaded]),
        pair=2 if _is_even(channels, groups) else 1,
        splits=splits,
        producers=1,
        groups=0,
        exchanges=0,
        streams=bool(knobs["STREAM_K"]),
        is_dynamic=bool(knobs["SCHED_POLICY"]),
    )


def _operand_plans(sides: Sequence[int]) -> tuple[dict[str, Any], ...]:
    """X, then W, each a panel of k behind the other; see `StagedOperand.plan`."""
    found, offset = [], 0
    for side, is_rows in zip(sides, (True, False), strict=True):
        bytes_ = side * wgmma.ROW_BYTES
        place = {"offset": offset, "bytes": bytes_, "raw": -1, "raw_offset": 0, "raw_bytes": 0}
        found.append({"path": "tma", "is_a": is_rows, "is_rows": is_rows, **place})
        offset += bytes_
    return tuple(found)


def _is_even(channels: Expr, groups: int) -> bool:
    return (channels.known_divisor() // groups) % 2 == 0


def pixels_move_by_tma(tensor: Tensor, groups: int) -> bool:
    """Whether tiles of a tensor of Y's dims can be loaded through the copy engine."""
    matrix = pixel_matrix(tensor, groups)
    return matrix is not None and tma.refusal(matrix, (2, 1)) is None


def pixels_stored_by_tma(tensor: Tensor, groups: int) -> bool:
    """Whether they can be stored so, see `stored_by_tma`."""
    matrix = pixel_matrix(tensor, groups)
    return matrix is not None and stored_by_tma(matrix, swaps=False)
