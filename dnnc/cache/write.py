"""Writes a file so that nobody ever sees a part of it, also when the writer is killed."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

# What a name begins with that is not there for readers.
TEMPORARY = ".tmp-"


def write_new(path: Path, data: bytes) -> None:
    """Writes a file that is there whole or not at all; one that is there already is left.

    A file without a name is written and then linked: of a process that is killed on the way
    nothing is left.  Where the file system has no such files, or /proc is not mounted, a file of
    another name is written and renamed.
    """
    try:
        _write_unnamed(path, data)
    except FileExistsError:
        return  # by a process that made the same
    except OSError:
        _write_renamed(path, data)


def _write_unnamed(path: Path, data: bytes) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with open(os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            # With a folder's descriptor it is linkat, which follows the link of /proc.
            os.link(
                f"/proc/self/fd/{file.fileno()}", path.name, src_dir_fd=folder, dst_dir_fd=folder
            )
    finally:
        os.close(folder)


def _write_renamed(path: Path, data: bytes) -> None:
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
