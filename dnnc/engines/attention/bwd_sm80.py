# pyright: basic
"""Engine sdpa_bwd_sm80: the gradient of attention on the tensor cores of sm_80 and later.

    before   delta = sum(dO * O) and -log2(e) * base of each row
    keys     a block of threads for a tile of keys of a head: for each block of queries
               S' = K @ Q', dP' = V @ dO'     P' and dS' in registers
               dV += P' @ dO, dK += dS' @ Q
    queries  a block of threads for a tile of queries of a head: for each block of keys
               S = Q @ K', dP = dO @ V'       dS in registers
               dQ += dS @ K

    rows by `cp.async`, products by `mma.sync`, 16 rows a warp

Scores are computed twice, by tiles of keys and by tiles of queries: seven products where five would
do, but every sum stays in the registers of one warp, so that nothing is added to memory and results
have the same bits each time.  Where the sums of dK and dV do not fit the registers together, each
has a kernel of its own, of which that of dV needs no dP.  Blocks that causal masks, windows and
lengths hide are left out.  Where P is in memory there is no S, and tiles of queries find delta:
`bwd_kept_sm80`.
Source: Dao, "FlashAttention-2", 2023.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from ... import dtypes
from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion, transposed
from ...codegen.attention.mask_ranges import is_triangular
from ...codegen.output import Output
from ...codegen.region import Region
from ...dialect.fusion import Fusion
from ...expr import typical
from ...target import Target
from ..engine import Engine, Knob, Knobs, Marks, Prediction, Reason
from ..knob_values import KnobValues
from ..product.pattern import knob_reason
from ..surface import (
    BANDWIDTH_SHARE,
    bytes_of,
    fp8_reasons,
    pattern_reason,
    smem_reasons,
)
from . import bwd_before, bwd_kept_sm80, bwd_sums
from .bwd_before import BeforeEmitter
from .bwd_kernel_sm80 import PassEmitter
from .bwd_model_sm80 import other_seconds, pass_seconds
from .bwd_pattern import gradient_of, gradient_reasons
from .bwd_query_side import QuerySchedule
from .bwd_rows import RowNumbers
from .bwd_schedule import GradientSchedule
from .bwd_sums import Elements, SumsEmitter, added, elements_of, finish_of
from .bwd_surface import (
    TYPES,
    gradient_marks,
    head_of,
    is_falling,
    operands,
    shape_reasons,
    type_reasons,
)
from .bwd_tile_sm80 import GradientPasses, PassTiling, RowsTiling
from .bwd_widened import widened
from .operands import copy_reasons

_ROWS = (128, 64, 32)
_STEPS = (64, 32, 16)
_STAGES = (2, 3, 1)
_MOST_ELEMENTS = 256  # of a query, and of a value
_MOST_SUMS = 128  # registers of a thread for dK and dV, that one kernel has
_MOST_HELD = 192  # registers of sums and weights, beside which there is room for the rest


@dataclass(frozen=True)
class _Choice(KnobValues):
    """One value of each knob.

    rows: of a tile, queries or keys.  step: of the others.  is_one: whether one kernel does it all.
    """

    rows: Annotated[int, "TILE_M"]
    step: Annotated[int, "TILE_N"]
    stages: Annotated[int, "STAGES"]
    is_one: Annotated[bool, "KERNEL_CFG", 1] = False


@dataclass(frozen=True)
class SdpaBwdSm80Engine(Engine):
    """See the file's docstring."""

    tiling = GradientPasses
    name: str = "sdpa_bwd_sm80"
    index: int = 24
    families: tuple[str, ...] = ("attention gradient",)
    numerical_notes: tuple[str, ...] = ("TENSOR_CORE",)
    has_fixed_bodies: bool = True
    support: tuple[str, ...] = (
        "the gradient of attention, as `sdpa_backward` or written in its five products; Q, K, V "
        "and dO of f16 or of bf16, results of 16 or 32 bits, sums in f32; D and Dv up to 256, "
        "multiples of 8; heads of Q may share those of K and V; any strides of 16 bytes, "
        "contiguous elements of a head; packed sequences; the same bits each time",
        "pointwise operations on scores (scale, masks, bias, soft-cap), on weights (dropout) and "
        "on the gradients of both, of tensors that broadcast; blocks that a causal mask or a "
        "window hides are left out",
        "Q, K, V and dO of fp8 (sm_89 and later), as `sdpa_fp8_backward` or in its steps: each of "
        "either type, and so P and dS; results of fp8 too, of any strides, the amax of each and of "
        "dS; operands are widened in the workspace",
        "outputs of the scores' dims (dropout's mask, a whole dBias), sums of these (dBias) and of "
        "rows (dSink)",
        "the gradient of attention from its stored weights, as cuDNN's guide has it for short "
        "sequences, in one kernel: four products, dropout in the signs of S, which may be F16x16, "
        "as may dS; not packed, each head its own keys",
    )

    # ---- the support surface

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        if declined := gradient_reasons(fusion):
            return declined
        found = gradient_of(fusion)
        reasons = type_reasons(found, (*TYPES, dtypes.f32), takes_fp8=True)
        reasons += shape_reasons(found, _MOST_ELEMENTS)
        if found.is_fp8:
            # The kernel before the main ones makes rows of f16 of any operand, but packed ones.
            reasons += [pattern_reason("packed rows of fp8", "rows in place")] * found.is_packed
        elif not reasons:
            reasons += copy_reasons(operands(found))
        return (*reasons, *fp8_reasons(fusion, target))

    # ---- knobs

    all_knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("TILE_M", _ROWS, "keys, or queries, of a tile, 16 a warp"),
        Knob("TILE_N", _STEPS, "queries, or keys, of a step"),
        Knob("STAGES", _STAGES, "steps in shared memory"),
        Knob("KERNEL_CFG", (0, 1), "1: one kernel, a block for each head; of weights in memory"),
    )

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        choice, found = _Choice.of(knobs), gradient_of(fusion)
        has_scores = found.scores is not None
        passes = _passes(choice, *head_of(found, _MOST_ELEMENTS), has_scores=has_scores)
        held = max(tiling.held_registers for tiling in passes)
        reasons: list[Reason] = []
        if has_scores and choice.is_one:
            reasons.append(knob_reason("KERNEL_CFG = 1 beside scores", "0"))
        if not has_scores and choice.step > choice.rows:
            # Queries past a tile's have no delta, which a step of others would read.
            what = f"TILE_N = {choice.step} above TILE_M beside weights in memory"
            reasons.append(knob_reason(what, f"at most {choice.rows}"))
        if held > _MOST_HELD:
            what = f"{held} registers of sums and weights"
            reasons.append(knob_reason(what, f"at most {_MOST_HELD}"))
        return (*reasons, *smem_reasons(max(t.smem_bytes for t in passes), target))

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        found = [
            _Choice(rows, step, stages, is_one).knobs
            for is_one in (False, True)
            for rows in _ROWS
            for step in _STEPS
            for stages in _STAGES
        ]
        return [knobs for knobs in found if not self.legal(knobs, fusion, target)]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        found = gradient_of(fusion)
        choice, has_scores = _Choice.of(knobs), found.scores is not None
        passes = _passes(choice, *head_of(found, _MOST_ELEMENTS), has_scores=has_scores)
        sizes = found.score.shape[0], *found.score.shape[1:]
        batch, heads, queries, keys = (typical(size) for size in sizes)
        seconds = 0.0
        for tiling in passes:
            rows, others = (keys, queries) if tiling.of_keys else (queries, keys)
            own_heads, shared = heads, 1
            if tiling.of_keys:
                own_heads, shared = heads // found.group, found.group
            tiles, steps = -(-rows // tiling.rows), -(-others // tiling.step) * shared
            blocks, of_block = batch * own_heads * tiles, 1
            if choice.is_one:
                blocks, of_block = batch * own_heads, tiles
            seconds += pass_seconds(tiling, blocks, steps, target, of_block)
        bandwidth = target.dram_gbs * 1e9 * BANDWIDTH_SHARE
        moved = bytes_of((*fusion.inputs, *fusion.outputs)) / bandwidth
        bound = "tensor cores" if seconds > moved else "memory"
        launches = 1 if choice.is_one else has_scores + len(passes)
        total = seconds + other_seconds(passes[0], launches, moved)
        return Prediction(total, bound)

    def register_pressure(self, knobs: Knobs) -> int:
        return _Choice.of(knobs).step

    def marks(self, fusion: Fusion) -> Marks:
        return gradient_marks(fusion)

    # ---- tiling

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> GradientPasses:
        choice, found = _Choice.of(knobs), gradient_of(fusion)
        head = head_of(found, _MOST_ELEMENTS)
        passes = _passes(choice, *head, has_scores=found.scores is not None)
        # A block that has all tiles of one head takes them in any order.
        return GradientPasses(tuple(passes), has_order=choice.is_one)

    def completed(self, tile: GradientPasses, region: Region) -> GradientPasses:
        if tile.has_order:
            return tile
        condition = GradientRegion(region.of_matrices()).condition
        of_keys, of_queries = is_falling(transposed(condition)), is_triangular(condition)
        passes = [
            replace(p, is_longest_first=of_keys if p.of_keys else of_queries) for p in tile.passes
        ]
        return GradientPasses(tuple(passes), has_order=True)

    # ---- code

    def emit(self, region: Region, knobs: Knobs, tile: GradientPasses, output: Output) -> None:
        region = region.of_matrices()
        parts = widened(region, output)
        passes = tile.passes
        buffer = output.workspace("rows", RowNumbers.bytes_of(parts.dims))
        sums = {place: elements_of(parts, place, output) for place in parts.sums}
        if parts.has_scores:
            self._emit_passes(parts, output, passes, buffer, sums)
        else:
            is_one = _Choice.of(knobs).is_one
            bwd_kept_sm80.emit(parts, output, passes, buffer, sums, is_one=is_one)
        for place, elements in sums.items():
            kernel = output.kernel(f"sum{place}", bwd_sums.THREADS)
            with kernel.body():
                _, target = region.targets(kernel)[place]
                finish = finish_of(kernel, parts, place)
                SumsEmitter(kernel, elements, target, finish).emit(ops.block_id())
            output.launch(kernel, (elements.blocks, 1, 1))

    def _emit_passes(
        self, parts: GradientRegion, output: Output, passes: Sequence[PassTiling], buffer: str,
        sums: Mapping[int, Elements],
    ) -> None:  # fmt: skip
        """Emits the kernel before the main ones, and these."""
        region, group = parts.region, parts.group
        rows = RowsTiling(passes[0].width, passes[0].depth)
        plan = GradientSchedule(None, parts, rows, group)  # pyright: ignore[reportArgumentType]
        numbers = RowNumbers(buffer, plan.rows)
        kernel = output.kernel("before", bwd_before.THREADS)
        with kernel.body():
            others = added(kernel, parts, sums, of_scores=False)
            schedule = GradientSchedule(kernel, parts, rows, group)
            BeforeEmitter(kernel, parts, schedule, buffer, others=others).emit()
        output.launch(kernel, (plan.blocks, 1, 1))
        for place in parts.largest:
            output.preset(region.outputs[place][1], 0)
        for tiling in passes:
            kernel = output.kernel("_".join(tiling.makes), tiling.threads)
            with kernel.body():
                if tiling.of_keys:
                    schedule, kept = GradientSchedule(kernel, parts, tiling, group), []
                else:
                    targets = region.targets(kernel)
                    kept = [targets[place] for place in parts.kept]
                    kept += added(kernel, parts, sums, of_scores=True)
                    schedule = QuerySchedule(kernel, parts, tiling, group, sees_all=bool(kept))
                PassEmitter(kernel, parts, tiling, schedule, numbers, group, kept).emit()
            output.launch(kernel, (schedule.tiles, 1, 1))


# ---- tilings


def _passes(choice: _Choice, depth: int, width: int, *, has_scores: bool) -> list[PassTiling]:
    """The main kernels, in order."""
    sizes = choice.rows, choice.step, depth, width, choice.stages
    both = PassTiling(True, ("dv", "dk"), *sizes, has_scores=has_scores)
    of_keys = [both]
    if sum(map(both.registers_of, both.makes)) > _MOST_SUMS:
        of_keys = [replace(both, makes=(name,)) for name in both.makes]
    of_queries = replace(both, of_keys=False, makes=("dq",))
    return [*of_keys, of_queries] if has_scores else [of_queries, *of_keys]


SDPA_BWD_SM80 = SdpaBwdSm80Engine()
