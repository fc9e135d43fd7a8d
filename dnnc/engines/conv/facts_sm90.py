"""The facts of a fusion that the knobs of conv_sm90 depend on: those of the product that it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from ...codegen.hopper import im2col, tma, wgmma
from ...codegen.hopper.staged_store import TRANSPOSED_BYTES
from ...dialect.fusion import Fusion, remembered, remembered_at_sizes
from ...dialect.tensor import Tensor
from ...expr import typical
from ..product.bits import booleans_of
from ..product.facts_sm90 import (
    PHASES,
    SCATTERED,
    SPLITS,
    EpilogueFacts,
    OperandsFacts,
    ProductFacts,
    ResultFacts,
    epilogue_loads,
    instruction_of_types,
    promotes_sums,
)
from ..product.model_sm90 import SECTOR_BYTES, OperandLoads
from ..product.operands_sm90 import OperandFacts, Raw
from ..product.pattern import is_heavy
from ..product.tile_sm90 import stored_by_tma
from ..product.work import ProductWork
from ..surface import bytes_of
from .before_sm90 import beside_bytes, computes, kept_operands, raws_of, rewrites_in_place
from .beside_sm90 import shape_of_choice, side_by_side
from .choice_sm90 import ConvChoice
from .exits_sm90 import whole_outputs
from .operands_sm90 import filter_row_bytes
from .pattern import NARROW_BYTES, ConvShape, conv_of, conv_shape_of, pixel_matrix, shape_of
from .phase_stores_sm90 import are_stored_by_phase

_MOST_SUMS = 384  # of the largest tile, for which most epilogues leave room
# Where threads store rows of results, or pixels of phases are read: of 384, some kernels spilled.
_MOST_SCATTERED = 256
_MOST_BESIDE_LOADS = 192  # where the epilogue's threads load by themselves what it reads
# Of the rate of loads, of panels of half a line: that are one of its halves, that begin anywhere,
# and of less than a sector.  Of the last a row of pixels or of a filter took 10 to 17 ns, where a
# whole line takes 2.6: eight of them lie in a line, and follow each other there.
_HALF_LINE_SHARE = 1.14
_FEW_BYTES_SHARE = 0.6
_LEAST_BYTES_SHARE = 0.2
_HALF_LINE = (
    0.55  # of a line's time, what a row takes that is half a line at most, behind whole ones
)
# Lines that a row of a flipped filter takes as long as, where several follow each other in one: of
# 8, 16 and 24 outputs of 1x1 filters a row took 14 to 17 ns.
_SAME_LINE = 5.5
# The same, more, of rows of less than a line that end inside sectors, where pixels come by im2col:
# tiles of 64 for 24 and 40 channels took 1.2 to 1.3 of the time that fits 16 and 32 channels.
_SPLIT_SECTOR = 3.5
_SECOND_LINE = 0.85  # of a line's time, a second one that a row of whole panels meets
REWRITTEN = "rewritten"  # the path of an X that is computed in shared memory
KEPT = "kept"  # the path of an output that is such an X
_MOST_PANELS = 3  # of a pixel, of which the last one's zeros are left out
_NO_FRAGMENTS = "a convolution, whose operands come by TMA"


def conv_row_of(fusion: Fusion) -> wgmma.Instruction:
    op = conv_of(fusion)
    return instruction_of_types(op.moved.type, op.w.type)


def beside_of(fusion: Fusion, choice: ConvChoice) -> int:
    """Groups of channels that a choice of knobs works on as one."""
    row, is_computed = conv_row_of(fusion), computes(fusion)
    return shape_of_choice(conv_shape_of(fusion), row, choice, is_computed=is_computed).beside


def side_by_side_of(fusion: Fusion) -> ConvShape | None:
    """The convolution with groups that fill a panel as one, where that can be."""
    return side_by_side(conv_shape_of(fusion), conv_row_of(fusion))


@remembered
def conv_facts_of(fusion: Fusion, beside: int) -> ProductFacts:
    """The facts of a fusion that the engine takes; beside: see `beside_of`."""
    op = conv_of(fusion)
    shape, row = replace(shape_of(op), beside=beside), conv_row_of(fusion)
    steps = 1 if shape.spread else shape.taps * shape.panels(row.element_bytes)
    before = fusion.upstream(op.moved)
    share = _load_share(shape, raws_of(fusion)[0].type.bits // 8, row.element_bytes)
    epilogue = (
        _epilogue_of(fusion, shape, swaps=False),
        _epilogue_of(fusion, shape, swaps=True),
    )
    is_scattered = any(SCATTERED in facts.paths for facts in epilogue)
    return ProductFacts(
        row=row,
        products=1,
        promotes=promotes_sums(row.a, op.compute_type),
        splits=max(n for n in SPLITS if n <= max(1, steps)),
        operands=OperandsFacts(
            along_rows=((False, not shape.is_filter_k_major),),
            no_fragments=(_NO_FRAGMENTS, _NO_FRAGMENTS),
            distinct=_operands_of(fusion, shape, row),
            rewrites=computes(fusion),
            loads=OperandLoads(share),
        ),
        epilogue=epilogue,
        results=ResultFacts(
            swaps=(0,) if booleans_of(fusion) or _reads_apart(fusion, swaps=True) else (0, 1),
            can_transpose=True,
            always_transposes=True,
            is_heavy=any(is_heavy(other) for other in fusion.ops if other not in before),
        ),
        most_sums=_most_sums(fusion, is_scattered),
        row_bytes=shape.panel_bytes(row.element_bytes),
    )


def _operands_of(
    fusion: Fusion, shape: ConvShape, row: wgmma.Instruction
) -> tuple[OperandFacts, OperandFacts]:
    """X, a panel of each pixel, and W, of which groups side by side have a part of a panel each."""
    row_bytes = shape.panel_bytes(row.element_bytes)
    w = OperandFacts(False, row_bytes=filter_row_bytes(shape, row))
    if not computes(fusion):
        return OperandFacts(True, row_bytes=row_bytes), w
    raws = tuple(Raw(fusion.inputs.index(t), t.type.bits) for t in raws_of(fusion))
    in_place = (0,) * int(rewrites_in_place(fusion))
    beside = (*in_place, *beside_bytes(fusion, shape.panel(row.element_bytes)))
    return OperandFacts(True, REWRITTEN, row_bytes=row_bytes, raws=raws, beside=beside), w


def _epilogue_of(fusion: Fusion, shape: ConvShape, *, swaps: bool) -> EpilogueFacts:
    paths = tuple(_path(fusion, t, shape, swaps=swaps) for t in fusion.outputs)
    loads = [t for t in staged_y_loads(fusion) if pixels_move_by_tma(t, shape, swaps=swaps)]
    is_even = _is_even(shape, swaps=swaps)
    return EpilogueFacts.of(fusion.outputs, paths, fusion.inputs, loads, is_even=is_even)


def _path(fusion: Fusion, output: Tensor, shape: ConvShape, *, swaps: bool) -> str:
    """See `EpilogueFacts.paths`."""
    if output in kept_operands(fusion):
        return KEPT
    if output.shape != conv_of(fusion).made.shape:
        return "exit"
    if output.type.kind == "b":
        return "bits"
    if not pixels_are_staged(output, shape, swaps=swaps):
        return "direct"
    if shape.spread is None:
        return "tma"
    return PHASES if are_stored_by_phase(output, shape) else SCATTERED


def stores_zeros(fusion: Fusion) -> bool:
    """Whether the pixels of phases that meet no tap have no tiles: nothing follows the gradient."""
    op, shape = conv_of(fusion), conv_shape_of(fusion)
    if shape.spread is None or not shape.spread.empty or fusion.outputs != (op.made,):
        return False
    return pixels_are_staged(op.made, shape, swaps=False)


@remembered
def tiled_shape_of(fusion: Fusion) -> ConvShape:
    """The convolution of the pixels that have tiles."""
    shape = conv_shape_of(fusion)
    return shape.met if stores_zeros(fusion) else shape


def _is_even(shape: ConvShape, *, swaps: bool) -> bool:
    """See `EpilogueFacts.is_even`."""
    if swaps and shape.spread:  # the image may have one of them alone
        return False
    size = shape.pixels.known_divisor() if swaps else shape.k_group
    return size % 2 == 0


def pixels_move_by_tma(tensor: Tensor, shape: ConvShape, *, swaps: bool) -> bool:
    """Whether tiles of a tensor of Y's dims can be loaded through TMA."""
    if shape.spread is None:
        return _are_rows(tensor, shape.groups, swaps=swaps)
    if swaps and tensor.type.bits != 8 * TRANSPOSED_BYTES:
        return False
    if shape.groups > 1 and shape.k_group * tensor.type.bits // 8 % tma.ALIGNMENT:
        return False  # boxes begin at a group's first channel
    windows = shape.phase_windows
    return windows is not None and im2col.refusal(tensor, windows) is None


