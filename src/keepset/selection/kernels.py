"""How near is near: a kernel turns the distances D of one view into similarities in 0..1.

`metric` says which distance it reads and in which one the bandwidth is measured:

    cosine      D and the median of D (ours: both sides of the ratio scale alike)
    euclidean   d = √(2D) and the median of d
    literal     d, and the median of D as bandwidth: what the paper prints
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from .geometry import Cloud
from .scales import euclidean, median, middle_distances, neighbours


@dataclass(frozen=True)
class Similarity:
    """α K of one view: turns a tile of distances D into similarities, in place.

    rbf exp(−D²/2σ²), laplace exp(−D/σ), tophat 1[D ≤ σ], with d for D where the metric says so. Bandwidth 0 is the
    limit of all three: a point covers its copies and nothing else.
    """

    name: str
    metric: str
    bandwidth: float
    weight: float = 1.0
    """α"""

    def __call__(self, tile: Tensor) -> Tensor:
        similar = self._similar(tile)
        return similar if self.weight == 1 else similar.mul_(self.weight)

    def _similar(self, tile: Tensor) -> Tensor:
        if self.bandwidth == 0:
            return tile.copy_(tile == 0)
        if self.kind == "rbf of D":
            return _square_(tile.mul_(1 / self.bandwidth), -0.5).exp_()
        if self.kind == "rbf of d":  # d²/2σ² = D/σ²
            return tile.mul_(1 / self.bandwidth).mul_(-1 / self.bandwidth).exp_()
        if self.name == "laplace":
            return _read_(tile, self.metric).mul_(-1 / self.bandwidth).exp_()
        return tile.copy_(within(_read_(tile, self.metric), self.bandwidth))

    @property
    def kind(self) -> str:
        """The formula: `rbf of D`, `laplace of d`, …"""
        return f"{self.name} of {'D' if self.metric == 'cosine' else 'd'}"


def kernel(name: str, metric: str, bandwidth: float) -> Similarity:
    """K of one view, a function of tiles of D."""
    return Similarity(name, metric, bandwidth)


def within(tile: Tensor, radius: float) -> Tensor:
    """Where distances are at most `radius`. Those that differ by rounding alone are equal: a radius is often the
    distance of many points of whole numbers, computed in several ways."""
    return tile <= radius * (1 + (1e-9 if tile.dtype == torch.float64 else 1e-6))


def _square_(tile: Tensor, factor: float) -> Tensor:
    """factor · tile², in one pass."""
    return torch.addcmul(tile.new_zeros(()), tile, tile, value=factor, out=tile)


def _read_(tile: Tensor, metric: str) -> Tensor:
    return tile if metric == "cosine" else tile.mul_(2).sqrt_()


def median_bandwidth(points: Cloud, metric: str, matrix: Tensor | None = None) -> float:
    """Median distance over the n(n−1)/2 pairs (σ), in the metric's own distance; 0 for one point."""
    if len(points) == 1:
        return 0.0
    return between(*middle_distances(points, matrix), metric)


def between(low: float, high: float, metric: str) -> float:
    """The mean of the middle two distances D, in the metric's own distance."""
    if metric == "euclidean":
        low, high = math.sqrt(2 * low), math.sqrt(2 * high)
    return (low + high) / 2


def neighbour_bandwidth(distances: Tensor | Iterable[Tensor], k: int, metric: str) -> float:
    """The radius rule in the kernel's metric: median over points of the median distance to the k nearest."""
    measure = euclidean if metric == "euclidean" else Tensor.clone
    return median(neighbours(distances, k, measure).median)
