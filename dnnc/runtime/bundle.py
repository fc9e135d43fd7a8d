"""LoadedBundle: the plans of a model in one file, each loaded when it is first asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

from .. import given
from ..plan.format import Bundle
from .executor import ExecutionPlan


class LoadedBundle:
    """Execution plans by name; threads may share it.

    Opening reads the file's header and index.  A plan is read and verified when it is first asked
    for, once; a plan that is altered is an error then, and the others can still be used.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes):
        self._bundle = Bundle(source)
        self._plans: dict[str, ExecutionPlan] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """The plans' names, in the order in which they were written."""
        return self._bundle.names

    def __getitem__(self, name: str) -> ExecutionPlan:
        """The plan of a name; an unknown one is BAD_PARAM with those that are there."""
        given.verify_text(name, "the name of a plan")
        with self._lock:
            found = self._plans.get(name)
            if found is None:
                found = self._plans[name] = ExecutionPlan(self._bundle.plan(name))
            return found

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def verify(self) -> None:
        """Reads every plan, without keeping it; an error names what is wrong."""
        self._bundle.verify()


def load_bundle(source: str | os.PathLike[str] | bytes) -> LoadedBundle:
    """The plans of a `.dnnplan` file, or of its bytes: `load_bundle("model.dnnplan")["ffn"]`.

    The GPU is not touched before the first bind.  A file whose header or index is truncated or
    altered is BAD_PARAM; one of a later format is SERIALIZATION_VERSION_MISMATCH.
    """
    return LoadedBundle(source)
