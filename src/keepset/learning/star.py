"""STAR: keep what memory says the same under the worst small move of the weights. Wraps any learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..checks import read_generator
from .ascent import Scene, ascent_at, ascent_beside, fresh, lengths, noisy, worst_of
from .step import Batch, Learner, LearnerSettings, Prepared, add_gradients, detached, leaves


def star(learner: Learner, settings: LearnerSettings) -> Learner:
    """`learner` with STAR's gradients under its own. STAR's memory batch is the last of the draws.

    The directions of the noise are drawn once an episode, in `prepare`, and stay as they are within it.
    """

    def begin(model: nn.Module, compiling: bool) -> Prepared:
        own = learner.ready(model, compiling)
        noise = {name: torch.zeros_like(weight) for name, weight in noisy(model, settings.star_noise).items()}

        def draw(generator: torch.Generator) -> None:
            own.draw(generator)
            for name, direction in random_directions(model, settings.star_noise, generator).items():
                noise[name].copy_(direction)

        def gradients(model: nn.Module, new: Batch, memory: Sequence[Batch], seen: Tensor) -> Tensor:
            if not memory:
                return own.gradients(model, new, memory, seen)
            *others, replayed = memory
            steadiness, slopes = star_gradients(model, replayed, seen, noise, settings, compiling)
            loss = own.gradients(model, new, others, seen)
            add_gradients(model, slopes, compiling)  # last: all of them in one go
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
    divergence and its gradients are 0. noise: a direction of length 1 for each tensor that the ascent starts beside.
    """
    scene = Scene(model, batch, seen, noise, settings, compiling)
    weights = detached(leaves(model))
    log_p, correct, uphill = (ascent_beside if settings.star_noise else ascent_at)(scene, weights)
    sizes = lengths([weights[name] for name in uphill])
    steep = lengths(list(uphill.values()))
    worst = fresh(scene.made(worst_of)(weights, uphill, sizes, steep, settings.star_gamma, scene.narrow))
    loss = scene.drift(worst, log_p, correct, settings.star_lambda)
    slopes = torch.autograd.grad(loss, list(worst.values()), materialize_grads=True)
    return loss.detach(), dict(zip(worst, slopes, strict=True))


def random_directions(model: nn.Module, star_noise: float, generator: torch.Generator) -> dict[str, Tensor]:
    """A random direction of length 1 for each tensor that the ascent starts beside."""
    source = read_generator(generator)
    found = {}
    for name, weight in noisy(model, star_noise).items():
        drawn = torch.randn(weight.shape, generator=source).to(weight)
        found[name] = drawn / torch.linalg.vector_norm(drawn)
    return found


def _unprepared(_model: nn.Module, _new: Batch, _memory: Sequence[Batch], _seen: Tensor) -> Tensor:
    raise ValueError("STAR needs its noise: step with what learner.prepare(model, generator) returns")
