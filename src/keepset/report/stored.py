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

from ..files import DAMAGE, members
from ..metrics import NAMES, all_metrics, average_accuracies
from .fields import ABSENT, Value, flat_settings, set_options

# a result grows with its picks, to hundreds of kB, but what a record needs is at its two ends: 10,000 results of 78 kB
# are read in 1.7 s by their ends, and in 18 s as a whole (2 cores, in the file cache)
END = 2**13
PICKS, IDENTITY = b'\n "picks": ', b'\n "identity": '


@dataclass(frozen=True)
class Record:
    """One finished run. `settings` are what changes its numbers besides the seed, by short or dotted names (`epochs`,
    `options.weights`), one object for all runs that share them; `accuracy` is the matrix, in fractions."""

    folder: Path
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
    or .tar of such folders, compressed or not."""
    found = Found([], [], [])
    for place in {os.path.realpath(place): Path(place) for place in places}.values():
        if place.is_file():
            _read_packed(place, found)
        elif place.is_dir():
            _read_below(place, 2, found)
        else:
            raise ValueError(f"there is no folder {place}; name one that holds runs, as keepset run --out made it")
    return found


def _read_packed(archive: Path, found: Found) -> None:
    configured, finished = set(), set()
    try:
        for name, stream in members(archive):
            folder = (archive / name).parent
            if PurePosixPath(name).name == "config.json":
                configured.add(folder)
            elif PurePosixPath(name).name == "result.json":
                finished.add(folder)
                try:
                    found.records.append(_record(folder, io.BytesIO(stream.read())))
                except ValueError:
                    found.damaged.append(folder)
    except (OSError, *DAMAGE) as error:
        told = "a folder of runs, or a whole .zip or .tar of them"
        raise ValueError(f"cannot read {archive} ({error}); name {told}") from None
    found.unfinished += sorted(configured - finished)


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
        return Record(
            folder,
            _shared(json.dumps({**identity, "seed": 0}), len(accuracy)),
            seed,
            accuracy,
            _metrics(result, accuracy),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{folder}/result.json is no result of keepset run ({error!r})") from None


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


@functools.lru_cache(2**14)
def _shared(identity: str, episodes: int) -> Mapping[str, Value]:
    """One object for all runs that differ in their seeds alone: what is said of settings is then said of few."""
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
