"""Hashes of PTX, to show that a change of the code's structure changes no kernel.

    python -m tests.golden_ptx write FILE [--every N] [--engine NAME] [--jobs J]
    python -m tests.golden_ptx check FILE [--jobs J]
    python -m tests.golden_ptx count FILE
    python -m tests.golden_ptx missing FILE [--every N] [--jobs J]

An entry is a graph, a target and a config: the best one, one of each further engine that takes the
graph, and some with other knobs.  `write` goes on where a file ends, so that it can be stopped, and
says which graphs it left out: those that no engine takes, that can't be built, or that take longer
than MOST_SECONDS.  It takes graphs of all kinds in turn: a file that ends early has some of each.
Then it adds entries of engines that have fewer than LEAST_OF_ENGINE: other targets and graphs that
are drawn for the engine, with more knobs; if all of them are too few, it says so.  Without
`--every` it ends with values of knobs that are chosen on some target and have no entry yet.
A graph and target have 3 to 4 entries, which take a core 1.5 s.  All 3,840 take about 95 minutes
of one and give 14,000 entries, `--every 4` 25 minutes and 3,500.  With a divisor of what `--every`
was, `write` goes on with the file.
`check` compiles the entries of a file again, with the configs that stand there, chooses the best
one anew, and says which differ.  `count` says how many entries each engine and each value of its
knobs has.  `missing` says which values of knobs are chosen and have no entry; it compiles nothing.

Hashed is PTX without comments and locations, its registers numbered by first use.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tqdm import tqdm

import dnnc
from dnnc import compiler, dtypes
from dnnc import target as targets
from dnnc.dialect import dnn
from dnnc.engines import ENGINES
from dnnc.errors import DnncError
from dnnc.options import Options
from dnnc.tuning.candidates import Candidate, candidates
from tests import (
    random_attention,
    random_attention_gradients,
    random_conv_gradients,
    random_convs,
    random_epilogues,
    random_fp8_attention,
    random_graphs,
    random_large_attention,
    random_wgrads,
)
from tests.support.plain_ptx import plain

Build = Callable[[], Any]

TARGETS = ("sm_90a", "sm_80", "sm_90a", "sm_90", "sm_90a", "sm_89", "sm_90a", "sm_100", "sm_120")
CASE_LISTS = (
    "all_cases", "hopper", "epilogues", "fused", "rows", "memory", "norms", "small", "conv",
    "attention", "attention_backward", "attention_fp8_backward", "attention_long_heads", "rope",
    "causal_conv1d", "conv_wgrad", "conv_patterns", "dgrad", "dgrad_more", "depthwise", "conv_more",
    "decode", "few", "packed", "paged", "parts", "layouts",
)  # fmt: skip
MOST_RANKED = 48  # configs of a graph among which entries are drawn
# Parts of the names of graphs for engines that few graphs reach.
GRAPHS_OF = {
    "sdpa_bwd_sm90": ("attention gradient ", "case attention_backward/"),
    "sdpa_bwd_sm80": ("attention gradient ",),
    "conv_product_sm90": ("conv conv_product_sm90 ",),
    "conv_stem_sm90": ("x3-64x7x7-s2p3", "x16-64x3x3-s1p1", "x8-512x3x3", "conv conv_stem_sm90 "),
    "resample": ("example resample",),
    "peers": ("peers ",),
}
OTHER_KNOBS = 2  # entries with knobs that are not the best
MORE_KNOBS = 20  # such entries of an engine that has few
PLACES_AT_ONCE = 8  # of an engine that has few: after so many its entries are counted again
LEAST_OF_ENGINE = 60
MOST_SECONDS = 10.0  # of a processor, for one graph and target: later ones have no entry


@dataclass(frozen=True)
class Entry:
    """graph: as `sources` names it.  is_best: the heuristics' choice.  digest: of the PTX, or the
    error's text."""

    graph: str
    target: str
    partition: str
    choices: str
    is_best: bool
    digest: str


# ---- graphs


@cache
def sources() -> dict[str, Build]:
    """Name -> what builds the graph."""
    return dict(_sources())


