"""Many runs side by side on one GPU: each has a stream and a captured step of its own, and they advance in lockstep.

A run gives the same bits in a fleet as alone: its draws come from its own seeds, and its graph knows its own tensors.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import torch

from .trainer import Trainer

MOST = 16  # runs side by side that are tried
SPARE = 0.85  # of the free memory that a fleet may fill
STEPS = 30  # of a measurement


def train_epoch(trainers: Sequence[Trainer]) -> list[float | Exception]:
    """One epoch of each trainer, in lockstep; its mean loss, or what went wrong with that one alone."""
    outcomes: list[float | Exception | None] = [None] * len(trainers)

    def each(act: Callable[[Trainer], float | None]) -> None:
        """For every trainer that has not failed, on its own stream."""
        for place, trainer in enumerate(trainers):
            if outcomes[place] is None:
                try:
                    with on_stream(trainer):
                        outcomes[place] = act(trainer)
                except Exception as error:  # out of memory, or whatever an own learner raises
                    outcomes[place] = error

    each(begin)
    for _ in range(max((trainer.steps for trainer in trainers), default=0)):
        each(Trainer.advance)
    each(Trainer.end_epoch)
    return [outcome if outcome is not None else 0.0 for outcome in outcomes]


def begin(trainer: Trainer) -> None:
    """The next epoch, on the trainer's own stream."""
    if trainer.stream is not None:
        trainer.stream.wait_stream(torch.cuda.default_stream())  # what was loaded or evaluated there
    with on_stream(trainer):
        trainer.begin_epoch()


def on_stream(trainer: Trainer) -> contextlib.AbstractContextManager[object]:
    return contextlib.nullcontext() if trainer.stream is None else torch.cuda.stream(trainer.stream)


# ---------------------------------------------------------------- how many


def room_for(first: Trainer) -> int:
    """How many runs like `first` fit beside it into the GPU's free memory, itself included; 1 on a CPU."""
    if first.stream is None:
        return 1
    torch.cuda.synchronize()
    before = torch.cuda.memory_reserved()
    begin(first)
    torch.cuda.synchronize()
    own = sum(tensor.nbytes for tensor in first.tensors().values())
    needed = max(torch.cuda.memory_reserved() - before, 0) + own
    free, _ = torch.cuda.mem_get_info()
    return max(1, min(MOST, 1 + int(SPARE * free / max(needed, 1))))


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
