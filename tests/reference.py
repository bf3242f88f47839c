"""Every selector once more, slowly: float64, written-out loops, distances from differences of unit vectors.

Nothing of the package is used here. The names follow the paper: rho (ρ), delta (δ), sigma (σ), alpha (α).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float64]
Views = Mapping[str, Vectors]


@dataclass(frozen=True)
class Found:
    """What a cover method is to return."""

    indices: list[int]
    gains: list[float]
    weights: list[float]
    scales: list[float]
    k: int
    objective: float
    cover: Callable[[list[int]], float]
    """F, of any points."""
    later: Callable[[list[int]], float] | None = None
    """The soft cover that orders what is left when hard cover has nothing to gain any more."""


# ---------------------------------------------------------------- geometry


def unit(view: Vectors) -> Vectors:
    return np.array([row / math.sqrt(sum(float(x) ** 2 for x in row)) for row in np.asarray(view, np.float64)])


def euclidean(view: Vectors) -> Vectors:
    """(n, n) d, the lengths of the differences of unit vectors."""
    vectors = unit(view)
    return np.array([[math.sqrt(float(np.sum((x - y) ** 2))) for y in vectors] for x in vectors])


def cosine(view: Vectors) -> Vectors:
    """(n, n) D = 1 − cos, which is d²/2."""
    return euclidean(view) ** 2 / 2


def nearest(distances: Vectors, point: int, k: int) -> list[float]:
    """Distances from one point to its k nearest, itself left out."""
    return sorted(float(distances[point, i]) for i in range(len(distances)) if i != point)[:k]


def pairs(distances: Vectors) -> list[float]:
    return [float(distances[i, j]) for i, j in combinations(range(len(distances)), 2)]


def neighbour_count(count: int, budget: int) -> int:
    whole, rest = divmod(count, budget)
    up = 2 * rest > budget or (2 * rest == budget and whole % 2 == 1)  # half to even
    return max(1, min(whole + up, count - 1))


def alpha(view: Vectors, k: int, rule: str) -> float:
    """A view's weight before normalising (Eq. 4 and 5)."""
    d = euclidean(view)
    rho_k = np.array([np.mean(nearest(d, i, k)) for i in range(len(d))])
    rho_1 = np.array([nearest(d, i, 1)[0] for i in range(len(d))])
    if rule == "equal" or np.sum((rho_k if rule == "density" else rho_1) == 0) >= len(d) / 2:
        return 1.0
    with np.errstate(divide="ignore"):
        density_k, density_1 = float(np.median(k / rho_k)), float(np.median(1 / rho_1))
    ratio = float(np.median(rho_k) / np.median(rho_1))
    return {"printed": density_k / density_1, "inverse": ratio, "density": density_k}[rule]


def alphas(views: Views, k: int, weights: Any) -> list[float]:
    if isinstance(weights, Mapping):
        values = [float(weights[name]) for name in views]
    elif isinstance(weights, str):
        values = [alpha(view, k, weights) for view in views.values()]
    else:
        values = [float(value) for value in weights]
    return [value / sum(values) for value in values]


def delta(view: Vectors, k: int) -> float:
    """The radius: median over points of the median distance to the k nearest."""
    return radius_rule(euclidean(view), k)


def radius_rule(distances: Vectors, k: int) -> float:
    return float(np.median([np.median(nearest(distances, i, k)) for i in range(len(distances))]))


def sigma(name: str, view: Vectors, k: int, bandwidth: Any, metric: str) -> float:
    """The bandwidth; where the metric is literal it is read off the cosine distances."""
    if isinstance(bandwidth, Mapping):
        return float(bandwidth[name])
    if not isinstance(bandwidth, str):
        return float(bandwidth)
    distances = euclidean(view) if metric == "euclidean" else cosine(view)
    return radius_rule(distances, k) if bandwidth == "knn" else float(np.median(pairs(distances)))


def similarity(view: Vectors, scale: float, metric: str, kernel: str) -> Vectors:
    distances = cosine(view) if metric == "cosine" else euclidean(view)
    rules: dict[str, Callable[[float], float]] = {
        "rbf": lambda x: math.exp(-(x**2) / (2 * scale**2)),
        "laplace": lambda x: math.exp(-x / scale),
        "tophat": lambda x: float(x <= scale),
    }
    return np.array([[rules[kernel](float(x)) for x in row] for row in distances])


# ---------------------------------------------------------------- soft cover


