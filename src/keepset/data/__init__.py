"""Files to uint8 tensors to episodes: digits, CIFAR-100, TinyImageNet, a folder of images, arrays."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..checks import nearest_name
from . import arrays, cifar100, digits, folder, tinyimagenet
from .archive import data_folder
from .dataset import Dataset, Episode
from .episodes import class_order, split_classes
from .episodes import episodes as cut

__all__ = [
    "DATASETS",
    "DataSettings",
    "Dataset",
    "Entry",
    "Episode",
    "check_outside",
    "class_order",
    "content",
    "data_folder",
    "load",
    "split",
    "split_classes",
]


@dataclass(frozen=True)
class DataSettings:
    """Which data, in which class order, in how many episodes.

    `name` is one of DATASETS, a folder of images or an .npz file. `folder` is where archives lie; empty:
    $KEEPSET_DATA or the system's cache. `episodes` is a number that divides the classes or a size for each; None: the
    data set's own number. `image_size` is for a folder of images.
    """

    name: str = "digits"
    folder: str = ""
    order: str | int | tuple[int, ...] = "canonical"
    episodes: int | tuple[int, ...] | None = None
    image_size: int = 32


@dataclass(frozen=True)
class Entry:
    """How a data set is loaded from the data folder, in how many episodes it is usually cut, and a line about it."""

    load: Callable[[Path], Dataset]
    episodes: int
    summary: str


DATASETS: dict[str, Entry] = {
    "digits": Entry(lambda _: digits.load(), 5, "scikit-learn's handwritten digits: 10 classes, grey 8 x 8"),
    "cifar100": Entry(cifar100.load, 10, "100 classes, 500 + 100 colour images of 32 x 32 each"),
    "tinyimagenet": Entry(tinyimagenet.load, 10, "200 classes, 500 + 50 colour images of 64 x 64 each"),
}


def load(settings: DataSettings) -> Dataset:
    """The data set that the settings name. A name of DATASETS comes before a folder called the same."""
    if settings.name in DATASETS:
        return DATASETS[settings.name].load(data_folder(settings.folder))
    path = Path(settings.name).expanduser()
    if path.suffix == ".npz":
        return arrays.load(path)
    if path.is_dir():
        return folder.load(path, settings.image_size)
    others = "or name an existing folder of images or an .npz file"
    raise ValueError(f"unknown data set {settings.name!r}; {nearest_name(settings.name, DATASETS)}; {others}")


def content(settings: DataSettings) -> str:
    """What names the data themselves: a data set's name, or for files of the caller's a hash of what is in them."""
    if settings.name in DATASETS:
        return settings.name
    path = Path(settings.name).expanduser()
    if not path.exists():
        return settings.name
    path = path.resolve()  # "." has no name
    files = [path] if path.is_file() else folder.image_files(path)
    return f"{path.name} {_digest(path, tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files))}"


@functools.lru_cache(16)  # every run of a grid asks for it
def _digest(path: Path, files: tuple[tuple[Path, int, int], ...]) -> str:
    """Of the files' places below `path` and what is in them; each comes with its size and time, which tell it apart."""
    digest = hashlib.sha256()
    for file, *_ in files:
        digest.update(str(file.relative_to(path)).encode())
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16]


def check_outside(settings: DataSettings, out: Path) -> None:
    """Refuse to write results among the images, where their folder would be taken for a class."""
    if settings.name in DATASETS:
        return
    path = Path(settings.name).expanduser()
    if path.is_dir() and out.resolve().is_relative_to(path.resolve()):
        raise ValueError(f"out must not lie in the folder of the images, {path.resolve()}, got {out}; name another")


def split(dataset: Dataset, settings: DataSettings) -> list[Episode]:
    """The data set cut into episodes as the settings say."""
    count = settings.episodes
    if count is None and settings.name in DATASETS:
        count = DATASETS[settings.name].episodes
    if count is None:
        allowed = f"a number that divides its {dataset.classes} classes, or a list of sizes"
        raise ValueError(f"episodes must be given for {settings.name}: {allowed}")
    return cut(dataset, settings.order, count)
