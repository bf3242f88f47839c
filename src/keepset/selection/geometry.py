"""Distances between the points of one view, and the scales read off them: bandwidth, radius, weight.

Everything starts from the cosine distance D = 1 − cos of unit vectors; the Euclidean distance is d = √(2D).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Tiles of 512 × 1024 floats (2 MB) stay in the cache; a fifth faster than whole rows at n = 20,000.
TILE_ROWS, TILE_COLUMNS = 512, 1024


@dataclass(frozen=True)
class Cloud:
    """The points of one view, ready for distances.

    Unit vectors are centred before they are multiplied: D = ½|x|² + ½|y|² − x·y is the same for all shifts, and
    around the centre of a class it keeps its digits where 1 − cos would lose them (a collapsed class in float32).
    """

    centred: Tensor
    """(n, d) unit vectors minus their mean."""
    half_norms: Tensor
    """(n,) ½|x|² of the centred vectors."""
    copies: Tensor
    """(n,) equal numbers mark identical points."""
    has_copies: bool

    def __len__(self) -> int:
        return len(self.centred)


def largest_entries(view: Tensor) -> Tensor:
    """(n,) the largest |entry| of each row; NaN and infinity come through."""
    return torch.maximum(view.amax(1), -view.amin(1))  # fifteen times as fast as the infinity norm


def unit(view: Tensor) -> Tensor:
    """(n, d) divided by their norms, through the largest entry first, so that squares cannot overflow."""
    vectors = view / largest_entries(view)[:, None]
    return vectors.div_(torch.linalg.vector_norm(vectors, dim=1, keepdim=True))


def cloud(view: Tensor) -> Cloud:
    vectors = unit(view)
    copies, has_copies = _copies(vectors)
    vectors.sub_(vectors.mean(0))
    half_norms = torch.linalg.vector_norm(vectors, dim=1).square_().div_(2)
    return Cloud(vectors, half_norms, copies, has_copies)


def _copies(vectors: Tensor) -> tuple[Tensor, bool]:
    """(n,) numbers that only identical rows share, and whether any do.

    Identical rows have identical sums. Rows that share theirs are told apart by a 64-bit hash, whose integer sums do
    not depend on their order.
    """
    _, groups, sizes = vectors.sum(1).unique(return_inverse=True, return_counts=True)
    suspects = (sizes[groups] > 1).nonzero().flatten()
    if not len(suspects):
        return groups, False
    generator = torch.Generator().manual_seed(1)
    width = vectors[:1].view(torch.int32).shape[1]
    factors = torch.randint(-(2**62), 2**62, (2, width), generator=generator).to(vectors.device)
    hashes = torch.cat([_hash(vectors[chunk], factors) for chunk in suspects.split(TILE_ROWS)])
    _, found = hashes.unique(return_inverse=True)
    groups[suspects] = len(vectors) + found
    return groups, int(found.max()) + 1 < len(suspects)


def _hash(rows: Tensor, factors: Tensor) -> Tensor:
    """(r,) sums of mixed bits: without the mixing, signs that flip in pairs would cancel."""
    mixed = rows.add(0.0).view(torch.int32) * factors[0]  # + 0: minus zero is zero
    return ((mixed ^ (mixed >> 29)) * factors[1]).sum(1)


def distance_rows(
    points: Cloud, rows: Tensor | slice, columns: Tensor | slice = slice(None), out: Tensor | None = None
) -> Tensor:
    """D from the points `rows` to the points `columns`, exactly zero between copies."""
    tile = torch.add(points.half_norms[rows][:, None], points.half_norms[columns], out=out)
    tile.addmm_(points.centred[rows], points.centred[columns].T, alpha=-1).clamp_(min=0)
    if points.has_copies:
        tile.masked_fill_(points.copies[rows][:, None] == points.copies[columns], 0)
    return tile


def distance_tiles(points: Cloud, out: Tensor | None = None) -> Iterator[tuple[slice, slice, Tensor]]:
    """The upper triangle of D in tiles (rows, columns, D[rows, columns]); the first of a row holds the diagonal.

    With `out`, an (n, n) matrix, each tile is its part of that matrix; else all share one scratch tile.
    """
    count = len(points)
    scratch = points.centred.new_empty(0 if out is not None else min(TILE_ROWS, count) * min(TILE_COLUMNS, count))
    for top in range(0, count, TILE_ROWS):
        rows = slice(top, min(top + TILE_ROWS, count))
        height = rows.stop - top
        for left in range(top, count, TILE_COLUMNS):
            columns = slice(left, min(left + TILE_COLUMNS, count))
            size = height, columns.stop - left
            tile = scratch[: size[0] * size[1]].view(size) if out is None else out[rows, columns]
            distance_rows(points, rows, columns, out=tile)
            if left == top:  # a product need not be symmetric to the bit, a distance is
                square = tile[:, :height]
                square.triu_(1).add_(square.T.clone())
            yield rows, columns, tile


def pairwise(points: Cloud, finish: Callable[[Tensor], object] | None = None, out: Tensor | None = None) -> Tensor:
    """All distances D, (n, n), exactly symmetric, from half of the products.

    `finish` changes each tile in place while it is in the cache (a kernel, say).
    """
    matrix = _empty_square(points) if out is None else out
    for rows, columns, tile in distance_tiles(points, out=matrix):
        if finish is not None:
            finish(tile)
        _mirror(matrix, rows, columns)
    return matrix


def _empty_square(points: Cloud) -> Tensor:
    """(n, n), not yet filled. numpy asks for huge pages, torch does not: 0.2 s of page faults less at n = 20,000."""
    count = len(points)
    if points.centred.device.type != "cpu":
        return points.centred.new_empty(count, count)
    return torch.from_numpy(
        np.empty((count, count), np.float64 if points.centred.dtype == torch.float64 else np.float32)
    )


def add_pairwise(matrix: Tensor, points: Cloud, finish: Callable[[Tensor], Tensor]) -> None:
    """matrix += finish(D), tile by tile, with no second matrix."""
    for rows, columns, tile in distance_tiles(points):
        matrix[rows, columns].add_(finish(tile))
        _mirror(matrix, rows, columns)


def change(matrix: Tensor, finish: Callable[[Tensor], object]) -> Tensor:
    """`finish` over all of a matrix, in place, a few rows at a time, so that they stay in the cache."""
    for rows in matrix.split(max(1, TILE_ROWS * TILE_COLUMNS // 2 // len(matrix))):
        finish(rows)
    return matrix


def _mirror(matrix: Tensor, rows: slice, columns: slice) -> None:
    """Copy a tile of the upper triangle below the diagonal."""
    beyond = slice(max(rows.stop, columns.start), columns.stop)
    matrix[beyond, rows] = matrix[rows, beyond].T


# ---------------------------------------------------------------- medians


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


# ---------------------------------------------------------------- neighbours


@dataclass(frozen=True)
class Neighbours:
    """What the k nearest of each point tell, each (n,), in Euclidean distance or, for `knn`, in the kernel's metric."""

    k: int
    mean: Tensor
    """ρ_k: mean distance to the k nearest."""
    nearest: Tensor
    """ρ_1: distance to the nearest."""
    median: Tensor
    """r: median of the distances to the k nearest."""


