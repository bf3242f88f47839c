"""The episode loop: train, select per class, update the buffer, evaluate all episodes so far."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

from ..learning import fleet
from ..learning.stack import Stacks
from ..learning.trainer import Engine, Trainer
from .config import RunConfig
from .episode_views import Told
from .results import RunFolder
from .shared import Shared, first_key
from .world import World

Life = Generator[Trainer | None, float | None, None]


def run(
    config: RunConfig,
    out: str | Path,
    *,
    again: bool = False,
    on_epoch: Told | None = None,
    on_view: Told | None = None,
    engine: Engine | None = None,
) -> dict[str, Any]:
    """One run, from where it was left; a finished one is read back, not run again.

    `on_epoch` gets a record after every epoch, the same that is written to the run's metrics.jsonl; `on_view` one for
    every epoch of a view that is learned, and one with its quality for every view that is ready.
    """
    folder = RunFolder(out, config)
    if folder.finished and not again:
        return folder.result()
    shared = Shared()
    world = World(config, folder, shared, on_epoch, on_view, engine)  # refuses what cannot run before writing anything
    epochs, stacks = life(world, shared), Stacks()
    outcome: float | Exception | None = None
    while True:
        try:  # an error of the learner's is thrown in, so that none can be taken for the end
            trainer = epochs.throw(outcome) if isinstance(outcome, Exception) else epochs.send(outcome)
        except StopIteration:
            return folder.finish(world.progress)
        outcome = None if trainer is None else fleet.train_epoch([trainer], stacks)[0]


def life(world: World, shared: Shared) -> Life:
    """A run's whole life. It asks for every epoch: a trainer is to be trained and its mean loss sent back.

    None is asked for while another run trains the first episode for both.
    """
    with shared.living():
        world.begin()
        for number in range(world.progress.episode, len(world.episodes)):
            yield from world.train(number) if number else _first(world, shared)
            views = world.embed(number)
            chosen = world.select(number, views)
            world.keep(number, chosen)
            world.evaluate(number)
            world.next_episode(chosen)


def _first(world: World, shared: Shared) -> Life:
    """The first episode: trained here, or taken from a run that agrees on it."""
    key = first_key(world.config)
    while world.progress.epoch == 0 and shared.in_training(key):
        yield None
    first = shared.first(key)
    if first is not None and world.progress.epoch == 0:
        world.take_first(first)
        return
    with shared.training(key):
        yield from world.train(0)
    shared.keep(key, world.first())
