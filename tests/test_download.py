"""Archives: fetched from a server on this machine, checked, unpacked whole or not at all."""

import dataclasses
import hashlib
import io
import logging
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from keepset.data import download
from keepset.data.archive import Archive, unpack
from keepset.packed import members

pooch = pytest.importorskip("pooch")


class Server(ThreadingHTTPServer):
    """Serves one content; `cut` bytes of its end are promised and never sent."""

    content = b""
    cut = 0
    asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/things-1.tar.gz"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        if not self.server.content:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content[: len(self.server.content) - self.server.cut])

    def log_message(self, format: str, *args: object) -> None:
        pass


def tar_of(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


FILES = {"things/a.bin": bytes(range(256)) * 1000, "things/deep/b.txt": b"b"}


def is_complete(folder: Path) -> bool:
    return all((folder.parent / name).is_file() for name in FILES) and folder.name == "things"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with the archive of `things`, which download.get knows under that name."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    with Server(("127.0.0.1", 0), Handler) as running:
        running.content = tar_of(FILES)
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        entry = Archive("things", running.url, hashlib.md5(running.content).hexdigest(), "things", is_complete)
        monkeypatch.setattr(download, "ARCHIVES", {"things": entry})
        yield running
        running.shutdown()
        thread.join()


def check_unpacked(folder: Path) -> None:
    """All files are there, and nothing temporary is left."""
    for name, content in FILES.items():
        assert (folder / name).read_bytes() == content
    assert sorted(path.name for path in folder.iterdir()) == ["things", "things-1.tar.gz"]


def test_get__downloads_checks_and_unpacks(server: Server, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    folder = tmp_path / "new" / "folder"
    assert download.get("things", folder, lambda done, total: told.append((done, total))) == folder / "things"
    check_unpacked(folder)
    size = len(server.content)
    assert told[-1] == (size, size)
    assert all(0 < done <= total == size for done, total in told)
    assert server.asked == 1


def test_get__says_nothing_itself(server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    level = pooch.get_logger().level
    download.get("things", tmp_path)
    assert capfd.readouterr() == ("", "")
    assert pooch.get_logger().level == level != logging.WARNING


def test_get__second_time_asks_nobody(server: Server, tmp_path: Path) -> None:
    download.get("things", tmp_path)
    download.get("things", tmp_path)
    assert server.asked == 1


def test_get__archive_already_there_is_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "things-1.tar.gz").write_bytes(server.content)
    download.get("things", tmp_path)
    check_unpacked(tmp_path)
    assert server.asked == 0


def test_get__complete_folder_without_archive_is_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "things" / "deep").mkdir(parents=True)
    for name in FILES:
        (tmp_path / name).write_bytes(b"mine")
    assert download.get("things", tmp_path) == tmp_path / "things"
    assert (tmp_path / "things" / "a.bin").read_bytes() == b"mine"
    assert server.asked == 0


def test_get__incomplete_folder_is_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "a.bin").write_bytes(b"half")
    download.get("things", tmp_path)
    check_unpacked(tmp_path)


def test_get__archive_with_a_wrong_md5_is_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "things-1.tar.gz").write_bytes(server.content[:100])
    download.get("things", tmp_path)
    check_unpacked(tmp_path)
    assert server.asked == 1


def test_get__wrong_md5_from_the_server_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.content = tar_of({"things/a.bin": b"other"})
    with pytest.raises(ValueError, match="does not have the md5") as caught:
        download.get("things", tmp_path)
    assert f"put things-1.tar.gz into {tmp_path} yourself" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_get__what_was_there_survives_a_failed_download(server: Server, tmp_path: Path) -> None:
    (tmp_path / "things-1.tar.gz").write_bytes(b"old")
    server.content = b""
    with pytest.raises(ValueError, match=r"cannot download http://127.*404"):
        download.get("things", tmp_path)
    assert (tmp_path / "things-1.tar.gz").read_bytes() == b"old"


def test_get__interrupted_transfer_starts_again_cleanly(server: Server, tmp_path: Path) -> None:
    server.cut = 500
    with pytest.raises(ValueError, match=r"cannot download|does not have the md5"):
        download.get("things", tmp_path)
    assert list(tmp_path.iterdir()) == []
    server.cut = 0
    download.get("things", tmp_path)
    check_unpacked(tmp_path)


