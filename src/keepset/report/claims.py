"""Claims, written down in a file before or after the runs, and what an interval says to each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..checks import nearest_name, positive_number
from ..files import read_toml
from ..metrics import NAMES
from .axes import SELECTED, comparable
from .fields import SHORT, Value, plain_value, variant_name
from .sheets import said
from .statistics import Paired
from .tables import LOWER_IS_BETTER, metric_name

HOLDS, DOES_NOT, NOT_SHOWN, NOT_TESTED = "holds", "does not hold", "not shown", "not yet tested"
VERDICTS = (HOLDS, DOES_NOT, NOT_SHOWN, NOT_TESTED)


@dataclass(frozen=True)
class Claim:
    """`of` is better than `against` in each of the metrics; or, with `within`, no more points apart than that."""

    says: str
    of: Mapping[str, Value]
    """Fields and their values: which runs these are."""
    against: Mapping[str, Value]
    metrics: tuple[str, ...] = ("FAA", "AAA")
    where: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """Only runs like this, and those to which the field means nothing."""
    within: float | None = None

    @property
    def title(self) -> str:
        return f"{_runs_told(self.of)} less {_runs_told(self.against)}"

    def verdict(self, metric: str, test: Paired) -> str:
        """By the 95 % interval alone."""
        if not test.pairs:
            return NOT_TESTED
        sign = -1 if metric in LOWER_IS_BETTER else 1
        low, high = sorted((sign * test.low, sign * test.high))
        if self.within is None:
            holds, does_not = low > 0, high < 0
        else:
            holds, does_not = -self.within < low and high < self.within, low > self.within or high < -self.within
        return HOLDS if holds else DOES_NOT if does_not else NOT_SHOWN


def _runs_told(named: Mapping[str, Value]) -> str:
    return ", ".join(said(name, value) for name, value in named.items())


# ---------------------------------------------------------------- the file


def read_claims(path: str | Path) -> list[Claim]:
    """The claims of a TOML file: a table `[[claim]]` for each."""
    plain = read_toml(path)
    if unknown := [name for name in plain if name != "claim"]:
        raise ValueError(f"{path}: unknown table {unknown[0]!r}; {nearest_name(unknown[0], ['claim'])}")
    found = plain.get("claim", [])
    if not isinstance(found, list) or not found or not all(isinstance(each, Mapping) for each in found):
        raise ValueError(f"{path}: there is no claim; begin each with [[claim]]")
    claims = []
    for number, each in enumerate(found, start=1):
        try:
            claims.append(_claim(each))
        except ValueError as error:
            raise ValueError(f"{path}, claim {number}: {error}") from None
    return claims


def _claim(plain: Mapping[str, Any]) -> Claim:
    known = [entry.name for entry in fields(Claim)]
    for name in plain:
        if name not in known:
            raise ValueError(f"unknown entry {name!r}; {nearest_name(name, known)}")
    for name in ("says", "of", "against"):
        if name not in plain:
            raise ValueError(f"{name} is missing")
    if not isinstance(plain["says"], str) or not plain["says"].strip():
        raise ValueError(f"says must be the claim in words, got {plain['says']!r}")
    metrics = plain.get("metrics", Claim.metrics)
    if not isinstance(metrics, (list, tuple)) or not metrics or not all(isinstance(name, str) for name in metrics):
        raise ValueError(f"metrics must be a list of {', '.join(NAMES)}, got {metrics!r}")
    of, against = _runs("of", plain["of"]), _runs("against", plain["against"])
    if sorted(of) != sorted(against):
        told = f"of {', '.join(of)} and against {', '.join(against)}"
        raise ValueError(f"of and against must name the same fields, got {told}")
    if all(comparable(name, of[name]) == comparable(name, against[name]) for name in of):
        raise ValueError("of and against are the same runs; let them differ in something")
    return Claim(
        says=" ".join(plain["says"].split()),
        of=of,
        against=against,
        metrics=tuple(dict.fromkeys(map(metric_name, metrics))),
        where=_fields("where", plain.get("where", {})),
        within=positive_number("within", plain["within"]) if "within" in plain else None,
    )


def _runs(name: str, given: Any) -> Mapping[str, Value]:
    """A variant of a selector, or several fields with a value each."""
    found = {}
    for field_of, values in _fields(name, {"variant": given} if isinstance(given, str) else given).items():
        if len(values) != 1:
            raise ValueError(f"{name}.{field_of} must be one value, got {list(values)}; where takes lists")
        found[field_of] = variant_name(str(values[0])) if field_of in SELECTED else values[0]
    if not found:
        raise ValueError(f"{name} must name at least one field")
    return found


def _fields(place: str, given: Any) -> dict[str, tuple[Value, ...]]:
    """Fields and their values; `"simclr.epochs" = 50` written with or without quotes is the same."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{place} must be a table of fields and values, got {given!r}")
    found: dict[str, tuple[Value, ...]] = {}
    for key, value in given.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": values for inner, values in _fields(f"{place}.{key}", value).items()}
            continue
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(each, (str, int, float)) for each in values):
            raise ValueError(f"{place}.{key} must be a text, a number, true or false, got {value!r}")
        found[key] = tuple(map(plain_value, values))
    return {SHORT.get(name, name): values for name, values in found.items()}
