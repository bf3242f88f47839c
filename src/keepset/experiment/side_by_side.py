"""Many runs of one command, several at a time: their epochs are trained together, everything else run by run."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..checks import check_range
from ..learning import fleet
from ..learning.stack import PLACES, Stacks
from ..learning.trainer import Engine, Trainer
from .config import RunConfig
from .episode_views import Told
from .identity import run_hash
from .results import RunFolder
from .run import Life, life
from .shared import Shared
from .world import World

TOGETHER = 2 * PLACES  # stacked runs at a time: while one stack moves maps, the other multiplies

Watcher = Callable[[int], Mapping[str, Told]]
"""The number of a run -> `on_epoch` and `on_view` of it."""


@dataclass(frozen=True)
class Failure:
    """A run that could not be finished; the others were."""

    config: RunConfig
    error: Exception


@dataclass(frozen=True)
class Pace:
    """How a fleet advances: runs side by side, and steps of all of them together."""

    runs: int
    run_steps: int
    seconds: float


@dataclass
class Running:
    """A run under way: what it asks for next, or how it ended."""

    number: int
    world: World
    epochs: Life
    trainer: Trainer | None = None
    ended: bool = False
    result: dict[str, Any] = field(default_factory=dict)
    failure: Exception | None = None

    def proceed(self, outcome: float | Exception | None) -> None:
        """Go on until the next epoch is asked for."""
        try:
            try:  # thrown in, a failure lets go of a first episode that other runs wait for
                send, throw = self.epochs.send, self.epochs.throw
                self.trainer = throw(outcome) if isinstance(outcome, Exception) else send(outcome)
            except StopIteration:
                self.trainer, self.result = None, self.world.folder.finish(self.world.progress)
                self.ended = True
        except Exception as error:  # whatever it is, it is this run's alone
            self.trainer, self.failure, self.ended = None, error, True


def run_all(
    configs: Sequence[RunConfig],
    out: str | Path,
    *,
    again: bool = False,
    side_by_side: int | str = "auto",
    watch: Watcher = lambda _: {},
    on_pace: Callable[[Pace], object] | None = None,
    engine: Engine | None = None,
) -> list[dict[str, Any] | Failure]:
    """Every run's result, in the order of the configs, or why it failed; finished runs are read back.

    side_by_side: how many at a time; `auto`: by memory and a short measurement on a GPU, one after the other on a CPU;
    if all are stacked, as many as memory holds, up to two full stacks.
    """
    if side_by_side != "auto":
        check_range("side_by_side", side_by_side, 1, 1024, "runs at a time, or auto")
    if len({run_hash(config) for config in configs}) < len(configs):
        raise ValueError("configs must name each run once: two of them would write into one folder; leave one out")
    group = SideBySide(configs, Path(out), again, watch, on_pace, engine)
    return group.run(None if side_by_side == "auto" else int(side_by_side))


class SideBySide:
    """Runs that wait, that are under way, and that have ended."""

    def __init__(
        self,
        configs: Sequence[RunConfig],
        out: Path,
        again: bool,
        watch: Watcher,
        on_pace: Callable[[Pace], object] | None,
        engine: Engine | None,
    ) -> None:
        self.out, self.again, self.watch, self.on_pace, self.engine = out, again, watch, on_pace, engine
        self.waiting, self.running = deque(enumerate(configs)), list[Running]()
        self.results: dict[int, dict[str, Any] | Failure] = {}
        self.on_gpu = any(config.device == "cuda" for config in configs)
        self.shared, self.stacks = Shared(configs), Stacks()

    def run(self, limit: int | None) -> list[dict[str, Any] | Failure]:
        """All of them, at most `limit` at a time; None: as many as are found to be best."""
        stacked = self._all_stacked()
        measured = limit is not None or stacked
        if limit is None:
            self._start(1)
            limit = self._room(TOGETHER if stacked else fleet.MOST)
            limit = limit if self.on_gpu or not stacked else PLACES
        while self.waiting or self.running:
            self._start(limit)
            if not measured and self._all_ask():
                limit, measured = self._best(), True
            self._advance(limit)
            self._settle()
        return [self.results[number] for number in sorted(self.results)]

    def _start(self, limit: int) -> None:
        """Begin runs until `limit` are under way; finished ones are read back on the way."""
        while self.waiting and len(self.running) < limit:
            number, config = self.waiting.popleft()
            try:
                folder = self._folder(number, config)
                if folder.finished and not self.again:
                    self.results[number] = folder.result()
                    continue
                world = World(config, folder, self.shared, engine=self.engine, **self.watch(number))
            except Exception as error:  # whatever it is, it is this run's alone
                self.results[number] = Failure(config, error)
                continue
            self.running.append(Running(number, world, life(world, self.shared)))
            self.stacks.keep(each.world.trainer for each in self.running)
            self.running[-1].proceed(None)
            self._settle()

    def _folder(self, _: int, config: RunConfig) -> RunFolder:
        return RunFolder(self.out, config)

    def _advance(self, limit: int) -> None:
        """An epoch of those that ask for one, together; the others only look whether they can go on."""
        asking = [each for each in self.running if each.trainer is not None][:limit]
        resting = [each for each in self.running if each.trainer is None]
        trainers = [each.trainer for each in asking if each.trainer is not None]
        begin = time.perf_counter()
        outcomes = fleet.train_epoch(trainers, self.stacks)
        spent = time.perf_counter() - begin
        if self.on_pace is not None and trainers:
            self.on_pace(Pace(len(trainers), sum(trainer.steps for trainer in trainers), spent))
        for each, outcome in zip(asking, outcomes, strict=True):
            each.proceed(outcome)
        for each in resting:
            each.proceed(None)

    def _settle(self) -> None:
        """Take down how runs ended."""
        for each in [each for each in self.running if each.ended]:
            self.running.remove(each)
            if each.failure is None:
                self.results[each.number] = each.result
            else:
                self.results[each.number] = Failure(each.world.config, _without_frames(each.failure))

    # ------------------------------------------------------------ how many

    def _all_stacked(self) -> bool:
        """Whether all runs that are left are."""
        left = [each for number, each in self.waiting if self.again or not self._folder(number, each).finished]
        return bool(left) and all(config.train.stacked for config in left)

    def _room(self, most: int) -> int:
        """As many as memory holds; one on a CPU."""
        first = self.running[0].trainer if self.running else None
        try:
            return 1 if first is None else fleet.room_for(first, most)
        except RuntimeError:  # out of memory: the run meets it by itself, if it is still so
            return 1

    def _all_ask(self) -> bool:
        """Whether a measurement would see all that are to run side by side."""
        return len(self.running) > 1 and all(each.trainer is not None for each in self.running)

    def _best(self) -> int:
        trainers = [each.trainer for each in self.running if each.trainer is not None]
        try:
            for trainer in trainers:
                fleet.begin(trainer)
            return fleet.best_number(trainers)
        except RuntimeError:  # out of memory: each run meets it by itself, if it is still so
            return max(1, len(trainers) // 2)


def _without_frames(error: Exception) -> Exception:
    """The error with its traceback as a note: the frames themselves would hold the run and all its memory."""
    text = "".join(traceback.format_exception(error))
    error = error.with_traceback(None)
    if not getattr(error, "__notes__", []):  # the runs of a stack share an error
        error.add_note(text)
    return error
