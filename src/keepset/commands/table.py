"""keepset table: stored results as tables, beside the paper's, with paired tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .arguments import listed
from .console import warn
from .sheets import decimals, output_format, put_text, show_sheets
from .stored import Runs, conditions, finished_runs

Option = typer.Option


def table(
    folders: Runs,
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
    from ..report.stored import has_variants
    from ..report.tables import metric_name, tabulate

    kind = output_format(format_, output)
    shown = decimals(digits, kind)
    names = [metric_name(name) for name in listed(metric) or []]
    fixed = conditions(where or [])
    records = finished_runs(folders)
    averaged = listed(over) or []
    if rows is None and columns is None:
        axes = usual_axes(records, fixed, averaged)
    else:
        axes = _one_given(listed(rows), listed(columns), "variant" if has_variants(records) else "selector")
    tables = [tabulate(records, name, *axes, fixed, averaged) for name in names]
    if tables[0].repeated:
        warn(f"{tables[0].repeated} of the runs are there twice and count once")
    tests = None if against is None else [compare(each, against) for each in tables]
    if kind == "csv":
        put_text(tidy_csv(tables, paper, tests, against or ""), output)
        return
    sheets = []
    for number, each in enumerate(tables):
        sheets.append(table_sheet(each, shown, paper))
        if tests is not None:
            sheets.append(pairs_sheet(each, tests[number], against or "", shown))
    show_sheets(sheets, kind, output)


Axes = tuple[tuple[str, ...], tuple[str, ...]]


def _one_given(rows: list[str] | None, columns: list[str] | None, chosen: str) -> Axes:
    """Both axes where one or both were named: `chosen` stands for the selectors, on the other axis than capacities."""
    selectors = {"selector", "variant", "method"}
    if columns is None:
        columns = ["capacity"] if selectors & set(rows or []) else ["selector"]
    if rows is None:
        rows = [chosen] if "capacity" in columns else ["capacity"]
    return tuple(rows), tuple(columns)
