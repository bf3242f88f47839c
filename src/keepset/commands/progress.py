"""How long work is shown: live bars on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .console import warn

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ..experiment.config import RunConfig
    from ..experiment.side_by_side import Pace

Told = Callable[[Mapping[str, Any]], None]
AFTER = 1.0  # seconds until work is shown that is often over before
LINES = 30.0  # seconds between its lines in a log


@contextmanager
def bars() -> Iterator[Progress | None]:
    """A live display on the error stream, or None where it is no terminal."""
    progress = _display()
    if progress is None:
        yield None
        return
    with progress:
        yield progress


def _display() -> Progress | None:
    """As `bars`, but not yet shown."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


# ---------------------------------------------------------------- work that may be over at once


class LateBar:
    """One bar, which comes up once work has taken a second; in a log a line every half minute."""

    def __init__(self, title: str, total: int | None, done: int = 0, state: str = "") -> None:
        self.title, self.total = title, total
        self.progress = _display()
        self.told = time.monotonic()
        self.first: tuple[float, int] | None = None  # when the first step was told, and which
        if self.progress is not None:
            # it moves to and fro until the first step is made
            self.task = self.progress.add_task(title, start=False, total=total, completed=done, state=state)
            self.timer = threading.Timer(AFTER, self.progress.start)
            self.timer.daemon = True

    def __enter__(self) -> LateBar:
        if self.progress is not None:
            self.timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.progress is not None:
            self.timer.cancel()
            self.timer.join()
            if self.progress.live.is_started:
                self.progress.stop()

    def update(self, done: int, state: str, total: int | None = None) -> None:
        """total: where it became known, or changed, after the beginning."""
        self.total = total or self.total
        self.first = self.first or (time.monotonic(), done)
        if self.progress is not None:
            self.progress.start_task(self.task)
            self.progress.update(self.task, completed=done, total=self.total, state=state)
        elif time.monotonic() - self.told >= LINES:
            self.told = time.monotonic()
            warn(f"{self.title}: {state}{self._left(*self.first, done)}")

    def _left(self, begun: float, first: int, done: int) -> str:
        if self.total is None or done == first:
            return ""
        return f", {in_time((self.told - begun) / (done - first) * (self.total - done))} left"


def in_time(seconds: float) -> str:
    """`12 s`, `3 min` or `2.5 h`"""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


# ---------------------------------------------------------------- runs


def run_name(config: RunConfig) -> str:
    return f"{config.learner} {config.selector} |M|={config.capacity} seed {config.seed}"


class RunDisplay:
    """Shows the runs of one command: a bar each, and over several one for all of them together."""

    def __init__(self, progress: Progress | None, configs: Sequence[RunConfig]) -> None:
        self.progress, self.configs = progress, configs
        self.all_runs = progress.add_task("all runs", total=None, state="") if progress and len(configs) > 1 else None
        self.tasks: dict[int, TaskID] = {}  # none for a run that is read back

    def watch(self, number: int) -> dict[str, Told]:
        """What a run is to tell its epochs and views to."""
        return {"on_epoch": lambda record: self._epoch(number, record), "on_view": told_of_views(self.progress)}

    def pace(self, pace: Pace) -> None:
        """How fast all advance together."""
        if self.progress is not None and self.all_runs is not None:
            state = f"{pace.runs} side by side, {pace.run_steps / max(pace.seconds, 1e-9):.0f} run-steps/s"
            self.progress.update(self.all_runs, state=state)

    def _epoch(self, number: int, record: Mapping[str, Any]) -> None:
        config = self.configs[number]
        name, epochs = run_name(config), config.train.epochs
        if self.progress is None:
            _epoch_line(name, epochs, record)
            return
        total = record["episodes"] * epochs
        if number not in self.tasks:
            title = f"{number + 1}/{len(self.configs)} {name}"
            self.tasks[number] = self.progress.add_task(title, total=total, state="")
        done = (record["episode"] - 1) * epochs + record["epoch"]
        self.progress.update(self.tasks[number], completed=done, state=_epoch_state(record))
        if self.all_runs is not None:  # runs of one command are about equally long
            self.progress.update(self.all_runs, total=len(self.configs) * total, advance=1)


def _epoch_state(record: Mapping[str, Any]) -> str:
    so_far = record["average accuracies"]
    accuracy = f"AA {100 * so_far[-1]:.1f} after episode {len(so_far)}" if so_far else ""
    speed = record["steps a second"]
    return f"episode {record['episode']}/{record['episodes']} epoch {record['epoch']} {speed:.0f} steps/s {accuracy}"


def _epoch_line(name: str, epochs: int, record: Mapping[str, Any]) -> None:
    if record["epoch"] == epochs:
        warn(f"{name}: {_epoch_state(record)} loss {record['loss']:.3f}")


# ---------------------------------------------------------------- views


def told_of_views(progress: Progress | None) -> Told:
    """What shows a view that is being learned: one bar, which comes and goes; its quality is a line in a log."""
    tasks: list[TaskID] = []
    tenths: dict[str, int] = {}  # of each view, told so far

    def update(record: Mapping[str, Any]) -> None:
        if "waiting" in record:
            warn(record["waiting"])
        elif "epoch" in record and progress is not None:
            if not tasks:
                tasks.append(progress.add_task("", total=record["epochs"], state=""))
            state = f"loss {record['loss']:.3f}" if "loss" in record else ""
            told = {"completed": record["epoch"], "total": record["epochs"], "description": view_name(record)}
            progress.update(tasks[0], state=state, **told)
        elif "epoch" not in record:
            while tasks and progress is not None:
                progress.remove_task(tasks.pop())
            if progress is None and record.get("entry"):
                warn(quality_line(record))
        elif _another_tenth(record, tenths):
            left = f", {record['seconds left']:.0f} s left" if "seconds left" in record else ""
            loss = f" loss {record['loss']:.3f}" if "loss" in record else ""
            warn(f"{view_name(record)}: {record['epoch']}/{record['epochs']}{loss}{left}")

    return update


def view_name(record: Mapping[str, Any]) -> str:
    return f"{record['view']} of episode {record['episode']}" if "episode" in record else str(record["view"])


def quality_line(record: Mapping[str, Any]) -> str:
    quality = record["neighbour accuracy"]
    accuracy = "" if quality is None else f"20-NN accuracy {100 * quality:.1f} %, "
    return f"{view_name(record)}: {accuracy}cache entry {record['entry'][:8]}"


def _another_tenth(record: Mapping[str, Any], tenths: dict[str, int]) -> bool:
    """Whether another tenth is over since this view's last record; images come in batches and pass tenths."""
    name, done = view_name(record), 10 * record["epoch"] // record["epochs"]
    before, tenths[name] = tenths.get(name, 0), done
    return bool(done != before)
