"""The augmentation of self-supervised training against Pillow and kornia, image by image and in distribution."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from itertools import permutations

import kornia
import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats  # type: ignore[import-untyped]
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from keepset.views.augment import BRIGHTNESS, CONTRAST, HUE, SATURATION, Augmentation, Draws, augment, draw

OFTEN = Augmentation(jitter=0.7, grey=0.3, blur=0.6, solarise=0.4, flip=0.5)
YES = torch.ones(1, dtype=torch.bool)
STILL = Augmentation(crop=(1, 1), ratio=(1, 1), jitter=0, grey=0, blur=0, solarise=0, flip=0)
COLOURS: dict[int, Callable[[Tensor, float], Tensor]] = {
    BRIGHTNESS: kornia.enhance.adjust_brightness_accumulative,  # despite its name the factor of Pillow
    CONTRAST: kornia.enhance.adjust_contrast_with_mean_subtraction,
    SATURATION: kornia.enhance.adjust_saturation_with_gray_subtraction,
    HUE: lambda image, turns: kornia.enhance.adjust_hue(image, 2 * math.pi * turns),
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_images(count: int, channels: int = 3, height: int = 16, width: int = 16) -> Tensor:
    return torch.randint(256, (count, channels, height, width), dtype=torch.uint8, generator=seeded(0))


def plain(images: Tensor, draws: Draws) -> Tensor:
    """Augmented, in 0..1."""
    channels = images.shape[1]
    return augment(images, draws, torch.zeros(channels), torch.ones(channels))


def still(count: int, height: int = 16, width: int = 16, **changes: Tensor) -> Draws:
    """Draws that leave the image alone, but for the changes."""
    draws = draw(STILL, count, height, width, seeded(0))
    whole = {"top": draws.top * 0, "left": draws.left * 0}
    whole |= {"height": torch.full((count,), height), "width": torch.full((count,), width)}
    return Draws(**(vars(draws) | whole | changes))


# ---------------------------------------------------------------- a slow reference, one image at a time


def slow_crop(image: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """Cut, and then resized by Pillow, in floating point."""
    size = (image.shape[2], image.shape[1])
    box = (left, top, left + width, top + height)
    bands = [Image.fromarray(band).crop(box).resize(size, Image.Resampling.BICUBIC) for band in image.float().numpy()]
    return torch.from_numpy(np.stack([np.array(band) for band in bands])).div(255).clamp(0, 1)


def slow_blur(image: Tensor, sigma: float) -> Tensor:
    """Every pixel as a mean over the mirrored image, rows and then columns, in double precision."""
    return slow_blur_rows(slow_blur_rows(image.double(), sigma).mT, sigma).mT.float()


def slow_blur_rows(image: Tensor, sigma: float) -> Tensor:
    length = image.shape[2]
    row = [*range(length - 1, 0, -1), *range(length), *range(length - 2, -1, -1)]  # as far as one mirror reaches
    places = torch.arange(1 - length, 2 * length - 1)
    weights = [torch.exp(-((places - place) ** 2).double() / (2 * sigma**2)) for place in range(length)]
    return torch.stack([(image[:, :, row] * weight / weight.sum()).sum(2) for weight in weights], 2)


def slow_augment(image: Tensor, draws: Draws) -> Tensor:
    """(c, h, w) in 0..1; draws of this image alone."""
    colour = len(image) == 3
    result = slow_crop(image, int(draws.top), int(draws.left), int(draws.height), int(draws.width))
    factors = (draws.brightness, draws.contrast, draws.saturation, draws.hue)
    for kind in draws.order.tolist() if draws.jitter else []:
        if colour or kind in (BRIGHTNESS, CONTRAST):
            result = COLOURS[kind](result[None], float(factors[kind]))[0]
    if draws.grey and colour:
        result = kornia.color.rgb_to_grayscale(result).expand_as(result)
    if draws.blur:
        result = slow_blur(result, float(draws.sigma))
    if draws.solarise:
        result = kornia.enhance.solarize(result, 0.5)
    return result.flip(2) if draws.flip else result


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), [(16, 16), (12, 20), (21, 13)])
def test_augment__as_image_by_image(channels: int, height: int, width: int) -> None:
    images = make_images(60, channels, height, width)
    draws = draw(OFTEN, 60, height, width, seeded(height))
    mean, std = torch.tensor([0.5, 0.4, 0.3])[:channels], torch.tensor([0.2, 0.25, 0.3])[:channels]
    expected = torch.stack([slow_augment(image, draws.map(operator.itemgetter(i))) for i, image in enumerate(images)])
    expected = (expected - mean[:, None, None]) / std[:, None, None]
    found = augment(images, draws, mean, std)
    assert found.dtype == torch.float32
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 9), (1, 3), (32, 32), (64, 64)])
def test_crop__as_pillow_cuts_and_resizes(height: int, width: int) -> None:
    images = make_images(40, 3, height, width)
    draws = draw(Augmentation(jitter=0, grey=0, blur=0, flip=0), 40, height, width, seeded(1))
    boxes = zip(*(t.tolist() for t in (draws.top, draws.left, draws.height, draws.width)), strict=True)
    expected = torch.stack([slow_crop(image, *box) for image, box in zip(images, boxes, strict=True)])
    torch.testing.assert_close(plain(images, draws), expected, rtol=0, atol=1e-5)


def test_crop__sees_nothing_outside_its_box() -> None:
    images = make_images(50)
    draws = draw(Augmentation(crop=(0.08, 0.5)), 50, 16, 16, seeded(2))
    changed = images.clone()
    for image, top, left, height, width in zip(changed, draws.top, draws.left, draws.height, draws.width, strict=True):
        inside = image[:, top : top + height, left : left + width].clone()
        image.fill_(255)
        image[:, top : top + height, left : left + width] = inside
    assert torch.equal(plain(images, draws), plain(changed, draws))


# ---------------------------------------------------------------- the operations, one by one


@pytest.mark.parametrize(
    ("kind", "amount"),
    [(kind, amount) for kind in (BRIGHTNESS, CONTRAST, SATURATION) for amount in (0.0, 0.3, 1.0, 1.8)]
    + [(HUE, turns) for turns in (-0.5, -0.2, 0.0, 0.01, 0.3, 0.5)],
)
def test_colour__each_operation_as_kornia(kind: int, amount: float) -> None:
    images = make_images(20)
    amounts = [1.0, 1.0, 1.0, 0.0]
    amounts[kind] = amount
    names = ("brightness", "contrast", "saturation", "hue")
    changes = {name: torch.full((20,), value) for name, value in zip(names, amounts, strict=True)}
    draws = still(20, 16, 16, jitter=YES.expand(20), **changes)
    torch.testing.assert_close(plain(images, draws), COLOURS[kind](images / 255, amount), rtol=0, atol=5e-6)


def test_colour__every_order_as_one_after_another() -> None:
    orders = torch.tensor(list(permutations(range(4))))
    images = make_images(1).expand(24, -1, -1, -1)
    factors = torch.tensor([1.6, 0.4, 1.7, -0.15])
    names = ("brightness", "contrast", "saturation", "hue")
    changes = {name: factor.expand(24) for name, factor in zip(names, factors, strict=True)}
    found = plain(images, still(24, 16, 16, order=orders, jitter=YES.expand(24), **changes))
    for order, image in zip(orders, found, strict=True):
        expected = images[:1] / 255
        for kind in order.tolist():
            expected = COLOURS[kind](expected, float(factors[kind]))
        torch.testing.assert_close(image, expected[0], rtol=0, atol=1e-5)


def test_colour__a_third_of_a_turn_moves_every_channel_on() -> None:
    images = make_images(6)
    third = still(6, jitter=YES.expand(6), hue=torch.full((6,), 1 / 3))
    third = Draws(**(vars(third) | {name: torch.ones(6) for name in ("brightness", "contrast", "saturation")}))
    # red to green, green to blue, blue to red
    torch.testing.assert_close(plain(images, third), images.roll(1, dims=1) / 255, rtol=0, atol=2e-6)


@pytest.mark.parametrize("level", [0, 1, 77, 128, 255])
def test_colour__pixels_without_hue_stay_finite_and_grey(level: int) -> None:
    images = torch.full((200, 3, 8, 8), level, dtype=torch.uint8)
    found = plain(images, draw(Augmentation(jitter=1, solarise=0.3, hue=0.5), 200, 8, 8, seeded(4)))
    assert found.isfinite().all()
    assert found.min() > -1e-6
    assert found.max() < 1 + 1e-6
    torch.testing.assert_close(found, found.mean((1, 2, 3), keepdim=True).expand_as(found), rtol=0, atol=2e-6)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (20, 26)])
def test_blur__as_kornia_with_mirrored_borders(sigma: float, height: int, width: int) -> None:
    images = make_images(4, 3, height, width)
    kernel = (2 * height - 1, 2 * width - 1)  # the widest whose border can be mirrored
    expected = kornia.filters.gaussian_blur2d(images / 255, kernel, (sigma, sigma), "reflect")
    draws = still(4, height, width, blur=YES.expand(4), sigma=torch.full((4,), sigma))
    torch.testing.assert_close(plain(images, draws), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 2), (3, 2), (8, 8), (5, 11)])
def test_blur__of_an_image_smaller_than_the_kernel_as_pixel_by_pixel(height: int, width: int) -> None:
    images = make_images(3, 3, height, width)
    sigma = torch.tensor([0.1, 1.0, 2.0])
    expected = torch.stack([slow_blur(image / 255, float(s)) for image, s in zip(images, sigma, strict=True)])
    found = plain(images, still(3, height, width, blur=YES.expand(3), sigma=sigma))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_solarise__inverts_from_one_half_upwards() -> None:
    images = torch.tensor([0, 127, 128, 255], dtype=torch.uint8).view(1, 1, 1, 4).expand(2, -1, -1, -1)
    found = plain(images, still(2, 1, 4, solarise=torch.tensor([True, False])))
    torch.testing.assert_close(found[0].flatten(), torch.tensor([0, 127, 127, 0]) / 255)
    assert torch.equal(found[1], images[1] / 255)


# ---------------------------------------------------------------- what is left alone


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 31, 32, 64])
def test_augment__with_nothing_to_do_normalises_to_the_bit(channels: int, size: int) -> None:
    images = make_images(10, channels, size, size)
    mean, std = torch.tensor([0.5, 0.4, 0.3])[:channels], torch.tensor([0.2, 0.25, 0.3])[:channels]
    found = augment(images, draw(STILL, 10, size, size, seeded(0)), mean, std)
    assert torch.equal(found, (images / 255 - mean[:, None, None]) / std[:, None, None])


def test_augment__masks_alone_decide() -> None:
    """With no mask set, neither factors nor order nor sigma are seen; a flip then mirrors to the bit."""
    images = make_images(40)
    drawn = draw(OFTEN, 40, 16, 16, seeded(5))
    names = ("brightness", "contrast", "saturation", "hue", "order", "sigma")
    draws = still(40, 16, 16, flip=drawn.flip, **{name: getattr(drawn, name) for name in names})
    expected = torch.where(drawn.flip[:, None, None, None], images.flip(3), images) / 255
    assert torch.equal(plain(images, draws), expected)


def test_augment__one_channel_has_no_colour() -> None:
    images = make_images(40, 1)
    draws = draw(Augmentation(jitter=1, grey=1), 40, 16, 16, seeded(6))
    other = Draws(**(vars(draws) | {"saturation": draws.saturation * 0, "hue": -draws.hue, "grey": ~draws.grey}))
    assert torch.equal(plain(images, draws), plain(images, other))


@pytest.mark.parametrize("channels", [1, 3])
def test_augment__a_part_of_the_batch_is_the_part_of_the_whole(channels: int) -> None:
    images = make_images(30, channels)
    draws = draw(OFTEN, 30, 16, 16, seeded(7))
    found = plain(images[11:18], draws.map(lambda tensor: tensor[11:18]))
    torch.testing.assert_close(found, plain(images, draws)[11:18], rtol=0, atol=1e-6)


def test_augment__stays_in_float32_under_autocast() -> None:
    images = make_images(20)
    draws = draw(OFTEN, 20, 16, 16, seeded(8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = plain(images, draws)
    assert torch.equal(found, plain(images, draws))


@pytest.mark.parametrize("channels", [1, 3])
def test_augment__no_operation_looks_at_values(channels: int) -> None:
    """Traced on tensors without values, which fails at a branch, an item() or a shape that depends on them."""
    images, mean, std = make_images(6, channels), torch.zeros(channels), torch.ones(channels)
    draws = draw(OFTEN, 6, 16, 16, seeded(9))
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(tensor) for tensor in (images, mean, std, *vars(draws).values())]

        def run(images: Tensor, mean: Tensor, std: Tensor, *tensors: Tensor) -> Tensor:
            return augment(images, Draws(*tensors), mean, std)

        graph = make_fx(run)(*fake).graph
    assert "aten.bmm.default" in {str(node.target) for node in graph.nodes}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_augment__captured_in_a_graph_as_on_the_cpu() -> None:
    images, mean, std = make_images(64), torch.full((3,), 0.5), torch.full((3,), 0.25)
    draws = draw(OFTEN, 64, 16, 16, seeded(10))
    inputs = images.cuda(), draws.map(lambda tensor: tensor.cuda()), mean.cuda(), std.cuda()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        augment(*inputs)  # loads the kernels
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # refuses any copy to the host
        found = augment(*inputs)
    graph.replay()
    torch.testing.assert_close(found.cpu(), augment(images, draws, mean, std), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "images", [torch.zeros(2, 3, 8, 8), torch.zeros(2, 2, 8, 8, dtype=torch.uint8), torch.zeros(3, 8, 8).byte()]
)
def test_augment__refuses_what_is_no_batch_of_images(images: Tensor) -> None:
    with pytest.raises(ValueError, match="images must be uint8 of shape"):
        plain(images, still(2, 8, 8))


# ---------------------------------------------------------------- draws


def test_draw__from_the_generator_alone() -> None:
    before = torch.get_rng_state()
    settings = Augmentation(solarise=0.5)
    first, second = (draw(settings, 50, 9, 7, seeded(3)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    other = draw(settings, 50, 9, 7, seeded(4))
    for name, tensor in vars(first).items():
        assert torch.equal(tensor, getattr(second, name)), name
        assert not torch.equal(tensor, getattr(other, name)), name
        assert len(tensor) == 50


def test_draw__no_two_quantities_share_their_chance() -> None:
    draws = draw(Augmentation(jitter=0.5, grey=0.5, solarise=0.5), 4000, 64, 64, seeded(5))
    shares = {n: t.double() for n, t in vars(draws).items() if n not in ("top", "left", "height", "width", "order")}
    shares |= {"area": draws.height * draws.width, "ratio": draws.width / draws.height}
    shares |= {"down": (draws.top + 0.5) / (65 - draws.height), "across": (draws.left + 0.5) / (65 - draws.width)}
    correlation = torch.corrcoef(torch.stack([share.double() for share in shares.values()]))
    correlation.fill_diagonal_(0)
    assert correlation.abs().max() < 0.07  # four standard errors of 4,000


def test_draw__kinds_of_numbers() -> None:
    draws = draw(Augmentation(), 5, 8, 8, seeded(0))
    kinds = {name: tensor.dtype for name, tensor in vars(draws).items()}
    assert all(kinds[name] == torch.int64 for name in ("top", "left", "height", "width", "order"))
    assert all(kinds[name] == torch.bool for name in ("jitter", "grey", "blur", "solarise", "flip"))
    assert all(kinds[name] == torch.float32 for name in ("brightness", "contrast", "saturation", "hue", "sigma"))
    assert draws.order.shape == (5, 4)


def test_draws_map__reaches_every_tensor() -> None:
    draws = draw(OFTEN, 12, 8, 8, seeded(0))
    step = draws.map(lambda tensor: tensor.view(3, 4, *tensor.shape[1:])).map(lambda tensor: tensor[1])
    for name, tensor in vars(draws).items():
        assert torch.equal(getattr(step, name), tensor[4:8]), name


@pytest.mark.parametrize(
    ("height", "width", "ratio", "box"),
    [
        (4, 32, (1.0, 1.0), (0, 14, 4, 4)),  # wider than allowed: the full height
        (32, 4, (1.0, 1.0), (14, 0, 4, 4)),  # narrower: the full width
        (32, 4, (0.5, 2.0), (12, 0, 8, 4)),
        (4, 31, (0.5, 2.0), (0, 11, 4, 8)),
        (4, 4, (30.0, 40.0), (1, 0, 1, 4)),  # never less than a pixel
    ],
)
def test_draw__the_middle_where_no_box_fits(
    height: int, width: int, ratio: tuple[float, float], box: tuple[int, int, int, int]
) -> None:
    draws = draw(Augmentation(crop=(1, 1), ratio=ratio), 30, height, width, seeded(0))
    found = torch.stack([draws.top, draws.left, draws.height, draws.width], 1)
    assert torch.equal(found, torch.tensor(box).expand(30, 4))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("crop", (0.0, 1.0)),
        ("crop", (0.5, 0.2)),
        ("crop", (0.5, 1.1)),
        ("crop", 0.5),
        ("ratio", (0.0, 1.0)),
        ("ratio", (2.0, 1.0)),
        ("ratio", (1.0, math.inf)),
        ("ratio", (1.0, 2.0, 3.0)),
        ("sigma", (0.0, 1.0)),
        ("sigma", (2.0, 1.0)),
        ("sigma", (math.nan, 1.0)),
        ("brightness", -0.1),
        ("contrast", math.inf),
        ("saturation", math.nan),
        ("hue", 0.6),
        ("hue", -0.1),
        ("jitter", 1.1),
        ("grey", -0.1),
        ("blur", "often"),
        ("solarise", True),
        ("flip", None),
    ],
)
def test_augmentation__refuses_bad_settings(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{setting} must be .*got {re.escape(repr(value))}"):
        Augmentation(**{setting: value})  # type: ignore[arg-type]


def test_augmentation__takes_the_ends_of_its_ranges() -> None:
    ends = {"crop": (1, 1), "ratio": (1, 1), "brightness": 0, "contrast": 3, "hue": 0.5, "jitter": 1, "grey": 0}
    assert ends.items() <= vars(Augmentation(**ends)).items()  # type: ignore[arg-type]


# ---------------------------------------------------------------- distributions, beside kornia's


def agree(ours: Tensor, theirs: Tensor) -> None:
    """Kolmogorov and Smirnov's test of two samples; the seeds are fixed, so it fails always or never."""
    assert stats.ks_2samp(ours.numpy(), theirs.numpy()).pvalue > 0.01


