"""Compile times of the FFN graph, without a GPU: first of a process, warm, and repeated.

And the time in which a graph's configs are ranked, from a process's second graph on.
"""

from __future__ import annotations

import datetime
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .results import Results

# Each in a new interpreter: import, build the graph, compile, and say how long it took.
_FIRST = """
import time
began = time.perf_counter()
import dnnc
{import_more}
g = dnnc.pygraph("ffn", io_data_type="bf16", intermediate_data_type="f32")
m = dnnc.Dim("tokens", max=65536)
x, w = g.tensor([1, m, 384], name="x"), g.tensor([1, 384, 1536], [589824, 1, 384], name="w")
b = g.tensor([1, 1, 1536], name="b")
g.gelu(g.bias(g.matmul(x, w), b)).set_output().set_name("y")
{compile}
print(time.perf_counter() - began)
"""
_HERE = {
    "import_more": "from dnnc.compiler import compile_graph",
    "compile": "compile_graph(g.graph.finalize(), 'sm_90')",
}
_WORKER = {"import_more": "", "compile": "dnnc.compile(g, 'sm_90')"}

_ACTIVATIONS = ("relu", "swish", "tanh", "sigmoid", "elu", "gelu_approx_tanh", "softplus")
# Of rows: milliseconds by stage.
_STAGES = "warm, by stage"
_CHECK = "support check + heuristic A, matmul + bias + GELU, second graph"
_CHECKED = 30  # graphs


def metadata() -> dict[str, Any]:
    from dnnc import __version__

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "dnnc": __version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [text for text in file if text.startswith("model name")]
        return names[0].partition(":")[2].strip()
    except (OSError, IndexError):
        return platform.processor()


def _graph(activation: str) -> Any:
    import dnnc

    g = dnnc.pygraph("ffn", io_data_type="bf16", intermediate_data_type="f32")
    m = dnnc.Dim("tokens", max=65536)
    x, w = g.tensor([1, m, 384], name="x"), g.tensor([1, 384, 1536], [589824, 1, 384], name="w")
    biased = g.bias(g.matmul(x, w), g.tensor([1, 1, 1536], name="b"))
    getattr(g, activation)(biased).set_output().set_name("y")
    return g


def run_compile_times(results: Results, rounds: int) -> None:
    """Adds a row of milliseconds for each way."""
    os.environ["DNNC_CACHE"] = "0"  # of the children, too: they shall compile
    for name, parts in (("first, this process", _HERE), ("first, worker process", _WORKER)):
        code = _FIRST.format(**parts)
        results.add(name, _row([_timed_by_itself(code) for _ in range(rounds)]))
    _support_checks(results, "sm_90a")
    _support_checks(results, "sm_90")
    _warm(results, rounds)


def _support_checks(results: Results, target: str) -> None:
    """Adds the milliseconds in which configs are ranked for graphs that differ in all sizes."""
    found: list[dict[str, Timing]] = []
    for i in range(1 + _CHECKED):
        g = _sized_graph(512 + 64 * i, 1536 + 128 * i, 384 + 64 * i, target)
        parts = {
            "validate": g.validate,
            "build_operation_graph": g.build_operation_graph,
            "create_execution_plans": lambda g=g: g.create_execution_plans(["A"]),
            "check_support": g.check_support,
        }
        found.append({part: _timed(call) for part, call in parts.items()})
    later = found[1:]
    results.add(f"{_CHECK}, {target}", _row([_sum(parts.values()) for parts in later], digits=2))
    medians = {part: statistics.median(parts[part][0] for parts in later) for part in later[0]}
    results.add(
        f"{_CHECK}, {target}, by part",
        {part: round(1e3 * seconds, 2) for part, seconds in medians.items()},
    )


def _sized_graph(m: int, n: int, k: int, target: str) -> Any:
    import dnnc

    options = {"io_data_type": "bf16", "intermediate_data_type": "f32"}
    g = dnnc.pygraph("ffn", target=target, **options)
    x, w = g.tensor([1, m, k], name="x"), g.tensor([1, k, n], [n * k, 1, k], name="w")
    biased = g.bias(g.matmul(x, w), g.tensor([1, 1, n], name="b"))
    g.gelu(biased).set_output().set_name("y")
    return g