@dataclass(frozen=True)
class Soft:
    """F of soft cover, for any set of points: Σ_i w_i max_{j ∈ set} K_ij / Σ_i w_i, or a sum of such over views."""

    kernels: list[Vectors]
    weights: list[float]
    scales: list[float]
    fusion: str
    worth: Vectors

    def __call__(self, points: Iterable[int]) -> float:
        chosen = list(points)
        if not chosen:
            return 0.0
        if self.fusion == "sum-then-max":
            total = sum(weight * kernel for weight, kernel in zip(self.weights, self.kernels, strict=True))
            best = np.asarray(total)[:, chosen].max(axis=1)
        else:
            parts = zip(self.weights, self.kernels, strict=True)
            best = np.sum([weight * kernel[:, chosen].max(axis=1) for weight, kernel in parts], axis=0)
        return float(best @ self.worth / self.worth.sum())


def soft(
    views: Views,
    k: int,
    *,
    weights: Any = "printed",
    bandwidth: Any = "median",
    metric: str = "cosine",
    fusion: str = "sum-then-max",
    kernel: str = "rbf",
    bandwidth_scale: float = 1.0,
    point_weights: Sequence[float] | None = None,
) -> Soft:
    scales = [sigma(name, view, k, bandwidth, metric) * bandwidth_scale for name, view in views.items()]
    kernels = [similarity(view, scale, metric, kernel) for view, scale in zip(views.values(), scales, strict=True)]
    return Soft(kernels, alphas(views, k, weights), scales, fusion, worth_of(views, point_weights))


def worth_of(views: Views, point_weights: Sequence[float] | None) -> Vectors:
    count = len(next(iter(views.values())))
    return np.ones(count) if point_weights is None else np.asarray(point_weights, np.float64)


def mers(
    views: Views, budget: int, *, start: Sequence[int] = (), neighbours: int | None = None, **options: Any
) -> Found:
    """Soft cover of all views; of one view it is maxherding."""
    count = len(next(iter(views.values())))
    k = neighbours or neighbour_count(count, budget + len(start))
    cover = soft(views, k, **options)
    indices, gains = greedy(cover, count, budget, start)
    return Found(indices, gains, cover.weights, cover.scales, k, cover([*start, *indices]), cover)


def maxherding(views: Views, budget: int, **options: Any) -> Found:
    name = next(iter(views))
    return mers({name: views[name]}, budget, **options)


def greedy(
    cover: Callable[[list[int]], float], count: int, budget: int, start: Sequence[int]
) -> tuple[list[int], list[float]]:
    """Add the point that raises the coverage most, the lowest index among equals; and what each added."""
    taken, gains = list(start), []
    for _ in range(budget):
        free = [j for j in range(count) if j not in taken]
        raised = [cover([*taken, j]) - cover(taken) for j in free]
        gains.append(max(raised))
        taken.append(free[raised.index(gains[-1])])
    return taken[len(start) :], gains


# ---------------------------------------------------------------- hard cover


@dataclass(frozen=True)
class Hard:
    """F of hard cover: Σ_m α_m · worth of the union of balls in view m."""

    balls: list[list[set[int]]]
    weights: list[float]
    scales: list[float]
    worth: Vectors

    def __call__(self, points: Iterable[int]) -> float:
        chosen = list(points)
        unions = [set().union(*(ball[j] for j in chosen)) for ball in self.balls]
        parts = zip(self.weights, unions, strict=True)
        return sum(weight * float(self.worth[list(union)].sum()) for weight, union in parts) / float(self.worth.sum())


def hard(views: Views, k: int, weights: Any = "printed", point_weights: Sequence[float] | None = None) -> Hard:
    radii = [delta(view, k) for view in views.values()]
    balls = []
    for view, radius in zip(views.values(), radii, strict=True):
        balls.append([{i for i, d in enumerate(row) if d <= radius} for row in euclidean(view)])
    return Hard(balls, alphas(views, k, weights), radii, worth_of(views, point_weights))


def mers_probcover(
    views: Views,
    budget: int,
    *,
    start: Sequence[int] = (),
    neighbours: int | None = None,
    uncovered: str = "each",
    weights: Any = "printed",
    point_weights: Sequence[float] | None = None,
    **options: Any,
) -> Found:
    """Hard cover of all views; of one view it is probcover. `options` are those of the soft cover of the rest."""
    count = len(next(iter(views.values())))
    k = neighbours or neighbour_count(count, budget + len(start))
    cover = hard(views, k, weights, point_weights)
    indices, gains = hard_greedy(cover, budget, start, shared=uncovered == "shared")
    rest = budget - len(indices)
    later = soft(views, k, weights=weights, point_weights=point_weights, **options) if rest else None
    if later:
        indices += greedy(later, count, rest, [*start, *indices])[0]
    objective = sum(gains) if uncovered == "shared" else cover([*start, *indices])
    return Found(indices, gains + [0.0] * rest, cover.weights, cover.scales, k, objective, cover, later)


def probcover(views: Views, budget: int, **options: Any) -> Found:
    name = next(iter(views))
    return mers_probcover({name: views[name]}, budget, **options)


