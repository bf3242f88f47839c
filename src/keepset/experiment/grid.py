"""A grid: settings as in a run's TOML and lists of values, which make a run for every combination."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..data import DATASETS, DataSettings, class_order, load, split, split_classes
from ..files import read_toml
from ..learning import learner
from .config import RunConfig, make_config, merged, plain_values, refuse_unknown
from .identity import run_hash

# classes and training images a class, so that a grid can be counted where the data do not lie
SIZES: Mapping[str, tuple[int, int]] = {"cifar100": (100, 500), "tinyimagenet": (200, 500)}


@dataclass(frozen=True)
class Planned:
    """A run of a grid: the name of its folder, its config, how many steps it trains, and in how many episodes."""

    name: str
    config: RunConfig
    steps: int
    episodes: int


@dataclass(frozen=True)
class Grid:
    """The runs of some files, each once, and what their `[slurm]` tables say."""

    runs: tuple[Planned, ...]
    slurm: Mapping[str, Any]


def read_grids(files: Sequence[str | Path], preset: str | None = None, flags: Mapping[str, Any] | None = None) -> Grid:
    """All combinations in all files; a preset comes before them, and flags (nested mappings) win over them.

    Names are looked at, and data that are neither CIFAR-100 nor TinyImageNet are loaded, before anything is returned.
    """
    runs: dict[str, Planned] = {}
    images: dict[DataSettings, tuple[int, ...]] = {}
    slurm: dict[str, Any] = {}
    for file in files:
        try:
            for config in _configs(Path(file), preset, flags or {}, slurm):
                if config.data not in images:
                    images[config.data] = episode_images(config.data)
                name, counts = run_hash(config), images[config.data]
                runs.setdefault(name, Planned(name, config, steps_of(config, counts), len(counts)))
        except ValueError as error:
            raise ValueError(error if str(file) in str(error) else f"{file}: {error}") from None
    return Grid(tuple(runs.values()), slurm)


def _configs(file: Path, preset: str | None, flags: Mapping[str, Any], slurm: dict[str, Any]) -> Iterator[RunConfig]:
    plain = read_toml(file)
    refuse_unknown(plain, [*(entry.name for entry in fields(RunConfig)), "view_preset", "grid", "slurm"], "")
    slurm.update(_table("slurm", plain.pop("slurm", {})))
    blocks = plain.pop("grid", {})
    for block in blocks if isinstance(blocks, list) else [blocks]:
        for chosen in combinations(_table("grid", block)):
            yield make_config(preset, None, merged(merged(plain, chosen), flags))


def _table(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a table, [{name}], got {value!r}")
    return value


def combinations(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Nested settings for each combination of a block's lists, the last list fastest; a single value stays the same.

    >>> list(combinations({"seed": [0, 1], "data": {"order": [42]}}))
    [{'seed': 0, 'data': {'order': 42}}, {'seed': 1, 'data': {'order': 42}}]
    """
    lists = dict(_flat(block))
    for key, values in lists.items():
        if not values:
            raise ValueError(f"grid.{key} must list at least one value, got none")
    for chosen in itertools.product(*lists.values()):
        nested: dict[str, Any] = {}
        for key, value in zip(lists, chosen, strict=True):
            for part in reversed(key.split(".")):
                value = {part: value}
            nested = merged(nested, value)
        yield nested


def _flat(block: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, list[Any]]]:
    """`data.order` written with or without quotes is the same."""
    for key, value in block.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{place}{key}.")
        else:
            yield place + key, value if isinstance(value, list) else [value]


# ---------------------------------------------------------------- how much it is


def episode_images(settings: DataSettings) -> tuple[int, ...]:
    """Training images of each episode; refuses an order or a number of episodes that does not suit the data."""
    if settings.name not in SIZES:
        return tuple(len(episode.train_images) for episode in split(load(settings), settings))
    classes, images = SIZES[settings.name]
    count = DATASETS[settings.name].episodes if settings.episodes is None else settings.episodes
    return tuple(images * len(group) for group in split_classes(class_order(classes, settings.order), count))


def steps_of(config: RunConfig, images: Iterable[int]) -> int:
    """Steps of all epochs of all episodes; a last short batch is dropped."""
    joint = learner(config.learner, config.learning).joint
    counts = itertools.accumulate(images) if joint else images
    return config.train.epochs * sum(count // config.train.batch for count in counts)


# ---------------------------------------------------------------- as a command

FLAGS = {  # those with a flag of their own; all others are given by --set
    "learner": "--learner",
    "selector": "--selector",
    "capacity": "--capacity",
    "seed": "--seed",
    "device": "--device",
    "train.epochs": "--epochs",
}


def command_of(config: RunConfig, out: str | Path) -> str:
    """The `keepset run` that is this run, quoted for a shell."""
    given = dict(_settings(plain_values(config)))
    usual = dict(_settings(plain_values(make_config(flags={"data": {"name": config.data.name}}))))
    words = ["keepset", "run", given.pop("data.name")]
    for key, flag in FLAGS.items():
        words += [flag, str(given.pop(key))]
    words += ["--views", ",".join(given.pop("views"))]
    for key, value in given.items():
        if key not in usual or value != usual[key]:
            words += ["--set", f"{key}={_toml(value)}"]
    return shlex.join([*words, "--out", str(out)])


def _settings(plain: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values; the value of an option may itself be a mapping, of views."""
    for key, value in plain.items():
        if isinstance(value, Mapping) and not place.startswith("options."):
            yield from _settings(value, f"{place}{key}.")
        else:
            yield place + key, value


def _toml(value: Any) -> str:
    """A value as `--set` reads it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else repr(value)
