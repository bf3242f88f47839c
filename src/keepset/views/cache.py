"""A cache of views: each is made once from given images by a given recipe, whoever asks and however often.

The files of an entry, all named by its key:
KEY.safetensors (the features), KEY.about.json and KEY.checkpoint*.safetensors (while it is being made), KEY.lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..files import system_cache, write_atomically

DAMAGE = (SafetensorError, OSError, LookupError, TypeError, ValueError)  # what reading a damaged entry raises
OURS = re.compile(r"\.?([0-9a-f]{32})\.(?!lock$).+")  # with a dot in front: a write that was killed


@dataclass(frozen=True)
class Recipe:
    """How features come about: whatever changes the numbers, and nothing else."""

    encoder: str
    settings: Mapping[str, Any]
    """Plain values, as JSON knows them."""
    version: int
    """Of the encoder's code: raised whenever its numbers move."""

    def text(self) -> str:
        """The one JSON text of this recipe, whatever the order of its settings."""
        content = {"encoder": self.encoder, "settings": dict(self.settings), "version": self.version}
        try:
            return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"settings of {self.encoder} must be plain values that JSON knows: {error}") from None


@dataclass(frozen=True)
class Entry:
    """Features, (n, d) float32 on the CPU, and whether they were made now rather than found."""

    key: str
    features: Tensor
    made: bool


@dataclass(frozen=True)
class Listed:
    """What the cache knows of an entry without reading its features; what it does not know is empty or 0.

    state: whole, unfinished or damaged. size: bytes of all its files. made: ISO time, UTC; when it was last written to,
    if it is not whole. count, shape: of the images, and of one of them.
    """

    key: str
    state: str
    size: int
    made: str
    encoder: str = ""
    count: int = 0
    shape: tuple[int, ...] = ()
    d: int = 0
    epochs: int | None = None


@dataclass(frozen=True)
class Cleared:
    """How many entries were removed, the bytes that freed, and the keys that another process is just making."""

    count: int
    size: int
    held: tuple[str, ...]


def cache_folder(folder: str | Path = "") -> Path:
    """The folder given, $KEEPSET_CACHE, or a folder of ours where this system keeps its caches."""
    given = str(folder) or os.environ.get("KEEPSET_CACHE", "")
    return Path(given).expanduser() if given else system_cache() / "views"


def key_of(images: Tensor, recipe: Recipe) -> str:
    """32 hex digits from the images, (n, …) uint8 in their order, and the recipe; device and strides do not matter."""
    if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.ndim == 0 or len(images) == 0:
        kind = f"{images.dtype} of shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"images must be a uint8 tensor of at least one image, got {kind}")
    return hashlib.sha256((digest_of(images) + recipe.text()).encode()).hexdigest()[:32]


def digest_of(tensor: Tensor) -> str:
    """sha256 of a tensor's type, shape and bytes."""
    digest = hashlib.sha256(f"{tensor.dtype}{list(tensor.shape)}".encode())
    digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


