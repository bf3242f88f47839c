"""The scales of a view without its matrix of distances: exactly, block by block, or from a sample of its points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import torch
from torch import Tensor

from .geometry import TILE_ROWS, Cloud, distances
from .kernels import median_bandwidth, neighbour_bandwidth
from .scales import Neighbours, euclidean, median, neighbours, weight

EXACT = 20_000  # points up to which a CPU measures all pairs; a GPU always does
SAMPLED = 4096  # points of a sample
SPLIT = 8  # parts of a sample, which tell how far to trust the whole


class Scales:
    """Weight, bandwidth and radius of one view, from all of its points or from a sample; `notes` tells which."""

    def __init__(self, points: Cloud, k: int) -> None:
        self.points, self.k = points, k
        self.notes: list[str] = []
        self.sample: Tensor | None = None
        if len(points) > EXACT and points.centred.device.type == "cpu":
            drawn = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
            self.sample = drawn[:SAMPLED]

    def weight(self, rule: str) -> float | None:
        """Before it is divided by the sum of all; None where half of the points or more are copies."""
        return self._measured("weight", lambda rows: weight(rule, self._near(rows)))

    def bandwidth(self, rule: str, metric: str) -> float:
        def measure(rows: Tensor | None) -> float:
            if rule == "knn":
                return neighbour_bandwidth(self._nearest(rows), self.k, metric)
            return median_bandwidth(self.points if rows is None else self.points.part(rows), metric)

        return self._measured("bandwidth", measure) or 0.0

    def radius(self) -> float:
        return self._measured("radius", lambda rows: median(self._near(rows).median)) or 0.0

    def _near(self, rows: Tensor | None) -> Neighbours:
        return neighbours(self._nearest(rows), self.k, euclidean)

    def _measured(self, what: str, measure: Callable[[Tensor | None], float | None]) -> float | None:
        """With a note of how far a sample is to be trusted: the standard error from parts of it."""
        found = measure(self.sample)
        if self.sample is not None and found:
            parts = [measure(part) or 0.0 for part in self.sample.chunk(SPLIT)]
            error = float(torch.tensor(parts, dtype=torch.float64).std()) / math.sqrt(SPLIT) / found
            of = f"from a sample of {SAMPLED:,} of {len(self.points):,} points"
            self.notes.append(f"{what} {of}, standard error {error:.1%}")
        return found

    def _nearest(self, rows: Tensor | None) -> Iterator[Tensor]:
        """D from these points, or all, to the nearest at least, in blocks."""
        if rows is not None and self.points.centred.dtype == torch.float32 and find_spec("faiss") is not None:
            return nearest_by_faiss(self.points, rows, self.k + 1)
        return self._rows(rows)

    def _rows(self, rows: Tensor | None) -> Iterator[Tensor]:
        """D from these points, or all, to all, in blocks; exactly zero to themselves."""
        everyone = exact_copies(self.points)
        for first in range(0, len(self.points) if rows is None else len(rows), TILE_ROWS):
            here: slice | Tensor = slice(first, first + TILE_ROWS)
            yield distances(everyone.part(here if rows is None else rows[here]), everyone)


def nearest_by_faiss(points: Cloud, rows: Tensor, count: int) -> Iterator[Tensor]:
    """D from these points to so many nearest, in blocks: faiss looks for them while it multiplies, in a third less time
    than the distances to all take."""
    import faiss

    everyone = points.centred.numpy()
    for some in rows.split(8 * TILE_ROWS):
        squares, found = map(torch.from_numpy, faiss.knn(points.centred[some].numpy(), everyone, count))
        halves = squares.div_(2).clamp_(min=0)  # d² = 2D
        yield halves.masked_fill_(points.copies[found] == points.copies[some, None], 0)


def exact_copies(points: Cloud) -> Cloud:
    """The same points, a point being a copy of itself: distances to it are exactly zero, as in a matrix."""
    return Cloud(points.centred, points.half_norms, points.copies, has_copies=True)
