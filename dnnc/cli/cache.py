"""`dnnc cache`: what the cache on disk holds; to check it and to empty it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import typer

from ..cache import place
from ..cache.disk import KINDS, DiskStore, Entry
from ..visible import counted
from . import console

_WHAT = {
    "plan": "plans, by graph, targets and options",
    "file": "which plan a graph file gives",
    "ptx": "PTX, by the kernels' IR",
    "cubin": "cubins, by PTX",
}


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    console.add_command(group, "info", info, "dnnc cache info")
    console.add_command(group, "verify", verify, "dnnc cache verify")
    console.add_command(group, "clear", clear, "dnnc cache clear")
    app.add_typer(group, name="cache", help="Shows, checks or empties the cache on disk.")


def info() -> None:
    """Shows where the cache is, what it may hold, and what it holds.

    DNNC_CACHE_DIR says where it is, DNNC_CACHE_SIZE how large it may be (500M, 2G); DNNC_CACHE=0
    turns it off.
    """
    found = place.configured()
    entries = list(_disk().entries())
    is_on = place.settings() is not None
    console.field("cache", found.directory)
    console.field("state", "on" if is_on else f"off ({place.SWITCH} says so)")
    total = sum(entry.bytes for entry in entries)
    share = f"{100 * total / found.max_bytes:.1f}% of " if found.max_bytes else ""
    console.field("holds", f"{_entries(entries)}: {share}{_bytes(found.max_bytes)}")
    if not entries:
        return
    console.field("oldest use", _date(min(entry.used for entry in entries)))
    table = console.table("kind", "what it is", ">entries", ">bytes", "last use")
    for kind in KINDS:
        own = [entry for entry in entries if entry.kind == kind]
        last = _date(max(entry.used for entry in own)) if own else ""
        size = f"{sum(entry.bytes for entry in own):,}"
        table.add_row(kind, _WHAT[kind], f"{len(own):,}", size, last)
    console.blank()
    console.show(table)


def verify() -> None:
    """Reads every entry and removes those that were altered; status 1 if there was one.

    A compilation does the same with each entry that it uses.
    """
    with console.working("reading the cache"):
        count = sum(1 for _ in _disk().entries())
        altered = _disk().verify()
    for entry in altered:
        console.field("removed", f"{entry.path} (altered)")
    console.field("read", f"{counted(count, 'entry', 'entries')}, {len(altered)} altered")
    if altered:
        raise typer.Exit(1)


def clear() -> None:
    """Removes every entry.  Other files in the folder are left."""
    removed = _disk().clear()
    console.field("removed", _entries(removed))


def _disk() -> DiskStore:
    """The cache, also where no compilation uses it."""
    return place.configured().disk()


def _entries(entries: Sequence[Entry]) -> str:
    total = _bytes(sum(entry.bytes for entry in entries))
    return f"{counted(len(entries), 'entry', 'entries')}, {total}"


def _bytes(count: int) -> str:
    """1.5 MiB"""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