def _sources() -> Iterator[tuple[str, Build]]:
    from benchmarks.cases import lists as case_lists
    from benchmarks.graphs import build as graphs
    from tests.dialect.examples import ALL_EXAMPLES
    from tests.dialect.norm_examples import peer_reduction

    for op, index, build in ALL_EXAMPLES:
        yield f"example {op}-{index}", build
    for name in CASE_LISTS:
        for case in getattr(case_lists, name)():
            options = graphs.options(dnnc)
            yield (
                f"case {case.id}",
                lambda case=case, options=options: (
                    graphs.build(dnnc, dnnc.pygraph("bench", **options), case).graph
                ),
            )
    for seed in range(60):
        yield f"draw {seed}", lambda seed=seed: random_graphs.draw(seed).graph
    for surface in random_graphs.INSIDE:
        for seed in range(24):
            yield (
                f"inside {surface} {seed}",
                lambda seed=seed, surface=surface: random_graphs.draw_inside(seed, surface).graph,
            )
    for name, surface in random_convs.SURFACES.items():
        for seed in range(24):
            yield (
                f"conv {name} {seed}",
                lambda seed=seed, surface=surface: (
                    random_convs.draw(Random(seed), surface, "sm_90a").graph
                ),
            )
    for seed in range(24):
        yield f"attention gradient {seed}", lambda seed=seed: _attention_gradient(Random(seed))
        for engine in random_wgrads.ENGINES:
            yield (
                f"wgrad {engine} {seed}",
                lambda seed=seed, engine=engine: random_wgrads.draw(Random(seed), engine).graph,
            )
    for seed in range(40):
        yield f"product {seed}", lambda seed=seed: random_epilogues.product(seed)
        yield f"convolution {seed}", lambda seed=seed: random_epilogues.convolution(seed)
        for module in (random_attention, random_fp8_attention, random_large_attention):
            yield (
                f"{module.__name__.removeprefix('tests.random_')} {seed}",
                lambda seed=seed, module=module: module.draw(Random(seed), 256).graph,
            )
    for op in ("conv_dgrad", "conv_wgrad"):
        for seed in range(10):
            yield (
                f"gradient {op} {seed}",
                lambda seed=seed, op=op: random_conv_gradients.draw(Random(seed), op).graph,
            )
    for devices in (1, 2, 3, 8, 16, 32):
        for mode in ("moments", "gradients"):
            yield (
                f"peers {mode} {devices}",
                peer_reduction((1, 40 * devices + 1, 1), devices, devices // 2, mode),
            )


def _attention_gradient(random: Random) -> Any:
    from tests.dialect.attention_gradient_examples import gradient

    arguments, dims = random_attention_gradients.draw(random, 300, (32, 64, 72, 128))
    return gradient(arguments, random.choice((dtypes.f16, dtypes.bf16)), **dims)().graph


def _graph(name: str) -> Any:
    graph = sources()[name]()
    while hasattr(graph, "graph"):
        if hasattr(graph, "build_operation_graph"):  # packs what is ragged
            graph.build_operation_graph()
        graph = graph.graph
    return graph.finalize()


# ---- entries


def entries_of(
    name: str, target: str, engine: str = "", others: int = OTHER_KNOBS
) -> tuple[list[Entry], str]:
    """(the entries of a graph and a target, compiled; why there are none or not all).

    engine: only those of this engine.  others: how many have other knobs than the best config; 0:
    it is the only one.
    """
    found: list[Entry] = []
    with _limited():
        try:
            for entry in _entries_of(name, target, engine, others):
                found.append(entry)  # one by one: what is there stays when time is up
        except _TooLong:
            return found, f"longer than {MOST_SECONDS:g} s"
        except DnncError as error:
            return [], " ".join(str(error).split())[:160]
    return found, ""


class _TooLong(BaseException):
    """Raised past MOST_SECONDS; no exception that the compiler would handle."""


@contextmanager
def _limited() -> Iterator[None]:
    def end(number: int, frame: Any) -> None:
        raise _TooLong

    signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS, 1.0)  # again, where a callback lost it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _entries_of(name: str, target: str, engine: str, most: int) -> Iterator[Entry]:
    graph, row = _graph(name), targets.of(target)
    for one, is_best in configs_of(name, target, engine, most):
        yield Entry(name, target, one.partition, one.choices, is_best, _digest(graph, row, one))


