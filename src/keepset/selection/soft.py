"""Soft cover: every point counts by its similarity to the nearest kept one (Alg. 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from . import tensor_cores
from .geometry import add_pairwise, change, distance_rows, pairwise
from .greedy import TIES, Picks, soft_greedy
from .kept import KeptSearch
from .kernels import Similarity, kernel, median_bandwidth, neighbour_bandwidth
from .options import Cover
from .problem import Problem, make_problem, normal
from .result import Selection
from .sampled import Scales, exact_copies
from .scales import weight
from .streaming import ExactSearch, Kernel, Search, Similarities, StochasticSearch, streamed_greedy

SMALLEST = 1e-37  # a bandwidth below has no inverse in float32, and is as good as 0
SCRATCH = 2**25  # similarities of picks to all points that are looked at together
Measured = tuple[list[Tensor], list[float], list[float]]  # kernels, weights, bandwidths


def soft_cover(
    views: dict[str, Tensor], budget: int, start: Tensor, cover: Cover, generator: torch.Generator | None = None
) -> Selection:
    if cover.uncovered != "each":
        raise ValueError(f"uncovered={cover.uncovered!r} is for hard cover (probcover, mers-probcover); leave it out")
    problem = make_problem(views, budget, start, cover)
    picks, weights, scales = soft_picks(problem, generator)
    parts = picks.parts if picks.parts.shape[1] == len(views) else parts_by_view(problem, picks, weights, scales)
    return problem.selection(picks, parts, weights, scales)


def soft_picks(problem: Problem, generator: torch.Generator | None = None) -> tuple[Picks, list[float], list[float]]:
    summed = problem.cover.fusion == "sum-then-max"
    if problem.streams or problem.cover.search == "stochastic":
        return _streamed_picks(problem, summed, generator)
    kernels, weights, scales = (_summed if summed else _separate)(problem)
    if problem.cover.point_weights is not None:
        for matrix in kernels:
            matrix.mul_(problem.worth.to(matrix))  # w·max(K − c, 0) = max(wK − wc, 0)
    start = problem.start.to(kernels[0].device)
    worth = float(problem.worth.sum())
    told = problem.cover.on_pick
    return soft_greedy(kernels, [1.0] if summed else weights, problem.budget, start, worth, told), weights, scales


def _streamed_picks(
    problem: Problem, summed: bool, generator: torch.Generator | None
) -> tuple[Picks, list[float], list[float]]:
    """The same without a matrix."""
    split = tensor_cores.split(problem.views) if tensor_cores.usable(problem.views) else None
    clouds, weights, sizes = [], [], []
    for position in range(len(problem.names)):
        scales = Scales(problem.points(position), problem.k) if split is None else split.scales(position, problem.k)
        weights.append(problem.weight(position, scales.weight))
        sizes.append(_bandwidth(problem, position, scales.bandwidth))
        if split is None:
            points = problem.points(position)
            clouds.append(points if _near_itself(problem, sizes[-1]) else exact_copies(points))
        for text in scales.notes:
            problem.note(position, text)
    weights = normal(weights)
    finish = weighted_kernels(problem, weights, sizes)
    worth = None
    if problem.cover.point_weights is not None:
        worth = problem.worth.to(problem.views[0])
    groups = [list(range(len(sizes)))] if summed else [[position] for position in range(len(sizes))]
    kernels: list[Similarities] = []
    for group in groups:
        similar = [finish[m] for m in group]
        if split is None:
            kernels.append(Kernel([clouds[m] for m in group], similar, worth))
        else:
            kernels.append(split.kernel(group, similar, worth))
    search = _search(problem, kernels, generator)
    return streamed_greedy(search, problem.budget, float(problem.worth.sum()), problem.cover.on_pick), weights, sizes


def _near_itself(problem: Problem, bandwidth: float) -> bool:
    """Whether a point's distance D to itself, which rounding leaves above 0, costs it less of its similarity than
    makes a tie; for other kernels than this one it may cost more."""
    cover, dtype = problem.cover, problem.views[0].dtype
    smooth = cover.kernel == "rbf" and cover.metric == "cosine"  # 1 − K = D²/2σ², and not D/σ
    return smooth and bandwidth > 4 * torch.finfo(dtype).eps * math.sqrt(5 / TIES[dtype])


def _search(problem: Problem, kernels: Sequence[Similarities], generator: torch.Generator | None) -> Search:
    if problem.cover.search == "stochastic":
        drawn = generator or torch.Generator().manual_seed(0)
        return StochasticSearch(kernels, problem.start, problem.budget, problem.cover.epsilon, drawn)
    plain = [kernel for kernel in kernels if isinstance(kernel, Kernel)]
    if problem.keeps and plain:
        return KeptSearch(plain, problem.start)
    return ExactSearch(kernels, problem.start)


def order_the_rest(problem: Problem, picks: Picks) -> Picks:
    """What hard cover has left once everything is covered, by soft gain after those so far. They gain nothing."""
    missing = problem.budget - len(picks.indices)
    taken = torch.cat([problem.start, picks.indices])
    told = problem.cover.on_pick
    cover = replace(problem.cover, on_pick=None if told is None else lambda pick, _: told(pick, 0.0))
    found, _, _ = soft_picks(replace(problem, start=taken, budget=missing, cover=cover, notes=[]))
    nothing = picks.parts.new_zeros(missing, picks.parts.shape[1])
    return Picks(torch.cat([picks.indices, found.indices]), torch.cat([picks.parts, nothing]), picks.before)


# ---------------------------------------------------------------- kernels


def _summed(problem: Problem) -> Measured:
    """K = Σ α_m K_m (Alg. 1, step 1). A large matrix is there once: each view is measured in it in turn, the last one
    stays, and the others are added tile by tile."""
    matrices: dict[int, Tensor] = {}
    weights, scales = [], []
    for position in range(len(problem.names)):
        if isinstance(problem.cover.bandwidth, str) or problem.weighs:
            former = matrices.popitem()[1] if matrices and problem.large else None
            matrices[position] = pairwise(problem.points(position), out=former)
        alpha, scale = _measure(problem, position, matrices.get(position))
        weights.append(alpha)
        scales.append(scale)
    weights = normal(weights)
    finish = weighted_kernels(problem, weights, scales)
    base, total = matrices.popitem() if matrices else (0, None)
    total = pairwise(problem.points(base), finish[base]) if total is None else change(total, finish[base])
    for position in set(range(len(weights))) - {base}:
        if position in matrices:
            total += change(matrices[position], finish[position])
        else:
            add_pairwise(total, problem.points(position), finish[position])
    return [total], weights, scales


def _separate(problem: Problem) -> Measured:
    """Each K_m in a matrix of its own, for the sum of each view's best."""
    kernels, weights, scales = [], [], []
    for position in range(len(problem.names)):
        matrix = pairwise(problem.points(position))
        alpha, scale = _measure(problem, position, matrix)
        kernels.append(change(matrix, kernel(problem.cover.kernel, problem.cover.metric, scale)))
        weights.append(alpha)
        scales.append(scale)
    return kernels, normal(weights), scales


