"""Files: written whole or not at all, arrays read from them, and where caches lie."""

from __future__ import annotations

import contextlib
import lzma
import os
import struct
import sys
import tempfile
import tokenize
import tomllib
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .checks import nearest_name

if TYPE_CHECKING:  # nothing here needs torch itself
    from torch import Tensor

    Array = np.ndarray[Any, Any] | Tensor
UNREADABLE = (
    *(ArithmeticError, AttributeError, EOFError, KeyError, OSError, RuntimeError, SyntaxError, TypeError, ValueError),
    *(lzma.LZMAError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What numpy, zipfile and json raise for files that are damaged or of another kind."""


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place; on any failure `path` is as before."""
    path = Path(path)
    check_place(path)
    try:
        # not the whole name: with what is added, a long one would be longer than file systems take
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:32]}.", suffix=path.suffix)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from None
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Refuse a path that no file can be written to, before the work that would fill it."""
    try:
        there, taken = path.parent.is_dir(), path.is_dir()
    except OSError as error:  # a name that is too long, or a folder that may not be looked into
        raise ValueError(f"cannot write {path}: {error.strerror}; name another file") from None
    if not there:
        raise ValueError(f"cannot write {path}: the folder {path.parent} does not exist; make it first")
    if taken:
        raise ValueError(f"cannot write {path}: it is a folder; name a file")


def _umask() -> int:
    """The process's mask for new files, which mkstemp passes over."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def system_cache() -> Path:
    """A folder of ours where this system keeps its caches."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "keepset"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/keepset").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "keepset"


# ---------------------------------------------------------------- arrays


def read_toml(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no TOML: {error}") from None


def read_array(spec: str | Path) -> tuple[str, Array]:
    """A name and the array of `file.npy`, `file.npz[:key]` or `file.safetensors[:key]`, memory-mapped where it can be.

    The name is the key, or the file's own without its ending. Nothing is ever unpickled.
    """
    path, key = _split(str(spec))
    _check_there(path)
    try:
        if path.suffix == ".npy":
            with np.errstate(over="raise"):  # a shape that no file can have
                return path.stem, np.lib.format.open_memmap(path, mode="r")
        if path.suffix == ".npz":
            return _from_npz(path, key)
        return _from_safetensors(path, key, lambda file, name: file.get_tensor(name))
    except UNREADABLE as error:
        known = isinstance(error, ValueError) and str(error).startswith(str(path))
        raise error if known else ValueError(_damaged(path, error)) from None


def array_shape(spec: str | Path) -> tuple[str, tuple[int, ...]]:
    """The name and the shape of what `read_array` would read, from the file's head alone."""
    path, key = _split(str(spec))
    _check_there(path)
    if path.suffix == ".npy":
        name, array = read_array(spec)  # mapped: nothing of it is read
        return name, tuple(array.shape)
    if path.suffix == ".npz":
        return _shape_in_npz(path, key)
    return _from_safetensors(path, key, lambda file, name: tuple(file.get_slice(name).get_shape()))


def _shape_in_npz(path: Path, key: str | None) -> tuple[str, tuple[int, ...]]:
    found = _key(path, key, array_names(path))
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{found}.npy") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            return (found if key else path.stem), read(file)[0]
    except UNREADABLE as error:
        raise ValueError(_damaged(path, error)) from None


def array_names(path: str | Path) -> list[str]:
    """The names of the arrays in an .npz file."""
    path = Path(path)
    _check_there(path)
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            return list(file.files)
    except UNREADABLE as error:
        raise ValueError(_damaged(path, error)) from None


def _check_there(path: Path) -> None:
    try:
        there = path.is_file()
    except OSError as error:  # a name that is too long, or a folder that may not be looked into
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    if not there:
        raise ValueError(f"no such file: {path}")


def _damaged(path: Path, error: Exception) -> str:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return f"{path} holds Python objects or is no array file; save plain numbers or strings with numpy.save"
    return f"{path} is damaged or not readable ({str(error) or type(error).__name__}); make it again"


def _split(spec: str) -> tuple[Path, str | None]:
    """`file.npz:key` -> path and key; a colon elsewhere belongs to the path."""
    for ending in (".npz", ".safetensors"):
        head, found, key = spec.rpartition(f"{ending}:")
        if found:
            return Path(head + ending), key
    path = Path(spec)
    if path.suffix not in (".npy", ".npz", ".safetensors"):
        raise ValueError(f"{spec} must end in .npy, .npz, .npz:key, .safetensors or .safetensors:key")
    return path, None


def _from_npz(path: Path, key: str | None) -> tuple[str, Array]:
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
        found = _key(path, key, list(file.files))
        return (found if key else path.stem), file[found]


def _from_safetensors(path: Path, key: str | None, read: Callable[[Any, str], Any]) -> tuple[str, Any]:
    """A name and what `read` takes of the open file under its key."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            found = _key(path, key, list(file.keys()))
            return (found if key else path.stem), read(file, found)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged or no safetensors file ({error}); make it again") from None


def _key(path: Path, key: str | None, known: list[str]) -> str:
    if key is None and len(known) == 1:
        return known[0]
    if key is None:
        raise ValueError(f"{path} holds {len(known)} arrays; name one as {path}:KEY ({', '.join(known)})")
    if key not in known:
        raise ValueError(f"{path} has no array {key!r}; {nearest_name(key, known)}")
    return key
