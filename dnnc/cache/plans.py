"""Plans by the key of everything that they depend on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import keys, log, outside
from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..options import Options
from ..plan import format
from ..plan.plan import Plan
from ..store import MemoryStore, Store
from ..target import Target
from . import place

_log = log.logger(__name__)
_warned: set[str] = set()  # of what the log has in this process


def entry_key(key: str) -> str:
    """The store's key of a plan, by the plan's."""
    return f"plan-{key}"


def find(store: Store, key: str, plan_key: str = "") -> tuple[bytes, Plan] | None:
    """A plan of the store, with its file; an entry that is none, or another's, is dropped.

    plan_key: the plan's own key, where the caller knows it.
    """
    file = store.get(key)
    if file is None:
        return None
    try:
        plan = format.read(file)
        if plan_key and plan.key != plan_key:
            raise DnncError(Status.BAD_PARAM, f"the plan of key {plan.key:.20}", plan_key)
    except DnncError as error:
        _log.warning("cache entry %s is made again: %s", key, error)
        store.drop(key)
        return None
    return file, plan


def kept_or_made(
    graph: OperationGraph,
    rows: Sequence[Target],
    options: Options,
    store: Store | None,
    make: Callable[[], tuple[bytes, Plan]],
) -> Plan:
    """The plan of a finalized graph: the store's, or else made and kept there.

    What the log was warned of when a plan was made, it is warned of by the store's too, once.
    store: None to make it in any case, and keep it nowhere.  make: compiles; gives the plan's
    file and the plan.
    """
    if store is None:
        return make()[1]
    names = [row.name for row in rows]
    plan_key = keys.plan_key(graph.canonical_text(), names, options)
    key = entry_key(plan_key)
    known = find(store, key, plan_key)
    if known is not None:
        _log.debug("graph '%s' for %s: from the cache", graph.name, ",".join(names))
        plan = known[1]
        for text in _warnings(plan):
            if text not in _warned:
                log.hint(text)
    else:
        file, plan = make()
        store.put(key, file)
    _warned.update(_warnings(plan))
    return plan


def _warnings(plan: Plan) -> list[str]:
    return [text for program in plan.programs for text in program.warnings]


def compiled_here(
    graph: OperationGraph,
    rows: Sequence[Target],
    options: Options,
    *,
    cache: bool = True,
    report: Callable[[str, float], None] = lambda stage, seconds: None,
) -> Plan:
    """`dnnc.compiler.compile_graph` in this process, through the cache.

    cache: False to compile anew, and keep nothing; so it is with engines from outside the package,
    whose code no key names.
    """
    graph.finalize()
    store = place.store() if cache and not outside.is_used() else None

    def make() -> tuple[bytes, Plan]:
        from ..compiler import compile_graph  # loads MLIR, which a plan that is there does not need

        plan = compile_graph(graph, rows, options, store=store or MemoryStore(), report=report)
        return format.to_bytes(plan), plan

    return kept_or_made(graph, rows, options, store, make)
