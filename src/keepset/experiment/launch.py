"""Do the runs of a grid: here, in processes of this machine, by Ray or by Slurm. All of them call `work.work`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..checks import check_choice, check_range
from ..data import check_outside, load
from .engine_local import LocalCrew
from .engine_ray import RayCrew
from .engine_slurm import SlurmCrew
from .grid import Grid, Planned
from .standing import Standing
from .work import Job, Observer, work_on

ENGINES = ("local", "ray", "slurm")
PATIENCE = 3  # workers that may die one after the other without a run being finished in between
PAUSE = 0.5  # seconds between two looks

OnLook = Callable[[Standing], object]


class Crew(Protocol):
    """Workers that an engine can start, count and stop."""

    size: int

    def start(self) -> None: ...

    def alive(self) -> int: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class How:
    """By what, and how many at a time; whatever it is, a run has the same numbers."""

    engine: str = "local"
    workers: int | None = None
    """None: on a GPU one process, on CPUs half as many as there are, and what a cluster has of either."""
    side_by_side: int | str = "auto"
    address: str = ""
    """Of a Ray cluster; empty: $RAY_ADDRESS, or one that is started here."""
    slurm: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, ENGINES)
        if self.workers is not None:
            check_range("workers", self.workers, 1, 4096, "processes")
        if self.side_by_side != "auto":
            check_range("side_by_side", self.side_by_side, 1, 1024, "runs at a time, or auto")


def launch(
    grid: Grid, out: str | Path, how: How, on_look: OnLook = lambda _: None, observer: Observer | None = None
) -> Standing:
    """Do what is left, and say how it stands then; what failed before is tried again.

    on_look: called twice a second or so while others work.
    observer: told of the epochs, where the work is done in this process.
    """
    standing = Standing(grid.runs, out)
    standing.forget_failures()
    left = standing.left()
    if not left:
        return standing
    cuda = on_cuda(left)
    job = Job(left, standing.out, how.side_by_side)
    if how.engine == "local":
        for settings in {run.config.data for run in left}:
            check_outside(settings, standing.out)
            load(settings)  # refuses what is not there before anything is written
        workers = min(len(left), usual_workers(how, left))
        if workers == 1:
            _work_here(job, standing, on_look, observer)
            return standing
        drive(LocalCrew(job.text(), workers), standing, on_look)
    else:
        drive(_cluster(how, job, cuda), standing, on_look)
    return standing


def on_cuda(runs: Sequence[Planned]) -> bool:
    return any(run.config.device == "cuda" for run in runs)


def usual_workers(how: How, runs: Sequence[Planned]) -> int:
    """As many as were asked for; else one, but on the CPUs of this machine half as many as it has."""
    return how.workers or (half_the_cores() if how.engine == "local" and not on_cuda(runs) else 1)


def half_the_cores() -> int:
    return max(1, len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)) // 2)


def _cluster(how: How, job: Job, cuda: bool) -> Crew:
    if how.engine == "ray":
        return RayCrew(job.text(), how.workers, cuda, how.address)
    return SlurmCrew(job.text(), job.out, how.workers or 1, cuda, how.slurm)


def drive(crew: Crew, standing: Standing, on_look: OnLook) -> None:
    """Keep workers at it until nothing is left.

    A worker ends once it finds nothing to claim. So if there are fewer than there may be, and a run that nobody has,
    one has died, here or in another grid, and its runs are free again: another is started.
    """
    patience, behind = PATIENCE, len(standing.done())
    try:
        for _ in range(min(crew.size, len(standing.left()))):
            crew.start()
        while left := standing.left():
            on_look(standing)
            if len(standing.done()) > behind:
                patience, behind = PATIENCE, len(standing.done())
            if crew.alive() < min(crew.size, len(left)) and standing.any_free():
                if not patience:
                    return
                patience -= 1
                crew.start()
            time.sleep(PAUSE)
    finally:
        crew.stop()
    on_look(standing)


def _work_here(job: Job, standing: Standing, on_look: OnLook, observer: Observer | None) -> None:
    """In this process; what another grid is doing is waited for, and taken up if that one dies."""
    work_on(job, observer)
    while standing.left():
        on_look(standing)
        if standing.any_free():
            work_on(job, observer)
        else:
            time.sleep(PAUSE)
    on_look(standing)
