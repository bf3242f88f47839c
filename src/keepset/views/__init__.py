"""Views: what an episode's images look like to an encoder, (n, d).

A name of VIEWS, or `module:function` for a function of yours, images (n, c, h, w) uint8 -> (n, d).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..checks import nearest_name, own_function
from .cache import Cache
from .dinov2 import DINOv2Settings, dinov2
from .encoders import ENCODERS, PRESETS, Settings, encode
from .pixels import pixels
from .quality import neighbour_accuracy
from .simclr import SimCLRSettings, simclr
from .supervised import supervised
from .vicreg import VICRegSettings, vicreg

__all__ = [
    "ENCODERS",
    "OWN",
    "PRESETS",
    "VIEWS",
    "Cache",
    "DINOv2Settings",
    "Made",
    "Material",
    "SimCLRSettings",
    "VICRegSettings",
    "check_name",
    "dinov2",
    "directed",
    "encode",
    "make_view",
    "neighbour_accuracy",
    "pixels",
    "simclr",
    "supervised",
    "vicreg",
]

VIEWS: Mapping[str, str] = {
    "supervised": "the learner's own features after the episode",
    "previous": "the learner's own features before the episode",
    **{name: encoder.summary for name, encoder in ENCODERS.items()},
    "pixels": "the flattened image",
}
OWN = ("supervised", "previous")  # a learner's own: only a run has them


@dataclass(frozen=True)
class Material:
    """What a view may be made from: the learner as it is after the episode and what it said before it, the encoders'
    settings, and the cache."""

    model: nn.Module | None = None
    normalise: Callable[[Tensor], Tensor] | None = None
    settings: Mapping[str, Settings] = field(default_factory=dict)
    cache: Cache | None = None
    on_epoch: Callable[[Mapping[str, Any]], object] | None = None
    on_wait: Callable[[str], object] | None = None
    previous: Tensor | None = None
    """(n, d) the learner's features of the images before the episode."""


@dataclass(frozen=True)
class Made:
    """A view, (n, d) float32 on the device of its images, and the cache's entry that holds it, if one does."""

    features: Tensor
    entry: str | None = None


def make_view(name: str, images: Tensor, material: Material) -> Made:
    """A view of `images`, by its name."""
    if name in ENCODERS:
        if name not in material.settings:
            raise ValueError(f"the view {name!r} needs settings; give material.settings a {name!r}")
        settings, told, waiting = material.settings[name], material.on_epoch, material.on_wait
        entry = encode(name, images, settings, material.cache, on_epoch=told, on_wait=waiting)
        return Made(directed(entry.features.to(images.device)), entry.key)
    if name == "pixels":
        return Made(pixels(images))
    if name not in OWN:
        return Made(_checked(name, own_encoder(name)(images), len(images)))
    if name == "previous" and material.previous is not None:
        return Made(directed(_checked(name, material.previous, len(images))))
    if name == "supervised" and material.model is not None and material.normalise is not None:
        return Made(directed(supervised(images, material.model, material.normalise)))
    raise ValueError(f"the view {name!r} is a learner's; it is made in keepset run")


def directed(features: Tensor) -> Tensor:
    """A direction of their own for images to which a network answers with zeros alone: a column more, at a right angle
    to all others."""
    silent = ~features.any(1, keepdim=True)
    return torch.cat([features, silent.to(features)], 1) if bool(silent.any()) else features


def _checked(name: str, view: object, count: int) -> Tensor:
    if not isinstance(view, Tensor) or view.ndim != 2 or len(view) != count:
        shape = tuple(view.shape) if isinstance(view, Tensor) else type(view).__name__
        raise ValueError(f"view {name!r} must be a tensor of shape ({count}, d), got {shape}")
    return view.detach().float()


def check_name(name: str) -> None:
    """Refuse an unknown view before anything is trained."""
    if name not in VIEWS:
        own_encoder(name)


def own_encoder(name: str) -> Callable[[Tensor], object]:
    """The function behind `module:function`."""
    if ":" not in name:
        raise ValueError(f"unknown view {name!r}; {nearest_name(name, VIEWS)} or name your own as module:function")
    return own_function("view", name)
