"""keepset select: from embeddings on disk to the points to keep."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import named_arrays
from .console import say, show_table, warn

if TYPE_CHECKING:
    from ..selection import Selection

Option = typer.Option


def select(
    views: Annotated[list[str], typer.Argument(metavar="VIEW", help="Files .npy, .npz[:key] or .safetensors[:key].")],
    budget: Annotated[str, Option(help="Points to keep: a number, or by class: cat=5,dog=3.")],
    labels: Annotated[str | None, Option(help="File with a label a point: choose within each class.")] = None,
    method: Annotated[str, Option(help="A selector of keepset ls.")] = "mers",
    output: Annotated[
        Path | None, Option("-o", "--output", help="Write .npy, .csv or .json; none: a table here.")
    ] = None,
    seed: Annotated[int, Option(help="Seed of all that is random.")] = 0,
    view: Annotated[str | None, Option(help="The view of a single-view method (a file's name without ending).")] = None,
    start: Annotated[str | None, Option(help="File with indices already kept; they count as covered.")] = None,
    weights: Annotated[str | None, Option(help="printed, inverse, density, equal, or 2,1 or a=2,b=1.")] = None,
    neighbours: Annotated[int | None, Option(help="k; points / budget if not given.")] = None,
    bandwidth: Annotated[str | None, Option(help="median, episode, knn, a number, or a=0.2,b=0.3.")] = None,
    bandwidth_scale: Annotated[float | None, Option(help="A factor on every bandwidth.")] = None,
    metric: Annotated[str | None, Option(help="cosine, euclidean or literal.")] = None,
    kernel: Annotated[str | None, Option(help="rbf, laplace or tophat.")] = None,
    fusion: Annotated[str | None, Option(help="sum-then-max or max-then-sum.")] = None,
    uncovered: Annotated[str | None, Option(help="each or shared (hard cover).")] = None,
    point_weights: Annotated[
        str | None, Option(help="What covering a point is worth: a file with a number a point, purity or density.")
    ] = None,
    point_power: Annotated[float | None, Option(help="The power of purity or density; 2 if not given.")] = None,
    purity_view: Annotated[str | None, Option(help="The view that purity looks at; the last if not given.")] = None,
    uncertainty: Annotated[str | None, Option(help="File with a number a point, for rainbow.")] = None,
) -> None:
    """Choose the points to keep, from embeddings on disk.

    \b
    Examples:
      keepset select supervised.npy simclr.npy --labels y.npy --budget 5 -o keep.npy
      keepset select features.npz:pooled --budget 100 --method maxherding
      keepset select a.safetensors:x b.safetensors:x --budget 20 --weights 2,1 -o keep.csv
      keepset select a.npy --labels y.npy --budget cat=5,dog=3 --method herding -o keep.json
    """
    from ..files import read_array

    _check_output(output)
    named = named_arrays(views)
    given = {
        "view": view,
        "weights": _by_name(weights, alone=list),
        "neighbours": neighbours,
        "bandwidth": _by_name(bandwidth, alone=float),
        "bandwidth_scale": bandwidth_scale,
        "metric": metric,
        "kernel": kernel,
        "fusion": fusion,
        "uncovered": uncovered,
        "point_weights": _rule_or_array(point_weights),
        "point_power": point_power,
        "purity_view": purity_view,
        "uncertainty": uncertainty and read_array(uncertainty)[1],
        "start": start and read_array(start)[1],
    }
    options = {name: value for name, value in given.items() if value is not None}
    chosen = _choose(named, labels, budget, {"method": method, "generator": seed, **options})
    if output is None:
        _show(chosen)
    else:
        _write(output, chosen)


# ---------------------------------------------------------------- reading the arguments


def _by_name(text: str | None, alone: type) -> Any:
    """`median`, `0.3`, `2,1` or `a=2,b=1` as a string, a number (or a list of one), a list or a mapping."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if all("=" in part for part in parts):
        pairs = [part.rpartition("=") for part in parts]
        return {name: _number(value, text) for name, _, value in pairs}
    if len(parts) > 1:
        return [_number(part, text) for part in parts]
    try:
        return float(text) if alone is float else [float(text)]
    except ValueError:
        return text


