"""The command line: its verbs, and how it fails."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .commands.cache import cache
from .commands.claims import claims
from .commands.console import say, warn
from .commands.data import data
from .commands.encode import encode
from .commands.gallery import gallery
from .commands.grid import grid
from .commands.ls import ls
from .commands.plot import plot
from .commands.run import run
from .commands.select import select
from .commands.show import show
from .commands.table import table
from .commands.views import views

app = typer.Typer(name="keepset", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
app.command("ls")(ls)
app.command("select")(select)
app.command("encode")(encode)
app.command("run")(run)
app.command("grid")(grid)
app.command("show")(show)
app.command("table")(table)
app.command("claims")(claims)
app.command("views")(views)
app.command("plot")(plot)
app.command("gallery")(gallery)
app.add_typer(data, name="data")
app.add_typer(cache, name="cache")


def main() -> None:
    """Run a command; bad input ends with one line on the error stream and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        sys.exit(130)
    except (ValueError, MemoryError) as error:
        _fail(str(error))
    except Exception as error:
        if not hasattr(error, "format_message"):  # the parser's own errors have it
            raise
        _fail(error.format_message())
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> None:
    warn(f"keepset: {' '.join(message.split())}")
    sys.exit(2)


@app.callback(invoke_without_command=True)
def _keepset(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Choose what a learner should remember: the few points that cover several embeddings at once.

    \b
    Examples:
      keepset ls
      keepset encode photos/ --encoder simclr -o simclr.npy
      keepset select supervised.npy simclr.npy --labels y.npy --budget 5 -o keep.npy
    """
    if version:
        from . import __version__

        say(__version__)
    elif context.invoked_subcommand is None:
        say(context.get_help())
