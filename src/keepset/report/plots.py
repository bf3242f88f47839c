"""Results drawn: against capacity, episode by episode, and the accuracy matrix of one run.

Every function returns a figure; style.save writes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..checks import check_choice
from ..metrics import NAMES
from .fields import counted
from .lines import Line, Points, against_capacity, by_episode, comparable, groups, of_the_paper, other_protocol
from .stored import Record
from .style import GREY, look, new_figure, places, tidy, title, wrapped

MOST_CELLS = 24  # episodes whose accuracies have room as numbers


def draw_capacity(
    records: Sequence[Record], metric: str = "FAA", *, line: str = "selector", paper: bool = False
) -> Any:
    """A metric against capacity: a line a selector (or a value of `line`), a band of one standard error over seeds.

    paper: what the paper prints for the same, dashed.
    """
    return _against_capacity(records, (metric,), line, paper)


def draw_forgetting(records: Sequence[Record], *, line: str = "selector", paper: bool = False) -> Any:
    """Stability and forgetting against capacity, side by side."""
    return _against_capacity(records, ("stability", "forgetting"), line, paper)


def _against_capacity(records: Sequence[Record], metrics: Sequence[str], line: str, paper: bool) -> Any:
    for metric in metrics:
        check_choice("metric", metric, NAMES)
    records = comparable(records, line, ("capacity",))
    drawn = {metric: against_capacity(records, metric, line) for metric in metrics}
    if not any(drawn.values()):
        raise ValueError(f"{metrics[0]} must have two episodes or more, got one; draw another metric")
    figure = new_figure(4.3 * len(metrics) + 2.1, 4.0)
    row = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, (metric, lines) in zip(row, drawn.items(), strict=True):
        printed = of_the_paper(records, metric, line) if paper else {}
        _draw_paper(axes, lines, printed)
        _draw_lines(axes, lines)
        everywhere = [*(each.points for each in lines), *printed.values()]
        _capacity_axis(axes, sorted({place for points in everywhere for place in points}))
        axes.set(xlabel="capacity |M|", ylabel=_told(metric))
        tidy(axes)
    _legend(row, line, other_protocol(records, line))
    title(figure, [*_fixed(records, line, ("dataset", "learner", "epochs")), _seeds(records, line, "capacity")])
    return figure


def draw_episodes(records: Sequence[Record], *, line: str = "selector") -> Any:
    """AA after each episode: a line a selector, a band of one standard error over seeds."""
    records = comparable(records, line, ())
    figure = new_figure(6.4, 4.0)
    axes = figure.subplots()
    _draw_lines(axes, by_episode(records, line))
    last = max(len(record.accuracy) for record in records)
    axes.set_xticks(range(1, last + 1, math.ceil(last / 20)))
    axes.set(xlabel="episodes learned", ylabel="average accuracy AA (per cent)")
    tidy(axes)
    _legend([axes], line, [])
    fixed = _fixed(records, line, ("dataset", "learner", "capacity", "epochs"))
    title(figure, [*fixed, _seeds(records, line, None)])
    return figure


def draw_matrix(records: Sequence[Record]) -> Any:
    """The accuracy matrix of one run: a row after each episode, a column for the episode that is tested."""
    if len(records) != 1:
        raise ValueError(f"a matrix is that of one run, got {len(records)}; choose it by --where, or name its folder")
    count = len(records[0].accuracy)
    table = np.full((count, count), np.nan)
    for number, row in enumerate(records[0].accuracy):
        table[number, : number + 1] = 100 * np.asarray(row)
    side = min(9.0, max(3.4, 1.0 + 0.42 * count))
    figure = new_figure(max(side, 4.4), side + 0.5)
    axes = figure.subplots()
    shades = axes.imshow(np.ma.masked_invalid(table), cmap="cividis", vmin=0, vmax=100)
    if count <= MOST_CELLS:
        _write_cells(axes, table)
    else:
        figure.colorbar(shades, ax=axes, label="accuracy (per cent)", shrink=0.8)
    _matrix_axes(axes, count)
    fixed = _fixed(records, "", ("dataset", "learner", "selector", "capacity", "epochs"))
    title(figure, [*fixed, f"seed {records[0]['seed']}"])
    return figure


def _matrix_axes(axes: Any, count: int) -> None:
    ticks = range(0, count, math.ceil(count / MOST_CELLS))
    names = [str(tick + 1) for tick in ticks]
    axes.set_xticks(ticks, names)
    axes.set_yticks(ticks, names)
    axes.set(xlabel="accuracy on episode (per cent)", ylabel="after episode")
    tidy(axes)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _write_cells(axes: Any, table: Any) -> None:
    size = 8 if len(table) <= 12 else 6
    for (down, along), value in np.ndenumerate(table):
        if not math.isnan(value):
            colour = "black" if value > 55 else "white"  # cividis is dark below
            axes.text(along, down, f"{value:.0f}", ha="center", va="center", fontsize=size, color=colour)


# ---------------------------------------------------------------- drawing


def _draw_lines(axes: Any, lines: Sequence[Line]) -> None:
    """Lines with marks, and bands of one standard error; where all are single points, bars side by side."""
    looks = places((each.selector, each.name) for each in lines)
    single = len({place for each in lines for place in each.points}) == 1
    for number, each in enumerate(lines):
        aside = 1 + 0.05 * (number - (len(lines) - 1) / 2) if single else 1.0
        along = [place * aside for place in each.points]
        means, errors = (np.array(column) for column in zip(*each.points.values(), strict=True))
        style = look(looks[each.selector, each.name])
        axes.plot(along, means, label=each.name, linewidth=1.4, zorder=3, **style)
        if len(along) > 1:
            spread = (means - errors, means + errors)
            axes.fill_between(along, *spread, color=style["color"], alpha=0.15, linewidth=0, zorder=2)
        elif not np.isnan(errors).any():
            axes.errorbar(along, means, errors, color=style["color"], linewidth=1, capsize=3, fmt="none", zorder=2)


def _draw_paper(axes: Any, lines: Sequence[Line], paper: Mapping[str, Points]) -> None:
    """The paper's curves behind ours, dashed, with small marks."""
    looks = places((each.selector, each.name) for each in lines)
    for each in lines:
        points = paper.get(each.name)
        if points:
            style = {**look(looks[each.selector, each.name]), "markersize": 3, "linestyle": "--", "linewidth": 1}
            axes.plot(list(points), [mean for mean, _ in points.values()], alpha=0.75, zorder=1, gid="paper", **style)


