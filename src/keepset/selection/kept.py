"""Soft cover from similarities kept in sixteen bits: they bound all gains, and a few gains are computed exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from . import streaming
from .greedy import first_best
from .room import SHARE
from .streaming import ExactSearch, Kernel, Search, noise, row_sums

UNIT = 2**14  # of a similarity of 1: a power of two, so that nothing is rounded before the ceiling is taken
NOTHING = 2.0**-16  # units that are none, so that the tails of a kernel, over many points, do not add up
FIRST = 16  # candidates that are looked at first
PASS = 125  # all that is kept is read in the time in which one row of so many is computed,
POINT = 33  # and so many points are brought to account in that of one row
SOON = 16  # a part of what that costs is spent on candidates first: the best of them may settle it
TOO_MANY = 2  # times all candidates that are looked at: what is kept does not tell them apart
FEW = 10  # one column in so many, or fewer, are read for themselves
PIECE = 2**20  # values that are looked at together: 2 MB stay near a core


def kept_bytes(count: int, kernels: int = 1) -> int:
    """What the similarities between so many points take: the blocks on and above the diagonal."""
    size = streaming.COLUMNS
    whole, rest = divmod(count, size)
    return kernels * (count**2 + whole * size**2 + rest**2)  # two bytes each


def keeps(count: int, kernels: int, beside: int, memory: str | int, free: int) -> bool:
    """Whether that is within the limit, and can be had together with the bytes that are needed beside it."""
    needed = kept_bytes(count, kernels)
    return needed <= (SHARE * free if isinstance(memory, str) else memory) and needed + beside <= free


class KeptKernel:
    """The similarities between all points in units, rounded up: bounds from above, which add up exactly.

    strips: a strip holds some rows, from the diagonal on; what lies below it is in the strips before.
    """

    def __init__(self, kernel: Kernel) -> None:
        count = len(kernel)
        self.worth = None if kernel.worth is None else kernel.worth.double()
        self.sums = torch.zeros(count, dtype=torch.float64)  # (n,) of all rows, each value times its column's worth
        self.strips: list[tuple[slice, Tensor]] = []
        room = torch.from_numpy(np.empty(kept_bytes(count) // 2, np.int16))  # numpy asks for huge pages
        for here, there, block in kernel.triangle():
            if there.start == here.start:
                size = len(block) * (count - here.start)
                self.strips.append((here, room[:size].view(len(block), -1)))
                room = room[size:]
            tile = self.strips[-1][1][:, there.start - here.start : there.stop - here.start]
            tile.copy_(block.mul_(UNIT).sub_(NOTHING).ceil_())
            self.sums[here] += self._sum(tile, 1, there)
            if there.start > here.start:
                self.sums[there] += self._sum(tile, 0, here)
        worth = count if self.worth is None else float(self.worth.sum())
        self.sums *= 1 + 4 * count * torch.finfo(torch.float64).eps  # where a worth is no whole number sums are rounded
        self.sums += 2 * NOTHING * worth  # at most so much was left out, and lost by rounding beside it

    def excess(self, points: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """(n,) float64: Σ over `points`, in order, of their worth times what lies of a row between `low` and `high`."""
        sums = torch.zeros_like(self.sums)
        for here, strip in self.strips:
            begin, end = torch.searchsorted(points, torch.tensor([here.start, here.stop])).tolist()
            sums[here] += self._of_columns(strip, here.start, points[begin:], low, high)
            sums[here.stop :] += self._of_rows(strip[:, len(strip) :], here.start, points[begin:end], low, high)
        return sums

    def _of_rows(self, strip: Tensor, start: int, points: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """(c,) for the columns of a strip, over some of its rows, the first of which is `start`."""
        sums = torch.zeros(strip.shape[1], dtype=torch.float64)
        if not len(points):
            return sums
        least, most, size = low[points, None], high[points, None], max(1, PIECE // len(points))
        for piece, out in zip(strip.split(size, 1), sums.split(size), strict=True):
            some = piece.index_select(0, points - start)
            out += self._sum(torch.maximum(torch.minimum(some, most, out=some), least, out=some), 0, points)
        return sums - self._sum(least, 0, points)

    def _of_columns(self, strip: Tensor, start: int, points: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """(r,) for the rows of a strip, over some of its columns, the first of which is `start`."""
        sums = torch.zeros(len(strip), dtype=torch.float64)
        if len(points) * FEW <= strip.shape[1]:
            for part in points.split(PIECE // len(strip)):
                least, most = low[part], high[part]
                some = torch.clamp(strip[:, part - start], least, most)
                sums += self._sum(some, 1, part) - self._sum(least[None], 1, part)
            return sums
        for first in range(0, strip.shape[1], streaming.COLUMNS):
            piece = strip[:, first : first + streaming.COLUMNS]
            columns = slice(start + first, start + first + piece.shape[1])
            least, most = low[columns], high[columns]
            sums += self._sum(torch.clamp(piece, least, most), 1, columns) - self._sum(least[None], 1, columns)
        return sums

    def _sum(self, piece: Tensor, dim: int, points: Tensor | slice) -> Tensor:
        """float64: the values of some points, which lie along `dim`, times their worth."""
        if self.worth is None:
            return piece.sum(dim, dtype=torch.int32).double()
        return (piece.T if dim == 0 else piece).double() @ self.worth[points]


class KeptSearch(Search):
    """Bounds from kept similarities, and exact gains from computed ones.

    The bound of a candidate is its gain were all similarities rounded up and the cover down. The most promising are
    looked at exactly; points whose cover has grown are brought to account for all candidates once that is cheaper than
    to look at those that are still in question. A gain that no such point has to do with is as it was.
    """

    def __init__(self, kernels: Sequence[Kernel], start: Tensor) -> None:
        super().__init__(kernels, start)
        self.computed = kernels
        self.kept = [KeptKernel(kernel) for kernel in kernels]
        count = len(self.allowed)
        self.bounds = torch.stack([kernel.sums for kernel in self.kept]).sum(0)  # (n,) in units
        self.accounted = [torch.zeros_like(cover) for cover in self.covered]  # the cover that bounds are gains to
        self.current = False  # whether it is the cover there is
        self.known = self.bounds.new_full((count, len(kernels)), torch.inf)  # gains when they were last computed
        self.same = torch.zeros(count, dtype=torch.bool)  # whether they are the same but for a drift
        self.drift = 0.0  # what a gain may have lost, over all picks, that kept similarities cannot tell
        self.drifted = torch.zeros_like(self.bounds)  # (n,) the drift when gains were last computed
        self.noise = noise(kernels[0])
        self.spent = 0  # candidates looked at since points were last brought to account
        self.looked = 0  # candidates looked at beside the first of each pick
        self.instead: ExactSearch | None = None
        self.held = start[:0]  # a few candidates, and their similarities: the pick is often among them
        self.rows = kernels[0].like.new_empty(len(kernels), FIRST, count)

    def take(self, pick: int) -> None:
        if self.instead is not None:
            self.instead.take(pick)
            return
        self.current = False
        place = (self.held == pick).nonzero().flatten()
        if not len(place):
            super().take(pick)
            return
        self.allowed[pick] = False
        for column, rows in enumerate(self.rows):
            self.covered[column] = torch.maximum(self.covered[column], rows[place[0]])

    def best(self) -> tuple[int, Tensor]:
        """The candidate with the largest gain, the lowest index among equals, and its gain in each kernel."""
        if self.instead is None and self.looked > TOO_MANY * len(self.bounds):
            self.instead = self._other()
        if self.instead is not None:
            return self.instead.best()
        exact = self._settled()  # (n, kernels)
        batch = FIRST
        while True:
            totals, enough = self.totals(), float(exact.sum(1).max())
            enough -= self.tie * abs(enough)
            left = ((totals >= enough) & self.allowed & (exact[:, 0] == -torch.inf)).nonzero().flatten()
            if not len(left):
                pick = first_best(exact.sum(1), self.tie)
                return pick, exact[pick]
            if batch > FIRST and self._account(len(left)):
                exact = torch.maximum(exact, self._settled())
                batch = FIRST
                continue
            some = left[totals[left].topk(min(batch, len(left))).indices]
            exact[some] = self._verify(some)
            self.looked += len(some) if batch > FIRST else 0
            batch = min(2 * batch, streaming.ROWS)

    def totals(self) -> Tensor:
        """(n,) float64: no candidate gains more; −∞ once taken."""
        return torch.minimum(self.bounds / UNIT, self.known.sum(1)).masked_fill_(~self.allowed, -torch.inf)

    def _other(self) -> ExactSearch:
        """A search that goes on from here without what is kept, and frees it."""
        self.kept, self.rows = [], self.rows.new_empty(0)
        search = ExactSearch(self.kernels, self.held[:0])
        search.allowed, search.covered = self.allowed, self.covered
        return search

    def _settled(self) -> Tensor:
        """(n, kernels) the gains that are known; else −∞."""
        gains = self.known.sum(1)
        settled = gains <= 0  # what gains nothing will not gain any more
        if self.current:
            settled |= self.same & (self.drift - self.drifted <= self.tie / 8 * gains)
        return self.known.masked_fill(~(settled & self.allowed)[:, None], -torch.inf)

    def _account(self, left: int) -> bool:
        """Bring all points to account whose cover has grown, unless so many candidates are cheaper to look at."""
        steps = [
            ((low * UNIT).floor().to(torch.int16), (high * UNIT).floor().to(torch.int16))
            for low, high in zip(self.accounted, self.covered, strict=True)
        ]
        pending = [(high > low).nonzero().flatten() for low, high in steps]
        cost = sum(map(len, pending)) / POINT + len(self.bounds) * len(pending) / PASS
        if self.current or self.spent + left < cost or self.spent * SOON < cost:
            return False
        for column, (kernel, points) in enumerate(zip(self.kept, pending, strict=True)):
            grown = self.covered[column] - self.accounted[column]
            grown[points] = 2 * NOTHING / UNIT
            self.drift += float(row_sums(grown[None], kernel.worth))
            owed = kernel.excess(points, *steps[column])
            self.bounds -= owed
            self.same &= owed == 0
        self.accounted = list(self.covered)
        self.current = True
        self.spent = 0
        return True

    def _verify(self, candidates: Tensor) -> Tensor:
        """(c, kernels) float64: their gains, exactly."""
        out: Sequence[Tensor | None] = [None] * len(self.kernels)
        if len(candidates) <= FIRST:
            self.held, out = candidates, self.rows[:, : len(candidates)].unbind()
        kernels = zip(self.computed, self.covered, out, strict=True)
        gains = torch.stack([kernel.gains(candidates, cover, rows) for kernel, cover, rows in kernels], 1)
        gains.masked_fill_(gains < self.noise, 0)
        self.known[candidates] = gains
        self.same[candidates] = True
        self.drifted[candidates] = self.drift
        self.spent += len(candidates)
        return gains
