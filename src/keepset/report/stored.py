"""Stored results, read into small records: what a run did as flat fields, and its accuracy matrix."""

from __future__ import annotations

import functools
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from ..metrics import NAMES, all_metrics, average_accuracies
from ..packed import BadArchiveError, members
from .fields import ABSENT, Value, flat_settings, set_options

# a result grows with its picks, to hundreds of kB, but what a record needs is at its two ends: 10,000 results of 78 kB
# are read in 1.7 s by their ends, and in 18 s as a whole (2 cores, in the file cache)
END = 2**13
PICKS, IDENTITY = b'\n "picks": ', b'\n "identity": '


@dataclass(frozen=True)
class Record:
    """One run, finished or planned. `settings` are what changes its numbers besides the seed, by short or dotted names
    (`epochs`, `options.weights`), one object for all runs that share them; `accuracy` is the matrix, in fractions."""

    folder: Path
    """Where it lies; in an archive this is a name for people to read, and nothing that can be opened."""
    settings: Mapping[str, Value]
    seed: int
    accuracy: Sequence[Sequence[float]]
    metrics: Mapping[str, float]

    def __getitem__(self, field: str) -> Value:
        return self.seed if field == "seed" else self.settings.get(field, ABSENT)

    @property
    def averages(self) -> list[float]:
        """AA_t for every t."""
        return average_accuracies(self.accuracy)


@dataclass
class Found:
    """What lies in some places; `unfinished` and `damaged` are the folders that were passed over."""

    records: list[Record]
    unfinished: list[Path]
    damaged: list[Path]


def read_records(places: Iterable[str | Path]) -> Found:
    """Every finished run in some folders, in the folders inside them, or one level further down; or anywhere in a .zip
    or .tar (.gz, .xz, .bz2) of such folders."""
    found = Found([], [], [])
    for place in {os.path.realpath(place): Path(place) for place in places}.values():
        if place.is_file():
            _read_packed(place, found)
        elif place.is_dir():
            _read_below(place, 2, found)
        else:
            raise ValueError(
                f"there is no folder or file {place}; name one that holds runs, as keepset run --out made it"
            )
    return found


def _read_packed(archive: Path, found: Found) -> None:
    """Of a file that comes twice the later one counts, as when the archive is unpacked."""
    configured: set[PurePosixPath] = set()
    records: dict[PurePosixPath, Record | None] = {}  # None: damaged
    try:
        for name, content in members(archive, _is_of_a_run):
            path = _path_inside(name)
            if path.name == "config.json":
                configured.add(path.parent)
                continue
            try:
                records[path.parent] = _record(_printed(archive, path.parent), io.BytesIO(content))
            except ValueError:
                records[path.parent] = None
    except BadArchiveError as error:
        told = "a folder of runs, or a whole .zip or .tar of them"
        raise ValueError(f"cannot read {archive} ({error}); name {told}") from None
    found.records += filter(None, records.values())
    found.damaged += [_printed(archive, path) for path, record in records.items() if record is None]
    found.unfinished += [_printed(archive, path) for path in sorted(configured - records.keys())]


def _is_of_a_run(name: str) -> bool:
    """As in a folder, nothing below a name that begins with a dot."""
    *above, last = _path_inside(name).parts or ("",)
    hidden = any(part.startswith(".") and part != ".." for part in above)
    return last in ("config.json", "result.json") and not hidden


def _path_inside(member: str) -> PurePosixPath:
    """Some archives begin their names with a slash, and some of Windows have backslashes in them."""
    return PurePosixPath(member.replace("\\", "/").lstrip("/"))


def _printed(archive: Path, inside: PurePosixPath) -> Path:
    """For people to read: nothing in it moves a terminal's cursor."""
    return archive / "".join(letter if letter.isprintable() else "?" for letter in str(inside))


def _read_below(folder: Path, levels: int, found: Found) -> None:
    try:
        found.records.append(read_record(folder))
    except FileNotFoundError:
        if (folder / "config.json").exists():
            found.unfinished.append(folder)
        elif levels:
            for inside in _folders_in(folder):
                _read_below(inside, levels - 1, found)
    except (ValueError, OSError):
        found.damaged.append(folder)


def _folders_in(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    return (folder / name for name in sorted(names))


def read_record(folder: Path) -> Record:
    """The record of one run's folder; ValueError if its result is damaged."""
    with open(f"{folder}/result.json", "rb") as file:  # noqa: PTH123, ten thousand paths are dear
        return _record(folder, file)


def _record(folder: Path, file: BinaryIO) -> Record:
    try:
        result, identity = _ends(file)
        accuracy, seed = result["accuracy"], int(identity["seed"])
        if not accuracy or any(len(row) != number for number, row in enumerate(accuracy, start=1)):
            raise ValueError(f"the accuracy matrix in {folder}/result.json is not triangular")
        if not all(0 <= share <= 1 for row in accuracy for share in row):
            raise ValueError(f"the accuracies in {folder}/result.json must be in 0..1")
        return Record(
            folder,
            _settings(identity, len(accuracy)),
            seed,
            accuracy,
            _metrics(result, accuracy),
        )
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{folder}/result.json is no result of keepset run ({error!r})") from None


def planned_record(name: str, identity: Mapping[str, Any], episodes: int) -> Record:
    """A run that is still to come, to be asked for as stored ones are."""
    return Record(Path(name), _settings(identity, episodes), int(identity["seed"]), (), {})


def _metrics(result: Mapping[str, Any], accuracy: Any) -> Mapping[str, float]:
    """As stored, where JSON has null for NaN; or else from the matrix."""
    stored = result.get("metrics", {})
    if not all(name in stored for name in NAMES):
        return all_metrics(accuracy)
    return {name: math.nan if stored[name] is None else float(stored[name]) for name in NAMES}


def _ends(file: BinaryIO) -> tuple[Any, Any]:
    """The result and its identity, without reading the picks between them if the file is laid out as usual."""
    start = end = file.read(END)
    if len(start) == END:
        file.seek(max(0, file.seek(0, os.SEEK_END) - END))
        end = file.read()
    head, _, picks = start.partition(PICKS)
    tail = end.rpartition(IDENTITY)[2]
    if picks and len(tail) < len(end):  # a line break is never inside a JSON string: these are the outermost names
        return json.loads(head.rstrip(b",\n ") + b"}"), json.loads(b'{"identity": ' + tail)["identity"]
    file.seek(0)
    whole = json.loads(file.read())
    return whole, whole["identity"]


def _settings(identity: Mapping[str, Any], episodes: int) -> Mapping[str, Value]:
    """One object for all runs that differ in their seeds alone: what is said of settings is then said of few."""
    return _shared(json.dumps({**identity, "seed": 0}), episodes)


@functools.lru_cache(2**14)
def _shared(identity: str, episodes: int) -> Mapping[str, Value]:
    return flat_settings(json.loads(identity), episodes)


# ---------------------------------------------------------------- of all


def has_variants(records: Iterable[Record]) -> bool:
    """Whether options were set in any of the runs, which a selector's name does not tell."""
    several = {id(record.settings): record.settings for record in records}
    return any(set_options(settings) for settings in several.values())


def known_fields(records: Iterable[Record]) -> list[str]:
    """Every field that some record has."""
    settings = {id(record.settings): record.settings for record in records}
    return sorted({"seed", *(name for each in settings.values() for name in each)})
