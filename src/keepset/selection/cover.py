"""The cover methods: probcover and maxherding on one view, their sums over all views in mers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..checks import nearest_name
from .geometry import (
    Cloud,
    Neighbours,
    add_pairwise,
    change,
    cloud,
    distance_rows,
    euclidean,
    median,
    neighbour_count,
    neighbours,
    pairwise,
    weight,
)
from .greedy import Picks, hard_greedy, soft_greedy
from .kernels import kernel, median_bandwidth, neighbour_bandwidth
from .options import Cover
from .result import Selection


def maxherding(
    views: dict[str, Tensor],
    budget: int,
    *,
    generator: torch.Generator,
    start: Tensor,
    view: str | None = None,
    **options: Any,
) -> Selection:
    """Soft cover of one view."""
    return _soft(one_view(views, view), budget, start, Cover(**options))


def mers(
    views: dict[str, Tensor], budget: int, *, generator: torch.Generator, start: Tensor, **options: Any
) -> Selection:
    """Soft cover of all views at once (MERS-MaxHerding, Alg. 1)."""
    return _soft(views, budget, start, Cover(**options))


def probcover(
    views: dict[str, Tensor],
    budget: int,
    *,
    generator: torch.Generator,
    start: Tensor,
    view: str | None = None,
    **options: Any,
) -> Selection:
    """Hard cover of one view."""
    return _hard(one_view(views, view), budget, start, Cover(**options))


def mers_probcover(
    views: dict[str, Tensor], budget: int, *, generator: torch.Generator, start: Tensor, **options: Any
) -> Selection:
    """Hard cover of all views at once (MERS-ProbCover, Alg. 2)."""
    return _hard(views, budget, start, Cover(**options))


def one_view(views: dict[str, Tensor], name: str | int | None) -> dict[str, Tensor]:
    """The view of that name or position, or the first."""
    names = list(views)
    if name is None or isinstance(name, int):
        if not 0 <= (name or 0) < len(names):
            raise ValueError(f"view must be in 0..{len(names) - 1} or one of {', '.join(names)}, got {name}")
        name = names[name or 0]
    if name not in views:
        raise ValueError(f"unknown view {name!r}; {nearest_name(name, names)}")
    return {name: views[name]}


# ---------------------------------------------------------------- what both share


KEPT_POINTS = 2000  # of so many points or fewer (16 MB a view) nothing is computed twice to save memory


@dataclass(frozen=True)
class Problem:
    """One selection to be made: the points in every view, and how coverage is measured."""

    names: list[str]
    views: list[Tensor]
    cover: Cover
    k: int
    worth: Tensor
    _clouds: dict[int, Cloud] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.views[0])

    def points(self, position: int) -> Cloud:
        """The points of one view. Of many points only one view is kept at a time: it is as large as the view."""
        if position not in self._clouds:
            if self.count > KEPT_POINTS:
                self._clouds.clear()
            self._clouds[position] = cloud(self.views[position])
        return self._clouds[position]


def _problem(views: dict[str, Tensor], budget: int, start: Tensor, cover: Cover) -> Problem:
    count = len(next(iter(views.values())))
    cover.check_neighbours(count)
    k = neighbour_count(count, budget + len(start)) if cover.neighbours is None else int(cover.neighbours)
    worth = cover.worth(count)
    if cover.weight_rule() is None:
        cover.given_weights(list(views))  # refuse wrong numbers before any work
    cover.given_bandwidths(list(views))
    wide = torch.float64 if any(view.dtype == torch.float64 for view in views.values()) else torch.float32
    return Problem(list(views), [view.to(wide) for view in views.values()], cover, k, worth)


def _near(problem: Problem, matrix: Tensor) -> Neighbours:
    return neighbours(matrix, problem.k, euclidean)


def _weighs(problem: Problem) -> bool:
    """Whether the weights are read off the neighbours: with one view, or one point, there is nothing to weigh."""
    return len(problem.names) > 1 and problem.count > 1 and problem.cover.weight_rule() not in (None, "equal")


def _view_weight(problem: Problem, position: int, near: Neighbours | None, notes: list[str]) -> float:
    rule = problem.cover.weight_rule()
    if rule is None:
        return problem.cover.given_weights(problem.names)[position]
    if near is None:
        return 1.0
    found = weight(rule, near)
    if found is None:
        notes.append(
            f"view {problem.names[position]!r}: half of its points or more are copies of another; its weight is 1"
        )
        return 1.0
    return found


def _normal(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [value / total for value in weights]


def _selection(
    problem: Problem,
    method: str,
    picks: Picks,
    parts: Tensor,
    weights: list[float],
    scales: list[float],
    notes: list[str],
) -> Selection:
    shares = parts / parts.sum(1, keepdim=True)  # NaN where nothing was gained
    return Selection(
        indices=picks.indices,
        gains=picks.gains,
        method=method,
        weights=dict(zip(problem.names, weights, strict=True)),
        scales=dict(zip(problem.names, scales, strict=True)),
        k=problem.k,
        objective=picks.before + float(picks.gains.sum()),
        shares=dict(zip(problem.names, shares.unbind(1), strict=True)),
        notes=tuple(notes),
    )


# ---------------------------------------------------------------- soft cover


def _soft(views: dict[str, Tensor], budget: int, start: Tensor, cover: Cover) -> Selection:
    if cover.uncovered != "each":
        raise ValueError(f"uncovered={cover.uncovered!r} is for hard cover (probcover, mers-probcover); leave it out")
    problem = _problem(views, budget, start, cover)
    notes: list[str] = []
    picks, weights, scales = _soft_picks(problem, budget, start, notes)
    parts = picks.parts if picks.parts.shape[1] == len(views) else _soft_parts(problem, picks, start, weights, scales)
    return _selection(problem, "mers" if len(views) > 1 else "maxherding", picks, parts, weights, scales, notes)


def _soft_picks(
    problem: Problem, budget: int, start: Tensor, notes: list[str]
) -> tuple[Picks, list[float], list[float]]:
    summed = problem.cover.fusion == "sum-then-max"
    kernels, weights, scales = (_summed if summed else _separate)(problem, notes)
    if problem.cover.point_weights is not None:
        for matrix in kernels:
            matrix.mul_(problem.worth.to(matrix))  # w·max(K − c, 0) = max(wK − wc, 0)
    start = start.to(kernels[0].device)
    picks = soft_greedy(kernels, [1.0] if summed else weights, budget, start, float(problem.worth.sum()))
    return picks, weights, scales


def _summed(problem: Problem, notes: list[str]) -> tuple[list[Tensor], list[float], list[float]]:
    """K = Σ α_m K_m (Alg. 1, step 1). A large matrix is there once: each view is measured in it in turn, the last one
    stays, and the others are added tile by tile."""
    matrices: dict[int, Tensor] = {}
    weights, scales = [], []
    for position in range(len(problem.names)):
        if _needs_matrix(problem):
            former = matrices.popitem()[1] if matrices and problem.count > KEPT_POINTS else None
            matrices[position] = pairwise(problem.points(position), out=former)
        alpha, scale = _measure(problem, position, matrices.get(position), notes)
        weights.append(alpha)
        scales.append(scale)
    weights = _normal(weights)
    finish = [_weighted_kernel(problem, scale, alpha) for scale, alpha in zip(scales, weights, strict=True)]
    base, total = matrices.popitem() if matrices else (0, None)
    total = pairwise(problem.points(base), finish[base]) if total is None else change(total, finish[base])
    for position in set(range(len(weights))) - {base}:
        if position in matrices:
            total += change(matrices[position], finish[position])
        else:
            add_pairwise(total, problem.points(position), finish[position])
    return [total], weights, scales


def _separate(problem: Problem, notes: list[str]) -> tuple[list[Tensor], list[float], list[float]]:
    """Each K_m in a matrix of its own, for the sum of each view's best."""
    kernels, weights, scales = [], [], []
    for position in range(len(problem.names)):
        matrix = pairwise(problem.points(position))
        alpha, scale = _measure(problem, position, matrix, notes)
        kernels.append(change(matrix, kernel(problem.cover.kernel, problem.cover.metric, scale)))
        weights.append(alpha)
        scales.append(scale)
    return kernels, _normal(weights), scales


