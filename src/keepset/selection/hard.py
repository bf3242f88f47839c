"""Hard cover: a point is covered if a kept one lies within the radius (Alg. 2)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import tensor_cores
from .geometry import TILE_COLUMNS, Cloud, pairwise, steady_distances
from .greedy import Balls, hard_greedy
from .kernels import within
from .options import Cover
from .problem import Problem, make_problem, normal
from .result import Selection
from .sampled import Scales, exact_copies
from .scales import euclidean, median, weight
from .soft import order_the_rest
from .tensor_cores import Split

WIDTH = 8 * TILE_COLUMNS  # of the blocks that rows are computed in


def hard_cover(views: dict[str, Tensor], budget: int, start: Tensor, cover: Cover) -> Selection:
    if cover.search != "exact":
        raise ValueError(f"search={cover.search!r} is for soft cover (maxherding, mers); leave it out")
    problem = make_problem(views, budget, start, cover, hard=True)
    balls, weights, radii = (_streamed_balls if problem.streams else _balls)(problem)
    shared, worth = cover.uncovered == "shared", problem.worth.to(problem.views[0].device)
    picks = hard_greedy(balls, weights, budget, start, worth, shared, cover.on_pick)
    del balls  # before the rest needs memory of its own
    if len(picks.indices) < budget:
        picks = order_the_rest(problem, picks)
    return problem.selection(picks, picks.parts, weights, radii)


def _balls(problem: Problem) -> tuple[Sequence[Balls], list[float], list[float]]:
    """For each view who lies within the radius (δ) of whom; δ = median over points of r."""
    balls, weights, radii, matrix = [], [], [], None
    for position in range(len(problem.names)):
        matrix = pairwise(problem.points(position), out=matrix)
        near = problem.near(matrix)
        radii.append(_told(problem, position, median(near.median)))
        balls.append(torch.cat([within(euclidean(rows), radii[-1]) for rows in matrix.split(256)]))
        weights.append(problem.weight(position, functools.partial(weight, near=near)))
    return balls, normal(weights), radii


def _streamed_balls(problem: Problem) -> tuple[Sequence[Balls], list[float], list[float]]:
    """The same, but the rows of each ball are computed when they are asked for."""
    split = tensor_cores.split(problem.views) if tensor_cores.usable(problem.views) else None
    balls: list[Balls] = []
    weights, radii = [], []
    for position in range(len(problem.names)):
        scales = Scales(problem.points(position), problem.k) if split is None else split.scales(position, problem.k)
        radii.append(_told(problem, position, scales.radius()))
        if split is None:
            balls.append(StreamedBalls(exact_copies(problem.points(position)), radii[-1]))
        else:
            balls.append(TensorCoreBalls(split, position, radii[-1]))
        weights.append(problem.weight(position, scales.weight))
        for text in scales.notes:
            problem.note(position, text)
    return balls, normal(weights), radii


def _told(problem: Problem, position: int, radius: float) -> float:
    if radius == 0:
        problem.note(position, "radius 0 (its points coincide); each ball holds copies alone")
    return radius


@dataclass(frozen=True)
class StreamedBalls:
    """Who lies within a radius of whom, by rows, computed anew each time."""

    points: Cloud
    radius: float

    def __getitem__(self, rows: int | Tensor) -> Tensor:
        """(n,) of one row, or (r, n)."""
        device = self.points.centred.device
        chosen = torch.tensor([rows], device=device) if isinstance(rows, int) else rows
        some = self.points.part(chosen)
        parts = (self.points.part(slice(first, first + WIDTH)) for first in range(0, len(self.points), WIDTH))
        block = torch.cat([within(euclidean(steady_distances(some, part)), self.radius) for part in parts], 1)
        return block[0] if isinstance(rows, int) else block


@dataclass(frozen=True)
class TensorCoreBalls:
    """The same on a GPU."""

    split: Split
    view: int
    radius: float

    def __getitem__(self, rows: int | Tensor) -> Tensor:
        """(n,) of one row, or (r, n)."""
        chosen = self.split.everyone[rows : rows + 1] if isinstance(rows, int) else rows
        block = within(euclidean(self.split.distances(self.view, chosen)), self.radius)
        return block[0] if isinstance(rows, int) else block
