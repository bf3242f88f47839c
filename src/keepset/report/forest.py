"""Claims drawn: below each other what was claimed, and in a panel for each metric what the runs say."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from .claims import DOES_NOT, HOLDS, NOT_SHOWN, NOT_TESTED
from .evidence import Evidence
from .style import COLOURS, GREY, beginning, new_figure, tidy, title
from .tables import LOWER_IS_BETTER
from .verdicts import other_protocol, scope

COLOUR = {HOLDS: COLOURS[0], DOES_NOT: COLOURS[1], NOT_SHOWN: GREY}
WIDTH = 44  # letters beside the panels


def draw_claims(found: Sequence[Evidence]) -> Any:
    """All pairs of a claim together: mean and 95 % interval in the verdict's colour, and the paper's difference."""
    metrics = list(dict.fromkeys(metric for each in found for metric in each.claim.metrics))
    told = [beginning(f"{number}. {each.claim.says}", 4 * WIDTH) for number, each in enumerate(found, 1)]
    names = ["\n".join(textwrap.wrap(each, WIDTH, break_on_hyphens=False)) for each in told]
    room = [0.6 + 0.5 * (name.count("\n") + 1) for name in names]
    heights = [-sum(room[:i]) - room[i] / 2 for i in range(len(room))]
    figure = new_figure(3.3 + 1.9 * len(metrics), 1.2 + 0.24 * sum(room))
    panels = figure.subplots(1, len(metrics), squeeze=False, sharey=True)[0]
    for metric, axes in zip(metrics, panels, strict=True):
        rows = {height: each for height, each in zip(heights, found, strict=True) if metric in each.claim.metrics}
        _draw_metric(axes, metric, rows)
    panels[0].set_yticks(heights, names)
    panels[0].set_ylim(-sum(room), 0)
    for label, each in zip(panels[0].get_yticklabels(), found, strict=True):
        label.set_parse_math(False)
        label.set_color(GREY if each.sentence == NOT_TESTED else "black")
    key = "differences in points with 95 % intervals: blue holds, orange does not, grey is not shown"
    printed = any(not math.isnan(value) for each in found for value in each.together.printed.values())
    rings = "rings are the paper's" + (", of another protocol" if other_protocol(found) else "")
    title(figure, [*scope(found), key, *([rings] if printed else [])])
    return figure


def _draw_metric(axes: Any, metric: str, rows: Mapping[float, Evidence]) -> None:
    axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    for height, each in rows.items():
        test, printed = each.together.tests[metric], each.together.printed[metric]
        if each.claim.within is not None:
            axes.plot(
                [-each.claim.within, each.claim.within],
                [height] * 2,
                color="0.88",
                linewidth=9,
                solid_capstyle="butt",
                zorder=0,
            )
        if test.pairs:
            colour = COLOUR[each.claim.verdict(metric, test)]
            axes.plot([test.low, test.high], [height] * 2, color=colour, linewidth=2.2, solid_capstyle="butt", zorder=2)
            axes.plot([test.difference], [height], "D", color=colour, markersize=5, zorder=4)
        if not math.isnan(printed):
            axes.plot([printed], [height], "o", markeredgecolor="black", markerfacecolor="none", markersize=7, zorder=3)
    axes.set_title(f"{metric}{', less is better' if metric in LOWER_IS_BETTER else ''}", fontsize=9, loc="left")
    axes.grid(axis="x", linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)
    tidy(axes)
