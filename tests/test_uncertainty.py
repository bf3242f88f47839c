"""The twelve views against loops over pixels, and the votes by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from keepset.learning.uncertainty import cut_out, rotate, twelve_views, uncertainty


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_images(count: int = 40, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    """No pixel is black, so that what was blacked out can be told."""
    return torch.randint(1, 256, (count, channels, height, width), dtype=torch.uint8, generator=seeded(0))


def views_of(images: Tensor, seed: int = 0) -> list[Tensor]:
    return list(twelve_views(images, seeded(seed)))


# ---------------------------------------------------------------- the views


def test_twelve_views__look_like_the_images() -> None:
    images = make_images()
    before = images.clone()
    views = views_of(images)
    assert len(views) == 12
    assert all(view.shape == images.shape and view.dtype == torch.uint8 for view in views)
    assert torch.equal(images, before)


def test_twelve_views__same_generator_same_views_and_nothing_drawn_elsewhere() -> None:
    before = torch.get_rng_state()
    first, again, other = (views_of(make_images(), seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert [torch.equal(a, b) for a, b in zip(first, other, strict=True)] == [False] * 8 + [True] * 4


@pytest.mark.parametrize(("side", "expected"), [(8, (2, 4, 6, 8)), (32, (8, 16, 24, 32)), (64, (8, 16, 24, 32))])
def test_twelve_views__cutouts_are_squares_that_may_stick_out(side: int, expected: tuple[int, ...]) -> None:
    images = make_images(300, 2, side, side)
    for view, length in zip(views_of(images), expected, strict=False):
        black = view == 0
        assert torch.equal(black[:, 0], black[:, 1])
        assert torch.equal(torch.where(black, 0, images), view)
        rows, columns = black[:, 0].any(2), black[:, 0].any(1)
        assert torch.equal(black[:, 0], rows[:, :, None] & columns[:, None, :])  # a rectangle
        assert int(rows.sum(1).max()) == int(columns.sum(1).max()) == length  # whole somewhere
        assert int(rows.sum(1).min()) >= length // 2  # its middle is inside


def test_cut_out__the_middle_is_anywhere() -> None:
    found = cut_out(make_images(4000, 1, 4, 4), 1, seeded(0)) == 0
    share = found[:, 0].float().mean(0)  # (4, 4), a sixteenth each
    assert share.min() > 0.045
    assert share.max() < 0.08


@pytest.mark.parametrize(("place", "dimension"), [(4, 3), (5, 2)])
def test_twelve_views__flips_half_of_the_images(place: int, dimension: int) -> None:
    images = make_images(400, 1, 8, 8)
    view = views_of(images)[place]
    flipped = [torch.equal(new, old.flip(dimension - 1)) for new, old in zip(view, images, strict=True)]
    kept = [torch.equal(new, old) for new, old in zip(view, images, strict=True)]
    assert all(a != b for a, b in zip(flipped, kept, strict=True))
    assert 160 < sum(flipped) < 240


def test_twelve_views__inversion_and_solarisation_by_pixel() -> None:
    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    *_, inverted, at_128, at_64, at_32 = (view.flatten().tolist() for view in views_of(images))
    assert inverted == [255 - pixel for pixel in range(256)]
    for found, threshold in ((at_128, 128), (at_64, 64), (at_32, 32)):
        assert found == [pixel if pixel < threshold else 255 - pixel for pixel in range(256)]


@pytest.mark.parametrize(("place", "limit"), [(6, 45), (7, 90)])
def test_twelve_views__rotations_stay_within_their_limit(place: int, limit: int) -> None:
    """A bright dot at three o'clock: its angle after the turn is the angle of the turn."""
    images = torch.zeros(500, 1, 33, 33, dtype=torch.uint8)
    images[:, :, 15:18, 29:32] = 255
    view = views_of(images)[place][:, 0].float()
    axis = torch.arange(33) - 16.0
    across, up = (view.sum(1) * axis).sum(1), -(view.sum(2) * axis).sum(1)
    angles = torch.atan2(up, across).rad2deg()
    assert angles.min() > -limit - 3
    assert angles.max() < limit + 3
    assert angles.min() < -0.95 * limit
    assert angles.max() > 0.95 * limit
    assert abs(float(angles.mean())) < 0.1 * limit


