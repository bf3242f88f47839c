"""What a selection will take, before anything runs: the way, the memory and the time."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..checks import check_choice, check_range
from . import tensor_cores
from .geometry import cloud, distances
from .kept import FIRST, UNIT, keeps, kept_bytes
from .kernels import kernel
from .options import Cover
from .room import SHARE, free_bytes, in_words, matrix_bytes
from .sampled import EXACT, SAMPLED
from .scales import euclidean, neighbour_count, neighbours
from .streaming import COLUMNS, row_sums
from .table import ALIASES
from .tensor_core_scales import WRITTEN
from .tensor_cores import STEP

COVERS = {
    "mers": (False, False),
    "mers-pure": (False, False),
    "maxherding": (False, True),
    "mers-probcover": (True, False),
    "probcover": (True, True),
}
"""Method -> (whether it is hard cover, whether it reads one view)."""
NUMBERS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
"""Type of a view's numbers -> bytes of one. What is smaller than float32 is computed in float32."""
PICK = 0.003  # seconds that a streamed pick takes beside its values
BLOCKS = 2**24  # numbers in the blocks of a streamed search


@dataclass(frozen=True)
class Plan:
    """What a selection will take. `print(plan)` tells it in words."""

    way: str
    """`dense`, `streamed`, `stochastic`, or `distributed` where the points themselves do not fit."""
    bytes: int
    """Memory beside the views as they were passed, `kept` among it."""
    seconds: float
    """By the rates of this machine, measured now; good to a factor of two or so."""
    matrix: int
    """Bytes that the dense way would take for its matrices alone."""
    free: int
    """Bytes that were free."""
    points: int
    budget: int
    method: str
    device: str
    kept: int = 0
    """Bytes of the similarities that a streamed search keeps, in sixteen bits."""
    dtype: str = "float32"
    """What is computed in: float64 where a view that is read is of float64, else float32."""

    def __str__(self) -> str:
        keeps = f", {in_words(self.kept)} of similarities kept in 16 bits" if self.kept else ""
        place = self.device if self.dtype == "float32" else f"{self.device} in {self.dtype}"
        lines = [
            f"{self.method}, {self.budget:,} of {self.points:,} points on {place}: {_WORDS[self.way]}{keeps}",
            f"memory   {in_words(self.bytes)} beside the views ({in_words(self.free)} free); "
            f"the matrix of all distances would be {in_words(self.matrix)}",
            f"time     about {_duration(self.seconds)}",
        ]
        if self.dtype == "float64":
            lines.append(
                "smaller: with all views in float32, half of that, and less time; a single one in float64 decides"
            )
        if self.way == "distributed":
            lines.append("the points do not fit here: keepset select --engine ray, or fewer points")
        elif self.way == "streamed" and self.seconds > 600:
            lines.append("faster:  search='stochastic' looks at a random sample of candidates in each pick")
        return "\n".join(lines)


_WORDS = {
    "dense": "dense, exact, with the matrix of all distances",
    "streamed": "streamed, exact, without the matrix",
    "stochastic": "stochastic, from random samples of candidates",
    "distributed": "distributed, in two rounds over the parts of the pool",
}


