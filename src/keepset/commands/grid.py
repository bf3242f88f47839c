"""keepset grid: all runs of an experiment's file, here or on a cluster."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .arguments import nested_settings, toml_value, whole_numbers
from .console import say, warn
from .progress import Told, bars, told_of_views
from .stored import conditions

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..experiment.grid import Grid, Planned
    from ..experiment.standing import Standing
    from ..experiment.work import Observer

Option = typer.Option


def grid(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="TOML files with settings and [grid] lists.")],
    engine: Annotated[str, Option(help="local, ray or slurm.")] = "local",
    out: Annotated[Path, Option(help="Folder of the run folders.")] = Path("runs"),
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print a keepset run command for every run that is left.")
    ] = False,
    preset: Annotated[str | None, Option(help="paper (100 epochs an episode) or fast (10).")] = None,
    side_by_side: Annotated[str, Option(help="Runs at a time on a GPU: a number, or auto, which measures.")] = "auto",
    stacked: Annotated[
        bool, Option("--stacked", help="On a GPU: eight runs in one step, of er and er-ace; faster, other rounding.")
    ] = False,
    workers: Annotated[int | None, Option(help="Processes; if not given, one a GPU or half the cores.")] = None,
    set_: Annotated[list[str] | None, Option("--set", help="A setting for all runs: --set data.order=42.")] = None,
    where: Annotated[
        list[str] | None, Option("--where", help="Only these runs: learner=er-ace; capacity=100,500; again for more.")
    ] = None,
    address: Annotated[str, Option(help="Of a Ray cluster; else $RAY_ADDRESS, or one that is started here.")] = "",
    set_slurm: Annotated[list[str] | None, Option(help="For Slurm: --set-slurm partition=gpu; also [slurm].")] = None,
) -> None:
    """Do every run of one or more experiment files; finished runs are never run again.

    \b
    Examples:
      keepset grid experiments/er_ace_cifar100.toml --preset fast --stacked
      keepset grid experiments/er_ace_cifar100.toml --dry-run
      keepset grid experiments/*_order_42.toml --set seed=0 --side-by-side 8
      keepset grid experiments/claims_cifar100.toml --where learner=er --where selector=mers,random
      keepset grid my.toml --engine ray --address auto
      keepset grid my.toml --engine slurm --workers 4 --set-slurm partition=gpu --set-slurm timeout_min=600
    """
    from ..experiment.grid import command_of, read_grids
    from ..experiment.launch import How, launch, usual_workers
    from ..experiment.stacking import stacked_where_possible

    for option, given, wanted in (("--set-slurm", set_slurm, "slurm"), ("--address", address, "ray")):
        if given and engine != wanted:
            raise ValueError(f"{option} goes with --engine {wanted}, got --engine {engine}; set that, or leave it out")
    slurm = {key: toml_value(value) for key, value in map(_pair, set_slurm or [])}
    planned = _only(read_grids(files, preset, nested_settings({}, set_ or [])), where or [])
    planned = stacked_where_possible(planned, out) if stacked else planned
    how = How(engine, workers, whole_numbers(side_by_side), address, {**planned.slurm, **slurm})
    _outlook(planned, out, usual_workers(how, planned.runs))
    if dry_run:
        for run in _left(planned, out):
            say(command_of(run.config, out))
        return
    warnings.showwarning = lambda message, *_: warn(str(message))
    try:
        with bars() as progress:
            display = GridDisplay(progress, planned, out)
            standing = launch(planned, out, how, display.look, display.observer())
    except KeyboardInterrupt:
        jobs = "; the jobs sent to Slurm go on, scancel stops them" if engine == "slurm" else ""
        warn(f"broken off; the same command goes on where it was{jobs}")
        raise
    _conclude(standing)


def _only(planned: Grid, where: Sequence[str]) -> Grid:
    """The runs that tables will find by the same `--where`."""
    if not where:
        return planned
    from ..experiment.identity import identity
    from ..report.axes import asked_for
    from ..report.stored import planned_record

    records = [planned_record(run.name, identity(run.config), run.episodes) for run in planned.runs]
    names = {record.folder.name for record in asked_for(records, conditions(where))[0]}
    return replace(planned, runs=tuple(run for run in planned.runs if run.name in names))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set-slurm must be key=value, got {text!r}")
    return key, value


def _left(planned: Grid, out: Path) -> Sequence[Planned]:
    from ..experiment.work import finished

    return [run for run in planned.runs if not finished(out, run.name)]


def _outlook(planned: Grid, out: Path, workers: int) -> None:
    """What is done, what is left, and how long it may take."""
    from ..experiment.standing import Standing

    runs, left = len(planned.runs), _left(planned, out)
    steps = sum(run.steps for run in left)
    seconds = Standing(left, out).recorded_seconds_left() if left else None
    time_left = "time unknown yet" if seconds is None else f"about {duration(seconds / workers)}"
    rest = f"{len(left)} left: {steps:,} steps, {time_left}" if left else "nothing left to do"
    warn(f"{_runs(runs)}, {runs - len(left)} finished, {rest}")


def _runs(count: int) -> str:
    return "one run" if count == 1 else f"{count} runs"


def duration(seconds: float) -> str:
    """In the unit that tells it shortest."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"
    return f"{seconds:.0f} s"


def _conclude(standing: Standing) -> None:
    """How it ended; failures and what could not be done end with exit code 2."""
    done, failed, left = standing.done(), standing.failed(), standing.left()
    say(f"{len(done)} of {_runs(len(standing.runs))} finished in {standing.out}")
    alike: dict[str, list[str]] = {}
    for run in failed:
        alike.setdefault(standing.error_of(run), []).append(str(standing.out / run.name / "error.txt"))
    for error, logs in alike.items():
        more = f" and {len(logs) - 3} more" if len(logs) > 3 else ""
        warn(f"{_runs(len(logs))} failed: {error}\n  see {', '.join(logs[:3])}{more}")
    if any("dinov2" in run.config.used_views() for run in done):
        say("dinov2 has seen other data than these: results with it are no comparison with views learned here")
    if left:
        why = "their workers died again and again, perhaps for want of memory"
        raise ValueError(f"{_runs(len(left))} could not be done: {why}; try with fewer --workers")
    if failed:
        raise ValueError(f"{len(failed)} of {_runs(len(standing.runs))} failed; the same command tries them again")


class GridDisplay:
    """One bar for all runs on a terminal; in a log a line for every run that ends."""

    def __init__(self, progress: Progress | None, planned: Grid, out: Path) -> None:
        from ..experiment.standing import Standing

        self.progress, self.standing, self.looked = progress, Standing(planned.runs, out), 0.0
        total = sum(run.steps for run in planned.runs)
        self.task = None if progress is None else progress.add_task("all runs", total=total, state="")
        self.seen = self._counts()

    def observer(self) -> Observer:
        """For a worker in this process."""
        from ..experiment.work import Observer

        hears: Mapping[str, Told] = {"on_epoch": lambda _: self._sometimes(), "on_view": told_of_views(self.progress)}
        return Observer(lambda _: hears)

    def _sometimes(self) -> None:
        if time.perf_counter() - self.looked > 1:
            self.look(self.standing)

    def look(self, _: Standing) -> None:
        self.looked = time.perf_counter()
        counts = self._counts()
        done, failed = counts
        state = f"{done} of {_runs(len(self.standing.runs))} finished" + (f", {failed} failed" if failed else "")
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, completed=self.standing.steps_done(), state=state)
        elif counts != self.seen:
            seconds = self.standing.seconds_left() if done + failed < len(self.standing.runs) else None
            warn(state if seconds is None else f"{state}, about {duration(seconds)} left")
        self.seen = counts

    def _counts(self) -> tuple[int, int]:
        return len(self.standing.done()), len(self.standing.failed())
