# pyright: basic
"""verify: the graph as a whole, beyond what each operation's verifier sees.

Precondition: a module with one function `dnn.graph`.  Postcondition: the same module; its graph
has unique uids, no cycle, outputs that do not overlap themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..dialect import dnn
from .pass_base import Pass


@dataclass(frozen=True)
class Verify(Pass):
    """The pass; see the file's docstring."""

    name: ClassVar[str] = "verify"

    def run(self, module: Any) -> None:
        dnn.from_mlir(module)
