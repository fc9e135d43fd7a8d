"""Draws the bar charts of docs/pictures/performance as SVG, by matplotlib.

The same numbers give the same bytes with one version of matplotlib; texts stay texts.
"""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .charts import CHARTS, SERIES, Chart, Group
from .results import OURS

FOLDER = Path(__file__).parent.parent / "docs" / "pictures" / "performance"
_COLORS = {
    OURS: "#2360c4", "cudnn": "#b8bec6", "cudnn_best": "#8a929c", "torch": "#e3b27c",
    "torch_fused": "#c98a3d", "torch_compile": "#d3a3a0", "driver": "#444c56",
}  # fmt: skip
_BAR, _GAP, _FRAME = 0.17, 0.14, 0.95  # inches
_STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "dnnc", "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"], "font.size": 9,
}  # fmt: skip


def write_plots(folder: Path = FOLDER) -> list[Path]:
    """Writes a file for each chart."""
    folder.mkdir(parents=True, exist_ok=True)
    made = [folder / f"{chart.name}.svg" for chart in CHARTS]
    for chart, path in zip(CHARTS, made, strict=True):
        path.write_text(svg(chart))
    return made


def svg(chart: Chart) -> str:
    """A chart: a bar for each number, which stands at its end."""
    groups = chart.groups()
    columns = [column for column in SERIES if any(column in group.values for group in groups)]
    has_key = any(len(group.values) > 1 for group in groups)
    with matplotlib.rc_context(_STYLE):
        bars = sum(len(group.values) for group in groups)
        height = _FRAME + bars * _BAR + len(groups) * _GAP + 0.2 * has_key
        figure = Figure(figsize=(7.2, height), layout="constrained")
        axes = figure.add_subplot()
        _draw(axes, groups)
        axes.set_title(chart.title, loc="left", fontsize=11, fontweight="bold")
        axes.set_xlabel(_UNITS.get(chart.unit, chart.unit))
        if chart.unit == "x":
            axes.axvline(1, color="#444", linewidth=0.8)
        if has_key:
            keys = [Patch(color=_COLORS[column], label=SERIES[column]) for column in columns]
            figure.legend(
                handles=keys, loc="outside lower center", ncols=len(keys), frameon=False, fontsize=8
            )
        made = io.StringIO()
        figure.savefig(made, format="svg", metadata={"Date": None, "Creator": None})
    lines = (line.rstrip() for line in made.getvalue().splitlines())
    return "\n".join(lines) + "\n"


_UNITS = {"us": "microseconds, less is better", "x": "times the best peer's speed"}


def _draw(axes: Axes, groups: list[Group]) -> None:
    place, ticks = 0.0, []
    most = max(value for group in groups for value in group.values.values())
    for group in groups:
        first = place
        for column, value in group.values.items():
            axes.barh(place, value, height=0.92 * _BAR, color=_COLORS[column])
            weight = "bold" if column == OURS else "normal"
            axes.annotate(
                f"{value:g}", (value, place), xytext=(3, 0), textcoords="offset points",
                va="center", fontsize=7.5, fontweight=weight,
            )  # fmt: skip
            place += _BAR
        ticks.append((first + place - _BAR) / 2)
        place += _GAP
    axes.set_yticks(ticks, [group.label for group in groups])
    axes.set_ylim(place - _GAP - _BAR / 2 + 0.05, -_BAR / 2 - 0.05)
    axes.set_xlim(0, 1.1 * most)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
