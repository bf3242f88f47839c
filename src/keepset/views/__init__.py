"""Views: what an episode's images look like to an encoder, (n, d).

A name of VIEWS, or `module:function` for a function of yours, images (n, c, h, w) uint8 -> (n, d).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from ..checks import nearest_name
from .pixels import pixels
from .supervised import supervised

Encoder = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Material:
    """What a view may be made from: the learner as it is after the episode, and how images are normalised for it."""

    model: nn.Module
    normalise: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Entry:
    """One line of the table of views."""

    make: Callable[[Tensor, Material], Tensor]
    summary: str


VIEWS: Mapping[str, Entry] = {
    "supervised": Entry(
        lambda images, material: supervised(images, material.model, material.normalise),
        "the learner's own features after the episode",
    ),
    "pixels": Entry(lambda images, _: pixels(images), "the flattened image"),
}


def make_view(name: str, images: Tensor, material: Material) -> Tensor:
    """(n, d) float32 features of `images`, on their device."""
    view = VIEWS[name].make(images, material) if name in VIEWS else own_encoder(name)(images)
    if not isinstance(view, Tensor) or view.ndim != 2 or len(view) != len(images):
        shape = tuple(view.shape) if isinstance(view, Tensor) else type(view).__name__
        raise ValueError(f"view {name!r} must be a tensor of shape ({len(images)}, d), got {shape}")
    return view


def check_name(name: str) -> None:
    """Refuse an unknown view before anything is trained."""
    if name not in VIEWS:
        own_encoder(name)


def own_encoder(name: str) -> Encoder:
    """The function behind `module:function`."""
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(f"unknown view {name!r}; {nearest_name(name, VIEWS)} or name your own as module:function")
    try:
        found = getattr(importlib.import_module(module), function, None)
    except Exception as error:  # a module of the caller's may fail in any way
        raise ValueError(f"view {name!r}: cannot import {module} ({error}); is it on PYTHONPATH?") from None
    if not callable(found):
        raise ValueError(f"view {name!r}: {module} has no function {function!r}")
    encoder: Encoder = found
    return encoder
