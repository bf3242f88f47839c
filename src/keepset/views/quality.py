"""How good a view is: do its neighbours share a label?"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..checks import check_range

ROWS = 1024  # points whose similarities are held at once


def neighbour_accuracy(features: Tensor, labels: Tensor, neighbours: int = 20) -> float:
    """Share of points whose label is the most frequent one among their nearest others, by cosine similarity.

    features: (n, d); labels: (n,). With fewer than `neighbours` other points, all of them vote. Among labels with
    equally many votes the more similar ones win.
    """
    check_range("neighbours", neighbours, 1, 2**31, "votes")
    if len(labels) != len(features):
        raise ValueError(f"labels must be one a point ({len(features)}), got {len(labels)}")
    if len(features) < 2:
        raise ValueError(f"features must hold at least 2 points, got {len(features)}")
    count = min(neighbours, len(features) - 1)
    units = functional.normalize(features.float(), dim=1)
    classes, labels = labels.to(features.device).unique(return_inverse=True)
    right = 0
    for first in range(0, len(units), ROWS):
        rows = torch.arange(first, min(first + ROWS, len(units)), device=units.device)
        similarity = units[rows] @ units.T
        similarity[torch.arange(len(rows)), rows] = -torch.inf
        near = similarity.topk(count)
        # a vote counts 1, and a little more the more similar it is: less than one vote for all of them together
        votes = 1 + near.values / (4 * count)
        ballot = torch.zeros(len(rows), len(classes), device=units.device).scatter_add_(1, labels[near.indices], votes)
        right += int((ballot.argmax(1) == labels[rows]).sum())
    return right / len(units)
