"""Pass: one step of the compiler over a module, with its options as dataclass fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Pass:
    """A pass; its module verifies before and after `run`, not during.

    name: kebab-case, as `dnnc opt -p` spells it.  takes, makes: the stages (`stages`) that its
    module is at before and after it, "" for any; `passes.run` checks both.  Fields are the
    options: text, an integer or a boolean each, with a default.
    """

    name: ClassVar[str] = ""
    takes: ClassVar[str] = ""
    makes: ClassVar[str] = ""

    def run(self, module: Any) -> None:
        """Rewrites `module` in place, inside the context it was made in."""
        raise NotImplementedError
