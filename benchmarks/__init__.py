"""Benchmarks: our kernels beside torch and cuDNN, compile times, host times.

python -m benchmarks --help
"""

# The names of case_lists.SETS, for those who ask without torch.
SET_NAMES = (
    "all", "hopper", "epilogues", "fused", "rows", "norms", "memory", "small", "conv", "depthwise",
    "conv-more", "dgrad", "dgrad-more", "conv-wgrad", "conv-wgrad-beside", "conv-patterns",
    "attention", "attention-backward", "attention-ordered", "attention-fp8-backward",
    "attention-long-heads", "rope", "causal-conv1d", "decode", "few-queries", "packed",
    "packed-lengths", "packed-backward", "paged", "parts", "layouts",
)  # fmt: skip
# Those of generated.DRAWN: 20 cases or more that nobody listed, by seed.
DRAWN_NAMES = (
    "memory-unlisted", "conv-unlisted", "dgrad-unlisted", "dgrad-networks",
    "few-dgrad-unlisted", "conv-wgrad-unlisted", "long-unlisted", "wide-conv-unlisted",
)  # fmt: skip

# What `resnet50` times by default.
RESNET50_COLUMNS = ("dnnc", "cudnn", "torch", "torch_fused", "torch_compile")
