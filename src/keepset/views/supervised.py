"""The learner's own features as a view."""

from collections.abc import Callable

from torch import Tensor, nn

from ..embedding import embed


def supervised(images: Tensor, model: nn.Module, normalise: Callable[[Tensor], Tensor]) -> Tensor:
    """(n, d) the penultimate features of the learner, in eval mode, without augmentation."""
    features: Callable[[Tensor], Tensor] = model.features  # type: ignore[assignment]
    return embed(lambda batch: features(normalise(batch)).float(), images, model=model)
