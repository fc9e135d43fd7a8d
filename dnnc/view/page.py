"""The page: one file of HTML that loads nothing, and runs nothing.

Names of a graph may be anything: Jinja escapes every value, and what can't be printed is shown as
an escape.  Styles are in the page; its own policy forbids scripts and every request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..expr import parse
from ..plan.plan import Kernel, Launch, Plan
from ..target import Target
from ..visible import visible
from .drawing import Drawing, drawing_of
from .numbers import percent, si
from .parts import Case, Part, ProgramParts
from .roofline import Roofline, roofline_of
from .work import Work, bandwidth

_FOLDER = Path(__file__).parent
_HALF = 500  # pixels that a drawing has beside the roofline
_PACKAGES = ("jinja2", "pygraphviz")


@dataclass(frozen=True)
class Text:
    """A folded text.  title: a stage.  about: of what, in a few words."""

    title: str
    about: str
    text: str

    @property
    def lines(self) -> int:
        return self.text.count("\n") + (not self.text.endswith("\n"))


@dataclass(frozen=True)
class Section:
    """A program of the plan, with its texts.  rule: which devices run it."""

    parts: ProgramParts
    rule: str
    texts: Sequence[Text]

    @property
    def is_flat(self) -> bool:
        """Whether each variant has one part: their cards need no headings."""
        return all(len(case.parts) == 1 for case in self.parts.cases)

    @property
    def is_wide(self) -> bool:
        """Whether the drawing needs the whole width."""
        return self.drawing is not None and self.drawing.width > _HALF

    @cached_property
    def drawing(self) -> Drawing | None:
        parts = self.parts
        heads = [_head(part) for part in parts.taken.parts] if parts.fusions else []
        return drawing_of(parts.graph, parts.fusions, heads)

    @cached_property
    def roofline(self) -> Roofline | None:
        return roofline_of(self.parts.parts, self.parts.target)


def require_packages() -> None:
    """NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING without the packages of the extra `view`."""
    import importlib.util

    absent = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if absent:
        raise DnncError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
            f"{' and '.join(absent)} not installed",
            'pip install "dnnc[view]"',
            "dnnc view",
        )


def page(
    plan: Plan,
    graph: OperationGraph,
    sections: Sequence[Section],
    plan_bytes: int,
) -> str:
    """The HTML of a plan.  graph: the plan's own, finalized.  plan_bytes: of its file."""
    return _template().render(
        plan=plan, graph=graph, sections=sections, plan_bytes=plan_bytes, style=_style(),
        smem=_smem_text, grid=_grid_text, roof_share=_roof_share, bandwidth=bandwidth,
    )  # fmt: skip


def _head(part: Part) -> tuple[str, str]:
    """The head of a fusion's frame."""
    prediction = part.estimate.prediction
    said = "" if prediction is None else f"{_seconds(prediction.seconds)}, {prediction.bound}"
    return f"{part.number}  {part.engine}", said


# ---- the template


@cache
def _template() -> Any:
    import jinja2

    made: Any = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "si": si, "percent": percent, "seconds": _seconds, "count": _count, "dims": _dims,
        "knobs": _knobs, "sizes": _sizes, "bytes": _bytes_text,
    }  # fmt: skip
    return made.get_template("page.html")


def _style() -> Any:
    from markupsafe import Markup

    return Markup((_FOLDER / "page.css").read_text())


def _finalized(value: Any) -> Any:
    """A value before it is escaped: nothing that can't be printed, but for markup of our own."""
    return visible(value) if type(value) is str else value


def _seconds(seconds: float) -> str:
    from ..cli.console import seconds_text

    return seconds_text(seconds)


def _count(number: int) -> str:
    return f"{number:,}"


def _dims(sizes: Sequence[object]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _sizes(sizes: Mapping[str, int]) -> str:
    """tokens = 1,024, heads = 8"""
    return ", ".join(f"{name} = {size:,}" for name, size in sizes.items())


def _knobs(knobs: Mapping[str, int]) -> list[str]:
    """TILE_M=128, ..., the tile first."""
    names = sorted(knobs, key=lambda name: (not name.startswith("TILE_"), name))
    return [f"{name}={knobs[name]}" for name in names]


def _bytes_text(text: str) -> str:
    """25,690,112 B, or an expression of the sizes."""
    return f"{int(text):,} B" if text.isdecimal() else f"{text} B"


def _grid_text(plan: Plan, launch: Launch, case: Case, target: Target) -> str:
    """132 x 1 x 1 at the case's sizes; "" where a size is not known."""
    if case.sizes is None:
        return ""
    known = {**case.sizes, "sm_count": target.sm_count}
    known["max_dynamic_smem_bytes"] = target.limits.smem_block_bytes
    try:
        return " x ".join(f"{parse(text, plan.dims).evaluate(known):,}" for text in launch.grid)
    except DnncError:
        return ""


def _smem_text(kernel: Kernel, launch: Launch) -> str:
    """Bytes of shared memory of a block, static and dynamic."""
    static, dynamic = kernel.static_smem_bytes, launch.dynamic_smem_bytes
    if dynamic.isdecimal():
        return _bytes_text(str(static + int(dynamic)))
    return f"{static:,} + {dynamic} B" if static else f"{dynamic} B"


def _roof_share(work: Work, seconds: float, target: Target) -> float:
    """The time at the roof over the predicted time."""
    return work.least_seconds(target) / seconds
