"""keepset select: from embeddings on disk to the points to keep."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import is_sharded
from .call import Call
from .choosing import choose_by_class, choose_by_parts, choose_from_all, planned
from .chosen import check_output, write_chosen
from .console import say, show_table, warn

if TYPE_CHECKING:
    from ..selection import Selection

Option = typer.Option


def select(
    views: Annotated[list[str], typer.Argument(metavar="VIEW", help="Files .npy, .npz[:key] or .safetensors[:key].")],
    budget: Annotated[str, Option(help="Points to keep: a number, or by class: cat=5,dog=3.")],
    labels: Annotated[str | None, Option(help="File with a label a point: choose within each class.")] = None,
    method: Annotated[str, Option(help="A selector of keepset ls, or my_module:choose.")] = "mers",
    output: Annotated[
        Path | None, Option("-o", "--output", help="Write .npy, .csv or .json; none: a table here.")
    ] = None,
    seed: Annotated[int, Option(help="Seed of all that is random.")] = 0,
    view: Annotated[str | None, Option(help="The view of a single-view method (a file's name without ending).")] = None,
    start: Annotated[str | None, Option(help="File with indices already kept; they count as covered.")] = None,
    weights: Annotated[str | None, Option(help="printed, inverse, density, equal, or 2,1 or a=2,b=1.")] = None,
    neighbours: Annotated[int | None, Option(help="k; points / budget if not given.")] = None,
    bandwidth: Annotated[str | None, Option(help="median, episode, knn, a number, or 0.2,0.3 or a=0.2,b=0.3.")] = None,
    bandwidth_scale: Annotated[float | None, Option(help="A factor on every bandwidth.")] = None,
    metric: Annotated[str | None, Option(help="cosine, euclidean or literal.")] = None,
    kernel: Annotated[str | None, Option(help="rbf, laplace or tophat.")] = None,
    fusion: Annotated[str | None, Option(help="sum-then-max or max-then-sum.")] = None,
    uncovered: Annotated[str | None, Option(help="each or shared (hard cover).")] = None,
    point_weights: Annotated[
        str | None, Option(help="What covering a point is worth: a file with a number a point, purity or density.")
    ] = None,
    point_power: Annotated[float | None, Option(help="The power of purity or density; 2 if not given.")] = None,
    purity_view: Annotated[str | None, Option(help="The view that purity looks at; the second if not given.")] = None,
    uncertainty: Annotated[str | None, Option(help="File with a number a point, for rainbow.")] = None,
    memory: Annotated[
        str | None, Option(help="What the distances may take, such as 4GB: more, and they go in blocks; or auto.")
    ] = None,
    search: Annotated[str | None, Option(help="exact, or stochastic: the best of a random sample, each time.")] = None,
    epsilon: Annotated[float | None, Option(help="What the stochastic search may lose; 0.1 if not given.")] = None,
    resume: Annotated[bool, Option("--resume", help="Go on from the picks that the file of -o holds.")] = False,
    plan: Annotated[bool, Option("--plan", help="Tell memory and time, choose nothing.")] = False,
    engine: Annotated[str, Option(help="local, or ray: parts on several machines, VIEW may be shards.")] = "local",
    parts: Annotated[int | None, Option(help="With ray: how many parts the points are chosen from.")] = None,
    address: Annotated[str, Option(help="Of a Ray cluster; else $RAY_ADDRESS, or one that is started here.")] = "",
) -> None:
    """Choose the points to keep, from embeddings on disk.

    \b
    Examples:
      keepset select supervised.npy simclr.npy --labels y.npy --budget 5 -o keep.npy
      keepset select features.npz:pooled --budget 100 --method maxherding
      keepset select a.safetensors:x b.safetensors:x --budget 20 --weights 2,1 -o keep.csv
      keepset select a.npy --labels y.npy --budget cat=5,dog=3 --method herding -o keep.json
      keepset select large.npy --budget 10000 --plan
      keepset select large.npy --budget 10000 --memory 8GB -o keep.npy
      keepset select large.npy --budget 10000 --memory 8GB -o keep.npy --resume
      keepset select 'shards/a-*.npy' --budget 10000 --engine ray --parts 16 -o keep.npy
    """
    flags = {
        "view": view,
        "weights": weights,
        "neighbours": neighbours,
        "bandwidth": bandwidth,
        "bandwidth_scale": bandwidth_scale,
        "metric": metric,
        "kernel": kernel,
        "fusion": fusion,
        "uncovered": uncovered,
        "point_weights": point_weights,
        "point_power": point_power,
        "purity_view": purity_view,
        "uncertainty": uncertainty,
        "start": start,
        "memory": memory,
        "search": search,
        "epsilon": epsilon,
    }
    call = Call(views, budget, method, seed, flags, output)
    check_output(output)
    _check_together(call, labels, resume, plan, engine, parts, address)
    if plan:
        say(planned(call))
    elif engine == "ray":
        _deliver(output, {None: choose_by_parts(call, parts, address)})
    elif labels is not None:
        _deliver(output, choose_by_class(call, labels))
    else:
        choose_from_all(call, resume, lambda chosen: _deliver(output, {None: chosen}))


def _check_together(
    call: Call, labels: str | None, resume: bool, plan: bool, engine: str, parts: int | None, address: str
) -> None:
    """Refuse flags that do not go with each other, before anything is read."""
    from ..checks import check_choice

    check_choice("--engine", engine, ("local", "ray"))
    if labels is not None and call.flags["start"] is not None:
        raise ValueError("--start goes with a choice over all points; leave out --labels or --start")
    whole = {"--resume": resume, "--plan": plan, "--engine ray": engine == "ray"}
    for flag, given in whole.items():
        if given and labels is not None:
            raise ValueError(f"{flag} goes with a choice over all points; leave out --labels or {flag}")
    if resume and call.output is None:
        raise ValueError("--resume goes on from a file; name it with -o")
    if engine == "local":
        for flag, value in {"--parts": parts, "--address": address}.items():
            if value:
                raise ValueError(f"{flag} goes with --engine ray; leave it out, or choose that engine")
        for spec in filter(is_sharded, call.specs):
            raise ValueError(f"{spec} stands for several files, which --engine ray reads; name one file a view")
        return
    for flag, given in {"--start": call.flags["start"] is not None, "--resume": resume, "--plan": plan}.items():
        if given:
            raise ValueError(f"{flag} does not go with --engine ray; leave it out, or choose --engine local")


# ---------------------------------------------------------------- showing and writing


def _deliver(output: Path | None, chosen: dict[Any, Selection]) -> None:
    """Class -> Selection, to the file or as a table."""
    if output is None:
        _show(chosen)
        return
    write_chosen(output, chosen)
    _say_notes(chosen)
    say(f"{sum(map(len, chosen.values()))} indices written to {output}")


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
