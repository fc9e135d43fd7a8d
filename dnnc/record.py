"""Tuning records: engine configs that were fastest when they were timed, kept in a JSON file.

    {"dnnc_tuning": 1, "entries": [
      {"graph": "<hash of its structure>", "name": "ffn", "sizes": {"s0": 4096},
       "target": "sm_90a", "device": "NVIDIA H100 80GB HBM3", "driver": "13.0", "l2": "warm",
       "versions": {"dnnc": "0.1.0"}, "partition": "0 1 2", "choices": "matmul_sm90:TILE_M=128",
       "seconds": 1.2e-05}]}

An entry is known by everything but name, config and seconds.  Two records merge: of entries that
are known alike, the faster one stays.  A graph's structure has no names and no uids, composite
operations are their steps, and all are in their canonical order, so that the same work finds its
entry whoever wrote it.  Symbols are called s0, s1, ... and operations 0, 1, ... (in the partition)
in the order in which they appear there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from . import __version__, given, log
from .dialect.canonical_order import canonical_order
from .dialect.graph import OperationGraph
from .dialect.json_form import ops_to_json, symbol_to_json
from .dialect.op import Op
from .errors import DnncError, Status
from .expr import Dim, parse, typical_dim
from .plan.format import write_whole
from .target import Target

VERSION = 1
L2_STATES = ("warm", "cold")

_log = log.logger(__name__)


@dataclass(frozen=True)
class Entry:
    """A graph's fastest config, as it was timed.

    graph: see `structure_key`.  name: of the graph, for readers.  sizes: of its symbols, by the
    names of its structure.  target: the architecture of the code.  device, driver: that ran it.
    l2: "warm" or "cold", whether inputs could be in L2.  versions: of the tools.
    partition, choices: the config, as the passes fuse and select-engine take it, but operations
    have the places of the structure (see `to_structure`, `of_structure`).
    seconds: of one execution.
    """

    graph: str
    name: str
    sizes: Mapping[str, int]
    target: str
    device: str
    driver: str
    l2: str
    versions: Mapping[str, str]
    partition: str
    choices: str
    seconds: float

    @property
    def key(self) -> tuple[Any, ...]:
        """The key that it is known by."""
        sizes, versions = (tuple(sorted(m.items())) for m in (self.sizes, self.versions))
        return (self.graph, sizes, self.target, self.device, self.driver, self.l2, versions)


@dataclass(frozen=True)
class Record:
    """Entries, each known differently, in the order of what they are known by."""

    entries: tuple[Entry, ...] = ()

    def merged(self, *others: Record) -> Record:
        """The entries of all; of those known alike, the fastest."""
        found: dict[tuple[Any, ...], Entry] = {}
        for entry in (e for record in (self, *others) for e in record.entries):
            known = found.get(entry.key)
            if known is None or entry.seconds < known.seconds:
                found[entry.key] = entry
        return Record(tuple(found[key] for key in sorted(found)))

    def entries_for(
        self, graph: OperationGraph, target: Target, device: str = ""
    ) -> tuple[Entry, ...]:
        """The entries for a graph on a target: one for each set of sizes.

        device: the only one whose times count ("": any of the target).  Entries of another
        device, target or version of dnnc are passed over, and the log says why.  What was timed
        with a warm L2 comes before what was timed with a cold one.
        """
        key = structure_key(graph)
        found: dict[tuple[Any, ...], Entry] = {}
        for entry in (e for e in self.entries if e.graph == key):
            if reason := _reason_against(entry, target, device):
                _log.info("graph '%s': a tuning entry is ignored: %s", graph.name, reason)
                continue
            sizes = tuple(sorted(entry.sizes.items()))
            if sizes not in found or _order(entry) < _order(found[sizes]):
                found[sizes] = entry
        return tuple(found[sizes] for sizes in sorted(found))

    def for_graph(self, graph: OperationGraph) -> Record:
        """The entries of one graph."""
        key = structure_key(graph)
        return Record(tuple(e for e in self.entries if e.graph == key))

    def text(self) -> str:
        """The JSON form on one line, equal for equal records; "" if there are no entries."""
        return json.dumps(self._plain(), sort_keys=True, separators=(",", ":")) * bool(self.entries)

    def pretty(self) -> str:
        """The JSON form as files hold it."""
        return json.dumps(self._plain(), sort_keys=True, indent=1) + "\n"

    def _plain(self) -> dict[str, Any]:
        return {"dnnc_tuning": VERSION, "entries": [asdict(entry) for entry in self.entries]}


def _reason_against(entry: Entry, target: Target, device: str) -> str:
    """Why an entry may not be used; "" if it may."""
    if entry.target != target.name:
        return f"it is of {entry.target}, not {target}"
    if device and entry.device != device:
        return f"it was timed on {entry.device}, not on {device}"
    version = entry.versions.get("dnnc")
    if version != __version__:
        return f"it is of dnnc {version}, not {__version__}"
    return ""


def _order(entry: Entry) -> tuple[int, float]:
    return L2_STATES.index(entry.l2), entry.seconds


def typical_entry(graph: OperationGraph, entries: Sequence[Entry]) -> Entry | None:
    """The entry whose sizes are nearest to those that predictions assume."""
    names = symbol_names(graph)
    wanted = {names[name]: typical_dim(dim) for name, dim in graph.symbols.items()}

    def distance(entry: Entry) -> float:
        pairs = ((entry.sizes.get(name, 1), size) for name, size in wanted.items())
        return sum(abs(math.log(max(1, a) / max(1, b))) for a, b in pairs)

    return min(entries, key=distance, default=None)


# ---- files


def read(source: str | os.PathLike[str] | Record | None) -> Record:
    """The record of a file.

    One of a version that is not known is ignored, with a warning in the log; a file that is no
    record is BAD_PARAM.
    """
    if source is None or isinstance(source, Record):
        return source or Record()
    given.verify_path(source, "tuning")
    try:
        text = Path(source).read_text()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise _bad(f"can't be read: {said}", "a tuning record", str(source)) from error
    return of_text(text, str(source))


def update(path: str | os.PathLike[str], made: Record) -> Record:
    """Merges a record into that of a file, which may not be there yet; gives the whole.

    The file is replaced in one step; what another process writes in between is lost.
    """
    whole = (read(path) if Path(path).exists() else Record()).merged(made)
    write_whole(path, whole.pretty().encode())
    return whole


def text_for(graph: OperationGraph, source: str | os.PathLike[str] | Record | None) -> str:
    """The entries of a record, or of its file, that are for a graph: `Options.tuning`."""
    return "" if source is None else read(source).for_graph(graph).text()


def of_text(text: str, where: str = "tuning record") -> Record:
    """The record of its JSON form, or of ""."""
    if not text:
        return Record()
    try:
        data: Any = json.loads(text)
    except ValueError as error:
        raise _bad(f"not JSON: {error}", "a tuning record", where) from error
    if not isinstance(data, dict) or "dnnc_tuning" not in data:
        raise _bad(f"{data!r:.40}", '{"dnnc_tuning": 1, "entries": [...]}', where)
    version = cast(Any, data)["dnnc_tuning"]
    if version != VERSION:
        _log.warning("%s is ignored: tuning record version %r, not %d", where, version, VERSION)
        return Record()
    entries = cast(Any, data).get("entries")
    if not isinstance(entries, list):
        raise _bad(f"entries = {entries!r:.40}", "a list", where)
    found = [_entry(e, f"{where}: entry {i}") for i, e in enumerate(cast(Any, entries))]
    return Record().merged(Record(tuple(found)))


_TYPES: Mapping[str, type] = {
    "graph": str, "name": str, "sizes": dict, "target": str, "device": str, "driver": str,
    "l2": str, "versions": dict, "partition": str, "choices": str, "seconds": float,
}  # fmt: skip


def _entry(data: Any, where: str) -> Entry:
    if not isinstance(data, dict):
        raise _bad(f"{data!r:.40}", "an object", where)
    values = {name: cast(Any, data).get(name) for name in _TYPES}
    for name, wanted in _TYPES.items():
        if not isinstance(values[name], wanted):
            raise _bad(f"{name} = {values[name]!r:.40}", f"a {wanted.__name__}", where)
    if values["l2"] not in L2_STATES or not 0 < values["seconds"] < math.inf:
        what = f"l2 = {values['l2']!r}, seconds = {values['seconds']}"
        raise _bad(what, f"{' or '.join(L2_STATES)}; a positive number", where)
    return Entry(**cast(Any, values))


def _bad(what: str, supported: str, where: str) -> DnncError:
    return DnncError(Status.BAD_PARAM, what, supported, where)


# ---- a graph without its names


def structure_key(graph: OperationGraph) -> str:
    """SHA-256 of a finalized graph's structure: operations, types, sizes, layouts."""
    text = json.dumps(structure(graph), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def structure(graph: OperationGraph) -> dict[str, Any]:
    """The JSON form of what is run, without names, in canonical order; tensors numbered, and
    symbols named, as they appear."""
    data = ops_to_json(_canonical_ops(graph))
    order = _tensor_order(data)
    numbers = {uid: number for number, uid in enumerate(order)}
    names = _symbol_names(data, order)
    renamed = {
        s["name"]: Dim(names[s["name"]], s["min"], s["max"], s["multiple_of"])
        for s in data["symbols"]
    }
    tensors = {tensor["uid"]: tensor for tensor in data["tensors"]}
    return {
        "symbols": sorted(str(symbol_to_json(dim)) for dim in renamed.values()),
        **_renamed_bounds(data, renamed),
        "tensors": [_plain_tensor(tensors[uid], numbers, renamed) for uid in order],
        "ops": [_plain_op(op, numbers) for op in data["ops"]],
    }


def symbol_names(graph: OperationGraph) -> dict[str, str]:
    """Symbol -> its name in the graph's structure; those of nothing that is run come last."""
    data = ops_to_json(_canonical_ops(graph))
    names = _symbol_names(data, _tensor_order(data))
    others = (name for name in graph.symbols if name not in names)
    return names | {name: f"s{at}" for at, name in enumerate(others, len(names))}


def _canonical_ops(graph: OperationGraph) -> list[Op]:
    return canonical_order(graph.live_ops)


def to_structure(partition: str, graph: OperationGraph) -> str:
    """The text of a partition of a graph, by the places that its structure has for operations."""
    places = {op: place for place, op in enumerate(_canonical_ops(graph))}
    return _renumbered(partition, [places[op] for op in graph.live_ops])


def of_structure(partition: str, graph: OperationGraph) -> str:
    """The other way round; a text that is of no such graph is BAD_PARAM."""
    places = {op: place for place, op in enumerate(graph.live_ops)}
    return _renumbered(partition, [places[op] for op in _canonical_ops(graph)])


def _renumbered(partition: str, places: Sequence[int]) -> str:
    """The text of a partition with other numbers of its operations; fusions stay in order."""
    known = {str(place): new for place, new in enumerate(places)}
    try:
        groups = [sorted(known[n] for n in group.split()) for group in partition.split("|")]
    except KeyError as error:
        wanted = f"places 0 to {len(places) - 1}, as 0 1|2"
        raise _bad(f"partition {partition!r}", wanted, "tuning record") from error
    return "|".join(" ".join(map(str, group)) for group in groups)


def _tensor_order(data: Mapping[str, Any]) -> list[int]:
    """Uids in the order in which operations, then ragged offsets, name them."""
    found: dict[int, None] = {}
    for op in data["ops"]:
        for ends in (op["operands"], op["results"]):
            for _, uids in sorted(ends.items()):
                found.update(dict.fromkeys(uids if isinstance(uids, list) else [uids]))
    for tensor in data["tensors"]:
        if tensor["uid"] in found and "ragged_offset" in tensor:
            found[tensor["ragged_offset"]] = None
    return list(found)


def _symbol_names(data: Mapping[str, Any], order: Sequence[int]) -> dict[str, str]:
    tensors = {tensor["uid"]: tensor for tensor in data["tensors"]}
    known = {symbol["name"] for symbol in data["symbols"]}
    sizes = (str(s) for uid in order for key in ("dims", "strides") for s in tensors[uid][key])
    words = (word for size in sizes for word in re.findall(r"[A-Za-z_]\w*", size))
    return {name: f"s{i}" for i, name in enumerate(dict.fromkeys(w for w in words if w in known))}


def _renamed(sizes: Sequence[int | str], dims: Mapping[str, Dim]) -> list[int | str]:
    """Sizes in the structure's symbols; written anew, since the order of terms goes by names."""
    return [size if isinstance(size, int) else str(parse(size, dims)) for size in sizes]


def _renamed_bounds(data: Mapping[str, Any], dims: Mapping[str, Dim]) -> dict[str, Any]:
    bounds = [{**b, "product": str(parse(b["product"], dims))} for b in data.get("bounds", ())]
    return {"bounds": sorted(map(str, bounds))} if bounds else {}


def _plain_tensor(
    tensor: Mapping[str, Any], numbers: Mapping[int, int], dims: Mapping[str, Dim]
) -> dict[str, Any]:
    made = {k: v for k, v in tensor.items() if k not in ("uid", "name")}
    made |= {key: _renamed(tensor[key], dims) for key in ("dims", "strides")}
    if "ragged_offset" in made:
        made["ragged_offset"] = numbers[made["ragged_offset"]]
    if "prior_of" in made:
        made["prior_of"] = numbers[made["prior_of"]]
    return made


def _plain_op(op: Mapping[str, Any], numbers: Mapping[int, int]) -> dict[str, Any]:
    def places(ends: Mapping[str, Any]) -> dict[str, Any]:
        return {k: [numbers[u] for u in v] if isinstance(v, list) else numbers[v]
                for k, v in ends.items()}  # fmt: skip

    ends = {"operands": places(op["operands"]), "results": places(op["results"])}
    return {"op": op["op"], **ends, "attributes": op["attributes"]}
