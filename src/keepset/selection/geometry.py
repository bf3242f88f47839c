"""The points of one view and the distances between them.

Everything starts from the cosine distance D = 1 − cos of unit vectors; the Euclidean distance is d = √(2D).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Tiles of 512 × 1024 floats (2 MB) stay in the cache; a fifth faster than whole rows at n = 20,000.
TILE_ROWS, TILE_COLUMNS = 512, 1024
LEAST_ROWS = 16


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

    def part(self, rows: Tensor | slice) -> Cloud:
        """Some of the points."""
        return Cloud(self.centred[rows], self.half_norms[rows], self.copies[rows], self.has_copies)


def largest_entries(view: Tensor) -> Tensor:
    """(n,) the largest |entry| of each row; NaN and infinity come through."""
    return torch.maximum(view.amax(1), -view.amin(1))  # fifteen times as fast as the infinity norm


def unit(view: Tensor, out: Tensor | None = None) -> Tensor:
    """(n, d) divided by their norms, through the largest entry first, so that squares cannot overflow."""
    vectors = torch.div(view.contiguous(), largest_entries(view)[:, None], out=out)
    return vectors.div_(torch.linalg.vector_norm(vectors, dim=1, keepdim=True))


def cloud(view: Tensor, out: Tensor | None = None) -> Cloud:
    """The points of a view, in the memory of `out`, if it is given."""
    vectors = unit(view, out)
    copies, has_copies = _copies(vectors)
    vectors.sub_(vectors.mean(0))
    half_norms = torch.linalg.vector_norm(vectors, dim=1).square_().div_(2)
    if float(half_norms.max()) <= 4 * torch.finfo(vectors.dtype).eps ** 2:  # one direction, but for rounding
        return Cloud(vectors.zero_(), half_norms.zero_(), torch.zeros_like(copies), has_copies=len(copies) > 1)
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


def distances(first: Cloud, second: Cloud, out: Tensor | None = None) -> Tensor:
    """D from the points of one part of a cloud to those of another, exactly zero between copies."""
    tile = torch.add(first.half_norms[:, None], second.half_norms, out=out)
    tile.addmm_(first.centred, second.centred.T, alpha=-1).clamp_(min=0)
    if first.has_copies:
        tile.masked_fill_(first.copies[:, None] == second.copies, 0)
    return tile


def steady_distances(first: Cloud, second: Cloud) -> Tensor:
    """The same, from few points as from many: a product of a few rows is computed, and rounds, in another way."""
    count = len(first)
    if not 0 < count < LEAST_ROWS:
        return distances(first, second)
    places = torch.arange(LEAST_ROWS, device=first.centred.device) % count
    return distances(first.part(places), second)[:count]


def distance_rows(
    points: Cloud, rows: Tensor | slice, columns: Tensor | slice = slice(None), out: Tensor | None = None
) -> Tensor:
    """D from the points `rows` to the points `columns`."""
    return distances(points.part(rows), points.part(columns), out)


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
