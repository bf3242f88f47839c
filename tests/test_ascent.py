"""STAR's ascent from ever smaller noise, and the derivative of a network that it needs, against slow references."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev

from keepset.learning import Batch, LearnerSettings
from keepset.learning.ascent import Scene, ascent_at, ascent_beside, fresh, lengths, moved
from keepset.learning.resnet import ResNet18, resnet18, small_net
from keepset.learning.star import random_directions, star_gradients
from keepset.learning.step import detached, leaves, logits_at
from keepset.learning.tangents import Way, derivative
from keepset.learning.written import Written

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


def make_scene(model: nn.Module, star_noise: float = 0, wrong: int = 2) -> Scene:
    images = torch.randn(8, 3, 12, 12, generator=seeded(1), dtype=torch.float64)
    labels = copy.deepcopy(model)(images).masked_fill(~SEEN, -torch.inf).argmax(1)
    labels[:wrong] = torch.where(labels[:wrong] == 0, 1, 0)
    settings = LearnerSettings(star_noise=star_noise)
    return Scene(model, Batch(images, labels), SEEN, random_directions(model, seeded(2)), settings, False)


def at(scene: Scene) -> tuple[dict[str, Tensor], Sequence[Tensor]]:
    weights = detached(leaves(scene.model))
    return weights, lengths([weights[name] for name in scene.noise])


def way_of(scene: Scene) -> Way:
    weights, sizes = at(scene)
    return Way(fresh(weights), scene.noise, dict(zip(scene.noise, sizes, strict=True)))


def cosine(first: Tensor, second: Tensor) -> float:
    return float(torch.cosine_similarity(first.flatten().double(), second.flatten().double(), 0))


@pytest.mark.parametrize("make", [slim, small])
def test_derivative__is_that_of_finite_differences(make: type) -> None:
    scene = make_scene(make())
    (weights, sizes), images = at(scene), scene.batch.images
    logits, found = derivative(scene.model, way_of(scene), images)
    assert torch.equal(logits, logits_at(scene.model, weights, images))
    far = 1e-8
    up, down = (logits_at(scene.model, moved(weights, scene.noise, sizes, way * far), images) for way in (1, -1))
    torch.testing.assert_close(found, (up - down) / (2 * far), rtol=1e-4, atol=1e-4)
    assert not found.requires_grad


def test_derivative__of_logits_that_no_direction_moves_is_zero() -> None:
    scene = make_scene(small())
    logits, found = derivative(scene.model, Way(at(scene)[0], {}, {}), scene.batch.images)
    assert torch.equal(found, torch.zeros_like(logits))


def test_written__is_the_derivative_and_goes_back_the_same_way() -> None:
    scene = make_scene(slim())
    before = copy.deepcopy(scene.model.state_dict())
    way = way_of(scene)
    logits, change = derivative(scene.model, way, scene.batch.images)
    found = Written(scene.model, Way(at(scene)[0], way.directions, way.steps), scene.batch.images)
    torch.testing.assert_close((found.logits, found.derivative), (logits, change), rtol=1e-9, atol=1e-9)
    back = torch.randn(logits.shape, generator=seeded(3), dtype=torch.float64)
    expected = torch.autograd.grad(logits, [way.weights[name] for name in scene.noise], back)
    slopes = found.back(back)
    assert list(slopes) == list(scene.noise)
    torch.testing.assert_close(list(slopes.values()), list(expected), rtol=1e-8, atol=1e-9)
    assert all(torch.equal(tensor, before[name]) for name, tensor in scene.model.state_dict().items())


@pytest.mark.parametrize("make", [slim, small])
def test_ascent_at__is_where_ever_smaller_noise_leads(make: type) -> None:
    scene = make_scene(make())
    log_p, correct, found = ascent_at(scene, *at(scene))
    nearer = [ascent_beside(make_scene(scene.model, noise), *at(scene)) for noise in (1e-4, 1e-6)]
    for beside in nearer:
        torch.testing.assert_close(log_p, beside[0])
        assert torch.equal(correct, beside[1])
    for far, near, limit in zip(nearer[0][2], nearer[1][2], found, strict=True):
        assert cosine(near, limit) > 0.999
        assert cosine(near, limit) >= cosine(far, limit) - 1e-6


def test_ascent_at__is_the_fisher_information_times_the_noise_written_out() -> None:
    scene = make_scene(small())
    weights, sizes = at(scene)
    buffers = {name: buffer.clone() for name, buffer in scene.model.named_buffers()}
    moving = {name: weights[name] for name in scene.noise}
    still = {name: weight for name, weight in weights.items() if name not in moving}
    model = copy.deepcopy(scene.model)
    for layer in model.modules():  # whose statistics jacrev would not let it move
        if hasattr(layer, "running_mean"):
            layer.running_mean = layer.running_var = None  # type: ignore[assignment]

    def logits(at: dict[str, Tensor]) -> Tensor:
        found: Tensor = functional_call(model, {**still, **at}, (scene.batch.images,))
        return found

    slopes = jacrev(logits)(moving)
    jacobian = torch.cat([slopes[name].flatten(2) for name in moving], 2)  # (b, classes, weights)
    noise = torch.cat([(size * scene.noise[name].double()).flatten() for name, size in zip(moving, sizes, strict=True)])
    chances = torch.softmax(logits(moving).masked_fill(~SEEN, -torch.inf), 1)
    expected = torch.zeros_like(noise)
    right = chances.argmax(1) == scene.batch.labels
    assert 2 <= int(right.sum()) < len(right)
    for p, own, is_right in zip(chances, jacobian, right.tolist(), strict=True):
        if is_right:
            expected += own.T @ (torch.diag(p) - p.outer(p)) @ own @ noise / int(right.sum())
    found = torch.cat([slope.flatten() for slope in ascent_at(scene, weights, sizes)[2]])
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in scene.model.named_buffers())


def test_ascent_at__in_bfloat16_nearly_the_same_way() -> None:
    """As near as any gradient in bfloat16 is; from noise it would be rounding noise."""
    scene = make_scene(slim(8))
    _, _, exact = ascent_at(scene, *at(scene))
    model = copy.deepcopy(scene.model).float()
    for noise, low, high in ((0.0, 0.8, 1.0), (1e-3, 0.97, 1.0)):
        narrow = Scene(
            model,
            Batch(scene.batch.images.float(), scene.batch.labels),
            SEEN,
            scene.noise,
            LearnerSettings(star_noise=noise),
            False,
        )
        with torch.autocast("cpu", torch.bfloat16):
            slopes = (ascent_beside if noise else ascent_at)(narrow, *at(narrow))[2]
        found = cosine(*(torch.cat([(slope / slope.norm()).flatten() for slope in each]) for each in (exact, slopes)))
        assert low < found < high
        assert slopes[0].dtype == (torch.float32 if noise else torch.bfloat16)


@pytest.mark.parametrize("make", [slim, small])
@pytest.mark.parametrize(("wrong", "counts"), [(8, False), (7, False), (6, True)])
def test_star_gradients__in_the_limit_fewer_than_two_correct_are_nothing(make: type, wrong: int, counts: bool) -> None:
    scene = make_scene(make(), wrong=wrong)
    loss, slopes = star_gradients(scene.model, scene.batch, SEEN, scene.noise, scene.settings)
    assert (float(loss) > 0) == counts
    assert any(bool(slope.any()) for slope in slopes.values()) == counts
    assert all(bool(slope.isfinite().all()) for slope in slopes.values())
