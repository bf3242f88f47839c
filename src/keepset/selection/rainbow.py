"""Rainbow Memory's choice: from the most certain to the least, evenly spaced."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .inputs import read_vector
from .result import Selection, uncovered_selection


def rainbow(
    views: dict[str, Tensor], budget: int, *, generator: torch.Generator, start: Tensor, uncertainty: Any = None
) -> Selection:
    """Sort by `uncertainty`, ties by index, and take every (n // budget)-th."""
    if uncertainty is None:
        raise ValueError("rainbow needs uncertainty=, one number a point (larger is less certain), got None")
    scores = read_vector("uncertainty", uncertainty, len(next(iter(views.values()))))
    order = scores.argsort(stable=True)
    order = order[~torch.isin(order, start)]
    return uncovered_selection(order[:: len(order) // budget][:budget], "rainbow")