def pixels_are_staged(tensor: Tensor, shape: ConvShape, *, swaps: bool) -> bool:
    """Whether they are stored through shared memory, see `stored_by_tma`."""
    if not _are_rows(tensor, shape.groups, swaps=swaps):
        return False
    matrix = pixel_matrix(tensor, shape.groups)
    return matrix is not None and stored_by_tma(matrix, swaps=False)


def _are_rows(tensor: Tensor, groups: int, *, swaps: bool) -> bool:
    """Whether pixels are rows of a matrix that TMA takes."""
    if swaps and tensor.type.bits != 8 * TRANSPOSED_BYTES:
        return False
    matrix = pixel_matrix(tensor, groups)
    return matrix is not None and tma.refusal(matrix, (2, 1)) is None


def panel_steps_of(shape: ConvShape, element_bytes: int, choice: ConvChoice) -> tuple[int, ...]:
    """See `PixelTiles.steps`: where it is worth it, and the main loop knows which panel a step has.

    By im2col the panels of a pixel follow each other, and each is code of its own.
    """
    steps = shape.panel_steps(element_bytes)
    is_cut = choice.loop.splits > 1
    is_known = choice.has_halo or len(steps) == 1 or not (is_cut or len(steps) > _MOST_PANELS)
    every = shape.panel_bytes(element_bytes) // wgmma.K_BYTES
    return steps if is_known and steps[-1] < every else ()


