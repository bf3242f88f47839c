"""STAR's ascent from ever smaller noise, and the derivative of a network that it needs, against slow references."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev

from keepset.learning import Batch, LearnerSettings
from keepset.learning.ascent import Scene, ascent_at, ascent_beside, fresh, moved, noisy
from keepset.learning.resnet import Classifier, ResNet18, resnet18, small_net
from keepset.learning.star import random_directions, star_gradients
from keepset.learning.step import detached, leaves, logits_at
from keepset.learning.tangents import derivative

Make = Callable[[], nn.Module]
CLASSES = 5
SEEN = torch.tensor([True, True, False, True, True])


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def slim(width: int = 4) -> ResNet18:
    """Its normalisations have weights and biases of their own."""
    model = resnet18(CLASSES, width, generator=0).double().train()
    source = seeded(7)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(0.2 * torch.randn(weight.shape, generator=source, dtype=weight.dtype))
    return model


def small() -> nn.Module:
    return small_net(CLASSES, channels=3, generator=0).double().train()


class Foreign(nn.Module):
    """A network that is not known as one of ours."""

    def __init__(self, inner: Classifier) -> None:
        super().__init__()
        self.head = inner.head
        del inner.head
        self.body, inner.head = inner, nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(images))
        return logits


def make_scene(model: nn.Module, star_noise: float = 0, wrong: int = 2) -> Scene:
    images = torch.randn(8, 3, 12, 12, generator=seeded(1), dtype=torch.float64)
    labels = copy.deepcopy(model)(images).masked_fill(~SEEN, -torch.inf).argmax(1)
    labels[:wrong] = torch.where(labels[:wrong] == 0, 1, 0)
    settings = LearnerSettings(star_noise=star_noise)
    noise = random_directions(model, star_noise, seeded(2))
    return Scene(model, Batch(images, labels), SEEN, noise, settings, False)


def at(scene: Scene) -> dict[str, Tensor]:
    return detached(leaves(scene.model))


def cosine(first: Tensor, second: Tensor) -> float:
    return float(torch.cosine_similarity(first.flatten().double(), second.flatten().double(), 0))


@pytest.mark.parametrize("make", [slim, small])
@pytest.mark.parametrize("star_noise", [0, 1e-3], ids=["the head", "all"])
def test_derivative__is_that_of_finite_differences(make: Make, star_noise: float) -> None:
    scene = make_scene(make(), star_noise)
    weights, images = at(scene), scene.batch.images
    logits, found = derivative(scene.model, fresh(weights), scene.noise, images)
    assert torch.equal(logits, logits_at(scene.model, weights, images))
    far, ones = 1e-7, [torch.ones(())] * len(scene.noise)
    up, down = (logits_at(scene.model, moved(weights, scene.noise, ones, way * far), images) for way in (1, -1))
    torch.testing.assert_close(found, (up - down) / (2 * far), rtol=1e-4, atol=1e-5)
    assert logits.requires_grad
    assert not found.requires_grad


def test_derivative__of_logits_that_no_direction_moves_is_zero() -> None:
    scene = make_scene(small())
    logits, found = derivative(scene.model, at(scene), {}, scene.batch.images)
    assert torch.equal(found, torch.zeros_like(logits))


@pytest.mark.parametrize("make", [slim, small])
def test_noisy__the_head_in_the_limit_and_else_all_that_may_be_moved(make: Make) -> None:
    model = make()
    every = {name for name, weight in model.named_parameters() if weight.ndim >= 2}
    assert list(noisy(model, 0)) == ["head.weight"]
    assert set(noisy(model, 1e-3)) == every
    assert set(noisy(nn.Sequential(model), 0)) == {f"0.{name}" for name in every}


def test_noisy__a_head_that_is_not_linear_is_not_known() -> None:
    model = small_net(CLASSES, channels=3, generator=0)
    model.head = nn.Sequential(model.head)
    assert "head.0.weight" in noisy(model, 0)
    assert len(noisy(model, 0)) > 1


@pytest.mark.parametrize("make", [slim, small])
def test_ascent_at__is_where_ever_smaller_noise_leads(make: Make) -> None:
    scene = make_scene(make())
    before = copy.deepcopy(scene.model.state_dict())
    log_p, correct, found = ascent_at(scene, at(scene))
    assert set(found) == set(noisy(scene.model, 1))
    nearer = []
    for star_noise in (1e-3, 1e-6):
        beside = ascent_beside(replace(scene, settings=LearnerSettings(star_noise=star_noise)), at(scene))
        torch.testing.assert_close(log_p, beside[0])
        assert torch.equal(correct, beside[1])
        nearer.append(beside[2])
    for name, limit in found.items():
        far, near = (cosine(slopes[name], limit) for slopes in nearer)
        assert near > 1 - 1e-6
        assert near >= far - 1e-9
    assert all(torch.equal(tensor, before[name]) for name, tensor in scene.model.state_dict().items())


def test_ascent_at__of_any_network_as_of_one_of_ours() -> None:
    scene = make_scene(slim())
    _, _, expected = ascent_at(scene, at(scene))
    other = Foreign(slim())
    noise, length = {"head.weight": scene.noise["head.weight"]}, at(scene)["head.weight"].norm()
    _, _, found = ascent_at(replace(scene, model=other, noise=noise), detached(leaves(other)))
    assert {name.removeprefix("body.") for name in found} == set(expected)
    for name, slope in found.items():
        torch.testing.assert_close(slope, length * expected[name.removeprefix("body.")], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("star_noise", [0, 1e-3])
def test_star_gradients__of_a_network_that_reads_bytes_and_has_a_head_that_is_not_last(star_noise: float) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.unused = small_net(CLASSES, channels=3, generator=0), nn.Linear(4, 4)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.inner(images / 255)
            return logits

    model = Odd().train()
    images = torch.randint(256, (8, 3, 12, 12), generator=seeded(1), dtype=torch.uint8)
    batch = Batch(images, copy.deepcopy(model)(images).masked_fill(~SEEN, -torch.inf).argmax(1))
    noise = random_directions(model, star_noise, seeded(2))
    loss, slopes = star_gradients(model, batch, SEEN, noise, LearnerSettings(star_noise=star_noise))
    assert float(loss) > 0
    assert not slopes["unused.weight"].any()


def test_ascent_at__is_the_fisher_information_times_the_noise_written_out() -> None:
    scene = make_scene(small())
    weights = at(scene)
    moving = {name: weight for name, weight in weights.items() if weight.ndim >= 2}
    still = {name: weight for name, weight in weights.items() if weight.ndim < 2}
    model = copy.deepcopy(scene.model)
    for layer in model.modules():  # whose statistics jacrev would not let it move
        if hasattr(layer, "running_mean"):
            layer.running_mean = layer.running_var = None  # type: ignore[assignment]

    def logits(at: dict[str, Tensor]) -> Tensor:
        found: Tensor = functional_call(model, {**still, **at}, (scene.batch.images,))
        return found

    slopes = jacrev(logits)(moving)
    jacobian = torch.cat([slopes[name].flatten(2) for name in moving], 2)  # (b, classes, weights)
    noise = torch.cat([scene.noise.get(name, torch.zeros_like(weight)).flatten() for name, weight in moving.items()])
    chances = torch.softmax(logits(moving).masked_fill(~SEEN, -torch.inf), 1)
    expected = torch.zeros_like(noise)
    right = chances.argmax(1) == scene.batch.labels
    assert 2 <= int(right.sum()) < len(right)
    for p, own, is_right in zip(chances, jacobian, right.tolist(), strict=True):
        if is_right:
            expected += own.T @ (torch.diag(p) - p.outer(p)) @ own @ noise / int(right.sum())
    found = ascent_at(scene, weights)[2]
    torch.testing.assert_close(torch.cat([found[name].flatten() for name in moving]), expected, rtol=1e-8, atol=1e-12)


def test_ascent__in_bfloat16_as_near_as_any_gradient() -> None:
    """From noise, in bfloat16, it would be rounding noise: there the ascent is kept out of it."""
    exact = make_scene(slim(8))
    model, batch = copy.deepcopy(exact.model).float(), Batch(exact.batch.images.float(), exact.batch.labels)
    for star_noise, ascent, low in ((0, ascent_at, 0.9), (1e-3, ascent_beside, 0.99)):
        scene = make_scene(exact.model, star_noise)
        narrow = replace(scene, model=model, batch=batch)
        with torch.autocast("cpu", torch.bfloat16):
            slopes = ascent(narrow, at(narrow))[2]
        found, expected = (
            torch.cat([(slope / slope.norm()).flatten() for slope in each.values()])
            for each in (slopes, ascent(scene, at(scene))[2])
        )
        assert low < cosine(found, expected) < 1
        assert slopes["head.weight"].dtype == (torch.float32 if star_noise else torch.bfloat16)


@pytest.mark.parametrize("make", [slim, small])
@pytest.mark.parametrize(("wrong", "counts"), [(8, False), (7, False), (6, True)])
def test_star_gradients__in_the_limit_fewer_than_two_correct_are_nothing(make: Make, wrong: int, counts: bool) -> None:
    scene = make_scene(make(), wrong=wrong)
    loss, slopes = star_gradients(scene.model, scene.batch, SEEN, scene.noise, scene.settings)
    assert (float(loss) > 0) == counts
    assert any(bool(slope.any()) for slope in slopes.values()) == counts
    assert all(bool(slope.isfinite().all()) for slope in slopes.values())


@pytest.mark.parametrize("star_noise", [0, 1e-3])
@pytest.mark.parametrize("frozen", ["head", "all"])
def test_star_gradients__frozen_weights_are_not_moved_and_the_others_are(star_noise: float, frozen: str) -> None:
    model = small()
    for name, weight in model.named_parameters():
        weight.requires_grad_(not (weight.ndim >= 2 and (frozen == "all" or name.startswith(frozen))))
    scene = make_scene(model, star_noise)
    loss, slopes = star_gradients(model, scene.batch, SEEN, scene.noise, scene.settings)
    assert set(slopes) == {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert (float(loss) > 0) == (frozen == "head")
