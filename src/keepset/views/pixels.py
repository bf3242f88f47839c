"""The image itself as a view."""

from torch import Tensor


def pixels(images: Tensor) -> Tensor:
    """(n, c·h·w) the flattened images, in 0..1; one level is added so that a black image is no zero vector."""
    return (images.flatten(1).float() + 1) / 256
