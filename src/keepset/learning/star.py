"""STAR: keep what memory says the same under the worst small move of the weights. Wraps any learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..checks import read_generator
from .compiling import compiled
from .step import (
    Batch,
    Learner,
    LearnerSettings,
    Prepared,
    add_gradients,
    detached,
    leaves,
    logits_at,
    masked,
)


def star(learner: Learner, settings: LearnerSettings) -> Learner:
    """`learner` with STAR's gradients under its own. STAR's memory batch is the last of the draws.

    The directions of the noise are drawn once an episode, in `prepare`, and stay as they are within it.
    """

    def begin(model: nn.Module, compiling: bool) -> Prepared:
        own = learner.ready(model, compiling)
        noise = {name: torch.zeros_like(weight) for name, weight in leaves(model).items() if weight.ndim >= 2}

        def draw(generator: torch.Generator) -> None:
            own.draw(generator)
            for name, direction in random_directions(model, generator).items():
                noise[name].copy_(direction)

        def gradients(model: nn.Module, new: Batch, memory: Sequence[Batch], seen: Tensor) -> Tensor:
            if not memory:
                return own.gradients(model, new, memory, seen)
            *others, replayed = memory
            steadiness, slopes = star_gradients(model, replayed, seen, noise, settings, compiling)
            loss = own.gradients(model, new, others, seen)
            add_gradients(model, slopes)  # last: all of them in one go
            return loss + steadiness

        return Prepared(gradients, draw)

    return replace(
        learner,
        name=f"{learner.name}-star",
        gradients=_unprepared,
        draws=(*learner.draws, settings.memory_batch),
        begin=begin,
    )


def star_gradients(
    model: nn.Module,
    batch: Batch,
    seen: Tensor,
    noise: Mapping[str, Tensor],
    settings: LearnerSettings,
    compiling: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """λ·KL(p ‖ q at θ + δ) and its gradients, taken at θ + δ, by the weights' names; the weights θ are never moved.

    p is the net as it is, without gradient. Only samples that it classifies correctly count; with fewer than two the
    divergence and its gradients are 0. noise: a direction of length 1 for each tensor that may be moved.
    """
    # Never in bfloat16: rounding outweighs the noise there. On a slim ResNet-18 the cosine between δ in float32 and
    # δ under autocast is .09 at a noise of 1e-3, and .72 at 1e-2.
    probabilities = compiled(log_probabilities, compiling)
    drifted, going = compiled(drift, compiling), compiled(moved, compiling)
    statistics = settings.star_moves_statistics
    with torch.autocast(batch.images.device.type, enabled=False):
        weights = detached(leaves(model))
        log_p = probabilities(model, weights, batch.images, seen, statistics)
        correct = log_p.argmax(1) == batch.labels

        # At θ itself KL is least and has no gradient, so the one ascent step starts a little beside it.
        beside = _fresh(going(weights, noise, settings.star_noise))
        rising = drifted(model, beside, batch.images, seen, log_p, correct, statistics)
        slopes = torch.autograd.grad(rising, [beside[name] for name in noise], materialize_grads=True)

        worst = _fresh(going(weights, dict(zip(noise, slopes, strict=True)), settings.star_gamma))  # θ + δ
        loss = settings.star_lambda * drifted(model, worst, batch.images, seen, log_p, correct, statistics)
        slopes = torch.autograd.grad(loss, list(worst.values()), materialize_grads=True)
    return loss.detach(), dict(zip(worst, slopes, strict=True))


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
    counted: Tensor,
    moves_statistics: bool,
) -> Tensor:
    """KL(p ‖ q at other weights)."""
    return divergence(log_p, log_probabilities(model, at, images, seen, moves_statistics), counted)


def divergence(log_p: Tensor, log_q: Tensor, counted: Tensor) -> Tensor:
    """KL(p ‖ q), the mean over the counted samples; 0 where fewer than two are counted."""
    each = (log_p.exp() * (log_p - log_q)).sum(1)
    number = counted.sum()
    return (each * counted).sum() / number.clamp_min(1) * (number >= 2)


def moved(weights: Mapping[str, Tensor], directions: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Each tensor that has a direction goes that way, by `share` of its own norm; the others stay."""
    return {
        name: weight + share * torch.linalg.vector_norm(weight) * unit(directions[name])
        if name in directions
        else weight
        for name, weight in weights.items()
    }


def random_directions(model: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """A random direction of length 1 for each weight tensor of two or more dimensions; the others are never moved."""
    source = read_generator(generator)
    return {
        name: unit(torch.randn(weight.shape, generator=source).to(weight))
        for name, weight in leaves(model).items()
        if weight.ndim >= 2
    }


def unit(direction: Tensor) -> Tensor:
    """Of length 1, or 0 where there is no direction at all."""
    length: Tensor = torch.linalg.vector_norm(direction)
    return direction / length.clamp_min(torch.finfo(direction.dtype).tiny)


def _fresh(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leaves to take gradients at."""
    return {name: weight.detach().requires_grad_() for name, weight in weights.items()}


def _unprepared(_model: nn.Module, _new: Batch, _memory: Sequence[Batch], _seen: Tensor) -> Tensor:
    raise ValueError("STAR needs its noise: step with what learner.prepare(model, generator) returns")
