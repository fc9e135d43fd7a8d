# pyright: basic
"""Reads off a region how each operand and each output of matmul_sm90 goes, as a `Tiling`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ... import dtypes
from ...codegen.ampere.operand_tile import access_bytes, is_unit, layout_model
from ...codegen.hopper import tma, wgmma
from ...codegen.region import Region, identity_access
from ...codegen.walk.region_walk import inputs_of, is_reduction, reduced_axes
from ...dialect import dnn, structure
from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...expr import Expr
from ...mlir import ir
from ..engine import Knobs
from .knobs_sm90 import FRAGMENTS, TURNS, cluster_of, consumers_of, part_of, sides_of
from .shared_layout_sm90 import tile_bytes
from .tile_sm90 import (
    MOST_RAW_BITS,
    Tiling,
    exchanges,
    is_turned,
    moves_by_tma,
    moves_turned,
    stages_turned,
    stored_by_tma,
)

OFFSETS = 2  # operand of the call of a grouped product: the first row of each group


def tiling_of(region: Region, knobs: Knobs) -> Tiling:
    """The tiling that matmul_sm90 decides of a region."""
    calls = product_calls(region)
    swaps = bool(knobs["SWAP_AB"])
    row = instruction_of(region, swaps=swaps)
    rows, columns = sides_of(knobs)
    values = operand_values(calls, swaps=swaps)
    places = {entry: place for place, entry in enumerate(values)}
    products = [
        (places[call.operands[int(swaps)], not swaps], places[call.operands[1 - swaps], swaps])
        for call in calls
    ]
    dims = region.dims_of(calls[0].results[0])
    groups = _most_groups(region, calls[0])
    held = columns * (cluster_of(knobs)[1] if row_reductions_that_flow(region) else 1)
    whole = [tensor for _, tensor in region.outputs if tensor.shape == tuple(dims)]
    can_turn = stages_turned(whole) and not groups
    turned = is_turned(columns, swaps=swaps, can_turn=can_turn)
    leaves_few = swaps and can_turn and not turned
    outputs = [
        "direct" if groups and swaps else _output_path(tensor, dims, held, swaps, turned)
        for _, tensor in region.outputs
    ]
    if leaves_few:
        outputs = ["direct" if path == "tma" else path for path in outputs]
    staged = [
        tensor.type.bits // 8
        for (_, tensor), path in zip(region.outputs, outputs, strict=True)
        if path == "tma"
    ]
    splits = knobs["SPLIT_K_SLC"]
    operands = _operand_plans(
        region, values, row, rows, columns, knobs["WARP_SPEC_CFG"], starts_anywhere=groups > 0
    )
    is_async = all(operand["path"] != "registers" for operand in operands)
    # Warps of a producer that computes have no time to load for the epilogue.
    can_load = splits == 1 and is_async and not ((groups and swaps) or leaves_few)
    moves = moves_turned if turned else partial(moves_by_tma, swaps=swaps)
    loads = staged_loads(region, calls, moves) if can_load else []
    arguments = list(region.arguments.values())
    loaded = [arguments[place].type.bits // 8 for place in loads]
    cluster = cluster_of(knobs)
    spans = row_reductions_that_flow(region) if dims[-1].bounds()[1] > columns else 0
    return Tiling(
        row=row,
        rows=rows,
        columns=columns,
        swaps=swaps,
        consumers=consumers_of(knobs),
        stages=knobs["STAGES"],
        cluster=cluster,
        group_rows=max(1, knobs["SWIZZLE"] // (rows * cluster[0])),
        operands=tuple(operands),
        products=tuple(products),
        promotes=row.a.is_fp8 and _compute_type(calls[0]) != dtypes.fast_float_for_fp8,
        loads=tuple(loads),
        outputs=tuple(outputs),
        staged_bytes=tuple(staged),
        loaded_bytes=tuple(loaded),
        splits=splits,
        producers=1 if is_async else knobs["WARP_SPEC_CFG"],
        # A group may end between two neighbours.
        pair=1 if groups and swaps else _pair(dims[-2 if swaps else -1]),
        groups=groups,
        streams=bool(knobs["STREAM_K"]),
        is_dynamic=bool(knobs["SCHED_POLICY"]),
        is_turned=turned,
        takes_turns=knobs["WARP_SPEC_CFG"] == TURNS,
        exchanges=exchanges(spans, part_of(knobs)[0] // wgmma.M),
    )


# ---- the products


def product_calls(region: Region) -> list[Any]:
    """The calls of the region's anchors, in order."""
    return [op for op in region.operations if op.name == "func.call"]


