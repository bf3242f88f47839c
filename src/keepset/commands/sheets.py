"""Sheets where they are wanted: in the terminal, or as Markdown or LaTeX, there or in a file."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .console import say

if TYPE_CHECKING:
    from ..report.sheets import Sheet

WIDE = 10_000  # letters: no line of a table is cut
HEAD = 36  # letters of a row's head on one line
FORMATS = {"terminal": "", "markdown": ".md", "latex": ".tex", "csv": ".csv"}


def output_format(given: str | None, output: Path | None) -> str:
    """By name or by the file's ending, refused before any work is done."""
    from ..checks import check_choice
    from ..files import check_place

    if given is not None:
        check_choice("--format", given, FORMATS)
    if output is None:
        return given or "terminal"
    check_place(output)
    by_ending = {ending: name for name, ending in FORMATS.items() if ending}
    if given in (None, "terminal") and output.suffix not in by_ending:
        raise ValueError(f"--output must end in .md, .tex or .csv, got {output}; or give --format")
    if given == "terminal":
        raise ValueError("--format terminal writes no file; leave out -o, or take markdown, latex or csv")
    return given or by_ending[output.suffix]


def decimals(given: int | None, kind: str) -> int:
    from ..checks import check_range

    if given is None:
        return 1 if kind == "terminal" else 2
    return check_range("--digits", given, 0, 6, "decimals")


def show_sheets(sheets: Sequence[Sheet], kind: str, output: Path | None) -> None:
    from ..report.render import latex, markdown

    if kind == "terminal":
        for number, sheet in enumerate(sheets):
            if number:
                say("")
            _print(sheet)
    else:
        put_text((markdown if kind == "markdown" else latex)(sheets), output)


def put_text(text: str, output: Path | None) -> None:
    from ..files import write_atomically

    if output is None:
        say(text.rstrip("\n"))
        return
    write_atomically(output, lambda file: file.write_text(text, encoding="utf-8"))
    say(f"written to {output}")


def _print(sheet: Sheet) -> None:
    """In blocks of as many columns as fit side by side, each with the heads of the rows."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    sheet = _folded(sheet)
    say(sheet.caption)
    for block in _blocks(sheet, console.width):
        say("")
        _print_block(sheet, block)
    for note in sheet.notes:
        say(f"\n{note}")


def _folded(sheet: Sheet) -> Sheet:
    """Long heads of rows on several lines."""

    def fold(text: str) -> str:
        lines = textwrap.wrap(text, HEAD, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
        return "\n".join(lines) or text

    return replace(sheet, lines=tuple(replace(line, heads=tuple(map(fold, line.heads))) for line in sheet.lines))


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _heads(column: Sequence[str]) -> list[str]:
    """The lines of a column's head: `maxherding:simclr` takes two, and so does a long name with a hyphen; a variant one
    for each setting."""
    words = [word for text in column for word in text.split(" ")]
    parts = [part for word in words for part in word.replace(":", "\n:").replace("+", "+\n").split("\n")]
    return [piece for part in parts for piece in (part.replace("-", "-\n").split("\n") if len(part) > 12 else [part])]


def _blocks(sheet: Sheet, width: int) -> list[list[int]]:
    """The columns side by side, block by block; at least one in each."""
    gap = 2
    lead = sum(
        max(len(head), *(_width(line.heads[i]) for line in sheet.lines), 0) + gap for i, head in enumerate(sheet.corner)
    )
    blocks: list[list[int]] = [[]]
    room = width - lead
    for i, column in enumerate(sheet.columns):
        need = max(*map(len, _heads(column)), *(len(line.cells[i]) for line in sheet.lines), 0) + gap
        if blocks[-1] and need > room + gap:  # the last column needs no gap after it
            blocks.append([])
            room = width - lead
        blocks[-1].append(i)
        room -= need
    return blocks


def _print_block(sheet: Sheet, block: Sequence[int]) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    wide = Console(highlight=False, markup=False, width=WIDE)  # of heads and figures none is cut
    drawn = RichTable(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    folded = any("\n" in head for line in sheet.lines for head in line.heads)
    for name in sheet.corner:  # at the foot of the columns' heads, but folded ones begin where their figures are
        drawn.add_column(name, no_wrap=True, vertical="top" if folded else "bottom")
    for i in block:
        drawn.add_column("\n".join(_heads(sheet.columns[i])), justify="right", no_wrap=True)
    for line in sheet.lines:
        cells = [Text(line.cells[i], style="bold" if i in line.bold else "") for i in block]
        drawn.add_row(*line.heads, *cells)
    wide.print(drawn)
