"""Records into tables: a cell is the mean over seeds of the runs that agree in every field of both axes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..checks import nearest_name
from ..metrics import NAMES, mean_and_error
from ..selection.table import ALIASES, SELECTORS
from .stored import ABSENT, Record, Value, field_name, has_variants, known_fields

Key = tuple[Value, ...]

# runs that differ in one of these are different experiments; the others may go with the cell, as views with a selector
TOLD = ("dataset", "learner", "selector", "views", "capacity", "order", "episodes", "epochs", "width", "quota")
MAIN = (*(name for name in TOLD if name != "views"), "data.episodes", "numbers")
DERIVED = ("method", "selector", "variant", "views")  # each goes with the others
SELECTED = ("method", "selector", "variant")
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


# ---------------------------------------------------------------- choosing runs


def metric_name(name: str) -> str:
    """A metric, whatever its case."""
    for known in NAMES:
        if known.lower() == name.lower():
            return known
    raise ValueError(f"unknown metric {name!r}; {nearest_name(name, NAMES)}")


def chosen(records: Sequence[Record], where: Mapping[str, Sequence[str]]) -> list[Record]:
    """The records whose fields have one of the values asked for."""
    left = list(records)
    for field, wanted in where.items():
        there = {comparable(field, value): str(value) for value in {record[field] for record in records}}
        for value in wanted:
            if comparable(field, value) not in there:
                raise ValueError(f"no run has {field} {value!r}; {nearest_name(value, there.values())}")
        values = {comparable(field, value) for value in wanted}
        left = [record for record in left if comparable(field, record[field]) in values]
    return left


def comparable(field: str, value: Value) -> Value:
    """A value as it was stored or typed, so that `1`, 1 and 1.0 are one, and an alias is the selector it names."""
    try:
        return float(value)
    except ValueError:
        if value == "-":
            return ABSENT
        return ALIASES.get(str(value), value) if field in SELECTED else value


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
    known, (records, fixed) = known_fields(records), _asked_for(records, where)
    down, across, averaged = (tuple(field_name(name, known) for name in names) for names in (rows, columns, over))
    _check_axes(down, across)
    axes = (*down, *across)
    averaged = tuple(name for name in averaged if name not in axes)
    varying = _left_over(records, axes, averaged)
    cells, repeated = _cells(records, metric_name(metric), (down, across, averaged))
    return Table(
        metric_name(metric),
        down,
        across,
        averaged,
        rows=_in_order({row for row, _ in cells}, down, fixed),
        columns=_in_order({column for _, column in cells}, across, fixed),
        cells=cells,
        shared={name: records[0][name] for name in TOLD if name not in axes and _same(records, name)},
        varying=varying,
        repeated=repeated,
    )


def usual_axes(
    records: Sequence[Record], where: Mapping[str, Sequence[str]] | None = None, over: Sequence[str] = ("seed",)
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rows and columns where none are named: a row a capacity and a column a selector, if the runs differ in no more.

    Else, and where options were set, a row a variant of a selector, behind whatever else they differ in, and a column a
    capacity.
    """
    known, (records, fixed) = known_fields(records), _asked_for(records, where)
    averaged = tuple(field_name(name, known) for name in over)
    differing = _refused(records, ("capacity", "selector"), averaged)
    plain = not differing and "variant" not in fixed and not has_variants(records)
    if plain or "seed" in differing:
        return ("capacity",), ("selector",)
    return (*(name for name in differing if not of_selection(name)), "variant"), ("capacity",)


def _asked_for(
    records: Sequence[Record], where: Mapping[str, Sequence[str]] | None
) -> tuple[list[Record], dict[str, list[str]]]:
    """The runs that are like `where`, and that with the whole names of its fields."""
    if not records:
        raise ValueError("there are no finished runs to tabulate; run some with keepset run or keepset grid")
    known = known_fields(records)
    fixed = {field_name(name, known): list(values) for name, values in (where or {}).items()}
    left = chosen(records, fixed)
    if not left:
        raise ValueError("no run has all that --where asks for at once; ask for less")
    return left, fixed


def _check_axes(rows: Sequence[str], columns: Sequence[str]) -> None:
    if not rows or not columns:
        raise ValueError("rows and columns must each name at least one field")
    for name in (every := [*rows, *columns]):
        if every.count(name) > 1:
            raise ValueError(f"the field {name!r} is named twice among rows and columns; name it once")


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


# ---------------------------------------------------------------- fields on neither axis


def _same(records: Sequence[Record], name: str) -> bool:
    return all(record[name] == records[0][name] for record in records)


