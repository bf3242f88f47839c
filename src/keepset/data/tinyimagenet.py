"""TinyImageNet: 200 classes, 500 + 50 images of 64 x 64 each. Class ids follow wnids.txt; the test images are val's.

Decoding 110,000 JPEG files takes a while, so the decoded tensors are kept in one file beside them.
"""

from __future__ import annotations

import warnings
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..files import write_atomically
from .archive import Archive
from .dataset import Dataset
from .images import check_pillow, decode

CLASSES, TRAIN_PER_CLASS, TEST = 200, 500, 10_000
SIZE = 64
CACHE = "tiny-imagenet-200.safetensors"
WNIDS, ANNOTATIONS = "wnids.txt", "val/val_annotations.txt"
TENSORS = ("train_images", "train_labels", "test_images", "test_labels")


def is_complete(folder: Path) -> bool:
    texts = all((folder / name).is_file() for name in (WNIDS, ANNOTATIONS))
    train = sum(1 for _ in folder.glob("train/*/images/*.JPEG"))
    return texts and train == CLASSES * TRAIN_PER_CLASS and sum(1 for _ in folder.glob("val/images/*.JPEG")) == TEST


ARCHIVE = Archive(
    name="tinyimagenet",
    url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    md5="90528d7ca1a48142e341f4ef8d21d0de",
    unpacked="tiny-imagenet-200",
    is_complete=is_complete,
)


def load(folder: Path) -> Dataset:
    """Read the decoded file or, where there is none, tiny-imagenet-200/ or tiny-imagenet-200.zip in `folder`."""
    cache = folder / CACHE
    source = next((path for path in (folder / ARCHIVE.unpacked, folder / ARCHIVE.file) if path.exists()), None)
    if cache.is_file():
        try:
            return _dataset(*_from_cache(cache))
        except ValueError:
            if source is None:  # otherwise it is made again
                raise
    if source is None:
        raise ARCHIVE.missing(folder)
    check_pillow()
    with _opened(source) as files:
        class_names, tensors = _decoded(files)
    _to_cache(cache, class_names, tensors)
    return _dataset(class_names, tensors)


def _dataset(class_names: tuple[str, ...], tensors: dict[str, Tensor]) -> Dataset:
    return Dataset(
        name="tinyimagenet",
        class_names=class_names,
        mean=(0.4802, 0.4480, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        padding=4,
        flip=True,
        **tensors,
    )


# ---------------------------------------------------------------- the decoded file


def _from_cache(cache: Path) -> tuple[tuple[str, ...], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(cache, "pt") as file:
            class_names = tuple((file.metadata() or {}).get("class_names", "").split())
            tensors = {name: file.get_tensor(name) for name in TENSORS}
    except (SafetensorError, OSError) as error:
        raise ARCHIVE.damaged(cache, f"is damaged ({error})") from None
    shapes = [tuple(tensors[name].shape) for name in TENSORS]
    train = CLASSES * TRAIN_PER_CLASS
    expected = [(train, 3, SIZE, SIZE), (train,), (TEST, 3, SIZE, SIZE), (TEST,)]
    types = [tensors[name].dtype for name in TENSORS]
    if len(class_names) != CLASSES or shapes != expected or types != [torch.uint8, torch.int64] * 2:
        raise ARCHIVE.damaged(cache, "holds other tensors than the decoded images")
    return class_names, tensors


def _to_cache(cache: Path, class_names: tuple[str, ...], tensors: dict[str, Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    metadata = {"class_names": " ".join(class_names)}
    try:
        write_atomically(cache, lambda path: save_file(tensors, path, metadata=metadata))
    except (ValueError, SafetensorError) as error:  # a full disk, or a folder that is for reading only
        warnings.warn(f"TinyImageNet will be decoded again next time: {error}", stacklevel=3)


# ---------------------------------------------------------------- the official files


@dataclass(frozen=True)
class _Files:
    """The files of the folder or of the archive, by their path inside tiny-imagenet-200/."""

    place: Path
    names: list[str]
    open: Callable[[str], bytes]

    def read(self, name: str) -> bytes:
        try:
            return self.open(name)
        except (OSError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ARCHIVE.damaged(self.place / name, f"is missing or cannot be read ({error})") from None


@contextmanager
def _opened(source: Path) -> Iterator[_Files]:
    if source.is_dir():
        names = [path.relative_to(source).as_posix() for path in source.glob("train/*/images/*")]
        yield _Files(source, names, lambda name: (source / name).read_bytes())
        return
    prefix = f"{ARCHIVE.unpacked}/"
    try:
        packed = zipfile.ZipFile(source)
    except (OSError, zipfile.BadZipFile) as error:
        raise ARCHIVE.damaged(source, f"is damaged ({error})") from None
    with packed:
        names = [name.removeprefix(prefix) for name in packed.namelist()]
        yield _Files(source, names, lambda name: packed.read(prefix + name))


def _decoded(files: _Files) -> tuple[tuple[str, ...], dict[str, Tensor]]:
    class_names = tuple(files.read(WNIDS).decode("utf-8", errors="replace").split())
    if len(set(class_names)) != CLASSES:
        raise ARCHIVE.damaged(files.place / WNIDS, f"names {len(set(class_names))} classes instead of {CLASSES}")
    train, test = _train(files, class_names), _test(files, class_names)
    parts = [part for pairs in (train, test) for part in (_images(files, pairs), torch.tensor([c for _, c in pairs]))]
    return class_names, dict(zip(TENSORS, parts, strict=True))


def _train(files: _Files, class_names: tuple[str, ...]) -> list[tuple[str, int]]:
    """File and class id of each training image: classes in wnids.txt's order, files in the order of their names."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(files.names):
        match name.split("/"):
            case ["train", wnid, "images", file] if file.endswith(".JPEG"):
                found[wnid].append(name)
    for wnid in class_names:
        if len(found[wnid]) != TRAIN_PER_CLASS:
            counts = f"{len(found[wnid])} images instead of {TRAIN_PER_CLASS}"
            raise ARCHIVE.damaged(files.place / "train" / wnid, f"holds {counts}")
    return [(name, label) for label, wnid in enumerate(class_names) for name in found[wnid]]


def _test(files: _Files, class_names: tuple[str, ...]) -> list[tuple[str, int]]:
    """File and class id of each validation image, in the order of val_annotations.txt."""
    labels = {wnid: label for label, wnid in enumerate(class_names)}
    lines = [line.split() for line in files.read(ANNOTATIONS).decode("utf-8", errors="replace").splitlines()]
    if len(lines) != TEST or any(len(line) < 2 or line[1] not in labels for line in lines):
        raise ARCHIVE.damaged(files.place / ANNOTATIONS, f"must name {TEST} images and a class of {WNIDS} for each")
    return [(f"val/images/{line[0]}", labels[line[1]]) for line in lines]


def _images(files: _Files, pairs: list[tuple[str, int]]) -> Tensor:
    images = torch.empty((len(pairs), 3, SIZE, SIZE), dtype=torch.uint8)
    for row, (name, _) in enumerate(pairs):
        content = files.read(name)
        try:
            image = decode(content)
        except ValueError as error:
            raise ARCHIVE.damaged(files.place / name, str(error)) from None
        if image.shape != images.shape[1:]:
            raise ARCHIVE.damaged(files.place / name, f"must be {SIZE} x {SIZE}, got {tuple(image.shape[1:])}")
        images[row] = image
    return images
