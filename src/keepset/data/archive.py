"""Official archives: where they lie, what to say when they do not, and their members, read or unpacked."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from ..files import system_cache
from ..packed import BadArchiveError, members


@dataclass(frozen=True)
class Archive:
    """An official archive: its address and md5, the folder it unpacks to, and how to tell that all of it is there."""

    name: str
    url: str
    md5: str
    unpacked: str
    is_complete: Callable[[Path], bool]

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2]

    def missing(self, folder: Path) -> ValueError:
        looked = f"looked for {self.unpacked}/ and {self.file}"
        return ValueError(f"no {self.name} in {folder} ({looked}); run `{self._command(folder)}`")

    def damaged(self, path: Path, what: str) -> ValueError:
        # all that belongs to the archive lies in the data folder and has a name that begins like the unpacked folder's
        inside = (place for place in (path, *path.parents) if place.name.startswith(self.unpacked))
        folder = next(inside, path).parent
        return ValueError(f"{path} {what}; delete it and run `{self._command(folder)}`")

    def _command(self, folder: Path) -> str:
        elsewhere = "" if folder == data_folder() else f" --folder {shlex.quote(str(folder))}"
        return f"keepset data get {self.name}{elsewhere}"


def data_folder(folder: str | Path = "") -> Path:
    """The folder given, $KEEPSET_DATA, or a folder of ours where this system keeps its caches."""
    given = str(folder) or os.environ.get("KEEPSET_DATA", "")
    return Path(given).expanduser() if given else system_cache()


def unpack(archive: Archive, path: Path) -> Path:
    """Unpack beside the archive: into a temporary folder, which takes its name once all is there."""
    target = path.parent / archive.unpacked
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{archive.unpacked}."))
    try:
        for name, content in members(path):
            file = temporary / "new" / _inside(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        if not archive.is_complete(temporary / "new" / archive.unpacked):
            raise archive.damaged(path, f"does not hold all of {archive.unpacked}/")
        if target.exists():  # an incomplete one
            target.rename(temporary / "old")
        (temporary / "new" / archive.unpacked).rename(target)
    except BadArchiveError as error:
        raise archive.damaged(path, f"is damaged ({error})") from None
    except OSError as error:
        raise ValueError(f"cannot unpack {path}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _inside(name: str) -> Path:
    """A member's path, which must stay below the folder that it is unpacked into."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or PureWindowsPath(name).anchor or "\\" in name:
        raise BadArchiveError(f"the member {name!r} lies outside the archive")
    return Path(*parts)