def _load_share(shape: ConvShape, loaded_bytes: int, element_bytes: int) -> float:
    """The share of the rate at which panels come that are lines of memory: a panel that begins
    inside a line may meet two.

    loaded_bytes: of an element of X.
    """
    begins = gcd(shape.c_group * shape.groups * loaded_bytes, wgmma.ROW_BYTES)
    row_bytes = shape.c_group * element_bytes
    if row_bytes < SECTOR_BYTES:
        return _LEAST_BYTES_SHARE
    if row_bytes <= NARROW_BYTES:
        return _HALF_LINE_SHARE if begins >= NARROW_BYTES else _FEW_BYTES_SHARE
    whole, rest = divmod(row_bytes, wgmma.ROW_BYTES)
    lines = whole * _lines(begins, wgmma.ROW_BYTES)
    if rest:
        lines += _lines(begins, rest) * (_HALF_LINE if rest <= NARROW_BYTES else 1)
    return shape.panels(element_bytes) / lines


def gradient_lines(shape: ConvShape, element_bytes: int, *, has_halo: bool) -> float:
    """See `PixelLoads.lines`."""
    if not shape.is_transposed:
        return 0.0
    if shape.is_filter_k_major:
        return 1.0
    row_bytes = shape.k_group * element_bytes  # of a tap of one of W's filters
    if shape.filter_taps * row_bytes < wgmma.ROW_BYTES:
        return _SAME_LINE
    lines = _lines(gcd(row_bytes, wgmma.ROW_BYTES), min(row_bytes, wgmma.ROW_BYTES))
    is_split = row_bytes < wgmma.ROW_BYTES and row_bytes % SECTOR_BYTES
    return lines + (_SPLIT_SECTOR if is_split and not has_halo else 0.0)


