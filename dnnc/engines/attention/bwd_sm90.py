# pyright: basic
"""Engine sdpa_bwd_sm90: the gradient of attention on Hopper's tensor cores, in three kernels.

    before  delta = sum(dO * O) and -log2(e) * base of each row; zeros for the first sums of dQ
    main    a block of threads for each 128 keys of a head: for each block of queries
              S' = K @ Q', dP' = V @ dO'      E = exp2(S' - base), P' and dS' in registers
              dV += P' @ dO, dK += dS' @ Q    from registers
              dQ' = K' @ dS'                  added to sums in memory, in f32
            and zeros for the sums of tiles to come; see `bwd_ahead`
    after   sums of dQ become dQ

So it is where heads have up to 128 elements; see `bwd_wide_sm90` and `bwd_long_sm90` for longer
ones, and `bwd_narrow_sm90` for fp8.
Everything is transposed, so that P' and dS' come out of the products as the next ones take them
from registers; dS goes to shared memory through `stmatrix` that transposes.  Query heads that share
a head of keys come one after the other in the same block, whose registers hold their sums.
Blocks of queries that masks hide are left out.  Sums of dQ come in any order, so that its last bits
differ from run to run, or one after the other in the order of keys (`bwd_add_order`).
Source: Shah et al., "FlashAttention-3", 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from ...codegen.attention.gradient_region import GradientRegion, transposed
from ...codegen.hopper import tma
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.totals.global_flags import GlobalFlags
from ...dialect.fusion import Fusion
from ...dialect.ops import RaggedStore
from ...errors import Status
from ...expr import product, typical
from ...target import Target
from ..engine import Engine, Knob, Knobs, Marks, Prediction, Reason
from ..knob_values import KnobValues
from ..product.pattern import knob_reason
from ..surface import (
    BANDWIDTH_SHARE,
    LAUNCH_SECONDS,
    bytes_of,
    pattern_reason,
    smem_reasons,
    target_reasons,
)
from . import bwd_after, bwd_before
from .bwd_after import AfterEmitter
from .bwd_ahead import Ahead
from .bwd_before import BeforeEmitter
from .bwd_finish import is_moved
from .bwd_kernel_sm90 import GradientEmitter
from .bwd_lists import BlockLists, differs_by_head, sparsity_of
from .bwd_long_sm90 import LongGradientEmitter
from .bwd_narrow_sm90 import NarrowGradientEmitter
from .bwd_packed_tiles import PackedTiles
from .bwd_pattern import Gradient, gradient_of, gradient_reasons
from .bwd_records_sm90 import Buffers
from .bwd_schedule import GradientSchedule
from .bwd_sums import added, elements_of
from .bwd_surface import (
    gradient_marks,
    head_of,
    is_falling,
    operands,
    results,
    shape_reasons,
    type_reasons,
)
from .bwd_tile_sm90 import LONG_QUERIES, GradientOrder, GradientTiling
from .bwd_transposed import narrow
from .bwd_wide_sm90 import WideGradientEmitter
from .bwd_widened import widened

_QUERIES = (128, 64, 80, 96, 48, 32)
_COLUMNS = 16  # of dQ', that `stmatrix` transposes together
_MOST_ELEMENTS = 256  # of a query, and of a value
_MOST_SUMS = 208  # registers of a thread, beside which there is room for the rest
_PLAIN_QUERIES = 80  # of a step: masks would spill, and heads that share keys are slower
_PARTS = (1, 2, 4, 8, 16, 32)  # of the query heads that share keys
# Of the rate, of queries a step.
_SHARES = {
    "": {32: 0.73, 48: 0.79, 64: 0.87, 80: 0.89, 96: 0.95, 128: 1.0},
    "narrow": {32: 0.56, 64: 0.95, 128: 1.0},
    "wide": {32: 1.13},
    "long": {32: 0.9, 64: 1.0},
}
_TILE_SECONDS = 3.7e-6  # of a tile, beside its steps
# Of the tensor cores' rate, by the most that the larger of D and Dv is.
_RATE_SHARES = ((64, 0.62), (128, 0.8), (256, 0.47))


@dataclass(frozen=True)
class _Choice(KnobValues):
    """One value of each knob.

    queries: of a step; of long heads, of which scores are made at once.  parts: tiles that share
    the query heads of the same keys.  in_any_order: whether tiles add to dQ so.
    """

    queries: Annotated[int, "TILE_M"]
    parts: Annotated[int, "SPLIT_H"]
    in_any_order: Annotated[bool, "REDUCTION_MODE"]


@dataclass(frozen=True)
class SdpaBwdSm90Engine(Engine):
    """See the file's docstring."""

    tiling = GradientTiling
    name: str = "sdpa_bwd_sm90"
    index: int = 20
    families: tuple[str, ...] = ("attention gradient",)
    only_target: str = "sm_90a"
    has_fixed_bodies: bool = True
    support: tuple[str, ...] = (
        "sm_90a: the gradient of attention, as `sdpa_backward` or written in its five products; Q, "
        "K, V and dO of f16 or of bf16, results of 16 bits, sums in f32; D and Dv up to 256, "
        "multiples of 8; heads of Q may share those of K and V; any strides, of packed rows "
        "multiples of 16 bytes with contiguous elements of a head",
        "Q, K, V and dO of fp8, as `sdpa_fp8_backward` or in its steps: each of either type, and "
        "so P and dS; results of 8 or 16 bits, of any strides, the amax of each and of dS; "
        "with D and Dv up to 128 multiplied as they are, else widened in the workspace",
        "pointwise operations on scores (scale, masks, bias, soft-cap), on weights (dropout) and "
        "on the gradients of both, of tensors that broadcast; blocks of queries that a causal "
        "mask, a window, a mask of blocks or numbers of rows and columns (documents) hide are left "
        "out, except beside outputs of the scores' dims",
        "packed sequences; outputs of the scores' dims (dropout's mask, a whole dBias), sums of "
        "these (dBias) and of rows (dSink)",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := gradient_reasons(fusion):
            return declined
        found = gradient_of(fusion)
        reasons = target_reasons(self.only_target, target)
        if found.scores is None:
            reasons.append(pattern_reason("weights in memory", "statistics of rows, five products"))
        if found.is_packed and found.is_fp8:
            reasons.append(pattern_reason("packed rows of fp8", "[B, H, S, D], rows in place"))
        reasons += type_reasons(found, takes_fp8=True)
        reasons += shape_reasons(found, _MOST_ELEMENTS)
        reasons += _layout_reasons(found, fusion)
        return tuple(reasons)

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "TILE_M", _QUERIES, "queries of a step; of long heads, of which scores are made at once"
        ),
        Knob("SPLIT_H", _PARTS, "tiles that share the query heads of the same keys"),
        Knob(
            "REDUCTION_MODE",
            (0, 1),
            "1: tiles add to dQ in any order; 0: in one, so that bits repeat",
        ),
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        found, choice = gradient_of(fusion), _Choice.of(knobs)
        tiling = _tiling(choice, *head_of(found, _MOST_ELEMENTS), is_fp8=found.is_fp8)
        reasons: list[Reason] = []
        if found.group % tiling.parts:
            what = f"SPLIT_H={tiling.parts} of {found.group} heads that share keys"
            reasons.append(knob_reason(what, "a divisor"))
        if fusion.must_repeat and not tiling.is_ordered:
            reasons.append(
                knob_reason("REDUCTION_MODE=1 of results that repeat", "REDUCTION_MODE=0")
            )
        if choice.queries not in _SHARES[tiling.form]:
            what = f"TILE_M={choice.queries} of heads of {tiling.depth} and {tiling.width}"
            what += " of fp8" if found.is_fp8 else ""
            reasons.append(knob_reason(what, " or ".join(map(str, _SHARES[tiling.form]))))
        elif not tiling.is_long and tiling.dq_columns % _COLUMNS:
            what = f"TILE_M={choice.queries} of heads of {tiling.depth}"
            reasons.append(knob_reason(what, f"multiples of {2 * _COLUMNS}"))
        if tiling.sums > _MOST_SUMS:
            what = f"{tiling.sums} registers of sums and weights"
            reasons.append(knob_reason(what, f"at most {_MOST_SUMS}"))
        return (*reasons, *smem_reasons(tiling.smem_bytes, target))

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        found = [
            _Choice(queries, parts, in_any_order=not fusion.must_repeat).knobs
            for queries in _QUERIES
            for parts in _PARTS
            if queries != _PLAIN_QUERIES or _is_plain(gradient_of(fusion))
        ]
        return [knobs for knobs in found if not self.legal(knobs, fusion, target)]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        found = gradient_of(fusion)
        depth, width = head_of(found, _MOST_ELEMENTS)
        heads, queries, keys = (
            typical(size) for size in (product(found.score.shape[:2]), found.queries, found.keys)
        )
        choice, group = _Choice.of(knobs), found.group
        parts, tiling = choice.parts, _tiling(choice, depth, width, is_fp8=found.is_fp8)
        steps = -(-queries // tiling.queries) * (group // parts)
        columns = -(-keys // tiling.keys)
        longest = 2 * columns / (columns + 1) if found.is_masked and group > 1 else 1.0
        waves = _waves(heads // group * parts * columns, target.sm_count, longest)
        flops = 2 * tiling.queries * tiling.keys * (3 * depth + 2 * width)
        share = next(share for most, share in _RATE_SHARES if max(depth, width) <= most)
        share *= _SHARES[tiling.form][choice.queries]
        rate = target.mma_tflops["f16"] * 1e12 / target.sm_count * share
        seconds = waves * (steps * flops / rate + _TILE_SECONDS)
        bandwidth = target.dram_gbs * 1e9 * BANDWIDTH_SHARE
        sums = heads * queries * depth
        if parts > 1 or (found.is_fp8 and tiling.is_long):
            sums += heads // group * parts * keys * (depth + width)
        moved = bytes_of((*fusion.inputs, *fusion.outputs)) + 2 * 4 * sums
        bound = "tensor cores" if seconds > moved / bandwidth else "memory"
        return Prediction(3 * LAUNCH_SECONDS + max(seconds, 0.0) + moved / bandwidth, bound)

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        return ("TENSOR_CORE", *(("NONDETERMINISTIC",) if _Choice.of(knobs).in_any_order else ()))

    def marks(self, fusion: Fusion) -> Marks:
        return gradient_marks(fusion)

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> GradientTiling:
        found = gradient_of(fusion)
        head = head_of(found, _MOST_ELEMENTS)
        return _tiling(_Choice.of(knobs), *head, is_fp8=found.is_fp8)

    def completed(self, tile: GradientTiling, region: Region) -> GradientTiling:
        if tile.order is not None:
            return tile
        parts = GradientRegion(region)
        is_longest_first = is_falling(transposed(parts.condition))
        joins_heads = (
            parts.group > tile.parts
            and (is_longest_first or tile.is_ordered)
            and not differs_by_head(parts)
        )
        order = GradientOrder(
            is_longest_first,
            cuts=any(parts.source(name).kind for name in ("q", "k", "v", "do")),
            joins_heads=joins_heads,
            descends=joins_heads or (tile.is_ordered and parts.has_masks),
            is_listed=sparsity_of(parts, tile.queries, tile.of_form().keys).is_any,
        )
        return replace(tile, order=order)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: GradientTiling, output: Output) -> None:
        tiling = tile.of_form()
        parts = (narrow if tiling.form == "narrow" else widened)(region, output)
        group = parts.group

        def schedule(kernel: Any) -> GradientSchedule:
            found = GradientSchedule(
                kernel, parts, tiling, group, lists=lists, sees_all=has_elements,
                may_leave_out=not tiling.is_long,
            )  # fmt: skip
            found.listed = PackedTiles(found, listed) if listed else None
            return found

        has_elements = bool(parts.kept) or any(map(parts.is_of_scores, parts.sums.values()))
        lists, listed = None, ""
        if not has_elements:  # those of hidden scores are written, too
            lists = BlockLists.of(output, parts, schedule(None))
        plan = schedule(None)
        if PackedTiles.are_listed(plan):
            listed = output.workspace("tiles", PackedTiles.bytes(plan))
            plan = schedule(None)
        rows = output.workspace("rows", plan.blocks * tiling.row_bytes)
        sums = output.workspace("sums", plan.blocks * tiling.dq_bytes)
        order = ""
        if tiling.is_ordered:
            order = output.workspace("order", GlobalFlags.bytes(plan.flags))
        ahead = ""
        if Ahead.is_needed(plan, output.target.sm_count):
            ahead = output.workspace("ahead", Ahead.bytes(plan))
        kept = {}
        # Scaled results, but of narrow tiles, come out of the sums of a tile in the kernel after.
        is_scaled = parts.is_fp8 or not all(is_moved(parts, name) for name in ("dk", "dv"))
        if tiling.parts > 1 or (is_scaled and tiling.form != "narrow"):
            for name, elements in (("dk", tiling.depth), ("dv", tiling.width)):
                bytes_ = plan.tiles * tiling.key_part_bytes(elements)
                kept[name] = output.workspace(name, bytes_)
        elements = {place: elements_of(parts, place, output) for place in parts.sums}
        for place in parts.largest:
            output.preset(region.outputs[place][1], 0)
        kernel = output.kernel("before", bwd_before.THREADS)
        with kernel.body():
            others = added(kernel, parts, elements, of_scores=False)
            before = BeforeEmitter(
                kernel, parts, schedule(kernel), rows, sums, order, ahead, others
            )
            before.emit()
        output.launch(kernel, (BeforeEmitter.blocks(plan), 1, 1))
        kernel = output.kernel("", tiling.threads)
        kernel.min_blocks = 1  # without it the assembler ignores `setmaxnreg`
        with kernel.body():
            targets = region.targets(kernel) if parts.kept else []
            own = [targets[place] for place in parts.kept]
            own += added(kernel, parts, elements, of_scores=True)
            buffers = Buffers(rows, sums, order, ahead, kept)
            emitter = _EMITTERS[tiling.form]
            emitter(kernel, parts, schedule(kernel), buffers, own).emit()
        tiles = PackedTiles.most(plan) * plan.entry_units if listed else plan.tiles
        output.launch(kernel, (tiles, 1, 1))
        kernel = output.kernel("after", bwd_after.THREADS)
        with kernel.body():
            AfterEmitter(kernel, parts, schedule(kernel), sums, kept, elements).emit()
        output.launch(kernel, (AfterEmitter.blocks(plan, kept, elements), 1, 1))


_EMITTERS = {
    "": GradientEmitter,
    "narrow": NarrowGradientEmitter,
    "wide": WideGradientEmitter,
    "long": LongGradientEmitter,
}


# ---- clauses


def _layout_reasons(found: Gradient, fusion: Fusion) -> list[Reason]:
    """Reasons of packed rows; others are copied, and results stored, by any strides."""
    supported = "contiguous elements of a head, other strides and the address multiples of 16 bytes"
    packed = [(name, x.tensor, axes) for name, x, axes in operands(found) if x.load is not None]
    for name, tensor in results(found):
        if isinstance(fusion.producers[tensor], RaggedStore):
            packed.append((name, tensor, (tensor.rank - 1, tensor.rank - 2)))
    reasons = []
    for name, tensor, axes in packed:
        if (what := tma.refusal(tensor, axes)) is not None:
            reasons.append(Reason(Status.NOT_SUPPORTED_LAYOUT, f"packed {name}", what, supported))
    return reasons


# ---- tilings


def _is_plain(found: Gradient) -> bool:
    return not found.is_masked and found.group == 1


def _tiling(choice: _Choice, depth: int, width: int, *, is_fp8: bool) -> GradientTiling:
    """The tiling, but for what masks and lengths say."""
    queries = at_once = choice.queries
    form = GradientTiling.form_of(depth, width, is_fp8=is_fp8)
    if form == "long":
        queries = LONG_QUERIES
    return GradientTiling(
        queries, depth, width, parts=choice.parts, is_ordered=not choice.in_any_order, form=form,
        at_once=at_once,
    ).of_form()  # fmt: skip


def _waves(tiles: int, processors: int, longest: float) -> float:
    """How many tiles of the mean length follow each other on an SM.

    longest: that of the longest tile; where they are not alike, short ones fill up the end.
    """
    return max(tiles / processors, longest) if longest > 1 else -(-tiles // processors)


SDPA_BWD_SM90 = SdpaBwdSm90Engine()
