"""The names of knobs that engines may have: cuDNN's, and dnnc's own."""

from __future__ import annotations

KNOBS = (
    *("SWIZZLE", "TILE_SIZE", "EDGE", "MULTIPLY", "SPLIT_K_BUF", "TILEK", "STAGES"),
    *("REDUCTION_MODE", "SPLIT_K_SLC", "IDX_MODE", "SPECFILT", "KERNEL_CFG", "WORKSPACE"),
    *("TILE_CGA", "TILE_CGA_M", "TILE_CGA_N", "BLOCK_SIZE", "OCCUPANCY", "ARRAY_SIZE_PER_THREAD"),
    *("SPLIT_COLS", "TILE_ROWS", "TILE_COLS", "LOAD_SIZE", "CTA_COUNT", "STREAM_K", "SPLIT_P_SLC"),
    *("TILE_M", "TILE_N", "WARP_SPEC_CFG", "SWAP_AB", "SCHED_POLICY", "PACK_GQA", "SPLIT_KV"),
    *("SPLIT_H", "TF32"),
)
