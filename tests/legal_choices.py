"""Builds of knobs that `legal` passes, of every engine: `python -m tests.legal_choices FIRST LAST`.

A graph is drawn, and taken whole by each engine and target that can.  Of its choices of knobs, the
candidates and others at random, some are emitted.  The shared memory of the largest kernel is what
`legal` counted, to the byte; engines that count none have no dynamic shared memory.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import dnnc
from benchmarks.cases import lists as case_lists
from benchmarks.graphs import build as graphs
from dnnc import compiler, dtypes, engines
from dnnc.dialect import dnn
from dnnc.dialect.fusion import Fusion, partition
from dnnc.engines import Engine, Knobs, surface
from dnnc.options import Options
from dnnc.target import STATIC_SMEM_BYTES, Target, of
from tests import (
    random_attention,
    random_attention_gradients,
    random_conv_gradients,
    random_convs,
    random_epilogues,
    random_fp8_attention,
    random_graphs,
    random_wgrads,
)
from tests.dialect.attention_gradient_examples import gradient

TARGETS = ("sm_80", "sm_90a", "sm_120")
# Engines whose `legal` counts shared memory.
COUNTING = {
    "matmul_sm80", "matmul_sm90", "conv_sm80", "conv_sm90", "conv_product_sm90", "conv_stem_sm90",
    "conv_wgrad_sm80", "conv_wgrad_sm90", "sdpa_fwd_sm90", "sdpa_sm80", "sdpa_bwd_sm80",
    "sdpa_bwd_sm90", "rows", "grid", "transpose",
}  # fmt: skip
_TRIED = 60  # random choices of knobs, of which `legal` passes some


def _attention_gradient(random: Random) -> Any:
    arguments, dims = random_attention_gradients.draw(random, 300, (32, 64, 72, 128))
    return gradient(arguments, random.choice((dtypes.f16, dtypes.bf16)), **dims)().graph


def _rows(random: Random) -> Any:
    """A norm, a softmax or their gradients, as they are timed."""
    case = random.choice([*case_lists.rows(), *case_lists.norms(), *case_lists.memory()])
    return graphs.build(dnnc, dnnc.pygraph("rows", **graphs.options(dnnc)), case).graph.graph


# Family -> what draws a graph.
DRAWS: dict[str, Callable[[Random], Any]] = {
    "product": lambda random: random_epilogues.product(random.getrandbits(32)).graph,
    "convolution": lambda random: random_epilogues.convolution(random.getrandbits(32)).graph,
    **{
        f"inside {name}": lambda random, name=name: (
            random_graphs.draw_inside(random.getrandbits(32), name).graph
        )
        for name in random_graphs.INSIDE
    },
    **{
        f"conv {name}": lambda random, surface=surface: (
            random_convs.draw(random, surface, "sm_90a").graph
        )
        for name, surface in random_convs.SURFACES.items()
    },
    **{
        f"wgrad {name}": lambda random, name=name: random_wgrads.draw(random, name).graph
        for name in random_wgrads.ENGINES
    },
    "rows": _rows,
    "gradients": lambda random: random_conv_gradients.draw(random, "conv_dgrad").graph,
    "attention": lambda random: random_attention.draw(random, 256).graph,
    "attention fp8": lambda random: random_fp8_attention.draw(random, 256).graph,
    "attention gradient": _attention_gradient,
}


@contextmanager
def _counted() -> Iterator[list[int]]:
    """The bytes of shared memory that `legal` of any engine compares with a target's."""
    found: list[int] = []
    plain = surface.smem_reasons

    def recorded(needed: int, target: Target, most: int = 0) -> Any:
        found.append(needed)
        return plain(needed, target, most)

    users = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(engines.__name__) and getattr(module, "smem_reasons", None) is plain
    ]
    for module in users:
        module.smem_reasons = recorded
    try:
        yield found
    finally:
        for module in users:
            module.smem_reasons = plain


