"""A selector, or a variant of one, against the others: paired tests over the runs that have both."""

from __future__ import annotations

import math

from ..checks import nearest_name
from ..selection.table import ALIASES
from .axes import Key
from .fields import ABSENT
from .statistics import Paired, paired_test
from .tables import Cell, Table, compared_with

Place = tuple[Key, Key]


def compare(table: Table, against: str) -> dict[Place, Paired]:
    """Place -> the paired test of its selector − `against`, where all else on the axes is the same.

    Runs are paired by what a cell is averaged over (the seed); runs without a partner are left out.
    """
    field = "variant" if "variant" in table.axes else "selector"
    if field not in table.axes:
        raise ValueError("--against compares selectors; put selector on an axis, with --rows or --columns")
    against = ALIASES.get(against, against)
    labels = {place: str(table.cells[place].fields[field]) for place in table.cells}
    if against not in labels.values():
        raise ValueError(
            f"--against names no {field} of this table: {against!r}; {nearest_name(against, set(labels.values()))}"
        )
    base = [place for place, label in labels.items() if label == against]
    found = {}
    for place, label in labels.items():
        other = _partner(table, place, base)
        if label != against and other is not None:
            found[place] = _test(table.cells[place], table.cells[other])
    return found


def _partner(table: Table, place: Place, base: list[Place]) -> Place | None:
    """The cell of the other selector that differs in selection alone; with the same options, if there are several."""
    mine = compared_with(table, place)
    same = [other for other in base if compared_with(table, other) == mine]
    same = same or [other for other in base if _alike(compared_with(table, other), mine)]
    if len(same) > 1:
        same = [other for other in same if _options(table, other) == _options(table, place)]
    return same[0] if len(same) == 1 else None


def _alike(one: Key, other: Key) -> bool:
    """The same but for settings that mean nothing to one of them, as those of SimCLR to a selector without views."""
    return all(a == b or ABSENT in (a, b) for a, b in zip(one, other, strict=True))


def _options(table: Table, place: Place) -> list[tuple[str, object]]:
    named = zip(table.axes, (*place[0], *place[1]), strict=True)
    return [(name, value) for name, value in named if name != "selector" and name != "method"]


def _test(cell: Cell, other: Cell) -> Paired:
    both = [key for key in cell.values if key in other.values]
    pairs = [(cell.values[key], other.values[key]) for key in both]
    pairs = [pair for pair in pairs if not any(map(math.isnan, pair))]
    return paired_test([mine for mine, _ in pairs], [yours for _, yours in pairs])
