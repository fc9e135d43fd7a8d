# pyright: basic
"""The kernel of engine sdpa_fwd_sm90; see the engine for the whole.

    warpgroup 0      for each tile: load its queries, then keys and values, block by block
                     (`producer_sm90`); values of 8 bits are transposed by its other warps
                     (`transposer_sm90`)
    warpgroups 1..   for each tile, of 64 queries each: compute the queries, if that is part of the
                     fusion (`computed_queries`; they are not loaded then); products and softmax,
                     block by block, then the result (`consumer_sm90`)

They share rings and tiles (`block_sm90`).
"""

from __future__ import annotations

from ...codegen import ops
from .block_sm90 import SdpaBlock
from .consumer_sm90 import SdpaConsumer
from .producer_sm90 import SdpaProducer


def emit_attention(block: SdpaBlock) -> None:
    """Builds the body of a block's kernel."""
    block.lay_out()
    block.begin()
    is_producer = block.group.eq(0)
    ops.if_else(is_producer, SdpaProducer(block).run, SdpaConsumer(block).run)