def their_boxes(settings: Augmentation, count: int, height: int, width: int) -> tuple[Tensor, ...]:
    crop = kornia.augmentation.RandomResizedCrop((height, width), settings.crop, settings.ratio)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        corners = crop.generate_parameters(torch.Size([count, 3, height, width]))["src"].round()  # (count, 4, 2): x, y
    left, top = corners[:, 0].T
    right, bottom = corners[:, 2].T
    return top, left, bottom - top + 1, right - left + 1


@pytest.mark.parametrize(
    ("crop", "ratio", "height", "width"),
    [
        ((0.08, 1.0), (3 / 4, 4 / 3), 32, 32),
        ((0.2, 1.0), (3 / 4, 4 / 3), 64, 64),
        ((0.3, 1.0), (1 / 3, 3.0), 48, 20),
        ((0.4, 1.0), (3 / 4, 4 / 3), 20, 40),
    ],
)
def test_draw__boxes_as_kornias(crop: tuple[float, float], ratio: tuple[float, float], height: int, width: int) -> None:
    settings = Augmentation(crop=crop, ratio=ratio)
    draws = draw(settings, 20_000, height, width, seeded(11))
    tops, lefts, heights, widths = their_boxes(settings, 20_000, height, width)
    assert (draws.top + draws.height <= height).all()
    assert (draws.left + draws.width <= width).all()
    agree(draws.height * draws.width, heights * widths)
    agree(draws.width / draws.height, widths / heights)
    agree(draws.height, heights)
    agree(draws.width, widths)
    # where no box fits kornia's place is random, while torchvision's and ours is the middle: those are left out
    ours, theirs = draws.height < height, heights < height
    agree((draws.top / (height - draws.height + 1))[ours], (tops / (height - heights + 1))[theirs])
    agree((draws.left / (width - draws.width + 1))[ours], (lefts / (width - widths + 1))[theirs])


