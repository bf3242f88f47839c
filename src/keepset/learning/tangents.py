"""The logits of a network and their derivative along a direction of its weights, from one forward.

Unlike the difference of two forwards, which is small, a derivative loses nothing in bfloat16.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from .step import logits_at


@dataclass(frozen=True)
class Way:
    """Where in the space of weights, and which way from there."""

    weights: Mapping[str, Tensor]
    directions: Mapping[str, Tensor]
    """By name, of the weights that move."""
    steps: Mapping[str, Tensor]
    """How far each of them moves, a number each."""


def derivative(model: nn.Module, way: Way, images: Tensor, moves_statistics: bool = False) -> tuple[Tensor, Tensor]:
    """Logits and derivative, of any network that torch can differentiate forwards, in the type of its weights.

    The logits can be differentiated back to the weights, the derivative cannot. Nothing of the model changes, but for
    its running statistics where asked.
    """
    _load_forward_mode()
    # in torch's own derivative of batch-norm types mix under autocast
    with torch.autocast(images.device.type, enabled=False), forward_ad.dual_level():
        weights = dict(way.weights)
        for name, direction in way.directions.items():
            weight = weights[name]
            weights[name] = forward_ad.make_dual(weight, way.steps[name] * direction.to(weight))
        found = forward_ad.unpack_dual(logits_at(model, weights, images, moves_statistics))
        tangent = torch.zeros_like(found.primal) if found.tangent is None else found.tangent
        return found.primal, tangent.detach()


@functools.cache
def _load_forward_mode() -> None:
    """What torch loads the first time; its own code warns there of what torch calls deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module("torch._decomp.decompositions_for_jvp")
