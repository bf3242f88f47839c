"""STAR's ascent: from the weights as they are, the way in which what memory says changes most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .compiling import compiled
from .resnet import Classifier
from .step import Batch, LearnerSettings, logits_at, masked, still
from .tangents import derivative

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
    """A direction of length 1 for each tensor that the ascent starts beside."""
    settings: LearnerSettings
    compiling: bool

    def made(self, function: Callable[Given, Result]) -> Callable[Given, Result]:
        return compiled(function, self.compiling, small=True)

    def drift(self, weights: Weights, log_p: Tensor, correct: Tensor, weight: float = 1.0) -> Tensor:
        """KL(p ‖ q at these weights), times what it weighs."""
        statistics = self.settings.star_moves_statistics
        return self.made(drift)(self.model, weights, self.batch.images, self.seen, log_p, correct, statistics, weight)

    @property
    def narrow(self) -> torch.dtype | None:
        """What autocast makes of the weights of a network of ours, all of which are factors; None for nothing else."""
        kind = self.batch.images.device.type
        return torch.get_autocast_dtype(kind) if ours(self.model) and torch.is_autocast_enabled(kind) else None


Ascent = tuple[Tensor, Tensor, Weights]
"""log p (b, classes), who is right (b,), and the way in which KL(p ‖ q) rises, by the names of what may be moved."""


def ours(model: nn.Module) -> bool:
    """Whether the head is known, and is linear."""
    return isinstance(model, Classifier) and type(model.head) is nn.Linear


def noisy(model: nn.Module, star_noise: float) -> Weights:
    """The tensors that the ascent starts beside: in the limit that of the head, where it is known; else all."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    names = movable(dict(model.named_parameters()))
    if not star_noise and ours(model):
        names = ["head.weight"]
    return {name: weights[name] for name in names}


def movable(weights: Mapping[str, Tensor]) -> list[str]:
    """Those of two dimensions or more; the others are never moved."""
    return [name for name, weight in weights.items() if weight.requires_grad and weight.ndim >= 2]


def ascent_at(scene: Scene, weights: Weights) -> Ascent:
    """From ever smaller noise.

    At θ itself KL is least and has no gradient; a little beside it, at θ + ε, its gradient is that of ½ εᵀFε: Fε, F the
    Fisher information of the samples counted. How small ε is only scales it, so that no difference of forwards is
    needed, which bfloat16 would spoil.
    """
    model, batch, statistics = scene.model, scene.batch, scene.settings.star_moves_statistics
    here = fresh(scene.made(narrowed)(weights, scene.narrow) if ours(model) else weights)
    rise = scene.made(rising) if ours(model) else rising
    level, log_p, correct = rise(model, here, scene.noise, batch, scene.seen, statistics)
    return log_p, correct, slopes_of(level, here)


def ascent_beside(scene: Scene, weights: Weights) -> Ascent:
    """From noise of a given length.

    Never in bfloat16, whose rounding outweighs the noise: at a noise of 1e-3 the cosine between δ in float64 and δ is
    .99 with the tensor cores' 10-bit products, and .16 under autocast (a slim ResNet-18).
    """
    model, images, statistics = scene.model, scene.batch.images, scene.settings.star_moves_statistics
    sizes = lengths([weights[name] for name in scene.noise])
    with torch.autocast(images.device.type, enabled=False):
        log_p = scene.made(log_probabilities)(model, weights, images, scene.seen, statistics)
        correct = log_p.argmax(1) == scene.batch.labels
        beside = fresh(scene.made(moved)(weights, scene.noise, sizes, scene.settings.star_noise))
        return log_p, correct, slopes_of(scene.drift(beside, log_p, correct), beside)


def slopes_of(level: Tensor, at: Weights) -> Weights:
    """Of what may be moved."""
    names = movable(at)
    if not names:
        return {}
    found = torch.autograd.grad(level, [at[name] for name in names], materialize_grads=True)
    return dict(zip(names, found, strict=True))


def rising(
    model: nn.Module,
    at: Weights,
    noise: Mapping[str, Tensor],
    batch: Batch,
    seen: Tensor,
    moves_statistics: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Something with the gradient Fε, log p, and who is right.

    Of a network of ours, whose head alone has noise, by a forward like any other. Else a tensor's noise is in
    proportion to its length.
    """
    if ours(model):
        tensors, along = {**at, **still(model, moves_statistics)}, {"along": noise["head.weight"]}
        logits, change = functional_call(model, tensors, (batch.images,), along).chunk(2, dim=1)
    else:
        sizes = lengths([at[name].detach() for name in noise])
        scaled = {name: size * noise[name] for name, size in zip(noise, sizes, strict=True)}
        logits, change = derivative(model, at, scaled, batch.images, moves_statistics)
    return rising_of(logits, change, batch, seen)


def rising_of(logits: Tensor, change: Tensor, batch: Batch, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    precise = torch.promote_types(logits.dtype, torch.float32)
    log_p = torch.log_softmax(masked(logits.detach().to(precise), seen), 1)
    correct = log_p.argmax(1) == batch.labels
    turn = log_p.exp() * change.detach()
    turn = turn - log_p.exp() * turn.sum(1, keepdim=True)  # of the probabilities, as the logits change
    return mean_where((turn * logits).sum(1), correct), log_p, correct


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
    return mean_where((log_p.exp() * (log_p - log_q)).sum(1), correct)


def mean_where(values: Tensor, correct: Tensor) -> Tensor:
    """Over the correct samples; 0 where fewer than two are."""
    number = correct.sum()
    return (values * correct).sum() / number.clamp_min(1) * (number >= 2)


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
    narrow: torch.dtype | None,
) -> Weights:
    """θ + δ: each tensor moved uphill by γ times its size, where there is a slope. steep: the slopes' lengths."""
    steps = [torch.where(slope > 0, size / slope, 0.0) for size, slope in zip(sizes, steep, strict=True)]
    return narrowed(moved(weights, uphill, steps, gamma), narrow)


def narrowed(weights: Mapping[str, Tensor], narrow: torch.dtype | None) -> Weights:
    """Those of two dimensions or more in another type, as autocast would have them; so are then their gradients."""
    if narrow is None:
        return dict(weights)
    return {name: weight.to(narrow) if weight.ndim >= 2 else weight for name, weight in weights.items()}


def fresh(weights: Mapping[str, Tensor]) -> Weights:
    """Leaves to take gradients at."""
    return {name: weight.detach().requires_grad_() for name, weight in weights.items()}


def lengths(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The norm of each tensor, all in one go; in float32 or better."""
    if not tensors:
        return []
    precise = torch.promote_types(tensors[0].dtype, torch.float32)
    found: Sequence[Tensor] = torch._foreach_norm(list(tensors), dtype=precise)
    return found