@pytest.mark.parametrize("strengths", [(0.8, 0.8, 0.8, 0.2), (0.4, 0.3, 1.5, 0.1)])
def test_draw__factors_as_kornias(strengths: tuple[float, float, float, float]) -> None:
    jitter = kornia.augmentation.ColorJitter(*strengths)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        theirs = jitter.generate_parameters(torch.Size([20_000, 3, 8, 8]))
    names = ("brightness", "contrast", "saturation", "hue")
    brightness, contrast, saturation, hue = strengths
    settings = Augmentation(brightness=brightness, contrast=contrast, saturation=saturation, hue=hue)
    draws = draw(settings, 20_000, 8, 8, seeded(12))
    for name in names:
        agree(getattr(draws, name), theirs[f"{name}_factor"])


def test_draw__probabilities_orders_and_sigmas() -> None:
    settings = Augmentation(jitter=0.8, grey=0.2, blur=0.5, solarise=0.1, flip=0.4, sigma=(0.3, 1.1))
    draws = draw(settings, 24_000, 8, 8, seeded(13))
    for name in ("jitter", "grey", "blur", "solarise", "flip"):
        done = int(getattr(draws, name).sum())
        assert stats.binomtest(done, 24_000, getattr(settings, name)).pvalue > 0.01, name
    counts = torch.unique(draws.order, dim=0, return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts.numpy()).pvalue > 0.01
    assert stats.kstest(draws.sigma.numpy(), stats.uniform(0.3, 0.8).cdf).pvalue > 0.01


