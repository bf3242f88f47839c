"""How commands speak: results on the output, notes on the error stream."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def warn(text: str) -> None:
    sys.stderr.write(text + "\n")


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """A table without lines; the columns named in `right` stand to the right. Brackets in it are no markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(Text(head), justify="right" if head in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
