"""Batched crops and flips against loops over pixels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from keepset.learning.augment import Draws, augment, draw_crops, normalise

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_images(count: int, channels: int = 3, height: int = 6, width: int = 6) -> Tensor:
    shape = (count, channels, height, width)
    return torch.randint(256, shape, dtype=torch.uint8, generator=seeded(0))


def slow_augment(images: Tensor, draws: Draws, padding: int) -> Tensor:
    """Pixel by pixel: black outside the image, normalised like any other pixel."""
    count, channels, height, width = images.shape
    result = torch.empty(images.shape)
    for n in range(count):
        for c in range(channels):
            for y in range(height):
                for x in range(width):
                    column = width - 1 - x if draws.flip[n] else x
                    source = (int(draws.top[n]) + y - padding, int(draws.left[n]) + column - padding)
                    inside = 0 <= source[0] < height and 0 <= source[1] < width
                    pixel = int(images[n, c, source[0], source[1]]) if inside else 0
                    result[n, c, y, x] = (pixel / 255 - MEAN[c]) / STD[c]
    return result


@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(("height", "width"), [(6, 6), (4, 7), (7, 3)])
def test_augment__as_pixel_by_pixel(padding: int, flip: bool, height: int, width: int) -> None:
    images = make_images(8, 3, height, width)
    draws = draw_crops(8, padding, flip, seeded(1))
    found = augment(images, draws, padding, MEAN, STD)
    assert found.dtype == torch.float32
    assert found.is_contiguous()
    torch.testing.assert_close(found, slow_augment(images, draws, padding), rtol=1e-5, atol=1e-6)


def test_augment__without_padding_and_flips_only_normalises() -> None:
    images = make_images(5)
    draws = draw_crops(5, 0, False, seeded(0))
    assert torch.equal(augment(images, draws, 0, MEAN, STD), normalise(images, MEAN, STD))


def test_augment__a_flip_mirrors_left_and_right() -> None:
    images = make_images(2)
    none = torch.zeros(2, dtype=torch.int64)
    found = augment(images, Draws(none, none, torch.tensor([True, False])), 0, MEAN, STD)
    plain = normalise(images, MEAN, STD)
    assert torch.equal(found[0], plain[0].flip(2))
    assert torch.equal(found[1], plain[1])


def test_augment__leaves_the_images_and_takes_tensors_for_mean_and_std() -> None:
    images = make_images(5)
    before = images.clone()
    draws = draw_crops(5, 2, True, seeded(0))
    found = augment(images, draws, 2, torch.tensor(MEAN), torch.tensor(STD))
    assert torch.equal(found, augment(images, draws, 2, MEAN, STD))
    assert torch.equal(images, before)


def test_augment__one_grey_channel() -> None:
    images = make_images(3, channels=1)
    found = augment(images, draw_crops(3, 1, True, seeded(0)), 1, (0.5,), (0.5,))
    assert found.shape == images.shape
    assert found.stride() == images.stride()  # with one channel, is_contiguous() is true of other layouts as well
    assert found.min() >= -1
    assert found.max() <= 1


def test_normalise__by_channel() -> None:
    images = torch.tensor([[[[0, 255]], [[51, 102]]]], dtype=torch.uint8)
    found = normalise(images, (0.5, 0.2), (0.5, 0.1))
    torch.testing.assert_close(found, torch.tensor([[[[-1.0, 1.0]], [[0.0, 2.0]]]]))


def test_draw_crops__every_place_is_as_likely_as_any_other() -> None:
    draws = draw_crops(9000, 4, True, seeded(0))
    for offsets in (draws.top, draws.left):
        counts = torch.bincount(offsets)
        assert len(counts) == 9
        assert counts.min() > 900
        assert counts.max() < 1100
    assert 0.48 < draws.flip.float().mean() < 0.52
    assert not torch.equal(draws.top, draws.left)


def test_draw_crops__from_the_generator_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = (draw_crops(50, 4, True, seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.top, again.top)
    assert torch.equal(first.flip, again.flip)
    assert not torch.equal(first.top, other.top)


def test_draw_crops__no_padding_no_flip_is_the_image_itself() -> None:
    draws = draw_crops(20, 0, False, seeded(0))
    assert not draws.top.any()
    assert not draws.left.any()
    assert not draws.flip.any()


def test_draws__a_part_is_that_of_those_images() -> None:
    images, draws = make_images(7), draw_crops(7, 2, True, seeded(0))
    whole = augment(images, draws, 2, MEAN, STD)
    assert torch.equal(augment(images[2:5], draws.part(2, 5), 2, MEAN, STD), whole[2:5])
