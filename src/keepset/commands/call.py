"""What was asked of keepset select, and how its flags are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .arguments import memory_size


@dataclass(frozen=True)
class Call:
    """What was asked for, as it was typed."""

    specs: list[str]
    budget: str
    method: str
    seed: int
    flags: dict[str, Any]
    output: Path | None

    def options(self) -> dict[str, Any]:
        """The flags that were given, as the library takes them."""
        from ..files import read_array

        readers: dict[str, Callable[[Any], Any]] = {
            "weights": lambda text: _by_name(text, alone=list),
            "bandwidth": lambda text: _by_name(text, alone=float),
            "point_weights": _rule_or_array,
            "uncertainty": lambda text: read_array(text)[1],
            "start": lambda text: read_array(text)[1],
            "memory": memory_size,
        }
        given = {name: value for name, value in self.flags.items() if value is not None}
        return {name: readers[name](value) if name in readers else value for name, value in given.items()}

    def number(self) -> int:
        """The budget of a choice over all points."""
        if "=" in self.budget:
            raise ValueError(f"--budget by class needs --labels, got {self.budget!r}")
        if self.flags["point_weights"] == "purity":
            raise ValueError("--point-weights purity needs --labels; name a file of them, or weigh points by density")
        found: int = read_budget(self.budget, [])
        return found


def _by_name(text: str, alone: type) -> Any:
    """`median`, `0.3`, `2,1` or `a=2,b=1` as a string, a number (or a list of one), a list or a mapping."""
    parts = [part.strip() for part in text.split(",")]
    if all("=" in part for part in parts):
        pairs = [part.rpartition("=") for part in parts]
        return _once([(name, _number(value, text)) for name, _, value in pairs], text)
    if len(parts) > 1:
        return [_number(part, text) for part in parts]
    try:
        return float(text) if alone is float else [float(text)]
    except ValueError:
        return text


def _rule_or_array(text: str) -> Any:
    """`purity` or `density` as it is, or the array of a file."""
    from ..checks import check_choice
    from ..files import read_array
    from ..selection.options import POINT_WEIGHTS

    if "." in text:  # every file that is read has an ending
        return read_array(text)[1]
    check_choice("--point-weights", text, POINT_WEIGHTS)
    return text


def _number(part: str, whole: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise ValueError(f"{part!r} in {whole!r} must be a number") from None


def _once(pairs: list[tuple[Any, Any]], whole: str) -> dict[Any, Any]:
    """The pairs as a mapping, none of whose names stands there twice."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{whole!r} names {name!r} twice; name each once")
    return dict(pairs)


def read_budget(text: str, classes: list[Any]) -> Any:
    """`5`, or `cat=5,dog=3` with the names read as the labels are."""
    try:
        if "=" not in text:
            return int(text)
        pairs = [part.rpartition("=") for part in text.split(",")]
        kind = int if classes and isinstance(classes[0], int) else str
        numbers = [(kind(name.strip()), int(value)) for name, _, value in pairs]
    except ValueError:
        raise ValueError(f"--budget must be a whole number, or class=number,..., got {text!r}") from None
    return _once(numbers, f"--budget {text}")
