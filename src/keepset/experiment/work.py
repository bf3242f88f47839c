"""What every worker of a grid does, whatever started it: claim a run, do it, let it go, until none is left to claim."""

from __future__ import annotations

import json
import os
import platform
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data import DATASETS, data_folder
from ..files import write_atomically
from ..views.cache import cache_folder
from .config import RunConfig, make_config, plain_values
from .grid import Planned
from .identity import run_hash
from .locks import Locks
from .results import ERROR, RunFolder
from .side_by_side import Failure, Pace, SideBySide, Watcher


def finished(out: Path, name: str) -> bool:
    """Whether its result is there, and whole as far as its last sign tells: a grid looks often."""
    try:
        with (out / name / "result.json").open("rb") as file:
            file.seek(-min(2, file.seek(0, os.SEEK_END)), os.SEEK_END)
            return file.read().rstrip().endswith(b"}")
    except OSError:
        return False


def failed(out: Path, name: str) -> bool:
    """Whether it failed since a grid began: that takes away the errors of the one before."""
    return (out / name / ERROR).exists() and not finished(out, name)


# ---------------------------------------------------------------- jobs


@dataclass(frozen=True)
class Job:
    """The runs of a grid, as a worker gets them."""

    runs: Sequence[Planned]
    out: Path
    side_by_side: int | str = "auto"

    def text(self) -> str:
        """As JSON, with paths that mean the same in any folder."""
        runs = [{**vars(each), "config": _anywhere(plain_values(each.config))} for each in self.runs]
        content = {"runs": runs, "out": str(self.out.absolute()), "side_by_side": self.side_by_side}
        return json.dumps(content)


def read_job(text: str) -> Job:
    content = json.loads(text)
    runs = [Planned(**{**each, "config": make_config(flags=each["config"])}) for each in content["runs"]]
    for run in runs:  # else its result would lie where nobody looks for it
        if run_hash(run.config) != run.name:
            why = "give every machine the same keepset, data and weights"
            raise ValueError(f"the run {run.name} is another one, {run_hash(run.config)}, on {platform.node()}; {why}")
    return Job(runs, Path(content["out"]), content["side_by_side"])


def _anywhere(plain: dict[str, Any]) -> dict[str, Any]:
    """None of these paths is part of a run's hash: of data in a file or a folder it knows the content."""
    data = plain["data"]
    name = data["name"] if data["name"] in DATASETS else str(Path(data["name"]).expanduser().absolute())
    data = {**data, "name": name, "folder": str(data_folder(data["folder"]).absolute())}
    return {**plain, "data": data, "cache": str(cache_folder(plain["cache"]).absolute())}


# ---------------------------------------------------------------- work


@dataclass
class Observer:
    """Who is told how a worker gets on; by itself it tells nobody."""

    watch: Watcher = field(default=lambda _: {})
    on_pace: Callable[[Pace], object] | None = None


def work(text: str, place: int = 0, places: int = 1) -> None:
    """A job from its text, by worker `place` of `places`: each begins elsewhere in the list."""
    job = read_job(text)
    shift = place % places * len(job.runs) // places
    work_on(Job([*job.runs[shift:], *job.runs[:shift]], job.out, job.side_by_side))


def work_on(job: Job, observer: Observer | None = None) -> None:
    """Do all runs that are neither finished, nor failed, nor another's."""
    locks = Locks(job.out)
    try:
        while _pass(job, locks, observer or Observer()):
            pass  # what another had and let go of may be free by now
    finally:
        locks.let_go_all()


def _pass(job: Job, locks: Locks, observer: Observer) -> bool:
    """Once through the list; whether there was anything to do."""
    group = Claiming(job, locks, observer)
    group.run(None if job.side_by_side == "auto" else int(job.side_by_side))
    return bool(group.results)


class Claiming(SideBySide):
    """Runs side by side, each claimed before it begins and let go of when it has ended."""

    def __init__(self, job: Job, locks: Locks, observer: Observer) -> None:
        configs = [each.config for each in job.runs]
        super().__init__(configs, job.out, False, observer.watch, observer.on_pace, None)
        self.locks, self.names = locks, [each.name for each in job.runs]
        self.noted: set[int] = set()  # whose end is written down

    def _start(self, limit: int) -> None:
        waiting, self.waiting = self.waiting, deque[tuple[int, RunConfig]]()
        while waiting and len(self.running) < limit:
            number, config = waiting.popleft()
            if self._takes(self.names[number]):
                self.waiting = deque([(number, config)])
                super()._start(limit)
                self._note()
        self.waiting = waiting

    def _folder(self, number: int, config: RunConfig) -> RunFolder:
        """Where the grid looks for it, whatever has become of the data since it was planned."""
        return RunFolder(self.out, config, self.names[number])

    def _takes(self, name: str) -> bool:
        """Whether it is ours to do. Once claimed it is looked at again: another may just have ended it."""
        if self._over(name) or not self.locks.take(name):
            return False
        if self._over(name):
            self.locks.let_go(name)
            return False
        return True

    def _over(self, name: str) -> bool:
        return finished(self.out, name) or failed(self.out, name)

    def _settle(self) -> None:
        super()._settle()
        self._note()

    def _note(self) -> None:
        for number in self.results.keys() - self.noted:
            self.noted.add(number)
            outcome, folder = self.results[number], self.out / self.names[number]
            if isinstance(outcome, Failure):
                write_error(folder, outcome.error)
            self.locks.let_go(self.names[number])


def write_error(folder: Path, error: BaseException) -> None:
    """The whole traceback, for whoever looks into the run's folder."""
    text = "".join(traceback.format_exception(error))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ValueError(f"cannot make the run's folder {folder}: {problem.strerror}") from None
    write_atomically(folder / ERROR, lambda file: file.write_text(text, encoding="utf-8"))
