"""Greedy maximisation of coverage: the soft loop (Alg. 1) and the hard one (Alg. 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# Candidates looked at first in each pick; then, so many of the rest between two looks at the best gain so far.
FIRST_BATCH, NEXT_BATCH = 64, 256
# Floats in the scratch rows of a refresh: 2.5 MB stay near the cores.
SCRATCH = 640_000

# Numbers in the rows of balls that are added up at once.
HELD = 2**25

# Gains that differ by less than this, relatively, are a tie.
TIES = {torch.float32: 1e-6, torch.float64: 1e-12}


@dataclass(frozen=True)
class Picks:
    """What a greedy loop found. Everything is divided by the worth of all points, so that full coverage is 1."""

    indices: Tensor
    """(t,) int64 in the order picked."""
    parts: Tensor
    """(t, M) float64: what each matrix added to the coverage; a row sums to the gain of that pick."""
    before: float
    """The coverage by the points that were there at the start."""

    @property
    def gains(self) -> Tensor:
        return self.parts.sum(1)


OnPick = Callable[[int, float], object]


def soft_greedy(
    kernels: Sequence[Tensor],
    weights: Sequence[float],
    budget: int,
    start: Tensor,
    worth: float,
    on_pick: OnPick | None = None,
) -> Picks:
    """Take, `budget` times, the j with the largest Σ_m α_m Σ_i max(K_m[j, i] − c_m[i], 0); then c_m = max(c_m, K_m[j]).

    kernels: each (n, n); row j is candidate j, column i a point to be covered, already times its worth, if any.
    Ties go to the lowest index.
    """
    search = _LazySearch(kernels, weights, start)
    before = search.coverage() / worth
    indices, parts = [], []
    for _ in range(budget):
        pick = search.best()
        indices.append(pick)
        parts.append(search.parts(pick) / worth)
        search.take(pick)
        if on_pick is not None:
            on_pick(pick, float(parts[-1].sum()))
    return collect_picks(indices, parts, len(kernels), before)


class _LazySearch:
    """The gain of every candidate, exact or an upper bound.

    Gains only shrink as points get covered, so an old gain bounds the new one from above: only candidates whose bound
    reaches the best exact gain are computed anew. Rows are summed in one order each time, so this holds to the bit.
    """

    def __init__(self, kernels: Sequence[Tensor], weights: Sequence[float], start: Tensor) -> None:
        self.kernels = kernels
        self.covered = [_covered(matrix, start) for matrix in kernels]  # c_m, each (n,)
        self.alphas = torch.tensor(weights, dtype=torch.float64, device=kernels[0].device)
        self.bounds = torch.stack([matrix.sum(1) for matrix in kernels], 1)  # (n, M)
        self.totals = self.bounds.double() @ self.alphas  # (n,); −∞ once taken
        self.totals[start] = -torch.inf
        self.stale = (self.totals > -torch.inf) & (len(start) > 0)
        self.tie = TIES[kernels[0].dtype]
        count = len(self.totals)
        self.scratch = kernels[0].new_empty(min(count, max(2, SCRATCH // count)), count)

    def coverage(self) -> float:
        sums = torch.stack([cover.double().sum() for cover in self.covered])
        return float(sums @ self.alphas)

    def parts(self, pick: int) -> Tensor:
        """(M,) what the pick adds in each matrix."""
        return self.bounds[pick].double() * self.alphas

    def best(self) -> int:
        """The candidate with the largest gain, the lowest index among equals."""
        if len(self.scratch) == len(self.totals):  # so few that finding out whom to look at costs more than looking
            self._refresh_all()
        else:
            self._refresh_leaders()
        return first_best(self.totals, self.tie)

    def take(self, pick: int) -> None:
        gained = bool(self.totals[pick] > 0)
        self.totals[pick] = -torch.inf
        if gained:  # a pick that adds nothing changes nothing: all gains stay as they are
            for matrix, cover in zip(self.kernels, self.covered, strict=True):
                torch.maximum(cover, matrix[pick], out=cover)
            self.stale = self.totals > -torch.inf

    def _refresh_all(self) -> None:
        for column, (matrix, cover) in enumerate(zip(self.kernels, self.covered, strict=True)):
            self.bounds[:, column] = torch.sub(matrix, cover, out=self.scratch).clamp_(min=0).sum(1)
        taken = self.totals == -torch.inf
        self.totals = (self.bounds.double() @ self.alphas).masked_fill_(taken, -torch.inf)

    def _refresh_leaders(self) -> None:
        """Compute gains anew, largest bound first, until no bound that is left reaches the best gain."""
        first = self.totals.masked_fill(~self.stale, -torch.inf).topk(FIRST_BATCH).indices
        self._refresh(first[self.stale[first]])
        enough = self.totals.masked_fill(self.stale, -torch.inf).max() * (1 - self.tie)
        left = (self.stale & (self.totals >= enough)).nonzero().flatten()
        left = left[self.totals[left].argsort(descending=True)]
        for candidates in left.split(NEXT_BATCH) if len(left) else ():
            if self.totals[candidates[0]] < enough:
                break
            self._refresh(candidates)
            enough = torch.maximum(enough, self.totals[candidates].max() * (1 - self.tie))

    def _refresh(self, candidates: Tensor) -> None:
        for rows in candidates.split(len(self.scratch)) if len(candidates) else ():
            scratch = self.scratch[: len(rows)]
            for column, (matrix, cover) in enumerate(zip(self.kernels, self.covered, strict=True)):
                torch.index_select(matrix, 0, rows, out=scratch)  # twice as fast as matrix[rows]
                self.bounds[rows, column] = scratch.sub_(cover).clamp_(min=0).sum(1)
        self.totals[candidates] = self.bounds[candidates].double() @ self.alphas
        self.stale[candidates] = False


def _covered(matrix: Tensor, start: Tensor) -> Tensor:
    """(n,) c: the best similarity of each point to one of `start`."""
    cover = matrix.new_zeros(len(matrix))
    for rows in start.split(64) if len(start) else ():
        cover = torch.maximum(cover, matrix[rows].amax(0))
    return cover


class Balls(Protocol):
    """(n, n) bool, row by row: who lies within the radius of whom."""

    def __getitem__(self, rows: int | Tensor) -> Tensor: ...


def hard_greedy(
    balls: Sequence[Balls],
    weights: Sequence[float],
    budget: int,
    start: Tensor,
    worth: Tensor,
    shared: bool,
    on_pick: OnPick | None = None,
) -> Picks:
    """Take the j whose balls hold the most that is still uncovered, Σ_m α_m |B_m(j) ∩ U_m|, until all is covered.

    balls: each symmetric. worth: (n,) of each point, on their device. One uncovered set U a view, or one `shared` by
    all (Alg. 2 as printed). What a ball still holds is kept up to date by taking off each point once, when it is
    covered: the whole search costs one pass over the balls. Stops early when nothing is left to cover.
    """
    device = worth.device
    total = float(worth.sum())
    alphas = torch.tensor(weights, dtype=torch.float64, device=device)
    uncovered = torch.stack([worth > 0] * len(balls)) & (alphas > 0)[:, None]
    if shared:
        uncovered = uncovered.any(0).expand(len(balls), -1).clone()
    held = torch.stack([_held(ball, worth, torch.ones_like(worth, dtype=torch.bool)) for ball in balls], 1)  # (n, M)
    allowed = torch.ones(len(worth), dtype=torch.bool, device=device)

    def cover(point: int) -> None:
        newly = torch.stack([ball[point] for ball in balls]) & (alphas > 0)[:, None]
        newly = (newly.any(0) if shared else newly) & uncovered
        for column, ball in enumerate(balls):
            held[:, column].sub_(_held(ball, worth, newly[column])).clamp_(min=0)  # what rounding leaves is nothing
        uncovered.logical_and_(~newly)
        allowed[point] = False

    before = 0.0
    for kept in start.tolist():  # one after the other: what a shared set counts depends on the order
        before += float(held[kept] @ alphas) / total
        cover(kept)
    indices: list[int] = []
    parts: list[Tensor] = []
    while len(indices) < budget and bool(uncovered.any()):
        pick = first_best((held @ alphas).masked_fill(~allowed, -torch.inf), TIES[torch.float64])
        indices.append(pick)
        parts.append(held[pick] * alphas / total)
        cover(pick)
        if on_pick is not None:
            on_pick(pick, float(parts[-1].sum()))
    return collect_picks(indices, parts, len(balls), before)


def _held(ball: Balls, worth: Tensor, points: Tensor) -> Tensor:
    """(n,) the worth of those of `points` (a mask) that lie in each ball."""
    sums, chosen = torch.zeros_like(worth), points.nonzero().flatten()
    for rows in chosen.split(min(256, max(16, HELD // len(worth)))) if len(chosen) else ():
        sums += worth[rows] @ ball[rows].double()
    return sums


def first_best(values: Tensor, tie: float) -> int:
    """The lowest index among the largest values: equal gains are summed in different orders and may round apart."""
    best = values.max()
    return int((values >= best * (1 - tie * best.sign())).int().argmax())


def collect_picks(
    indices: list[int], parts: list[Tensor], columns: int, before: float, *, falling: bool = True
) -> Picks:
    """falling: each pick was the best there was, so that a gain above the one before is a tie's rounding."""
    stacked = torch.stack(parts).cpu() if parts else torch.zeros(0, columns, dtype=torch.float64)
    gains = stacked.sum(1)
    if falling and len(gains):
        limit = gains.cummin(0).values
        stacked = torch.where(gains[:, None] > 0, stacked * (limit / gains)[:, None], stacked)
    return Picks(torch.tensor(indices, dtype=torch.int64), stacked, before)
