"""The cover methods: probcover and maxherding on one view, and their sums over all views in mers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import nearest_name
from .hard import hard_cover
from .options import Cover
from .result import Selection
from .soft import soft_cover


def maxherding(
    views: dict[str, Tensor],
    budget: int,
    *,
    generator: torch.Generator,
    start: Tensor,
    view: str | int | None = None,
    **options: Any,
) -> Selection:
    """Soft cover of one view."""
    return soft_cover(one_view(views, view), budget, start, Cover(**options), generator)


def mers(
    views: dict[str, Tensor], budget: int, *, generator: torch.Generator, start: Tensor, **options: Any
) -> Selection:
    """Soft cover of all views at once (MERS-MaxHerding, Alg. 1)."""
    return soft_cover(views, budget, start, Cover(**options), generator)


def probcover(
    views: dict[str, Tensor],
    budget: int,
    *,
    generator: torch.Generator,
    start: Tensor,
    view: str | int | None = None,
    **options: Any,
) -> Selection:
    """Hard cover of one view."""
    return hard_cover(one_view(views, view), budget, start, Cover(**options))


def mers_probcover(
    views: dict[str, Tensor], budget: int, *, generator: torch.Generator, start: Tensor, **options: Any
) -> Selection:
    """Hard cover of all views at once (MERS-ProbCover, Alg. 2)."""
    return hard_cover(views, budget, start, Cover(**options))


def one_view(views: dict[str, Tensor], name: str | int | None) -> dict[str, Tensor]:
    """The view of that name or position, or the first."""
    names = list(views)
    if not (name is None or isinstance(name, (int, str))):
        raise ValueError(f"view must be a name or a position, got {name!r}")
    if name is None or isinstance(name, int):
        if not 0 <= (name or 0) < len(names):
            raise ValueError(f"view must be in 0..{len(names) - 1} or one of {', '.join(names)}, got {name}")
        name = names[name or 0]
    if name not in views:
        raise ValueError(f"unknown view {name!r}; {nearest_name(name, names)}")
    return {name: views[name]}
