"""keepset table: stored results as tables, beside the paper's, with paired tests."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .arguments import listed
from .console import say, warn

if TYPE_CHECKING:
    from ..report.sheets import Sheet
    from ..report.stored import Found

Option = typer.Option
WIDE = 10_000  # letters: no line of a table is cut
HEAD = 36  # letters of a row's head on one line
FORMATS = {"terminal": "", "markdown": ".md", "latex": ".tex", "csv": ".csv"}


def table(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Folders of runs, or of such folders.")],
    metric: Annotated[str, Option(help="FAA, AAA, forgetting, stability; a list.")] = "FAA",
    rows: Annotated[str | None, Option(help="A field of the runs, or a list: learner,capacity.")] = None,
    columns: Annotated[str | None, Option(help="A field of the runs, or a list: selector,views.")] = None,
    where: Annotated[
        list[str] | None, Option("--where", help="Only these runs: learner=er-ace; capacity=100,500; again for more.")
    ] = None,
    over: Annotated[str, Option(help="What a cell is averaged over; a list.")] = "seed",
    paper: Annotated[bool, Option("--paper", help="The paper's figures below ours, where it prints them.")] = False,
    against: Annotated[
        str | None, Option(help="Test all others against this selector or variant, pair by pair.")
    ] = None,
    format_: Annotated[str | None, Option("--format", help="terminal, markdown, latex or csv.")] = None,
    digits: Annotated[int | None, Option(help="Decimals; if not given, 1 in a terminal and 2 elsewhere.")] = None,
    output: Annotated[Path | None, Option("-o", "--output", help="Write .md, .tex or .csv.")] = None,
) -> None:
    """Tabulate stored results: mean ± standard error over seeds, the best of those compared in bold.

    \b
    Examples:
      keepset table runs
      keepset table runs --metric FAA,AAA --where learner=er-ace --paper
      keepset table runs --rows learner,capacity --against maxherding
      keepset table runs --where selector=mers --columns weights -o weights.tex
    """
    from ..report.axes import usual_axes
    from ..report.pairs import compare
    from ..report.render import tidy_csv
    from ..report.sheets import pairs_sheet, table_sheet
    from ..report.stored import has_variants, read_records
    from ..report.tables import metric_name, tabulate

    kind = _format(format_, output)
    shown = _digits(digits, kind)
    names = [metric_name(name) for name in listed(metric) or []]
    fixed = _conditions(where or [])
    found = read_records(folders)
    _tell_skipped(found)
    if not found.records:
        raise ValueError(f"there are no finished runs in {', '.join(map(str, folders))}; see keepset run --out")
    averaged = listed(over) or []
    if rows is None and columns is None:
        axes = usual_axes(found.records, fixed, averaged)
    else:
        axes = _one_given(listed(rows), listed(columns), "variant" if has_variants(found.records) else "selector")
    tables = [tabulate(found.records, name, *axes, fixed, averaged) for name in names]
    if tables[0].repeated:
        warn(f"{tables[0].repeated} of the runs are there twice and count once")
    tests = None if against is None else [compare(each, against) for each in tables]
    if kind == "csv":
        _put(tidy_csv(tables, paper, tests, against or ""), output)
        return
    sheets = []
    for number, each in enumerate(tables):
        sheets.append(table_sheet(each, shown, paper))
        if tests is not None:
            sheets.append(pairs_sheet(each, tests[number], against or "", shown))
    _show(sheets, kind, output)


# ---------------------------------------------------------------- reading the arguments


def _format(given: str | None, output: Path | None) -> str:
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


def _digits(given: int | None, kind: str) -> int:
    from ..checks import check_range

    if given is None:
        return 1 if kind == "terminal" else 2
    return check_range("--digits", given, 0, 6, "decimals")


Axes = tuple[tuple[str, ...], tuple[str, ...]]


def _one_given(rows: list[str] | None, columns: list[str] | None, chosen: str) -> Axes:
    """Both axes where one or both were named: `chosen` stands for the selectors, on the other axis than capacities."""
    selectors = {"selector", "variant", "method"}
    if columns is None:
        columns = ["capacity"] if selectors & set(rows or []) else ["selector"]
    if rows is None:
        rows = [chosen] if "capacity" in columns else ["capacity"]
    return tuple(rows), tuple(columns)


def _conditions(texts: Sequence[str]) -> dict[str, list[str]]:
    """`learner=er,er-ace` -> the field and its values."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or not values:
            raise ValueError(f"--where must be field=value or field=value,value, got {text!r}")
        if name in found:
            raise ValueError(f"--where names {name} twice; list its values: {name}={','.join(found[name])},{values}")
        found[name] = listed(values) or []
    return found


# ---------------------------------------------------------------- showing


def _tell_skipped(found: Found) -> None:
    counts = {"unfinished": found.unfinished, "damaged": found.damaged}
    told = [f"{len(paths)} {word} (such as {paths[0]})" for word, paths in counts.items() if paths]
    if told:
        warn(f"runs passed over: {', '.join(told)}")


def _show(sheets: Sequence[Sheet], kind: str, output: Path | None) -> None:
    from ..report.render import latex, markdown

    if kind == "terminal":
        for number, sheet in enumerate(sheets):
            if number:
                say("")
            _print(sheet)
    else:
        _put((markdown if kind == "markdown" else latex)(sheets), output)


def _put(text: str, output: Path | None) -> None:
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
