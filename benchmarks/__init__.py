"""Benchmarks: our kernels beside torch and cuDNN, compile times, host times.

python -m benchmarks --help
"""

# The names of case_lists.SETS, for those who ask without torch.
SET_NAMES = ("all", "hopper", "fused", "rows", "memory", "small", "conv", "depthwise")

# What `resnet50` times by default.
RESNET50_COLUMNS = ("dnnc", "cudnn", "torch", "torch_fused", "torch_compile")