def _left_over(records: Sequence[Record], axes: Sequence[str], over: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """Refuse what would be averaged or compared unawares; give back the settings that go with the cells."""
    if refused := _refused(records, axes, over):
        raise ValueError(_refusal(records, refused))
    values = _varying(_few(records, axes), axes, over)
    shown = of_selection if "variant" in axes else DERIVED.__contains__
    return {name: found for name, found in values.items() if not shown(name) and len(found) > 1}


def _few(records: Sequence[Record], axes: Sequence[str]) -> Sequence[Record]:
    """What is no seed's matter is seen on a few."""
    return records if "seed" in axes else list({id(record.settings): record for record in records}.values())


def _varying(few: Sequence[Record], axes: Sequence[str], over: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """Fields on neither axis that are not everywhere the same, and their values: one alone is a setting of some
    selectors or views."""
    varying = [name for name in known_fields(few) if name not in (*axes, *over, "seed") and not _same(few, name)]
    if "variant" in axes or all(name in axes or _same(few, name) for name in ("method", "views")):
        varying = [name for name in varying if name != "selector"]
    return {name: _values(few, name) for name in varying if name != "variant"}  # which is the others together


def _refused(records: Sequence[Record], axes: Sequence[str], over: Sequence[str]) -> list[str]:
    """Fields that would be averaged or compared unawares."""
    few = _few(records, axes)
    values = _varying(few, axes, over)
    varying = list(values)
    refused = [n for n in varying if n in MAIN or (len(values[n]) > 1 and not _goes_with(few, axes, n))]
    if "selector" in refused:
        refused = [name for name in refused if name not in ("method", "views")]
    else:  # an option that only some runs of a cell were given; of other settings, older runs may know nothing
        cell = (*axes, *(name for name in over if name != "seed"))
        lone = [n for n in varying if n.startswith("options.") and len(values[n]) == 1]
        refused += [name for name in lone if not _goes_with(few, cell, name)]
    if "seed" not in (*axes, *over) and not _same(records, "seed"):
        refused.append("seed")
    return sorted(refused, key=lambda name: name not in TOLD)


def _goes_with(records: Sequence[Record], axes: Sequence[str], name: str) -> bool:
    """Whether a field is the same within every cell."""
    first: dict[Key, Value] = {}
    cells = [tuple(record[axis] for axis in axes) for record in records]
    return all(
        first.setdefault(cell, record[name]) == record[name] for cell, record in zip(cells, records, strict=True)
    )


def _values(records: Iterable[Record], name: str) -> tuple[Value, ...]:
    return tuple(sorted({record[name] for record in records if record[name] != ABSENT}, key=_sort_key(name)))


def _refusal(records: Sequence[Record], refused: Sequence[str], most: int = 6) -> str:
    told = []
    for name in refused[:most]:
        values = sorted({record[name] for record in records}, key=_sort_key(name))
        more = f" and {len(values) - most} more" if len(values) > most else ""
        told.append(f"{name} ({', '.join(map(str, values[:most]))}{more})")
    others = f" and {len(refused) - most} other fields" if len(refused) > most else ""
    example = f"--where {shlex.quote(f'{refused[0]}={_values(records, refused[0])[0]}')}"
    axis = "put it on an axis with --rows or --columns"
    if any(of_selection(name) for name in refused):
        axis += " (variant tells all that was set of a selector)"
    remedy = f"{axis}, fix it ({example}), or average over it with --over"
    return f"the runs differ in {', '.join(told)}{others}; {remedy}"


# ---------------------------------------------------------------- order


def _in_order(keys: Iterable[Key], names: Sequence[str], fixed: Mapping[str, Sequence[str]]) -> tuple[Key, ...]:
    """Sorted field by field; as --where lists the values, where it does."""
    sorts = [_sort_key(name, fixed.get(name, ())) for name in names]
    return tuple(sorted(keys, key=lambda key: [sort(value) for sort, value in zip(sorts, key, strict=True)]))


def _sort_key(name: str, wanted: Sequence[str] = ()) -> Callable[[Value], tuple[int, float, str]]:
    places = {comparable(name, value): place for place, value in enumerate(wanted)}
    known = {method: place for place, method in enumerate(SELECTORS)} if name in SELECTED else {}

    def sort(value: Value) -> tuple[int, float, str]:
        if (found := comparable(name, value)) in places:
            return 0, places[found], ""
        if isinstance(value, str):
            return 2, known.get(value.partition(" ")[0].partition(":")[0], len(known)), value
        return 1, value, ""

    return sort


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


def of_selection(name: str) -> bool:
    """Whether a field is the selector or a setting of it."""
    return name in DERIVED or name.startswith("options.")


def _best_of(table: Table, places: Sequence[tuple[Key, Key]]) -> list[tuple[Key, Key]]:
    sign = -1 if table.metric in LOWER_IS_BETTER else 1
    first = max(places, key=lambda place: sign * table.cells[place].mean)
    top, error = table.cells[first].mean, table.cells[first].error
    return [p for p in places if p == first or abs(table.cells[p].mean - top) <= (0 if math.isnan(error) else error)]
