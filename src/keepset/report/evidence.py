"""What stored runs say to claims: the pairs of runs that each is about, and their differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .axes import DERIVED, SELECTED, comparable, in_order, of_selection
from .claims import VERDICTS, Claim
from .fields import ABSENT, Value, field_name
from .paper import departures, printed_result
from .statistics import Paired, paired_test
from .stored import Record, known_fields

PLACES = ("dataset", "learner", "order", "capacity", "episodes", "epochs", "width", "quota")
"""What rows are told apart by."""
PARTS = ("options", "learning", "simclr", "vicreg", "dinov2")
"""Of a run's settings, those that not every run has."""
Pair = tuple[Record, Record]


@dataclass(frozen=True)
class Row:
    """The pairs of one place, or of all."""

    place: Mapping[str, Value]
    pairs: tuple[Pair, ...]
    tests: Mapping[str, Paired]
    """By metric."""
    printed: Mapping[str, float]
    """By metric: the paper's difference, over the pairs that it compares too; NaN if it compares none."""


@dataclass(frozen=True)
class Evidence:
    """What the runs say to a claim: a row for each place where there are pairs, and all of them together."""

    claim: Claim
    rows: tuple[Row, ...]
    together: Row

    @property
    def verdicts(self) -> dict[str, str]:
        return {name: self.claim.verdict(name, test) for name, test in self.together.tests.items()}

    @property
    def sentence(self) -> str:
        """`holds in FAA and AAA; not shown in forgetting`; without the metrics where all fare alike."""
        by_metric = self.verdicts
        found = {each: [name for name in by_metric if by_metric[name] == each] for each in VERDICTS}
        found = {each: names for each, names in found.items() if names}
        if len(found) == 1:
            return next(iter(found))
        return "; ".join(f"{each} in {listed(names)}" for each, names in found.items())


def listed(words: Sequence[str]) -> str:
    """
    >>> listed(["FAA"]), listed(["FAA", "AAA", "stability"])
    ('FAA', 'FAA, AAA and stability')
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


# ---------------------------------------------------------------- rows


def evidence(claims: Iterable[Claim], records: Sequence[Record], known: Sequence[str] | None = None) -> list[Evidence]:
    """What the runs say to each claim; known: fields that there are, if these are chosen from more runs."""
    known = known_fields(records) if known is None else known
    return [_of_claim(claim, records, known) for claim in claims]


def _of_claim(claim: Claim, records: Sequence[Record], known: Sequence[str]) -> Evidence:
    try:
        found = _by_place(_partners(claim, records, known), claim.of)
    except ValueError as error:
        raise ValueError(f"claim {claim.says!r}: {error}") from None
    keys = in_order(found, PLACES, {})
    rows = [_row(claim, dict(zip(PLACES, key, strict=True)), _pairs(found[key])) for key in keys]
    return Evidence(claim, tuple(rows), _row(claim, {}, [pair for row in rows for pair in row.pairs]))


def _row(claim: Claim, place: Mapping[str, Value], pairs: Sequence[Pair]) -> Row:
    return Row(
        place,
        tuple(pairs),
        {metric: _test(metric, pairs) for metric in claim.metrics},
        {metric: _printed(metric, pairs) for metric in claim.metrics},
    )


def _test(metric: str, pairs: Sequence[Pair]) -> Paired:
    values = [tuple(100 * record.metrics[metric] for record in pair) for pair in pairs]
    values = [both for both in values if not any(map(math.isnan, both))]
    return paired_test([mine for mine, _ in values], [other for _, other in values])


def _printed(metric: str, pairs: Sequence[Pair]) -> float:
    """A cell of its own the paper does not compare with itself, nor its protocol with another."""
    alike = [pair for pair in pairs if departures(pair[0].settings) == departures(pair[1].settings)]
    found = [[printed_result(metric, record.settings) for record in pair] for pair in alike]
    differences = [a.mean - b.mean for a, b in found if a is not None and b is not None and a is not b]
    return sum(differences) / len(differences) if differences else math.nan


# ---------------------------------------------------------------- pairs


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds alone."""

    settings: Mapping[str, Value]
    by_seed: Mapping[int, Record]


Partners = tuple[Group, Group]


def _pairs(partners: Partners) -> list[Pair]:
    one, other = (group.by_seed for group in partners)
    return [(one[seed], other[seed]) for seed in sorted(one.keys() & other.keys())]


def _by_place(partners: Iterable[Partners], named: Iterable[str]) -> dict[tuple[Value, ...], Partners]:
    """Refused where there are several in one place: they would be averaged unawares, or count twice. What a claim names
    is no place of its pairs."""
    found: dict[tuple[Value, ...], Partners] = {}
    for both in partners:
        settings = {**both[0].settings, **dict.fromkeys(named, ABSENT)}
        first = found.setdefault(tuple(settings.get(name, ABSENT) for name in PLACES), both)
        if first is not both:
            told = [each for place in (0, 1) for each in _differences(first[place].settings, both[place].settings)]
            raise ValueError(f"its runs differ in {', '.join(dict.fromkeys(told))}; choose among them with where")
    return found


def _differences(one: Mapping[str, Value], other: Mapping[str, Value]) -> list[str]:
    pairs = {name: (one.get(name, ABSENT), other.get(name, ABSENT)) for name in sorted(one.keys() | other.keys())}
    differing = {name: both for name, both in pairs.items() if both[0] != both[1] and name not in DERIVED}
    if one["selector"] != other["selector"]:  # whose options are others too
        differing = {"selector": pairs["selector"]}
    return [f"{name} ({a}, {b})" for name, (a, b) in differing.items()]


def _partners(claim: Claim, records: Sequence[Record], known: Sequence[str]) -> list[Partners]:
    """Groups that agree in all that the claim does not name, or that has no meaning for one of them, and have seeds in
    common. Where it names selectors, their views and options are free too."""
    named = {_field(name, known) for name in claim.of}
    free = named | {"selector", "variant"}  # which follow from the others
    if not named.isdisjoint(SELECTED):
        free |= set(filter(of_selection, known))
    where = {_field(name, known): values for name, values in claim.where.items()}
    records = [record for record in records if _like(record, where, or_absent=True)]
    mine, others = (
        _by_settings(
            record for record in records if _like(record, {_field(name, known): (v,) for name, v in side.items()})
        )
        for side in (claim.of, claim.against)
    )
    return [(one, other) for one in mine for other in others if _agree(one, other, free) and _pairs((one, other))]


def _field(name: str, known: Sequence[str]) -> str:
    """Its whole name. Of a part that no run has, such as SimCLR where none has a view of it, no field is known."""
    part = name.partition(".")[0]
    if part != name and part in PARTS and not any(each.startswith(f"{part}.") for each in known):
        return name
    return field_name(name, known)


def _like(record: Record, wanted: Mapping[str, Sequence[Value]], or_absent: bool = False) -> bool:
    return all(
        (or_absent and record[name] == ABSENT)
        or comparable(name, record[name]) in {comparable(name, value) for value in values}
        for name, values in wanted.items()
    )


def _by_settings(records: Iterable[Record]) -> list[Group]:
    """What lies in two folders counts once."""
    found: dict[tuple[tuple[str, Value], ...], dict[int, Record]] = {}
    for record in records:
        found.setdefault(tuple(sorted(record.settings.items())), {}).setdefault(record.seed, record)
    return [Group(dict(settings), by_seed) for settings, by_seed in found.items()]


def _agree(one: Group, other: Group, free: Iterable[str]) -> bool:
    both = one.settings.keys() & other.settings.keys() - set(free)
    return all(one.settings[name] == other.settings[name] for name in both)
