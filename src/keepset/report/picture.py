"""A diagnosis drawn: four panels, for print and for eyes that do not tell all colours apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .findings import Pool
from .style import COLOURS, LINES, MARKERS, check_picture, head, new_figure, save, short, tidy

RULES = ("printed", "inverse", "density")  # equal is 1 everywhere
NAMED = 12  # classes whose names have room below an axis


def draw(pools: Sequence[Pool], path: str | Path, title: str = "") -> None:
    """Write a picture of the classes (or of one pool) as .png, .pdf or .svg, by the path's ending.

    Spread of the variance over directions, the ratio of weights, shared neighbours, and the KL term.
    """
    check_picture(path)
    if not pools:
        raise ValueError("pools must hold at least one pool, got none")
    figure = new_figure(8.6, 6.4)
    panels: list[Callable[[Any, Sequence[Pool]], None]] = [_variance, _divergence, _ratios, _overlap]
    if not pools[0].pairs:
        panels = panels[:2]
        figure.set_size_inches(8.6, 3.4)
    for axes, panel in zip(figure.subplots(len(panels) // 2, 2).flat, panels, strict=True):
        panel(axes, pools)
        tidy(axes)
    if title:
        figure.suptitle(title, fontsize=11)
    save(figure, path)


# ---------------------------------------------------------------- panels


def _variance(axes: Any, pools: Sequence[Pool]) -> None:
    """Share of the variance in the first directions: the median over the classes, and the middle half as a band."""
    longest = max(len(view.spectrum) for pool in pools for view in pool.views)
    along = np.arange(1, longest + 1)
    for place, view in enumerate(pools[0].views):
        sums = [np.cumsum(pool.views[place].spectrum) for pool in pools if pool.views[place].rank]
        if not sums:
            continue
        table = 100 * np.stack([np.pad(each, (0, longest - len(each)), mode="edge") for each in sums])
        low, middle, high = np.percentile(table, (25, 50, 75), axis=0)
        style = {"color": COLOURS[place % 6], "marker": MARKERS[place % 6], "linestyle": LINES[place % 4]}
        marks = sorted({int(2**power) - 1 for power in range(16) if 2**power <= longest})
        axes.plot(along, middle, label=short(view.name), markevery=marks, markersize=4.5, linewidth=1.3, **style)
        axes.fill_between(along, low, high, color=COLOURS[place % 6], alpha=0.2, linewidth=0)
    axes.set_xscale("log", base=2)
    ticks = [2**power for power in range(0, 16, 1 if longest < 128 else 2) if 2**power <= longest]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 102)
    axes.set(xlabel="directions", ylabel="per cent of the variance")
    head(axes, "Variance in the first directions")


def _divergence(axes: Any, pools: Sequence[Pool]) -> None:
    """The KL term by class and view."""
    series = []
    for place, view in enumerate(pools[0].views):
        series.append((short(view.name), [pool.views[place].kl for pool in pools]))
    found = _points(axes, pools, series)
    _log_axis(axes, found, [])
    directions = sorted({pool.directions for pool in pools if pool.directions})
    told = f" ({directions[0]} directions)" if len(directions) == 1 else ""
    axes.set_ylabel(f"KL{told}")
    head(axes, "KL term: distance from an even spread")


def _ratios(axes: Any, pools: Sequence[Pool]) -> None:
    """β by class in each weighting; with several other views, the first of them has the filled marks."""
    series = []
    pairs = pools[0].pairs
    for place, pair in enumerate(pairs):
        for rule in RULES:
            name = rule if len(pairs) == 1 else f"{rule}, {short(pair.second)}"
            series.append((name, [pool.pairs[place].ratios[rule] for pool in pools]))
    found = _points(axes, pools, series, first=2, hollow_from=len(RULES))  # not the colours of the views
    axes.axhline(1, color="0.4", linewidth=0.8)
    _log_axis(axes, found, [1.0])
    below = pairs[0].second if len(pairs) == 1 else "other view"
    axes.set_ylabel(f"{short(pairs[0].first)} / {short(below)}")
    head(axes, "Ratio of weights β (Eq. 6)")


def _overlap(axes: Any, pools: Sequence[Pool]) -> None:
    """Shared neighbours by class, with what chance would give."""
    series = []
    for place, pair in enumerate(pools[0].pairs):
        shared = [None if (found := pool.pairs[place].overlap) is None else 100 * found for pool in pools]
        series.append((short(pair.second), shared))
    _points(axes, pools, series, first=1)
    chance = [math.nan if (found := pool.pairs[0].chance) is None else 100 * found for pool in pools]
    along = np.repeat(np.arange(len(pools)), 2) + np.tile([-0.5, 0.5], len(pools))
    axes.plot(along, np.repeat(chance, 2), color="0.4", linewidth=1, linestyle="--", label="by chance")
    axes.set_ylim(0, 103)  # a mark at 100 is not cut
    axes.set_ylabel("per cent shared")
    head(axes, f"Neighbours shared with {short(pools[0].pairs[0].first)}")


# ---------------------------------------------------------------- what panels share


def _points(
    axes: Any,
    pools: Sequence[Pool],
    series: Sequence[tuple[str, Sequence[float | None]]],
    *,
    first: int = 0,
    hollow_from: int = 6,
) -> list[float]:
    """A mark for each class and series, and the classes below; returns the values drawn."""
    size = 5.0 if len(pools) <= 2 * NAMED else 3.0
    drawn: list[float] = []
    for number, (name, values) in enumerate(series):
        heights = [math.nan if value is None or not math.isfinite(value) else value for value in values]
        drawn += [height for height in heights if not math.isnan(height)]
        place = (first + number % hollow_from) % 6
        face = "none" if number >= hollow_from else COLOURS[place]
        style = {"marker": MARKERS[place], "color": COLOURS[place], "markerfacecolor": face, "markersize": size}
        aside = 0.14 * (number - (len(series) - 1) / 2)  # marks of one class do not hide each other
        axes.plot(np.arange(len(pools)) + aside, heights, linestyle="none", label=name, **style)
    labels = ["all points" if pool.label is None else str(pool.label) for pool in pools]
    if len(pools) <= NAMED:
        long = len(labels) > 1 and max(map(len, labels)) > 4
        axes.set_xticks(range(len(pools)), labels, rotation=35 if long else 0, ha="right" if long else "center")
    else:
        axes.set_xticks([])
    axes.set_xlim(-0.6, len(pools) - 0.4)
    if pools[0].label is not None:
        axes.set_xlabel("class" if len(pools) <= NAMED else f"{len(pools)} classes, in order")
    return drawn


def _log_axis(axes: Any, values: Sequence[float], also: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers, as many as have room."""
    shown = [value for value in (*values, *also) if value > 0]
    if not shown:
        return
    margin = max(1.15, (max(shown) / min(shown)) ** 0.07)  # so that no mark is cut
    low, high = min(shown) / margin, max(shown) * margin
    axes.set_yscale("log")
    wide = math.log10(high / low)
    steps: tuple[float, ...] = (
        (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8) if wide < 0.6 else (1, 2, 5) if wide < 2 else (1,)
    )
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1, math.ceil(wide / 6))
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    ticks = [tick for tick in ticks if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(low, high)
