"""STAR's ascent: from the weights as they are, the way in which what memory says changes most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from .compiling import compiled
from .resnet import ResNet18
from .step import Batch, LearnerSettings, logits_at, masked
from .tangents import Way, derivative
from .written import Written

Given = ParamSpec("Given")
Result = TypeVar("Result")
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Scene:
    """What a step of STAR looks at."""

    model: nn.Module
    batch: Batch
    seen: Tensor
    noise: Mapping[str, Tensor]
    """A direction of length 1 for each tensor that may be moved."""
    settings: LearnerSettings
    compiling: bool

    def made(self, function: Callable[Given, Result]) -> Callable[Given, Result]:
        return compiled(function, self.compiling, small=True)

    def drift(self, weights: Weights, log_p: Tensor, correct: Tensor, weight: float = 1.0) -> Tensor:
        """KL(p ‖ q at these weights), times what it weighs."""
        statistics = self.settings.star_moves_statistics
        return self.made(drift)(self.model, weights, self.batch.images, self.seen, log_p, correct, statistics, weight)

    @property
    def narrow(self) -> torch.dtype:
        """What autocast makes of products here."""
        kind = self.batch.images.device.type
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self.batch.images.dtype


Ascent = tuple[Tensor, Tensor, Sequence[Tensor]]
"""log p (b, classes), who is right (b,), and the way in which KL(p ‖ q) rises, by tensor."""


def ascent_at(scene: Scene, weights: Weights, sizes: Sequence[Tensor]) -> Ascent:
    """From ever smaller noise. sizes: the lengths of the tensors that may be moved.

    At θ itself KL is least and has no gradient; a little beside it, at θ + ε, its gradient is that of ½ εᵀFε: Fε, F the
    Fisher information of the samples counted. How small ε is only scales it.
    """
    model, statistics = scene.model, scene.settings.star_moves_statistics
    steps = dict(zip(scene.noise, sizes, strict=True))
    if isinstance(model, ResNet18) and not statistics:
        way = Way(scene.made(narrowed)(weights, scene.narrow), scene.noise, steps)
        return scene.made(resnet_ascent)(model, way, scene.batch, scene.seen)
    here = fresh(weights)
    logits, change = derivative(model, Way(here, scene.noise, steps), scene.batch.images, statistics)
    log_p, correct, turn = turned(logits.detach(), change, scene.batch, scene.seen)
    moving = [here[name] for name in scene.noise]
    return log_p, correct, torch.autograd.grad(logits, moving, turn.to(logits), materialize_grads=True)


@torch.no_grad()
def resnet_ascent(model: nn.Module, way: Way, batch: Batch, seen: Tensor) -> Ascent:
    """The same of a network of ours, in the type of its weights; its running statistics stay."""
    passed = Written(model, way, batch.images)
    log_p, correct, turn = turned(passed.logits, passed.derivative, batch, seen)
    return log_p, correct, list(passed.back(turn).values())


def turned(logits: Tensor, change: Tensor, batch: Batch, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log p, who is right, and how p turns as the logits change: a share each of those counted, the others 0."""
    precise = torch.promote_types(logits.dtype, torch.float32)
    log_p = torch.log_softmax(masked(logits.to(precise), seen), 1)
    correct = log_p.argmax(1) == batch.labels
    turn = log_p.exp() * change
    turn = turn - log_p.exp() * turn.sum(1, keepdim=True)
    return log_p, correct, turn * shares(correct).to(precise)[:, None]


def ascent_beside(scene: Scene, weights: Weights, sizes: Sequence[Tensor]) -> Ascent:
    """From noise of a given length.

    Never in bfloat16, whose rounding outweighs the noise: at a noise of 1e-3 the cosine between δ in float64 and δ is
    .99 with the tensor cores' 10-bit products, and .16 under autocast (a slim ResNet-18).
    """
    model, images, statistics = scene.model, scene.batch.images, scene.settings.star_moves_statistics
    with torch.autocast(images.device.type, enabled=False):
        log_p = scene.made(log_probabilities)(model, weights, images, scene.seen, statistics)
        correct = log_p.argmax(1) == scene.batch.labels
        beside = fresh(scene.made(moved)(weights, scene.noise, sizes, scene.settings.star_noise))
        level = scene.drift(beside, log_p, correct)
        slopes = torch.autograd.grad(level, [beside[name] for name in scene.noise], materialize_grads=True)
    return log_p, correct, slopes


def log_probabilities(
    model: nn.Module, at: Mapping[str, Tensor], images: Tensor, seen: Tensor, moves_statistics: bool
) -> Tensor:
    """(b, classes) of the net at other weights, over the classes seen."""
    return torch.log_softmax(masked(logits_at(model, at, images, moves_statistics), seen), 1)


def drift(
    model: nn.Module,
    at: Mapping[str, Tensor],
    images: Tensor,
    seen: Tensor,
    log_p: Tensor,
    correct: Tensor,
    moves_statistics: bool,
    weight: float,
) -> Tensor:
    """KL(p ‖ q at other weights), times what it weighs."""
    return weight * divergence(log_p, log_probabilities(model, at, images, seen, moves_statistics), correct)


def divergence(log_p: Tensor, log_q: Tensor, correct: Tensor) -> Tensor:
    """KL(p ‖ q), the mean over the correct samples; 0 where fewer than two are."""
    return ((log_p.exp() * (log_p - log_q)).sum(1) * shares(correct).to(log_p)).sum()


def shares(correct: Tensor) -> Tensor:
    """(b,) float64: what each sample counts in a mean over the correct ones; nothing where fewer than two are."""
    number = correct.sum()
    return correct.double() / number.clamp_min(1) * (number >= 2)


def moved(
    weights: Mapping[str, Tensor], directions: Mapping[str, Tensor], steps: Sequence[Tensor], times: float
) -> Weights:
    """Each tensor that has a direction goes that way, `times` its one of the steps; the others stay."""
    by_name = dict(zip(directions, steps, strict=True))
    return {
        name: weight + times * by_name[name] * directions[name].to(weight) if name in directions else weight
        for name, weight in weights.items()
    }


def worst_of(
    weights: Mapping[str, Tensor],
    uphill: Mapping[str, Tensor],
    sizes: Sequence[Tensor],
    steep: Sequence[Tensor],
    gamma: float,
    narrow: torch.dtype,
) -> Weights:
    """θ + δ: each tensor moved uphill by γ times its size, where there is a slope. steep: the slopes' lengths."""
    steps = [torch.where(slope > 0, size / slope, 0.0) for size, slope in zip(sizes, steep, strict=True)]
    return narrowed(moved(weights, uphill, steps, gamma), narrow)


def narrowed(weights: Mapping[str, Tensor], narrow: torch.dtype) -> Weights:
    """Those of two dimensions or more in another type, as autocast would have them; so are then their gradients."""
    return {name: weight.to(narrow) if weight.ndim >= 2 else weight for name, weight in weights.items()}


def fresh(weights: Mapping[str, Tensor]) -> Weights:
    """Leaves to take gradients at."""
    return {name: weight.detach().requires_grad_() for name, weight in weights.items()}


def lengths(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The norm of each tensor, all in one go; in float32 or better."""
    precise = torch.promote_types(tensors[0].dtype, torch.float32)
    found: Sequence[Tensor] = torch._foreach_norm(list(tensors), dtype=precise)
    return found
