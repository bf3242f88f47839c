"""What is read off the distances of one view: medians, neighbours, and from them the weight."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .geometry import TILE_ROWS, Cloud, distance_rows, distance_tiles, pairwise


def median(values: Tensor) -> float:
    """The median of a vector, the mean of the middle two for an even count (torch.median takes the lower)."""
    low, high = _ranked(values.flatten(), (values.numel() - 1) // 2, values.numel() // 2)
    return low if low == high else (low + high) / 2  # equal infinities stay infinite


def _ranked(values: Tensor, low: int, high: int) -> tuple[float, float]:
    """The values of ranks `low` and `high` = `low` or `low` + 1, counted from 0, in sorted order."""
    if values.device.type != "cpu":
        ordered = values.sort().values
        return float(ordered[low]), float(ordered[high])
    part = np.partition(
        values.numpy(), high
    )  # three times as fast for one rank as for two, ten times as fast as a sort
    return float(part[high] if low == high else part[:high].max()), float(part[high])


SMALL = 2**20  # distances that are gathered and ranked at once, without looking for a bracket
MANY = 2**30  # distances of which even those inside a first bracket are too many to gather
BINS = 2**16


def middle_distances(points: Cloud, matrix: Tensor | None = None) -> tuple[float, float]:
    """The middle two of the n(n−1)/2 distances D (equal for an odd number of pairs), exactly.

    With many pairs the middle is bracketed from a sample of points first, so that only the few distances inside the
    bracket are gathered; `matrix`, if all distances are there already, saves computing them twice.
    """
    count = len(points)
    pairs = count * (count - 1) // 2
    ranks = (pairs - 1) // 2, pairs // 2
    if pairs <= SMALL:
        matrix = pairwise(points) if matrix is None else matrix
        return _ranked(matrix.flatten().index_select(0, _upper(count).to(matrix.device)), *ranks)
    low, high = _bracket(points)
    if pairs > MANY:
        low, high = _narrowed(points, low, high, ranks)
    while True:
        below, inside = 0, []
        for chunk in _pair_chunks(points, matrix):
            below += int(torch.count_nonzero(chunk < low))
            inside.append(chunk[(chunk >= low) & (chunk <= high)])
        gathered = sum(map(len, inside))
        if below <= ranks[0] and ranks[1] < below + gathered:
            return _ranked(torch.cat(inside), ranks[0] - below, ranks[1] - below)
        if ranks[0] < below:
            low -= max(high - low, 1e-3)
        else:
            high += max(high - low, 1e-3)


@functools.lru_cache(4)
def _upper(count: int) -> Tensor:
    """Where the upper triangle of a (count, count) matrix lies in its flat memory; classes are often of one size."""
    upper = torch.triu_indices(count, count, 1)
    return upper[0] * count + upper[1]


def _pair_chunks(points: Cloud, matrix: Tensor | None) -> Iterator[Tensor]:
    """Every distance of the upper triangle once, in vectors that last until the next one."""
    tiles: Iterable[tuple[slice, slice, Tensor]] = distance_tiles(points) if matrix is None else _matrix_tiles(matrix)
    for rows, columns, tile in tiles:
        if columns.start > rows.start:
            yield tile.flatten()
            continue
        height = rows.stop - rows.start
        yield tile[:, :height].flatten()[_upper(height).to(tile.device)]
        yield tile[:, height:].flatten()


def _matrix_tiles(matrix: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    for top in range(0, len(matrix), TILE_ROWS):
        rows = slice(top, min(top + TILE_ROWS, len(matrix)))
        yield rows, slice(top, len(matrix)), matrix[rows, top:]


def _bracket(points: Cloud, sampled: int = 1024, margin: float = 0.06) -> tuple[float, float]:
    """Quantiles ½ ± margin of the distances among evenly spaced points; the middle of all lies between, most likely."""
    chosen = torch.linspace(0, len(points) - 1, sampled).long().to(points.centred.device)
    sample = distance_rows(points, chosen, chosen).flatten()
    ranks = (int(sampled + (len(sample) - sampled) * quantile) for quantile in (0.5 - margin, 0.5 + margin))
    low, high = (_ranked(sample, rank, rank)[0] for rank in ranks)  # the diagonal's zeros come first
    return low, high


def _narrowed(points: Cloud, low: float, high: float, ranks: tuple[int, int]) -> tuple[float, float]:
    """A narrower bracket, by counting what lies in each of many bins; as it was, where the middle lies outside."""
    below, step = 0, (high - low) / BINS
    if step == 0:
        return low, high
    counts = torch.zeros(BINS, dtype=torch.int64, device=points.centred.device)
    for chunk in _pair_chunks(points, None):
        below += int(torch.count_nonzero(chunk < low))
        inside = chunk[(chunk >= low) & (chunk <= high)]
        bins = inside.sub_(low).div_(step).long().clamp_(0, BINS - 1)
        counts += torch.bincount(bins, minlength=BINS)
    sums = (below + counts.cumsum(0)).cpu()
    first, last = (int(torch.searchsorted(sums, rank, right=True)) for rank in ranks)
    if ranks[0] < below or last >= BINS:
        return low, high
    return low + (first - 1) * step, low + (last + 2) * step  # a bin more on either side: the edges round


# ---------------------------------------------------------------- neighbours


@dataclass(frozen=True)
class Nearness:
    """What the k nearest of each point tell, each (n,), in Euclidean distance or, for `knn`, in the kernel's metric."""

    k: int
    mean: Tensor
    """ρ_k: mean distance to the k nearest."""
    nearest: Tensor
    """ρ_1: distance to the nearest."""


