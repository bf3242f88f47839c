"""The augmentation of self-supervised training: first the draws, as tensors, then a function without randomness.

Per image, in this order: random resized crop, colour jitter, grey, Gaussian blur, solarise, mirror, normalise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

# the colour operations, as numbered in Draws.order
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
TRIES = 10
"""How many boxes are drawn for a crop before the middle of the image is taken."""


@dataclass(frozen=True)
class Augmentation:
    """How strongly images are changed; the defaults are SimCLR's."""

    crop: tuple[float, float] = (0.08, 1.0)
    """Smallest and largest part of the image's area."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Smallest and largest width / height of the crop."""
    brightness: float = 0.8
    contrast: float = 0.8
    saturation: float = 0.8
    """x: a factor in max(0, 1 − x)..1 + x, as for brightness and contrast."""
    hue: float = 0.2
    """x: a shift in −x..x, in turns of the colour circle."""
    jitter: float = 0.8
    """Probability of the four above; those below are probabilities too, but for sigma."""
    grey: float = 0.2
    blur: float = 0.5
    sigma: tuple[float, float] = (0.1, 2.0)
    """Smallest and largest width of the blur, in pixels."""
    solarise: float = 0.0
    flip: float = 0.5

    def __post_init__(self) -> None:
        _check_pair("crop", self.crop, 1, "parts of the image's area")
        _check_pair("ratio", self.ratio, math.inf, "width / height")
        _check_pair("sigma", self.sigma, math.inf, "pixels")
        for name in ("brightness", "contrast", "saturation"):
            _check_number(name, getattr(self, name), math.inf, "0 leaves it alone")
        _check_number("hue", self.hue, 0.5, "turns; half a turn reaches every hue")
        for name in ("jitter", "grey", "blur", "solarise", "flip"):
            _check_number(name, getattr(self, name), 1, "a probability")


def _check_number(name: str, value: object, high: float, meaning: str) -> None:
    if not (_is_number(value) and 0 <= value <= high):  # type: ignore[operator]
        allowed = f"in 0..{high:g}" if high < math.inf else "a finite number that is not negative"
        raise ValueError(f"{name} must be {allowed} ({meaning}), got {value!r}")