def configs_of(
    name: str, target: str, engine: str = "", others: int = OTHER_KNOBS
) -> list[tuple[Candidate, bool]]:
    """The configs of a graph and a target that have entries; whether each is the best one.

    engine, others: as in `entries_of`.
    """
    graph, row = _graph(name), targets.of(target)
    if not others:
        return [(_best(graph, row), True)]
    ranked: dict[tuple[str, str], Candidate] = {}
    for modes in (("A", "FALLBACK"), ("B", "FALLBACK")):
        for one in candidates(graph, row, modes=modes, most=MOST_RANKED):
            ranked.setdefault((one.partition, one.choices), one)
    best, *rest = ranked.values()
    Random(f"{name} {target}").shuffle(rest)
    kept, engines, more = [best], {_engines(best.choices)}, 0
    for one in rest:
        if _engines(one.choices) not in engines:
            engines.add(_engines(one.choices))
            kept.append(one)
        elif engine and engine not in _engines(one.choices):
            continue
        elif more < others:
            more += 1
            kept.append(one)
    return [(one, one is best) for one in kept if not engine or engine in _engines(one.choices)]


def _best(graph: Any, target: Any) -> Candidate:
    (best,) = candidates(graph, target, modes=("A", "FALLBACK"), most=1)
    return best


def again(entry: Entry) -> Entry:
    """The entry as the code is now."""
    graph, row = _graph(entry.graph), targets.of(entry.target)
    if entry.is_best:
        config = _best(graph, row)
    else:
        config = entry
    return Entry(
        entry.graph,
        entry.target,
        config.partition,
        config.choices,
        entry.is_best,
        _digest(graph, row, config),
    )


def _engines(choices: str) -> tuple[str, ...]:
    return tuple(sorted(set(re.findall(r"(?:^|\|)([a-z]\w*)", choices))))


def _digest(graph: Any, target: Any, config: Any) -> str:
    options = Options(partition=config.partition, choices=config.choices)
    try:
        with dnn.context():
            work = compiler.advance(compiler.start(graph, target), "ptx", options)
    except DnncError as error:
        return " ".join(str(error).split())[:160]
    return digest_of(work.ptx)


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_REGISTER = re.compile(r"%([a-z]+)(\d+)\b")


def digest_of(ptx: str) -> str:
    """The hash of what PTX does."""
    numbers: dict[str, int] = {}

    def renumbered(found: re.Match[str]) -> str:
        number = numbers.setdefault(found[0], len(numbers))
        return f"%{found[1]}{number}"

    text = _REGISTER.sub(renumbered, _COMMENT.sub("", plain(ptx)))
    lines = (" ".join(line.split()) for line in text.splitlines())
    return hashlib.sha256("\n".join(filter(None, lines)).encode()).hexdigest()[:24]


# ---- the file


def read(path: Path) -> list[Entry]:
    """The entries of a file, a line of JSON each."""
    return [Entry(**json.loads(line)) for line in path.read_text().splitlines()]


def write(options: argparse.Namespace) -> int:
    known = {(e.graph, e.target) for e in read(options.file)} if options.file.exists() else set()
    wanted = _pairs()[:: options.every]
    _write(options, [(*pair, options.engine) for pair in wanted if pair not in known])
    for engine in ENGINES:
        if options.engine in ("", engine.name):
            _complete(options, engine.name)
    if options.engine == "" and options.every == 1:
        places = sorted(set(_without_entries(options).values()))
        _write(options, [(*place, "", 0) for place in places])
    return count(options)


def _complete(options: argparse.Namespace, engine: str) -> None:
    """Adds entries of an engine until it has enough, or there are none left."""
    places = places_of(engine, read(options.file))
    while len(found := _entries_with(engine, read(options.file))) < LEAST_OF_ENGINE:
        if not places:
            print(f"{engine}: {len(found)} entries are all that the lists of graphs have")
            return
        _write(options, [(*place, engine, MORE_KNOBS) for place in places[:PLACES_AT_ONCE]])
        del places[:PLACES_AT_ONCE]


def places_of(engine: str, entries: Sequence[Entry] = ()) -> list[tuple[str, str]]:
    """Graphs and targets that an engine may take: those of its entries, then the same graphs and
    those of GRAPHS_OF on every target."""
    have = [(entry.graph, entry.target) for entry in _entries_with(engine, entries)]
    graphs = [graph for graph, _ in have]
    for part in GRAPHS_OF.get(engine, ()):
        graphs += [name for name in sources() if part in name]
    every = [(graph, target) for target in dict.fromkeys(TARGETS) for graph in graphs]
    return list(dict.fromkeys((*have, *every)))


def _entries_with(engine: str, entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if engine in _engines(entry.choices)]


