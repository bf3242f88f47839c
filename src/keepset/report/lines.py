"""Records into the lines of a picture: means and standard errors over seeds, ours and the paper's."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..metrics import mean_and_error
from .fields import ABSENT, Value
from .paper import departures, printed_result, printed_results
from .stored import Record, has_variants, known_fields

SELECTOR = ("selector", "method", "views", "variant")  # told together by a line's name
Points = Mapping[int, tuple[float, float]]
"""Place on the axis -> mean and standard error in per cent; of one seed there is no error (NaN)."""


@dataclass(frozen=True)
class Line:
    name: str
    selector: str
    points: Points


def against_capacity(records: Sequence[Record], metric: str, line: str = "selector") -> list[Line]:
    """A line a selector, or a value of another field."""

    def points(group: Sequence[Record]) -> Points:
        values: dict[int, list[float]] = {}
        for record in group:
            if not math.isnan(record.metrics[metric]):
                values.setdefault(int(record["capacity"]), []).append(100 * record.metrics[metric])
        return {place: mean_and_error(values[place]) for place in sorted(values)}

    return _lines(records, line, points)


def by_episode(records: Sequence[Record], line: str = "selector") -> list[Line]:
    """AA after each episode."""

    def points(group: Sequence[Record]) -> Points:
        columns = zip(*(record.averages for record in group), strict=True)
        return {place: mean_and_error([100 * each for each in one]) for place, one in enumerate(columns, start=1)}

    return _lines(records, line, points)


def of_the_paper(records: Sequence[Record], metric: str, line: str = "selector") -> dict[str, Points]:
    """Name of a line -> what the paper prints for the same data set, learner, class order, selector and views."""
    capacities = sorted({int(key[4]) for key in printed_results()})
    found: dict[str, Points] = {}
    for name, group in groups(records, line).items():
        cells = {each: printed_result(metric, {**fields_of(group[0]), "capacity": each}) for each in capacities}
        points = {each: (cell.mean, cell.error) for each, cell in cells.items() if cell is not None}
        if points:
            found[name] = points
    return found


def other_protocol(records: Sequence[Record], line: str = "selector") -> list[str]:
    """What the lines did otherwise than the paper."""
    firsts = [group[0] for group in groups(records, line).values()]
    return sorted({each for record in firsts for each in departures(fields_of(record))})


def fields_of(record: Record) -> dict[str, Value]:
    return {name: record[name] for name in known_fields([record])}


def _lines(records: Sequence[Record], line: str, points: Callable[[Sequence[Record]], Points]) -> list[Line]:
    """The highest at its right end first, so that a legend stands as the lines do."""
    found = [Line(name, str(group[0]["selector"]), points(group)) for name, group in groups(records, line).items()]
    found = [each for each in found if each.points]
    return sorted(found, key=lambda each: -each.points[max(each.points)][0])


def groups(records: Sequence[Record], line: str) -> dict[str, list[Record]]:
    """The records of each line by its name; a selector with several sets of views names them."""
    views: dict[Value, set[Value]] = {}
    for record in records:
        views.setdefault(record[line], set()).add(record["views"])
    found: dict[str, list[Record]] = {}
    for record in records:
        several = line == "selector" and len(views[record[line]]) > 1
        name = f"{record[line]} ({record['views']})" if several else str(record[line])
        found.setdefault(name, []).append(record)
    return found


# ---------------------------------------------------------------- what must not vary


def comparable(records: Sequence[Record], line: str, axes: Sequence[str]) -> list[Record]:
    """The records, copies of a run left out; refused if they differ in what the picture does not show."""
    if not records:
        raise ValueError("there is no finished run to draw; look at the folder, and at --where")
    grouped = groups(records, line)
    varying = _varying(records, line, axes)
    if "selector" in varying:  # the others go with it
        varying = {name: found for name, found in varying.items() if name not in SELECTOR[1:] and "." not in name}
    if varying:
        raise ValueError(_refusal(dict(sorted(varying.items(), key=lambda each: "." in each[0]))))
    return [record for group in grouped.values() for record in _without_copies(group, axes)]


def usual_line(records: Sequence[Record]) -> str:
    """What a line stands for if nothing is said: a selector, or its variants where options were set."""
    return "variant" if has_variants(records) else "selector"


def _varying(records: Sequence[Record], line: str, axes: Sequence[str]) -> dict[str, list[Value]]:
    """Fields that differ within a line or between lines, besides what the picture shows, and their values."""
    free = {"seed", "variant", *axes, line, *(SELECTOR if line in ("selector", "variant") else ())}
    if line in ("method", "views") and all(name == line or _same(records, name) for name in ("method", "views")):
        free.add("selector")  # which is these two together
    names = [name for name in known_fields(records) if name not in free]
    if line == "variant":  # which tells all options
        names = [name for name in names if not name.startswith("options.")]
    grouped = groups(records, line)
    return {name: found for name in names if (found := _values(name, grouped))}


def _same(records: Sequence[Record], name: str) -> bool:
    return len({record[name] for record in records}) == 1


def _values(name: str, grouped: Mapping[str, Sequence[Record]]) -> list[Value]:
    """The values of a field that differs; that it means nothing to a whole line is no difference."""
    inside = [{record[name] for record in group} for group in grouped.values()]
    known = set[Value]().union(*inside) - {ABSENT}
    differs = len(known) > 1 or any(len(values) > 1 for values in inside)
    return sorted(known, key=lambda value: (isinstance(value, str), value)) if differs else []


def _refusal(varying: Mapping[str, Sequence[Value]], most: int = 6) -> str:
    told = [
        f"{name} ({', '.join(map(str, found[:most]))}{', …' if len(found) > most else ''})"
        for name, found in list(varying.items())[:most]
    ]
    others = f" and {len(varying) - most} other fields" if len(varying) > most else ""
    name, values = next(iter(varying.items()))
    several = len(varying) > 1 and all(each == "views" or each.startswith("options.") for each in varying)
    line = "variant" if several else name
    remedy = f"fix it with --where {shlex.quote(f'{name}={values[0]}')}, or draw a line for each with --line {line}"
    return f"the runs differ in {', '.join(told)}{others}, which the picture does not show; {remedy}"


def _without_copies(group: Sequence[Record], axes: Sequence[str]) -> list[Record]:
    """One record a seed and place: a run that lies in two folders counts once."""
    return list({(record["seed"], *(record[axis] for axis in axes)): record for record in reversed(group)}.values())[
        ::-1
    ]
