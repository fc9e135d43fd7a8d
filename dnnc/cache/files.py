"""Plans by the bytes of a graph file: a second index, which needs no look at the graph.

An entry of the index is the store's key of a plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .. import keys, tools
from ..options import Options
from ..store import Store
from . import plans

_ENTRY = re.compile(r"plan-[a-z0-9-]{1,200}")


def file_key(
    data: bytes, suffix: str, targets: Sequence[str] | None, default: str, options: Options
) -> str:
    """The index's key of a file.

    suffix: says how the file is read.  targets: those asked for, by name; None for what the file
    names, or else the default.
    """
    wanted = None if targets is None else list(targets)
    parts = (data, suffix, wanted, default, options, tools.versions())
    return f"file-{keys.hash_of('file', *parts)}"


def find(store: Store, key: str) -> bytes | None:
    """The plan's file, if index and store have it."""
    known = store.get(key)
    if known is None:
        return None
    named = known.decode("ascii", "replace")
    if not _ENTRY.fullmatch(named):
        store.drop(key)
        return None
    is_own = named == plans.entry_key(key)  # of the file's bytes, which no plan's key is of
    found = plans.find(store, named, "" if is_own else named.removeprefix(plans.entry_key("")))
    if found is None:
        store.drop(key)  # it may name another plan, and what is there stays as it is
        return None
    return found[0]


def keep(store: Store, key: str, plan_key: str) -> None:
    """Notes the plan of a file that was compiled from its graph, and so is in the store."""
    store.put(key, plans.entry_key(plan_key).encode())


def keep_file(store: Store, key: str, file: bytes) -> None:
    """Keeps the plan of a file that does not tell its graph alone: the text of a later stage."""
    own = plans.entry_key(key)
    store.put(own, file)
    store.put(key, own.encode())
