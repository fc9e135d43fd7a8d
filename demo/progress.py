"""Progress on a terminal's stderr; nothing where stderr is a file."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Bar:
    """A bar of known length."""

    def __init__(self, progress: Progress, total: int):
        self._progress = progress
        self._task = progress.add_task("", total=total)

    def step(self, doing: str) -> None:
        """One more is done; doing: what it was."""
        self._progress.update(self._task, advance=1, description=doing)


@contextmanager
def bar(total: int) -> Generator[Bar]:
    """A bar that is gone when the block ends."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as shown:
        yield Bar(shown, total)
