"""CIFAR-100 from its official binary version: 100 classes, 500 + 100 images of 32 x 32 each. Nothing is unpickled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..packed import BadArchiveError, members
from .archive import Archive
from .dataset import Dataset

TRAIN, TEST = 50_000, 10_000
COARSE, FINE = 20, 100
SIZE = 32
RECORD = 2 + 3 * SIZE * SIZE  # coarse label, fine label, then the red, green and blue planes
NAMES = "fine_label_names.txt"


def is_complete(folder: Path) -> bool:
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size == count * RECORD
        for name, count in (("train.bin", TRAIN), ("test.bin", TEST))
    )


ARCHIVE = Archive(
    name="cifar100",
    url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    md5="03b5dce01913d631647c71ecec9e9cb8",
    unpacked="cifar-100-binary",
    is_complete=is_complete,
)


def load(folder: Path) -> Dataset:
    """Read cifar-100-binary/ or, if there is none, cifar-100-binary.tar.gz in `folder`; labels are the fine ones."""
    place, contents = _contents(folder)
    train_images, train_labels = _records(place / "train.bin", contents.get("train.bin"), TRAIN)
    test_images, test_labels = _records(place / "test.bin", contents.get("test.bin"), TEST)
    return Dataset(
        name="cifar100",
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        class_names=_class_names(place / NAMES, contents.get(NAMES)),
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        padding=4,
        flip=True,
    )


def _contents(folder: Path) -> tuple[Path, dict[str, bytes]]:
    """Where the files lie, and their bytes by name."""
    wanted = ("train.bin", "test.bin", NAMES)
    unpacked, packed = folder / ARCHIVE.unpacked, folder / ARCHIVE.file
    try:
        if unpacked.is_dir():
            place = unpacked
            found = {name: (unpacked / name).read_bytes() for name in wanted if (unpacked / name).is_file()}
        elif packed.is_file():
            place = packed
            found = {_inner(name): content for name, content in members(packed, lambda name: _inner(name) in wanted)}
        else:
            raise ARCHIVE.missing(folder)
    except (OSError, BadArchiveError) as error:
        raise ARCHIVE.damaged(place, f"cannot be read ({error})") from None
    return place, found


def _inner(member: str) -> str:
    return member.removeprefix("./").removeprefix(f"{ARCHIVE.unpacked}/")


def _records(path: Path, content: bytes | None, count: int) -> tuple[Tensor, Tensor]:
    """Images (count, 3, 32, 32) and fine labels (count,) of one file of records."""
    if content is None:
        raise ARCHIVE.damaged(path.parent, f"holds no {path.name}")
    if len(content) != count * RECORD:
        expected = f"{count} records of {RECORD}"
        raise ARCHIVE.damaged(path, f"holds {len(content)} bytes instead of {count * RECORD} ({expected})")
    records = np.frombuffer(content, dtype=np.uint8).reshape(count, RECORD)
    for column, classes, kind in ((0, COARSE, "coarse"), (1, FINE, "fine")):
        largest = int(records[:, column].max())
        if largest >= classes:
            raise ARCHIVE.damaged(path, f"is no CIFAR-100: {kind} labels must be in 0..{classes - 1}, got {largest}")
    images = torch.from_numpy(records[:, 2:].copy()).view(count, 3, SIZE, SIZE)
    return images, torch.from_numpy(records[:, 1].astype(np.int64))


def _class_names(path: Path, content: bytes | None) -> tuple[str, ...]:
    if content is None:  # the images are all there: numbers will do
        return tuple(str(label) for label in range(FINE))
    names = tuple(content.decode("utf-8", errors="replace").split())
    if len(names) != FINE:
        raise ARCHIVE.damaged(path, f"holds {len(names)} class names instead of {FINE}")
    return names
