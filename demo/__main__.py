"""A real transformer's graphs, compiled ahead of time, and run where that is possible.

The model is all-MiniLM-L6-v2, a sentence encoder of six layers, with its own weights and the
activations that it has for a few sentences.  Each layer has five graphs:

    softmax       y = softmax(x / sqrt(d))        one fused kernel; x is q @ k^T
    add_norm      y = layer_norm(x + residual)    one fused kernel
    ffn_in        y = gelu(x @ w1 + b1)           one fused kernel
    ffn_out       y = x @ w2 + b2 + residual      one fused kernel
    layer_norm    y = layer_norm(x)               one fused kernel

The attention's products stay in NumPy, as do the embeddings but for their add_norm.

Steps: 1. compile a plan for each graph in f16 and bf16;  2. show every stage of the IR;
3. load the plan files and run them on a CUDA device, or, without one, run the reference, and
crops of the plans' own PTX in an interpreter;  4. compare sentences with the encoder.
The exit status is 0 when every error is within its bound.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import dnnc
from dnnc import worker
from dnnc.interpreter import InterpreterError
from dnnc.plan import format
from dnnc.runtime import ExecutionPlan

from . import cases, device, graphs, plans, runs, sentences, stages
from .cases import Case
from .graphs import name_of
from .model import Encoder, Part
from .progress import bar
from .runs import Run
from .tables import table


@dataclass(frozen=True)
class Settings:
    """What one run of the demo does.

    layers: how many are run on the device or in the interpreter.  pairs: of sentences.
    crop: tokens that the interpreter runs.  stage_lines: of each stage, None for all.
    """

    target: str
    folder: Path
    dtypes: tuple[str, ...] = graphs.DTYPES
    layers: int = 6
    pairs: int = len(sentences.PAIRS)
    crop: int = 16
    stage_lines: int | None = 6

    @property
    def names(self) -> list[str]:
        return [name_of(graph, dtype) for dtype in self.dtypes for graph in graphs.BUILDERS]

    @property
    def sentences(self) -> list[str]:
        return [sentence for pair in sentences.PAIRS[: self.pairs] for sentence in pair]


def settings(arguments: Sequence[str] | None) -> Settings:
    """The settings that a command line asks for."""
    parser = argparse.ArgumentParser(
        "python -m demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="sm_80,sm_90", help="default: %(default)s")
    parser.add_argument(
        "--out", type=Path, default=Path("build/demo"), help="folder to write (%(default)s)"
    )
    parser.add_argument("--stages", action="store_true", help="print every stage whole")
    parser.add_argument("--quick", action="store_true", help="f16, one layer, few tokens")
    given = parser.parse_args(arguments)
    lines = None if given.stages else 6
    if given.quick:
        return Settings(given.target, given.out, ("f16",), 1, 2, 8, lines)
    return Settings(given.target, given.out, stage_lines=lines)


def say(*lines: str) -> None:
    print(*lines or ("",), sep="\n", flush=True)


def title(text: str) -> None:
    say("", text, "=" * len(text), "")


# ---- 1. compile


def show_compilation(chosen: Settings) -> None:
    title("1. Compile: graphs to cubins, ahead of time; no GPU is needed")
    began = time.perf_counter()
    steps = len(chosen.names) * len(chosen.target.split(",")) * plans.STEPS_A_TARGET
    with bar(steps) as shown:
        made = plans.compile_all(chosen.names, chosen.target, chosen.folder, shown.step)
    say(
        table(plans.HEADERS, [row for compiled in made for row in compiled.rows()]),
        "",
        "sizes: what a kernel is for; a plan launches one.  compile ms: from graph to cubins, all",
        "targets of a plan.  spills: bytes a thread.",
        f"{len(made)} plans in {chosen.folder} after {time.perf_counter() - began:.1f} s.",
        "Numbers of tokens are symbols: a plan serves all layers and any number of tokens.",
    )


# ---- 2. stages


def show_stages(chosen: Settings) -> None:
    name, target = name_of("ffn_in", chosen.dtypes[0]), chosen.target.split(",")[-1].strip()
    title(f"2. Every stage of {name} for {target}")
    for stage in stages.write(graphs.build(name), target, chosen.folder / "stages"):
        length = stage.text.count("\n")
        lines = chosen.stage_lines
        say(f"{stage.path} ({length} lines): {stages.WHAT[stage.name]}", "")
        say(stage.text if lines is None else stage.excerpt(lines), "")
    linalg = chosen.folder / "stages" / "3-linalg.mlir"
    say(
        "A compilation can go on from any of these files, to the same cubin:",
        "",
        f"    dnnc compile {linalg} --emit cubin -o {name}.cubin",
    )


# ---- 3. run


def show_runs(
    chosen: Settings, parts: Sequence[Part], executables: Mapping[str, ExecutionPlan]
) -> bool:
    """Whether all that was run is within its bound."""
    title("3. Run: the plan files on real activations")
    shown = runs.shown_of(parts)
    found = [case for dtype in chosen.dtypes for case in runs.cases_of(shown, dtype)]
    write_cases(chosen, found)
    show_reference(chosen, shown, found)
    why_none = device.why_none()
    wanted = [case for case in found if case.layer < chosen.layers]
    if why_none:
        say(f"no CUDA device: {why_none}", "")
        done = interpret(chosen, wanted, executables)
    else:
        done = launch(chosen, wanted, executables)
    wrong = [run for run in done if not run.verdict.is_good]
    for run in wrong:
        say(f"WRONG: {run.case.graph}, layer {run.case.layer}, {run.where}: {run.verdict}")
    if not done:
        say("Nothing was run, so nothing was checked.")
    elif not wrong:
        say("All are within what is allowed.")
    return not wrong


def write_cases(chosen: Settings, found: Sequence[Case]) -> None:
    """Writes the first and the last layer, to be run from files elsewhere."""
    path = chosen.folder / cases.FILE
    ends = sorted({0, chosen.layers - 1})
    cases.write(path, [case for case in found if case.layer in ends])
    layers = f"layer{'s' * (len(ends) > 1)} {' and '.join(map(str, ends))}"
    say(
        f"{path} ({path.stat().st_size / 1e6:.0f} MB): inputs and float64 outputs of {layers}.",
        "To run the plans from files alone, on a machine with a GPU and without MLIR:",
        "",
        f"    python -m demo.run_plans {chosen.folder}",
        "",
    )


def show_reference(chosen: Settings, shown: Sequence[Part], found: Sequence[Case]) -> None:
    results = runs.model_results(shown)
    layers = sorted({case.layer for case in found})
    rows: list[tuple[str, ...]] = []
    for name in chosen.names:
        errors = (runs.rounding_error(case, results) for case in found if case.graph == name)
        rows.append((name, *(f"{error:.1e}" for error in errors)))
    say(
        f"The graphs' reference on NumPy, all {tokens_of(found)} tokens of {chosen.pairs * 2} "
        "sentences (softmax: of the first):",
        "what rounding inputs, weights and outputs to 16 bits changes, against the model in "
        "float64.",
        "",
        table(("graph", *(f"layer {layer}" for layer in layers)), rows),
        "",
    )


def tokens_of(found: Sequence[Case]) -> int:
    """Tokens of all sentences, which every case but softmax has."""
    return max(case.tokens for case in found)


def interpret(
    chosen: Settings, wanted: Sequence[Case], executables: Mapping[str, ExecutionPlan]
) -> list[Run]:
    say(
        "Instead, the very PTX of the plans in an interpreter on NumPy, on a crop: the first "
        f"{chosen.crop} of {tokens_of(wanted)}",
        f"tokens in each layer (softmax: of the first sentence), the targets in turn "
        f"({chosen.target}).",
        "",
    )
    done: list[Run] = []
    declined: dict[str, None] = {}
    with bar(len(wanted)) as shown:
        for case in wanted:
            crop = case.cropped(chosen.crop)
            run = runs.in_interpreter(executables[case.graph], crop, case.layer)
            if isinstance(run, Run):
                done.append(run)
            else:
                declined[f"{case.graph}: {run}"] = None
            shown.step(f"{case.graph}, layer {case.layer}")
    say(error_table(chosen.names, done, "interpreted in", lambda seconds: f"{seconds:.2f} s"), "")
    for line in declined:
        say(f"not interpreted: {line}")
    say("How long the interpreter takes says nothing of how fast the kernels are.")
    return done


def launch(
    chosen: Settings, wanted: Sequence[Case], executables: Mapping[str, ExecutionPlan]
) -> list[Run]:
    where = device.describe()
    say(f"On {where}, all {tokens_of(wanted)} tokens (softmax: of the first sentence).", "")
    done: list[Run] = []
    with bar(len(wanted)) as shown:
        for case in wanted:
            done.append(runs.on_device(executables[case.graph], case, where))
            shown.step(f"{case.graph}, layer {case.layer}")
    say(
        error_table(chosen.names, done, "a launch", lambda seconds: f"{1e6 * seconds:.1f} us"),
        "",
        "a launch: among many one after the other, median; so few tokens do not fill a GPU.",
    )
    return done


def error_table(
    names: Sequence[str], done: Sequence[Run], timing: str, shown: Callable[[float], str]
) -> str:
    """Errors by plan and layer, the smallest bound, and the median of the seconds."""
    layers = sorted({run.case.layer for run in done})
    rows: list[tuple[str, ...]] = []
    for name in names:
        mine = {run.case.layer: run for run in done if run.case.graph == name}
        if not mine:
            continue
        errors = (f"{mine[n].verdict.error:.1e}" if n in mine else "" for n in layers)
        allowed = min(run.verdict.bound for run in mine.values())
        seconds = statistics.median(run.seconds for run in mine.values())
        rows.append((name, *errors, f"{allowed:.1e}", shown(seconds)))
    headers = ("plan", *(f"layer {n}" for n in layers), "allowed", timing)
    return "Error against float64, ||y - exact|| / ||exact||:\n\n" + table(headers, rows)


# ---- 4. sentences


def show_sentences(
    chosen: Settings, encoder: Encoder, executables: Mapping[str, ExecutionPlan]
) -> None:
    title("4. Sentences: cosines of the encoder's vectors")
    has_device = not device.why_none()
    run = runs.runner_of(executables) if has_device else graphs.run_reference
    vectors = {"float64": encoder.embed(chosen.sentences)}
    for dtype in chosen.dtypes:
        vectors[dtype] = encoder.embed(chosen.sentences, graphs.computed_by(run, dtype))
    cosines = {name: rows @ rows.T for name, rows in vectors.items()}
    rows: list[tuple[str, ...]] = []
    for i in range(0, len(chosen.sentences), 2):
        others = np.delete(cosines["float64"][i : i + 2], [i, i + 1], axis=1)
        pair = (f"{found[i, i + 1]:.4f}" for found in cosines.values())
        rows.append((chosen.sentences[i], *pair, f"{others.max():.4f}"))
        rows.append((chosen.sentences[i + 1], *[""] * (len(cosines) + 1)))
    by = "the plans on the device" if has_device else "the graphs' reference on NumPy"
    say(
        table(("pair of sentences", *cosines, "other pairs"), rows),
        "",
        f"float64: the model in NumPy.  {', '.join(chosen.dtypes)}: the same with every "
        "softmax, layer norm and",
        f"feed-forward block computed by {by}.",
        "other pairs: the highest cosine with any other sentence.",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = settings(arguments)
    began = time.perf_counter()
    worker.start()  # it loads the compiler while the model is read
    say((__doc__ or "").strip())
    try:
        encoder = Encoder()
        parts = encoder.parts(chosen.sentences)
        show_compilation(chosen)
        show_stages(chosen)
        executables = {
            name: dnnc.load(chosen.folder / f"{name}{format.SUFFIX}") for name in chosen.names
        }
        is_good = show_runs(chosen, parts, executables)
        show_sentences(chosen, encoder, executables)
    except (ModuleNotFoundError, OSError, dnnc.DnncError, InterpreterError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    ending = "." if is_good else "; SOME ERRORS ARE LARGER THAN ALLOWED."
    say("", f"Done after {time.perf_counter() - began:.0f} s{ending}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
