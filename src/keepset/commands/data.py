"""keepset data: get data sets."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .console import say

data = typer.Typer(rich_markup_mode=None)


@data.callback()
def _data() -> None:
    """Get data sets.

    \b
    Example:
      keepset data get cifar100
    """


@data.command("get")
def get(
    name: Annotated[str, typer.Argument(help="cifar100 or tinyimagenet.")],
    folder: Annotated[str | None, typer.Option(help="Where to put it; else where keepset run looks.")] = None,
) -> None:
    """Download a data set's official archive, check it and unpack it.

    \b
    Examples:
      keepset data get cifar100
      keepset data get tinyimagenet --folder /data
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from ..data.download import get as download

    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(name, start=False, total=None)

        def told(done: int, total: int) -> None:
            progress.start_task(task)
            progress.update(task, completed=done, total=total or None)

        place = download(name, folder or "", told)
    say(f"{name} is in {place}")
