"""Decoders of the opcodes, one family a file.

A decoder is registered under its opcode's leading words when its file is imported, so a new
family is one file and its name in the list here.
"""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    ".access",
    ".async_store",
    ".atomic",
    ".bits",
    ".bulk",
    ".cluster",
    ".compare",
    ".control",
    ".convert",
    ".copy",
    ".floating",
    ".half",
    ".hints",
    ".integer",
    ".matrix",
    ".mbarrier",
    ".mma",
    ".move",
    ".warp",
    ".wgmma",
)


def load() -> None:
    """Import every family."""
    for family in FAMILIES:
        import_module(family, __name__)