def smooth_images() -> Tensor:
    """Two soft coloured pictures: so soft that kornia's other cubic kernel (a = −¾) makes no difference."""
    coarse = torch.rand(2, 3, 4, 4, generator=seeded(14))
    fine = torch.nn.functional.interpolate(coarse, (32, 32), mode="bilinear")
    return (255 * fine).round().byte()


def their_copies(image: Tensor, settings: Augmentation, count: int) -> Tensor:
    """(24 · count, 3, h, w): kornia draws one order for a whole batch, so each order gets a batch of its own."""
    s, size = settings, (32, 32)
    first = kornia.augmentation.RandomResizedCrop(
        size, s.crop, s.ratio, resample="bicubic", align_corners=False, cropping_mode="resample"
    )
    rest = torch.nn.Sequential(
        kornia.augmentation.RandomGrayscale(p=s.grey),
        kornia.augmentation.RandomGaussianBlur(21, s.sigma, p=s.blur),
        kornia.augmentation.RandomSolarize((0.5, 0.5), (0.0, 0.0), p=s.solarise),
        kornia.augmentation.RandomHorizontalFlip(p=s.flip),
    )
    strengths = (s.brightness, s.contrast, s.saturation, s.hue)
    crops = first((image / 255).expand(24 * count, -1, -1, -1)).clamp(0, 1).chunk(24)
    jitters = (kornia.augmentation.ColorJitter(*strengths, p=s.jitter, order=o) for o in permutations(range(4)))
    copies: Tensor = rest(torch.cat([jitter(crop) for jitter, crop in zip(jitters, crops, strict=True)]))
    return copies


