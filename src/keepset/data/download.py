"""Official archives fetched by pooch: checked by md5, unpacked whole or not at all. Nothing is fetched unless asked."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from ..checks import nearest_name
from . import cifar100, tinyimagenet
from .archive import Archive, data_folder, unpack

Progress = Callable[[int, int], object]  # bytes so far, bytes in all (0: not known)

ARCHIVES: dict[str, Archive] = {archive.name: archive for archive in (cifar100.ARCHIVE, tinyimagenet.ARCHIVE)}
CHUNK = 1 << 16
TIMEOUT = 30  # seconds without a byte


def get(name: str, folder: str | Path = "", progress: Progress | None = None) -> Path:
    """Make sure that the data set lies unpacked in `folder`, and return where.

    What is there is used: the unpacked folder if it is complete, then the archive if its md5 is right. A download that
    was cut short starts again from the beginning.
    """
    if name not in ARCHIVES:
        raise ValueError(f"no archive of {name!r} to get; {nearest_name(name, ARCHIVES)}")
    archive, folder = ARCHIVES[name], data_folder(folder)
    if archive.is_complete(folder / archive.unpacked):
        return folder / archive.unpacked
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make the data folder {folder}: {error.strerror}") from None
    packed = folder / archive.file
    if not (packed.is_file() and _md5(packed) == archive.md5):
        _download(archive, packed, progress)
    return unpack(archive, packed)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _download(archive: Archive, packed: Path, progress: Progress | None) -> None:
    """Put the archive at `packed`; whatever lies there is replaced once the new one is whole and its md5 right."""
    try:
        import pooch
    except ImportError:
        raise ValueError(f"{archive.name} is downloaded by pooch; pip install keepset[data]") from None
    # a folder of its own with a fixed name: what a killed download left behind is gone with the next one
    partial = packed.with_name(f".{packed.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    remedy = f"try again, or put {packed.name} into {packed.parent} yourself"
    logger = pooch.get_logger()
    level = logger.level
    try:
        logger.setLevel("WARNING")  # it announces each download on the error stream
        bar = _Bar(progress) if progress else False
        downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK, timeout=TIMEOUT)
        pooch.retrieve(archive.url, f"md5:{archive.md5}", packed.name, partial, downloader=downloader)
        (partial / packed.name).replace(packed)
    except OSError as error:  # the network's errors are among these
        raise ValueError(f"cannot download {archive.url}: {error}; {remedy}") from None
    except ValueError:
        wrong = f"what {archive.url} sends does not have the md5 {archive.md5}, and was thrown away"
        raise ValueError(f"{wrong}; {remedy}") from None
    finally:
        logger.setLevel(level)
        shutil.rmtree(partial, ignore_errors=True)


class _Bar:
    """What pooch takes for a progress bar, telling a function."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.total = 0
        self.done = 0

    def update(self, size: int) -> None:
        """Pooch tells the size of a whole chunk, also for a shorter last one."""
        self.done += size
        self.progress(min(self.done, self.total) if self.total else self.done, self.total)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        """Nothing to close: the caller owns what it shows."""