def _check_pair(name: str, value: Sequence[float], high: float, meaning: str) -> None:
    pair = isinstance(value, Sequence) and len(value) == 2 and all(map(_is_number, value))
    if not (pair and 0 < value[0] <= value[1] <= high):
        upper = f" <= {high:g}" if high < math.inf else ""
        raise ValueError(f"{name} must be two numbers with 0 < first <= second{upper} ({meaning}), got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


# ---------------------------------------------------------------- draws


@dataclass(frozen=True)
class Draws:
    """What happens to each image. All (count,), but for `order`."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    """The crop box in whole pixels, int64, as the three above."""
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor
    """A factor, float32, as the two above."""
    hue: Tensor
    """The shift in turns, float32."""
    order: Tensor
    """(count, 4) int64, the four colour operations in the order in which they are done."""
    jitter: Tensor
    grey: Tensor
    blur: Tensor
    solarise: Tensor
    flip: Tensor
    """Whether it is done, bool, as the four above."""
    sigma: Tensor
    """The width of the blur in pixels, float32."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Draws:
        """The function applied to every tensor: to move, to reshape or to index them all."""
        return Draws(**{field.name: function(getattr(self, field.name)) for field in fields(self)})


def draw(settings: Augmentation, count: int, height: int, width: int, generator: torch.Generator) -> Draws:
    """Draws for `count` images of one size, on the CPU, from the generator alone."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=generator)

    def factor(strength: float) -> Tensor:
        return uniform(max(0.0, 1 - strength), 1 + strength)

    def happens(probability: float) -> Tensor:
        return torch.rand(count, generator=generator) < probability

    top, left, crop_height, crop_width = _draw_boxes(settings, count, height, width, generator)
    return Draws(
        top=top,
        left=left,
        height=crop_height,
        width=crop_width,
        brightness=factor(settings.brightness),
        contrast=factor(settings.contrast),
        saturation=factor(settings.saturation),
        hue=uniform(-settings.hue, settings.hue),
        order=torch.rand(count, 4, generator=generator).argsort(1),
        jitter=happens(settings.jitter),
        grey=happens(settings.grey),
        blur=happens(settings.blur),
        solarise=happens(settings.solarise),
        flip=happens(settings.flip),
        sigma=uniform(*settings.sigma),
    )


def _draw_boxes(
    settings: Augmentation, count: int, height: int, width: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, left, height and width of the first of TRIES random boxes that fits, or else of the middle; all (count,)."""
    chance = torch.rand(4, count, TRIES, generator=generator, dtype=torch.float64)
    low, high = settings.crop
    area = height * width * (low + (high - low) * chance[0])
    low, high = (math.log(side) for side in settings.ratio)
    ratio = torch.exp(low + (high - low) * chance[1])
    heights, widths = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()
    fits = (heights >= 1) & (heights <= height) & (widths >= 1) & (widths <= width)
    tops = (chance[2] * (height - heights + 1)).floor()
    lefts = (chance[3] * (width - widths + 1)).floor()
    tried = torch.stack([tops, lefts, heights, widths])  # (4, count, TRIES)
    first = fits.int().argmax(1)[None, :, None].expand(4, -1, -1)  # argmax: the first of equals
    middle = torch.tensor(_middle_box(settings.ratio, height, width), dtype=torch.float64)[:, None]
    top, left, crop_height, crop_width = torch.where(fits.any(1), tried.gather(2, first)[..., 0], middle).long()
    return top, left, crop_height, crop_width


def _middle_box(ratio: tuple[float, float], height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width of the largest box in the middle whose width / height is allowed."""
    low, high = ratio
    crop_height = max(1, round(width / low)) if width / height < low else height
    crop_width = max(1, round(height * high)) if width / height > high else width
    return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width


# ---------------------------------------------------------------- images


def augment(images: Tensor, draws: Draws, mean: Tensor, std: Tensor) -> Tensor:
    """(b, c, h, w) uint8, one channel or three -> float32 of the same size, (value − mean) / std by channel.

    draws: (b,) each, on the images' device, as are mean and std, (c,). Tensor operations of fixed shape alone, so that
    it can be compiled and captured in a CUDA graph. Every pixel gets every operation, and a mask decides.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        found = f"{images.dtype} {tuple(images.shape)}"
        raise ValueError(f"images must be uint8 of shape (b, 1, h, w) or (b, 3, h, w), got {found}")
    with torch.autocast(images.device.type, enabled=False):  # half precision would lose half a grey level
        pixels = _colour(_crop(images.float(), draws).div(255).clamp(0, 1), draws)
        pixels = torch.where(draws.blur[:, None, None, None], _blur(pixels, draws.sigma), pixels)
    solarised = draws.solarise[:, None, None, None] & (pixels >= 0.5)
    return (torch.where(solarised, 1 - pixels, pixels) - mean[:, None, None]) / std[:, None, None]


def _mix(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """(b, c, h, w) images whose lines are mixtures of the old ones; the weights: rows (b, h, h), columns (b, w, w)."""
    return rows[:, None] @ images @ columns[:, None].mT


def _crop(images: Tensor, draws: Draws) -> Tensor:
    """The crop box of each image resized to the whole, and mirrored where drawn: a matter of the columns' order."""
    height, width = images.shape[2:]
    rows = torch.arange(height, device=images.device)[None]
    columns = torch.arange(width, device=images.device)[None]
    columns = torch.where(draws.flip[:, None], width - 1 - columns, columns)
    return _mix(images, _resizing(draws.top, draws.height, rows), _resizing(draws.left, draws.width, columns))


def _resizing(first: Tensor, size: Tensor, places: Tensor) -> Tensor:
    """(b, n, n) bicubic weights: row i makes line `places[i]` of the crop, `size` lines from `first`, resized to n.

    As Pillow's, lines outside the crop get no weight and the rest are scaled up to one. places: (1, n) or (b, n).
    """
    length = places.shape[1]
    lines = torch.arange(length, device=first.device)
    first, last = first[:, None], (first + size)[:, None]
    centres = first + (places + 0.5) * (size[:, None].float() / length) - 0.5  # (b, n)
    inside = (lines >= first) & (lines < last)
    weights = torch.where(inside[:, None], _cubic((centres[:, :, None] - lines).abs()), 0.0)
    return weights / weights.sum(2, keepdim=True)


def _cubic(distance: Tensor) -> Tensor:
    """Keys' cubic kernel with a = −½."""
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))


def _blur(images: Tensor, sigma: Tensor) -> Tensor:
    return _mix(images, *(_gaussian(sigma, length) for length in images.shape[2:]))


def _gaussian(sigma: Tensor, length: int) -> Tensor:
    """(b, n, n) weights of a Gaussian over lines mirrored at the border, without repeating the border's own line."""
    places = torch.arange(length, device=sigma.device)
    lines = places[:, None]  # where the blurred line lies; across: the lines that it is made of
    last = length - 1
    spread = -0.5 / sigma[:, None, None].square()
    weights = torch.exp(spread * (lines - places).square())
    weights = weights + torch.where(places > 0, torch.exp(spread * (lines + places).square()), 0.0)
    weights = weights + torch.where(places < last, torch.exp(spread * (2 * last - places - lines).square()), 0.0)
    return weights / weights.sum(2, keepdim=True)


# ---------------------------------------------------------------- colours, on planes: one (b, h · w) for each channel


def _colour(images: Tensor, draws: Draws) -> Tensor:
    """Colour jitter and grey where drawn. As planes, all of it compiles into one loop over pixels and their mean."""
    planes = list(images.flatten(2).unbind(1))
    jittered = _jitter(planes, draws)
    planes = [torch.where(draws.jitter[:, None], new, old) for new, old in zip(jittered, planes, strict=True)]
    if len(planes) == 3:
        grey = _grey(planes)
        planes = [torch.where(draws.grey[:, None], grey, plane) for plane in planes]
    return torch.stack(planes, 1).view_as(images)


def _jitter(planes: list[Tensor], draws: Draws) -> list[Tensor]:
    """The four operations in each sample's own order.

    All but the hue are blends, which are cheap; so they are done before it and after it, each time with factor one
    for those whose turn it is not, and the hue is shifted once.
    """
    one = torch.ones_like(draws.brightness)
    saturation = draws.saturation if len(planes) == 3 else one
    factors = torch.stack([draws.brightness, draws.contrast, saturation, one], 1).gather(1, draws.order)  # by slot
    if len(planes) == 1:
        return _blends(planes, factors, draws.order)
    turn = (draws.order == HUE).int().argmax(1, keepdim=True)  # (b, 1)
    slots = torch.arange(4, device=turn.device)
    planes = _blends(planes, torch.where(slots < turn, factors, 1.0)[:, :3], draws.order[:, :3])
    planes = _shift_hue(planes, draws.hue[:, None])
    return _blends(planes, torch.where(slots > turn, factors, 1.0)[:, 1:], draws.order[:, 1:])


def _blends(planes: list[Tensor], factors: Tensor, order: Tensor) -> list[Tensor]:
    """Brightness blends with black, contrast with the mean grey, saturation with each pixel's grey. (b, slots) both."""
    for factor, kind in zip(factors.split(1, 1), order.split(1, 1), strict=True):
        grey = _grey(planes)
        anchor = torch.where(kind == CONTRAST, grey.mean(1, keepdim=True), torch.where(kind == SATURATION, grey, 0.0))
        planes = [(factor * plane + (1 - factor) * anchor).clamp(0, 1) for plane in planes]
    return planes


def _grey(planes: list[Tensor]) -> Tensor:
    return planes[0] if len(planes) == 1 else 0.299 * planes[0] + 0.587 * planes[1] + 0.114 * planes[2]


def _shift_hue(planes: list[Tensor], shift: Tensor) -> list[Tensor]:
    """Hue + shift (turns), with value and chroma (largest − smallest) as they were."""
    red, green, blue = planes
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    unit = chroma.clamp(min=1e-8)  # a grey pixel has no hue: any will do
    of_rest = torch.where(value == green, 2 + (blue - red) / unit, 4 + (red - green) / unit)
    hue = torch.where(value == red, (green - blue) / unit, of_rest) + 6 * shift  # in sixths of a turn
    return [value - chroma * _below_value(hue + start) for start in (5, 3, 1)]


def _below_value(place: Tensor) -> Tensor:
    """How far a channel lies below the value, as a part of the chroma, around the colour circle of six sixths."""
    place = place - 6 * torch.floor(place / 6)  # in 0..6 for negative places too
    return torch.minimum(place, 4 - place).clamp(0, 1)
