"""Many runs side by side on one GPU: each has a stream and a captured step of its own, and they advance in lockstep.

A run gives the same bits in a fleet as alone: its draws come from its own seeds, and its graph knows its own tensors.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from .stack import Stack, Stacks
from .trainer import Trainer

MOST = 16  # runs side by side that are tried
SPARE = 0.85  # of the free memory that a fleet may fill
STEPS = 30  # of a measurement


@dataclass
class Member:
    """A trainer by itself, or the trainers of a stack; and their mean losses, or what went wrong."""

    trainers: Sequence[Trainer]
    make: Callable[[], Trainer | Stack]
    of: Trainer | Stack | None = None
    outcome: list[float] | Exception | None = None

    def attempt(self, act: Callable[[Member], list[float] | None]) -> None:
        """If it has not failed."""
        if self.outcome is None:
            try:
                self.outcome = act(self)
            except Exception as error:  # out of memory, or whatever an own learner raises
                self.outcome = error
                if isinstance(self.of, Stack):
                    self.of.leave()

    def begin(self) -> None:
        self.of = self.make()
        begin(self.of, self.trainers)

    def advance(self) -> None:
        if self.of is not None:
            with on_stream(self.of):
                self.of.advance()

    def end(self) -> list[float]:
        if self.of is None:
            return []
        with on_stream(self.of):
            ended = self.of.end_epoch()
        return ended if isinstance(ended, list) else [ended]


def train_epoch(trainers: Sequence[Trainer], stacks: Stacks | None = None) -> list[float | Exception]:
    """One epoch of each trainer, in lockstep; its mean loss, or what went wrong with that one alone.

    stacks: of the fleet, kept from epoch to epoch; trainers that are stacked fail together.
    """
    groups, alone = (Stacks() if stacks is None else stacks).split(trainers)
    members = [Member(group.trainers, group.stack) for group in groups]
    members += [Member([trainer], functools.partial(_itself, trainer)) for trainer in alone]
    for member in members:
        member.attempt(Member.begin)
    for _ in range(max((trainer.steps for trainer in trainers), default=0)):
        for member in members:
            member.attempt(Member.advance)
    for member in members:
        member.attempt(Member.end)
    found: dict[int, float | Exception] = {}
    for member in members:
        for place, trainer in enumerate(member.trainers):
            outcome = member.outcome
            found[id(trainer)] = outcome[place] if isinstance(outcome, list) else outcome or 0.0
    return [found[id(trainer)] for trainer in trainers]


def _itself(trainer: Trainer) -> Trainer:
    return trainer


def begin(member: Trainer | Stack, trainers: Sequence[Trainer] = ()) -> None:
    """The next epoch, on the member's own stream; trainers: those of a stack."""
    if member.stream is not None:
        member.stream.wait_stream(torch.cuda.default_stream())  # what was loaded or evaluated there
    with on_stream(member):
        if isinstance(member, Stack):
            member.begin_epoch(trainers)
        else:
            member.begin_epoch()


def on_stream(member: Trainer | Stack) -> contextlib.AbstractContextManager[object]:
    return contextlib.nullcontext() if member.stream is None else torch.cuda.stream(member.stream)


# ---------------------------------------------------------------- how many


def room_for(first: Trainer, most: int = MOST) -> int:
    """How many runs like `first` fit into the GPU's free memory, itself included, up to `most`; 1 on a CPU."""
    if first.stream is None:
        return 1
    torch.cuda.synchronize()
    before = torch.cuda.memory_reserved()
    begin(first)
    torch.cuda.synchronize()
    own = sum(tensor.nbytes for tensor in first.tensors().values())
    needed = max(torch.cuda.memory_reserved() - before, 0) + own
    free, _ = torch.cuda.mem_get_info()
    return max(1, min(most, 1 + int(SPARE * free / max(needed, 1))))


def best_number(trainers: Sequence[Trainer]) -> int:
    """The number of runs side by side with the most run-steps a second, by a short measurement; epochs must have begun.

    A larger number has to be better by more than a thirtieth: it fills memory, and each run takes longer.
    """
    best, rate = 1, 0.0
    number = 1
    while number <= len(trainers):
        found = run_steps_a_second(trainers[:number], STEPS)
        if found > rate * (1 + 1 / 30):
            best, rate = number, found
        number *= 2
    return best


def run_steps_a_second(trainers: Sequence[Trainer], steps: int) -> float:
    """How fast these runs advance together; they are left as they were."""
    steps = min([steps, *(trainer.steps for trainer in trainers)])
    seconds = []
    for _ in range(2):  # the first one warms up
        kept = [trainer.kept() for trainer in trainers]
        _synchronise(trainers)
        started = time.perf_counter()
        for _ in range(steps):
            for trainer in trainers:
                with on_stream(trainer):
                    trainer.advance()
        _synchronise(trainers)
        seconds.append(time.perf_counter() - started)
        for restore in kept:
            restore()
    return len(trainers) * steps / seconds[-1]


def _synchronise(trainers: Sequence[Trainer]) -> None:
    if trainers[0].stream is not None:
        torch.cuda.synchronize()
