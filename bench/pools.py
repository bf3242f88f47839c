"""The pools of points that are chosen from, their kernel matrix, and the coverage of a choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

DIMENSIONS = 512
CLUMPS, NOISE = 80, 0.5
SAMPLED = 1000  # points whose distances give the bandwidth


@dataclass(frozen=True)
class Pool:
    """Points to choose from, and the one bandwidth that everybody is given."""

    name: str
    points: Tensor
    """(n, 512) float32, as a user has them."""
    unit: Tensor
    """(n, 512) divided by their norms."""
    bandwidth: float
    """σ, in cosine distance."""

    def __len__(self) -> int:
        return len(self.points)


def clumps(count: int, generator: torch.Generator) -> Tensor:
    """Standard normal centres, each point one of them plus noise."""
    centres = torch.randn(CLUMPS, DIMENSIONS, generator=generator)
    members = torch.randint(CLUMPS, (count,), generator=generator)
    return centres[members].add_(torch.randn(count, DIMENSIONS, generator=generator), alpha=NOISE)


def gaussian(count: int, generator: torch.Generator) -> Tensor:
    """No structure at all: every candidate is nearly as good as the next, a hard case for a lazy search."""
    return torch.randn(count, DIMENSIONS, generator=generator)


MAKERS: dict[str, Callable[[int, torch.Generator], Tensor]] = {f"{CLUMPS} clumps": clumps, "Gaussian": gaussian}


def make_pool(name: str, count: int, seed: int = 0) -> Pool:
    generator = torch.Generator().manual_seed(seed)
    points = MAKERS[name](count, generator)
    unit = points / torch.linalg.vector_norm(points, dim=1, keepdim=True)
    return Pool(name, points, unit, _median_distance(unit, generator))


def _median_distance(unit: Tensor, generator: torch.Generator) -> float:
    """Median cosine distance among a sample of the points."""
    sample = unit[torch.randperm(len(unit), generator=generator)[:SAMPLED]].double().numpy()
    distances = 1 - sample @ sample.T
    return float(np.median(distances[np.triu_indices(len(sample), 1)]))


def kernel_matrix(pool: Pool) -> Tensor:
    """(n, n) exp(−D²/2σ²), D = 1 − cos, in one matrix: what any method on the full kernel has to pay."""
    matrix = pool.unit @ pool.unit.T
    return matrix.neg_().add_(1).square_().mul_(-1 / (2 * pool.bandwidth**2)).exp_()


def cosine_kernel(distances: Tensor, bandwidth: float) -> Tensor:
    """exp(−D²/2σ²)"""
    return (-(distances**2) / (2 * bandwidth**2)).exp()


def euclidean_kernel(distances: Tensor, bandwidth: float) -> Tensor:
    """exp(−γ·2D), γ = 1/4σ: the usual rbf on unit vectors. It agrees with the cosine one at D = 0 and at D = σ."""
    return (-distances / (2 * bandwidth)).exp()


def coverage(pool: Pool, picks: Sequence[int], kernel: Callable[[Tensor, float], Tensor] = cosine_kernel) -> float:
    """F: the mean over points of the largest kernel to a pick. In float64, some rows at a time, on its own."""
    vectors = pool.points.double()
    vectors /= torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    kept = vectors[torch.tensor(list(picks))]
    best = [kernel(1 - rows @ kept.T, pool.bandwidth).amax(1) for rows in vectors.split(1000)]
    return float(torch.cat(best).mean())
