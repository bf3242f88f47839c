"""The second round: the best of all that the parts kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..selection.greedy import TIES, Picks
from ..selection.inputs import as_tensor
from ..selection.problem import Problem, make_problem
from ..selection.result import Selection
from ..selection.sampled import exact_copies
from ..selection.soft import parts_by_view, weighted_kernels
from ..selection.streaming import ExactSearch, Kernel, streamed_greedy
from .parts import Kept
from .sample import NONE, Measured, Sample


@dataclass(frozen=True)
class Candidates(Kernel):
    """A kernel whose first `count` points alone may be taken: sums over all rows pass over the others."""

    count: int

    def row_sums(self) -> Tensor:
        nothing = torch.zeros_like(self.like)
        covered = nothing == 0 if self.worth is None else self.worth > 0
        return self.excess(None, covered.nonzero().flatten(), nothing, torch.full_like(nothing, torch.inf))

    def excess(self, rows: Tensor | None, points: Tensor, low: Tensor, high: Tensor) -> Tensor:
        if rows is not None:
            return super().excess(rows, points, low, high)
        sums = torch.zeros(len(self), dtype=torch.float64)
        sums[: self.count] = super().excess(torch.arange(self.count), points, low, high)
        return sums


def second_round(kept: list[Kept], sample: Sample, budget: int, measured: Measured, count: int) -> Selection:
    """The best of all that was kept, or the best single part's choice, by how they cover candidates and sample."""
    rows = np.concatenate([numbers for numbers, _ in kept])
    order = np.argsort(rows)
    rows = rows[order]
    others = torch.from_numpy(~np.isin(sample.rows, rows))
    views = {
        name: torch.cat([as_tensor(np.concatenate([own[name] for _, own in kept])[order]), view[others]])
        for name, view in sample.views.items()
    }
    worth = _worth(len(rows), sample.fresh[others], count)
    problem = make_problem(views, budget, NONE, replace(measured.cover, point_weights=worth))
    weights, bandwidths = list(measured.weights.values()), list(measured.bandwidths.values())
    kernels = _kernels(problem, weights, bandwidths, len(rows))
    picks, notes = _better(kernels, [torch.from_numpy(np.searchsorted(rows, numbers)) for numbers, _ in kept], problem)
    if int((worth > 0).sum()) < count:
        notes.append(_estimate(_covered(kernels, picks.indices), worth > 0, count))
    parts = picks.parts if picks.parts.shape[1] == len(views) else parts_by_view(problem, picks, weights, bandwidths)
    found = problem.selection(picks, parts, weights, bandwidths)
    return replace(
        found,
        indices=rows[picks.indices.numpy()],
        gains=picks.gains.numpy(),
        shares={name: as_tensor(share).numpy() for name, share in found.shares.items()},
        search="distributed",
        notes=tuple(notes),
    )


def _worth(candidates: int, fresh: Tensor, count: int) -> Tensor:
    """A candidate stands for itself, sampled others for all that are no candidates, and fresh ones for nothing."""
    covered = int((~fresh).sum())
    others = (~fresh).double() * ((count - candidates) / max(covered, 1))
    return torch.cat([torch.ones(candidates, dtype=torch.float64), others])


def _kernels(problem: Problem, weights: Sequence[float], bandwidths: Sequence[float], count: int) -> list[Candidates]:
    clouds = [exact_copies(problem.points(position)) for position in range(len(weights))]
    similar = weighted_kernels(problem, weights, bandwidths)
    worth = problem.worth.to(clouds[0].half_norms)
    summed = problem.cover.fusion == "sum-then-max"
    groups = [list(range(len(clouds)))] if summed else [[position] for position in range(len(clouds))]
    return [Candidates([clouds[m] for m in group], [similar[m] for m in group], worth, count) for group in groups]


def _best_among(kernels: list[Candidates], places: Tensor, problem: Problem) -> Picks:
    """Greedy, where these alone may be taken."""
    search = ExactSearch(kernels, NONE)
    search.allowed[:] = False
    search.allowed[places] = True
    return streamed_greedy(search, problem.budget, float(problem.worth.sum()))


def _better(kernels: list[Candidates], places: list[Tensor], problem: Problem) -> tuple[Picks, list[str]]:
    """Greedy among the picks of all parts, or those of one part (`places` of each) where they cover more."""

    def score(rows: Tensor) -> float:
        return float(_covered(kernels, rows) @ problem.worth)

    picks = _best_among(kernels, torch.cat(places), problem)
    scores = [score(place) for place in places]
    best = int(np.argmax(scores))
    if scores[best] <= score(picks.indices) * (1 + TIES[torch.float32]):
        return picks, []
    told = f"part {best + 1} of {len(places)} alone covers more than the best of all parts' picks, and is returned"
    return _best_among(kernels, places[best], problem), [told]


def _covered(kernels: list[Candidates], places: Tensor) -> Tensor:
    """(n,) how well these cover each point."""
    return torch.stack([kernel.highest(places).double() for kernel in kernels]).sum(0)


def _estimate(covered: Tensor, seen: Tensor, count: int) -> str:
    """What coverage of all rows to expect: the choice was made for the rows that it has seen, and suits them best."""
    known, fresh = covered[seen], covered[~seen]
    told = f"coverage is that of {len(known):,} of {count:,} rows, which the choice was made for"
    if len(fresh) < 2:
        return told
    left = (count - len(known)) / count
    estimate = float(known.sum()) / count + left * float(fresh.mean())
    error = left * float(fresh.std()) * math.sqrt(1 / len(fresh) - 1 / (count - len(known)))
    return f"{told}; {len(fresh):,} others put that of all at {estimate:.4f}, standard error {error:.2g}"
