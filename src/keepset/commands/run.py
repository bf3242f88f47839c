"""keepset run: train a replay learner over a sequence of episodes."""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import say, show_table, warn

if TYPE_CHECKING:
    from ..experiment.config import RunConfig

Option = typer.Option


def run(
    data: Annotated[
        str | None,
        typer.Argument(help="digits (the default), cifar100, tinyimagenet, an image folder, or arrays.npz."),
    ] = None,
    learner: Annotated[str | None, Option(help="finetune, er, er-ace, mir, joint; -star appended; a list.")] = None,
    selector: Annotated[str | None, Option(help="A selector of keepset ls, maxherding:pixels; a list.")] = None,
    views: Annotated[str | None, Option(help="The views, such as supervised,pixels or my_module:embed.")] = None,
    capacity: Annotated[str | None, Option(help="The whole buffer; a list.")] = None,
    seed: Annotated[str | None, Option(help="A list: --seed 0,1,2.")] = None,
    preset: Annotated[str | None, Option(help="paper (100 epochs an episode) or fast (10).")] = None,
    config: Annotated[Path | None, Option(help="A TOML file of settings; flags win over it.")] = None,
    epochs: Annotated[int | None, Option(help="Epochs an episode.")] = None,
    order: Annotated[str | None, Option(help="Class order: canonical, a seed, or a list 3,1,2.")] = None,
    episodes: Annotated[str | None, Option(help="How many, or their sizes: 4,3,3.")] = None,
    width: Annotated[int | None, Option(help="Width of the ResNet.")] = None,
    device: Annotated[str | None, Option(help="cpu or cuda; if not given, cuda where there is one.")] = None,
    data_folder: Annotated[str | None, Option(help="Where data sets lie.")] = None,
    set_: Annotated[list[str] | None, Option("--set", help="Any other setting: --set options.weights=equal.")] = None,
    out: Annotated[Path, Option(help="Folder of the run folders.")] = Path("runs"),
    again: Annotated[bool, Option("--again", help="Run finished runs once more.")] = False,
) -> None:
    """Train a replay learner over a sequence of episodes; a selector chooses what to keep after each.

    \b
    Examples:
      keepset run digits
      keepset run digits --selector random,maxherding,mers --seed 0,1,2 --preset fast
      keepset run cifar100 --learner er-ace --selector mers --capacity 500 --preset paper
      keepset run photos/ --episodes 4 --set data.image_size=64 --set options.weights=equal
    """
    from ..experiment.config import run_hash
    from ..experiment.run import run as run_one

    flags = _flags(data, views, epochs, order, episodes, width, device, data_folder, set_ or [])
    lists = {"learner": learner, "selector": selector, "capacity": capacity, "seed": seed}
    configs = list({run_hash(each): each for each in _expanded(preset, config, flags, lists)}.values())
    warnings.showwarning = lambda message, *_: warn(str(message))
    results = []
    try:
        with _display(configs) as told:
            for number, each in enumerate(configs):
                results.append(run_one(each, out, again=again, on_epoch=told(number)))
    except KeyboardInterrupt:
        warn("broken off; the same command goes on where it was")
        raise
    _table(configs, results)
    say(f"\n{'one run' if len(configs) == 1 else f'{len(configs)} runs'} in {out}; keepset show {out}/RUN tells one")


# ---------------------------------------------------------------- settings


def _flags(
    data: str | None,
    views: str | None,
    epochs: int | None,
    order: str | None,
    episodes: str | None,
    width: int | None,
    device: str | None,
    data_folder: str | None,
    others: Sequence[str],
) -> dict[str, Any]:
    """The flags that were given, as nested settings."""
    given: dict[str, Any] = {
        "data.name": data,
        "data.order": _numbers(order),
        "data.episodes": _numbers(episodes),
        "data.folder": data_folder,
        "views": None if views is None else [part.strip() for part in views.split(",")],
        "train.epochs": epochs,
        "model.width": width,
        "device": device,
    }
    for text in others:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set must be key=value, got {text!r}")
        given[key] = _value(value)
    nested: dict[str, Any] = {}
    for key, value in given.items():
        if value is not None:
            *groups, last = key.split(".")
            place = nested
            for group in groups:
                place = place.setdefault(group, {})
                if not isinstance(place, dict):
                    raise ValueError(f"unknown setting {key!r}: {group} is a value and has no parts")
            place[last] = value
    return nested


