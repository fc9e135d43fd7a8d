# pyright: basic
"""Engine sdpa_sm80: attention on the tensor cores of sm_80 and later, and decode on all of them.

    O = softmax(g1(Q @ K')) @ V, with any pointwise g1, work on the weights and on O

    a block of threads: 16 queries a warp, keys and values by `cp.async`, products by `mma.sync`

Scores, weights and the result stay in registers; masks, biases, soft-caps and the like are walked
there, as in `sdpa_fwd_sm90`, whose order of tiles and ranges of keys it shares.  With few queries,
memory is the bound: heads that share keys are packed into the rows of a tile (PACK_GQA), so that
each key is read once, and blocks share a tile's keys (SPLIT_KV), so that there are enough to have
all of the bandwidth; what they have is added up by a second kernel.  Keys and values of fp8 are
loaded as such, a half of the bytes, and become f16 in registers.
Sources: Dao, "FlashAttention-2", 2023; Dao et al., "Flash-Decoding for long-context inference",
2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from ...codegen.attention.region import AttentionRegion
from ...codegen.output import Output
from ...codegen.region import Region
from ...dialect.fusion import Fusion, remembered, remembered_at_sizes
from ...dialect.ops import RaggedLoad, RaggedStore
from ...errors import Status
from ...expr import product, typical
from ...target import Target
from ..engine import Engine, Knob, Knobs, Marks, Prediction, Reason
from ..knob_values import KnobValues
from ..product.pattern import knob_reason
from ..surface import bytes_of, fp8_reasons, pattern_reason, smem_reasons
from .kept_sm80 import KeptEmitter
from .kernel_sm80 import SdpaEmitter
from .mask_order import MaskOrder
from .model_sm80 import AttentionWork, seconds_of
from .operands import copy_reasons
from .parts_sm80 import PartsEmitter, PartStore
from .pattern import Attention, attention_marks, attention_of, attention_reasons
from .surface import (
    MOST_ELEMENTS,
    head_of,
    is_fp8,
    mixed_reasons,
    operands,
    packing_of,
    surface_reasons,
)
from .tile_sm80 import Sm80Tiling

_QUERIES = (128, 64, 32, 16)
_KEYS = (64, 32, 128, 16)
_STAGES = (2, 3, 4)
_PARTS = (1, 2, 4, 8, 16, 32, 64)
_SUMS = 176  # registers of scores, weights and the result, beside which there is room for the rest
_FEW_ROWS = 256  # queries of the heads that share keys, up to which these are packed
_FULL = 192  # elements of a result beside which the largest of all spill
_WIDE = 256  # elements of a key and a value, from which on steps of few keys are looked at
_MOST = 640  # elements of a query, and of a value
_PIECE = 256  # elements of a value whose sums a warp's registers hold
_BLOCKS = 8  # of an SM, from which on no tile's keys are shared


@dataclass(frozen=True)
class _Choice(KnobValues):
    """One value of each knob.

    queries: of a tile.  keys: of a step.  packs: whether heads that share keys are rows of one
    tile.  parts: blocks that share the keys of a tile.
    """

    queries: Annotated[int, "TILE_M"]
    keys: Annotated[int, "TILE_N"]
    stages: Annotated[int, "STAGES"]
    packs: Annotated[bool, "PACK_GQA"]
    parts: Annotated[int, "SPLIT_KV"] = 1


@dataclass(frozen=True)
class SdpaSm80Engine(Engine):
    """See the file's docstring."""

    tiling = Sm80Tiling
    name: str = "sdpa_sm80"
    index: int = 16
    families: tuple[str, ...] = ("attention",)
    numerical_notes: tuple[str, ...] = ("TENSOR_CORE",)
    has_fixed_bodies: bool = True
    support: tuple[str, ...] = (
        "attention, as `sdpa` or written in matmuls and a softmax; Q, K, V of f16 or bf16, sums "
        "and softmax in f32; heads of D up to 640 and Dv up to 512, multiples of 8 (Dv above 256: "
        "of 16); heads of Q may share those of K and V; any strides of 16 bytes, contiguous "
        "elements of a head",
        "attention of fp8 (sm_89 and later), as `sdpa_fp8` or in its steps: Q, K, V of either "
        "type, heads of multiples of 16 elements, up to 256, sums in f32; the amax of all weights "
        "and of the result, also of keys that blocks share",
        "Q of 16 bits behind a rotary embedding by cosines in memory, in parts of multiples of 8 "
        "elements: the kernel computes it",
        "pointwise operations on scores (scale, masks, biases, soft-cap), on weights (dropout) and "
        "on the result, of tensors that broadcast; several outputs of the result's dims; "
        "statistics of rows; numbers of queries, keys, batches and heads may be symbols",
        "outputs of the scores' dims: weights that the sum has divided, and what is made of them "
        "(the S of small sequences); dropout's mask",
        "few queries at the speed of memory: heads that share keys in one tile, keys shared by "
        "several blocks",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := attention_reasons(fusion):
            return declined
        found = attention_of(fusion)
        reasons = surface_reasons(
            fusion, lambda found: copy_reasons(operands(found)), takes_fp8=True,
            most=MOST_ELEMENTS if is_fp8(found) else _MOST,
        )  # fmt: skip
        width = found.width.constant or 0
        if not is_fp8(found) and width > _PIECE and (found.keeps_weights or not _piece(width)):
            what = f"Dv of {width}" + ", beside weights as an output" * found.keeps_weights
            supported = f"up to {_PIECE}; without such outputs multiples of 16 up to {2 * _PIECE}"
            reasons.append(Reason(Status.NOT_SUPPORTED_SHAPE, "head size", what, supported))
        if is_fp8(found):
            reasons += mixed_reasons(found)
            if found.keeps_weights:
                reasons.append(pattern_reason("weights of fp8 as an output", "f16 or bf16"))
        if found.score.elements().constant == 1 and any(
            op.x.elements().constant == 1 for op in found.largest
        ):
            # No reduction is left of it in the region.
            reasons.append(pattern_reason("the amax of one score's weight", "several scores"))
        return (*reasons, *fp8_reasons(fusion, target))

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_M", _QUERIES, "queries of a block's tile, 16 a warp"),
        Knob("TILE_N", _KEYS, "keys of a step"),
        Knob("STAGES", _STAGES, "steps of keys and values in shared memory"),
        Knob("PACK_GQA", (0, 1), "1: the heads that share keys are rows of one tile"),
        Knob("SPLIT_KV", _PARTS, "blocks that share the keys of a tile"),
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        found, choice = attention_of(fusion), _Choice.of(knobs)
        tiling = _tiling(fusion, choice)
        reasons: list[Reason] = []
        if choice.packs and packing_in(fusion) is None:
            what = "no heads that share keys and values along one axis of a known size"
            reasons.append(knob_reason(what, "PACK_GQA=0"))
        if choice.parts > 1 and found.kept:
            what = "outputs that have an element for each score"
            reasons.append(knob_reason(what, "SPLIT_KV=1"))
        if tiling.held_registers > _SUMS:
            what = f"{tiling.held_registers} registers of scores, weights and the result"
            reasons.append(knob_reason(what, f"at most {_SUMS}"))
        return (*reasons, *smem_reasons(tiling.smem_bytes, target))

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        found: list[Knobs] = []
        work = work_of(fusion)
        # Then what comes after may be left to a kernel that has the registers for it.
        is_full = work.width > _FULL and bool(attention_of(fusion).largest)
        packs = [False]
        if packing_in(fusion) is not None and work.queries * work.shared <= _FEW_ROWS:
            packs = [True, False]
        for pack in packs:
            rows = work.queries * (work.shared if pack else 1)
            tiles_of_rows = [m for m in _QUERIES if m // 2 < rows or m == _QUERIES[-1]]
            # Long heads leave few queries room beside the keys.
            for queries in tiles_of_rows[: 2 if work.depth + work.width <= 2 * _PIECE else None]:
                tiles = work.tiles(queries, pack)
                splits = [n for n in _PARTS if n == 1 or tiles * n <= _BLOCKS * target.sm_count]
                if is_full and 2 not in splits:
                    splits = [1, 2]
                splits = splits[:1] if attention_of(fusion).kept else splits
                for keys in _KEYS if work.depth + work.width > _WIDE else _KEYS[:3]:
                    for stages in _STAGES:
                        whole = _Choice(queries, keys, stages, pack)
                        if not self.legal(whole.knobs, fusion, target):
                            found += [
                                replace(whole, parts=n).knobs
                                for n in splits
                                if n == 1 or n * keys <= work.keys or (n == 2 and is_full)
                            ]
        return found

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        work, choice = work_of(fusion), _Choice.of(knobs)
        tiling = _tiling(fusion, choice)
        return seconds_of(work, tiling, choice.packs, target)

    def is_weighed_against_parts(self, fusion: Fusion, target: Target) -> bool:
        # Pieces of long values compute scores twice, by instructions that are not the target's own;
        # but of what masks by place hide, this engine alone computes nothing.
        hides = any(op.title == "pointwise:gen_index" for op in fusion.ops)
        return target.arch_specific and head_of(attention_of(fusion))[1] > _PIECE and not hides

    def register_pressure(self, knobs: Knobs) -> int:
        # Scores and weights, beside a result of one size, and what comes after.
        choice = _Choice.of(knobs)
        return 2 * choice.keys + (choice.parts == 1)

    def marks(self, fusion: Fusion) -> Marks:
        return attention_marks(fusion)

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> Sm80Tiling:
        return _tiling(fusion, _Choice.of(knobs))

    def completed(self, tile: Sm80Tiling, region: Region) -> Sm80Tiling:
        if tile.masks is not None:
            return tile
        return replace(tile, masks=MaskOrder.of(AttentionRegion(region.of_matrices())))

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: Sm80Tiling, output: Output) -> None:
        tiling, parts = tile, AttentionRegion(region.of_matrices())
        names = PartStore.workspace(output, parts.dims, tiling)
        kernel = output.kernel("", tiling.threads)
        with kernel.body():
            store = PartStore.of(kernel, names, parts.dims, tiling)
            made = KeptEmitter if parts.outputs.keeps_weights else SdpaEmitter
            emitter = made(kernel, parts, tiling, store)
            emitter.emit()
        for place in parts.outputs.largest:
            output.preset(region.outputs[place][1], 0)
        output.launch(kernel, (emitter.schedule.tiles, tiling.parts, tiling.pieces))
        PartsEmitter.launch(output, parts, tiling, names)


@remembered
def packing_in(fusion: Fusion) -> tuple[int, int] | None:
    """(axis of the scores, how many of its entries share keys and values), if a tile may have all
    of these as its rows."""
    found = attention_of(fusion)
    _, k, v = found.operands
    packing = packing_of(found.batch, k.batch, v.batch)
    # A tile's packed rows are of one entry of the batch.
    is_packed = any(isinstance(op, RaggedLoad | RaggedStore) for op in fusion.ops)
    return None if packing is not None and packing[0] == 0 and is_packed else packing


@remembered_at_sizes
def work_of(fusion: Fusion) -> AttentionWork:
    """The typical sizes of an attention."""
    found = attention_of(fusion)
    depth, width = head_of(found)
    packing = packing_in(fusion)
    _, k, v = found.operands
    matrices = (k.tensor, v.tensor)
    return AttentionWork(
        heads=typical(product(found.batch)),
        shared=packing[1] if packing else 1,
        queries=typical(found.queries),
        keys=typical(found.keys),
        depth=depth,
        width=width,
        key_bytes=sum(
            element_bytes_of(found) * typical(product(operand.batch) * found.keys) * elements
            for operand, elements in ((k, depth), (v, width))
        ),
        other_bytes=bytes_of(t for t in (*fusion.inputs, *fusion.outputs) if t not in matrices),
        keeps_weights=found.keeps_weights,
        element_bytes=element_bytes_of(found),
    )


def element_bytes_of(found: Attention) -> int:
    return 1 if is_fp8(found) else 2


def _piece(width: int) -> int:
    """Elements of a value that a block has: all, or a half; 0: a half is too long, or no whole
    chunks."""
    if width <= _PIECE:
        return width
    return width // 2 if width % 16 == 0 and width <= 2 * _PIECE else 0


def _tiling(fusion: Fusion, choice: _Choice) -> Sm80Tiling:
    """The tiling, but for what masks say."""
    found = attention_of(fusion)
    depth, width = head_of(found)
    piece = _piece(width) or width
    axis, heads = (packing_in(fusion) or (-1, 1)) if choice.packs else (-1, 1)
    return Sm80Tiling(
        queries=choice.queries, keys=choice.keys, depth=depth, width=piece,
        pieces=width // piece,
        stages=choice.stages, packed_axis=axis, packed=heads,
        parts=choice.parts, element_bytes=element_bytes_of(found),
    )  # fmt: skip


SDPA_SM80 = SdpaSm80Engine()
