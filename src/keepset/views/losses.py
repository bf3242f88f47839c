"""The losses of self-supervised training, over the projections of two augmented copies of each image."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def contrastive(projections: Tensor, temperature: float) -> Tensor:
    """SimCLR's loss of (2b, d) projections; rows i and i + b are copies of one image.

    Each row has to tell its copy from all others by cosine similarity.
    """
    units = functional.normalize(projections.float(), dim=1)
    count = len(units)
    itself = torch.eye(count, dtype=torch.bool, device=units.device)
    similarity = (units @ units.T / temperature).masked_fill(itself, -torch.inf)  # (2b, 2b)
    copies = torch.arange(count, device=units.device).roll(count // 2)
    return functional.cross_entropy(similarity, copies)


def variance_invariance_covariance(
    projections: Tensor, invariance: float, variance: float, covariance: float
) -> Tensor:
    """VICReg's loss of (2b, d) projections: copies agree, every dimension varies, no two vary together."""
    first, second = projections.float().chunk(2)
    spread = _too_narrow(first) + _too_narrow(second)
    together = _covariance(first) + _covariance(second)
    return invariance * functional.mse_loss(first, second) + variance * spread + covariance * together


def _too_narrow(projections: Tensor) -> Tensor:
    """How far the standard deviations of the dimensions lie below one, on average."""
    return functional.relu(1 - (projections.var(0) + 1e-4).sqrt()).mean()


def _covariance(projections: Tensor) -> Tensor:
    """The squared covariances of different dimensions, summed, over the number of dimensions."""
    count, size = projections.shape
    centred = projections - projections.mean(0)
    matrix = centred.T @ centred / (count - 1)
    return (matrix.square().sum() - matrix.diagonal().square().sum()) / size