def _capacity_axis(axes: Any, capacities: Sequence[int]) -> None:
    """Logarithmic, with the real capacities below it, as many as have room."""
    axes.set_xscale("log")
    margin = max(1.08, (capacities[-1] / capacities[0]) ** 0.04) if len(capacities) > 1 else 1.5
    axes.set_xlim(capacities[0] / margin, capacities[-1] * margin)
    axes.set_xticks(capacities, with_room(capacities))
    axes.minorticks_off()


def with_room(capacities: Sequence[int], inches: float = 3.6) -> list[str]:
    """Labels on a logarithmic axis of that width, empty where the one before or the last stands too near.

    >>> with_room([100, 500, 510, 1000])
    ['100', '500', '', '1000']
    """
    widest = math.log(capacities[-1] / capacities[0]) or 1.0
    places = [inches * math.log(each / capacities[0]) / widest for each in capacities]
    need = 0.075 * len(str(capacities[-1])) + 0.06
    labels, before = [], -math.inf
    for number, (place, value) in enumerate(zip(places, capacities, strict=True)):
        last = number == len(places) - 1
        fits = place - before >= need and (last or places[-1] - place >= need)
        labels.append(str(value) if fits or last or number == 0 else "")
        before = place if labels[-1] else before
    return labels


def _told(metric: str) -> str:
    lower = ", lower is better" if metric == "forgetting" else ""
    return f"{metric} (per cent{lower})"


def _legend(row: Sequence[Any], line: str, other: Sequence[str]) -> None:
    """Beside the panels, where it hides nothing; the paper's lines have one entry together."""
    from matplotlib.lines import Line2D

    found: dict[str, Any] = {}
    for axes in row:
        handles, labels = axes.get_legend_handles_labels()
        found |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in found}
    if any(each.get_gid() == "paper" for axes in row for each in axes.get_lines()):
        name = f"paper (here: {', '.join(other)})" if other else "paper"
        found[name] = Line2D([], [], color=GREY, linestyle="--", linewidth=1)
    shown = [wrapped(label) for label in found]
    title = None if line in ("selector", "variant") else line
    looks = {"frameon": False, "fontsize": 8, "title_fontsize": 8, "alignment": "left", "borderaxespad": 0}
    row[-1].legend(list(found.values()), shown, loc="upper left", bbox_to_anchor=(1.03, 1), title=title, **looks)


def _fixed(records: Sequence[Record], line: str, names: Sequence[str]) -> list[str]:
    """What all runs share, in words."""
    first = records[0]
    words = {"capacity": f"|M| = {first['capacity']}", "epochs": f"{counted(first['epochs'], 'epoch')} an episode"}
    also = () if line in ("selector", "method", "variant") or "selector" in names else ("selector",)
    also = ("method",) if line == "views" else also  # the selector would name the views of the first line
    found = [words.get(name, str(first[name])) for name in (*names, *also) if name != line]
    return [*found, *([] if first["order"] == "canonical" or line == "order" else [f"class order {first['order']}"])]


def _seeds(records: Sequence[Record], line: str, axis: str | None) -> str:
    """How many runs a mark is the mean of."""
    counts: dict[Any, int] = {}
    for name, group in groups(records, line).items():
        for record in group:
            place = name, record[axis] if axis else None
            counts[place] = counts.get(place, 0) + 1
    low, high = min(counts.values()), max(counts.values())
    if high == 1:
        return "one seed"
    return f"mean ± standard error of {high if low == high else f'{low} to {high}'} seeds"
