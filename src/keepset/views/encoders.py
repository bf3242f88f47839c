"""Views that depend on the images alone: made once by a recipe, and then taken from the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .cache import Cache, Entry, Recipe, key_of
from .dinov2 import DINOv2Settings, dinov2, weights_recipe
from .pretrain import OnEpoch
from .settings import Pretraining, resolved_precision
from .simclr import VERSION as SIMCLR
from .simclr import simclr
from .vicreg import VERSION as VICREG
from .vicreg import vicreg

Settings = Pretraining | DINOv2Settings
Make = Callable[[Tensor, Any, Path | None, OnEpoch | None], Tensor]
NO_TRACE = ("compile",)  # settings that move numbers by rounding alone

# of 8 x 8 pixels, on a CPU: small crops and mirrored digits would be other digits
WRITING: Mapping[str, Any] = {
    "epochs": 100,
    "batch": 64,
    "hidden": 256,
    "output": 64,
    "augmentation": {"crop": (0.5, 1.0), "flip": 0.0, "blur": 0.0},
}
# preset -> encoder -> what it sets; the defaults are those of `desk`
PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "desk": {},
    "solo-learn": {
        "simclr": {"epochs": 1000, "rate": 0.4, "clip": True, "augmentation": {"blur": 0.5}},
        "vicreg": {"epochs": 1000, "clip": True},
    },
    "digits": {"simclr": {**WRITING, "rate": 0.4}, "vicreg": WRITING},
}


@dataclass(frozen=True)
class Encoder:
    """One line of the table of encoders."""

    summary: str
    make: Make
    recipe: Callable[[Any, torch.device], Recipe]


def _trained(name: str, version: int) -> Callable[[Any, torch.device], Recipe]:
    def recipe(settings: Pretraining, device: torch.device) -> Recipe:
        plain = {key: value for key, value in dataclasses.asdict(settings).items() if key not in NO_TRACE}
        return Recipe(name, {**plain, "precision": resolved_precision(settings, device)}, version)

    return recipe


ENCODERS: Mapping[str, Encoder] = {
    "simclr": Encoder(
        "learned from the images alone, by telling each from all others",
        lambda images, settings, checkpoint, told: simclr(images, settings, checkpoint=checkpoint, on_epoch=told),
        _trained("simclr", SIMCLR),
    ),
    "vicreg": Encoder(
        "learned from the images alone, by features that agree and do not vary together",
        lambda images, settings, checkpoint, told: vicreg(images, settings, checkpoint=checkpoint, on_epoch=told),
        _trained("vicreg", VICREG),
    ),
    "dinov2": Encoder(
        "a frozen DINOv2, which has seen other data than yours",
        lambda images, settings, _, told: dinov2(images, settings, on_batch=_as_epochs(told)),
        weights_recipe,
    ),
}
LEARNED = ("simclr", "vicreg")  # those that are trained on the images


def _as_epochs(told: OnEpoch | None) -> Callable[[int, int], object] | None:
    """Images done of all, told like epochs."""
    if told is None:
        return None
    return lambda done, total: told({"view": "dinov2", "epoch": done, "epochs": total})


def encode(
    name: str,
    images: Tensor,
    settings: Settings,
    cache: Cache | None,
    *,
    on_epoch: OnEpoch | None = None,
    on_wait: Callable[[str], object] | None = None,
) -> Entry:
    """Features of `images` by an encoder of ENCODERS, from the cache if they are there; without a cache, made anew."""
    encoder = ENCODERS[name]
    recipe = encoder.recipe(settings, images.device)
    if cache is None:
        features = encoder.make(images, settings, None, on_epoch)
        return Entry(key_of(images, recipe), features.cpu(), made=True)
    return cache.get(images, recipe, lambda checkpoint: encoder.make(images, settings, checkpoint, on_epoch), on_wait)


def without_mirroring(settings: Settings) -> Settings:
    """For images that must not be mirrored, such as writing."""
    if not isinstance(settings, Pretraining):
        return settings
    return dataclasses.replace(settings, augmentation=dataclasses.replace(settings.augmentation, flip=0.0))