def operand_values(calls: Sequence[Any], *, swaps: bool) -> list[tuple[Any, bool]]:
    """(SSA tensor, whether it is A) of each distinct operand, those along the rows first."""
    firsts = [(call.operands[1 if swaps else 0], not swaps) for call in calls]
    seconds = [(call.operands[0 if swaps else 1], swaps) for call in calls]
    return [*dict.fromkeys(firsts), *dict.fromkeys(seconds)]


def instruction_of(region: Region, *, swaps: bool) -> wgmma.Instruction:
    """Its first operand is B where the transpose of C is computed."""
    call = next(op for op in region.operations if op.name == "func.call")
    operands = list(call.operands)[:2]
    a, b = (dtypes.of(str(ir.RankedTensorType(v.type).element_type)) for v in operands)
    return wgmma.INSTRUCTIONS[(b, a) if swaps else (a, b)]


def _compute_type(call: Any) -> DType:
    attribute = structure.anchor_of(call).attributes["dnn.compute_type"]
    return dnn.attribute_value(attribute, DType)


def _most_groups(region: Region, call: Any) -> int:
    """Groups of rows at most; 0: of a matmul."""
    if len(call.operands) <= OFFSETS:
        return 0
    return region.dims_of(call.operands[OFFSETS])[0].bounds()[1]


# ---- operands


