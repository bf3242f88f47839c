"""The net that fits the images."""

from __future__ import annotations

import copy

import torch

from .resnet import Classifier, resnet18, small_net

MODELS = ("auto", "resnet18", "small")
HEADS = ("whole", "grown")
SMALL_IMAGE = 16  # pixels; below it a ResNet would have nothing to shrink


def make_model(
    name: str,
    classes: int,
    shape: tuple[int, ...],
    width: int,
    generator: torch.Generator,
    initialisation: str = "he",
) -> Classifier:
    """`resnet18`, `small`, or `auto` by the images' (channels, height, width)."""
    channels, height, across = shape
    if min(height, across) < 2:
        raise ValueError(f"images must have 2 pixels a side or more, got {height} x {across}; enlarge them")
    if name == "small" or (name == "auto" and height < SMALL_IMAGE):
        return small_net(classes, channels, generator=generator, initialisation=initialisation)
    return resnet18(classes, width, channels, generator=generator, initialisation=initialisation)


def check_single(model: Classifier, shape: tuple[int, ...]) -> None:
    """Refuse a net that cannot be trained on a batch of one image of (channels, height, width)."""
    device = next(model.parameters()).device
    try:
        copy.deepcopy(model).train()(torch.zeros(1, *shape, device=device))
    except ValueError:
        side = " x ".join(map(str, shape[1:]))
        raise ValueError(
            f"a batch of 1 image of {side} pixels leaves batch normalisation one value a channel; set train.batch and "
            "learning.memory_batch to 2 or more"
        ) from None