# ---------------------------------------------------------------- rotation


def slow_rotate(image: Tensor, degrees: float) -> tuple[Tensor, Tensor]:
    """(c, h, w) turned anticlockwise, pixel by pixel, and where the nearest pixel is beyond doubt."""
    _, height, width = image.shape
    turned, sure = torch.zeros_like(image), torch.ones(height, width, dtype=torch.bool)
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    for y in range(height):
        for x in range(width):
            right, down = x - (width - 1) / 2, y - (height - 1) / 2
            column = right * cosine - down * sine + (width - 1) / 2
            row = right * sine + down * cosine + (height - 1) / 2
            sure[y, x] = all(abs(abs(place - math.floor(place)) - 0.5) > 1e-3 for place in (row, column))
            if 0 <= round(row) < height and 0 <= round(column) < width:
                turned[:, y, x] = image[:, round(row), round(column)]
    return turned, sure


@pytest.mark.parametrize(("height", "width"), [(9, 9), (8, 8), (7, 12)])
def test_rotate__as_pixel_by_pixel_each_by_its_own_angle(height: int, width: int) -> None:
    images = make_images(9, 2, height, width)
    degrees = torch.tensor([0.0, 10.0, -10.0, 33.3, -71.0, 90.0, -90.0, 44.0, 5.5])
    for image, angle, found in zip(images, degrees.tolist(), rotate(images, degrees), strict=True):
        expected, sure = slow_rotate(image, angle)
        assert sure.float().mean() > 0.9 or abs(angle) == 90  # 7 × 12 turned: every pixel lies between two
        assert torch.equal(found[:, sure], expected[:, sure])


def test_rotate__right_angles_are_exact_on_squares() -> None:
    images = make_images(3, 2, 8, 8)
    found = rotate(images, torch.tensor([0.0, 90.0, -90.0]))
    assert torch.equal(found[0], images[0])
    assert torch.equal(found[1], images[1].rot90(1, (1, 2)))
    assert torch.equal(found[2], images[2].rot90(-1, (1, 2)))


def test_rotate__in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    images, degrees = make_images(11, 1, 8, 8), torch.linspace(-90, 90, 11)
    whole = rotate(images, degrees)
    monkeypatch.setattr("keepset.learning.uncertainty.ROTATED_AT_ONCE", 4)
    assert torch.equal(rotate(images, degrees), whole)


# ---------------------------------------------------------------- the votes


def test_uncertainty__one_minus_the_share_of_the_modal_class() -> None:
    """Image 0 always gets class 2; image 1 seven votes of 12 for one class; image 2 a different class each time."""
    votes = iter([[2, 0 if view < 7 else 1 + view % 2, view] for view in range(12)])

    def classify(images: Tensor) -> Tensor:
        assert images.dtype == torch.uint8
        assert not torch.is_grad_enabled()
        return torch.nn.functional.one_hot(torch.tensor(next(votes)), 12).float()

    found = uncertainty(classify, make_images(3, 1, 8, 8), seeded(0))
    assert found.tolist() == pytest.approx([0.0, 5 / 12, 11 / 12])
    assert found.shape == (3,)


def test_uncertainty__sees_the_views_in_order() -> None:
    """A classifier that looks at one pixel, against votes counted image by image."""
    images = make_images(30, 1, 8, 8)

    def classify(batch: Tensor) -> Tensor:
        return torch.nn.functional.one_hot((batch[:, 0, 3, 3] // 64).long(), 4).float()

    every = [classify(view).argmax(1).tolist() for view in views_of(images, 9)]
    expected = []
    for number in range(30):
        mine = [votes[number] for votes in every]
        expected.append(1 - max(mine.count(label) for label in range(4)) / 12)
    assert uncertainty(classify, images, seeded(9)).tolist() == pytest.approx(expected)
