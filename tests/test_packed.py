"""Archives: read whole, or refused with the reason."""

import io
import os
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from keepset import packed
from keepset.packed import BadArchiveError, members

FILES = [(f"folder/{number}.txt", bytes([number]) * 700 * (number + 1)) for number in range(6)]
MODES = {"tar": "w:", "tar.gz": "w:gz", "tar.xz": "w:xz", "tar.bz2": "w:bz2"}
WHY = "damaged or breaks off"


def archive(path: Path, kind: str = "tar") -> Path:
    """Of FILES, with a folder as an entry of its own."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.mkdir("folder")
            for name, content in FILES:
                file.writestr(name, content)
        return path
    with tarfile.open(path, MODES[kind]) as tar:  # type: ignore[call-overload]
        tar.addfile(directory("folder"))
        for name, content in FILES:
            tar.addfile(entry(name, len(content)), io.BytesIO(content))
    return path


def entry(name: str, size: int) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.size = size
    return found


def directory(name: str) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type = tarfile.DIRTYPE
    return found


@pytest.mark.parametrize("kind", ["zip", *MODES])
@pytest.mark.parametrize("name", ["a.zip", "A.TAR.XZ", "latest"])
def test_members__whatever_the_file_is_called(kind: str, name: str, tmp_path: Path) -> None:
    path = archive(tmp_path / name, kind)
    assert list(members(path)) == FILES
    assert list(members(path, lambda name: name.endswith("3.txt"))) == [FILES[3]]


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_members__of_an_empty_archive_there_are_none(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    zipfile.ZipFile(path, "w").close() if kind == "zip" else tarfile.open(path, "w:").close()
    assert list(members(path)) == []


@pytest.mark.parametrize("kind", ["zip", *MODES])
def test_members__wherever_it_was_cut_off(kind: str, tmp_path: Path) -> None:
    whole = archive(tmp_path / "whole", kind).read_bytes()
    end = len(whole) if kind != "tar" else whole.rindex(bytes([5]) * 512) + 512  # a tar ends in zeros
    path = tmp_path / "cut"
    for length in sorted({*range(0, end, 512), *random.Random(0).sample(range(end), 40), end - 1}):
        path.write_bytes(whole[:length])
        with pytest.raises(BadArchiveError):
            list(members(path))


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.xz", "tar.bz2"])
def test_members__with_any_bit_flipped_they_are_refused_or_the_same(kind: str, tmp_path: Path) -> None:
    whole = archive(tmp_path / "whole", kind).read_bytes()
    path, drawn, refused = tmp_path / "flipped", random.Random(0), 0
    for place in drawn.sample(range(len(whole)), 150):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << drawn.randrange(8)
        path.write_bytes(flipped)
        try:
            contents = [content for _, content in members(path)]  # a zip's names have no check sum
        except BadArchiveError:
            refused += 1
        else:
            assert contents == [content for _, content in FILES]
    assert refused > 50


@pytest.mark.parametrize("kind", MODES)
def test_members__of_archives_put_end_to_end_are_refused(kind: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "whole", kind)
    path.write_bytes(2 * path.read_bytes())
    with pytest.raises(BadArchiveError, match="others follow it in one file"):
        list(members(path))


@pytest.mark.parametrize("header", [bytes(512), b"x" * 512])
def test_members__behind_a_header_that_was_overwritten_are_not_lost_unremarked(header: bytes, tmp_path: Path) -> None:
    path = archive(tmp_path / "whole")
    whole = path.read_bytes()
    place = whole.index(b"folder/3.txt")
    path.write_bytes(whole[:place] + header + whole[place + 512 :])
    with pytest.raises(BadArchiveError, match=WHY):
        list(members(path))


def test_members__a_size_that_no_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "huge"
    path.write_bytes(entry("big", 10**15).tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(BadArchiveError, match=r"big has 1000000000000000 bytes, and more than 268435456 are not read"):
        list(members(path))
    monkeypatch.setattr(packed, "LARGEST", 4000)
    with pytest.raises(BadArchiveError, match=r"folder/5\.txt has 4200 bytes, and more than 4000"):
        list(members(archive(tmp_path / "zip", "zip")))


def test_members__hard_links_are_followed_and_others_only_refused_if_wanted(tmp_path: Path) -> None:
    path = tmp_path / "links"
    with tarfile.open(path, "w") as tar:
        tar.addfile(entry("first", 3), io.BytesIO(b"abc"))
        for name, kind in (("same", tarfile.LNKTYPE), ("latest", tarfile.SYMTYPE), ("device", tarfile.CHRTYPE)):
            link = entry(name, 0)
            link.type, link.linkname = kind, "first"
            tar.addfile(link)
        tar.addfile(entry("last", 1), io.BytesIO(b"d"))
    wanted = ["first", "same", "last"]
    assert list(members(path, wanted.__contains__)) == [("first", b"abc"), ("same", b"abc"), ("last", b"d")]
    for name in ("latest", "device"):
        with pytest.raises(BadArchiveError, match=f"{name} is a link or a device"):
            list(members(path, name.__eq__))


def test_members__with_a_password(tmp_path: Path) -> None:
    path = archive(tmp_path / "locked", "zip")
    whole = bytearray(path.read_bytes())
    for magic, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # the flags of every entry, in both of its headers
        start = whole.find(magic)
        while start >= 0:
            whole[start + place] |= 1
            start = whole.find(magic, start + 1)
    path.write_bytes(whole)
    with pytest.raises(BadArchiveError, match="it has a password; pack it without one"):
        list(members(path))


@pytest.mark.parametrize("content", [b"", b"{}", b"\x28\xb5\x2f\xfd" + bytes(600), b"PK"])
def test_members__of_another_kind(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.tar"
    path.write_bytes(content)
    with pytest.raises(BadArchiveError, match=r"it is no \.zip, and no \.tar, \.tar\.gz, \.tar\.xz or \.tar\.bz2"):
        list(members(path))


def test_members__of_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(BadArchiveError, match=os.strerror(2)):
        list(members(tmp_path / "none"))
