"""The scales of a view from the tensor cores: the middle of all distances by counting, the neighbours of all points."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .kernels import between, neighbour_bandwidth
from .scales import euclidean, median, nearness, neighbours, weight
from .tensor_cores import COLUMNS, DISTANCES, TILE, Split, spans, tiles

BINS = 2**20
HIGHEST = 0x40800000  # the bits of 4: no distance D is larger than 2, and a bit of rounding
PAIRED = 2**15  # points whose distances to each other tell where the middle of all lies, nearly
COMPARED = 2**14  # points whose distances to a point tell how far its neighbours reach, nearly
WRITTEN = 2**29  # distances that are written out at a time: 2 GB
TOGETHER = 4096  # distances of a row that are looked at together
DEVIATIONS = 5  # by how many standard deviations a bracket is wider than is expected to be needed


class TensorCoreScales:
    """Weight, bandwidth and radius of one view, from all of its points."""

    def __init__(self, split: Split, view: int, k: int) -> None:
        self.split, self.view, self.k = split, view, k
        self.notes: list[str] = []

    def weight(self, rule: str) -> float | None:
        """Before it is divided by the sum of all; None where half of the points or more are copies."""
        return weight(rule, nearness(self._near(), self.k, euclidean))

    def bandwidth(self, rule: str, metric: str) -> float:
        if rule == "knn":
            return neighbour_bandwidth(self._near(), self.k, metric)
        return between(*middle_distances(self.split, self.view), metric) if len(self.split) > 1 else 0.0

    def radius(self) -> float:
        return median(neighbours(self._near(), self.k, euclidean).median)

    def _near(self) -> Iterator[Tensor]:
        return near_distances(self.split, self.view, self.k)


# ---------------------------------------------------------------- neighbours


def near_distances(split: Split, view: int, k: int) -> Iterator[Tensor]:
    """Of all points, in blocks of some, D to the k nearest and itself at least, in any order; the rest is infinite.

    How far that is, nearly, is told by a sample of the others. The few points where it is too near, or so far that the
    room does not suffice, come last, with their distances to all.
    """
    count = len(split)
    expected = (k + 1) * COMPARED / count
    rank = math.ceil(expected + DEVIATIONS * math.sqrt(expected) + 3)
    room = math.ceil(rank * count / COMPARED * (1 + DEVIATIONS / math.sqrt(rank)))
    missed = [split.everyone]
    if count > COMPARED and 2 * room <= count and rank < COMPARED:
        drawn = torch.randperm(count, generator=torch.Generator().manual_seed(0))[:COMPARED]
        sample, missed = drawn.sort().values.to(split.halves.device), []
        for rows in split.everyone.split(_height(count)):
            reach = split.distances(view, rows, sample).topk(rank, largest=False, sorted=False).values.amax(1)
            found, block = _within(split.distances(view, rows), reach, room)
            whole = (found > k) & (found <= room)
            if bool(whole.all()):
                yield block
            else:
                missed.append(rows[~whole])
                if bool(whole.any()):
                    yield block[whole]
    for rows in torch.cat(missed).split(_height(count)) if missed else ():
        yield split.distances(view, rows)


def _height(width: int) -> int:
    """The rows of a block."""
    return max(1, WRITTEN // width // TILE) * TILE


def _within(distances: Tensor, reach: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """(r,) how many distances of each row are within reach, and (r, room) these."""
    height, width = distances.shape
    block = distances.new_full((height, room), torch.inf)
    found = torch.zeros(height, dtype=torch.int32, device=distances.device)
    grid = (height, -(-width // TOGETHER))
    with torch.cuda.device_of(distances):
        tiles().near_row[grid](distances, width, reach, found, room, block, WIDTH=TOGETHER, num_warps=8)
    return found, block


# ---------------------------------------------------------------- the middle


@dataclass(frozen=True)
class Counted:
    """How many pairs have a D whose bits, as a whole number, lie in each bin; the bits grow with D."""

    low: int
    shift: int
    """A bin holds 2^shift numbers, the first from `low` on."""
    below: int
    sums: Tensor
    """(bins,) pairs below the end of each bin."""

    def bin(self, rank: int) -> int | None:
        """That holds the pair of a rank, counted from 0; None for those outside."""
        if rank < self.below or rank >= int(self.sums[-1]):
            return None
        return int(torch.searchsorted(self.sums, rank, right=True))

    def bracket(self, rank: int) -> tuple[int, int]:
        """The bits from and below which the pair of a rank lies."""
        place = self.bin(rank)
        if place is not None:
            return self.low + (place << self.shift), self.low + (place + 1 << self.shift)
        return (0, self.low) if rank < self.below else (self.low + (len(self.sums) << self.shift), HIGHEST)


@dataclass(frozen=True)
class Pairs:
    """All pairs of some points of a view."""

    split: Split
    view: int
    points: Tensor
    """(m,) int32, ascending."""
    tie: int | None = None
    """Bits of a D that many pairs have: these are counted together, elsewhere threads would wait for each other."""

    def __len__(self) -> int:
        return len(self.points) * (len(self.points) - 1) // 2

    def counted(self, low: int, high: int) -> Counted:
        """The pairs from `low` on and below `high`, in as many bins as there may be."""
        shift = max(0, math.ceil(math.log2((high - low) / BINS)))
        device = self.points.device
        counts = torch.zeros(-(-(high - low) >> shift), dtype=torch.int64, device=device)
        below, tied = torch.zeros(2, 1, dtype=torch.int64, device=device)
        constants: dict[str, Any] = {"TIES": self.tie is not None, "COPIES": self.split.has_copies}
        for there in spans(len(self.points), COLUMNS * TILE):
            wide = there.stop - there.start
            given = (self.points, there.start, wide, low, high - low, shift, self.tie or 0, counts, below, tied)
            chosen = self.split.views[self.view]
            self.split.launch("count_tile", DISTANCES, chosen, there.stop, wide, *given, **constants)
        if self.tie is not None and low <= self.tie < high:
            counts[self.tie - low >> shift] += tied[0]
        return Counted(low, shift, int(below), (below + counts.cumsum(0)).cpu())

    def ranked(self, rank: int, known: Counted) -> tuple[int, Counted]:
        """The bits of the pair of a rank, and the counts that told it."""
        while known.bin(rank) is None or known.shift:
            known = self.counted(*known.bracket(rank))
        return known.bracket(rank)[0], known

    def most_frequent(self, rank: int, known: Counted) -> int | None:
        """The bits of the pair of a rank, if a hundredth of all pairs have them."""
        bits, known = self.ranked(rank, known)
        place = bits - known.low
        pairs = int(known.sums[place]) - (int(known.sums[place - 1]) if place else known.below)
        return bits if pairs > len(self) // 100 else None


def middle_distances(split: Split, view: int) -> tuple[float, float]:
    """The middle two of the n(n−1)/2 distances D (equal for an odd number of pairs), exactly.

    Counts among a sample tell between which two numbers the middle lies, most likely: so near to each other that each
    number between them has a bin of its own, and all distances are computed once.
    """
    count = len(split)
    sampled = min(count, PAIRED)
    chosen = torch.linspace(0, count - 1, sampled, dtype=torch.float64).int().to(split.halves.device)
    pairs = Pairs(split, view, chosen)
    known = pairs.counted(0, HIGHEST)
    if sampled < count:
        half, margin = len(pairs) // 2, int(2 * len(pairs) / math.sqrt(sampled))
        tie = pairs.most_frequent(half, known)
        low, high = known.bracket(half - margin)[0], known.bracket(half + margin)[1]
        pairs = Pairs(split, view, split.everyone, tie)
        known = pairs.counted(low, high)
    lower, known = pairs.ranked((len(pairs) - 1) // 2, known)
    upper, _ = pairs.ranked(len(pairs) // 2, known)
    return _number(lower), _number(upper)


def _number(bits: int) -> float:
    return float(struct.unpack("f", struct.pack("i", bits))[0])
