"""Images without a split: all in a folder, or an array in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..checks import check_range, read_labels
from ..files import array_names, read_array
from .arrays import as_images
from .dataset import Array
from .folder import LARGEST, is_image, is_split, read_images
from .images import check_pillow

KEYS = (("images", "labels"), ("train_images", "train_labels"))  # looked for in an .npz, in this order


@dataclass(frozen=True, eq=False)
class Pool:
    """Images (n, channels, height, width) uint8, a name for each, and their labels where they have any."""

    images: Tensor
    names: tuple[str, ...]
    labels: Tensor | None

    @property
    def mirrored(self) -> bool:
        """Whether they may be mirrored: grey images are often writing."""
        return self.images.shape[1] > 1


def read_pool(source: str, image_size: int) -> Pool:
    """All images below a folder in the order of their paths, as RGB squares of `image_size`; or `file.npz[:key]`, .npy.

    Where a folder holds the images of each class in a folder of its own, its name is their label; an .npz may have
    labels beside its images.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return _from_folder(path, image_size)
    if path.suffix not in (".npy", ".npz") and ".npz:" not in source:
        raise ValueError(f"{source} must be a data set of keepset ls, a folder of images, .npy, .npz or .npz:key")
    images, labels = _from_file(str(path))
    return Pool(images, tuple(str(row) for row in range(len(images))), labels)


def _from_folder(folder: Path, image_size: int) -> Pool:
    check_pillow()
    check_range("image_size", image_size, 1, LARGEST, "pixels a side")
    files = sorted(file for file in folder.rglob("*") if is_image(file) and not _hidden(file.relative_to(folder)))
    if not files:
        raise ValueError(f"{folder} holds no images")
    names = tuple(str(file.relative_to(folder)) for file in files)
    parents = [file.parent for file in files]
    labelled = folder not in parents and len(set(parents)) > 1
    split = is_split(folder) and all(parent.parent.name in ("train", "test") for parent in parents)
    labels = _numbered(np.array([parent.name if split else str(parent) for parent in parents])) if labelled else None
    return Pool(read_images(np.array(files, dtype=object), image_size), names, labels)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _from_file(source: str) -> tuple[Tensor, Tensor | None]:
    if source.endswith(".npz"):
        held = array_names(source)
        for images, labels in KEYS:
            if images in held:
                found = _images(f"{source}:{images}")
                return found, read_targets(f"{source}:{labels}", len(found)) if labels in held else None
    return _images(source), None


def _images(spec: str) -> Tensor:
    return as_images(np.asarray(read_array(spec)[1]), spec)


def read_targets(spec: str, count: int) -> Tensor:
    """(count,) labels in a file, numbered from 0 in sorted order."""
    labels = read_labels(np.asarray(read_array(spec)[1]))
    if len(labels) != count:
        raise ValueError(f"{spec} must hold a label an image ({count}), got {len(labels)}")
    return _numbered(labels)


def _numbered(labels: Array) -> Tensor:
    return torch.from_numpy(np.unique(labels, return_inverse=True)[1].astype(np.int64))
