# pyright: basic
"""`dnnc bench --plot`: the times of the rounds as a picture, by matplotlib."""

from __future__ import annotations

import importlib.util
import io
import statistics
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import DnncError, Status
from ..plan.format import write_whole
from ..visible import counted, visible
from . import console

_FORMATS = (".svg", ".png", ".pdf")
_TITLE_CHARACTERS = 80  # of a line
_BAR, _MEDIAN = "#2360c4", "#b25a00"


def require_plot(path: Path) -> None:
    """A file of a known format, and matplotlib, or a DnncError."""
    if path.suffix not in _FORMATS:
        what = f"suffix {path.suffix!r}"
        raise DnncError(Status.BAD_PARAM, what, ", ".join(_FORMATS), f"--plot {path}")
    if importlib.util.find_spec("matplotlib") is None:
        raise DnncError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
            "matplotlib not installed",
            'pip install "dnnc[bench]"',
            "--plot",
        )


def plot(path: Path, title: str, seconds: Sequence[float], calls: int, bytes_: int) -> None:
    """Writes a bar for each round, its microseconds a call, and a line at the median.

    title: of what.  calls: a round.  bytes_: of the inputs and outputs, for the bandwidth.
    """
    import matplotlib
    from matplotlib.figure import Figure

    median = statistics.median(seconds)
    rounds = range(1, len(seconds) + 1)
    # Names of plans may hold what is mathematics to matplotlib; they are text.
    style: Any = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "dnnc"}
    with warnings.catch_warnings(), matplotlib.rc_context(style):
        warnings.simplefilter("ignore")  # of characters that no font has
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        axes.bar(rounds, [1e6 * value for value in seconds], color=_BAR)
        axes.axhline(1e6 * median, color=_MEDIAN, linewidth=1.2)
        said = f"median {console.seconds_text(median)}, {bytes_ / median / 1e9:.4g} GB/s"
        lines = [*textwrap.wrap(visible(title), _TITLE_CHARACTERS), said]
        axes.set_title("\n".join(lines), loc="left", fontsize=10)
        axes.set_xlabel(f"round of {counted(calls, 'call')}")
        axes.set_ylabel("microseconds a call")
        axes.set_xticks(list(rounds) if len(rounds) <= 15 else [1, len(rounds)])
        axes.spines[["top", "right"]].set_visible(False)
        made = io.BytesIO()
        kind = path.suffix.removeprefix(".")
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(made, format=kind, dpi=150, metadata=metadata)
    write_whole(str(path), made.getvalue())
