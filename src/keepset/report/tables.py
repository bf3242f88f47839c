"""Records into tables: a cell is the mean over seeds of the runs that agree in every field of both axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..checks import nearest_name
from ..metrics import NAMES, mean_and_error
from .axes import SELECTED, TOLD, Key, asked_for, check_axes, in_order, left_over, of_selection, same
from .fields import Value, field_name
from .stored import Record, known_fields

LOWER_IS_BETTER = ("forgetting",)


@dataclass(frozen=True)
class Cell:
    """The runs of one place in a table, by what they are averaged over; values are per cent."""

    fields: Mapping[str, Value]
    values: dict[Key, float]

    @property
    def mean(self) -> float:
        return mean_and_error(list(self.values.values()))[0]

    @property
    def error(self) -> float:
        """The standard error; NaN for a single run."""
        return mean_and_error(list(self.values.values()))[1]


@dataclass(frozen=True)
class Table:
    """`cells` by row and column; a place without runs is not among them."""

    metric: str
    row_fields: tuple[str, ...]
    column_fields: tuple[str, ...]
    over: tuple[str, ...]
    rows: tuple[Key, ...]
    columns: tuple[Key, ...]
    cells: Mapping[tuple[Key, Key], Cell]
    shared: Mapping[str, Value]
    """The main fields that are the same everywhere."""
    varying: Mapping[str, tuple[Value, ...]]
    """Other settings that go with the cells."""
    repeated: int
    """Runs that were there twice and count once."""

    @property
    def axes(self) -> tuple[str, ...]:
        return (*self.row_fields, *self.column_fields)


def metric_name(name: str) -> str:
    """A metric, whatever its case."""
    for known in NAMES:
        if known.lower() == name.lower():
            return known
    raise ValueError(f"unknown metric {name!r}; {nearest_name(name, NAMES)}")


def tabulate(
    records: Sequence[Record],
    metric: str = "FAA",
    rows: Sequence[str] = ("capacity",),
    columns: Sequence[str] = ("selector",),
    where: Mapping[str, Sequence[str]] | None = None,
    over: Sequence[str] = ("seed",),
) -> Table:
    """A table of `metric`. Fields are named as `stored.field_name` takes them.

    A field that varies must be on an axis, fixed by `where`, or averaged over; else it is refused.
    """
    known, (records, fixed) = known_fields(records), asked_for(records, where)
    down, across, averaged = (tuple(field_name(name, known) for name in names) for names in (rows, columns, over))
    check_axes(down, across)
    axes = (*down, *across)
    averaged = tuple(name for name in averaged if name not in axes)
    varying = left_over(records, axes, averaged)
    cells, repeated = _cells(records, metric_name(metric), (down, across, averaged))
    return Table(
        metric_name(metric),
        down,
        across,
        averaged,
        rows=in_order({row for row, _ in cells}, down, fixed),
        columns=in_order({column for _, column in cells}, across, fixed),
        cells=cells,
        shared={name: records[0][name] for name in TOLD if name not in axes and same(records, name)},
        varying=varying,
        repeated=repeated,
    )


def _cells(
    records: Sequence[Record], metric: str, named: Sequence[tuple[str, ...]]
) -> tuple[dict[tuple[Key, Key], Cell], int]:
    cells: dict[tuple[Key, Key], Cell] = {}
    repeated = 0
    for record in records:
        row, column, over = (tuple(record[name] for name in names) for names in named)
        values = cells.setdefault((row, column), Cell(record.settings, {})).values
        if over in values:
            repeated += 1
        else:
            values[over] = 100 * record.metrics[metric]
    return cells, repeated


# ---------------------------------------------------------------- the best


def best_places(table: Table) -> set[tuple[Key, Key]]:
    """The best of each comparison, and all within its standard error: the paper's rule for bold.

    Where the selector is on an axis, cells that agree in all but selector, views and options are compared; elsewhere
    the cells of a row. A cell without another beside it is not the best of anything.
    """
    groups: dict[Key, list[tuple[Key, Key]]] = {}
    for place in table.cells:
        groups.setdefault(compared_with(table, place), []).append(place)
    best = set[tuple[Key, Key]]()
    for places in groups.values():
        known = [place for place in places if not math.isnan(table.cells[place].mean)]
        if len(known) > 1:
            best.update(_best_of(table, known))
    return best


def compared_with(table: Table, place: tuple[Key, Key]) -> Key:
    """What the cells that are compared with each other have in common."""
    if not any(name in SELECTED for name in table.axes):
        return place[0]
    return tuple(v for n, v in zip(table.axes, (*place[0], *place[1]), strict=True) if not of_selection(n))


def _best_of(table: Table, places: Sequence[tuple[Key, Key]]) -> list[tuple[Key, Key]]:
    sign = -1 if table.metric in LOWER_IS_BETTER else 1
    first = max(places, key=lambda place: sign * table.cells[place].mean)
    top, error = table.cells[first].mean, table.cells[first].error
    return [p for p in places if p == first or abs(table.cells[p].mean - top) <= (0 if math.isnan(error) else error)]
