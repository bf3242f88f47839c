"""The learner's own features as a view."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..embedding import embed


def supervised(images: Tensor, model: nn.Module, normalise: Callable[[Tensor], Tensor]) -> Tensor:
    """(n, d) the penultimate features of the learner, in eval mode, without augmentation.

    Where it answers to some images with zeros alone, which have no direction, they get one of their own: a column more,
    at a right angle to all others.
    """
    features: Callable[[Tensor], Tensor] = model.features  # type: ignore[assignment]
    found = embed(lambda batch: features(normalise(batch)).float(), images, model=model)
    silent = ~found.any(1, keepdim=True)
    return torch.cat([found, silent.to(found)], 1) if bool(silent.any()) else found
