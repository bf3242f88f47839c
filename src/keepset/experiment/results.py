"""A run's folder: its config, its checkpoints and its result, each written whole or not at all."""

from __future__ import annotations

import functools
import json
import math
import platform
import subprocess
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..files import write_atomically
from ..metrics import all_metrics, average_accuracies
from .config import RunConfig, plain_values
from .finished import read_result
from .identity import hash_of, identity

NEXT, CHECKPOINT, FORMER = "checkpoint.next.safetensors", "checkpoint.safetensors", "checkpoint.former.safetensors"
TEMPORARY = ".*.*"  # what write_atomically calls a file that is not whole yet
ERROR = "error.txt"  # why a run failed, until it is finished
LEAST = 2.0**-10  # entries of a vector below this lose digits in half precision
CHECKPOINTS = (NEXT, CHECKPOINT, FORMER)  # the newest first


@dataclass
class Progress:
    """How far a run has come, in plain values; the tensors lie beside it in the checkpoint."""

    episode: int = 0
    epoch: int = 0
    """Epochs of that episode that are over."""
    accuracy: list[list[float]] = field(default_factory=list)
    picks: list[dict[str, Any]] = field(default_factory=list)
    """For each episode, class by class: what was kept and how it came about."""
    views: list[dict[str, Any]] = field(default_factory=list)
    """For each episode, view by view: the cache's entry, if it has one, and how often neighbours share a label."""
    seconds: dict[str, float] = field(default_factory=dict)
    counts: list[list[Any]] = field(default_factory=list)
    """What the buffer holds of each class, earliest first."""
    warnings: list[str] = field(default_factory=list)