def neighbours(matrix: Tensor, k: int, measure: Callable[[Tensor], Tensor]) -> Neighbours:
    """`matrix`: (n, n) distances D; `measure` turns D into the wanted distance. The point itself is left out."""
    if k == 0:  # a lone point
        return Neighbours(0, *[matrix.new_zeros(len(matrix))] * 3)
    means, nearest, medians = [], [], []
    for rows in matrix.split(TILE_ROWS):
        near = measure(_smallest(rows, k + 1)[:, 1:])  # the first is the point itself, or a copy of it, also at 0
        means.append(near.mean(1))
        nearest.append(near[:, 0])
        medians.append((near[:, (k - 1) // 2] + near[:, k // 2]) / 2)
    return Neighbours(k, torch.cat(means), torch.cat(nearest), torch.cat(medians))


def _smallest(rows: Tensor, count: int) -> Tensor:
    """(r, count) the smallest of each row, ascending."""
    if rows.device.type == "cpu" and rows.shape[1] < 1000:  # half the time of topk at 500 columns
        return torch.from_numpy(np.sort(np.partition(rows.numpy(), count - 1, axis=1)[:, :count], axis=1))
    return rows.topk(count, largest=False).values


def euclidean(distances: Tensor) -> Tensor:
    """d = √(2D)"""
    return (2 * distances).sqrt()


def weight(rule: str, near: Neighbours) -> float | None:
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
