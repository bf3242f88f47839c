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
    probabilities = compiled(log_probabilities, compiling, small=True)
    drifted, going = compiled(drift, compiling, small=True), compiled(moved, compiling, small=True)
    statistics = settings.star_moves_statistics
    # The ascent never in bfloat16, whose rounding outweighs the noise: at a noise of 1e-3 the cosine between δ in
    # float64 and δ is .99 with the tensor cores' 10-bit products, and .16 under autocast (a slim ResNet-18).
    with torch.autocast(batch.images.device.type, enabled=False):
        weights = detached(leaves(model))
        sizes = lengths([weights[name] for name in noise])
        log_p = probabilities(model, weights, batch.images, seen, statistics)
        correct = log_p.argmax(1) == batch.labels

        # At θ itself KL is least and has no gradient, so the one ascent step starts a little beside it.
        beside = _fresh(going(weights, noise, settings.star_noise * sizes))
        rising = drifted(model, beside, batch.images, seen, log_p, correct, statistics)
        slopes = torch.autograd.grad(rising, [beside[name] for name in noise], materialize_grads=True)
        steep = lengths(slopes)
        shares = torch.where(steep > 0, settings.star_gamma * sizes / steep, 0.0)
        worst = _fresh(going(weights, dict(zip(noise, slopes, strict=True)), shares))  # θ + δ
    loss = settings.star_lambda * drifted(model, worst, batch.images, seen, log_p, correct, statistics)
    slopes = torch.autograd.grad(loss, list(worst.values()), materialize_grads=True)
    return loss.detach(), dict(zip(worst, slopes, strict=True))


def lengths(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of each tensor, all in one go."""
    return torch.stack(torch._foreach_norm(list(tensors)))


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


def moved(weights: Mapping[str, Tensor], directions: Mapping[str, Tensor], steps: Tensor) -> dict[str, Tensor]:
    """Each tensor that has a direction goes that way, by its one of the steps times it; the others stay."""
    by_name = dict(zip(directions, steps, strict=True))
    return {
        name: weight + by_name[name] * directions[name] if name in directions else weight
        for name, weight in weights.items()
    }


def random_directions(model: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """A random direction of length 1 for each weight tensor of two or more dimensions; the others are never moved."""
    source = read_generator(generator)
    found = {}
    for name, weight in leaves(model).items():
        if weight.ndim >= 2:
            drawn = torch.randn(weight.shape, generator=source).to(weight)
            found[name] = drawn / torch.linalg.vector_norm(drawn)
    return found


def _fresh(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leaves to take gradients at."""
    return {name: weight.detach().requires_grad_() for name, weight in weights.items()}


def _unprepared(_model: nn.Module, _new: Batch, _memory: Sequence[Batch], _seen: Tensor) -> Tensor:
    raise ValueError("STAR needs its noise: step with what learner.prepare(model, generator) returns")
