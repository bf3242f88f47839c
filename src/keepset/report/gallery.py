"""What runs kept, to look at: the images class by class in the order picked, and where they lie in each view."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from .maps import flat_map
from .style import DARK, GREY, MARKERS, beginning, look, new_figure, places, short

Values = np.ndarray[Any, Any]

# inches
TILE, CELL = 0.42, 0.56  # an image's side, and its height with the number below it
MARGIN, GAP, TOP, HEADING, FOOT = 0.25, 0.3, 0.4, 0.26, 0.4
TEXT_LINE = 0.175  # of the title and the runs' names
MAP, MAP_TITLE, LEAST_MAP = 2.0, 0.24, 1.7
WIDTH = 20 * TILE  # of all columns together, if they have room in it
MOST_RUNS = 6
MOST_LINES = 4  # of a run's name
LEAST = 6  # images in a line


@dataclass(frozen=True, eq=False)
class Kept:
    """What one run kept: class -> rows of the training images in the order picked; and what it saw, if it is known."""

    name: str
    picks: Mapping[int, Sequence[int]]
    rows: Mapping[int, Tensor] = field(default_factory=dict)
    """Class -> (n,) rows of all images of the class."""
    views: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)
    """Class -> view -> (n, d) features of the same images."""
    selector: str = ""
    """Has the colour that it has in other pictures."""


def alone(runs: Sequence[Kept], place: int, label: int) -> set[int]:
    """The rows of a class that only this run kept; none where it is the only run."""
    if len(runs) == 1:
        return set()
    others = {row for number, run in enumerate(runs) if number != place for row in run.picks[label]}
    return set(runs[place].picks[label]) - others


def colours(runs: Sequence[Kept]) -> list[str]:
    """A colour for each run."""
    found = places((run.selector, run.name) for run in runs)
    return [look(found[run.selector, run.name])["color"] for run in runs]


def draw_gallery(
    runs: Sequence[Kept],
    classes: Sequence[int],
    *,
    images: Tensor | None = None,
    names: Sequence[str] | None = None,
    most: int = 20,
    title: str = "",
) -> Any:
    """A figure: a column a run, a block a class. images: (n, channels, height, width) uint8, all training images.

    Without images the rows' numbers stand in their places; without views there are no maps. An image that only one of
    the runs kept is framed, and its mark in the maps is filled.
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ValueError(f"runs must be 1 to {MOST_RUNS}, which have room side by side, got {len(runs)}; name fewer")
    if not classes:
        raise ValueError("classes must name at least one class, got none")
    plan = _plan(runs, classes, most, title)
    figure = new_figure(plan.width, plan.height, layout=None)
    _heads(figure, plan, runs)
    down = plan.height - plan.top
    for label, lines in zip(classes, plan.lines, strict=True):
        _class_name(figure, plan, down, label, names)
        for place in range(len(runs)):
            shown = _Column(runs, place, label, most)
            _images(_axes(figure, plan.left(place), down - HEADING, plan.column, lines * CELL), shown, images, plan)
            _how_many(figure, plan, place, down, shown)
            if plan.views:
                _maps(figure, plan, down - HEADING - lines * CELL, shown)
        down -= plan.block(lines)
    _foot(figure, plan, len(runs), images is not None)
    return figure


# ---------------------------------------------------------------- layout


@dataclass(frozen=True)
class _Plan:
    """Where things stand, in inches from the left and from the bottom."""

    width: float
    height: float
    column: float
    a_line: int
    lines: tuple[int, ...]
    views: tuple[str, ...]
    title: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    """A run's, in lines."""

    @property
    def top(self) -> float:
        return TOP + TEXT_LINE * (len(self.title) + max(map(len, self.names)))

    def left(self, place: int) -> float:
        return MARGIN + place * (self.column + GAP)

    def block(self, lines: int) -> float:
        return HEADING + lines * CELL + (MAP_TITLE + MAP + GAP if self.views else 0.1)


@dataclass(frozen=True, eq=False)
class _Column:
    """One run's part of a class."""

    runs: Sequence[Kept]
    place: int
    label: int
    most: int

    @property
    def rows(self) -> list[int]:
        return list(self.runs[self.place].picks[self.label][: self.most])

    @property
    def alone(self) -> set[int]:
        return alone(self.runs, self.place, self.label)

    @property
    def colour(self) -> str:
        return colours(self.runs)[self.place]