def weighted_kernels(problem: Problem, weights: Sequence[float], scales: Sequence[float]) -> list[Similarity]:
    """For each view the function that turns distances into α_m K_m, in place."""
    name, metric = problem.cover.kernel, problem.cover.metric
    return [Similarity(name, metric, scale, alpha) for scale, alpha in zip(scales, weights, strict=True)]


def _measure(problem: Problem, position: int, matrix: Tensor | None) -> tuple[float, float]:
    """Weight and bandwidth of one view; `matrix` holds its distances, where they are needed."""

    def rule_weight(rule: str) -> float | None:
        return weight(rule, problem.near(matrix)) if matrix is not None else 1.0

    def rule_bandwidth(rule: str, metric: str) -> float:
        if rule == "knn" and matrix is not None:
            return neighbour_bandwidth(matrix, problem.k, metric)
        return median_bandwidth(problem.points(position), metric, matrix)

    return problem.weight(position, rule_weight), _bandwidth(problem, position, rule_bandwidth)


def _bandwidth(problem: Problem, position: int, measure: Callable[[str, str], float]) -> float:
    """The bandwidth (σ) of a view; `measure` knows it for a rule and a metric."""
    cover = problem.cover
    given = cover.given_bandwidths(problem.names)
    if given is not None or not isinstance(cover.bandwidth, str):
        found = (given or [])[position]
    else:
        found = measure(cover.bandwidth, cover.metric) * cover.bandwidth_scale
        if found == 0:
            problem.note(position, "no scale (its points coincide); each point covers its copies alone")
    return found if found > SMALLEST else 0.0


def parts_by_view(problem: Problem, picks: Picks, weights: Sequence[float], scales: Sequence[float]) -> Tensor:
    """(t, M) what each view adds to each gain of summed kernels: where the pick takes over a point, its similarity in
    that view minus that of the point's former best. Negative where one view pays for another's gain."""
    device = problem.views[0].device
    worth = problem.worth.to(device)
    held = torch.zeros(len(weights), problem.count, dtype=torch.float64, device=device)  # (M, n)
    finish = weighted_kernels(problem, weights, scales)
    parts = []
    size = min(256, max(1, SCRATCH // problem.count))
    for chunk in torch.cat([problem.start, picks.indices]).to(device).split(size):
        views = [similar(distance_rows(problem.points(m), chunk)) for m, similar in enumerate(finish)]
        for row in torch.stack(views, 1).double():  # (M, n)
            better = row.sum(0) > held.sum(0)
            parts.append((row - held).mul_(better) @ worth)
            held = torch.where(better, row, held)
    return torch.stack(parts)[len(problem.start) :].cpu()
