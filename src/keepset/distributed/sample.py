"""Rows drawn from all: what is measured on them holds for every part, and they are what the second round covers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..selection.inputs import as_tensor, read_view
from ..selection.options import Cover
from ..selection.problem import Problem, make_problem, normal
from ..selection.sampled import SAMPLED, Scales
from .shards import Rows, View

TARGETS = 20_000  # rows that the second round covers besides the candidates
NONE = torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True)
class Sample:
    """Rows drawn from all, each as likely as any other, in ascending order."""

    rows: Rows
    views: dict[str, Tensor]
    fresh: Tensor
    """Which of them no choice has seen, so that they tell how well it covers; the others are to be covered."""


def draw(views: dict[str, View], count: int, seed: int) -> Sample:
    """As many rows as are covered, or all, and as many fresh ones, if there are."""
    drawn = np.random.default_rng([seed, 0]).choice(count, min(2 * TARGETS, count), replace=False)
    order = np.argsort(drawn)
    rows = drawn[order]
    read = {name: read_view(name, view.rows(rows), as_tensor(rows)) for name, view in views.items()}
    return Sample(rows, read, torch.from_numpy(order >= TARGETS))


@dataclass(frozen=True)
class Measured:
    """What similar means, in numbers by view."""

    weights: dict[str, float]
    bandwidths: dict[str, float]
    cover: Cover
    """The same as settings, for the second round."""
    notes: list[str]


def measure(sampled: dict[str, Tensor], cover: Cover, k: int, count: int) -> Measured:
    """Weights and bandwidths of the sample, for all: a k-th neighbour of `count` rows is nearer than one of a few."""
    size = len(next(iter(sampled.values())))
    near = min(max(round(k * size / count), 1), size - 1)
    problem = make_problem(sampled, 1, NONE, replace(cover, neighbours=near, memory=1))
    given = cover.given_bandwidths(problem.names)
    weights, bandwidths = [], {}
    for position, name in enumerate(problem.names):
        scales = Scales(problem.points(position), near)
        if size > SAMPLED:
            scales.sample = torch.randperm(size, generator=torch.Generator().manual_seed(0))[:SAMPLED]
        weights.append(problem.weight(position, scales.weight))
        rule = str(cover.bandwidth)
        bandwidths[name] = given[position] if given else scales.bandwidth(rule, cover.metric) * cover.bandwidth_scale
        if not bandwidths[name]:
            raise ValueError(f"view {name!r} has no scale: its points coincide; give bandwidth= as a number instead")
        for text in scales.notes:
            problem.note(position, text)
    if size < count and (problem.weighs or not given):
        problem.notes.append(_sampled_note(problem, size, count, near, k))
    shares = dict(zip(problem.names, normal(weights), strict=True))
    numbers = replace(cover, weights=shares, bandwidth=bandwidths, bandwidth_scale=1.0, memory=1)
    return Measured(shares, bandwidths, replace(numbers, search="exact", epsilon=Cover.epsilon), problem.notes)


def _sampled_note(problem: Problem, size: int, count: int, near: int, k: int) -> str:
    told = f"weights and bandwidths are those among {size:,} of {count:,} rows"
    if problem.weighs or problem.cover.bandwidth == "knn":
        told += f", with {near} of the neighbours there for the {k} among all"
    if near == 1 and problem.weighs and problem.cover.weights in ("printed", "inverse"):
        told += "; with a single one all views weigh the same: give weights= as numbers to weigh them otherwise"
    return told