def _operand_plans(
    region: Region,
    values: Sequence[Any],
    row: wgmma.Instruction,
    rows: int,
    columns: int,
    roles: int,
    *,
    starts_anywhere: bool,
) -> list[dict[str, Any]]:
    """How each operand of a stage is loaded, and where it lies.

    starts_anywhere: whether tiles of A begin at rows that are no multiples of theirs.
    """
    found: list[dict[str, Any]] = []
    offset = raw_offset = 0
    arguments = list(region.arguments.values())
    # Those along the rows come first: A, or swapped, B.
    swaps = not values[0][1]
    for value, is_a in values:
        is_rows = is_a != swaps
        path = operand_path(region, value, row, is_a=is_a, is_rows=is_rows)
        side = rows if is_rows else columns
        if starts_anywhere and is_a and not path["loads_along_k"]:
            # TMA takes no box that begins inside 16 bytes of contiguous rows.
            path |= {"path": "registers", "raw": -1, "is_aligned": False, "k_contiguous": True}
        if side % (16 // row.element_bytes):
            # A chunk of 16 bytes along the rows would be longer than the tile.
            is_aligned = path["loads_along_k"] and path["is_aligned"]
            raw = path["raw"] if path["loads_along_k"] else -1
            path |= {"loads_along_k": True, "is_aligned": is_aligned, "raw": raw}
        if path["path"] == "registers" and side % wgmma.PANEL_ROWS:
            path["k_contiguous"] = True  # what g1 gives may lie either way
        if path["raw"] >= 0 and not path["loads_along_k"]:
            row_bytes = side * arguments[path["raw"]].type.bits // 8
            if row_bytes % tma.ALIGNMENT:
                path |= {"raw": -1, "is_aligned": False}
        bytes_, in_stage = 0, side * wgmma.ROW_BYTES
        if path["raw"] >= 0:
            bytes_ = tile_bytes(side, row.panel_k * arguments[path["raw"]].type.bits // 8)
        if roles == FRAGMENTS and is_rows:
            rank = len(region.dims_of(value))
            axes = (rank - 1, rank - 2) if is_a else (rank - 2, rank - 1)
            path |= {"path": "fragments", "raw": raw_argument(region, value, axes)}
            assert path["raw"] >= 0, "an operand that legal takes has a raw tile"
            in_stage = side * row.panel_k * arguments[path["raw"]].type.bits // 8
            bytes_ = 0
        place = {"offset": offset, "bytes": in_stage}
        found.append({**path, **place, "raw_offset": raw_offset, "raw_bytes": bytes_})
        offset += in_stage
        raw_offset += bytes_
    return found


def operand_path(
    region: Region, value: Any, row: wgmma.Instruction, *, is_a: bool, is_rows: bool
) -> dict[str, Any]:
    """How an operand is loaded; see `StagedOperand.plan`."""
    model = layout_model(region, value)
    rank = len(region.dims_of(value))
    rows, depth = (rank - 2, rank - 1) if is_a else (rank - 1, rank - 2)
    contiguous = None
    if model is not None:
        contiguous = next((axis for axis in (depth, rows) if is_unit(model, axis)), None)
    path: dict[str, Any] = {"path": "registers", "is_a": is_a, "is_rows": is_rows, "raw": -1}
    path["is_aligned"] = (
        model is not None
        and contiguous is not None
        and (
            access_bytes(model, contiguous) >= min(16, model.type.bits)  # eight elements at once
        )
    )
    tensor = region.arguments.get(value)
    operand = row.a if is_rows else row.b
    if tensor is not None and not tensor.is_by_value and tensor.type == operand:
        if tma.refusal(tensor, (depth, rows)) is None:
            return {**path, "path": "tma", "k_contiguous": True, "loads_along_k": True}
        if row.takes_mn_major and tma.refusal(tensor, (rows, depth)) is None:
            return {**path, "path": "tma", "k_contiguous": False, "loads_along_k": False}
    k_contiguous = not (row.takes_mn_major and contiguous == rows)
    along_k = contiguous != rows
    raw = raw_argument(region, value, (depth, rows) if along_k else (rows, depth))
    if raw >= 0:
        path["is_aligned"] = True
    return {**path, "k_contiguous": k_contiguous, "loads_along_k": along_k, "raw": raw}


def raw_argument(region: Region, value: Any, axes: tuple[int, int]) -> int:
    """The place of the largest argument that g1 reads only at the operand's own coordinates, and
    whose tiles TMA can bring; -1 for none."""
    whole = identity_access(len(region.dims_of(value)))
    seen: dict[Any, set[Any]] = {}
    for leaf, access in region.accesses(value, whole):
        seen.setdefault(leaf, set()).add(access)
    fitting = [
        place
        for place, (argument, tensor) in enumerate(region.arguments.items())
        if seen.get(argument) == {whole}
        and tensor.shape == tuple(region.dims_of(value))
        and not tensor.is_by_value
        and tensor.type.bits <= MOST_RAW_BITS
        and tma.refusal(tensor, axes) is None
    ]
    arguments = list(region.arguments.values())
    return max(fitting, key=lambda place: arguments[place].type.bits, default=-1)


# ---- the epilogue


def _output_path(
    tensor: Tensor, dims: Sequence[Expr], columns: int, swaps: bool, turned: bool
) -> str:
    """See `Tiling.outputs`."""
    if tensor.type.kind == "b":
        return "bits"
    if tensor.shape == tuple(dims):
        return "tma" if stored_by_tma(tensor, swaps=swaps and not turned) else "direct"
    keeps_all_but_row = tensor.shape[:-1] == tuple(dims[:-1])
    fits = not swaps and dims[-1].bounds()[1] <= columns
    return "row" if keeps_all_but_row and fits else "exit"


def _pair(size: Expr) -> int:
    return 2 if size.known_divisor() % 2 == 0 else 1


def staged_loads(
    region: Region,
    calls: Sequence[Any],
    moves: Callable[[Tensor], bool],
    exits: Sequence[Any] = (),
) -> list[int]:
    """Places of the arguments that g2 reads once an element, at the product's own coordinates.

    moves: whether TMA brings tiles of a tensor.  exits: the reductions that outputs of
    other dims come from; without them, none is staged beside such outputs.
    """
    dims = region.dims_of(calls[0].results[0])
    whole = identity_access(len(dims))
    made = {call.results[0] for call in calls}
    seen: dict[Any, set[Any]] = {}
    whole_values = [value for value, tensor in region.outputs if tensor.shape == tuple(dims)]
    if len(whole_values) < len(region.outputs) and not exits:
        return []
    for value in (*whole_values, *(inputs_of(op)[0] for op in exits)):
        for leaf, access in region.accesses(value, whole, stop=lambda v: v in made):
            seen.setdefault(leaf, set()).add(access)
    operands = {leaf for call in calls for operand in call.operands
                for leaf, _ in region.accesses(operand, whole)}  # fmt: skip
    return [
        place
        for place, (value, tensor) in enumerate(region.arguments.items())
        if seen.get(value) == {whole}
        and value not in operands
        and tensor.shape == tuple(dims)
        and not tensor.is_by_value
        and moves(tensor)
    ]


def row_reductions_that_flow(region: Region) -> int:
    """Reductions along rows, if one goes on into work of the product's dims; else 0."""
    call = next(op for op in region.operations if op.name == "func.call")
    dims = region.dims_of(call.results[0])
    along_rows = [
        op for op in region.generics() if is_reduction(op)
        and reduced_axes(op) == [len(dims) - 1] and region.dims_of(inputs_of(op)[0]) == dims
    ]  # fmt: skip
    whole = [value for value, tensor in region.outputs if tensor.shape == tuple(dims)]
    # The index of a maximum, or a log-sum-exp, goes on into another reduction only.
    whole += [inputs_of(op)[0] for op in region.generics() if is_reduction(op)]
    flows = any(leads_to(op.results[0], value) for op in along_rows for value in whole)
    return len(along_rows) if flows else 0


def leads_to(source: Any, value: Any) -> bool:
    """Whether an SSA value is computed from another."""
    seen, pending = {value}, [value]
    while pending:
        value = pending.pop()
        if value == source:
            return True
        if not (isinstance(value.owner, ir.Block) or value.owner.name == "func.call"):
            pending += (new := set(inputs_of(value.owner)) - seen)
            seen |= new
    return False
