"""A class as a view sees it, made flat enough to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from .kept import read_kept_views

Values = np.ndarray[Any, Any]


def flat_map(features: Tensor) -> tuple[Values, float]:
    """(n, 2) the unit vectors along their two main directions, and the share of the variance that these have.

    >>> import torch
    >>> points, share = flat_map(torch.eye(3))
    >>> points.shape, round(share, 3)
    ((3, 2), 1.0)
    """
    wide = features.detach().cpu().double().numpy()
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = wide / np.where(lengths > 0, lengths, 1)
    left, values, right = np.linalg.svd(unit - unit.mean(0), full_matrices=False)
    signs = np.where(right[np.arange(len(right)), np.abs(right).argmax(1)] < 0, -1.0, 1.0)  # a sign is arbitrary
    found = np.zeros((len(wide), 2))
    count = min(2, len(values))
    found[:, :count] = (left * values * signs)[:, :count]
    whole = float((values**2).sum())
    return found, float((values[:2] ** 2).sum()) / whole if whole > 0 else 1.0


def features_of_classes(
    run: str | Path, episode: int, rows: Mapping[int, Tensor], order: Sequence[str]
) -> dict[int, dict[str, Tensor]]:
    """Class -> view -> (n, d) of an episode, for classes whose images are those `rows`; views in that order."""
    views, labels = read_kept_views(run, episode)
    ordered = dict.fromkeys([*(name for name in order if name in views), *views])  # the file has its own order
    found = {}
    for label, held in rows.items():
        inside = labels == label
        if int(inside.sum()) != len(held):
            raise ValueError(
                f"{run} kept {int(inside.sum())} points of class {label}, the data have {len(held)} images"
            )
        found[label] = {name: views[name][inside].float() for name in ordered}
    return found
