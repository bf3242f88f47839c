"""The plain baselines: random, herding, closest."""

from __future__ import annotations

import torch
from torch import Tensor

from .cover import one_view
from .geometry import unit
from .result import Selection, uncovered_selection


def random(views: dict[str, Tensor], budget: int, *, generator: torch.Generator, start: Tensor) -> Selection:
    """Uniform, without replacement."""
    order = torch.randperm(len(next(iter(views.values()))), generator=generator)
    return uncovered_selection(order[~torch.isin(order, start)][:budget], "random")


def herding(
    views: dict[str, Tensor], budget: int, *, generator: torch.Generator, start: Tensor, view: str | None = None
) -> Selection:
    """The points whose running mean stays closest to the mean of the class (iCaRL)."""
    (vectors,) = map(unit, one_view(views, view).values())
    vectors -= vectors.mean(0)  # around 0, where those of a collapsed class keep their digits
    half = vectors.square().sum(1) / 2
    taken = vectors @ vectors[start].sum(0)  # (n,) inner products with the sum of those taken
    free = torch.ones(len(vectors), dtype=torch.bool, device=vectors.device)
    free[start] = False
    picks: list[int] = []
    for _ in range(budget):
        best = (half + taken).masked_fill(~free, torch.inf).argmin()  # |sum + x|² is least there
        pick = int((free & (vectors == vectors[best]).all(1)).int().argmax())  # of its copies, the lowest index
        free[pick] = False
        taken += vectors @ vectors[pick]
        picks.append(pick)
    return uncovered_selection(torch.tensor(picks, dtype=torch.int64), "herding")


def closest(
    views: dict[str, Tensor], budget: int, *, generator: torch.Generator, start: Tensor, view: str | None = None
) -> Selection:
    """The points closest to the mean of the class."""
    (vectors,) = map(unit, one_view(views, view).values())
    distances = torch.linalg.vector_norm(vectors - vectors.mean(0), dim=1)
    order = distances.argsort(stable=True).cpu()
    return uncovered_selection(order[~torch.isin(order, start)][:budget], "closest")
