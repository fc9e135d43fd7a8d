"""The application: its commands, and how errors end it.

Exit status 0: done.  1: a DnncError or an output that can't be written, its text on stderr, or a
check that failed.  2: a wrong use of the command line.  130: ^C.  141: whoever read the output has
gone away.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

import typer
from rich.console import Console
from typer import rich_utils
from typer.core import TyperGroup

from .. import __version__, log
from ..errors import DnncError, Status
from . import bench, bundle, cache, compile, engines, inspect, opt, run, tune, view
from .arguments import EXPLAIN
from .console import BROKEN_PIPE, INTERRUPTED, examples, show_error, to_nowhere

# typer cuts the names of options in help that is narrower.
_LEAST_HELP_WIDTH = 80
_log = log.logger(__name__)


class Commands(TyperGroup):
    """Commands whose DnncErrors are printed and not traced, and whose help is whole."""

    def main(self, *arguments: Any, **settings: Any) -> Any:
        rich_utils.MAX_WIDTH = max(Console().width, _LEAST_HELP_WIDTH)
        return super().main(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DnncError as error:
            show_error(error, ctx.meta.get(EXPLAIN))
            raise typer.Exit(1) from error
        except BrokenPipeError as error:
            to_nowhere(sys.stdout)
            raise typer.Exit(BROKEN_PIPE) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error
        except Exception as error:
            of_typer = type(error).__module__.partition(".")[0] in ("typer", "click")
            if of_typer or isinstance(error, OSError):  # a stream that can't be written
                raise
            show_error(_absent(error) or _internal(error))
            raise typer.Exit(1) from error


def _absent(error: Exception) -> DnncError | None:
    """The error of a package that the runtime alone does not need; None: it is another error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    package = error.name.partition(".")[0]
    if package == __name__.partition(".")[0]:
        return None
    return DnncError(
        Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
        f"the package {package} is not installed",
        'pip install "dnnc[compiler]"',
    )


def _internal(error: Exception) -> DnncError:
    """An error of a kind that nothing here expects, as one line."""
    _log.debug("%s", "".join(traceback.format_exception(error)))
    lines = str(error).strip().splitlines()
    said = f"{type(error).__name__}: {lines[0]:.200}" if lines else type(error).__name__
    supported = f"{log.VARIABLE}=debug shows where"
    return DnncError(Status.INTERNAL_ERROR_UNEXPECTED_VALUE, said, supported)


HELP = """\
Compiles operation graphs of cuDNN's Graph API to execution plans; shows, checks and runs them.

GRAPH is a [bold].py[/] file whose function build(), called without arguments, returns a \
dnnc.pygraph, a [bold].json[/] file (the graph's JSON form), or a [bold].mlir[/] or [bold].ptx[/] \
file (any stage that [bold]dnnc compile --emit[/] prints).  PLAN is a [bold].dnnplan[/] file.
"""

app = typer.Typer(
    cls=Commands,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "dnnc compile ffn.py",
        "dnnc inspect ffn.dnnplan",
        "dnnc run ffn.dnnplan --random --size tokens=37 --device interpreter --check",
    ),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dnnc {__version__}")
        raise typer.Exit


@app.callback()
def dnnc(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Compiles, shows, checks and runs operation graphs."""


for module in (compile, opt, inspect, view, engines, run, bench, tune, bundle, cache):
    module.register(app)