def _plan(runs: Sequence[Kept], classes: Sequence[int], most: int, title: str) -> _Plan:
    views = tuple(dict.fromkeys(name for run in runs for label in classes for name in run.views.get(label, ())))
    shown = {label: max(min(most, len(run.picks[label])) for run in runs) for label in classes}
    column = max(LEAST * TILE, LEAST_MAP * len(views), WIDTH / len(runs))
    a_line = max(1, min(int(column / TILE + 0.01), max(shown.values())))
    lines = tuple(max(1, math.ceil(count / a_line)) for count in shown.values())
    width = 2 * MARGIN + len(runs) * (column + GAP) - GAP
    words = tuple(textwrap.wrap(title, int((width - 2 * MARGIN) * 13)) or [""])  # letters of this size
    names = tuple(_in_lines(run.name, int(column / 0.093)) for run in runs)
    plan = _Plan(width, 0.0, column, a_line, lines, views, words, names)
    return replace(plan, height=plan.top + sum(map(plan.block, lines)) + FOOT)


def _in_lines(name: str, room: int) -> tuple[str, ...]:
    """A name in a few lines, so that its end, which may be what tells it from the others, is there."""
    whole = name.replace(" = ", "\u00a0=\u00a0")  # |M| = 20 stays in a line
    lines = textwrap.wrap(whole, room, break_on_hyphens=False) or [""]
    rest = " ".join(lines[MOST_LINES - 1 :])
    return tuple(lines) if len(lines) <= MOST_LINES else (*lines[: MOST_LINES - 1], short(rest, room))


def _axes(figure: Any, left: float, top: float, width: float, height: float) -> Any:
    across, up = figure.get_size_inches()
    return figure.add_axes((left / across, (top - height) / up, width / across, height / up))


def _write(figure: Any, left: float, up: float, text: str, **looks: Any) -> None:
    across, high = figure.get_size_inches()
    figure.text(left / across, up / high, text, **looks)


def _heads(figure: Any, plan: _Plan, runs: Sequence[Kept]) -> None:
    _write(figure, MARGIN, plan.height - 0.12, "\n".join(plan.title), fontsize=10, va="top")
    down = plan.height - 0.245 - TEXT_LINE * len(plan.title)
    for place, name in enumerate(plan.names):
        looks = {"fontsize": 10, "fontweight": "bold", "color": colours(runs)[place], "va": "top"}
        _write(figure, plan.left(place), down, "\n".join(name), **looks)


def _class_name(figure: Any, plan: _Plan, down: float, label: int, names: Sequence[str] | None) -> None:
    name = str(label) if names is None else names[label]
    text = f"class {label}" if name == str(label) else f"class {label}: {name}"
    _write(figure, MARGIN, down - 0.06, beginning(text, int((plan.column - 1.8) / 0.072)), fontsize=9, va="top")


def _how_many(figure: Any, plan: _Plan, place: int, down: float, shown: _Column) -> None:
    kept = len(shown.runs[place].picks[shown.label])
    text = f"{kept} kept" if kept <= shown.most else f"the first {shown.most} of {kept} kept"
    text += f", {len(shown.alone)} alone" if len(shown.runs) > 1 else ""
    right = plan.left(place) + plan.column
    _write(figure, right, down - 0.06, text, fontsize=7.5, color=GREY, va="top", ha="right")


def _foot(figure: Any, plan: _Plan, runs: int, images: bool) -> None:
    said = ["numbers: the order of the picks" if images else "numbers: the order of the picks, and inside the rows"]
    if runs > 1:
        said.append(f"framed{', and filled in the maps' if plan.views else ''}: kept by this run alone")
    if plan.views:
        said.append(
            "maps: the unit vectors of the class along their two main directions (with their share of the variance)"
        )
    if plan.views and runs > 1:
        said.append("*: as the first run that kept this view saw it")
    text = textwrap.wrap("; ".join(said), int((plan.width - 2 * MARGIN) * 18))  # letters of this size
    _write(figure, MARGIN, 0.08, "\n".join(text), fontsize=7, color=GREY, va="bottom")


# ---------------------------------------------------------------- images


