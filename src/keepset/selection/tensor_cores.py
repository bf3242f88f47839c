"""Soft cover on the tensor cores of a GPU: nothing of a block of kernel values goes through memory.

Tensor cores multiply float16 numbers. A centred vector is split into two of them, a large part and what that leaves,
which together have 22 bits: the products of large with large and large with small parts, added up in float32, are as
good as a product in float32, at three times the cost of one in float16, and a sixth of one in float32.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .geometry import cloud
from .kernels import Similarity

if TYPE_CHECKING:
    from .tensor_core_scales import TensorCoreScales

STEP = 64  # columns of both parts that are multiplied at a time: 128 bytes each
TILE = 128  # rows and columns of a tile
SCALE = 2.0**12  # of the vectors, so that their small parts are no subnormal numbers
PARTIAL = 2**25  # sums of tiles that are kept before they are added up: 128 MB
COLUMNS = 64  # tiles of columns at a time, where nothing is kept
GROUP = 16  # tiles of rows that go through the columns together
LEAST = 1e-18  # a bandwidth that only copies are within, whose square float32 can hold
INTERPRETED = False  # whether CPUs go this way too, in Triton's interpreter


@dataclass(frozen=True)
class Shape:
    """Of the tiles of one kind, and how they are computed."""

    columns: int = TILE
    warps: int = 8
    stages: int = 3
    apart: bool = True
    """Whether the small products have a sum of their own."""


SIMILARITIES, DISTANCES = Shape(apart=False), Shape()
LARGE = (9, 10)  # compute capabilities of GPUs (Hopper, Blackwell) whose multiprocessors have room for three stages


def tiles() -> Any:
    """The functions in Triton; they are loaded, and compiled, only when they are called for."""
    return importlib.import_module(".tiles", __package__)


def usable(views: Sequence[Tensor]) -> bool:
    """Whether views can be streamed this way: float32 on a large GPU, where Triton is installed."""
    if any(view.dtype != torch.float32 for view in views):
        return False
    if views[0].is_cuda:
        return torch.cuda.get_device_capability(views[0].device)[0] in LARGE and tiles().triton is not None
    return INTERPRETED


@dataclass(frozen=True)
class Split:
    """The points of all views side by side, ready for the tensor cores."""

    halves: Tensor
    """(n, 2 Σ d) float16; of each view, STEP columns at a time, the large parts and then the small ones."""
    half_norms: Tensor
    """(views, n) ½|x|² of the centred vectors."""
    copies: Tensor
    """(views, n) int32; equal numbers mark identical points."""
    has_copies: bool
    """Whether any view has some."""
    steps: Tensor
    """(views + 1,) int32: where each view begins, in steps, and the end of the last."""

    def __len__(self) -> int:
        return len(self.halves)

    @functools.cached_property
    def everyone(self) -> Tensor:
        """(n,) int32"""
        return torch.arange(len(self), dtype=torch.int32, device=self.halves.device)

    @functools.cached_property
    def views(self) -> Tensor:
        """(views, 4) int32 each number of a view, for itself; four, so that all lie on an even address."""
        return self.everyone.new_tensor([[view] * 4 for view in range(len(self.half_norms))])

    def scales(self, view: int, k: int) -> TensorCoreScales:
        from .tensor_core_scales import TensorCoreScales

        return TensorCoreScales(self, view, k)

    def kernel(self, views: Sequence[int], similarities: Sequence[Similarity], worth: Tensor | None) -> FusedKernel:
        return FusedKernel(self, list(views), list(similarities), worth)

    def distances(self, view: int, rows: Tensor, columns: Tensor | None = None) -> Tensor:
        """(r, c) D of one view between some points and others, or all."""
        columns = self.everyone if columns is None else columns.int()
        out = self.half_norms.new_empty(len(rows), len(columns))
        numbers = (rows.int(), len(rows), columns, len(columns), out)
        self.launch("distances_tile", DISTANCES, self.views[view], len(rows), len(columns), *numbers)
        return out

    def launch(
        self, name: str, shape: Shape, chosen: Tensor, rows: int, columns: int, *given: Any,
        numbers: Tensor | None = None, **constants: Any,
    ) -> None:  # fmt: skip
        """All tiles between so many rows and columns; `numbers`: of the similarities, where they are wanted."""
        grid = (-(-rows // TILE) * -(-columns // shape.columns),)
        table = () if numbers is None else (numbers,)
        points = (self.halves, self.half_norms, self.copies, self.steps, *table, chosen, len(self))
        constants |= {"M": TILE, "N": shape.columns, "STEP": STEP, "APART": shape.apart, "UNSCALE": SCALE**-2}
        with torch.cuda.device_of(self.halves):
            getattr(tiles(), name)[grid](
                *points, self.halves.shape[1], *given,
                GROUP=GROUP, num_warps=shape.warps, num_stages=shape.stages, **constants,
            )  # fmt: skip


def split(views: Sequence[Tensor]) -> Split:
    """Views on one device, of float32. One after the other is centred in float32; that is not kept."""
    steps = [0]
    for view in views:
        steps.append(steps[-1] - -view.shape[1] // STEP)
    count, like = len(views[0]), views[0]
    halves = like.new_zeros(count, 2 * STEP * steps[-1], dtype=torch.float16)
    norms, copies = like.new_empty(len(views), count), like.new_empty(len(views), count, dtype=torch.int32)
    has_copies = False
    for position, view in enumerate(views):
        points = cloud(view)
        has_copies |= points.has_copies
        norms[position], copies[position] = points.half_norms, points.copies
        columns = halves[:, 2 * STEP * steps[position] : 2 * STEP * steps[position + 1]]
        for here in spans(count, max(1, PARTIAL // view.shape[1])):
            _write(points.centred[here], columns[here])
    return Split(halves, norms, copies, has_copies, torch.tensor(steps, dtype=torch.int32).to(like.device))


def _write(centred: Tensor, columns: Tensor) -> None:
    parts = columns.unflatten(1, (-1, 2, STEP))
    padded = torch.nn.functional.pad(centred * SCALE, (0, columns.shape[1] // 2 - centred.shape[1]))
    padded = padded.unflatten(1, (-1, STEP))
    parts[:, :, 0] = padded
    parts[:, :, 1] = padded - parts[:, :, 0]


def spans(count: int, size: int) -> Iterator[slice]:
    """All of `count`, so many at a time."""
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


@dataclass(frozen=True)
class FusedKernel:
    """Σ_m α_m K_m of some views; row j is candidate j, column i a point to be covered."""

    split: Split
    views: list[int]
    similarities: list[Similarity]
    """α_m K_m of each of those views, all of one kind."""
    worth: Tensor | None
    """(n,) of each point; None for one each."""

    @property
    def like(self) -> Tensor:
        return self.split.half_norms[0]

    def row_sums(self) -> Tensor:
        """From the tiles on and above the diagonal: the kernel is symmetric."""
        sums = torch.zeros(len(self.split), dtype=torch.float64, device=self.like.device)
        for there in spans(len(sums), TILE * max(1, PARTIAL // len(sums))):
            wide = there.stop - there.start
            by_row = self.like.new_zeros(-(-wide // TILE), there.stop)
            by_column = self.like.new_zeros(-(-there.stop // TILE), wide)
            given = (there.start, wide, self._worth, by_row, by_column)
            self._launch("sums_tile", there.stop, wide, *given, square=True)
            sums[: there.stop] += by_row.sum(0, dtype=torch.float64)
            sums[there] += by_column.sum(0, dtype=torch.float64)
        return sums

    def highest(self, rows: Tensor) -> Tensor:
        found, count = torch.zeros_like(self.like), len(self.split)
        for here in spans(len(rows), TILE * max(1, PARTIAL // count)):
            some = rows[here].int()
            best = self.like.new_empty(-(-len(some) // TILE), count)
            self._launch("highest_tile", len(some), count, some, len(some), count, best)
            found = torch.maximum(found, best.amax(0))
        return found

    def excess(self, rows: Tensor | None, points: Tensor, low: Tensor, high: Tensor) -> Tensor:
        candidates = self.split.everyone if rows is None else rows.int()
        sums = torch.zeros(len(candidates), dtype=torch.float64, device=self.like.device)
        columns, base, most, worth = points.int(), low[points], (high - low)[points], self._worth[points]
        for there in spans(len(points), SIMILARITIES.columns * max(1, PARTIAL // max(len(candidates), 1))):
            wide = there.stop - there.start
            found = self.like.new_empty(-(-wide // SIMILARITIES.columns), len(sums))
            given = (candidates, len(sums), columns[there], wide, base[there], most[there], worth[there], found)
            self._launch("excess_tile", len(sums), wide, *given)
            sums += found.sum(0, dtype=torch.float64)
        return sums

    @functools.cached_property
    def _worth(self) -> Tensor:
        return torch.ones_like(self.like) if self.worth is None else self.worth

    @functools.cached_property
    def _chosen(self) -> Tensor:
        return torch.tensor(self.views, dtype=torch.int32).to(self.like.device)

    @functools.cached_property
    def _numbers(self) -> Tensor:
        """(views, 3) α, σ, and the factor of D², D or d in the power of two that the kernel is."""
        numbers = torch.zeros(len(self.split.half_norms), 3, dtype=torch.float64)
        for view, similar in zip(self.views, self.similarities, strict=True):
            inverse = 1 / max(similar.bandwidth, LEAST)
            power = {"rbf of D": inverse**2 / 2, "rbf of d": inverse**2}.get(similar.kind, inverse)
            factor = -power / math.log(2)
            numbers[view] = torch.tensor([similar.weight, similar.bandwidth, factor], dtype=torch.float64)
        return numbers.to(self.like)

    def _launch(self, name: str, rows: int, columns: int, *given: Any, square: bool = False) -> None:
        shape = replace(SIMILARITIES, columns=TILE) if square else SIMILARITIES
        copies = self.split.has_copies or any(similar.bandwidth == 0 for similar in self.similarities)
        constants = {"VIEWS": len(self.views), "KIND": self.similarities[0].kind, "COPIES": copies}
        if rows and columns:
            self.split.launch(name, shape, self._chosen, rows, columns, *given, numbers=self._numbers, **constants)