def missing(options: argparse.Namespace) -> int:
    found = _without_entries(options)
    for value, (name, target) in sorted(found.items()):
        print(f"{value}: chosen for {name} @{target}")
    print(f"{len(found)} values of knobs are chosen and have no entry")
    return 1 if found else 0


def _without_entries(options: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """Values of knobs that are chosen for a graph on any target and have no entry -> where."""
    places = [(name, target) for name in sources() for target in dict.fromkeys(TARGETS)]
    found: dict[str, tuple[str, str]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        every = pool.map(_chosen, places[:: options.every], chunksize=16)
        for place, values in zip(places[:: options.every], tqdm(every), strict=False):
            for value in values:
                found.setdefault(value, place)
    have = set().union(*(values_of(entry.choices) for entry in read(options.file)))
    return {value: place for value, place in found.items() if value not in have}


def _chosen(place: tuple[str, str]) -> set[str]:
    name, target = place
    with _limited():
        try:
            return values_of(_best(_graph(name), targets.of(target)).choices)
        except (_TooLong, DnncError):
            return set()


def values_of(choices: str) -> set[str]:
    """The knobs' values of a config: "ENGINE KNOB=VALUE" each."""
    parts = [part.split(":") for part in choices.split("|")]
    return {f"{engine} {knob}" for engine, *knobs in parts for knob in knobs}


def _pairs() -> list[tuple[str, str]]:
    """Graphs with two targets each, of all kinds in turn."""
    found = [
        (name, TARGETS[(index + turn) % len(TARGETS)])
        for index, name in enumerate(sources())
        for turn in (0, 1)
    ]
    Random(0).shuffle(found)
    return found


def _write(options: argparse.Namespace, wanted: Sequence[tuple[Any, ...]]) -> None:
    """Appends the entries that the file lacks.  wanted: arguments of `entries_of`."""
    known = set(read(options.file)) if options.file.exists() else set()
    left_out: Counter[str] = Counter()
    with options.file.open("a") as file, ProcessPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(entries_of, *each) for each in wanted]
        for done in tqdm(as_completed(waiting), total=len(waiting), unit="graph"):
            found, why = done.result()
            left_out[why] += not found and bool(why)
            for entry in found:
                if entry not in known:
                    known.add(entry)
                    file.write(json.dumps(asdict(entry)) + "\n")
            file.flush()
    for why, number in left_out.most_common():
        if number:
            print(f"left out: {number} x {why}")


def check(options: argparse.Namespace) -> int:
    every = read(options.file)[:: options.every]
    different = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for entry, now in tqdm(
            zip(every, pool.map(again, every, chunksize=4), strict=True), total=len(every)
        ):
            if entry != now:
                different += 1
                tqdm.write(
                    f"{entry.graph} @{entry.target} {entry.choices}: {_difference(entry, now)}"
                )
    print(f"{len(every)} entries, {different} differ")
    return 1 if different else 0


def _difference(before: Entry, now: Entry) -> str:
    if (before.partition, before.choices) != (now.partition, now.choices):
        return f"now {now.partition} {now.choices}"
    return f"{before.digest} is now {now.digest}"


def count(options: argparse.Namespace) -> int:
    every = read(options.file)
    engines = Counter(engine for entry in every for engine in _engines(entry.choices))
    knobs = Counter(value for entry in every for value in values_of(entry.choices))
    print(f"{len(every)} entries, {len({e.digest for e in every})} hashes")
    for entry in every:
        if not re.fullmatch("[0-9a-f]{24}", entry.digest):
            print(f"not built: {entry.graph} @{entry.target} {entry.choices}: {entry.digest}")
    for engine in ENGINES:
        name = f"{engine.name} "
        have = (f"{v.removeprefix(name)}: {n}" for v, n in sorted(knobs.items()) if name in v)
        print(f"{name}{engines[engine.name]}:  {'  '.join(have)}")
    few = [one.name for one in ENGINES if engines[one.name] < LEAST_OF_ENGINE]
    print(f"fewer than {LEAST_OF_ENGINE} entries: {', '.join(few) or 'no engine'}")
    return 0


DOORS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "write": write,
    "check": check,
    "count": count,
    "missing": missing,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("door", choices=DOORS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take each n-th (default: 1)")
    parser.add_argument("--engine", default="", help="write only entries of this engine")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    options = parser.parse_args()
    return DOORS[options.door](options)


if __name__ == "__main__":
    sys.exit(main())