def _images(axes: Any, shown: _Column, images: Tensor | None, plan: _Plan) -> None:
    """The kept images in reading order, on cells of TILE × CELL."""
    axes.set(xlim=(0, plan.column), ylim=(axes.get_position().height * plan.height, 0))
    axes.axis("off")
    axes.set_gid(f"images {shown.label}")
    for number, row in enumerate(shown.rows):
        left, top = TILE * (number % plan.a_line), CELL * (number // plan.a_line)
        box = _box(None if images is None else images[row], left, top)
        if images is None:
            axes.text(left + TILE / 2, top + TILE / 2, str(row), fontsize=6, ha="center", va="center")
        else:
            axes.imshow(_pixels(images[row]), extent=(box[0], box[1], box[3], box[2]), aspect="auto", **_GREYS)
        _frame(axes, box, shown.colour if row in shown.alone else None)
        axes.text(left + TILE / 2, top + TILE + 0.01, str(number + 1), fontsize=5.5, color=GREY, ha="center", va="top")
    axes.set(xlim=(0, plan.column), ylim=(axes.get_position().height * plan.height, 0))  # imshow moves them


_GREYS = {"cmap": "gray", "vmin": 0, "vmax": 255, "interpolation": "nearest"}


def _box(image: Tensor | None, left: float, top: float) -> tuple[float, float, float, float]:
    """Left, right, top and bottom of an image in its cell, in its own proportions."""
    side = TILE - 0.06
    high, wide = (1, 1) if image is None else image.shape[-2:]
    half_wide, half_high = side / 2 * wide / max(high, wide), side / 2 * high / max(high, wide)
    middle, centre = left + TILE / 2, top + TILE / 2
    return middle - half_wide, middle + half_wide, centre - half_high, centre + half_high


def _pixels(image: Tensor) -> Values:
    """(height, width) of a grey image, (height, width, 3) of a coloured one; the mean of any other channels."""
    found = image.cpu().permute(1, 2, 0) if len(image) == 3 else image.cpu().float().mean(0)
    return np.asarray(found)


def _frame(axes: Any, box: tuple[float, float, float, float], colour: str | None) -> None:
    """Thick and coloured around what one run alone kept; thin and grey around the rest."""
    from matplotlib.patches import Rectangle

    looks: dict[str, Any] = {"edgecolor": colour or "0.75", "linewidth": 2.2 if colour else 0.5}
    looks["gid"] = "alone" if colour else "shared"
    axes.add_patch(Rectangle((box[0], box[2]), box[1] - box[0], box[3] - box[2], fill=False, clip_on=False, **looks))


# ---------------------------------------------------------------- maps


def _maps(figure: Any, plan: _Plan, top: float, shown: _Column) -> None:
    """A map a view, with the run's picks in it."""
    width = plan.column / len(plan.views)
    for number, view in enumerate(plan.views):
        owner = _owner(shown, view)
        if owner is not None:
            left = plan.left(shown.place) + number * width
            axes = _axes(figure, left, top - MAP_TITLE, width - 0.08, MAP)
            _map(axes, shown, owner, view)


def _owner(shown: _Column, view: str) -> Kept | None:
    """Whose features are drawn: the run's own, or those of the first run that kept the view."""
    own = shown.runs[shown.place]
    having = [run for run in (own, *shown.runs) if view in run.views.get(shown.label, ())]
    return having[0] if having else None


def _map(axes: Any, shown: _Column, owner: Kept, view: str) -> None:
    points, share = flat_map(owner.views[shown.label][view])
    where = {int(row): place for place, row in enumerate(owner.rows[shown.label].tolist())}
    axes.scatter(*points.T, s=7, color="0.78", linewidths=0, gid="points")
    for number, row in enumerate(shown.rows, start=1):
        _pick(axes, points[where[row]], number, shown, row in shown.alone)
    axes.set(xticks=[], yticks=[], gid=f"map {shown.label} {view}")
    axes.margins(0.09)
    axes.set_aspect("equal", adjustable="datalim")  # near is near in both directions
    axes.spines[:].set(color="0.8", linewidth=0.6)
    borrowed = "" if owner is shown.runs[shown.place] else "*"
    axes.set_title(f"{short(view)}{borrowed} ({100 * share:.0f}%)", fontsize=7.5, loc="left", pad=3)


def _pick(axes: Any, point: Values, number: int, shown: _Column, only: bool) -> None:
    """A numbered mark: filled where this run alone kept the image, white where others did too."""
    single = len(shown.runs) == 1
    face = shown.colour if only or single else "white"
    looks: dict[str, Any] = {"markeredgecolor": shown.colour, "markerfacecolor": face, "markeredgewidth": 1.0}
    looks |= {
        "marker": MARKERS[0 if only or single else 1],
        "zorder": 100 - number,
        "gid": "alone" if only else "shared",
    }
    large = len(shown.rows) <= 15
    axes.plot(*point, markersize=7.5 if large else 6, linestyle="none", **looks)  # the first picked on top
    dark = face in DARK
    words = {
        "fontsize": 5 if large else 4,
        "ha": "center",
        "va": "center_baseline",
        "color": "white" if dark else "black",
    }
    axes.text(*point, str(number), zorder=100 - number, **words)
