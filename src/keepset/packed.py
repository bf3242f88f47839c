"""What a .zip or .tar holds, read to its end: whatever is wrong with it is one error."""

from __future__ import annotations

import gzip
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Literal

LARGEST = 2**28  # bytes of a file in it; a header can claim any number
ZIP = (b"PK\3\4", b"PK\5\6")  # the second is an empty one
END_OF_ZIP = 22  # bytes of its last record, before a comment
TOLD_ELSEWHERE = 2**16 - 1  # its count of files, if there are too many to be told there
TarMode = Literal["r:", "r:gz", "r:xz", "r:bz2"]
COMPRESSED: dict[bytes, TarMode] = {b"\x1f\x8b": "r:gz", b"\xfd7zXZ\0": "r:xz", b"BZh": "r:bz2"}
DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, gzip.BadGzipFile),
    *(EOFError, KeyError, MemoryError, OSError, OverflowError, RuntimeError, ValueError),
)
"""What the standard library raises for archives that are damaged, cut off or packed in a way it does not know."""


class BadArchiveError(Exception):
    """Why an archive cannot be read, without its name."""


def members(path: Path, wanted: Callable[[str], bool] = lambda _: True) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file that is wanted, in the archive's order; a name may come twice.

    The kind is told by the first bytes, not by the name. Hard links, by which a tar says that two files are one, are
    followed; other links and devices are refused if they are wanted.
    """
    try:
        with path.open("rb") as file:
            start = file.read(8)
        yield from _in_zip(path, wanted) if start.startswith(ZIP) else _in_tar(path, start, wanted)
    except DAMAGE as error:
        raise BadArchiveError(getattr(error, "strerror", None) or str(error) or type(error).__name__) from None


def _in_zip(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as packed:
        if _count_at_end(path, len(packed.comment)) not in (len(packed.infolist()) % 2**16, TOLD_ELSEWHERE):
            raise BadArchiveError("it is damaged: its list of files is not as long as it says")
        for entry in packed.infolist():
            if entry.is_dir() or not wanted(entry.filename):
                continue
            _check_size(entry.filename, entry.file_size)
            if entry.flag_bits & 1:
                raise BadArchiveError("it has a password; pack it without one")
            yield entry.filename, packed.read(entry)


def _count_at_end(path: Path, comment: int) -> int:
    """How many files a zip says it has, in the last record of it; zipfile reads its list of them unchecked."""
    with path.open("rb") as file:
        file.seek(-END_OF_ZIP - comment, os.SEEK_END)
        file.seek(10, os.SEEK_CUR)
        return int.from_bytes(file.read(2), "little")


def _in_tar(path: Path, start: bytes, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    mode: TarMode = next((mode for magic, mode in COMPRESSED.items() if start.startswith(magic)), "r:")
    try:
        tar = tarfile.open(path, mode)  # noqa: SIM115
    except tarfile.ReadError:
        kinds = "no .zip, and no .tar, .tar.gz, .tar.xz or .tar.bz2"
        raise BadArchiveError(f"it is {kinds}" if mode == "r:" else "it is damaged or breaks off") from None
    with tar:
        for member in tar:
            if member.isdir() or not wanted(member.name):
                continue
            _check_size(member.name, member.size)
            opened = tar.extractfile(member) if member.isreg() or member.islnk() else None
            if opened is None:
                raise BadArchiveError(f"{member.name} is a link or a device")
            with opened:
                yield member.name, opened.read()
        _check_end(tar)


def _check_size(name: str, size: int) -> None:
    if size > LARGEST:
        raise BadArchiveError(f"{name} has {size} bytes, and more than {LARGEST} are not read")


def _check_end(tar: tarfile.TarFile) -> None:
    """That nothing but zeros follows: tarfile takes a damaged header for the end, and reads no check sum behind it."""
    file: IO[bytes] = tar.fileobj  # type: ignore[assignment]
    file.seek(tar.offset)
    block = rest = file.read(tarfile.BLOCKSIZE)
    while rest and not any(rest):
        rest = file.read(2**16)
    if rest or len(block) < tarfile.BLOCKSIZE:
        raise BadArchiveError("it is damaged or breaks off, or others follow it in one file")