def test_get__what_a_killed_download_left_is_swept_away(server: Server, tmp_path: Path) -> None:
    partial = tmp_path / ".things-1.tar.gz.partial"
    partial.mkdir()
    (partial / "tmpabc").write_bytes(b"half")
    download.get("things", tmp_path)
    check_unpacked(tmp_path)


def test_get__no_server(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = dataclasses.replace(download.ARCHIVES["things"], url="http://127.0.0.1:9/things-1.tar.gz")
    monkeypatch.setattr(download, "ARCHIVES", {"things": entry})
    with pytest.raises(ValueError, match=r"cannot download http://127\.0\.0\.1:9/"):
        download.get("things", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_get__unknown_name_and_unusable_folder(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no archive of 'thing' to get; did you mean 'things'"):
        download.get("thing", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot make the data folder"):
        download.get("things", tmp_path / "file" / "below")


def test_get__without_pooch(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ValueError, match=r"pip install keepset\[data\]"):
        download.get("things", tmp_path)


def test_archives__official_ones() -> None:
    files = {name: (entry.file, entry.md5) for name, entry in download.ARCHIVES.items()}
    assert files == {
        "cifar100": ("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
        "tinyimagenet": ("tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),
    }


# ---------------------------------------------------------------- unpacking


def entry_for(name: str) -> Archive:
    return Archive("things", f"http://127.0.0.1/{name}", "", "things", is_complete)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../outside", "things/../../outside", "C:/outside", "things\\..\\..\\outside", ""]
)
def test_unpack__members_outside_are_refused(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    packed = inner / "things-1.tar.gz"
    packed.write_bytes(tar_of({**FILES, name: b"bad"}))
    with pytest.raises(ValueError, match=r"things-1\.tar\.gz is damaged .*lies outside the archive"):
        unpack(entry_for(packed.name), packed)
    assert [path.name for path in inner.iterdir()] == [packed.name]
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]


def test_unpack__links_are_refused(tmp_path: Path) -> None:
    packed = tmp_path / "things-1.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        member = tarfile.TarInfo("things/link")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(ValueError, match=r"things/link is a link or a device"):
        unpack(entry_for(packed.name), packed)


def test_unpack__zip(tmp_path: Path) -> None:
    packed = tmp_path / "things-1.zip"
    with zipfile.ZipFile(packed, "w") as file:
        file.mkdir("things")
        for name, content in FILES.items():
            file.writestr(name, content)
    assert [name for name, _ in members(packed)] == list(FILES)
    assert unpack(entry_for(packed.name), packed) == tmp_path / "things"
    assert (tmp_path / "things" / "deep" / "b.txt").read_bytes() == b"b"


@pytest.mark.parametrize("kept", [0, 10, 200])
def test_unpack__truncated_archive_leaves_the_old_folder(tmp_path: Path, kept: int) -> None:
    (tmp_path / "things").mkdir()
    packed = tmp_path / "things-1.tar.gz"
    packed.write_bytes(tar_of(FILES)[:kept])
    with pytest.raises(
        ValueError, match=r"things-1\.tar\.gz is damaged .*; delete it and run `keepset data get things --folder "
    ):
        unpack(entry_for(packed.name), packed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["things", packed.name]


def test_unpack__foreign_archive(tmp_path: Path) -> None:
    packed = tmp_path / "things-1.tar.gz"
    packed.write_bytes(tar_of({"others/a.bin": b""}))
    with pytest.raises(ValueError, match=r"does not hold all of things/"):
        unpack(entry_for(packed.name), packed)
    assert [path.name for path in tmp_path.iterdir()] == [packed.name]


def test_unpack__full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    packed = tmp_path / "things-1.tar.gz"
    packed.write_bytes(tar_of(FILES))
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ValueError, match=r"cannot unpack .*things-1\.tar\.gz: No space left on device"):
        unpack(entry_for(packed.name), packed)
    assert [path.name for path in tmp_path.iterdir()] == [packed.name]