def _warm(results: Results, rounds: int) -> None:
    import dnnc
    from dnnc.options import DEFAULTS, Options

    _other_graphs(results, "", "sm_90", DEFAULTS)
    _other_graphs(results, ", sm_90a, one tile", "sm_90a", Options(most_variants=1))
    _other_graphs(results, ", sm_90a", "sm_90a", DEFAULTS)
    g = _graph("gelu")
    dnnc.compile(g, "sm_90")
    results.add("repeated", _row([_timed(lambda: dnnc.compile(g, "sm_90"))
                                  for _ in range(rounds)]))  # fmt: skip


def _other_graphs(results: Results, suffix: str, target: str, options: Any) -> None:
    """Adds the milliseconds of another graph, and of its stages, after one like it."""
    from dnnc.compiler import compile_graph
    from dnnc.progress import BEGIN

    # Each is another kernel: what is assembled once is not assembled again.
    compile_graph(_graph("gelu").graph.finalize(), target, options)
    timings: list[Timing] = []
    stages: dict[str, list[float]] = {}
    for activation in _ACTIVATIONS:
        graph = _graph(activation).graph.finalize()
        found: dict[str, float] = {}

        def report(stage: str, seconds: float, found: dict[str, float] = found) -> None:
            # A plan of several tiles goes through a stage with each.
            if stage != BEGIN:
                found[stage] = found.get(stage, 0.0) + seconds

        timings.append(
            _timed(lambda g=graph, r=report: compile_graph(g, target, options, report=r))
        )
        for stage, taken in found.items():
            stages.setdefault(stage, []).append(taken)
    results.add(f"warm, another graph{suffix}", _row(timings))
    results.add(f"{_STAGES}{suffix}", {s: round(1e3 * statistics.median(t), 1)
                                       for s, t in stages.items()})  # fmt: skip


# Seconds that went by, and that processors worked on this process and the children it waited for.
Timing = tuple[float, float]


def _timed(call: Callable[[], object]) -> Timing:
    began, worked = time.perf_counter(), _processor_seconds()
    call()
    return time.perf_counter() - began, _processor_seconds() - worked


def _timed_by_itself(code: str) -> Timing:
    """Runs code that prints its seconds in a Python process of its own; returns its times."""
    command, worked = [sys.executable, "-c", code], _processor_seconds()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout), _processor_seconds() - worked


def _processor_seconds() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _sum(timings: Iterable[Timing]) -> Timing:
    went_by, worked = zip(*timings, strict=True)
    return sum(went_by), sum(worked)


def _row(timings: Sequence[Timing], digits: int = 1) -> dict[str, Any]:
    went_by, worked = zip(*timings, strict=True)
    return {
        "median_ms": round(1e3 * statistics.median(went_by), digits),
        "most_ms": round(1e3 * max(went_by), digits),
        "processor_ms": round(1e3 * statistics.median(worked), digits),
        "rounds": len(timings),
    }


def markdown(data: dict[str, Any]) -> str:
    """The table of a results file."""
    meta = data["metadata"]
    lines = [
        f"{meta['processor']}, {meta['cores']} cores, Python {meta['python']}, "
        f"dnnc {meta['dnnc']}; {meta['date']}.",
        "",
        "| FFN graph, one target | median ms | slowest ms | processor ms |",
        "|---|---:|---:|---:|",
    ]
    for name, row in data["rows"].items():
        if "median_ms" in row:
            worked = f"{row['processor_ms']:.1f}" if "processor_ms" in row else ""
            lines.append(f"| {name} | {row['median_ms']:.1f} | {row['most_ms']:.1f} | {worked} |")
    for name, row in data["rows"].items():
        if "median_ms" not in row:
            shown = ", ".join(f"{stage} {ms} ms" for stage, ms in row.items())
            lines += ["", f"{name[:1].upper()}{name[1:]}: {shown}."]
    return "\n".join(lines)