def _weighted_kernel(problem: Problem, scale: float, alpha: float) -> Callable[[Tensor], Tensor]:
    similarity = kernel(problem.cover.kernel, problem.cover.metric, scale)
    return similarity if alpha == 1 else lambda tile: similarity(tile).mul_(alpha)


def _needs_matrix(problem: Problem) -> bool:
    return isinstance(problem.cover.bandwidth, str) or _weighs(problem)


def _measure(problem: Problem, position: int, matrix: Tensor | None, notes: list[str]) -> tuple[float, float]:
    """Weight (before normalising) and bandwidth of one view; `matrix` holds its distances, where they are needed."""
    near = _near(problem, matrix) if matrix is not None and _weighs(problem) else None
    return _view_weight(problem, position, near, notes), _bandwidth(problem, position, matrix, notes)


def _bandwidth(problem: Problem, position: int, matrix: Tensor | None, notes: list[str]) -> float:
    cover = problem.cover
    given = cover.given_bandwidths(problem.names)
    if given is not None:
        return given[position]
    if cover.bandwidth == "knn" and matrix is not None:
        found = neighbour_bandwidth(matrix, problem.k, cover.metric)
    else:
        found = median_bandwidth(problem.points(position), cover.metric, matrix)
    if found == 0 and problem.count > 1:
        notes.append(
            f"view {problem.names[position]!r}: no scale (its points coincide); each point covers its copies alone"
        )
    return found * cover.bandwidth_scale


