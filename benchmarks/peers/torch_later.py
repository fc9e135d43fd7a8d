"""torch and torch.nn.functional for cases, imported when something is first asked of them.

What a case is, its sizes and its graph, needs no torch: `judge` asks for that alone.  Buffers and
exact results do.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.nn import functional
else:

    class _Later:
        def __init__(self, name: str):
            self._name = name

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module(self._name), name)

    torch, functional = _Later("torch"), _Later("torch.nn.functional")

__all__ = ["functional", "torch"]
