"""Selectors less one of them, pair by pair, drawn: every seed, the mean, and its 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .axes import TOLD, Key, of_selection, usual_axes
from .fields import ABSENT
from .pairs import compare
from .sheets import said, settings_told
from .statistics import Paired
from .stored import Record
from .style import COLOURS, GREY, beginning, new_figure, tidy, title, wrapped
from .tables import LOWER_IS_BETTER, tabulate

Panel = Mapping[Key, Paired]
WIDTH = 36  # letters beside the panels


def draw_differences(records: Sequence[Record], metric: str, against: str) -> Any:
    """A panel for each capacity; the best in the first one on top."""
    axes = usual_axes(records)
    if axes[1] != ("capacity",):
        axes = axes[1], axes[0]  # selectors below each other
    table = tabulate(records, metric, *axes)
    if table.varying:
        told = ", ".join(f"{name} ({', '.join(map(str, values))})" for name, values in table.varying.items())
        raise ValueError(f"the runs differ in {told}; choose among them with --where")
    tests = {place: test for place, test in compare(table, against).items() if not math.isnan(test.difference)}
    if not tests:
        raise ValueError(f"there is nothing to compare {against} with: no other selector has a run with its seeds")
    panels: dict[Key, Panel] = {
        column: {row: tests[row, column] for row in table.rows if (row, column) in tests} for column in table.columns
    }
    panels = {column: panel for column, panel in panels.items() if panel}
    rows = _in_order(panels, -1 if table.metric in LOWER_IS_BETTER else 1)
    names = [_name(table.row_fields, row) for row in rows]
    lines = sum(name.count("\n") + 1 for name in names)
    figure = new_figure(2.6 + 2.9 * len(panels), 1.3 + 0.19 * lines + 0.14 * len(rows))
    row = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    heights = _heights(names)
    for part, (column, panel) in zip(row, panels.items(), strict=True):
        _draw_panel(part, {heights[i]: panel[name] for i, name in enumerate(rows) if name in panel})
        part.set_title(said(*table.column_fields, *column), fontsize=9, loc="left")
        part.set_xlabel(f"{table.metric} less that of {against} (points)")
        tidy(part)
    row[0].set_yticks(heights, names)
    row[0].set_ylim(heights[-1] - max(0.8, _room(names[-1]) / 2), heights[0] + max(0.8, _room(names[0]) / 2))
    key = "dots are seeds, bars 95 % intervals of the mean, blue where 0 lies outside"
    title(figure, [*settings_told(table), key])
    return figure


def _in_order(panels: Mapping[Key, Panel], sign: int) -> list[Key]:
    """By the difference where a row is first there."""
    first = {row: panel[row].difference for panel in reversed(list(panels.values())) for row in panel}
    return sorted(first, key=lambda row: -sign * first[row])


def _name(fields: Sequence[str], row: Key) -> str:
    """The selector, then what else tells its runs from those of other rows: below it where both are too long."""
    given = {name: value for name, value in zip(fields, row, strict=True) if value != ABSENT}
    selector = " ".join(said(name, value) for name, value in given.items() if of_selection(name))
    others = sorted((name for name in given if not of_selection(name)), key=_place)
    settings = [beginning(said(name, given[name]), WIDTH - 1) for name in others]  # with a comma behind it
    whole = ", ".join([selector, *settings])
    if not settings or len(whole) <= WIDTH:
        return wrapped(whole, WIDTH)
    unbroken = ", ".join(setting.replace(" ", "\u00a0") for setting in settings)
    return f"{wrapped(selector, WIDTH)}\n{wrapped(unbroken, WIDTH)}"


def _place(name: str) -> int:
    """As in the title."""
    return TOLD.index(name) if name in TOLD else len(TOLD)


def _heights(names: Sequence[str]) -> list[float]:
    """Where each name stands, from the top."""
    room = list(map(_room, names))
    return [-sum(room[:i]) - room[i] / 2 for i in range(len(room))]


def _room(name: str) -> float:
    """Of all its lines."""
    return 0.6 + 0.4 * (name.count("\n") + 1)


def _draw_panel(axes: Any, tests: Mapping[float, Paired]) -> None:
    axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    for height, test in tests.items():
        clear = test.low > 0 or test.high < 0
        colour = COLOURS[0] if clear else GREY
        if not math.isnan(test.low):
            axes.plot([test.low, test.high], [height] * 2, color=colour, linewidth=2.2, solid_capstyle="butt", zorder=2)
        below = [height - 0.26] * test.pairs
        axes.plot(test.differences, below, "o", color=colour, alpha=0.6, markersize=3.5, markeredgewidth=0, zorder=3)
        axes.plot([test.difference], [height], "D", color=colour, markersize=6, zorder=4)
    axes.grid(axis="x", linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)
