"""A real transformer, compiled ahead of time into one bundle of plans, and run where possible.

The model is all-MiniLM-L6-v2, a sentence encoder of six layers, with its own weights.  All of it
but the look-up of embeddings is seven graphs, of which a layer has the five in the middle:

    embeddings     y = layer_norm(words + places)
    qkv            y = x @ w + b
    attention      y = softmax(q @ k^T / sqrt(d)) @ v, within each sentence
    attention_out  y = layer_norm(x @ w + b + residual)
    ffn_in         y = gelu(x @ w + b)
    ffn_out        y = layer_norm(x @ w + b + residual)
    pool           y = sums / norm(sums), sums = member @ x: one vector for each sentence

On Hopper (sm_90a) each is one kernel; elsewhere norms after products are kernels of their own.

Steps: 1. compile a plan for each graph in f16 and bf16;  2. show every stage of the IR;
3. load the bundle and run the encoder on a CUDA device, or, without one, the plans' own PTX for a
pair of sentences in an interpreter;  4. compare sentences with what float64 says of them.
The exit status is 0 when every error is within its bound.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dnnc
from dnnc import worker
from dnnc.interpreter import InterpreterError

from . import carried, device, graphs, plans, runs, sentences, stages
from .carried import Carried
from .checks import judge_vectors
from .forward import Forward, Plans
from .graphs import name_of
from .model import Encoder, exact_vectors
from .numerics import values_of
from .progress import bar
from .run_plans import BUNDLE
from .runs import Run
from .steps import Batch
from .tables import table

Array = Any

# Of a data type but the first, in the interpreter, which takes seconds a layer.
FEW_LAYERS = 2


@dataclass(frozen=True)
class Settings:
    """Settings of one run of the demo.

    layers: of the encoder, None for all.  pairs: of sentences.  stage_lines: of each stage, None
    for all.
    """

    target: str
    folder: Path
    dtypes: tuple[str, ...] = graphs.DTYPES
    layers: int | None = None
    pairs: int = len(sentences.PAIRS)
    stage_lines: int | None = 6

    @property
    def names(self) -> list[str]:
        return [name_of(graph, dtype) for dtype in self.dtypes for graph in graphs.BUILDERS]

    @property
    def bundle(self) -> Path:
        return self.folder / BUNDLE

    @property
    def sentences(self) -> list[str]:
        return [sentence for pair in sentences.PAIRS[: self.pairs] for sentence in pair]


def settings(arguments: Sequence[str] | None) -> Settings:
    """The settings that a command line asks for."""
    parser = argparse.ArgumentParser(
        "python -m demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="sm_80,sm_90a", help="default: %(default)s")
    parser.add_argument(
        "--out", type=Path, default=Path("build/demo"), help="folder to write (%(default)s)"
    )
    parser.add_argument("--stages", action="store_true", help="print every stage whole")
    parser.add_argument("--quick", action="store_true", help="f16, one layer, two pairs")
    given = parser.parse_args(arguments)
    lines = None if given.stages else 6
    if given.quick:
        return Settings(given.target, given.out, ("f16",), 1, 2, lines)
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
        made = plans.compile_all(chosen.names, chosen.target, chosen.bundle, shown.step)
    say(
        table(plans.HEADERS, [row for compiled in made for row in compiled.rows()]),
        "",
        "sizes: what a kernel is for.  compile ms: from graph to cubins, all targets of a plan.",
        "kernel: fusion and engine.  spills: bytes a thread.  Knobs are shown by",
        "",
        f"    dnnc inspect {chosen.bundle} --plan {chosen.names[0]}",
        "",
        f"{chosen.bundle}: {len(made)} plans, {chosen.bundle.stat().st_size / 1e6:.1f} MB, after "
        f"{time.perf_counter() - began:.1f} s.",
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


@dataclass(frozen=True)
class Ran:
    """is_good: whether all is within its bound.  exact, vectors (by data type): unit vectors."""

    is_good: bool
    exact: Array
    vectors: dict[str, Array]


def show_runs(chosen: Settings, encoder: Encoder, plans: Plans) -> Ran:
    """Runs all sentences on a device; without one, a pair, and the others by the reference."""
    title("3. Run: the whole encoder from one file")
    batch = encoder.batch(chosen.sentences, chosen.layers)
    exact = exact_vectors(batch)
    batches = [batch.rounded(dtype) for dtype in chosen.dtypes]
    write_batches(chosen, [Carried(rounded, exact) for rounded in batches])
    why_none = device.why_none()
    if why_none:
        say(f"no CUDA device: {why_none}", "")
        pairs = interpreted_batches(chosen, encoder)
        done, ran = interpret(chosen, pairs, plans)
        ran = {name: y for name, y in ran.items() if name == chosen.dtypes[0]}
        vectors = {rounded.dtype: runs.by_reference(rounded, plans) for rounded in batches}
    else:
        done, vectors = launch(batches, plans)
        ran = vectors
    wrong = [run for run in done if not run.verdict.is_good]
    for run in wrong:
        say(f"WRONG: {run.name}, layer {run.step.layer}, {run.where}: {run.verdict}")
    is_good = show_vectors(len(batch.steps), exact, ran) and not wrong
    if is_good:
        say("All are within what is allowed.")
    return Ran(is_good, exact, {name: values_of(y, name) for name, y in vectors.items()})


def show_vectors(steps: int, exact: Array, vectors: Mapping[str, Array]) -> bool:
    """Whether vectors of the first sentences are near those of a model that rounds nothing."""
    is_good = True
    for dtype, rows in vectors.items():
        verdict = judge_vectors(rows, exact[: len(rows)], steps, dtype)
        is_good &= verdict.is_good
        first, second = values_of(rows[:2], dtype)
        say(
            f"{dtype}: vectors of {len(rows)} sentences, error {verdict.error:.1e}, "
            f"{verdict.bound:.1e} allowed{'' if verdict.is_good else '; WRONG'}; cosine of the "
            f"first pair {first @ second:.4f}, float64 {exact[0] @ exact[1]:.4f}."
        )
    return is_good


def write_batches(chosen: Settings, batches: Sequence[Carried]) -> None:
    """Writes what another machine needs beside the plans."""
    path = chosen.folder / carried.FILE
    carried.write(path, batches)
    say(
        f"{path} ({path.stat().st_size / 1e6:.0f} MB): the model's parameters, the embeddings of "
        f"{len(chosen.sentences)} sentences, and their",
        "vectors in float64.  To run the bundle from files alone, on a machine with a GPU and "
        "without MLIR:",
        "",
        f"    python -m demo.run_plans {chosen.folder}",
        "",
    )


def interpreted_batches(chosen: Settings, encoder: Encoder) -> list[Batch]:
    """The first pair of sentences; all layers in the first data type, a few in others."""
    first, *others = chosen.dtypes
    pair = chosen.sentences[:2]
    found = [encoder.batch(pair, chosen.layers).rounded(first)]
    return found + [encoder.batch(pair, FEW_LAYERS).rounded(dtype) for dtype in others]


def interpret(
    chosen: Settings, pairs: Sequence[Batch], plans: Plans
) -> tuple[list[Run], dict[str, Array]]:
    """pairs: of sentences, the same in each data type."""
    say(
        f"Instead, the very PTX of the plans in an interpreter on NumPy: the {pairs[0].tokens} "
        "tokens of the first pair",
        f"through the layers, in {', '.join(chosen.dtypes[1:]) or 'others'} through {FEW_LAYERS}; "
        f"the targets take them in turn ({chosen.target}).",
        "",
    )
    done: list[Run] = []
    vectors: dict[str, Array] = {}
    with bar(sum(len(pair.steps) for pair in pairs)) as shown:

        def note(run: Run) -> None:
            done.append(run)
            shown.step(f"{run.name}, layer {run.step.layer}")

        for pair in pairs:
            vectors[pair.dtype] = runs.interpreted(pair, plans, note)
    say(error_table(done, "interpreted in", lambda seconds: f"{seconds:.2f} s"), "")
    say("How long the interpreter takes says nothing of how fast the kernels are.")
    return done, vectors


def launch(batches: Sequence[Batch], plans: Plans) -> tuple[list[Run], dict[str, Array]]:
    where = device.describe()
    say(f"On {where}, all {batches[0].tokens} tokens.", "")
    done: list[Run] = []
    vectors: dict[str, Array] = {}
    took: list[str] = []
    with bar(sum(len(batch.steps) for batch in batches)) as shown:
        for batch in batches:
            with Forward(batch, plans) as forward:
                for run in runs.on_device(forward, where):
                    done.append(run)
                    shown.step(f"{run.name}, layer {run.step.layer}")
                vectors[batch.dtype] = forward.vectors()
                took.append(f"{batch.dtype} {1e6 * forward.seconds():.0f} us")
    say(
        error_table(done, "a launch", lambda seconds: f"{1e6 * seconds:.1f} us"),
        "",
        "a launch: among many one after the other, median; so few tokens do not fill a GPU.",
        f"All {len(batches[0].steps)} steps, launched one by one: {', '.join(took)}.",
    )
    return done, vectors


def error_table(done: Sequence[Run], timing: str, shown: Callable[[float], str]) -> str:
    """Errors by plan and layer, the smallest bound, and the median of the seconds."""
    layers = sorted({run.step.layer for run in done})
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys(run.name for run in done):
        mine = {run.step.layer: run for run in done if run.name == name}
        errors = (f"{mine[n].verdict.error:.1e}" if n in mine else "" for n in layers)
        allowed = min(run.verdict.bound for run in mine.values())
        seconds = statistics.median(run.seconds for run in mine.values())
        rows.append((name, *errors, f"{allowed:.1e}", shown(seconds)))
    headers = ("plan", *("before", *(f"layer {n}" for n in layers[1:-1]), "after"), "allowed",
               timing)  # fmt: skip
    what = "Error of each step against float64 on what it was given, ||y - exact|| / ||exact||:"
    return f"{what}\n\n{table(headers, rows)}"


# ---- 4. sentences


def show_sentences(chosen: Settings, ran: Ran) -> None:
    title("4. Sentences: cosines of the encoder's vectors")
    cosines = {name: rows @ rows.T for name, rows in {"float64": ran.exact, **ran.vectors}.items()}
    rows: list[tuple[str, ...]] = []
    for i in range(0, len(chosen.sentences), 2):
        others = np.delete(cosines["float64"][i : i + 2], [i, i + 1], axis=1)
        pair = (f"{found[i, i + 1]:.4f}" for found in cosines.values())
        rows.append((chosen.sentences[i], *pair, f"{others.max():.4f}"))
        rows.append((chosen.sentences[i + 1], *[""] * (len(cosines) + 1)))
    by = "the graphs' reference on NumPy" if device.why_none() else "the plans on the device"
    say(
        table(("pair of sentences", *cosines, "other pairs"), rows),
        "",
        f"float64: the model in NumPy.  {', '.join(chosen.dtypes)}: the same with every step "
        f"computed by {by}.",
        "other pairs: the highest cosine with any other sentence.",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = settings(arguments)
    began = time.perf_counter()
    logging.getLogger("dnnc.hints").disabled = True  # the model's sizes are what they are
    worker.start()  # it loads the compiler while the model is read
    say((__doc__ or "").strip())
    try:
        encoder = Encoder()
        show_compilation(chosen)
        show_stages(chosen)
        ran = show_runs(chosen, encoder, dnnc.load_bundle(chosen.bundle))
        show_sentences(chosen, ran)
    except (ModuleNotFoundError, OSError, dnnc.DnncError, InterpreterError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    ending = "." if ran.is_good else "; SOME ERRORS ARE LARGER THAN ALLOWED."
    say("", f"Done after {time.perf_counter() - began:.0f} s{ending}")
    return 0 if ran.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
