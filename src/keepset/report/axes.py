"""The axes of a table: which runs are asked for, which fields must be on an axis, and the order of their values."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..checks import nearest_name
from ..selection.table import ALIASES, SELECTORS
from .fields import ABSENT, Value, field_name
from .stored import Record, has_variants, known_fields

Key = tuple[Value, ...]

# runs that differ in one of these are different experiments; the others may go with the cell, as views with a selector
TOLD = ("dataset", "learner", "selector", "views", "capacity", "order", "episodes", "epochs", "width", "quota")
MAIN = (*(name for name in TOLD if name != "views"), "data.episodes", "numbers")
DERIVED = ("method", "selector", "variant", "views")  # each goes with the others
SELECTED = ("method", "selector", "variant")


def usual_axes(
    records: Sequence[Record], where: Mapping[str, Sequence[str]] | None = None, over: Sequence[str] = ("seed",)
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rows and columns where none are named: a row a capacity and a column a selector, if the runs differ in no more.

    Else, and where options were set, a row a variant of a selector, behind whatever else they differ in, and a column a
    capacity.
    """
    known, (records, fixed) = known_fields(records), asked_for(records, where)
    averaged = tuple(field_name(name, known) for name in over)
    differing = _refused(records, ("capacity", "selector"), averaged)
    plain = not differing and "variant" not in fixed and not has_variants(records)
    if plain or "seed" in differing:
        return ("capacity",), ("selector",)
    return (*(name for name in differing if not of_selection(name)), "variant"), ("capacity",)


def check_axes(rows: Sequence[str], columns: Sequence[str]) -> None:
    if not rows or not columns:
        raise ValueError("rows and columns must each name at least one field")
    for name in (every := [*rows, *columns]):
        if every.count(name) > 1:
            raise ValueError(f"the field {name!r} is named twice among rows and columns; name it once")


def of_selection(name: str) -> bool:
    """Whether a field is the selector or a setting of it."""
    return name in DERIVED or name.startswith("options.")


# ---------------------------------------------------------------- choosing runs


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
    except (ValueError, OverflowError):
        if value == "-":
            return ABSENT
        return ALIASES.get(str(value), value) if field in SELECTED else value


def asked_for(
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


# ---------------------------------------------------------------- fields on neither axis


def same(records: Sequence[Record], name: str) -> bool:
    return all(record[name] == records[0][name] for record in records)


def left_over(records: Sequence[Record], axes: Sequence[str], over: Sequence[str]) -> dict[str, tuple[Value, ...]]:
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
    varying = [name for name in known_fields(few) if name not in (*axes, *over, "seed") and not same(few, name)]
    if "variant" in axes or all(name in axes or same(few, name) for name in ("method", "views")):
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
    if "seed" not in (*axes, *over) and not same(records, "seed"):
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


def in_order(keys: Iterable[Key], names: Sequence[str], fixed: Mapping[str, Sequence[str]]) -> tuple[Key, ...]:
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
