"""The commands that time kernels, as the watched child process runs them."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable

import torch

from dnnc.plan import format

from . import kernels, resnet50, results, sweep, timing
from .cases import generated, lists
from .cases.case import Case
from .compilers import Compilers
from .peers import contestants
from .peers import cudnn as cudnn_peers
from .peers.contestants import Bench
from .results import Results
from .watch import Watch


def run(given: Namespace, watch: Watch) -> None:
    """`kernels`, `resnet50`, `sweep` or `variants` with their arguments."""
    watch.at("", given.command)
    torch.manual_seed(0)
    stream = torch.cuda.Stream()
    mode = getattr(given, "mode", "sustained")
    made = Results(given.out, given.command, {**results.metadata(), "mode": mode})
    compilers = Compilers(given.jobs, contestants.target())
    bench = Bench(stream, compilers, watch, given.rounds)
    bench.measures_energy = getattr(given, "energy", False)
    try:
        with torch.cuda.stream(stream):
            _COMMANDS[given.command](given, bench, made)
    finally:
        compilers.close()


def chosen(given: Namespace) -> list[Case]:
    """The cases that `kernels` is asked for."""
    return [case for case in listed(given.set, given.seed) if re.search(given.match, case.id)]


def listed(name: str | None, seed: int | None) -> list[Case]:
    """The cases of a set; name: "all" by default, or, with a seed, what is bound by memory."""
    if seed is None:
        name = name or "all"
        if name in generated.DRAWN:
            raise ValueError(f"--set {name} is drawn: it takes a --seed")
        return lists.SETS[name]()
    name = name or next(iter(generated.DRAWN))
    if name not in generated.DRAWN:
        raise ValueError(f"--set {name} is listed: it takes no --seed")
    return generated.DRAWN[name](seed)


def _kernels(given: Namespace, bench: Bench, made: Results) -> None:
    bench.tune_seconds = given.tune_seconds
    bench.modes = timing.MODES if given.mode == "both" else (given.mode,)
    bench.plans = dict(given.plans)
    bench.cudnn_plans = cudnn_peers.read_winners(given.cudnn_plans)
    columns = [*given.columns.split(","), *(["plans"] if given.plans else [])]
    bench.contestants = contestants.ALL | contestants.adapted(given.adapter)
    unknown = set(columns) - set(bench.contestants)
    if unknown:
        raise ValueError(f"columns {sorted(unknown)}; there are {list(bench.contestants)}")
    kernels.run_cases(chosen(given), columns, bench, made)


def _sweep(given: Namespace, bench: Bench, made: Results) -> None:
    sweep.run_sweep(
        swept(given), given.engine, given.most, bench, made, also=given.also, peers=given.peer
    )


def swept(given: Namespace) -> list[Case]:
    """The cases that `sweep` is asked for: generated matmuls by default."""
    if given.case:
        return [lists.case_of(id_) for id_ in given.case]
    if given.set:
        seed = given.seed if given.set in generated.DRAWN else None
        cases = {case.id: case for case in listed(given.set, seed)}
    elif given.match:
        cases = {case.id: case for make in lists.SETS.values() for case in make()}
    else:
        cases = {case.id: case for case in generated.matmuls(given.seed, given.count)}
    return [case for id_, case in cases.items() if re.search(given.match, id_)]


def _variants(given: Namespace, bench: Bench, made: Results) -> None:
    case = lists.case_of(given.case)
    choices = sweep.named(case, given.engine, given.knobs, bench)
    if given.all:
        choices += sweep.candidates(case, given.engine, given.most, bench)
    sweep.run_variants(case, choices, bench, made)


def write_plans(given: Namespace) -> None:
    """Compiles the cases of `plans` and writes a file for each, without a GPU."""
    compilers = Compilers(given.jobs, given.target)
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        waiting = [
            (case, compilers.ahead(case, contestants.our_options(case, given.target)))
            for case in chosen(given)
        ]
        for case, future in waiting:
            try:
                plan, seconds = future.result()
            except Exception as error:
                print(f"{case.id}: {kernels.said(error)}", flush=True)
                continue
            format.write(contestants.plan_path(given.out, case), plan)
            print(f"{case.id}: {seconds:.1f} s", flush=True)
    finally:
        compilers.close()


_COMMANDS: dict[str, Callable[[Namespace, Bench, Results], None]] = {
    "kernels": _kernels,
    "resnet50": resnet50.run,
    "sweep": _sweep,
    "variants": _variants,
}