def _lines(begins: int, row_bytes: int) -> float:
    """That a row takes as long as, which begins at any multiple of so many bytes: on average it
    meets a second one that often."""
    return 1 + _SECOND_LINE * (-(-row_bytes // begins) - 1) * begins / wgmma.ROW_BYTES


def _most_sums(fusion: Fusion, is_scattered: bool) -> int:
    """The most sums of two rows of a thread."""
    if (computes(fusion) and y_loads(fusion)) or _reads_apart(fusion, swaps=False):
        return _MOST_BESIDE_LOADS
    has_phases = conv_shape_of(fusion).spread is not None
    return _MOST_SCATTERED if is_scattered or (has_phases and y_loads(fusion)) else _MOST_SUMS


def _reads_apart(fusion: Fusion, *, swaps: bool) -> bool:
    """Whether threads read pixels of a phase one by one: along columns they serialize products."""
    shape = conv_shape_of(fusion)
    staged = [t for t in staged_y_loads(fusion) if pixels_move_by_tma(t, shape, swaps=swaps)]
    return shape.spread is not None and any(t not in staged for t in y_loads(fusion))


def y_loads(fusion: Fusion) -> list[Tensor]:
    """The values of Y's dims that g2 reads."""
    dims = conv_of(fusion).made.shape
    after = {t for op in fusion.ops if fusion.roles[op] == "g2" for t in op.read_operands}
    return [t for t in fusion.inputs if t in after and t.shape == dims and not t.is_by_value]


def staged_y_loads(fusion: Fusion) -> list[Tensor]:
    """The loads that may go through shared memory; none where the warps that load compute X."""
    return [] if computes(fusion) else epilogue_loads(fusion, has_exits=True)


@remembered_at_sizes
def conv_work_of(fusion: Fusion, beside: int) -> ProductWork:
    """The product's sizes, for predictions; beside: see `beside_of`."""
    shape = replace(tiled_shape_of(fusion), beside=beside)
    panel, count = shape.panel(conv_row_of(fusion).element_bytes), shape.groups
    k, phases = shape.depth(panel), tuple[int, ...]()
    if (spread := shape.spread) is not None:
        panels = shape.padded_channels(panel) // panel
        phases = tuple(taps * panels or 1 for taps in spread.phase_taps)
        k = round(panel * sum(phases) / len(phases))
        count *= len(phases)
        phases = phases if len(phases) > 1 else ()
    loaded = raws_of(fusion)
    others = {t for t in (*fusion.inputs, *fusion.outputs) if t not in loaded}
    moved_bytes = bytes_of(others) + round(bytes_of(loaded) * shape.read_share)
    split = split_of(whole_outputs(fusion), shape.k_group)
    return ProductWork(
        typical(shape.pixels), shape.k_group, k, count, moved_bytes, 0, split, phases
    )


def multiplied_share(fusion: Fusion, beside: int, choice: ConvChoice) -> float:
    """The share of the k of all panels that products take."""
    op, row = conv_of(fusion), conv_row_of(fusion)
    shape = replace(conv_shape_of(fusion), beside=beside)
    steps = panel_steps_of(shape, row.element_bytes, choice)
    if not steps:
        return 1.0
    if promotes_sums(row.a, op.compute_type):  # one loop for all panels
        steps = (max(steps),)
    every = shape.panel_bytes(row.element_bytes) // wgmma.K_BYTES
    return sum(steps) / (every * len(steps))


def split_of(outputs: Sequence[Tensor], k_group: int) -> tuple[int, ...]:
    """See `ProductWork`; k_group: channels of each pixel that lie together."""
    sizes = (t.type.bits // 8 for t in outputs if t.layout[1].constant == 1)
    return tuple(size for size in sizes if k_group * size % SECTOR_BYTES)
