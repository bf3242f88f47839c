"""Hard cover: a point is covered if a kept one lies within the radius (Alg. 2)."""

from __future__ import annotations

import torch
from torch import Tensor

from .geometry import pairwise
from .greedy import hard_greedy
from .options import Cover
from .problem import Problem, make_problem, normal
from .result import Selection
from .scales import euclidean, median
from .soft import order_the_rest


def hard_cover(views: dict[str, Tensor], budget: int, start: Tensor, cover: Cover) -> Selection:
    problem = make_problem(views, budget, start, cover)
    balls, weights, radii = _balls(problem)
    picks = hard_greedy(balls, weights, budget, start, problem.worth, shared=cover.uncovered == "shared")
    del balls  # before the rest needs memory of its own
    if len(picks.indices) < budget:
        picks = order_the_rest(problem, picks)
    return problem.selection(picks, picks.parts, weights, radii)


def _balls(problem: Problem) -> tuple[list[Tensor], list[float], list[float]]:
    """For each view who lies within the radius (δ) of whom; δ = median over points of r."""
    balls, weights, radii, matrix = [], [], [], None
    for position in range(len(problem.names)):
        matrix = pairwise(problem.points(position), out=matrix)
        near = problem.near(matrix)
        radius = median(near.median)
        if radius == 0:
            problem.note(position, "radius 0 (its points coincide); each ball holds copies alone")
        balls.append(torch.cat([euclidean(rows) <= radius for rows in matrix.split(256)]))
        weights.append(problem.weight(position, near if problem.weighs else None))
        radii.append(radius)
    return balls, normal(weights), radii
