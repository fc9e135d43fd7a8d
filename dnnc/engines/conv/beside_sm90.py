"""Small groups of channels of a convolution that conv_sm90 works on side by side.

A panel of k is 128 bytes of channels.  Groups of 32 or 64 bytes fill it together: their pixels
come as those of one group would, and step s of a panel multiplies the channels of the group that
they are, by its filters, into the columns of its results alone, so that nothing of one group
reaches another.  The tile's columns are all results of a panel's groups; a filter's tile has
rows of one group's channels.

    X   [pixels, group 0 | 1 | 2 | 3]        W   group 0: [results, channels of one group]
    Y   [pixels, group 0 | 1 | 2 | 3]            group 1: [results, ...], ...
"""

from __future__ import annotations

from dataclasses import replace

from ...codegen.hopper import wgmma
from ..product.knobs_sm90 import COLUMNS
from .choice_sm90 import ConvChoice
from .pattern import ConvShape


def shape_of_choice(
    shape: ConvShape, row: wgmma.Instruction, choice: ConvChoice, *, is_computed: bool
) -> ConvShape:
    """A convolution as a choice of knobs takes it: TILE_N that is all results of the groups that
    fill a panel asks for these.  is_computed: X is."""
    if choice.loop.swaps or choice.has_halo or is_computed:
        return shape
    found = side_by_side(shape, row)
    return found if found is not None and found.k_group == choice.channels else shape


def side_by_side(shape: ConvShape, row: wgmma.Instruction) -> ConvShape | None:
    """The convolution with the groups that fill a panel as one; None: they can't be."""
    group_bytes = shape.c_group * row.element_bytes
    if shape.is_transposed:  # whose rows of several groups lie in one another's places
        return None
    if shape.groups == 1 or group_bytes not in (wgmma.K_BYTES, 2 * wgmma.K_BYTES):
        return None
    beside = wgmma.ROW_BYTES // group_bytes
    if shape.groups % beside or not row.takes_columns(shape.k_group):
        return None
    found = replace(shape, beside=beside)
    return found if found.k_group in COLUMNS else None
