"""Cells and tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dnnc import dtypes
from dnnc.dtypes import DType


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("|", r"\|")


def types_text(types: Iterable[DType]) -> str:
    """f32, f16: each once; all where it is every one."""
    found = tuple(dict.fromkeys(types))
    return "all" if found == dtypes.ALL else ", ".join(map(str, found)) or "none"


def numbers_text(values: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(values)))
