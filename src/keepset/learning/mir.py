"""Maximally interfered retrieval (MIR): replay what the next step would harm most."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .er import er
from .step import Batch, Gradients, cross_entropy, detached, leaves, logits_at


def mir(count: int, rate: float) -> Gradients:
    """ER's step with the `count` most interfered of the candidates; `rate` is that of the virtual step.

    It is captured on a GPU like any other, but not compiled: the virtual step is made of its own gradients.
    """

    def gradients(model: nn.Module, new: Batch, memory: Sequence[Batch], seen: Tensor) -> Tensor:
        if not memory:
            return er(model, new, memory, seen)
        (candidates,) = memory
        scores = interference(model, new, candidates, seen, rate)
        return er(model, new, [highest(candidates, scores, count)], seen)

    return gradients


def interference(model: nn.Module, new: Batch, candidates: Batch, seen: Tensor, rate: float) -> Tensor:
    """(c,) loss after − loss before a virtual step on the new images alone, for each candidate.

    The step is plain SGD: no momentum and no weight decay. The model is left as it was, batch-norm included.
    """
    weights = leaves(model)
    loss = cross_entropy(logits_at(model, weights, new.images), new.labels, seen)
    slopes = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
    before = detached(weights)
    after = {name: weight - rate * slope for (name, weight), slope in zip(before.items(), slopes, strict=True)}
    loss_before, loss_after = (
        cross_entropy(logits_at(model, at, candidates.images), candidates.labels, seen, reduction="none")
        for at in (before, after)
    )
    return loss_after - loss_before


def highest(candidates: Batch, scores: Tensor, count: int) -> Batch:
    """The `count` candidates that score highest, ties by their order."""
    rows = scores.argsort(descending=True, stable=True)[:count]
    return Batch(candidates.images[rows], candidates.labels[rows])