class RunFolder:
    """The folder of one run, named by the hash of what changes its numbers.

    name: that hash, where it is known already: the data may have been touched since.
    """

    def __init__(self, out: str | Path, config: RunConfig, name: str = "") -> None:
        self.config, self.identity = config, identity(config)
        self.path = Path(out) / (name or hash_of(self.identity))

    def check_data(self, loaded: str) -> None:
        """Refuse other data than those that it is named by: a result would be taken for theirs."""
        self.identity["data"]["name"] = loaded
        if hash_of(self.identity) != self.path.name:
            again = "the same command does this run with what is there now"
            raise ValueError(f"the data {self.config.data.name} changed since the first run began; {again}")

    def prepare(self) -> None:
        """Make it, and take away what a write that was killed has left, and a result that is to be found again."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for leftover in [*self.path.glob(TEMPORARY), *self.path.glob(f"views/{TEMPORARY}")]:
                if leftover.is_file():
                    leftover.unlink(missing_ok=True)
            _write_json(self.path / "config.json", {"identity": self.identity, "config": plain_values(self.config)})
            if self.finished:
                self._clear()
        except OSError as error:
            raise ValueError(f"cannot write into the run's folder {self.path}: {error.strerror}") from None

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    def result(self) -> dict[str, Any]:
        return read_result(self.path)

    def _clear(self) -> None:
        for path in (self.path / "views").glob("*.safetensors"):
            path.unlink()
        for name in ("result.json", "metrics.jsonl", ERROR, *CHECKPOINTS):
            (self.path / name).unlink(missing_ok=True)

    def keep_views(self, episode: int, views: Mapping[str, Tensor], labels: Tensor) -> None:
        """The features that an episode's selection read, in half precision, counted from 1."""
        from safetensors.torch import save

        tensors = {f"view.{name}": _halved(view.cpu()).contiguous() for name, view in views.items()}
        content = save({**tensors, "labels": labels.cpu().contiguous()})
        try:
            (self.path / "views").mkdir(exist_ok=True)
        except OSError as error:
            raise ValueError(f"cannot make {self.path / 'views'}: {error.strerror}") from None
        write_atomically(self.path / "views" / f"{episode}.safetensors", lambda file: file.write_bytes(content))

    # ------------------------------------------------------------ checkpoints

    def save(self, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
        """The new checkpoint is written whole, then the old one becomes the former one: two are there at any moment."""
        from safetensors.torch import save

        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        content = save(tensors, {"progress": json.dumps(asdict(progress)), "sum": checksum(tensors)})
        write_atomically(self.path / NEXT, lambda file: file.write_bytes(content))
        if (self.path / CHECKPOINT).exists():
            (self.path / CHECKPOINT).replace(self.path / FORMER)
        (self.path / NEXT).replace(self.path / CHECKPOINT)

    def resume(self) -> tuple[Progress, dict[str, Tensor]]:
        """The newest checkpoint that can be read; a damaged one is named among the warnings."""
        warnings = []
        for name in CHECKPOINTS:
            path = self.path / name
            if not path.exists():
                continue
            try:
                progress, tensors = _read_checkpoint(path)
            except Exception as error:  # whatever a damaged file raises, the one before it may be whole
                warnings.append(f"{path} cannot be read ({error}); going on from an earlier state")
                path.unlink(missing_ok=True)  # it must not take the place of a good one
                continue
            progress.warnings = warnings
            self._forget_records_after(progress)
            return progress, tensors
        self._forget_records_after(Progress())
        return Progress(warnings=warnings), {}

    def _forget_records_after(self, progress: Progress) -> None:
        """Epochs that will be run again must not be told twice."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return
        kept = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
                over = (record["episode"] - 1, record["epoch"]) <= (progress.episode, progress.epoch)
            except (ValueError, TypeError, LookupError):  # torn by a kill, or damaged
                continue
            if over:
                kept.append(line + "\n")
        write_atomically(path, lambda file: file.write_text("".join(kept), encoding="utf-8"))

    # ------------------------------------------------------------ records

    def record(self, line: Mapping[str, Any]) -> None:
        """One line of metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise ValueError(f"cannot write {path}: {error.strerror}") from None

    def records(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def finish(self, progress: Progress) -> dict[str, Any]:
        result = {
            "accuracy": progress.accuracy,
            "AA": average_accuracies(progress.accuracy),
            "metrics": {name: json_number(value) for name, value in all_metrics(progress.accuracy).items()},
            "picks": progress.picks,
            "views": progress.views,
            "seconds": progress.seconds,
            "versions": versions(),
            "identity": self.identity,
        }
        _write_json(self.path / "result.json", result)
        for name in (*CHECKPOINTS, ERROR):
            (self.path / name).unlink(missing_ok=True)
        return read_result(self.path)


def _halved(view: Tensor) -> Tensor:
    """In half precision, unless that overflows, or leaves a vector few of its digits."""
    half = view.to(torch.float16)
    small = bool((view.abs().amax(1) < LEAST).any())
    return view.float() if small or not half.isfinite().all() else half


def _read_checkpoint(path: Path) -> tuple[Progress, dict[str, Tensor]]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        about = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118, not a mapping
    if about.get("sum", checksum(tensors)) != checksum(tensors):
        raise ValueError("its numbers are not those that were written")
    return Progress(**json.loads(about["progress"])), tensors


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """Of names and numbers: a flipped bit would go on into the result."""
    found = 0
    for name in sorted(tensors):
        found = zlib.crc32(name.encode(), found)
        found = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, found)
    return str(found)


def json_number(value: float) -> float | None:
    """JSON knows neither NaN nor infinity."""
    return value if math.isfinite(value) else None


def _write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=1, default=str) + "\n"
    write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"))


def versions() -> dict[str, str]:
    """What the numbers depend on besides the config."""
    threads = str(torch.get_num_threads())  # sums are split among them, so bits may depend on it
    found = {"python": platform.python_version(), "commit": _commit(), "threads": threads}
    for package in ("keepset", "torch", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "from source"
    return found


@functools.cache
def _commit() -> str:
    """The commit of the source tree keepset runs from, if it is one."""
    here = Path(__file__)

    def git(*words: str) -> str:
        command = ["git", "-C", str(here.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)  # the repository around us may be somebody else's
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
