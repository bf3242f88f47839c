"""What soft and hard cover share: the points in every view, how coverage is measured, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .geometry import Cloud, cloud
from .greedy import Picks
from .options import Cover
from .result import Selection
from .scales import Neighbours, euclidean, neighbour_count, neighbours, weight

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
        """The points of one view. Where they are many, one view is kept at a time: each is as large as the view."""
        if position not in self._clouds:
            view = self.views[position]
            former = self._clouds.popitem()[1].centred if self.large and self._clouds else None
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

    def weight(self, position: int, near: Neighbours | None) -> float:
        """The weight (α) of a view, before they are divided by their sum."""
        rule = self.cover.weight_rule()
        if rule is None:
            return self.cover.given_weights(self.names)[position]
        found = weight(rule, near) if near is not None else 1.0
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
        )


def make_problem(views: dict[str, Tensor], budget: int, start: Tensor, cover: Cover) -> Problem:
    """Refuses wrong numbers before any work is done."""
    names, count = list(views), len(next(iter(views.values())))
    cover.check_neighbours(count)
    if cover.weight_rule() is None:
        cover.given_weights(names)
    cover.given_bandwidths(names)
    k = neighbour_count(count, budget + len(start)) if cover.neighbours is None else int(cover.neighbours)
    wide = torch.float64 if any(view.dtype == torch.float64 for view in views.values()) else torch.float32
    return Problem(names, [view.to(wide) for view in views.values()], start, budget, cover, k, cover.worth(count))


def normal(weights: Sequence[float]) -> list[float]:
    """Divided by their sum: picks stay as they are, coverage lies in 0..1."""
    total = sum(weights)
    return [value / total for value in weights]
