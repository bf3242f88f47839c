"""Tables as sheets of text: our figures, the paper's below them, and the paired tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .axes import Key
from .fields import Value, counted
from .pairs import Place
from .paper import Printed, departures, in_errors, printed_result
from .statistics import Paired
from .tables import Cell, Table, best_places

MISSING = "–"
OTHER = "†"  # stands by figures of another protocol
SAID = {
    "capacity": "|M| = {}",
    "order": "order {}",
    "width": "width {}",
    "quota": "{} quota",
}
PLAIN = ("dataset", "learner", "method", "selector", "variant", "views")  # whose values speak for themselves


@dataclass(frozen=True)
class Line:
    """One line of a sheet; `bold` holds the places of its cells that stand out."""

    heads: tuple[str, ...]
    cells: tuple[str, ...]
    bold: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Sheet:
    """A table in words: what stands above it, its heads (one a column, with a part a field), lines, what is below."""

    caption: str
    corner: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


# ---------------------------------------------------------------- sheets


def table_sheet(table: Table, digits: int = 1, paper: bool = False) -> Sheet:
    """Mean ± standard error; with `paper` two more lines a row, where the paper prints anything of it."""
    best = best_places(table)
    lines = []
    for row in table.rows:
        cells = [table.cells.get((row, column)) for column in table.columns]
        bold = frozenset(i for i, column in enumerate(table.columns) if (row, column) in best)
        lines.append(Line(texts(row), tuple(_mean_text(cell, digits) for cell in cells), bold))
        if paper:
            lines.extend(_paper_lines(table, row, cells, digits))
    notes = _varying_notes(table) + (_paper_notes(table) if paper else [])
    return Sheet(caption(table), table.row_fields, tuple(map(texts, table.columns)), tuple(lines), tuple(notes))


def pairs_sheet(table: Table, tests: Mapping[Place, Paired], against: str, digits: int = 1) -> Sheet:
    """A line a comparison."""
    lines = []
    for place in all_places(table):
        if place in tests:
            lines.append(Line(texts((*place[0], *place[1])), _test_texts(tests[place], digits)))
    few = any(test.pairs < 2 for test in tests.values())
    notes = ["fewer than two pairs tell neither an interval nor p"] if few else []
    if not tests:
        notes = [f"there is nothing to compare {against} with: no other selector with all else the same"]
    columns = tuple((head,) for head in ("difference", "95\u00a0% interval", "p", "pairs"))
    told = f"{table.metric} less that of {against}, paired by {', '.join(table.over) or 'nothing'}, percentage points"
    return Sheet(told, table.axes, columns, tuple(lines), tuple(notes))


def caption(table: Table) -> str:
    """The metric, and what is the same everywhere."""
    counts = sorted({len(cell.values) for cell in table.cells.values()})
    span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    what = "seed" if table.over == ("seed",) else "run"
    runs = f"one {what} a cell" if span == "1" else f"mean ± standard error over {span} {what}s"
    return ", ".join([table.metric, *settings_told(table), runs, "per cent"])


def settings_told(table: Table) -> list[str]:
    """What is the same everywhere, in words."""
    return in_words(table.shared)


def in_words(settings: Mapping[str, Value]) -> list[str]:
    """All but what goes without saying."""
    return [said(name, value) for name, value in settings.items() if _telling(name, value)]


def said(name: str, value: Value) -> str:
    """A setting in words; one for which there are none, as `--where` takes it.

    >>> said("order", 42), said("epochs", 10), said("learner", "er"), said("train.batch", 32)
    ('order 42', '10 epochs', 'er', 'train.batch=32')
    """
    if name in ("episodes", "epochs"):
        return counted(value, name[:-1])
    (text,) = texts((value,))
    return text if name in PLAIN else SAID.get(name, name + "={}").format(text)


def _telling(name: str, value: object) -> bool:
    """What goes without saying is left out."""
    usual = {"quota": "adaptive", "width": 64, "views": "none"}
    return usual.get(name) != value


def texts(key: Key) -> tuple[str, ...]:
    return tuple(f"{value:g}" if isinstance(value, float) else str(value) for value in key)


def all_places(table: Table) -> list[Place]:
    return [(row, column) for row in table.rows for column in table.columns]


def _mean_text(cell: Cell | None, digits: int) -> str:
    if cell is None or math.isnan(cell.mean):
        return MISSING
    return _with_error(cell.mean, cell.error, digits)


def _with_error(mean: float, error: float, digits: int) -> str:
    return f"{mean:.{digits}f}" + ("" if math.isnan(error) else f" ± {error:.{digits}f}")


def signed(value: float, digits: int) -> str:
    if math.isnan(value):
        return MISSING
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text[1:]  # nothing has no sign


def interval_text(test: Paired, digits: int) -> str:
    return f"{signed(test.low, digits)} to {signed(test.high, digits)}"


def _test_texts(test: Paired, digits: int) -> tuple[str, ...]:
    if math.isnan(test.low):
        return signed(test.difference, digits), MISSING, MISSING, str(test.pairs)
    interval = interval_text(test, digits)
    p = MISSING if math.isnan(test.p) else "< 0.001" if test.p < 0.001 else f"{test.p:.3f}"
    return signed(test.difference, digits), interval, p, str(test.pairs)


def _varying_notes(table: Table) -> list[str]:
    notes = []
    if table.varying:
        told = ", ".join(f"{name} ({', '.join(texts(values))})" for name, values in table.varying.items())
        notes.append(f"not the same in all cells: {told}")
    return notes


# ---------------------------------------------------------------- beside the paper


def printed_beside(table: Table, cell: Cell) -> Printed | None:
    return printed_result(table.metric, cell.fields)


def _paper_lines(table: Table, row: Key, cells: Sequence[Cell | None], digits: int) -> list[Line]:
    printed = [None if cell is None else printed_beside(table, cell) for cell in cells]
    if not any(printed):
        return []
    figures, differences = [], []
    for cell, found in zip(cells, printed, strict=True):
        if cell is None or found is None:
            figures.append("")
            differences.append("")
            continue
        mark = OTHER if departures(cell.fields) else ""
        figures.append(_with_error(found.mean, found.error, digits) + mark)
        differences.append(signed(in_errors(cell.mean, cell.error, found), 1) + mark)
    blank = ("",) * (len(row) - 1)
    return [Line((*blank, "paper"), tuple(figures)), Line((*blank, "in s.e."), tuple(differences))]


def _paper_notes(table: Table) -> list[str]:
    beside = [cell for cell in table.cells.values() if printed_beside(table, cell) is not None]
    if not beside:
        return ["the paper prints none of these cells"]
    notes = ["in s.e.: (ours − the paper's) / √(s.e.² + s.e.² of the paper)"]
    other = sorted({told for cell in beside for told in departures(cell.fields)})
    if other:
        notes.append(f"{OTHER} another protocol than the paper's: {', '.join(other)}")
    if any(cell.fields.get("order") != "canonical" for cell in beside):
        notes.append(
            "the paper does not say how it drew its class orders: those of the same number need not be the same"
        )
    return notes
