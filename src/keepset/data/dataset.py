"""A data set in memory: contiguous uint8 images, labels, and what the augmentation needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images (n, channels, height, width) uint8 and labels (n,) int64 in 0..classes-1, for training and for testing.

    `mean` and `std` are those of pixel / 255, a number a channel; `padding` and `flip` say which augmentation the
    images bear: crops after that much padding, and horizontal flips.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int
    flip: bool

    @property
    def classes(self) -> int:
        return len(self.class_names)


@dataclass(frozen=True, eq=False)
class Episode:
    """A batch of new classes. Labels are the data set's own; `train_rows` are the images' row numbers in it."""

    classes: tuple[int, ...]
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    train_rows: Tensor


def build(name: str, train: tuple[Tensor, Array], test: tuple[Tensor, Array], *, padding: int, flip: bool) -> Dataset:
    """A data set of images and any integer or string labels: classes are numbered in sorted order."""
    train_images, test_images = train[0].contiguous(), test[0].contiguous()
    _check(name, (train_images, train[1]), (test_images, test[1]))
    known = np.unique(train[1])
    mean, std = channel_statistics(train_images)
    return Dataset(
        name=name,
        train_images=train_images,
        train_labels=torch.from_numpy(np.searchsorted(known, train[1]).astype(np.int64)),
        test_images=test_images,
        test_labels=torch.from_numpy(np.searchsorted(known, test[1]).astype(np.int64)),
        class_names=tuple(str(label) for label in known.tolist()),
        mean=mean,
        std=std,
        padding=padding,
        flip=flip,
    )


def _check(name: str, train: tuple[Tensor, Array], test: tuple[Tensor, Array]) -> None:
    for part, (images, labels) in (("train", train), ("test", test)):
        if len(images) != len(labels):
            raise ValueError(f"{name}: {len(labels)} {part} labels for {len(images)} {part} images; give one an image")
        if images.numel() == 0:
            raise ValueError(f"{name}: there are no {part} images, got shape {tuple(images.shape)}")
    if train[0].shape[1:] != test[0].shape[1:]:
        shapes = f"{tuple(train[0].shape[1:])} and {tuple(test[0].shape[1:])}"
        raise ValueError(f"{name}: train and test images must have one shape, got {shapes}")
    if train[1].dtype.kind.replace("u", "i") != test[1].dtype.kind.replace("u", "i"):
        raise ValueError(f"{name}: train and test labels must both be integers or both strings; convert one of them")
    for this, other, absent in (
        ("train", "test", np.setdiff1d(test[1], train[1])),
        ("test", "train", np.setdiff1d(train[1], test[1])),
    ):
        if absent.size:
            raise ValueError(f"{name}: no {this} image of class {absent.tolist()[0]!r}, which has {other} images")


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of pixel / 255, a number a channel; a constant channel gets deviation 1."""
    levels = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in images.unbind(1):
        # counts of the 256 levels: exact, and never a floating-point copy of all images
        share = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()
        mean = float(share @ levels)
        means.append(mean)
        deviations.append(float(share @ (levels - mean) ** 2) ** 0.5 or 1.0)
    return tuple(means), tuple(deviations)


def every_fifth(labels: Array) -> Array:
    """True at the fifth, tenth, ... image of each class: the test images of data that come without a split."""
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        test[np.flatnonzero(labels == label)[4::5]] = True
    return test
