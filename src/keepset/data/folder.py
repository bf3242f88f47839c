"""A folder of images, with a folder for each class; train/ and test/ above them, or every fifth image is test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..checks import check_range
from .dataset import Array, Dataset, build, every_fifth
from .images import check_pillow, decode

ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
LARGEST = 4096


def load(folder: Path, image_size: int) -> Dataset:
    """Images of any size, as RGB squares of `image_size`; within a class they are in the order of their names."""
    check_pillow()
    check_range("image_size", image_size, 1, LARGEST, "pixels a side")
    if is_split(folder):
        parts = _files(folder / "train"), _files(folder / "test")
    else:
        files, labels = _files(folder)
        _check_enough(folder, labels)
        fifth = every_fifth(labels)
        parts = (files[~fifth], labels[~fifth]), (files[fifth], labels[fifth])
    read = [(read_images(files, image_size), labels) for files, labels in parts]
    return build(str(folder), read[0], read[1], padding=image_size // 8, flip=True)


def is_split(folder: Path) -> bool:
    return (folder / "train").is_dir() and (folder / "test").is_dir()


def image_files(folder: Path) -> list[Path]:
    """The files that `load` reads, in order; whatever else lies there is no part of the data."""
    parts = [folder / "test", folder / "train"] if is_split(folder) else [folder]
    return sorted(file for part in parts for file in _files(part)[0])


def _files(folder: Path) -> tuple[Array, Array]:
    """The image files below `folder` and the class of each, both (n,); other files and hidden ones are passed over."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not classes:
        raise ValueError(f"{folder} holds no folders; put the images of each class into a folder of its own")
    files: list[Path] = []
    labels: list[str] = []
    for path in classes:
        found = sorted(file for file in path.iterdir() if is_image(file))
        if not found:
            raise ValueError(f"{path} holds no images; known endings are {', '.join(sorted(ENDINGS))}")
        files += found
        labels += [path.name] * len(found)
    return np.array(files, dtype=object), np.array(labels)


def is_image(file: Path) -> bool:
    return file.suffix.lower() in ENDINGS and not file.name.startswith(".") and file.is_file()


def _check_enough(folder: Path, labels: Array) -> None:
    names, counts = np.unique(labels, return_counts=True)
    if counts.min() < 5:
        name, count = names[counts.argmin()], counts.min()
        remedy = "add images, or split them into train/ and test/ yourself"
        raise ValueError(f"{folder / name} holds {count} images; every fifth is a test image: {remedy}")


def read_images(files: Array, size: int) -> Tensor:
    images = torch.empty((len(files), 3, size, size), dtype=torch.uint8)
    for row, file in enumerate(files):
        try:
            images[row] = decode(file.read_bytes(), size)
        except (OSError, ValueError) as error:
            raise ValueError(f"{file} {error}; replace it or take it out") from None
    return images
