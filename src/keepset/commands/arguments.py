"""What several commands read from their arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

Found = TypeVar("Found")
SHARDS = (".npy", ".parquet")


def named_arrays(specs: Sequence[str]) -> dict[str, Any]:
    """Name -> array of files as `files.read_array` takes them; those of one name are told apart by what was typed."""
    from ..files import read_array

    return _by_name(specs, read_array)


def named_shapes(specs: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the same arrays, which are not read."""
    from ..files import array_shape

    return _by_name(specs, array_shape)


def named_shards(specs: Sequence[str]) -> dict[str, str | list[str]]:
    """Name -> path, or the paths of the shards, in order, where a folder or a pattern stands for them."""
    return _by_name(specs, _shards)


def is_sharded(spec: str) -> bool:
    """Whether it stands for several files: a folder, or a pattern that is no file itself."""
    path = Path(spec)
    try:
        return path.is_dir() or (any(sign in spec for sign in "*?[") and not path.exists())
    except OSError:  # a name that is too long, say: whoever reads it tells
        return False


def _shards(spec: str) -> tuple[str, str | list[str]]:
    path = Path(spec)
    if not is_sharded(spec):
        return path.stem, spec
    if path.is_dir():
        name, found = path.resolve().name, path.iterdir()
    else:
        name = re.split(r"[*?\[]", path.name)[0].rstrip("-_.") or spec
        found = Path(path.anchor).glob(str(path.relative_to(path.anchor)))
    shards = sorted(str(file) for file in found if file.suffix in SHARDS)
    if not shards:
        raise ValueError(f"{spec} finds no {' or '.join(SHARDS)} file; name a folder, or a pattern, of shards")
    return name, shards


def _by_name(specs: Sequence[str], read: Callable[[str], tuple[str, Found]]) -> dict[str, Found]:
    for spec in specs:
        if specs.count(spec) > 1:
            raise ValueError(f"{spec} is named twice; name each view once")
    found = [read(spec) for spec in specs]
    names = [name for name, _ in found]
    return {(name if names.count(name) == 1 else spec): value for spec, (name, value) in zip(specs, found, strict=True)}


def memory_size(text: str | None) -> Any:
    """`auto`, `4000000000`, `4GB` or `500 MB`, in bytes."""
    if text is None or text == "auto":
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]?)B?\s*", text, re.IGNORECASE)
    size = float(found[1]) * 1000 ** ("kmgt".find(found[2].lower()) + 1 if found[2] else 0) if found else 0.0
    if not 0.5 < size < math.inf:
        raise ValueError(f"--memory must be auto or a number of bytes, such as 4GB or 500MB, got {text!r}")
    return round(size)


def nested_settings(flags: Mapping[str, Any], others: Sequence[str]) -> dict[str, Any]:
    """Flags that were given, by the names of their settings, and `key=value` texts, as nested mappings."""
    given = dict(flags)
    for text in others:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set must be key=value, got {text!r}")
        given[key] = toml_value(value)
    nested: dict[str, Any] = {}
    for key, value in given.items():
        if value is not None:
            *groups, last = key.split(".")
            place = nested
            for group in groups:
                place = place.setdefault(group, {})
                if not isinstance(place, dict):
                    raise ValueError(f"unknown setting {key!r}: {group} is a value and has no parts")
            place[last] = value
    return nested


def toml_value(text: str) -> Any:
    """As TOML reads it, or else a plain word."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def whole_numbers(text: str | None) -> Any:
    """`10`, `4,3,3` or a word."""
    if text is None:
        return None
    parts = text.split(",")
    if all(part.strip().isdigit() for part in parts):
        return int(text) if len(parts) == 1 else [int(part) for part in parts]
    return text


def listed(text: str | None) -> list[str] | None:
    """`a, b` -> its parts."""
    return None if text is None else [part.strip() for part in text.split(",")]
