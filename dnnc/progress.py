"""Progress of calls that take long, told by one kind of callback.

    def report(what: str, done: int, count: int) -> None: ...

what: what is being done or has just been done.  done, count: how much is done, of how much; what
is left may turn out to be more or less than it seemed.  `dnnc.compile`, a pygraph's `build` and
`build_plans`, and `dnnc.autotune` call it from the thread that called them.  An error that it
raises ends the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Report = Callable[[str, int, int], object]

# What a compilation does for each target, in order.  Text and code that are kept already leave
# stages out, and configs for several sizes repeat them.
STAGES = ("choose", "fused", "linalg", "kernel", "nvvm", "ptx", "cubin")
BEGIN = "begin"  # what a compilation reports before the stages of each target, with 0 seconds


def silent(what: str, done: int, count: int) -> None:
    """Reports nothing."""


class StageTimes:
    """Progress and times of a compilation's stages: the seconds of each, a dictionary a target.

    Compilations call it with (stage, seconds), and with (BEGIN, 0.0) before each target.  A stage
    that comes again is that of another config of the target, for other sizes or without spills.
    """

    def __init__(self, targets: Sequence[str], report: Report = silent):
        self.targets = targets
        self.by_target: list[dict[str, float]] = []
        self._report = report
        self._done = 0
        self._report(f"{targets[0]}: starting", 0, self._count)

    @property
    def _count(self) -> int:
        return len(self.targets) * len(STAGES)

    def __call__(self, stage: str, seconds: float) -> None:
        if stage == BEGIN or not self.by_target:  # a text that is resumed has one target
            self.by_target.append({})
        if stage == BEGIN:
            return
        known = self.by_target[-1]
        known[stage] = known.get(stage, 0.0) + seconds
        place = len(self.by_target) - 1
        reached = place * len(STAGES) + STAGES.index(stage) + 1
        self._done = min(self._count, max(self._done, reached))
        self._report(f"{self.targets[place]}: {stage} is done", self._done, self._count)

    def end(self) -> None:
        """Reports that the plan is there, compiled or found."""
        self._report("the plan is there", self._count, self._count)


class Parts:
    """Reports of several calls one after the other, as those of one call.

    count: how many calls there will be, as far as is known.
    """

    def __init__(self, report: Report, count: int):
        self._report = report
        self._expected = count
        self._begun = 0

    def next(self, name: str) -> Report:
        """The report of the next call, whose texts begin with a name."""
        place = self._begun
        self._begun += 1
        self._expected = max(self._expected, self._begun)

        def report(what: str, done: int, count: int) -> None:
            self._report(f"{name}: {what}", place * count + done, self._expected * count)

        return report
