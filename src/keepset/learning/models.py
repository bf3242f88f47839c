"""The net that fits the images."""

from __future__ import annotations

import torch

from .resnet import Classifier, resnet18, small_net

MODELS = ("auto", "resnet18", "small")
SMALL_IMAGE = 16  # pixels; below it a ResNet would have nothing to shrink


def make_model(name: str, classes: int, shape: tuple[int, ...], width: int, generator: torch.Generator) -> Classifier:
    """`resnet18`, `small`, or `auto` by the images' (channels, height, width)."""
    channels, height, _ = shape
    if name == "small" or (name == "auto" and height < SMALL_IMAGE):
        return small_net(classes, channels, generator=generator)
    return resnet18(classes, width, channels, generator=generator)
