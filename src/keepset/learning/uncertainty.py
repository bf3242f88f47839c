"""Rainbow Memory's uncertainty: how much a classifier disagrees with itself over twelve views of an image."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

VIEWS = 12
CUTOUTS = (8, 16, 24, 32)  # sides, for images of 32×32 and larger
TURNS = (45, 90)  # degrees either way
SOLARISE = (128, 64, 32)
ROTATED_AT_ONCE = 1024  # images; rotating takes about 40 bytes a pixel


def uncertainty(function: Callable[[Tensor], Tensor], images: Tensor, generator: torch.Generator) -> Tensor:
    """(n,) 1 − votes of the modal class / 12, in 0…11/12: larger is less certain.

    function: (n, c, h, w) uint8 images -> (n, classes) logits; it normalises, and batches if it must.
    """
    with torch.no_grad():
        votes = torch.stack([function(view).argmax(1) for view in twelve_views(images, generator)])  # (12, n)
    agreement = (votes[:, None] == votes).sum(0).amax(0)  # with how many, itself included, a vote agrees: the mode's
    return 1 - agreement / torch.tensor(VIEWS, dtype=torch.float64)


def twelve_views(images: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    """Twelve batches of uint8 images like `images`, one at a time; each image has draws of its own.

    In order: cutout of side 8, 16, 24 and 32; horizontal and vertical flip, each with probability one half; rotation
    within ±45° and ±90°; inversion; solarisation at 128, 64 and 32. On images whose shorter side is less than 32 the
    cutouts shrink with it, so that they hide the same share.
    """
    shorter = min(images.shape[-2:])
    for side in CUTOUTS:
        yield cut_out(images, max(1, round(side * min(shorter, 32) / 32)), generator)
    for dimension in (3, 2):
        mirrored = (torch.rand(len(images), generator=generator) < 0.5).to(images.device)
        yield torch.where(mirrored[:, None, None, None], images.flip(dimension), images)
    for limit in TURNS:
        yield rotate(images, (2 * torch.rand(len(images), generator=generator) - 1) * limit)
    yield 255 - images
    for threshold in SOLARISE:
        yield torch.where(images < threshold, images, 255 - images)


def cut_out(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Black out a square of that side, its middle anywhere in the image; what sticks out is cut off."""
    inside = []
    for length in images.shape[-2:]:
        first = torch.randint(length, (len(images), 1), generator=generator) - side // 2
        places = torch.arange(length)
        inside.append(((places >= first) & (places < first + side)).to(images.device))  # (n, length)
    rows, columns = inside
    return images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0)


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Each image turned anticlockwise about its middle by its own angle (n,); nearest pixel, black outside."""
    parts = zip(images.split(ROTATED_AT_ONCE), degrees.to(images.device).split(ROTATED_AT_ONCE), strict=True)
    return torch.cat([_rotated(part, angles) for part, angles in parts])


def _rotated(images: Tensor, degrees: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    cosine, sine = degrees.deg2rad().cos(), degrees.deg2rad().sin()
    zero = torch.zeros_like(cosine)
    # Where each pixel comes from, in coordinates of −1…1 a side: other than square, the sides have other units.
    across = torch.stack([cosine, -sine * height / width, zero], 1)
    down = torch.stack([sine * width / height, cosine, zero], 1)
    grid = functional.affine_grid(torch.stack([across, down], 1), list(images.shape), align_corners=False)
    turned = functional.grid_sample(images.to(grid), grid, mode="nearest", align_corners=False)
    return turned.to(images.dtype)
