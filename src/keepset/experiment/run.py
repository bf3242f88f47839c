"""The episode loop: train, select per class, update the buffer, evaluate all episodes so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .config import RunConfig
from .results import RunFolder
from .world import Told, World


def run(
    config: RunConfig,
    out: str | Path,
    *,
    again: bool = False,
    on_epoch: Told | None = None,
    on_view: Told | None = None,
) -> dict[str, Any]:
    """One run, from where it was left; a finished one is read back, not run again.

    `on_epoch` gets a record after every epoch, the same that is written to the run's metrics.jsonl; `on_view` one for
    every epoch of a view that is learned, and one with its quality for every view that is ready.
    """
    folder = RunFolder(out, config)
    if folder.finished and not again:
        return folder.result()
    world = World(config, folder, on_epoch, on_view)  # refuses what cannot run before anything is written
    world.begin()
    for number in range(world.progress.episode, len(world.episodes)):
        world.train(number)
        views = world.embed(number)
        chosen = world.select(number, views)
        world.keep(number, chosen)
        world.evaluate(number)
        world.next_episode(chosen)
    return folder.finish(world.progress)
