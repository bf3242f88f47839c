"""keepset run: train a replay learner over a sequence of episodes."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import listed, nested_settings, toml_value, whole_numbers
from .console import say, show_table, warn
from .progress import RunDisplay, bars, run_name

if TYPE_CHECKING:
    from ..experiment.config import RunConfig
    from ..experiment.side_by_side import Failure

Option = typer.Option


def run(
    data: Annotated[
        str | None,
        typer.Argument(help="digits (the default), cifar100, tinyimagenet, an image folder, or arrays.npz."),
    ] = None,
    learner: Annotated[str | None, Option(help="Of keepset ls, -star appended, or my_module:mine; a list.")] = None,
    selector: Annotated[str | None, Option(help="Of keepset ls, maxherding:simclr, my_module:choose; a list.")] = None,
    views: Annotated[str | None, Option(help="The views: supervised,simclr or my_module:embed.")] = None,
    view_preset: Annotated[str | None, Option(help="desk (200 epochs), solo-learn (1000) or digits.")] = None,
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
    cache: Annotated[str | None, Option(help="Folder of views made once for all runs.")] = None,
    keep_views: Annotated[
        bool | None, Option("--keep-views/--drop-views", help="Keep the features for keepset views; else if small.")
    ] = None,
    side_by_side: Annotated[str, Option(help="Runs at a time on a GPU: a number, or auto, which measures.")] = "auto",
    plain: Annotated[bool, Option("--plain", help="On a GPU: step by step, neither captured nor compiled.")] = False,
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
    from ..experiment.identity import run_hash
    from ..experiment.side_by_side import Failure
    from ..learning.trainer import Engine

    given: dict[str, Any] = {
        "data.name": data,
        "data.order": whole_numbers(order),
        "data.episodes": whole_numbers(episodes),
        "data.folder": data_folder,
        "views": listed(views),
        "view_preset": view_preset,
        "train.epochs": epochs,
        "model.width": width,
        "device": device,
        "cache": cache,
        "keep_views": keep_views,
    }
    flags = nested_settings(given, set_ or [])
    lists = {"learner": learner, "selector": selector, "capacity": capacity, "seed": seed}
    configs = list({run_hash(each): each for each in _expanded(preset, config, flags, lists)}.values())
    warnings.showwarning = lambda message, *_: warn(str(message))
    engine = Engine(capture=not plain, compile=not plain)
    outcomes = _run_all(configs, out, again=again, side_by_side=whole_numbers(side_by_side), engine=engine)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    if len(failures) == len(configs):
        alike = len({str(failure.error) for failure in failures}) == 1
        raise failures[0].error if alike else ValueError(_failed(failures, len(configs), out))
    done = [(each, found) for each, found in zip(configs, outcomes, strict=True) if not isinstance(found, Failure)]
    _table([each for each, _ in done], [found for _, found in done])
    if any("dinov2" in each.used_views() for each in configs):
        say("\ndinov2 has seen other data than these: results with it are no comparison with views learned here")
    say(f"\n{'one run' if len(done) == 1 else f'{len(done)} runs'} in {out}; keepset show {out}/RUN tells one")
    if failures:
        raise ValueError(_failed(failures, len(configs), out))


def _failed(failures: Sequence[Failure], count: int, out: Path) -> str:
    """Which runs failed, and why; where one had begun, the whole traceback is in its folder."""
    from ..experiment.identity import run_hash
    from ..experiment.results import ERROR
    from ..experiment.work import write_error

    told = []
    for failure in failures:
        error, folder = failure.error, out / run_hash(failure.config)
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        where = f" ({folder / ERROR})" if folder.is_dir() else ""
        if where:
            write_error(folder, error)
        told.append(f"{run_name(failure.config)}: {kind}{error}{where}")
    return f"{len(failures)} of {count} runs failed: {'; '.join(told)}"


def _run_all(configs: Sequence[RunConfig], out: Path, **how: Any) -> list[dict[str, Any] | Failure]:
    """All runs, shown while they run."""
    from ..experiment.side_by_side import run_all

    try:
        with bars() as progress:
            display = RunDisplay(progress, configs)
            return run_all(configs, out, watch=display.watch, on_pace=display.pace, **how)
    except KeyboardInterrupt:
        warn("broken off; the same command goes on where it was")
        raise


def _expanded(
    preset: str | None, file: Path | None, flags: dict[str, Any], lists: Mapping[str, str | None]
) -> Iterator[RunConfig]:
    """A config for every combination of the lists."""
    from ..experiment.config import make_config

    given = {name: listed(text) or [] for name, text in lists.items() if text is not None}
    for values in itertools.product(*given.values()):
        chosen = {
            name: toml_value(value) if name in ("capacity", "seed") else value
            for name, value in zip(given, values, strict=True)
        }
        yield make_config(preset, file, {**flags, **chosen})


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
