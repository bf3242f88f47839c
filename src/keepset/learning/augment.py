"""Random crops and flips of whole batches: first the draws, as tensors, then a function without randomness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Draws:
    """Where each image is cropped, counted from the padded image's corner, and whether it is mirrored. All (b,)."""

    top: Tensor
    left: Tensor
    flip: Tensor

    def part(self, first: int, last: int) -> Draws:
        """The draws of images `first` up to, but not with, `last`."""
        return Draws(self.top[first:last], self.left[first:last], self.flip[first:last])


def draw_crops(count: int, padding: int, flip: bool, generator: torch.Generator) -> Draws:
    """Uniform draws for `count` images; flip: mirror each with probability one half, or none."""
    top, left = torch.randint(2 * padding + 1, (2, count), generator=generator)
    flips = torch.rand(count, generator=generator) < 0.5 if flip else torch.zeros(count, dtype=torch.bool)
    return Draws(top, left, flips)


def augment(
    images: Tensor, draws: Draws, padding: int, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor
) -> Tensor:
    """(b, c, h, w) uint8 -> float32: padded with black, cropped to the old size, mirrored, normalised."""
    count, channels, height, width = images.shape
    device = images.device
    padded = functional.pad(images, [padding] * 4)
    rows = draws.top.to(device)[:, None] + torch.arange(height, device=device)  # (b, h)
    columns = draws.left.to(device)[:, None] + torch.arange(width, device=device)  # (b, w)
    columns = torch.where(draws.flip.to(device)[:, None], columns.flip(1), columns)
    image = torch.arange(count, device=device)[:, None, None, None]
    channel = torch.arange(channels, device=device)[:, None, None]
    # All four are indexed: a slice for the channels would put them last, and convolutions take another path for that.
    crops = padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]
    return normalise(crops, mean, std)


def normalise(images: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> Tensor:
    """(b, c, h, w) uint8 -> float32, (pixel / 255 − mean) / std by channel.

    Tensors on the images' device spare a copy in every step.
    """
    means, stds = (torch.as_tensor(v, dtype=torch.float32, device=images.device)[:, None, None] for v in (mean, std))
    return (images.to(torch.float32) / 255 - means) / stds
