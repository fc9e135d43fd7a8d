"""The engine protocol: what turns a fusion into kernels, and how it says what it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from ..dialect.fusion import Fusion
from ..dialect.op import Op
from ..errors import Status
from ..target import Target

Knobs = Mapping[str, int]


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


class Engine(Protocol):
    """One way to run fusions.  `supports` and `legal` are its support surface, whole.

    name: as `--engine` takes it.  index: global and stable, as cuDNN's engine indices are.
    families: what its kernels are made for, of those that `nearest.families_of` gives a fusion.
    only_target: the name of the one target that it is for, "" where it is for all.
    support: lines for the support table.
    inlines_anchors: it works from an anchor's linalg decomposition, not on the call.
    all_knobs: every knob that it has for some fusion and target, with all values.
    """

    all_knobs: ClassVar[tuple[Knob, ...]]

    @property
    def name(self) -> str: ...

    @property
    def index(self) -> int: ...

    @property
    def families(self) -> tuple[str, ...]: ...

    @property
    def only_target(self) -> str: ...

    @property
    def support(self) -> tuple[str, ...]: ...

    @property
    def inlines_anchors(self) -> bool: ...

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        """Every clause that the fusion fails; empty: the engine takes it."""
        ...

    def knobs(self, fusion: Fusion, target: Target) -> tuple[Knob, ...]:
        """The knobs it has for a fusion that it takes: `all_knobs`, or a part of them."""
        ...

    def legal(self, knobs: Knobs, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        """Every reason why these knobs can't be; the single statement of their constraints."""
        ...

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        """Legal knob choices that are worth a look."""
        ...

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        """Pure arithmetic, no timing."""
        ...

    def notes(self, fusion: Fusion, knobs: Knobs) -> tuple[str, ...]:
        """Numerical notes that apply (cuDNN's names)."""
        ...

    def tile(self, region: Any, knobs: Knobs, target: Target) -> dict[str, Any]:
        """The tile sizes and loop order of a region at the linalg stage, as plain data."""
        ...

    def emit(self, region: Any, knobs: Knobs, tile: Mapping[str, Any], output: Any) -> None:
        """Builds the kernels; output: an `codegen.output.Output`."""
        ...
