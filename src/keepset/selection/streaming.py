"""Soft cover without the matrix: kernel values are computed in blocks, when they are needed, and forgotten."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .geometry import Cloud, steady_distances
from .greedy import TIES, OnPick, Picks, collect_picks, first_best

ROWS, COLUMNS = 512, 1024  # of a block on a CPU: 2 MB stay near a core
GPU = 16  # times as many of both on a GPU, which wants large products
FIRST = 8  # candidates whose gain is made exact before anything else, on a CPU


class Similarities(Protocol):
    """The values of a kernel between all points, and what a search asks of them."""

    @property
    def worth(self) -> Tensor | None:
        """(n,) of each point; None for one each."""

    @property
    def like(self) -> Tensor:
        """(n,) of the kernel's type and device."""

    def row_sums(self) -> Tensor:
        """(n,) float64: the worth of all points, each by its similarity to a row."""

    def highest(self, rows: Tensor) -> Tensor:
        """(n,) the largest value of each column among these rows."""

    def excess(self, rows: Tensor | None, points: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """(r,) float64: Σ over `points` of their worth times what lies of K between `low` and `high`."""


@dataclass(frozen=True)
class Kernel:
    """Σ_m α_m K_m of some views, or of some of their points; row j is candidate j, column i a point to be covered."""

    clouds: Sequence[Cloud]
    similarities: Sequence[Callable[[Tensor], Tensor]]
    """For each view what turns distances into α_m K_m, in place."""
    worth: Tensor | None
    """(n,) of each point; None for one each."""

    def __len__(self) -> int:
        return len(self.like)

    @property
    def like(self) -> Tensor:
        """(n,) of the kernel's type and device."""
        return self.clouds[0].half_norms

    def part(self, points: Tensor | slice) -> Kernel:
        worth = None if self.worth is None else self.worth[points]
        return Kernel([cloud.part(points) for cloud in self.clouds], self.similarities, worth)

    def parts(self, size: int, points: Tensor | None = None) -> Iterator[tuple[slice, Kernel]]:
        """All points, or those given, so many at a time."""
        size *= GPU if self.like.is_cuda else 1
        for first in range(0, len(self) if points is None else len(points), size):
            here = slice(first, min(first + size, len(self) if points is None else len(points)))
            yield here, self.part(here if points is None else points[here])

    def to(self, columns: Kernel) -> Tensor:
        """The block of values from these points to those, (r, c)."""
        views = zip(self.clouds, columns.clouds, self.similarities, strict=True)
        blocks = (similar(steady_distances(own, other)) for own, other, similar in views)
        return functools.reduce(Tensor.add_, blocks)

    def triangle(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """The blocks on and above the diagonal: rows, columns, and their values."""
        for here, rows in self.parts(COLUMNS):
            for there, columns in self.parts(COLUMNS):
                if there.start >= here.start:
                    yield here, there, rows.to(columns)

    def row_sums(self) -> Tensor:
        """(n,) float64: the worth of all points, each by its similarity to a row; from half of the blocks."""
        sums = torch.zeros(len(self), dtype=torch.float64, device=self.like.device)
        for here, there, block in self.triangle():
            sums[here] += row_sums(block, self._worth(there))
            if there.start > here.start:
                sums[there] += row_sums(block.T, self._worth(here))
        return sums

    def highest(self, rows: Tensor) -> Tensor:
        """(n,) the largest value of each column among these rows."""
        found = torch.zeros_like(self.like)
        for _, some in self.parts(ROWS, rows):
            for there, columns in self.parts(COLUMNS):
                found[there] = torch.maximum(found[there], some.to(columns).amax(0))
        return found

    def excess(self, rows: Tensor | None, points: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """(r,) float64: Σ over `points` of their worth times what lies of K between `low` and `high`."""
        count = len(self) if rows is None else len(rows)
        sums = torch.zeros(count, dtype=torch.float64, device=self.like.device)
        for there, columns in self.parts(COLUMNS, points):
            base, most = low[points[there]], (high - low)[points[there]]
            for here, some in self.parts(ROWS, rows):
                block = some.to(columns).sub_(base)
                sums[here] += row_sums(torch.minimum(block, most, out=block).clamp_(min=0), columns.worth)
        return sums

    def gains(self, rows: Tensor, cover: Tensor, out: Tensor | None = None) -> Tensor:
        """(r,) float64: Σ over all points of their worth times what lies of K above the cover; `out` gets the rows."""
        sums = torch.zeros(len(rows), dtype=torch.float64, device=self.like.device)
        for here, some in self.parts(ROWS, rows):
            for there, columns in self.parts(COLUMNS):
                block = some.to(columns)
                if out is not None:
                    out[here, there] = block
                sums[here] += row_sums(block.sub_(cover[there]).clamp_(min=0), columns.worth)
        return sums

    def _worth(self, points: slice) -> Tensor | None:
        return None if self.worth is None else self.worth[points]


def row_sums(block: Tensor, worth: Tensor | None) -> Tensor:
    """(r,) float64: each row times the worth of its columns.

    Added up in float64: a late gain is what is left of sums a thousand times as large, and must keep its digits.
    """
    return (block if worth is None else block * worth).double().sum(1)


def noise(kernel: Similarities) -> float:
    """What rounding leaves of a gain of nothing: that of each point by its worth."""
    worth = torch.ones_like(kernel.like) if kernel.worth is None else kernel.worth
    return torch.finfo(kernel.like.dtype).eps * float(torch.linalg.vector_norm(worth.double()))


def streamed_greedy(search: Search, budget: int, worth: float, on_pick: OnPick | None = None) -> Picks:
    """What `soft_greedy` finds, from blocks of the kernels."""
    before = search.coverage() / worth
    indices, parts = [], []
    for _ in range(budget):
        pick, gains = search.best()
        indices.append(pick)
        parts.append(gains / worth)
        search.take(pick)
        if on_pick is not None:
            on_pick(pick, float(parts[-1].sum()))
    return collect_picks(indices, parts, len(search.kernels), before, falling=search.exact)


class Search(ABC):
    """What is covered so far, and who may be taken."""

    exact = True
    """Whether the best there is is taken."""

    def __init__(self, kernels: Sequence[Similarities], start: Tensor) -> None:
        self.kernels = kernels
        like = kernels[0].like
        self.allowed = torch.ones(len(like), dtype=torch.bool, device=like.device)
        self.covered = [torch.zeros_like(like) for _ in kernels]  # c, each (n,)
        self.tie = TIES[like.dtype]
        if len(start):
            self._cover(start)

    @abstractmethod
    def best(self) -> tuple[int, Tensor]:
        """The candidate to take, and its gain in each kernel."""

    def coverage(self) -> float:
        covers = zip(self.covered, self.kernels, strict=True)
        return float(sum(row_sums(cover[None], kernel.worth).sum() for cover, kernel in covers))

    def take(self, pick: int) -> None:
        self._cover(torch.tensor([pick]))

    def _cover(self, points: Tensor) -> None:
        points = points.to(self.allowed.device)
        self.allowed[points] = False
        for column, kernel in enumerate(self.kernels):
            self.covered[column] = torch.maximum(self.covered[column], kernel.highest(points))


class StochasticSearch(Search):
    """The best of a random sample of candidates, drawn anew for each pick (Mirzasoleiman et al., 2015).

    With samples of n / b · ln(1 / ε), on average 1 − 1/e − ε of the best coverage there is, or more.
    """

    exact = False

    def __init__(
        self, kernels: Sequence[Similarities], start: Tensor, budget: int, epsilon: float, generator: torch.Generator
    ) -> None:
        super().__init__(kernels, start)
        self.size = math.ceil(len(self.allowed) / max(budget, 1) * -math.log(epsilon))
        self.generator = generator

    def best(self) -> tuple[int, Tensor]:
        left = self.allowed.nonzero().flatten()
        drawn = torch.randperm(len(left), generator=self.generator, device=self.generator.device)[: self.size]
        candidates = left[drawn.to(left.device)].sort().values
        everyone = torch.arange(len(self.allowed), device=left.device)
        gains = torch.stack(
            [
                kernel.excess(candidates, everyone, cover, torch.full_like(cover, torch.inf))
                for kernel, cover in zip(self.kernels, self.covered, strict=True)
            ],
            1,
        )
        place = first_best(gains.sum(1), self.tie)
        return int(candidates[place]), gains[place]


class ExactSearch(Search):
    """Bounds on the gains of all candidates, and how good a bound has to be.

    A pick changes gains through the points that it covers better than before. Such points are brought to account for
    all candidates at once, those that changed most first, as soon as looking exactly at the few candidates that are
    still in question has cost, over the picks, as much as that would. What was not brought to account makes a gain look
    larger than it is, so that no candidate is missed.
    """

    def __init__(self, kernels: Sequence[Similarities], start: Tensor) -> None:
        super().__init__(kernels, start)
        self.bounds = torch.stack([kernel.row_sums() for kernel in kernels], 1)  # (n, kernels)
        self.accounted = [torch.zeros_like(cover) for cover in self.covered]  # the cover ≤ c that bounds are gains to
        self.noise = noise(kernels[0])
        self.spent = 0  # values computed for single candidates since points were last brought to account for all

    def best(self) -> tuple[int, Tensor]:
        """The candidate with the largest gain, the lowest index among equals, and its gain in each kernel."""
        exact = torch.full_like(self.bounds, -torch.inf)
        totals = self._totals()
        first = FIRST * GPU if totals.is_cuda else FIRST  # a tile of a GPU costs the same for one candidate
        self._verify(totals.topk(min(first, int(self.allowed.sum()))).indices, exact)
        while True:
            totals, enough = self._totals(), float(exact.sum(1).max())
            enough -= self.tie * abs(enough)
            question = (totals >= enough) & (exact[:, 0] == -torch.inf)
            left = question.nonzero().flatten()
            pending = [self._pending(column) for column in range(len(self.kernels))]
            if self.spent + len(left) * sum(map(len, pending)) <= COLUMNS * len(totals):
                break
            self._account(pending)
        left = left[totals[left].argsort(descending=True)]
        for candidates in left.split(ROWS) if len(left) else ():
            if totals[candidates[0]] < enough:
                break
            self._verify(candidates, exact)
            enough = max(enough, float(exact[candidates].sum(1).max()) * (1 - self.tie))
        pick = first_best(exact.sum(1), self.tie)
        return pick, exact[pick]

    def _totals(self) -> Tensor:
        return self.bounds.sum(1).masked_fill(~self.allowed, -torch.inf)

    def _pending(self, column: int) -> Tensor:
        """The points whose cover is not yet brought to account, by what that could change at most, the most first."""
        owed, worth = self.covered[column] - self.accounted[column], self.kernels[column].worth
        owed = owed if worth is None else owed * worth
        points = (owed > 0).nonzero().flatten()
        return points[owed[points].argsort(descending=True)]

    def _account(self, pending: list[Tensor]) -> None:
        """Bring the points that changed most to account, for all candidates."""
        for column, (kernel, points) in enumerate(zip(self.kernels, pending, strict=True)):
            low, high = self.accounted[column], self.covered[column]
            some = points[: max(COLUMNS, len(points) // 4)]
            self.bounds[:, column] -= kernel.excess(None, some, low, high)
            self.bounds[:, column].clamp_(min=0)  # what rounding leaves below is nothing
            low[some] = high[some]
        self.spent = 0

    def _verify(self, candidates: Tensor, exact: Tensor) -> None:
        for column, kernel in enumerate(self.kernels):
            low, high = self.accounted[column], self.covered[column]
            points = self._pending(column)
            owed = kernel.excess(candidates, points, low, high)
            self.spent += len(candidates) * len(points)
            gains = self.bounds[candidates, column] - owed
            exact[candidates, column] = gains.masked_fill_(gains < self.noise, 0)
