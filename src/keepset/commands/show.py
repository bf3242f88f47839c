"""keepset show: one run, told."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import say, show_table


def show(run: Annotated[Path, typer.Argument(help="A run's folder.")]) -> None:
    """Tell one finished run: its settings, accuracy matrix, metrics, and what was kept.

    \b
    Example:
      keepset show runs/0123456789abcdef
    """
    from ..experiment.finished import read_result
    from ..metrics import all_metrics
    from ..report.fields import counted

    result = read_result(run)
    identity = result["identity"]
    on = f" on {', '.join(identity['views'])}" if identity["views"] else ""
    say(f"{identity['data']['name']}: {identity['learner']}, {identity['selector']}{on}")
    epochs = counted(identity["train"]["epochs"], "epoch")
    say(f"capacity {identity['capacity']}, seed {identity['seed']}, {epochs} an episode, on {identity['device']}")
    set_otherwise = list(_set_otherwise(identity))
    if set_otherwise:
        say(", ".join(set_otherwise))
    say("\naccuracy on each episode after each episode, per cent\n")
    _show_matrix(result["accuracy"])
    known = {name: value for name, value in all_metrics(result["accuracy"]).items() if not math.isnan(value)}
    metrics = "   ".join(f"{name} {100 * value:.1f}" for name, value in known.items())
    say(f"\n{metrics}\n")
    _show_views(result.get("views", []))
    _show_picks(result["picks"])
    spent = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in result["seconds"].items())
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    say(f"\n{spent}\n{versions}")


def _set_otherwise(identity: dict[str, Any]) -> Iterator[str]:
    """Settings of the run that are not at their defaults, but for those that are told anyway."""
    from ..experiment.config import RunConfig, merged, own_view_preset, plain_values
    from ..views import ENCODERS

    usual = merged(plain_values(RunConfig(device="cpu")), own_view_preset(identity["data"]["name"]))
    if identity["quota"] != usual["quota"]:
        yield f"quota={identity['quota']}"
    for room in ("data", "model", "train", "learning"):
        for name, default in usual[room].items():
            value = identity[room].get(name, default)  # what is left unsaid is as it always was
            if value != default and (room, name) not in (("data", "name"), ("train", "epochs")):
                yield f"{room}.{name}={value}"
    yield from (f"options.{name}={value}" for name, value in identity["options"].items())
    for room in (name for name in ENCODERS if name in identity):
        for name, default in _flat(usual[room]):
            value = dict(_flat(identity[room])).get(name, default)
            if default not in (value, "auto"):  # of `auto` a recipe has what it came to
                yield f"{room}.{name}={value}"


def _flat(settings: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names; a pair of numbers is a list, as a result has it."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{place}{name}.")
        else:
            yield place + name, list(value) if isinstance(value, tuple) else value


def _show_matrix(accuracy: list[list[float]]) -> None:
    heads = ["after", *(str(i + 1) for i in range(len(accuracy))), "mean"]
    rows = []
    for number, row in enumerate(accuracy, start=1):
        cells = [f"{100 * value:.1f}" for value in row] + [""] * (len(accuracy) - number)
        rows.append([str(number), *cells, f"{100 * sum(row) / number:.1f}"])
    show_table(heads, rows, right=heads)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def _show_views(views: list[dict[str, Any]]) -> None:
    """Quality of the views, and where they came from; nothing for a selector that reads none."""
    rows = [
        [str(number), name, _percent(told["neighbour accuracy"]), (told["entry"] or "–")[:8]]
        for number, episode in enumerate(views, start=1)
        for name, told in episode.items()
    ]
    if rows:
        show_table(["episode", "view", "20-NN accuracy", "cache entry"], rows, right=["20-NN accuracy"])
        if any("dinov2" in episode for episode in views):
            say("dinov2 has seen other data than these")
        say("")


def _show_picks(picks: list[dict[str, Any]]) -> None:
    rows = [
        [str(number), label, str(len(kept["rows"])), _short(kept["rows"])]
        for number, episode in enumerate(picks, start=1)
        for label, kept in episode.items()
    ]
    show_table(["episode", "class", "kept then", "rows of the training images, in the order picked"], rows)


def _short(rows: list[int], most: int = 10) -> str:
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    return " ".join(map(str, rows[:most])) + more
