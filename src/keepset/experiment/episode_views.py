"""The views of an episode, as a run's selector wants them: made or taken from the cache, judged, and kept if small."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..data import Dataset, Episode
from ..views import ENCODERS, Cache, Material, make_view, neighbour_accuracy, pixels, supervised
from ..views.cache import key_of
from .config import RunConfig
from .results import RunFolder
from .shared import Judged, Shared

Told = Callable[[Mapping[str, Any]], object]
SMALL = 2**24  # bytes of features that a run keeps unasked


class EpisodeViews:
    """What a run looks through; `told` is what its record says of the last episode."""

    def __init__(
        self, config: RunConfig, data: Dataset, folder: RunFolder, on_view: Told | None, shared: Shared
    ) -> None:
        self.config, self.data, self.folder, self.on_view, self.shared = config, data, folder, on_view, shared
        self.cache, self.told = Cache(config.cache), dict[str, Any]()
        self.previous: Tensor | None = None
        """The learner's features of the images before the episode, while it lasts, if a view is made of them."""
        channels = data.train_images.shape[1]
        for name in config.used_views():
            if name in ENCODERS and channels not in (1, 3):
                remedy = "convert the images, or set views without it"
                raise ValueError(f"the view {name} reads images of 1 or 3 channels, got {channels}; {remedy}")

    def check_cache(self, episodes: Iterable[Episode]) -> None:
        """Refuse a cache that could not take what a view is made of, before anything is trained."""
        settings, device = self.config.encoder_settings(self.data.flip), torch.device(self.config.device)
        names = [name for name in self.config.used_views() if name in ENCODERS]
        recipes = [ENCODERS[name].recipe(settings[name], device) for name in names]
        if recipes:
            self.cache.check_writable(key_of(each.train_images, recipe) for each in episodes for recipe in recipes)

    def look_before(self, episode: Episode, model: nn.Module, normalise: Callable[[Tensor], Tensor]) -> None:
        """Keep what the learner makes of the images before it is trained on them, if the selector reads it."""
        if "previous" in self.config.used_views():
            self.previous = supervised(episode.train_images.to(self.config.device), model, normalise)

    def make(
        self, number: int, episode: Episode, model: nn.Module, normalise: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor]:
        """The views that the selector reads; one that reads none still has to know how many images there are."""
        images = episode.train_images.to(self.config.device)
        material = self._material(number, model, normalise)
        views, self.told = dict[str, Tensor](), {}

        def judged(name: str) -> Judged:
            made = make_view(name, images, material)
            return Judged(made, neighbour_accuracy(made.features, episode.train_labels) if len(images) > 1 else None)

        for name in self.config.used_views():
            if name in ENCODERS:
                origin = repr((self.config.data, number, material.settings[name], images.device, self.cache.folder))
                found = self.shared.view(name, origin, functools.partial(judged, name))
            else:
                found = judged(name)
            views[name] = found.made.features
            self.told[name] = {"entry": found.made.entry, "neighbour accuracy": found.quality}
            self._tell(number, {"view": name, **self.told[name]})
        if views and self._keeps(views):
            self.folder.keep_views(number + 1, views, episode.train_labels)
        return views or {"pixels": pixels(images)}

    def _material(self, number: int, model: nn.Module, normalise: Callable[[Tensor], Tensor]) -> Material:
        return Material(
            model,
            normalise,
            self.config.encoder_settings(self.data.flip),
            self.cache,
            on_epoch=lambda record: self._tell(number, record),
            on_wait=lambda text: self._tell(number, {"waiting": text}),
            previous=None if self.previous is None else self.previous.to(self.config.device),
        )

    def _tell(self, number: int, record: Mapping[str, Any]) -> None:
        if self.on_view is not None:
            self.on_view({"episode": number + 1, **record})

    def _keeps(self, views: Mapping[str, Tensor]) -> bool:
        """As the config says, or where all episodes together are small."""
        if self.config.keep_views is not None:
            return self.config.keep_views
        columns = sum(view.shape[1] for view in views.values())
        return 2 * columns * len(self.data.train_images) <= SMALL
