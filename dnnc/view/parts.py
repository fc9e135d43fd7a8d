"""Parts of a program: a fusion in a variant, with its launches, predicted time and work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..choosing.choice_text import choice_text
from ..choosing.explicit import verify_choice
from ..choosing.heuristics import parsed_partition
from ..dialect.fusion import Fusion, partition
from ..dialect.graph import OperationGraph
from ..engines import engine_named
from ..engines.engine import Prediction
from ..errors import DnncError
from ..expr import assuming, typical_dim
from ..plan.plan import FusionRecord, Kernel, Launch, Plan, Program, Step, Variant
from ..target import Target
from .work import Work, work_of


@dataclass(frozen=True)
class Estimate:
    """An engine's prediction for a fusion at some sizes, and the work there.

    why_not: why there is no prediction, "" if there is one.
    """

    prediction: Prediction | None = None
    work: Work | None = None
    why_not: str = ""


@dataclass(frozen=True)
class Part:
    """Steps of a variant that belong together: those of one fusion, or all, where a plan of an
    earlier version does not say which are whose.

    number: of the program's parts, from 1.  records: what was decided, one for a fusion.
    launches: each with its kernel.  memsets: how many there are beside the launches.
    """

    number: int
    index: int
    records: tuple[FusionRecord, ...]
    launches: tuple[tuple[Launch, Kernel], ...]
    memsets: int
    estimate: Estimate

    @property
    def engine(self) -> str:
        return ", ".join(dict.fromkeys(record.engine for record in self.records))


@dataclass(frozen=True)
class Case:
    """A variant of a program.

    guard: the sizes that it is for, in words.  sizes: those that predictions are for, of which the
    program takes this variant; None: none were found.  is_taken: at the sizes asked for.
    config: place of its config in the program; -1: it launches nothing.
    """

    variant: Variant
    guard: str
    sizes: Mapping[str, int] | None
    is_taken: bool
    config: int
    parts: tuple[Part, ...]

    @property
    def seconds(self) -> float | None:
        """Predicted of all parts; None where one has no prediction."""
        found = [part.estimate.prediction for part in self.parts]
        if not found or any(prediction is None for prediction in found):
            return None
        return sum(prediction.seconds for prediction in found if prediction is not None)


class ProgramParts:
    """A program of a plan, read for people.

    target: the row that predictions are for.  wanted: symbol -> size; others are typical ones.
    """

    def __init__(
        self,
        plan: Plan,
        program: Program,
        graph: OperationGraph,
        target: Target,
        wanted: Mapping[str, int],
    ):
        self.plan, self.program, self.graph = plan, program, graph
        self.target, self.wanted = target, wanted

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """The variants, in order."""
        found: list[Case] = []
        number = 1
        for place, variant in enumerate(self.program.variants):
            made = self._case(place, variant, number)
            number += len(made.parts)
            found.append(made)
        return tuple(found)

    @property
    def parts(self) -> Iterator[Part]:
        return (part for case in self.cases for part in case.parts)

    @property
    def taken(self) -> Case:
        """The variant that the sizes asked for take."""
        return next((case for case in self.cases if case.is_taken), self.cases[0])

    @property
    def fusions(self) -> tuple[Fusion, ...]:
        """Fusions of the config that is taken; none where the plan does not say what they are."""
        return self._fusions(self.taken.config)[0]

    @property
    def why_no_fusions(self) -> str:
        return self._fusions(self.taken.config)[1]

    @property
    def partition_text(self) -> str:
        """The config that is taken, as the option of pass `fuse`."""
        return _partition_text(self._records(self.taken.config))

    @property
    def choices_text(self) -> str:
        """The choices, as the option of pass `select-engine`."""
        records = self._records(self.taken.config)
        return "|".join(choice_text(record.engine, record.knobs) for record in records)

    def _records(self, config: int) -> list[FusionRecord]:
        return self.program.fusions_of(config)

    # ---- variants

    def _case(self, place: int, variant: Variant, number: int) -> Case:
        config = self.program.config_of(variant)
        guard = variant.guard
        if guard == "1":
            guard = "other sizes" if place else "any size"
        sizes = self._sizes_of(place)
        return Case(
            variant,
            guard,
            sizes,
            is_taken=self._taken_at(self._assumed) == place,
            config=config,
            parts=tuple(self._parts(variant, config, sizes, number)),
        )

    @cached_property
    def _kernels(self) -> dict[str, Kernel]:
        return {kernel.name: kernel for kernel in self.program.kernels}

    @cached_property
    def _assumed(self) -> dict[str, int]:
        with assuming(self.wanted):
            return {name: typical_dim(dim) for name, dim in self.plan.dims.items()}

    def _taken_at(self, sizes: Mapping[str, int]) -> int | None:
        """The place of the first variant whose guard holds."""
        known = {
            "sm_count": self.target.sm_count,
            "max_dynamic_smem_bytes": self.target.limits.smem_block_bytes,
            **sizes,
        }
        for place, variant in enumerate(self.program.variants):
            if self.plan.guard(variant.guard).holds(known):
                return place
        return None

    def _sizes_of(self, place: int) -> Mapping[str, int] | None:
        """The sizes asked for where the variant takes them; else, with one symbol changed, the
        largest that it takes."""
        if self._taken_at(self._assumed) == place:
            return self._assumed
        bounds = {
            side.constant + shift
            for variant in self.program.variants
            for _, *sides in self.plan.guard(variant.guard).comparisons
            for side in sides
            if side.constant is not None
            for shift in (-1, 0, 1)
        }
        for name, dim in self.plan.dims.items():
            for bound in sorted({*bounds, dim.min, dim.max}, reverse=True):
                with assuming({name: bound}):
                    sizes = {**self._assumed, name: typical_dim(dim)}
                if self._taken_at(sizes) == place:
                    return sizes
        return None

    # ---- parts of a variant

    def _parts(
        self, variant: Variant, config: int, sizes: Mapping[str, int] | None, number: int
    ) -> Iterator[Part]:
        records = self._records(config)
        own = _steps_of_each(records, variant.steps)
        if own is None:
            said = "the plan does not say which launches are whose (compile it again)"
            yield self._part(number, 0, records, variant.steps, Estimate(why_not=said))
            return
        fusions, why_not = self._fusions(config)
        for index, (record, steps) in enumerate(zip(records, own, strict=True)):
            estimate = Estimate(why_not=why_not)
            if not why_not:
                estimate = self._estimate(fusions[index], record, sizes)
            yield self._part(number + index, index, [record], steps, estimate)

    def _part(
        self,
        number: int,
        index: int,
        records: Sequence[FusionRecord],
        steps: Sequence[Step],
        estimate: Estimate,
    ) -> Part:
        launches = [step.launch for step in steps if step.launch is not None]
        return Part(
            number,
            index,
            tuple(records),
            tuple((launch, self._kernels[launch.kernel]) for launch in launches),
            len(steps) - len(launches),
            estimate,
        )

    def _estimate(
        self, fusion: Fusion, record: FusionRecord, sizes: Mapping[str, int] | None
    ) -> Estimate:
        if sizes is None:
            return Estimate(why_not="no sizes were found that take this variant")
        with assuming(sizes):
            work = work_of(fusion, record.notes, self.target)
            try:
                engine = engine_named(record.engine)
                verify_choice(engine, fusion, record.knobs, self.target)
            except DnncError as error:  # a plan of another version
                return Estimate(work=work, why_not=str(error))
            return Estimate(engine.predict(fusion, record.knobs, self.target), work)

    # ---- fusions

    @cached_property
    def _known_fusions(self) -> dict[int, tuple[tuple[Fusion, ...], str]]:
        return {}

    def _fusions(self, config: int) -> tuple[tuple[Fusion, ...], str]:
        """(the fusions of a config, why they are not known)."""
        if config not in self._known_fusions:
            self._known_fusions[config] = _fusions_of(self.graph, self._records(config))
        return self._known_fusions[config]


def _partition_text(records: Sequence[FusionRecord]) -> str:
    return "|".join(" ".join(map(str, record.places)) for record in records)


def _steps_of_each(
    records: Sequence[FusionRecord], steps: Sequence[Step]
) -> list[Sequence[Step]] | None:
    """Each fusion's steps of a variant; None where the records do not say so."""
    counts = [record.steps for record in records]
    if len(records) == 1:
        counts = [len(steps)]
    if not records or min(counts) < 1 or sum(counts) != len(steps):
        return None
    found: list[Sequence[Step]] = []
    first = 0
    for count in counts:
        found.append(steps[first : first + count])
        first += count
    return found


def _fusions_of(
    graph: OperationGraph, records: Sequence[FusionRecord]
) -> tuple[tuple[Fusion, ...], str]:
    if not records or not all(record.places for record in records):
        return (), "the plan does not say which operations are in which fusion (compile it again)"
    try:
        fusions = partition(graph, parsed_partition(_partition_text(records), graph))
    except DnncError as error:
        return (), str(error)
    fusions = tuple(fusion.in_graph for fusion in fusions)
    labels = [tuple(op.label for op in fusion.ops) for fusion in fusions]
    if labels != [record.ops for record in records]:
        return (), "this version of dnnc makes other operations of the graph (compile it again)"
    return fusions, ""
