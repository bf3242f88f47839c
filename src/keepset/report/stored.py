"""Stored results, read into small records: what a run did as flat fields, and its accuracy matrix."""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..checks import nearest_name
from ..metrics import NAMES, all_metrics, average_accuracies
from ..selection.options import Cover
from ..selection.table import ALIASES, PER_POINT, SELECTORS, VIEWS

Value = str | int | float

ABSENT = "–"  # the field means nothing to this run
SHORT = {"data.name": "dataset", "data.order": "order", "train.epochs": "epochs", "model.width": "width"}
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
    """What lies below some folders; `unfinished` and `damaged` are the folders that were passed over."""

    records: list[Record]
    unfinished: list[Path]
    damaged: list[Path]


def read_records(folders: Iterable[str | Path]) -> Found:
    """Every finished run in `folders`, in the folders inside them, or one level further down."""
    found = Found([], [], [])
    for folder in {os.path.realpath(folder): Path(folder) for folder in folders}.values():
        if not folder.is_dir():
            raise ValueError(f"there is no folder {folder}; name one that holds runs, as keepset run --out made it")
        _read_below(folder, 2, found)
    return found


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
    try:
        result, identity = _ends(f"{folder}/result.json")
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


def _ends(path: str) -> tuple[Any, Any]:
    """The result and its identity, without reading the picks between them if the file is laid out as usual."""
    with open(path, "rb") as file:  # noqa: PTH123, ten thousand paths are dear
        start = end = file.read(END)
        if len(start) == END:
            file.seek(max(0, os.fstat(file.fileno()).st_size - END))
            end = file.read()
        head, _, picks = start.partition(PICKS)
        tail = end.rpartition(IDENTITY)[2]
        if picks and len(tail) < len(end):  # a line break is never inside a JSON string: these are the outermost names
            return json.loads(head.rstrip(b",\n ") + b"}"), json.loads(b'{"identity": ' + tail)["identity"]
        file.seek(0)
        whole = json.loads(file.read())
    return whole, whole["identity"]


# ---------------------------------------------------------------- fields


@functools.lru_cache(2**14)
def _shared(identity: str, episodes: int) -> Mapping[str, Value]:
    """One object for all runs that differ in their seeds alone: what is said of settings is then said of few."""
    return flat_settings(json.loads(identity), episodes)


def flat_settings(identity: Mapping[str, Any], episodes: int) -> dict[str, Value]:
    """The identity of a run, less its seed, as flat fields.

    `selector` names the view of a single-view method where it is not the learner's own (`maxherding:simclr`), and
    `method` does not. Options that were left at their defaults are there with those. `variant` is the selector with all
    that was set of it.
    """
    identity = _by_name(identity)
    method, views = str(identity["selector"]), list(identity["views"])
    flat: dict[str, Value] = {f"options.{name}": value for name, value in default_options(method).items()}
    for name, value in _flat("", identity):
        flat[SHORT.get(name, name)] = value
    flat.setdefault("train.statistics", "batch")  # left unsaid by runs as they always were
    flat["method"], flat["views"], flat["episodes"] = method, "+".join(views) or "none", episodes
    flat["data.episodes"] = _sizes(identity["data"].get("episodes"))
    flat.pop("seed", None)
    flat.pop("train.stacked", None)  # a matter of rounding, like the card; a seed that is there both ways counts once
    reads, usual = "all", VIEWS
    if method in SELECTORS:
        reads, usual = SELECTORS[method].views, SELECTORS[method].run_views
    flat["selector"] = f"{method}:{views[0]}" if reads == "one" and views != ["supervised"] else method
    words = [str(flat["selector"])]
    if reads == "all" and views != list(usual):
        words.append(f"views={flat['views']}")
    words += [f"{name}={_text(value)}" for name, value in set_options(flat).items()]
    flat["variant"] = " ".join(words).replace(",", ";")  # a comma would end it where values are listed
    return flat


def _by_name(identity: Mapping[str, Any]) -> Mapping[str, Any]:
    """A selector with options that make another one of it, under that one's name: `mers` run as `mers-pure` is."""
    own = SELECTORS.get(identity["selector"])
    if own is None:
        return identity
    options = identity.get("options", {})
    for name, entry in SELECTORS.items():
        if entry.place == own.place and entry.defaults and entry.defaults.items() <= own.filled(options).items():
            rest = {option: value for option, value in options.items() if option not in entry.defaults}
            if identity["views"][1:2] == [rest.get("purity_view")]:  # which it looks at anyway
                del rest["purity_view"]
            return {**identity, "selector": name, "options": rest}
    return identity