class Cache:
    """Views in a folder, shared by all processes that use it."""

    def __init__(self, folder: str | Path = "") -> None:
        self.folder = cache_folder(folder)

    def get(
        self,
        images: Tensor,
        recipe: Recipe,
        make: Callable[[Path], Tensor],
        on_wait: Callable[[str], object] | None = None,
    ) -> Entry:
        """The features of `images` by `recipe`, from the cache or by `make`, which one process at a time may do.

        make: is given the path of a checkpoint, which it may write whole or not at all and go on from;
            `checkpoint.next.safetensors` and the like beside it are its own too. All are removed once it is done.
        on_wait: told once if another process is already making them.
        """
        key = key_of(images, recipe)
        path = self.folder / f"{key}.safetensors"
        # the first look needs no lock, so that a folder that is whole can be read-only
        found, _ = _look(path, len(images))
        if found is not None:
            return Entry(key, found, made=False)
        waiting = f"another process is making {recipe.encoder} of {len(images)} images; waiting for it"
        with self._locked(key, lambda: on_wait(waiting) if on_wait else None):
            found, damage = _look(path, len(images))
            if found is not None:
                return Entry(key, found, made=False)
            if damage:
                warnings.warn(f"{path} is damaged ({damage}); making it again", RuntimeWarning, stacklevel=2)
            return Entry(key, self._make(key, images, recipe, make), made=True)

    def check_writable(self, wanted: Iterable[str]) -> None:
        """Refuse a folder that cannot be written to, before any work, unless it holds all the keys that are wanted."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            if not all((self.folder / f"{key}.safetensors").exists() for key in wanted):
                raise self._refused("cannot write to", error) from None

    def entries(self) -> list[Listed]:
        """All entries, the newest first; only headers are read."""
        files: dict[str, list[Path]] = {}
        try:
            for path in self.folder.iterdir():
                if match := OURS.fullmatch(path.name):
                    files.setdefault(match[1], []).append(path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._refused("cannot read", error) from None
        listed = (self._listed(key, paths) for key, paths in files.items())
        return sorted((entry for entry in listed if entry), key=lambda entry: (entry.made, entry.key), reverse=True)

    def clear(self, keys: Collection[str] | None = None, unfinished: bool = False) -> Cleared:
        """Remove the entries named in `keys` (None: all), or of these only the unfinished ones."""
        count, size, held = 0, 0, []
        for entry in self.entries():
            if (keys is not None and entry.key not in keys) or (unfinished and entry.state != "unfinished"):
                continue
            try:
                with FileLock(self.folder / f"{entry.key}.lock", timeout=0):
                    if unfinished and (self.folder / f"{entry.key}.safetensors").exists():
                        continue  # finished since it was listed
                    for path in self._files(entry.key):
                        path.unlink()
                    count, size = count + 1, size + entry.size
            except Timeout:
                held.append(entry.key)
            except OSError as error:
                raise self._refused("cannot clear", error) from None
        return Cleared(count, size, tuple(held))

    # ------------------------------------------------------------ making

    @contextmanager
    def _locked(self, key: str, on_wait: Callable[[], object]) -> Iterator[None]:
        """Alone on one entry. The system frees the lock of a process that dies.

        The empty lock file stays: were it deleted, one process could hold the deleted file while the next one makes and
        locks a new file of the same name, and both would be alone.
        """
        lock = FileLock(self.folder / f"{key}.lock")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                on_wait()
                lock.acquire(poll_interval=0.1)
        except OSError as error:
            raise self._refused("cannot write to", error) from None
        try:
            yield
        finally:
            lock.release()

    def _make(self, key: str, images: Tensor, recipe: Recipe, make: Callable[[Path], Tensor]) -> Tensor:
        about = {"encoder": recipe.encoder, "recipe": recipe.text(), "images": json.dumps(list(images.shape))}
        try:
            # this tells the others what is being made, and finds a full disk before the work rather than after it
            self._write(f"{key}.about.json", json.dumps(about).encode())
            features = _checked(make(self.folder / f"{key}.checkpoint.safetensors"), len(images), recipe.encoder)
            about |= {"key": key, "digest": digest_of(features), "made": _iso(time.time()), **_versions()}
            self._write(f"{key}.safetensors", save({"features": features}, about))
            for path in self.folder.glob(f"{key}.checkpoint*"):
                path.unlink()
        finally:
            if not any(self.folder.glob(f"{key}.checkpoint*")):  # done, or nothing to go on from
                for path in self._files(key):
                    if path.name != f"{key}.safetensors":
                        path.unlink()
        return features

    def _write(self, name: str, content: bytes) -> None:
        try:
            write_atomically(self.folder / name, lambda file: file.write_bytes(content))
        except ValueError as error:
            raise self._refused(str(error)) from None

    def _refused(self, what: str, error: OSError | None = None) -> ValueError:
        why = f"{what} the cache in {self.folder}: {error.strerror or error}" if error else what
        return ValueError(f"{why}; make room and leave to write in {self.folder}, or set $KEEPSET_CACHE to a folder")

    # ------------------------------------------------------------ files

    def _files(self, key: str) -> list[Path]:
        """The files of an entry but for its lock, and what a killed write left of them."""
        found = [*self.folder.glob(f"{key}.*"), *self.folder.glob(f".{key}.*")]
        return [path for path in found if OURS.fullmatch(path.name)]

    def _listed(self, key: str, paths: list[Path]) -> Listed | None:
        """None if it has gone since."""
        stats = [path.stat() for path in paths if path.exists()]
        if not stats:
            return None
        size, written = sum(stat.st_size for stat in stats), _iso(max(stat.st_mtime for stat in stats))
        path = self.folder / f"{key}.safetensors"
        try:
            if path not in paths:
                about = json.loads((self.folder / f"{key}.about.json").read_text(encoding="utf-8"))
                return Listed(key, "unfinished", size, written, **_about(about))
            with safe_open(path, "pt") as file:
                about, d = file.metadata(), file.get_slice("features").get_shape()[1]
                return Listed(key, "whole", size, about["made"], d=d, **_about(about))
        except DAMAGE:
            return Listed(key, "damaged" if path in paths else "unfinished", size, written)


def _look(path: Path, count: int) -> tuple[Tensor | None, str]:
    """The features of a whole entry, or what is wrong with it; neither if there is none."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            features = file.get_tensor("features").clone()  # not a window on the file, which may be cleared
    except FileNotFoundError:
        return None, ""
    except DAMAGE as error:
        return None, str(error)
    if features.dtype != torch.float32 or features.ndim != 2 or len(features) != count:
        return None, f"it must hold {count} rows of float32, got {features.dtype} {tuple(features.shape)}"
    if metadata.get("key") != path.stem or metadata.get("digest") != digest_of(features):
        return None, "its content is not what was written"
    return features, ""


def _checked(features: object, count: int, encoder: str) -> Tensor:
    """As (n, d) float32 on the CPU; what could not be used later is not kept."""
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != count or not features.shape[1]:
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(f"{encoder} must give features of shape ({count}, d), got {shape}")
    features = features.detach().to("cpu", torch.float32).contiguous()
    if bad := int((~features.isfinite().all(dim=1)).sum()):
        raise ValueError(f"{encoder} must give finite features, got NaN or infinity in {bad} of {count} rows")
    return features


def _about(metadata: Mapping[str, str]) -> dict[str, Any]:
    """What a list shows of an entry."""
    count, *shape = json.loads(metadata["images"])
    epochs = dict(json.loads(metadata["recipe"])["settings"]).get("epochs")
    return {"encoder": metadata["encoder"], "count": count, "shape": tuple(shape), "epochs": epochs}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _versions() -> dict[str, str]:
    try:
        ours = version("keepset")
    except PackageNotFoundError:
        ours = "from source"
    return {"keepset": ours, "torch": torch.__version__}
