"""What several commands read from their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def named_arrays(specs: Sequence[str]) -> dict[str, Any]:
    """Name -> array of files as `files.read_array` takes them; those of one name are told apart by what was typed."""
    from ..files import read_array

    for spec in specs:
        if specs.count(spec) > 1:
            raise ValueError(f"{spec} is named twice; name each view once")
    read = [read_array(spec) for spec in specs]
    names = [name for name, _ in read]
    return {(name if names.count(name) == 1 else spec): array for spec, (name, array) in zip(specs, read, strict=True)}


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
