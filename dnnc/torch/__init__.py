"""Operations on PyTorch tensors, with gradients, computed by dnnc's plans.

`import dnnc.torch` needs PyTorch; `import dnnc` alone never imports it.  A graph is built and
compiled once for each kind of call (dims, strides, types, options, device), and its plan is kept.
Tensors on a CPU are computed by `dnnc.reference`, in float64 on NumPy: slow, for checks.
"""

from .attention import sdpa as sdpa

__all__ = ["sdpa"]
