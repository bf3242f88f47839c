"""How near is near: a kernel turns the distances D of one view into similarities in 0..1.

`metric` says which distance it reads and in which one the bandwidth is measured:

    cosine      D and the median of D (ours: both sides of the ratio scale alike)
    euclidean   d = √(2D) and the median of d
    literal     d, and the median of D as bandwidth: what the paper prints
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from .geometry import Cloud
from .scales import euclidean, median, middle_distances, neighbours

METRICS = ("cosine", "euclidean", "literal")
KERNELS = ("rbf", "laplace", "tophat")


def kernel(name: str, metric: str, bandwidth: float) -> Callable[[Tensor], Tensor]:
    """A function that turns a tile of distances D into similarities, in place.

    rbf exp(−D²/2σ²), laplace exp(−D/σ), tophat 1[D ≤ σ], with d for D where the metric says so. Bandwidth 0 is the
    limit of all three: a point covers its copies and nothing else.
    """
    if bandwidth == 0:
        return lambda tile: tile.copy_(tile == 0)
    if name == "rbf" and metric == "cosine":
        return lambda tile: _square_(tile.mul_(1 / bandwidth), -0.5).exp_()
    if name == "rbf":  # d²/2σ² = D/σ²
        return lambda tile: tile.mul_(1 / bandwidth).mul_(-1 / bandwidth).exp_()
    if name == "laplace":
        return lambda tile: _read_(tile, metric).mul_(-1 / bandwidth).exp_()
    return lambda tile: tile.copy_(_read_(tile, metric) <= bandwidth)


def _square_(tile: Tensor, factor: float) -> Tensor:
    """factor · tile², in one pass."""
    return torch.addcmul(tile.new_zeros(()), tile, tile, value=factor, out=tile)


def _read_(tile: Tensor, metric: str) -> Tensor:
    return tile if metric == "cosine" else tile.mul_(2).sqrt_()


def median_bandwidth(points: Cloud, metric: str, matrix: Tensor | None = None) -> float:
    """Median distance over the n(n−1)/2 pairs (σ), in the metric's own distance; 0 for one point."""
    if len(points) == 1:
        return 0.0
    low, high = middle_distances(points, matrix)
    if metric == "euclidean":
        low, high = math.sqrt(2 * low), math.sqrt(2 * high)
    return (low + high) / 2


def neighbour_bandwidth(distances: Tensor | Iterable[Tensor], k: int, metric: str) -> float:
    """The radius rule in the kernel's metric: median over points of the median distance to the k nearest."""
    measure = euclidean if metric == "euclidean" else Tensor.clone
    return median(neighbours(distances, k, measure).median)