def hard_greedy(cover: Hard, budget: int, start: Sequence[int], shared: bool) -> tuple[list[int], list[float]]:
    """Alg. 2, with one set of uncovered points a view, or one for all; stops when nothing is left to cover."""
    everyone = {i for i, worth in enumerate(cover.worth) if worth > 0}
    left = [set(everyone) if weight > 0 else set() for weight in cover.weights]
    indices, gains = list(start), []
    for j in start:
        left = take(cover, left, j, shared)
    while len(indices) < budget + len(start) and any(left):
        free = [j for j in range(len(cover.worth)) if j not in indices]
        found = [hard_gain(cover, left, j) for j in free]
        gains.append(max(found))
        indices.append(free[next(place for place, gain in enumerate(found) if gain >= gains[-1] * (1 - 1e-12))])
        left = take(cover, left, indices[-1], shared)
    return indices[len(start) :], gains


def hard_gain(cover: Hard, left: list[set[int]], j: int) -> float:
    new = [sum(cover.worth[i] for i in ball[j] & there) for ball, there in zip(cover.balls, left, strict=True)]
    return float(sum(weight * x for weight, x in zip(cover.weights, new, strict=True)) / cover.worth.sum())


def take(cover: Hard, left: list[set[int]], j: int, shared: bool) -> list[set[int]]:
    if not shared:
        return [there - ball[j] for there, ball in zip(left, cover.balls, strict=True)]
    gone = set().union(*(ball[j] for ball, weight in zip(cover.balls, cover.weights, strict=True) if weight > 0))
    return [there - gone for there in left]


def best_subset(cover: Callable[[tuple[int, ...]], float], count: int, size: int) -> float:
    """The largest coverage that any subset of that size reaches."""
    return max(cover(subset) for subset in combinations(range(count), size))


# ---------------------------------------------------------------- the others


def herding(view: Vectors, budget: int, start: Sequence[int] = ()) -> list[int]:
    """The running mean of those taken stays as close as can be to the mean of all."""
    vectors, taken = unit(view), list(start)
    for _ in range(budget):
        free = [j for j in range(len(vectors)) if j not in taken]
        gaps = [np.linalg.norm(vectors.mean(axis=0) - vectors[[*taken, j]].mean(axis=0)) for j in free]
        taken.append(free[int(np.argmin(gaps))])
    return taken[len(start) :]


def closest(view: Vectors, budget: int, start: Sequence[int] = ()) -> list[int]:
    vectors = unit(view)
    gaps = [float(np.linalg.norm(row - vectors.mean(axis=0))) for row in vectors]
    return [j for j in sorted(range(len(vectors)), key=gaps.__getitem__) if j not in start][:budget]


def rainbow(uncertainty: Sequence[float], budget: int, start: Sequence[int] = ()) -> list[int]:
    order = sorted((value, j) for j, value in enumerate(uncertainty) if j not in start)
    step = len(order) // budget
    return [order[position * step][1] for position in range(budget)]


def teal_stages(budget: int) -> list[int]:
    if budget <= 3:
        return [budget]
    sizes = [math.floor(1.4**power) for power in range(4, 60)]
    return [size for size in sizes if size < budget] + [budget]


def typicality(members: Vectors, point: int) -> float:
    """Of one point among the unselected members of its cluster."""
    near = min(20, len(members) // 2)
    if near == 0:
        return 0.0
    squared = [float(np.sum((x - members[point]) ** 2)) for i, x in enumerate(members) if i != point]
    return 1 / (float(np.mean(sorted(squared)[:near])) + 1e-5)


def teal(view: Vectors, budget: int, cluster: Callable[[int], list[int]], start: Sequence[int] = ()) -> list[int]:
    """`cluster` tells the cluster of each point, given how many there are to be."""
    vectors, chosen = unit(view), list(start)
    for size in teal_stages(budget + len(start)):
        labels = cluster(min(max(size if size / len(vectors) < 0.2 else size // 5, 1), 500))
        teal_stage(vectors, labels, chosen, size)
    return chosen[len(start) :]


def teal_stage(vectors: Vectors, labels: list[int], chosen: list[int], size: int) -> None:
    """Grow `chosen` to `size`: clusters in turn, those with the fewest chosen first, then the largest."""
    groups = {c: [i for i, label in enumerate(labels) if label == c] for c in sorted(set(labels))}
    kept = {c: sum(i in chosen for i in members) for c, members in groups.items()}
    large = [c for c, members in groups.items() if len(members) > 5]
    order = sorted(large or groups, key=lambda c: (kept[c], -len(groups[c])))
    while len(chosen) < size:
        before = len(chosen)
        for c in order:
            free = [i for i in groups[c] if i not in chosen]
            if free and len(chosen) < size:
                scores = [typicality(vectors[free], position) for position in range(len(free))]
                chosen.append(free[scores.index(max(scores))])
        if len(chosen) == before:  # the large clusters are used up
            order = list(groups)
