"""Arrays of one's own: an .npz file with train_images, train_labels, test_images and test_labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..checks import read_labels
from ..files import read_array
from .dataset import Array, Dataset, build

CHANNELS = (1, 3, 4)


def load(path: Path) -> Dataset:
    """Images are uint8, (n, h, w), (n, h, w, c) or (n, c, h, w); labels are integers or strings."""
    train_images, test_images = _images(path, "train_images"), _images(path, "test_images")
    train, test = (train_images, _labels(path, "train_labels")), (test_images, _labels(path, "test_labels"))
    # grey images are often writing, which must not be mirrored
    return build(str(path), train, test, padding=train_images.shape[-1] // 8, flip=train_images.shape[1] > 1)


def _read(path: Path, key: str) -> Array:
    return np.asarray(read_array(f"{path}:{key}")[1])


def _labels(path: Path, key: str) -> Array:
    labels = _read(path, key)
    try:
        return read_labels(labels)
    except ValueError as error:
        raise ValueError(f"{path}:{key}: {error}") from None


def _images(path: Path, key: str) -> Tensor:
    return as_images(_read(path, key), f"{path}:{key}")


def as_images(images: Array, name: str) -> Tensor:
    """(n, channels, height, width), whichever of the three layouts the array has; `name` is for errors."""
    if images.dtype != np.uint8:
        remedy = "scale them to 0..255 and convert them with .astype('uint8')"
        raise ValueError(f"{name} must be uint8, got {images.dtype}; {remedy}")
    if images.ndim == 3:
        return torch.from_numpy(np.array(images)).unsqueeze(1)
    first = images.ndim == 4 and images.shape[1] in CHANNELS
    last = images.ndim == 4 and images.shape[3] in CHANNELS
    if first == last:
        why = "where the channels are cannot be told" if first else f"with {CHANNELS} channels"
        raise ValueError(f"{name} must be (n, h, w), (n, h, w, c) or (n, c, h, w), got {images.shape}; {why}")
    return torch.from_numpy(np.array(images if first else images.transpose(0, 3, 1, 2)))
