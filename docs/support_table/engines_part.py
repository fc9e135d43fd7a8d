"""The part about engines: what they take, their knobs, architectures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from dnnc import dtypes
from dnnc.dialect.fusion import Fusion
from dnnc.dtypes import DType
from dnnc.engines import ENGINES
from dnnc.engines.engine import Engine
from dnnc.target import TARGETS, Target
from tests.dialect.examples import EXAMPLES

from .answers import targets_of
from .graphs import attention, attention_gradient, fusions
from .linked_tests import TESTS, links
from .markdown import numbers_text, table, types_text
from .types_part import casts, convolutions, products


def status_on(engine: Engine, target: Target) -> str:
    """How the engine's code for a target is verified."""
    if target not in targets_of(engine, samples(engine)):
        return "refused"
    kinds = {t.kind for t in TESTS[f"engine {engine.name}"] if target.name in t.targets}
    ladder = ("run", "interpreted", "assembled")
    return ", ".join(kind for kind in ladder if kind in kinds) or "untested"


@cache
def samples(engine: Engine) -> tuple[Fusion, ...]:
    """Graphs of every data type that the engine takes for some target; norms, also of several
    devices."""
    return tuple(fusion for fusion in _all_samples() if targets_of(engine, (fusion,)))


@cache
def _all_samples() -> list[Fusion]:
    made = [f for t in dtypes.ALL for f in (*casts(t, dtypes.f32), *products(t))]
    made += fusions(EXAMPLES["conv_fprop"])
    made += [f for t in dtypes.ALL for f in convolutions(t)]
    types = (dtypes.f16, dtypes.bf16, dtypes.f32)
    made += [f for t in types for f in convolutions(t, "conv_wgrad")]
    made += fusions(EXAMPLES["peer_reduction"])
    made += fusions(EXAMPLES["batchnorm"])
    made += [attention(name) for name in ("HALF", "BFLOAT16")]
    made += [attention_gradient(t) for t in (dtypes.f16, dtypes.bf16)]
    return made


def _knob_rows(engine: Engine) -> Iterator[Sequence[object]]:
    """A row a knob; where its values depend on the type of the operands, that is said."""
    found: dict[tuple[str, str], dict[tuple[int, ...], list[DType]]] = {}
    everywhere = {_operand_type(fusion) for fusion in samples(engine)}
    for fusion in samples(engine):
        for knob in engine.knobs(fusion, TARGETS[-1]):
            types = found.setdefault((knob.name, knob.doc), {}).setdefault(knob.values, [])
            types.append(_operand_type(fusion))
    for (name, doc), values in found.items():
        cells = (
            numbers_text(numbers) + ("" if set(types) == everywhere else f" ({types_text(types)})")
            for numbers, types in values.items()
        )
        yield f"`{engine.name}`", f"`{name}`", "; ".join(cells), doc


def _operand_type(fusion: Fusion) -> DType:
    """The type of the anchor's operands, without one that of the first operation's."""
    return (fusion.anchor or fusion.ops[0]).operands[0].type


def _engine_row(engine: Engine) -> Sequence[object]:
    support = "; ".join(engine.support)
    return f"`{engine.name}`", engine.index, support, links(f"engine {engine.name}")


def _architecture_row(target: Target) -> Sequence[object]:
    return f"`{target}`", target.part, *(status_on(engine, target) for engine in ENGINES)


_ENGINES = """\
## Engines

The index is that of plan names and of `create_execution_plan`. Where several engines take a graph,
the shortest predicted time comes first; what rounds operands to fewer bits (`TF32=1`) comes last.
"""

_PRIORS = """\
An output that is added to what it held (`BETA` of a descriptor, `prior_of` of a tensor) is written
by {writers}.
Only pointwise operations of its dims may follow it there, and reductions in {reducing}.
Tests: {tests}.
"""

_KNOBS = """\
### Knobs

Heuristics choose the values. Values that are set by hand have to be legal together, for the graph
and the target; the engine says what is not.
"""


def _names(engines: Iterable[Engine]) -> str:
    return ", ".join(f"`{engine.name}`" for engine in engines)


def engines_part() -> Iterator[str]:
    yield _ENGINES
    yield table(("engine", "index", "takes", "tests"), map(_engine_row, ENGINES))
    writers = _names(engine for engine in ENGINES if engine.updates_outputs)
    reducing = _names(engine for engine in ENGINES if engine.reduces_in_registers)
    tests = links("outputs that are added to what they held")
    yield _PRIORS.format(writers=writers, reducing=reducing, tests=tests)
    yield _KNOBS
    rows = (row for engine in ENGINES for row in _knob_rows(engine))
    yield table(("engine", "knob", "values", "what it is"), rows)
    yield "### Architectures\n"
    names = (f"`{engine.name}`" for engine in ENGINES)
    yield table(("architecture", "such as", *names), map(_architecture_row, TARGETS))
