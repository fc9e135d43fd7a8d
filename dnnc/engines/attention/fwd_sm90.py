# pyright: basic
"""Engine sdpa_fwd_sm90: attention on Hopper's tensor cores, in one pass over the keys.

    O = softmax(g1(Q @ K')) @ V, with any pointwise g1, work on the weights and on O

    warpgroup 0      loads   | Q |  | K | K |  | V | V |   by TMA, a ring each
    warpgroups 1..   64 queries each: S = Q @ K' and O += P @ V by `wgmma`, P from registers;
                     the softmax of a block runs while products of the block before do

Scores stay in registers; masks, biases, soft-caps and the like are walked there.  Conditions that
are linear in row and column tell which blocks of keys are needed at all, and of which every score
is kept (`mask_ranges`).  Persistent blocks take tiles one by one, the longest first under a causal
mask.  Source: Shah et al., "FlashAttention-3", 2024, for ping-pong of products and softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ...codegen.attention.region import AttentionRegion
from ...codegen.hopper import tma
from ...codegen.output import Output
from ...codegen.region import Region
from ...dialect.fusion import Fusion, remembered
from ...dialect.ops import BlockMaskLoad, PagedCacheLoad, Pointwise, Rng
from ...errors import Status
from ...expr import device_dim, minimum, product, typical
from ...target import Target
from ..engine import Engine, Knob, Knobs, Marks, Prediction, Reason
from ..product.pattern import is_heavy, knob_reason
from ..surface import BANDWIDTH_SHARE, LAUNCH_SECONDS, bytes_of, smem_reasons, target_reasons
from .block_sm90 import SdpaBlock
from .choice_sm90 import SdpaChoice
from .facts_sm90 import facts_of, masks_of, tiling_of
from .few_sm90 import KNOBS as KNOBS_OF_FEW
from .few_sm90 import few_choices, few_reasons, few_seconds, has_few
from .kernel_sm90 import emit_attention
from .kind_sm90 import (
    NARROW,
    fp8_knob_reasons,
    fp8_rate_share,
    fp8_reasons,
)
from .number_ranges import number_tables
from .parts_sm80 import PartsEmitter, PartStore
from .pattern import Attention, attention_marks, attention_of, attention_reasons
from .sources_sm90 import LEAST_BLOCK
from .surface import head_of, operands, surface_reasons
from .tile_sm90 import Kind, SdpaTiling

_KEYS = (128, 64, 80, 96, 112, 144, 160, 176, 192, 48, 32)
_FEW_KEYS = (48, 32)  # which leave registers to a mask that is drawn, or to wide heads
_WIDE = 128  # elements of a head, up to which more keys have room
_QUERIES = (128, 64, 192)
_STAGES = (2, 1, 3, 4)
# Warpgroups -> accumulators and weights of a thread, beside which there is room for the rest.
_SUMS = {1: 208, 2: 184, 3: 128}
# The same beside a producer that looks up rows and needs more registers.
_SUMS_GATHERING = {1: 208, 2: 180, 3: 116}
# The same beside a dropout that is drawn, up to which nothing spills, or next to nothing.
_SUMS_DRAWING = {1: 152, 2: 120, 3: 0}
# Rows of a tile -> the inverse of the share of an SM's registers that each of its warpgroups has.
_PARTS_OF_REGISTERS = {64: 2, 128: 3, 192: 4}
_ONE_TILE_SHARE = 0.94  # of the rate, where queries wait for the result before them to leave
_LARGE_BLOCK = 128  # of a mask: what tiles of 64 or 128 fit in
_MEMORY_SHARE = 0.9  # of a stream's bandwidth: tiles are few rows where memory is the bound
# Of the rate, of more keys a step than 128, beside what that is without: ALiBi of 16384 keys was
# 4% faster with 144 and 160, of 4096, of which the last step is half empty, 1 to 2% slower.
_ADDING_SHARES = {144: 1.035, 160: 1.035}
# Of the rate, of keys a step; of 32 and 48 not measured.
_KEYS_SHARES = {32: 0.75, 48: 0.85, 64: 0.92, 80: 0.95, 96: 0.97, 112: 0.985, 128: 1.0}
_STAGES_GATHERING = {3: 1.003, 4: 1.006}  # of the rate, of packed sequences


@dataclass(frozen=True)
class SdpaFwdSm90Engine(Engine):
    """See the file's docstring."""

    tiling = SdpaTiling
    name: str = "sdpa_fwd_sm90"
    index: int = 15
    families: tuple[str, ...] = ("attention",)
    only_target: str = "sm_90a"
    has_fixed_bodies: bool = True
    support: tuple[str, ...] = (
        "sm_90a: attention, as `sdpa` or written in matmuls and a softmax; Q, K, V of f16 or bf16, "
        "sums and softmax in f32; heads of D and Dv up to 256, multiples of 8; heads of Q may "
        "share those of K and V; any strides of 16 bytes, contiguous elements of a head",
        "attention of fp8, as `sdpa_fp8` or in its steps: Q, K, V of either type, heads of "
        "multiples of 16 elements, Dv up to 160 where products compute in FLOAT; outputs of fp8, "
        "16 bits or f32; the amax of all weights and of the result",
        "Q of 16 bits behind a rotary embedding by cosines in memory, in parts of multiples of 8 "
        "elements: the kernel computes it",
        "pointwise operations on scores (scale, masks, biases, soft-cap), on weights (dropout) and "
        "on the result, of tensors that broadcast; several outputs of the result's dims; "
        "statistics of rows; numbers of queries, keys, batches and heads may be symbols",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := attention_reasons(fusion):
            return declined
        reasons = target_reasons(self.only_target, target)
        if attention_of(fusion).keeps_weights:
            what, supported = "weights as an output", "dropout's mask, or sdpa_sm80"
            reasons.append(Reason(Status.NOT_SUPPORTED_GRAPH_PATTERN, "outputs", what, supported))
        return (
            *reasons,
            *surface_reasons(fusion, _layout_reasons, takes_fp8=True),
            *fp8_reasons(fusion),
        )

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_M", _QUERIES, "queries of a block's tile, 64 a warpgroup"),
        Knob("TILE_N", _KEYS, "keys of a step"),
        Knob("STAGES", _STAGES, "steps of keys and of values in shared memory"),
        Knob(
            "KERNEL_CFG",
            (3, 0, 1, 2),
            "1: sums are scaled when a maximum grew by 2^8 only; 2: a part of the exponentials is "
            "pinned before the second product's end; 3: both",
        ),
        Knob("SCHED_POLICY", (1, 0), "1: a block takes its next tile when it is free"),
        *KNOBS_OF_FEW,
    )

    def knobs(self, fusion: Fusion, target: Target) -> tuple[Knob, ...]:
        if has_few(fusion):
            return self.all_knobs
        return tuple(knob for knob in self.all_knobs if knob not in KNOBS_OF_FEW)

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        return _illegal(SdpaChoice.of(knobs), fusion, target)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        found: list[Knobs] = []
        kind = facts_of(fusion).kind
        is_wide = kind.is_fp8 or head_of(attention_of(fusion))[1] > NARROW
        rescales, pins = is_wide, is_wide and not _draws(fusion)
        packs = None
        if has_few(fusion):
            packs = False
            found += [
                choice.knobs
                for choice in few_choices(fusion, target, rescales, pins)
                if not _illegal(choice, fusion, target)
                and not _is_cut(fusion, choice.queries, choice.keys)
                and _is_candidate(fusion, kind, choice)
            ]
        for queries in _QUERIES:
            for keys in _KEYS:
                if _is_cut(fusion, queries, keys):
                    continue
                for stages in _STAGES:
                    choices = [
                        SdpaChoice(queries, keys, stages, rescales, pins, is_dynamic, packs)
                        for is_dynamic in (True, False)
                    ]
                    found += [
                        choice.knobs
                        for choice in choices
                        if not _illegal(choice, fusion, target)
                        and _is_candidate(fusion, kind, choice)
                    ]
        return found

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        found, choice = attention_of(fusion), SdpaChoice.of(knobs)
        depth, width = head_of(found)
        heads, queries, keys = (
            typical(size) for size in (product(found.batch), found.queries, found.keys)
        )
        steps = -(-keys // choice.keys)
        rows = -(-queries // choice.queries)
        blocks = max(1, min(heads * rows, target.sm_count))
        tiles = heads * rows / blocks if choice.is_dynamic else -(-heads * rows // blocks)
        flops = 2 * choice.queries * choice.keys * (depth + width)
        kind = facts_of(fusion).kind
        q_stages = tiling_of(fusion, choice).q_stages
        if kind.is_fp8:
            share = fp8_rate_share(choice, width)
        else:
            share = _rate_share(choice, width, gathers=found.gathers)
            share *= _ADDING_SHARES.get(choice.keys, 1.0) if _adds_places(fusion) else 1.0
        share *= 1.0 if q_stages > 1 else _ONE_TILE_SHARE
        rate = target.mma_tflops["f16"] * 1e12 / target.sm_count * share
        if choice.is_of_few:
            return few_seconds(fusion, choice, rate, target)
        seconds = tiles * ((steps + 0.6) * flops / rate + 0.6e-6)
        seconds += 2e-6 if choice.is_dynamic else 0.0  # a counter is set before
        bandwidth = target.dram_gbs * 1e9 * BANDWIDTH_SHARE * _MEMORY_SHARE
        memory = bytes_of((*fusion.inputs, *fusion.outputs)) / bandwidth
        bound = "memory" if memory > seconds else "tensor cores"
        return Prediction(LAUNCH_SECONDS + max(seconds, memory + seconds / 8), bound)

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        kind = facts_of(fusion).kind
        if kind.is_fp8 and not kind.promotes:
            return ("TENSOR_CORE", "REDUCED_PRECISION_REDUCTION")
        return ("TENSOR_CORE",)

    def register_pressure(self, knobs: Knobs) -> int:
        choice = SdpaChoice.of(knobs)
        return choice.keys * _PARTS_OF_REGISTERS[choice.queries]  # scores and weights

    def marks(self, fusion: Fusion) -> Marks:
        return attention_marks(fusion)

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> SdpaTiling:
        return tiling_of(fusion, SdpaChoice.of(knobs))

    def completed(self, tile: SdpaTiling, region: Region) -> SdpaTiling:
        if tile.masks is not None:
            return tile
        return replace(tile, masks=masks_of(AttentionRegion(region.of_matrices()), tile))

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: SdpaTiling, output: Output) -> None:
        tiling, parts = tile, AttentionRegion(region.of_matrices())
        has_tables = not tiling.entries and tiling.few.heads == 1
        tables = number_tables(output, parts, tiling) if has_tables else ()
        names = PartStore.workspace(output, parts.dims, tiling)
        kernel = output.kernel("", tiling.threads)
        kernel.min_blocks = 1  # without it the assembler ignores `setmaxnreg`
        counter = ""
        if tiling.tiles.is_dynamic:
            counter = output.workspace("tiles", 4)
            output.memset(counter, 4)
        with kernel.body():
            store = PartStore.of(kernel, names, parts.dims, tiling)
            block = SdpaBlock(kernel, parts, tiling, counter, tables, store)
            emit_attention(block)
        blocks = minimum(block.schedule.tiles * tiling.parts, device_dim("sm_count"))
        for place in parts.outputs.largest:
            tensor = region.outputs[place][1]
            output.preset(tensor, 0)
        output.launch(kernel, (blocks, 1, 1))
        PartsEmitter.launch(output, parts, tiling, names)


def _illegal(choice: SdpaChoice, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
    """Reasons against a choice of knobs."""
    found, kind = attention_of(fusion), facts_of(fusion).kind
    reasons: list[Reason] = []
    if choice.keys % kind.step:
        return (knob_reason(f"TILE_N={choice.keys}", f"multiples of {kind.step}"),)
    tiling = tiling_of(fusion, choice)
    if kind.is_fp8:
        reasons += fp8_knob_reasons(choice, tiling, kind, found)
    elif tiling.sums > (most := _most_sums(tiling.consumers, gathers=found.gathers)):
        what = f"{tiling.sums} registers of sums and weights in {tiling.consumers} warpgroups"
        reasons.append(knob_reason(what, f"at most {most}"))
    reasons += _page_reasons(found, choice.keys)
    reasons += few_reasons(choice, fusion)
    return (*reasons, *smem_reasons(tiling.smem_bytes, target))


def _most_sums(consumers: int, *, gathers: bool) -> int:
    """The most sums of a thread of so many warpgroups; gathers: whether rows are looked up."""
    return (_SUMS_GATHERING if gathers else _SUMS)[consumers]


def _is_cut(fusion: Fusion, queries: int, keys: int) -> bool:
    """Whether large blocks of a mask end inside tiles, whose scores have to look at it then."""
    return any(
        min(op.block_rows, op.block_columns) >= _LARGE_BLOCK
        and (op.block_rows % queries or op.block_columns % keys)
        for op in fusion.ops
        if isinstance(op, BlockMaskLoad)
    )


def _is_candidate(fusion: Fusion, kind: Kind, choice: SdpaChoice) -> bool:
    """Whether a legal tile is worth a look by what it leaves of a thread's registers."""
    if not _draws(fusion):
        return choice.keys not in _FEW_KEYS or max(head_of(attention_of(fusion))) > _WIDE
    tiling = tiling_of(fusion, choice)
    return kind.is_fp8 or tiling.sums <= _SUMS_DRAWING[tiling.consumers]


def _draws(fusion: Fusion) -> bool:
    """Whether there is a dropout whose mask is drawn here."""
    return any(isinstance(op, Rng) for op in fusion.ops)


def _layout_reasons(found: Attention) -> list[Reason]:
    reasons = []
    if found.keys.constant == 1:
        # Most weights are constants then, which the compiler makes where no register may change.
        what, supported = "1 key, always", "2 or more, or a symbol; sdpa_sm80"
        reasons.append(Reason(Status.NOT_SUPPORTED_SHAPE, "keys", what, supported))
    for name, operand, axes in operands(found):
        if (what := tma.refusal(operand.tensor, axes)) is not None:
            supported = (
                "contiguous elements of a head, other strides multiples of 16 bytes, an alignment "
                "of 16 bytes"
            )
            reasons.append(Reason(Status.NOT_SUPPORTED_LAYOUT, f"{name} by TMA", what, supported))
        size = operand.tensor.shape[-2].constant or 0
        if isinstance(operand.load, PagedCacheLoad) and size < LEAST_BLOCK:
            what = f"blocks of {size} keys"
            supported = f"{LEAST_BLOCK} or more"
            reasons.append(Reason(Status.NOT_SUPPORTED_SHAPE, "pages", what, supported))
    return reasons


def _page_reasons(found: Attention, keys: int) -> list[Reason]:
    """Keys of a step come by whole pages, or are a part of one."""
    pages = [
        operand.tensor.shape[-2].constant or 1
        for _, operand, _ in operands(found)
        if isinstance(operand.load, PagedCacheLoad)
    ]
    return [
        knob_reason(f"TILE_N={keys} of pages of {page} keys", f"multiples or parts of {page}")
        for page in dict.fromkeys(pages)
        if keys % page and page % keys
    ]


@remembered
def _adds_places(fusion: Fusion) -> bool:
    """Whether what is added to scores is computed from their places, as of ALiBi, no function takes
    registers beside it, and there is no window, of which a step is a large part."""
    found = attention_of(fusion)
    ops = [op for op in fusion.upstream(found.score) if isinstance(op, Pointwise)]
    if any(is_heavy(op) for op in ops) or sum(op.mode.startswith("cmp_") for op in ops) > 1:
        return False
    return any(_adds_to(found, op, fusion) for op in ops if op.mode in ("add", "sub"))


def _adds_to(found: Attention, op: Pointwise, fusion: Fusion) -> bool:
    """Whether it adds to scores what no tensor of rows and columns takes part in."""
    read = [fusion.read_inputs(tensor) for tensor in op.read_operands]
    others = [inputs for inputs in read if found.operands.q.tensor not in inputs]
    if len(others) != 1 or len(read) != 2:
        return False
    return all(1 in (n.constant for n in tensor.shape[-2:]) for tensor in others[0])


def _rate_share(choice: SdpaChoice, width: int, *, gathers: bool) -> float:
    """The share of the tensor cores' rate, as measured on an H100.  gathers: whether rows are
    looked up."""
    consumers = choice.consumers
    share = {1: 0.4, 2: 0.78, 3: 0.78}[consumers]
    if width <= 64:
        share = {1: 0.3, 2: 0.5, 3: 0.62}[consumers]
    few = _KEYS_SHARES.get(choice.keys, 0.98)
    # Short sequences end soon: with more stages the next one's keys are under way by then.
    more = _STAGES_GATHERING if gathers else {3: 0.995, 4: 0.995}
    stages = {1: 0.75, 2: 1.0, **more}[choice.stages]
    return share * few * stages


SDPA_FWD_SM90 = SdpaFwdSm90Engine()
