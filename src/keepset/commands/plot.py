"""keepset plot: results drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import say, warn
from .stored import Runs, conditions, finished_runs

if TYPE_CHECKING:
    from ..report.stored import Record

Option = typer.Option
KINDS = ("capacity", "episodes", "forgetting", "pairs", "matrix")
FOR = {  # the kinds that a flag is for
    "--metric": ("capacity", "pairs"),
    "--paper": ("capacity", "forgetting"),
    "--against": ("pairs",),
    "--line": ("capacity", "episodes", "forgetting"),
}


def plot(
    folders: Runs,
    output: Annotated[Path, Option("-o", "--output", help="Write .png, .pdf or .svg.")],
    kind: Annotated[
        str, Option(help="capacity, episodes, forgetting (beside stability), pairs, or matrix.")
    ] = "capacity",
    metric: Annotated[
        str | None, Option(help="FAA, AAA, forgetting or stability, of --kind capacity and pairs; else FAA.")
    ] = None,
    where: Annotated[list[str] | None, Option(help="Only runs like this: learner=er-ace, capacity=100,500.")] = None,
    line: Annotated[str | None, Option(help="A line for each value of this field: options.weights, learner.")] = None,
    paper: Annotated[bool, Option("--paper", help="The paper's results behind ours, dashed.")] = False,
    against: Annotated[str | None, Option(help="The selector that --kind pairs compares all others with.")] = None,
) -> None:
    """Draw results against capacity, episode by episode or seed by seed, or the accuracy matrix of one run.

    \b
    Examples:
      keepset plot runs/ -o faa.png
      keepset plot runs/ --metric AAA --where learner=er-ace --paper -o aaa.pdf
      keepset plot runs/ --kind episodes --where capacity=500 -o episodes.png
      keepset plot runs/ --kind forgetting --where learner=er-ace-star -o forgetting.svg
      keepset plot runs/ --kind pairs --against mers -o pairs.png
      keepset plot runs/0123456789abcdef --kind matrix -o matrix.png
    """
    from ..checks import check_choice
    from ..report.style import check_picture, save

    check_picture(output)
    check_choice("kind", kind, KINDS)
    given = {"--metric": metric, "--paper": paper or None, "--against": against, "--line": line}
    for flag, kinds in FOR.items():
        if given[flag] is not None and kind not in kinds:
            raise ValueError(f"{flag} is for --kind {' and '.join(kinds)}, got --kind {kind}; leave it out")
    if kind == "pairs" and against is None:
        raise ValueError("--kind pairs compares with one selector; name it, as in --against mers")
    records = _records(folders, where or [])
    if kind in FOR["--line"]:
        records, line = _comparable(records, kind, line)
    figure = _figure(records, kind, metric or "FAA", line or "", paper, against or "")
    save(figure, output)
    if paper and not any(each.get_gid() == "paper" for axes in figure.axes for each in axes.get_lines()):
        warn("the paper prints nothing for these runs, so there is no dashed line")
    say(f"{len(records)} {'run' if len(records) == 1 else 'runs'} drawn in {output}")


def _comparable(records: Sequence[Record], kind: str, given: str | None) -> tuple[list[Record], str]:
    """The runs without copies, and the whole name of the field whose values are the lines."""
    from ..report.fields import field_name
    from ..report.lines import comparable, usual_line
    from ..report.stored import known_fields

    axes = () if kind == "episodes" else ("capacity",)
    line = usual_line(records) if given is None else field_name(given, known_fields(records))
    kept = comparable(records, line, axes)
    if len(kept) < len(records):
        warn(f"{len(records) - len(kept)} of the runs are there twice and count once")
    return kept, line


def _figure(records: Sequence[Record], kind: str, metric: str, line: str, paper: bool, against: str) -> Any:
    from ..report.differences import draw_differences
    from ..report.plots import draw_capacity, draw_episodes, draw_forgetting, draw_matrix
    from ..report.tables import metric_name

    if kind == "pairs":
        return draw_differences(records, metric_name(metric), against)
    if kind == "matrix":
        return draw_matrix(records)
    if kind == "episodes":
        return draw_episodes(records, line=line)
    if kind == "forgetting":
        return draw_forgetting(records, line=line, paper=paper)
    return draw_capacity(records, metric_name(metric), line=line, paper=paper)


def _records(folders: Sequence[Path], where: Sequence[str]) -> list[Record]:
    """The finished runs that are like `where`."""
    from ..report.axes import chosen
    from ..report.fields import field_name
    from ..report.stored import known_fields

    wanted = conditions(where)
    records = finished_runs(folders)
    known = known_fields(records)
    records = chosen(records, {field_name(name, known): values for name, values in wanted.items()})
    if not records:
        raise ValueError("no run has all that --where asks for; ask for less")
    return records