def choices(random: Random, engine: Engine, fusion: Fusion, target: Target) -> list[Knobs]:
    """Choices of knobs that `legal` passes: candidates, and others at random."""
    knobs = engine.knobs(fusion, target)
    tried = [{k.name: random.choice(k.values) for k in knobs} for _ in range(_TRIED)]
    legal = [one for one in tried if not engine.legal(one, fusion, target)]
    return [*engine.candidates(fusion, target), *legal]


def check(graph: Any, engine: Engine, fusion: Fusion, knobs: Knobs, target: Target) -> None:
    """The fusion is emitted, with the shared memory that `legal` counted."""
    with _counted() as counted:
        assert not engine.legal(knobs, fusion, target), "an illegal candidate"
    with dnn.context():
        work = compiler.start(graph, target)
        options = Options(engine=engine.name, knobs=tuple(knobs.items()))
        compiler.advance(work, "kernel", options)
        text = work.text()
    static, dynamic = shared_memory(text)
    assert max(static.values(), default=0) <= STATIC_SMEM_BYTES
    assert bool(counted) == (engine.name in COUNTING)
    if not counted:
        assert not any(dynamic.values())
        return
    most = max(static[name] + dynamic[name] for name in dynamic)
    assert max(counted) == most, f"{max(counted)} counted, {static} and {dynamic} launched"
    assert most <= target.limits.smem_block_bytes


def shared_memory(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of static and of dynamic shared memory, by kernel, of a module at stage kernel."""
    dynamic = dict[str, int]()
    for launch, name in re.findall(r'launch = \{(.*?)kernel = "(\w+)"', text, re.DOTALL):
        found = re.search(r'dynamic_smem_bytes = "(\d+)"', launch)
        dynamic[name] = max(dynamic.get(name, 0), int(found[1]) if found else 0)
    static = dict.fromkeys(dynamic, 0)
    for name, size in re.findall(
        r"llvm\.mlir\.global internal @(\w+)\(\).*addr_space = 3.*array<(\d+) x i8>", text
    ):
        owner = max((kernel for kernel in static if name.startswith(f"{kernel}_")), key=len)
        static[owner] += int(size)
    return static, dynamic


def check_drawn(family: str, seed: int, targets: Sequence[str] = TARGETS) -> Counter[str]:
    """Draws a graph, and builds one choice of each engine and target; engine -> its choices."""
    random = Random(f"{family} {seed}")
    drawn = DRAWS[family](random)
    return check_graph(getattr(drawn, "graph", drawn), random, f"{family} {seed}", targets)


def check_graph(
    graph: Any, random: Random, name: str, targets: Sequence[str] = TARGETS
) -> Counter[str]:
    """Builds a graph by one choice of each engine and target; name: in errors."""
    found = Counter[str]()
    finalized = graph.finalize()
    (fusion,) = partition(finalized, [finalized.live_ops])
    for target in map(of, targets):
        for engine in engines.all_engines():
            if engine.supports(fusion, target):
                continue
            legal = choices(random, engine, fusion, target)
            found[engine.name] += len(legal)
            for knobs in random.sample(legal, min(1, len(legal))):
                try:
                    check(graph, engine, fusion, knobs, target)
                except Exception as error:
                    where = f"{name} @{target} {engine.name} {knobs}"
                    raise AssertionError(f"{where}: {error}") from error
    return found


def main() -> None:
    first, last, *families = sys.argv[1:]
    total, built, failed = Counter[str](), 0, 0
    for seed in range(int(first), int(last)):
        for family in families or DRAWS:
            try:
                found = check_drawn(family, seed)
            except Exception as error:
                failed += 1
                print(type(error).__name__, " ".join(str(error).split())[:400], flush=True)
                continue
            total += found
            built += len(found)
        print(f"seed {seed}: {sum(total.values())} choices, {failed} graphs failed", flush=True)
    print(dict(total))


if __name__ == "__main__":
    main()