def _value(text: str) -> Any:
    """As TOML reads it, or else a plain word."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _numbers(text: str | None) -> Any:
    """`10`, `4,3,3` or a word."""
    if text is None:
        return None
    parts = text.split(",")
    if all(part.strip().isdigit() for part in parts):
        return int(text) if len(parts) == 1 else [int(part) for part in parts]
    return text


def _expanded(
    preset: str | None, file: Path | None, flags: dict[str, Any], lists: Mapping[str, str | None]
) -> Iterator[RunConfig]:
    """A config for every combination of the lists."""
    from ..experiment.config import make_config

    given = {name: [part.strip() for part in text.split(",")] for name, text in lists.items() if text is not None}
    for values in itertools.product(*given.values()):
        chosen = {
            name: _value(value) if name in ("capacity", "seed") else value
            for name, value in zip(given, values, strict=True)
        }
        yield make_config(preset, file, {**flags, **chosen})


# ---------------------------------------------------------------- showing


def _name(config: RunConfig) -> str:
    return f"{config.learner} {config.selector} |M|={config.capacity} seed {config.seed}"


@contextmanager
def _display(configs: Sequence[RunConfig]) -> Iterator[Callable[[int], Callable[[Mapping[str, Any]], None]]]:
    """A live bar on a terminal, plain lines in a log."""
    if not sys.stderr.isatty():
        yield lambda number: lambda record: _line(_name(configs[number]), configs[number], record)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:

        def told(number: int) -> Callable[[Mapping[str, Any]], None]:
            name = f"{number + 1}/{len(configs)} {_name(configs[number])}"
            epochs = configs[number].train.epochs
            tasks: list[TaskID] = []  # none for a run that is read back

            def update(record: Mapping[str, Any]) -> None:
                if not tasks:
                    tasks.append(progress.add_task(name, total=record["episodes"] * epochs, state=""))
                done = (record["episode"] - 1) * epochs + record["epoch"]
                progress.update(tasks[0], completed=done, state=_state(record))

            return update

        yield told


def _state(record: Mapping[str, Any]) -> str:
    so_far = record["average accuracies"]
    accuracy = f"AA {100 * so_far[-1]:.1f}" if so_far else ""
    speed = record["steps a second"]
    return f"episode {record['episode']}/{record['episodes']} epoch {record['epoch']} {speed:.0f} steps/s {accuracy}"


def _line(name: str, config: RunConfig, record: Mapping[str, Any]) -> None:
    if record["epoch"] == config.train.epochs:
        warn(f"{name}: {_state(record)} loss {record['loss']:.3f}")


def _table(configs: Sequence[RunConfig], results: Sequence[Mapping[str, Any]]) -> None:
    """Mean ± standard error over seeds, in per cent; what all runs share stands above the table."""
    from ..metrics import NAMES, all_metrics, mean_and_error

    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for config, result in zip(configs, results, strict=True):
        names = (config.learner, config.selector, f"|M| = {config.capacity}")
        groups.setdefault(names, []).append(result)
    varies = [len({key[place] for key in groups}) > 1 or place == 1 for place in range(3)]
    shared = [text for text, differs in zip(next(iter(groups)), varies, strict=True) if not differs]
    seeds = len({config.seed for config in configs})
    say(f"{configs[0].data.name}, {', '.join([*shared, f'{seeds} seeds' if seeds > 1 else 'one seed'])}, per cent")
    rows = []
    for key, group in groups.items():
        cells = []
        found = [all_metrics(result["accuracy"]) for result in group]
        for name in NAMES:
            mean, error = mean_and_error([100 * metrics[name] for metrics in found])
            cells.append("–" if math.isnan(mean) else f"{mean:.1f}" + ("" if math.isnan(error) else f" ± {error:.1f}"))
        rows.append([*(text for text, differs in zip(key, varies, strict=True) if differs), *cells])
    heads = [head for head, differs in zip(("learner", "selector", "capacity"), varies, strict=True) if differs]
    show_table([*heads, *NAMES], rows, right=["capacity", *NAMES])
