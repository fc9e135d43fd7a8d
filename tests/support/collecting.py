"""Saves work that each process would do again when several collect all tests."""

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
WITHOUT_GPU = "not gpu and not slow"  # the mark expression of pyproject.toml


def is_left_out(path, config):
    """Whether nothing below a folder can be run: that of the tests for a device, by default.

    Collecting them takes a fourth of the time; that they can be imported is a test of its own.
    """
    return path == TESTS / "gpu" and config.option.markexpr == WITHOUT_GPU


def import_own_share(config):
    """Imports this process's share of the test files, before it collects all of them.

    In a fresh clone a file's assertions are rewritten when it is first imported, and the result is
    kept.  Processes that begin at different files do that once for each file, not once each.
    """
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    is_whole = [Path(argument) for argument in config.args] in ([TESTS], [Path("tests")])
    if count == 1 or not is_whole or sys.dont_write_bytecode:
        return
    own = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    names = sorted(
        ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        for path in TESTS.rglob("test_*.py")
        if not is_left_out(TESTS / path.relative_to(TESTS).parts[0], config)
    )
    for name in names[own * len(names) // count : (own + 1) * len(names) // count]:
        # Collecting meets errors again, and reports them; so with what skips a file.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)
