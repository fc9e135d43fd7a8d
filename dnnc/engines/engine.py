"""The engine protocol: what turns a fusion into kernels, and how it says what it takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..dialect.fusion import Fusion, rewritten_fusion
from ..dialect.op import Op
from ..dialect.patterns import AnyPattern
from ..errors import Status
from ..target import Target

if TYPE_CHECKING:
    from ..codegen.output import Output
    from ..codegen.region import Region

Knobs = Mapping[str, int]

KNOBS_OF_ANY = "knobs of any fusion"  # clause of values that no fusion's choice has together

# cuDNN's CUDNN_LAYOUT_TYPE_PREFERRED_*.
NCHW, NHWC = "PREFERRED_NCHW", "PREFERRED_NHWC"


@dataclass(frozen=True)
class Reason:
    """Why an engine declines a fusion, or a choice of knobs.

    status: a kind of NOT_SUPPORTED.  clause: the clause of the support surface that failed,
    stable, for tests and filters.  what: what was wrong.  supported: what would be accepted.
    about: the operation that is in the way, where it is one.
    """

    status: Status
    clause: str
    what: str
    supported: str
    about: Op | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.clause}: {self.what}; accepted: {self.supported}"


@dataclass(frozen=True)
class Knob:
    """A knob that an engine has, named as in cuDNN (`cudnnBackendKnobType_t`).

    values: those it may take.
    """

    name: str
    values: tuple[int, ...]
    doc: str


@dataclass(frozen=True)
class Prediction:
    """seconds: how long a fusion is expected to take.  bound: what it is bound by."""

    seconds: float
    bound: str


@dataclass(frozen=True)
class Marks:
    """Says what operations are to an engine's kernels; pass `prepare-fusions` writes it on them.

    scores: operations on the scores of an attention, whose functions need be no more exact than
    the exponentials that are taken of them.
    row_reductions: reductions that reduce the last axis even where that has one element.
    parts: operations by the names of what they are to the engine's kernels, each of which
    `Region.parts` finds again, by attribute `dnn.parts`.
    fixed: operations that kernels compute by formulas of their own: a text in which the body of one
    was edited is refused.
    """

    scores: frozenset[Op] = frozenset()
    row_reductions: frozenset[Op] = frozenset()
    parts: Mapping[str, Sequence[Op]] = field(default_factory=dict)
    fixed: frozenset[Op] = frozenset()


class Engine(ABC):
    """A way to run fusions: the base class of every engine, in this package and outside it.

    `supports` and `legal` are its support surface, whole.  Nothing outside an engine's own file
    knows it by name: what the heuristics, the passes and the front ends ask of it is a member here,
    with the answer that most engines give.

    name: as `--engine` takes it.  index: global and stable, as cuDNN's engine indices are.
    families: what its kernels are made for, of those that `nearest.families_of` gives a fusion.
    support: lines for the support table.
    tiling: the record of a tiling, a frozen dataclass, by whose fields `dnn.tile` is written,
    checked and read (`plain_data`).
    all_knobs: every knob that it has for some fusion and target, with all values.
    only_target: the name of the one target that it is for, "" where it is for all.
    inlines_anchors: it works from an anchor's linalg decomposition, not on the call.
    has_fixed_bodies: it knows operations of the linalg stage by their places: a text in which one
    of their bodies was edited is refused.
    updates_outputs: its kernels may write an output over its prior contents (`dialect/prior`),
    which they read: one thread, or one block after a barrier, has each element, reads the prior
    there, once, and writes it afterwards.
    reduces_in_registers: reductions take what a kernel holds in registers when it stores it, and
    what follows them reads their results: none reads the prior again.
    patterns: rewrite patterns, in order, that give a fusion the form that its kernels compute: of
    operations, and of the fusion with its inputs and outputs.  Pass `prepare-fusions` applies them
    to its function; `rewritten`, where the engine is asked about a fusion.
    gathers_views: views ahead of an anchor are read element by element, so that the heuristics
    also look at storing them first.
    numerical_notes: cuDNN's names of what holds of its results for every fusion and choice.
    behavior_notes: cuDNN's names of how plans behave that run it.
    image_layouts: cuDNN's names of the layouts of images that it loads and stores at full width.
    """

    name: str
    index: int
    families: tuple[str, ...]
    support: tuple[str, ...]
    tiling: ClassVar[type[Any]]
    all_knobs: ClassVar[tuple[Knob, ...]] = ()
    only_target: str = ""
    inlines_anchors: bool = False
    has_fixed_bodies: bool = False
    updates_outputs: bool = False
    reduces_in_registers: bool = False
    patterns: tuple[AnyPattern, ...] = ()
    gathers_views: bool = False
    numerical_notes: tuple[str, ...] = ()
    # Kernels are made for the graph when a plan is built, and are launched as they are: a CUDA
    # graph may hold them as kernel nodes.
    behavior_notes: tuple[str, ...] = ("RUNTIME_COMPILATION", "SUPPORTS_CUDA_GRAPH_NATIVE_API")
    image_layouts: tuple[str, ...] = (NCHW, NHWC)

    # ---- the support surface

    @abstractmethod
    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        """Every clause that the fusion fails; empty: the engine takes it."""

    def knobs(self, fusion: Fusion, target: Target) -> tuple[Knob, ...]:
        """The knobs it has for a fusion that it takes: `all_knobs`, or a part of them."""
        return self.all_knobs

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        """Every reason why these knobs can't be; the single statement of their constraints."""
        return ()

    # ---- choosing

    @abstractmethod
    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        """Legal knob choices that are worth a look."""

    @abstractmethod
    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        """Pure arithmetic, no timing."""

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        """Numerical notes that apply (cuDNN's names)."""
        return self.numerical_notes

    def register_pressure(self, knobs: Knobs) -> int:
        """Accumulators of a thread, or what else grows with the registers that knobs ask for.

        Where a choice spills registers, the engine's choices of the same pressure or more are not
        tried either.  0: knobs do not say.
        """
        return 0

    def is_weighed_against_parts(self, fusion: Fusion, target: Target) -> bool:
        """Whether another engine may be much faster at the fusion's anchor alone, so that the
        heuristics also look at splitting the fusion."""
        return False

    # ---- lowering

    def rewritten(self, fusion: Fusion) -> Fusion:
        """The fusion as its kernels compute it, by `patterns`."""
        return rewritten_fusion(fusion, self.patterns)

    def marks(self, fusion: Fusion) -> Marks:
        """Says what the operations of a fusion in that form are to its kernels."""
        return Marks()

    @abstractmethod
    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> Any:
        """The tiling by which kernels are built, of what `legal` judges knobs by: a `tiling`.

        Arguments are numbered as the inputs of the fusion that `rewritten` gives.
        """

    def completed(self, tile: Any, region: Region) -> Any:
        """A tiling with what is known when operations are lowered; one that has it as it is."""
        return tile

    @abstractmethod
    def emit(self, region: Region, knobs: Knobs, tile: Any, output: Output) -> None:
        """Builds the kernels, and the steps that launch them, in `output`."""