@dataclass(frozen=True)
class Neighbours(Nearness):
    """The same, and what needs their order."""

    median: Tensor
    """r: median of the distances to the k nearest."""


def neighbours(distances: Tensor | Iterable[Tensor], k: int, measure: Callable[[Tensor], Tensor]) -> Neighbours:
    """What the k nearest of each point tell; `measure` turns D into the wanted distance. A point is not its own.

    distances: D, (n, n), or blocks of some of its rows.
    """
    means, nearest, medians = [], [], []
    for rows in distances.split(TILE_ROWS) if isinstance(distances, Tensor) else distances:
        if k == 0:  # a lone point
            return Neighbours(0, *[rows.new_zeros(1)] * 3)
        near = measure(_smallest(rows, k + 1)[:, 1:])  # the first is the point itself, or a copy of it, also at 0
        means.append(near.mean(1))
        nearest.append(near[:, 0])
        medians.append((near[:, (k - 1) // 2] + near[:, k // 2]) / 2)
    return Neighbours(k, torch.cat(means), torch.cat(nearest), torch.cat(medians))


def nearness(distances: Iterable[Tensor], k: int, measure: Callable[[Tensor], Tensor]) -> Nearness:
    """What `neighbours` tells but the medians, without bringing the nearest of each point into order; k ≥ 1."""
    means, nearest = [], []
    for rows in distances:
        near = measure(rows.topk(k + 1, largest=False, sorted=False).values)  # one is the point itself, at 0
        means.append(near.sum(1) / k)
        nearest.append(near.topk(2, largest=False).values[:, 1])
    return Nearness(k, torch.cat(means), torch.cat(nearest))


def _smallest(rows: Tensor, count: int) -> Tensor:
    """(r, count) the smallest of each row, ascending."""
    if rows.device.type == "cpu" and rows.shape[1] < 1000:  # half the time of topk at 500 columns
        return torch.from_numpy(np.sort(np.partition(rows.numpy(), count - 1, axis=1)[:, :count], axis=1))
    return rows.topk(count, largest=False).values


def euclidean(distances: Tensor) -> Tensor:
    """d = √(2D)"""
    return (2 * distances).sqrt()


def weight(rule: str, near: Nearness) -> float | None:
    """A view's weight (α) before it is divided by the sum of all; None where half of the points or more are copies.

    With f_k = k / ρ_k: printed is median f_k / median f_1 (Eq. 5), density is median f_k (Eq. 4); inverse is
    median ρ_k / median ρ_1, what the prose around Eq. 5 argues for.
    """
    if rule == "equal":
        return 1.0
    divisor = near.mean if rule == "density" else near.nearest
    if 2 * int(torch.count_nonzero(divisor == 0)) >= len(divisor):
        return None
    if rule == "inverse":
        return median(near.mean) / median(near.nearest)
    density = median(near.k / near.mean)
    return density if rule == "density" else density / median(1 / near.nearest)


def neighbour_count(count: int, budget: int) -> int:
    """k = n / b, rounded half to even, in 1..n−1."""
    return min(max(round(count / budget), 1), count - 1)