def statistics_of(copies: Tensor) -> dict[str, Tensor]:
    red, green, blue = copies.mean((2, 3)).T
    spread = copies.amax(1) - copies.amin(1)
    pixels = copies[:, :, ::2, ::2].flatten(1)
    return {
        "red": red,
        "green": green,
        "blue": blue,
        "contrast": copies.mean(1).std((1, 2)),
        "colourfulness": spread.mean((1, 2)),
        "darkest tenth": pixels.kthvalue(len(pixels.T) // 10).values,
        "lightest tenth": pixels.kthvalue(len(pixels.T) * 9 // 10).values,
        "left to right": copies[..., 16:].mean((1, 2, 3)) - copies[..., :16].mean((1, 2, 3)),
        "top to bottom": copies[:, :, 16:].mean((1, 2, 3)) - copies[:, :, :16].mean((1, 2, 3)),
        "detail": copies.diff(dim=3).abs().mean((1, 2, 3)),
    }


@pytest.mark.parametrize(
    "settings",
    [
        Augmentation(),
        Augmentation(
            crop=(0.2, 1), brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1, blur=0, solarise=0.3, flip=0.2
        ),
    ],
    ids=["simclr", "solarised"],
)
def test_augment__copies_are_spread_as_kornias(settings: Augmentation) -> None:
    for number, image in enumerate(smooth_images()):
        with torch.random.fork_rng():
            torch.manual_seed(number)
            theirs = statistics_of(their_copies(image, settings, 50))
        draws = draw(settings, 1200, 32, 32, seeded(15 + number))
        ours = statistics_of(plain(image.expand(1200, -1, -1, -1), draws))
        for name in ours:
            assert stats.ks_2samp(ours[name].numpy(), theirs[name].numpy()).pvalue > 0.003, (number, name)
