"""keepset views: what two views of the same points have in common, and whether the second adds anything."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import named_arrays
from .console import say, show_table

if TYPE_CHECKING:
    from ..report.findings import Diagnosis, Pair, Pool

Option = typer.Option
DRAWN = (".png", ".pdf", ".svg")
FILE_BUDGET = 10  # where no run tells one


def views(
    source: Annotated[
        list[str], typer.Argument(metavar="RUN|VIEW...", help="A run's folder, or files as keepset select takes them.")
    ],
    labels: Annotated[str | None, Option(help="File with a label a point: look within each class.")] = None,
    budget: Annotated[int | None, Option(help="Points to keep of a class: k is points / budget; else 10.")] = None,
    episode: Annotated[int | None, Option(help="One episode of a run, class by class; else a summary of all.")] = None,
    output: Annotated[
        list[Path] | None, Option("-o", "--output", help="Write .png, .pdf or .svg, or all numbers as .json.")
    ] = None,
    json_: Annotated[Path | None, Option("--json", help="Write all numbers to this file.")] = None,
) -> None:
    """Tell how views see the same points: their scale, weight, spread, and the neighbours they share.

    \b
    Examples:
      keepset views supervised.npy simclr.npy --labels y.npy --budget 10
      keepset views features.npz:supervised features.npz:simclr --labels features.npz:labels -o views.png
      keepset views runs/0123456789abcdef --episode 2 -o views.pdf -o views.json
    """
    pictures, numbers = _outputs(output or [], json_)
    if Path(source[0]).is_dir():
        if len(source) > 1 or labels is not None or budget is not None:
            raise ValueError("a run knows its views, labels and budgets; name the run alone, or files")
        found = _of_run(Path(source[0]), episode)
        _show_run(found) if episode is None and len(found) > 1 else _show(next(iter(found.values())))
        content: Any = {"episodes": {number: each.plain() for number, each in found.items()}}
    else:
        if not Path(source[0]).suffix:
            raise ValueError(f"there is no run's folder {source[0]}; name one under runs/, or array files")
        if episode is not None:
            raise ValueError("--episode is for a run's folder; leave it out for files")
        one = _of_files(source, labels, FILE_BUDGET if budget is None else budget)
        found = {0: one}
        _show(one)
        content = one.plain()
    _write(pictures, numbers, found, content)


# ---------------------------------------------------------------- reading


def _of_files(specs: list[str], labels: str | None, budget: int) -> Diagnosis:
    from ..files import read_array
    from ..report.diagnosis import diagnose

    array = None if labels is None else read_array(labels)[1]
    return diagnose(named_arrays(specs), array, budget)


def _of_run(folder: Path, episode: int | None) -> dict[int, Diagnosis]:
    """Episode, counted from 1 -> its diagnosis, with the budgets that the run had."""
    from ..checks import check_range
    from ..experiment.finished import read_result

    result = read_result(folder)
    count = len(result["accuracy"])
    if episode is not None:
        check_range("--episode", episode, 1, count, "the episodes of the run")
    return {
        number: _of_episode(folder, result, number)
        for number in (range(1, count + 1) if episode is None else [episode])
    }


def _of_episode(folder: Path, result: Mapping[str, Any], number: int) -> Diagnosis:
    from ..report.diagnosis import diagnose
    from ..report.kept import read_kept_views

    kept, labels = read_kept_views(folder, number)
    ordered = [name for name in result["identity"]["views"] if name in kept]  # the file has its own order
    picks = result["picks"][number - 1]
    budgets = {label: max(1, len(picks[str(label)]["rows"])) for label in labels.unique().tolist()}
    neighbours = (result["identity"].get("options") or {}).get("neighbours")
    return diagnose({name: kept[name] for name in dict.fromkeys([*ordered, *kept])}, labels, budgets, neighbours)


# ---------------------------------------------------------------- showing


RULES = ("printed", "inverse", "density")  # equal weights are the same everywhere
SHAPE_HEADS = ("points", "k", "view", "distance", "rank", "largest", "KL")
WEIGHT_HEADS = ("view", "α print", "inv", "dens", "β print", "inv", "dens", "shared", "chance")  # 80 columns


def _show(found: Diagnosis) -> None:
    """Class by class, then the medians over the classes and all points together."""
    rows = [(str(pool.label), pool) for pool in found.classes]
    if found.medians is not None and len(rows) > 1:
        rows.append(("median", found.medians))
    rows.append(("all", found.together))
    _show_pools("class" if found.classes else "", rows)
    _show_verdict(found)


def _show_run(found: Mapping[int, Diagnosis]) -> None:
    """The medians over the classes of each episode, and over all classes."""
    everything = _joined(found)
    rows = [(str(number), each.typical) for number, each in found.items()]
    _show_pools("episode", [*rows, ("all", everything.typical)])
    say(f"\neach number is the median over the classes of an episode; --episode 1..{len(found)} tells the classes")
    _show_verdict(everything)


def _joined(found: Mapping[int, Diagnosis]) -> Diagnosis:
    """The classes of all episodes."""
    from ..report.findings import Diagnosis, medians

    classes = tuple(pool for each in found.values() for pool in each.classes)
    return Diagnosis(classes, next(iter(found.values())).together, medians(classes))


def _show_pools(head: str, rows: list[tuple[str, Pool]]) -> None:
    """The shape of each view; then its weights, and how it stands to the first view."""
    shapes, weights = [], []
    for name, pool in rows:
        pairs = {pair.second: pair for pair in pool.pairs}
        for place, view in enumerate(pool.views):
            lead = [name, str(pool.points), str(pool.k)] if place == 0 else ["", "", ""]
            spread = [_number(view.effective_rank, 1), _per_cent(view.largest), _number(view.kl, 1)]
            shapes.append([*lead, view.name, _number(view.median, 3), *spread])
            shares = [_number(view.shares[rule], 3) for rule in RULES]
            weights.append([lead[0], view.name, *shares, *_beside(pairs.get(view.name))])
    show_table([head, *SHAPE_HEADS], shapes, right=[each for each in SHAPE_HEADS if each != "view"])
    if rows[0][1].pairs:
        say("")
        show_table([head, *WEIGHT_HEADS], weights, right=WEIGHT_HEADS[1:])


def _beside(pair: Pair | None) -> list[str]:
    """β in each weighting, and the neighbours shared with the first view; nothing for that one itself."""
    if pair is None:
        return [""] * 5
    return [*(_number(pair.ratios[rule], 2) for rule in RULES), _per_cent(pair.overlap), _per_cent(pair.chance)]


def _show_verdict(found: Diagnosis) -> None:
    from ..report.verdict import verdict

    for sentence in verdict(found):
        say(f"\n{sentence}")


def _number(value: float | None, digits: int) -> str:
    if value is None:
        return "–"
    return "∞" if math.isinf(value) else f"{value:.{digits}f}"


def _per_cent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}%"


# ---------------------------------------------------------------- writing


def _outputs(paths: list[Path], numbers: Path | None) -> tuple[list[Path], list[Path]]:
    """Pictures and number files among the outputs, refused before any work is done."""
    from ..files import check_place

    for path in paths:
        if path.suffix not in (*DRAWN, ".json"):
            raise ValueError(f"--output must end in .png, .pdf, .svg or .json, got {path}")
    more = [] if numbers is None else [numbers]
    for path in [*paths, *more]:
        check_place(path)
    return [path for path in paths if path.suffix in DRAWN], [*more, *(p for p in paths if p.suffix == ".json")]


def _write(pictures: list[Path], numbers: list[Path], found: Mapping[int, Diagnosis], content: Any) -> None:
    from ..files import write_atomically
    from ..report.picture import draw

    text = json.dumps(content, indent=1) + "\n"
    for path in numbers:
        write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"))
        say(f"\nall numbers written to {path}")
    pools = [pool for each in found.values() for pool in each.classes] or [each.together for each in found.values()]
    for path in pictures:
        draw(pools, path)
        say(f"\na picture written to {path}")