def plan(
    count: int,
    dimensions: int | Sequence[int],
    budget: int,
    *,
    method: str = "mers",
    device: str | None = None,
    memory: str | int = "auto",
    search: str = "exact",
    epsilon: float = 0.1,
    fusion: str = "sum-then-max",
    dtype: Any = "float32",
) -> Plan:
    """What choosing `budget` of `count` points would take; dimensions: the columns of each view.

    dtype: of the views' numbers, one for all or one for each; where one is float64, all is computed in float64.
    Nothing is selected; what one block of distances takes on this machine is measured, in a fraction of a second.

    >>> plan(1_000_000, [512, 768], budget=100).matrix
    4000000000000
    """
    count = check_range("count", count, 1, 2**40, "points")
    budget = check_range("budget", budget, 1, count, "the number of points")
    method = ALIASES.get(method, method) if isinstance(method, str) else method
    if method not in list(COVERS):
        raise ValueError(f"method must be a cover method ({', '.join(COVERS)}), got {method!r}; others need no plan")
    hard, single = COVERS[method]
    given = _listed(dimensions)
    dtypes = _dtypes(dtype, len(given))[: 1 if single else None]
    sizes = [check_range("dimensions", size, 1, 2**31, "columns of a view") for size in given[: len(dtypes)]]
    if not sizes:
        raise ValueError("dimensions must name at least one view's columns, got none")
    pool = _Pool(count, sizes, dtypes)
    cover = Cover(memory=memory, search=search, epsilon=epsilon, fusion=fusion)
    place = _place(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    free = free_bytes(place)
    matrix = matrix_bytes(count, len(sizes), pool.number, hard=hard, separate=fusion == "max-then-sum")
    way, needed = _way(pool, cover, matrix, free, place)
    kept = 0
    if way == "streamed" and place.type == "cpu" and not hard:
        kernels = len(sizes) if fusion == "max-then-sum" else 1
        if keeps(count, kernels, pool.number * count * sum(sizes), memory, free):
            kept = kept_bytes(count, kernels)
    seconds = _seconds(way, pool, budget, cover, hard, place, kept)
    return Plan(way, needed + kept, seconds, matrix, free, count, budget, method, place.type, kept, pool.dtype)


@dataclass(frozen=True)
class _Pool:
    """The points, in the views that are read."""

    count: int
    sizes: Sequence[int]
    dtypes: Sequence[str]

    @property
    def dtype(self) -> str:
        """What is computed in."""
        return "float64" if "float64" in self.dtypes else "float32"

    @property
    def number(self) -> int:
        """Bytes of a number in that."""
        return NUMBERS[self.dtype]

    @property
    def converted(self) -> int:
        """Bytes of copies in another type: what is smaller than float32 is brought to it, and from there to float64."""
        narrow = [size for size, dtype in zip(self.sizes, self.dtypes, strict=True) if NUMBERS[dtype] == 2]
        single = [size for size, dtype in zip(self.sizes, self.dtypes, strict=True) if dtype != "float64"]
        widened = sum(single) if self.dtype == "float64" else 0
        return self.count * (NUMBERS["float32"] * sum(narrow) + NUMBERS["float64"] * widened)


def _listed(dimensions: Any) -> list[Any]:
    try:
        return list(dimensions)
    except TypeError:  # a single number, of any type
        return [dimensions]


def _dtypes(given: Any, views: int) -> list[str]:
    """The name of the type of each view's numbers, from names or types of numpy or torch."""
    listed = list(given) if isinstance(given, (list, tuple)) else [given] * views
    if len(listed) != views:
        raise ValueError(f"dtype must be one for all views or one for each of the {views}, got {len(listed)}")
    names = [getattr(each, "name", getattr(each, "__name__", str(each).removeprefix("torch."))) for each in listed]
    for name in names:
        check_choice("dtype", name, NUMBERS)
    return names


def _place(device: Any) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (TypeError, RuntimeError, AssertionError):
        raise ValueError(f"device must be one that this machine has, such as cpu, got {device!r}") from None


def _way(pool: _Pool, cover: Cover, matrix: int, free: int, place: torch.device) -> tuple[str, int]:
    """The way that will be taken, and its bytes."""
    count, sizes, number = pool.count, pool.sizes, pool.number
    limit = SHARE * free if isinstance(cover.memory, str) else cover.memory
    if cover.search == "exact" and matrix <= limit:
        return "dense", matrix + pool.converted + number * count * max(sizes)
    needed = pool.converted + number * (count * (sum(sizes) + 16) + BLOCKS)
    if place.type == "cuda" and pool.dtype == "float32":
        # one view beside what the tensor cores read of all, and distances of some rows
        needed += number * (count * (max(sizes) + STEP * len(sizes)) + min(WRITTEN, count**2))
    if needed > free:
        return "distributed", needed
    return ("stochastic" if cover.search == "stochastic" else "streamed"), needed


def _seconds(way: str, pool: _Pool, budget: int, cover: Cover, hard: bool, device: torch.device, kept: int) -> float:
    count, sizes, dtype = pool.count, pool.sizes, pool.dtype
    near = neighbour_count(count, budget) if count > 1 else 0
    rows = count if count <= EXACT or device.type != "cpu" or way == "dense" else 2 * SAMPLED
    values = sum(value_seconds(size, device.type, dtype) for size in sizes)  # of one similarity in all views
    scales = count * rows * 0.5 * values  # the bandwidth
    if hard or len(sizes) > 1:  # radius or weights
        looked = min(rows, 2 * near) if device.type == "cuda" and way != "dense" and dtype == "float32" else rows
        scales += count * (rows * values + looked * len(sizes) * neighbour_seconds(near, device.type, dtype))
    if way == "dense":
        read = 5e-11 * pool.number * count * count * math.log1p(budget)
        return scales + count * count * 0.5 * values + read
    if hard:
        return scales + 2 * count * count * values
    if way == "stochastic":
        return scales + count * count * -math.log(cover.epsilon) * values + budget * PICK
    if kept:
        computed, read = kept_passes(budget, count)
        return scales + count * count * computed * values + kept / 2 * read * kept_seconds() + budget * PICK
    return scales + count * count * passes(budget) * values + budget * PICK


def passes(budget: int) -> float:
    """How often a streamed search computes the kernel, as seen on pools with and without clumps: 5 for 100 picks."""
    return 0.5 + 1.05 * math.log(budget + 1)


def kept_passes(budget: int, count: int) -> tuple[float, float]:
    """How often one that keeps similarities computes the kernel, and how often it reads what is kept, as seen there.

    A few rows take three times as long as their share of many.
    """
    return 0.5 + 0.06 * math.log(budget + 1) + 3 * FIRST * budget / count, 10 + 12 * math.log(budget + 1)


@functools.lru_cache
def value_seconds(size: int, device: str, dtype: str = "float32") -> float:
    """Seconds for one similarity of points of `size` columns, from a block of them."""
    rows, columns = (512, 1024) if device == "cpu" else (8192, 16384)
    view = torch.randn(columns, size, generator=torch.Generator().manual_seed(0)).to(device, getattr(torch, dtype))
    similar = kernel("rbf", "cosine", 0.5)
    if tensor_cores.usable([view]):
        split = tensor_cores.split([view])
        values, cover = split.kernel([0], [similar], None), torch.full((columns,), 0.1, device=device)
        return _best(
            lambda: values.excess(split.everyone[:rows], split.everyone, cover, torch.ones_like(cover)), device
        ) / (rows * columns)
    points = cloud(view)
    some = points.part(slice(rows))

    def work() -> None:
        row_sums(similar(distances(some, points)).sub_(0.1).clamp_(min=0), None)

    return _best(work, device) / (rows * columns)


@functools.lru_cache
def kept_seconds() -> float:
    """Seconds to read one similarity that is kept."""
    tile = torch.randint(UNIT, (COLUMNS, COLUMNS), dtype=torch.int16, generator=torch.Generator().manual_seed(0))
    low = torch.full((COLUMNS,), UNIT // 2, dtype=torch.int16)
    return _best(lambda: torch.clamp(tile, low, low + 1).sum(1, dtype=torch.int32), "cpu") / tile.numel()


@functools.lru_cache
def neighbour_seconds(k: int, device: str, dtype: str = "float32") -> float:
    """Seconds, for each distance looked at, to find the k nearest of a point."""
    columns = max(2048, 4 * k)
    distance = torch.rand(64, columns, generator=torch.Generator().manual_seed(0)).to(device, getattr(torch, dtype))
    return _best(lambda: neighbours([distance], min(k, columns - 1), euclidean), device) / distance.numel()


def _best(work: Callable[[], object], device: str) -> float:
    """Seconds of one call, the best of three."""
    seconds = []
    for _ in range(4):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])


def _duration(seconds: float) -> str:
    """`3 s`, `5 minutes`, `2.5 hours`"""
    if seconds < 90:
        return f"{max(seconds, 0.1):.2g} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
