"""Which runs of a grid are stacked."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from ..learning import learner
from ..learning.resnet import ResNet18
from ..learning.stack import check_stackable
from .config import RunConfig
from .grid import SIZES, Grid, Planned
from .identity import run_hash
from .work import finished


def stacked_where_possible(grid: Grid, out: Path) -> Grid:
    """The runs that can be stacked, stacked; but one that is finished as it is stays so, and is not run again."""
    runs = {run.name: run for run in (_stacked(run, out) for run in grid.runs)}
    return dataclasses.replace(grid, runs=tuple(runs.values()))


def _stacked(run: Planned, out: Path) -> Planned:
    if finished(out, run.name) or not can_stack(run.config):
        return run
    config = dataclasses.replace(run.config, train=dataclasses.replace(run.config.train, stacked=True))
    return dataclasses.replace(run, name=run_hash(config), config=config)


def can_stack(config: RunConfig) -> bool:
    """On a GPU, of data whose images are known to be large enough for the ResNet without looking at them."""
    if config.device != "cuda" or config.data.name not in SIZES or config.model.name == "small":
        return False
    with torch.device("meta"):
        model = ResNet18(classes=2, width=config.model.width, channels=3)
    try:
        given = config.data.image_size, config.train.batch, config.device
        check_stackable(learner(config.learner, config.learning), model, *given)
    except ValueError:
        return False
    return True
