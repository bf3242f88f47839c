"""What soft and hard cover share: the points in every view, how coverage is measured, and the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .geometry import Cloud, cloud
from .greedy import Picks
from .kept import keeps
from .options import Cover
from .result import Selection
from .room import SHARE, free_bytes, matrix_bytes
from .scales import Neighbours, euclidean, neighbour_count, neighbours

KEPT_POINTS = 2000  # of so many points or fewer (16 MB a view) nothing is computed twice to save memory


@dataclass(frozen=True)
class Problem:
    """One selection to be made."""

    names: list[str]
    views: list[Tensor]
    start: Tensor
    budget: int
    cover: Cover
    k: int
    worth: Tensor
    streams: bool
    """Whether the matrix is done without."""
    keeps: bool = False
    """Whether similarities are kept in sixteen bits then."""
    notes: list[str] = field(default_factory=list)
    _clouds: dict[int, Cloud] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.views[0])

    @property
    def large(self) -> bool:
        return self.count > KEPT_POINTS

    @property
    def weighs(self) -> bool:
        """Whether weights are read off the neighbours: with one view, or one point, there is nothing to weigh."""
        return len(self.names) > 1 and self.count > 1 and self.cover.weight_rule() not in (None, "equal")

    def points(self, position: int) -> Cloud:
        """The points of one view. Where a matrix of many is made, one view is kept: each is as large as the view."""
        if position not in self._clouds:
            view = self.views[position]
            former = None
            if self.large and self.search == "dense" and self._clouds:
                former = self._clouds.popitem()[1].centred
            # what is freed need not come back at once: in a third of all processes two copies stayed resident
            out = former if former is not None and former.shape == view.shape else None
            self._clouds[position] = cloud(view, out)
        return self._clouds[position]

    def near(self, matrix: Tensor) -> Neighbours:
        """ρ and r of every point; `matrix` holds the distances of a view."""
        return neighbours(matrix, self.k, euclidean)

    def note(self, position: int, text: str) -> None:
        if self.count > 1:  # a lone point has no scale, and needs none
            self.notes.append(f"view {self.names[position]!r}: {text}")

    def weight(self, position: int, measure: Callable[[str], float | None]) -> float:
        """The weight (α) of a view, before they are divided by their sum; `measure` knows it for each rule."""
        rule = self.cover.weight_rule()
        if rule is None:
            return self.cover.given_weights(self.names)[position]
        found = measure(rule) if self.weighs else 1.0
        if found is None:
            self.note(position, "half of its points or more are copies of another; its weight is 1")
        return 1.0 if found is None else found

    def selection(self, picks: Picks, parts: Tensor, weights: Sequence[float], scales: Sequence[float]) -> Selection:
        shares = parts / parts.sum(1, keepdim=True)  # NaN where nothing was gained
        return Selection(
            indices=picks.indices,
            gains=picks.gains,
            weights=dict(zip(self.names, weights, strict=True)),
            scales=dict(zip(self.names, scales, strict=True)),
            k=self.k,
            objective=picks.before + float(picks.gains.sum()),
            shares=dict(zip(self.names, shares.unbind(1), strict=True)),
            notes=tuple(self.notes),
            search=self.search,
        )

    @property
    def search(self) -> str:
        if self.cover.search == "stochastic":
            return "stochastic"
        return "streamed" if self.streams else "dense"


def make_problem(views: dict[str, Tensor], budget: int, start: Tensor, cover: Cover, *, hard: bool = False) -> Problem:
    """Refuses wrong numbers before any work is done."""
    names, count = list(views), len(next(iter(views.values())))
    cover.check_neighbours(count)
    if cover.weight_rule() is None:
        cover.given_weights(names)
    cover.given_bandwidths(names)
    k = neighbour_count(count, budget + len(start)) if cover.neighbours is None else int(cover.neighbours)
    wide = torch.float64 if any(view.dtype == torch.float64 for view in views.values()) else torch.float32
    given = [view.to(wide) for view in views.values()]
    streams = _streams(given, cover, hard)
    keeps = streams and not hard and _keeps(given, cover)
    return Problem(names, given, start, budget, cover, k, cover.worth(count), streams, keeps)


def _streams(views: Sequence[Tensor], cover: Cover, hard: bool) -> bool:
    """Whether the matrix would not fit."""
    separate = cover.fusion == "max-then-sum"
    needed = matrix_bytes(len(views[0]), len(views), views[0].element_size(), hard=hard, separate=separate)
    if not isinstance(cover.memory, str):
        return needed > cover.memory
    return len(views[0]) > KEPT_POINTS and needed > SHARE * free_bytes(views[0].device)


def _keeps(views: Sequence[Tensor], cover: Cover) -> bool:
    """Whether similarities in sixteen bits fit, on a CPU."""
    if views[0].device.type != "cpu" or cover.search != "exact":
        return False
    kernels = len(views) if cover.fusion == "max-then-sum" else 1
    beside = sum(view.numel() * view.element_size() for view in views)
    return keeps(len(views[0]), kernels, beside, cover.memory, free_bytes(views[0].device))


def normal(weights: Sequence[float]) -> list[float]:
    """Divided by their sum: picks stay as they are, coverage lies in 0..1."""
    if sum(weights) == math.inf:
        weights = [value / max(weights) for value in weights]
    total = sum(weights)
    return [value / total for value in weights]
