"""How pictures look, and how they are written: for print, and for eyes that do not tell all colours apart."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..files import check_place, write_atomically

# Okabe and Ito, less their yellow, which does not show on paper; black comes last
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DARK = ("#0072B2", "#D55E00", "#009E73", "#000000")  # those that bear white letters
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")
LINES = ("-", "--", ":", "-.")
ENDINGS = (".png", ".pdf", ".svg")
GREY = "0.4"
# a selector looks the same in every picture: single-view methods on another view are the hollow form of themselves.
# Others take the places that these leave free.
PLACES = {
    "mers": 0,
    "maxherding": 1,
    "probcover": 2,
    "mers-probcover": 3,
    "herding": 4,
    "teal": 5,
    "random": 6,
    "rainbow": 7,
    "maxherding:simclr": 8,
    "probcover:simclr": 9,
    "closest": 10,
    "mers-pure": 11,
}


def check_picture(path: str | Path) -> Path:
    """Refuse what no picture can be written to, before the work."""
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise ValueError(f"a picture must end in {', '.join(ENDINGS)}, got {path}")
    check_place(path)
    return path


def new_figure(width: float, height: float, layout: str | None = "constrained") -> Any:
    """A figure in inches, with no window and no state that others share."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("a picture needs matplotlib; pip install keepset[plots]") from None
    figure = Figure(figsize=(width, height), layout=layout)  # type: ignore[arg-type]
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: str | Path, dots: int = 200) -> None:
    """As the path's ending says, whole or not at all."""
    path = check_picture(path)
    write_atomically(path, lambda file: figure.savefig(file, dpi=dots, format=path.suffix[1:]))


def places(names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """A place in the colours and markers for each (selector, label): a selector's own, or else the first one free.

    Of several lines of a selector the one that is called like it has its own place, or else the first.
    """
    found: dict[tuple[str, str], int] = {}
    later = []
    for name in sorted(names, key=lambda name: name[0] != name[1]):
        own = PLACES.get(name[0])
        if own is None or own in found.values():
            later.append(name)
        else:
            found[name] = own
    free = (place for place in range(len(found) + len(later) + len(PLACES)) if place not in set(found.values()))
    return {**found, **dict(zip(later, list(free), strict=False))}


def look(place: int) -> dict[str, Any]:
    """Colour and mark of a place; where a colour comes again, the marks are hollow and of another shape."""
    colour = COLOURS[place % len(COLOURS)]
    face = "white" if place // len(COLOURS) % 2 else colour
    return {"color": colour, "marker": MARKERS[place % len(MARKERS)], "markerfacecolor": face, "markersize": 5}


def short(name: str, most: int = 18) -> str:
    """A path, say, by its end."""
    return name if len(name) <= most else "…" + name[1 - most :]


def wrapped(label: str, width: int = 26) -> str:
    """In lines with room beside a panel; views are told apart at their plus."""
    lines = textwrap.wrap(short(label, 128).replace("+", "+ "), width, break_on_hyphens=False)
    return "\n".join(line.replace("+ ", "+") for line in lines)


def title(figure: Any, parts: Sequence[str]) -> None:
    """Above everything, in as many lines as it takes."""
    width = int(figure.get_size_inches()[0] * 14)  # letters of this size
    text = "\n".join(textwrap.wrap(", ".join(parts), width))
    figure.suptitle(text, fontsize=9.5, x=0.012, ha="left")


def beginning(name: str, most: int) -> str:
    """What is too long, by its start."""
    return name if len(name) <= most else name[: most - 1] + "…"


def head(axes: Any, title: str, columns: int = 3) -> None:
    """The title, and below it the legend, where it can hide no mark."""
    names = axes.get_legend_handles_labels()[1]
    rows = math.ceil(len(names) / columns)
    axes.set_title(title, fontsize=10, loc="left", pad=6 + 13 * rows)
    if names:
        place = {"loc": "lower left", "bbox_to_anchor": (-0.02, 0.98), "borderaxespad": 0.2}
        axes.legend(frameon=False, fontsize=8, ncols=columns, handletextpad=0.4, columnspacing=1.2, **place)


def tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(9)