def _text(value: Value) -> str:
    """The same for 2 and 2.0."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def variant_name(text: str) -> str:
    """A variant as runs have it: options in order, defaults left out, numbers in short.

    >>> variant_name("mers weights=equal bandwidth=1.0 metric=cosine")
    'mers bandwidth=1 weights=equal'
    """
    head, *words = re.split(r" (?=\w+=)", text.strip())
    method, colon, view = head.partition(":")
    method = ALIASES.get(method, method)
    if method not in SELECTORS:
        if not colon:  # else it may be a function of the caller's
            raise ValueError(f"unknown selector {method!r}; {nearest_name(method, SELECTORS)}")
        return text
    given = dict(word.split("=", 1) for word in words)
    views = given.pop("views", None)
    defaults = default_options(method)
    for name in given:
        if name not in defaults:
            raise ValueError(f"{method} has no option {name!r}; {nearest_name(name, [*defaults, 'views'])}")
    told = {name: _shortened(given[name]) for name in sorted(given)}
    told = {name: value for name, value in told.items() if value != _text(defaults[name])}
    if views is not None and views != "+".join(SELECTORS[method].run_views):
        told = {"views": views, **told}
    return " ".join([method + colon + view, *(f"{name}={value}" for name, value in told.items())])


def _shortened(value: str) -> str:
    try:
        return _text(float(value))
    except ValueError:
        return value


def set_options(settings: Mapping[str, Value]) -> dict[str, Value]:
    """The options of a run that are not at their defaults, by their names."""
    defaults = default_options(str(settings.get("method")))
    given = {name.removeprefix("options."): settings[name] for name in sorted(settings) if name.startswith("options.")}
    return {name: value for name, value in given.items() if value != defaults.get(name)}


def has_variants(records: Iterable[Record]) -> bool:
    """Whether options were set in any of the runs, which a selector's name does not tell."""
    several = {id(record.settings): record.settings for record in records}
    return any(set_options(settings) for settings in several.values())


def _sizes(episodes: Any) -> Value:
    """The classes of each episode where these are not equally many: as many episodes are another experiment then."""
    return plain_value(episodes) if isinstance(episodes, list) and len(set(episodes)) > 1 else "equal"


@functools.cache
def default_options(method: str) -> Mapping[str, Value]:
    """The options that a selector reads in a run, as it reads them if nothing is said; but for those in which it
    differs from the others, which its name tells."""
    if method not in SELECTORS:
        return {}
    defaults = {entry.name: entry.default for entry in fields(Cover) if entry.name not in SELECTORS[method].defaults}
    known = [name for name in SELECTORS[method].options if name in defaults]
    return {name: "none" if name in PER_POINT else plain_value(defaults[name]) for name in known}


def _flat(place: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            if place == "options.":
                yield place + name, plain_value(value)
            else:
                yield from _flat(f"{place}{name}.", value)
        else:
            yield place + name, plain_value(value)


def plain_value(value: Any) -> Value:
    """A setting as a number or a text without commas."""
    if type(value) in (str, int, float):
        return value  # type: ignore[no-any-return]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "auto"
    if isinstance(value, Mapping):
        return " ".join(f"{name}:{part}" for name, part in value.items())
    return " ".join(map(str, value))


def counted(number: Value, one: str) -> str:
    """A number with its noun.

    >>> counted(1, "epoch"), counted(10, "epoch")
    ('1 epoch', '10 epochs')
    """
    return f"{number} {one if number == 1 else one + 's'}"


def field_name(name: str, known: Iterable[str]) -> str:
    """A field by its whole name, or by the end of a dotted one where that is enough: `weights`."""
    known = list(known)
    if name in known:
        return name
    ends = [each for each in known if each.endswith(f".{name}")]
    if len(ends) > 1:
        raise ValueError(f"the field {name!r} may be {' or '.join(sorted(ends))}; write the whole name")
    if not ends:
        plain = [each for each in known if "." not in each or each.startswith("options.")]
        raise ValueError(f"unknown field {name!r}; {nearest_name(name, {*plain, *(e.split('.')[-1] for e in plain)})}")
    return ends[0]


def known_fields(records: Iterable[Record]) -> list[str]:
    """Every field that some record has."""
    settings = {id(record.settings): record.settings for record in records}
    return sorted({"seed", *(name for each in settings.values() for name in each)})
