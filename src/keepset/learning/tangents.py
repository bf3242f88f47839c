"""The logits of any network and their derivative along a direction of its weights, from one forward."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from .step import logits_at


def derivative(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    directions: Mapping[str, Tensor],
    images: Tensor,
    moves_statistics: bool = False,
) -> tuple[Tensor, Tensor]:
    """Logits at these weights, and their derivative along `directions`, by name, of some of them.

    Of any network that torch can differentiate forwards, in the type of its weights. The logits can be differentiated
    back to the weights, the derivative cannot. Only running statistics change, and only where asked.
    """
    _load_forward_mode()
    # in torch's own derivative of batch-norm types mix under autocast
    with torch.autocast(images.device.type, enabled=False), forward_ad.dual_level():
        moving = {
            name: forward_ad.make_dual(weights[name], direction.to(weights[name]))
            for name, direction in directions.items()
        }
        found = forward_ad.unpack_dual(logits_at(model, {**weights, **moving}, images, moves_statistics))
        tangent = torch.zeros_like(found.primal) if found.tangent is None else found.tangent
        return found.primal, tangent.detach()


@functools.cache
def _load_forward_mode() -> None:
    """What torch loads the first time; its own code warns there of what torch calls deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module("torch._decomp.decompositions_for_jvp")