def _soft_parts(
    problem: Problem, picks: Picks, start: Tensor, weights: Sequence[float], scales: Sequence[float]
) -> Tensor:
    """(t, M) what each view adds to each gain of summed kernels: where the pick takes over a point, its similarity in
    that view minus that of the point's former best. Negative where one view pays for another's gain."""
    device = problem.views[0].device
    worth = problem.worth.to(device)
    held = torch.zeros(len(weights), problem.count, dtype=torch.float64, device=device)  # (M, n)
    finish = [_weighted_kernel(problem, scale, alpha) for scale, alpha in zip(scales, weights, strict=True)]
    parts = []
    for chunk in torch.cat([start, picks.indices]).to(device).split(256):
        views = [similar(distance_rows(problem.points(m), chunk)) for m, similar in enumerate(finish)]
        for row in torch.stack(views, 1).double():  # (M, n)
            better = row.sum(0) > held.sum(0)
            parts.append((row - held).mul_(better) @ worth)
            held = torch.where(better, row, held)
    return torch.stack(parts)[len(start) :].cpu() if parts else picks.parts.expand(0, len(weights))


# ---------------------------------------------------------------- hard cover


def _hard(views: dict[str, Tensor], budget: int, start: Tensor, cover: Cover) -> Selection:
    problem = _problem(views, budget, start, cover)
    notes: list[str] = []
    balls, weights, radii = _balls(problem, notes)
    picks = hard_greedy(balls, weights, budget, start, problem.worth, shared=cover.uncovered == "shared")
    del balls
    if len(picks.indices) < budget:
        picks = _rest(problem, picks, budget, start)
    method = "mers-probcover" if len(views) > 1 else "probcover"
    return _selection(problem, method, picks, picks.parts, weights, radii, notes)


def _balls(problem: Problem, notes: list[str]) -> tuple[list[Tensor], list[float], list[float]]:
    """For each view who lies within the radius (δ) of whom; δ = median over points of r."""
    balls, weights, radii, matrix = [], [], [], None
    for position in range(len(problem.names)):
        matrix = pairwise(problem.points(position), out=matrix)
        near = _near(problem, matrix)
        radius = median(near.median)
        if radius == 0 and problem.count > 1:
            notes.append(
                f"view {problem.names[position]!r}: radius 0 (its points coincide); each ball holds copies alone"
            )
        balls.append(torch.cat([euclidean(rows) <= radius for rows in matrix.split(256)]))
        weights.append(_view_weight(problem, position, near if _weighs(problem) else None, notes))
        radii.append(radius)
    return balls, _normal(weights), radii


def _rest(problem: Problem, picks: Picks, budget: int, start: Tensor) -> Picks:
    """Everything is covered: order the rest by soft gain, as if those so far had been its picks. They gain nothing."""
    missing = budget - len(picks.indices)
    found, _, _ = _soft_picks(problem, missing, torch.cat([start, picks.indices]), [])
    nothing = picks.parts.new_zeros(missing, picks.parts.shape[1])
    return Picks(torch.cat([picks.indices, found.indices]), torch.cat([picks.parts, nothing]), picks.before)
