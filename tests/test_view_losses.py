"""The losses of self-supervised training against loops over numbers, and in cases that can be done by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from keepset.views.losses import contrastive, variance_invariance_covariance

WEIGHTS = (25.0, 15.0, 2.0)  # three different ones, so that none can stand in for another


def random_projections(half: int, size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scale = torch.linspace(0.3, 1.6, size, dtype=torch.float64)  # spreads on both sides of one
    return torch.randn(2 * half, size, dtype=torch.float64, generator=generator) * scale + 0.2


# ---------------------------------------------------------------- slow references


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / ((a * a).sum().sqrt() * (b * b).sum().sqrt())


def slow_contrastive(projections: Tensor, temperature: float) -> Tensor:
    count = len(projections)
    total = torch.zeros((), dtype=torch.float64)
    for row in range(count):
        copy = row + count // 2 if row < count // 2 else row - count // 2
        among = torch.zeros((), dtype=torch.float64)
        for other in range(count):
            if other != row:
                among = among + torch.exp(cosine(projections[row], projections[other]) / temperature)
        own = torch.exp(cosine(projections[row], projections[copy]) / temperature)
        total = total - torch.log(own / among)
    return total / count


def slow_vicreg(projections: Tensor, invariance: float, variance: float, covariance: float) -> Tensor:
    half, size = len(projections) // 2, projections.shape[1]
    first, second = projections[:half], projections[half:]
    apart = sum((first[i, j] - second[i, j]) ** 2 for i in range(half) for j in range(size)) / (half * size)
    narrow = slow_narrow(first) + slow_narrow(second)
    together = slow_together(first) + slow_together(second)
    return invariance * apart + variance * narrow + covariance * together


def slow_covariance(view: Tensor, a: int, b: int) -> Tensor:
    count = len(view)
    means = [sum(view[i, j] for i in range(count)) / count for j in (a, b)]
    total = sum((view[i, a] - means[0]) * (view[i, b] - means[1]) for i in range(count)) / (count - 1)
    return torch.as_tensor(total)


def slow_narrow(view: Tensor) -> Tensor:
    size = view.shape[1]
    hinges = [torch.clamp(1 - torch.sqrt(slow_covariance(view, j, j) + 1e-4), min=0) for j in range(size)]
    return torch.stack(hinges).mean()


def slow_together(view: Tensor) -> Tensor:
    size = view.shape[1]
    pairs = [slow_covariance(view, a, b) ** 2 for a in range(size) for b in range(size) if a != b]
    return torch.stack(pairs).sum() / size


Loss = Callable[[Tensor], Tensor]


def by_vicreg(projections: Tensor) -> Tensor:
    return variance_invariance_covariance(projections, *WEIGHTS)


LOSSES: dict[str, tuple[Loss, Loss]] = {
    "contrastive": (lambda p: contrastive(p, 0.2), lambda p: slow_contrastive(p, 0.2)),
    "contrastive, warm": (lambda p: contrastive(p, 3.0), lambda p: slow_contrastive(p, 3.0)),
    "vicreg": (by_vicreg, lambda p: slow_vicreg(p, *WEIGHTS)),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("half", "size"), [(2, 2), (5, 3), (3, 8)])
def test_losses__value_and_gradient_as_written_out(name: str, half: int, size: int) -> None:
    fast, slow = LOSSES[name]
    projections = random_projections(half, size).requires_grad_()
    found, expected = fast(projections), slow(projections)
    assert found.dtype == torch.float32
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    found_gradient, gradient = (torch.autograd.grad(loss, projections)[0] for loss in (found, expected))
    assert torch.allclose(found_gradient, gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()))


@pytest.mark.parametrize("name", LOSSES)
def test_losses__swapping_the_two_views_changes_nothing(name: str) -> None:
    fast, _ = LOSSES[name]
    projections = random_projections(6, 4)
    assert float(fast(projections.roll(6, 0))) == pytest.approx(float(fast(projections)), rel=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_losses__rows_i_and_i_plus_b_are_the_copies(name: str) -> None:
    """Any other pairing of images that all look different costs more."""
    fast, _ = LOSSES[name]
    first = random_projections(6, 4)[:6]
    losses = [float(fast(torch.cat([first, 1.01 * first.roll(shift, 0)]))) for shift in range(6)]
    assert min(losses[1:]) > 1.02 * losses[0]


@pytest.mark.parametrize("name", LOSSES)
def test_losses__bfloat16_is_computed_in_float32(name: str) -> None:
    fast, slow = LOSSES[name]
    projections = random_projections(5, 3).bfloat16().requires_grad_()
    found = fast(projections)
    assert found.dtype == torch.float32
    assert float(found.detach()) == pytest.approx(float(slow(projections.detach().double())), rel=1e-5)
    (gradient,) = torch.autograd.grad(found, projections)
    assert gradient.dtype == torch.bfloat16
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_losses__collapsed_projections_have_finite_gradients(name: str, value: float) -> None:
    """All rows alike: no variance to take the root of, and for zeros no norm to divide by."""
    projections = torch.full((8, 5), value, requires_grad=True)
    (gradient,) = torch.autograd.grad(LOSSES[name][0](projections), projections)
    assert gradient.isfinite().all()


# ---------------------------------------------------------------- by hand: contrastive


@pytest.mark.parametrize("half", [1, 2, 7])
def test_contrastive__all_alike_is_a_guess_among_the_others(half: int) -> None:
    loss = contrastive(torch.ones(2 * half, 3), 0.2)
    assert float(loss) == pytest.approx(math.log(2 * half - 1), abs=1e-6)


@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_contrastive__copies_alike_and_images_orthogonal(temperature: float) -> None:
    """The copy has similarity 1, each of the other 2b - 2 rows 0."""
    half = 4
    among = math.exp(1 / temperature) + 2 * half - 2
    expected = -math.log(math.exp(1 / temperature) / among)
    assert float(contrastive(torch.eye(half).repeat(2, 1), temperature)) == pytest.approx(expected, rel=1e-5)


def test_contrastive__copies_opposite_is_the_worst() -> None:
    """Similarity -1 to the copy and 0 to the rest."""
    half = 3
    expected = 1 + math.log(math.exp(-1) + 2 * half - 2)
    assert float(contrastive(torch.cat([torch.eye(half), -torch.eye(half)]), 1.0)) == pytest.approx(expected, rel=1e-5)


def test_contrastive__the_length_of_a_projection_does_not_matter() -> None:
    projections = random_projections(5, 3)
    lengths = torch.logspace(-2, 2, 10, dtype=torch.float64)[:, None]
    assert float(contrastive(projections * lengths, 0.2)) == pytest.approx(float(contrastive(projections, 0.2)))


def test_contrastive__a_low_temperature_does_not_overflow() -> None:
    """exp(1 / 0.001) is beyond float32."""
    assert float(contrastive(torch.eye(4).repeat(2, 1), 0.001)) == pytest.approx(0, abs=1e-6)


# ---------------------------------------------------------------- by hand: VICReg


def hadamard_view() -> Tensor:
    """(4, 3): uncorrelated columns with mean 0 and, over count - 1, variance 1."""
    signs = torch.tensor([[1.0, 1, 1], [-1, 1, -1], [1, -1, -1], [-1, -1, 1]])
    return signs * math.sqrt(3 / 4)


def test_vicreg__unit_variance_and_no_correlation_cost_nothing() -> None:
    loss = variance_invariance_covariance(hadamard_view().repeat(2, 1), 25.0, 25.0, 1.0)
    assert float(loss) == pytest.approx(0, abs=1e-6)


def test_vicreg__invariance_alone_is_the_mean_square_apart() -> None:
    shift = torch.tensor([1.0, 2.0, 3.0])  # leaves variance and covariance as they are
    loss = variance_invariance_covariance(torch.cat([hadamard_view(), hadamard_view() + shift]), 3.0, 25.0, 1.0)
    assert float(loss) == pytest.approx(3 * (1 + 4 + 9) / 3, rel=1e-6)


def test_vicreg__variance_alone_is_how_far_below_one_summed_over_views() -> None:
    """Half as wide: 1/2 for each view; a wider one costs nothing."""
    narrow, wide = 0.5 * hadamard_view(), 4 * hadamard_view()
    expected = 2 * (1 - math.sqrt(1 / 4 + 1e-4))
    assert float(variance_invariance_covariance(narrow.repeat(2, 1), 0, 1, 0)) == pytest.approx(expected, rel=1e-5)
    assert float(variance_invariance_covariance(torch.cat([narrow, wide]), 0, 1, 0)) == pytest.approx(expected / 2)
    assert float(variance_invariance_covariance(wide.repeat(2, 1), 0, 1, 0)) == 0


def test_vicreg__covariance_alone_counts_each_pair_twice_over_the_dimensions() -> None:
    """Two columns alike: covariance 1 at (0, 1) and (1, 0) of each view, over 3 dimensions."""
    view = hadamard_view()[:, [0, 0, 1]]
    assert float(variance_invariance_covariance(view.repeat(2, 1), 0, 0, 1)) == pytest.approx(2 * 2 / 3, rel=1e-5)
