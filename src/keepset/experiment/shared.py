"""What the runs of one command share: data sets on the device, views that depend on the images alone, and the first
episode, in which nothing is replayed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data import Dataset, DataSettings, content, load
from ..learning import learner
from ..learning.trainer import Material
from ..views import Made
from .config import RunConfig
from .identity import identity


@dataclass(frozen=True)
class First:
    """A model after the first episode, and how it came there."""

    tensors: Mapping[str, Tensor]
    records: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Judged:
    """A view, and how often neighbours in it share a label."""

    made: Made
    quality: float | None


class Shared:
    """Nothing is shared that could change a number: a run has the same bits by itself."""

    def __init__(self, configs: Sequence[RunConfig] = ()) -> None:
        self._data: dict[DataSettings, tuple[str, Dataset]] = {}
        self._material: dict[tuple[DataSettings, str], Material] = {}
        self._wanted = Counter(first_key(config) for config in configs)
        self._views: dict[str, tuple[str, Judged]] = {}
        self._firsts: dict[str, First] = {}
        self._training: set[str] = set()
        self.alive = 0
        """Runs under way."""

    @contextmanager
    def living(self) -> Iterator[None]:
        """Around a run's life."""
        self.alive += 1
        try:
            yield
        finally:
            self.alive -= 1

    def data(self, settings: DataSettings) -> Dataset:
        return self._loaded(settings)[1]

    def content(self, settings: DataSettings) -> str:
        """What names the data that were loaded, whatever has become of their files since."""
        return self._loaded(settings)[0]

    def _loaded(self, settings: DataSettings) -> tuple[str, Dataset]:
        if settings not in self._data:
            self._data[settings] = content(settings), load(settings)
        return self._data[settings]

    def material(self, config: RunConfig) -> Material:
        """All training images on the device, with what is needed to augment them."""
        place = config.data, config.device
        if place not in self._material:
            data = self.data(config.data)
            images, labels = (part.to(config.device) for part in (data.train_images, data.train_labels))
            mean, std = (torch.tensor(values, device=images.device) for values in (data.mean, data.std))
            self._material[place] = Material(images, labels, mean, std, data.padding, data.flip)
        return self._material[place]

    def view(self, name: str, origin: str, make: Callable[[], Judged]) -> Judged:
        """A view by what it is made from. Of each name the last one is kept: runs side by side are in one episode."""
        if name not in self._views or self._views[name][0] != origin:
            self._views[name] = origin, make()
        return self._views[name][1]

    # ------------------------------------------------------------ first episodes

    def first(self, key: str) -> First | None:
        """The first episode, if a run that agrees on it has been through it."""
        return self._firsts.get(key)

    def in_training(self, key: str) -> bool:
        return key in self._training

    @contextmanager
    def training(self, key: str) -> Iterator[None]:
        """While one run trains it, the others wait; if that run fails, another takes over."""
        self._training.add(key)
        try:
            yield
        finally:
            self._training.discard(key)

    def keep(self, key: str, first: First) -> None:
        """Kept only where another run wants it too."""
        if self._wanted[key] > 1:
            self._firsts[key] = first


def first_key(config: RunConfig) -> str:
    """What the first episode depends on: of the learner its rate alone, where all are alike with nothing to replay."""
    whole = identity(config)
    parts = {name: whole[name] for name in ("data", "model", "train", "seed", "device", "numbers")}
    for room, name in (("train", "stacked"), ("train", "statistics"), ("model", "head")):  # which say nothing of it
        parts[room].pop(name, None)
    made = learner(config.learner, config.learning)
    parts["learner"] = made.rate if made.shares_first else [config.learner, whole["learning"], made.rate]
    return json.dumps(parts, sort_keys=True)
