"""The command line, `dnnc`: one file a command, arguments and printing only."""

from __future__ import annotations

import importlib.util
import sys


def main() -> None:
    """Runs the command line; without its packages, says how to install them."""
    if importlib.util.find_spec("typer") is None or importlib.util.find_spec("rich") is None:
        print(
            'the command line needs typer and rich: pip install "dnnc[compiler]"', file=sys.stderr
        )
        sys.exit(1)
    from . import contained

    contained.run(_run_app)


def _run_app() -> None:
    from .app import app

    app(prog_name="dnnc")
