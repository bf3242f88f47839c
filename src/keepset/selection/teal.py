"""TEAL: grow the choice in stages, each time a typical point of every cluster that has too few."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from .cover import one_view
from .geometry import cloud, distance_rows, pairwise
from .greedy import first_best
from .result import Selection, uncovered_selection

GROWTH, FIRST_POWER = 1.4, 4
SMALLEST_CLUSTER = 6
MOST_CLUSTERS = 500
NEIGHBOURS = 20
TIE = 1e-9  # what rounding makes of the distances between copies, of which the lowest index is to be taken
ALL_PAIRS = 2048  # points up to which the distances of all pairs are kept: 32 MB


class Points:
    """The points of a view in float64, and the squared distances between them: of few points all at once, since many
    small products leave a machine of many cores waiting for its threads."""

    def __init__(self, view: Tensor) -> None:
        self._cloud = cloud(view.double())

    def __len__(self) -> int:
        return len(self._cloud)

    @property
    def vectors(self) -> Tensor:
        """(n, d) of unit length, but for a shift that they share."""
        return self._cloud.centred

    def squared(self, rows: Tensor, columns: Tensor | slice) -> Tensor:
        """Between the points `rows` and the points `columns`, exactly zero between copies."""
        if len(self) <= ALL_PAIRS:
            return self._pairs[rows][:, columns]
        return 2 * distance_rows(self._cloud, rows, columns)

    @cached_property
    def _pairs(self) -> Tensor:
        return 2 * pairwise(self._cloud)


def teal(
    views: dict[str, Tensor], budget: int, *, generator: torch.Generator, start: Tensor, view: str | None = None
) -> Selection:
    """Clusters that hold the fewest choices first, the largest first among these; from each its most typical point."""
    (points,) = (Points(chosen.cpu()) for chosen in one_view(views, view).values())
    seed = int(torch.randint(2**31, (), generator=generator))
    chosen = start.tolist()
    for size in stages(len(start) + budget):
        if size > len(chosen):
            # a seed of its own, so that a later stage does not depend on whether the earlier ones were run just now
            clusters = kmeans(points, cluster_count(size, len(points)), torch.Generator().manual_seed(seed + size))
            chosen += _fill(points, clusters, chosen, size - len(chosen))
    return uncovered_selection(torch.tensor(chosen[len(start) :], dtype=torch.int64), "teal")


def stages(budget: int) -> list[int]:
    """⌊1.4^j⌋ from j = 4 while below the budget, then the budget.

    >>> stages(10), stages(2)
    ([3, 5, 7, 10], [2])
    """
    sizes: list[int] = []
    while (size := math.floor(GROWTH ** (FIRST_POWER + len(sizes)))) < budget:
        sizes.append(size)
    return [*sizes, budget]


def cluster_count(size: int, count: int) -> int:
    wanted = size if size / count < 0.2 else size // 5
    return min(max(wanted, 1), MOST_CLUSTERS)


def _fill(points: Points, clusters: Tensor, chosen: list[int], wanted: int) -> list[int]:
    """`wanted` further points, from the clusters in turn."""
    sizes = torch.bincount(clusters)
    kept = torch.bincount(clusters[chosen], minlength=len(sizes))
    large = [c for c in range(len(sizes)) if sizes[c] >= SMALLEST_CLUSTER]
    order = sorted(large or range(len(sizes)), key=lambda c: (int(kept[c]), -int(sizes[c])))
    free = torch.ones(len(points), dtype=torch.bool)
    free[chosen] = False
    found: list[int] = []
    while len(found) < wanted:
        for c in order:
            members = ((clusters == c) & free).nonzero().flatten()
            if len(members) and len(found) < wanted:
                pick = int(members[first_best(typicality(points.squared(members, members)), TIE)])
                free[pick] = False
                found.append(pick)
        order = [c for c in order if bool(((clusters == c) & free).any())]
        if not order:  # the large clusters are used up: the small ones have the rest
            order = [c for c in range(len(sizes)) if bool(((clusters == c) & free).any())]
    return found


def typicality(squared: Tensor) -> Tensor:
    """(u, u) squared distances -> (u,) 1 / (their mean to the min(20, u // 2) nearest + 1e-5); 0 for a lone member."""
    near = min(NEIGHBOURS, len(squared) // 2)
    if near == 0:
        return squared.new_zeros(len(squared))
    return 1 / (squared.topk(near + 1, largest=False).values[:, 1:].mean(1) + 1e-5)


def kmeans(points: Points, count: int, generator: torch.Generator, rounds: int = 100) -> Tensor:
    """(n,) the cluster of each point, by Lloyd's iterations from k-means++ seeds."""
    vectors = points.vectors
    centres = vectors[_seeds(points, count, generator)]
    clusters = torch.full((len(vectors),), -1)
    for _ in range(rounds):
        distances = torch.cdist(vectors, centres)
        nearest = distances.argmin(1)
        if torch.equal(nearest, clusters):
            break
        clusters = nearest
        sums = torch.zeros_like(centres).index_add_(0, clusters, vectors)
        sizes = torch.bincount(clusters, minlength=count)
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], centres)
    return clusters


def _seeds(points: Points, count: int, generator: torch.Generator) -> list[int]:
    """k-means++ with a few trials a seed: far points are likelier, the trial that lowers the cost most is taken."""
    trials = 2 + int(math.log(count))
    everywhere = slice(None)
    first = torch.randint(len(points), (1,), generator=generator)
    seeds, cost = [int(first)], points.squared(first, everywhere)[0]
    for _ in range(count - 1):
        odds = cost if float(cost.sum()) > 0 else torch.ones_like(cost)
        tries = torch.multinomial(odds, trials, replacement=True, generator=generator)
        costs = torch.minimum(cost, points.squared(tries, everywhere))
        best = int(costs.sum(1).argmin())
        seeds.append(int(tries[best]))
        cost = costs[best]
    return seeds