def _rule_or_array(text: str | None) -> Any:
    """`purity` or `density` as it is, or the array of a file."""
    from ..checks import check_choice
    from ..files import read_array
    from ..selection.options import POINT_WEIGHTS

    if text is None or "." in text:  # every file that is read has an ending
        return text and read_array(text)[1]
    check_choice("--point-weights", text, POINT_WEIGHTS)
    return text


def _number(part: str, whole: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise ValueError(f"{part!r} in {whole!r} must be a number") from None


def _budget(text: str, classes: list[Any]) -> Any:
    """`5`, or `cat=5,dog=3` with the names read as the labels are."""
    try:
        if "=" not in text:
            return int(text)
        pairs = [part.rpartition("=") for part in text.split(",")]
        kind = int if classes and isinstance(classes[0], int) else str
        return {kind(name.strip()): int(value) for name, _, value in pairs}
    except ValueError:
        raise ValueError(f"--budget must be a whole number, or class=number,..., got {text!r}") from None


def _choose(named: dict[str, Any], labels: str | None, budget: str, options: dict[str, Any]) -> dict[Any, Selection]:
    """Class -> Selection; without labels the one key is None."""
    from ..checks import read_labels
    from ..files import read_array
    from ..selection import select, select_per_class

    if labels is None:
        if "=" in budget:
            raise ValueError(f"--budget by class needs --labels, got {budget!r}")
        if isinstance(options.get("point_weights"), str) and options["point_weights"] == "purity":
            raise ValueError("--point-weights purity needs --labels; name a file of them, or weigh points by density")
        return {None: select(named, _budget(budget, []), **options)}
    if "start" in options:
        raise ValueError("--start goes with a choice over all points; leave out --labels or --start")
    array = read_labels(read_array(labels)[1])
    return dict(select_per_class(named, array, _budget(budget, array[:1].tolist()), **options))


# ---------------------------------------------------------------- showing and writing


def _show(chosen: dict[Any, Selection]) -> None:
    if None in chosen:
        say(chosen[None].table())
        return
    rows = []
    for label, selection in chosen.items():
        covered = "–" if math.isnan(selection.objective) else f"{selection.objective:.4f}"
        rows.append([str(label), str(len(selection)), covered, " ".join(map(str, selection))])
    show_table(["class", "kept", "coverage", "indices, in the order picked"], rows)
    _say_notes(chosen)


def _say_notes(chosen: dict[Any, Selection]) -> None:
    for label, selection in chosen.items():
        for note in selection.notes:
            warn(note if label is None else f"class {label}: {note}")


def _check_output(output: Path | None) -> None:
    if output is not None and output.suffix not in (".npy", ".csv", ".json"):
        raise ValueError(f"--output must end in .npy, .csv or .json, got {output}")


def _write(output: Path, chosen: dict[Any, Selection]) -> None:
    import numpy as np

    from ..files import write_atomically

    def write(path: Path) -> None:
        if output.suffix == ".npy":
            np.save(path, np.concatenate([np.asarray(selection) for selection in chosen.values()]))
        elif output.suffix == ".json":
            path.write_text(json.dumps(_records(chosen), indent=1) + "\n", encoding="utf-8")
        else:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, ["class", "rank", "index", "gain"])
                writer.writeheader()
                writer.writerows(_records(chosen))

    write_atomically(output, write)
    _say_notes(chosen)
    say(f"{sum(map(len, chosen.values()))} indices written to {output}")


def _records(chosen: dict[Any, Selection]) -> list[dict[str, Any]]:
    return [
        {
            "class": label,
            "rank": row["rank"],
            "index": row["index"],
            "gain": None if math.isnan(row["gain"]) else row["gain"],
        }
        for label, selection in chosen.items()
        for row in selection.rows()
    ]
