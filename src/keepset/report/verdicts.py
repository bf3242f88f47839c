"""Claims with their evidence as sheets, and as tidy CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence

from .axes import same
from .claims import DOES_NOT, HOLDS, VERDICTS
from .evidence import PLACES, Evidence, Row
from .fields import ABSENT, Value, counted
from .paper import departures
from .render import full
from .sheets import Line, Sheet, in_words, interval_text, said, signed
from .statistics import Paired
from .stored import Record

DECIDED = (HOLDS, DOES_NOT)


def claim_sheets(found: Sequence[Evidence], digits: int = 1) -> list[Sheet]:
    """A sheet for each claim, with a row for each place that has runs, and one that counts the verdicts."""
    places = [row.place for each in found for row in each.rows]
    varying = [name for name in PLACES if len({place[name] for place in places}) > 1]
    return [*(_claim_sheet(number, each, varying, digits) for number, each in enumerate(found, 1)), _tally(found)]


def brief_sheet(found: Sequence[Evidence], digits: int = 1) -> Sheet:
    """A line a claim: all its pairs together, and the verdict."""
    metrics = list(dict.fromkeys(metric for each in found for metric in each.claim.metrics))
    paper = [
        name for name in metrics if any(not math.isnan(each.together.printed.get(name, math.nan)) for each in found)
    ]
    lines = []
    for number, each in enumerate(found, 1):
        tests, printed = each.together.tests, each.together.printed
        ours = [_text(tests[name], digits) if name in tests else "" for name in metrics]
        theirs = [_printed(printed.get(name, math.nan), digits) for name in paper]
        cells = (each.sentence, str(len(each.together.pairs)), *ours, *theirs)
        bold = frozenset(2 + place for place, name in enumerate(metrics) if each.verdicts.get(name) in DECIDED)
        lines.append(Line((f"{number}. {each.claim.says}",), cells, bold))
    columns = ["verdict", "pairs", *metrics, *(f"paper's {name}" for name in paper)]
    tally = _tally(found)
    return Sheet(tally.caption, ("claim",), tuple((name,) for name in columns), tuple(lines), tally.notes)


def _claim_sheet(number: int, found: Evidence, varying: Sequence[str], digits: int) -> Sheet:
    lines = [line for row in found.rows for line in _lines(_name(row, varying), row, found, digits)]
    if len(found.rows) != 1:
        lines += _lines("together" if lines else "no pairs yet", found.together, found, digits)
    columns = (("pairs",), *((metric,) for metric in found.claim.metrics))
    told = f"{number}. {found.claim.says}: {found.sentence}"
    return Sheet(f"{told} ({found.claim.title})", ("runs",), columns, tuple(lines))


def _name(row: Row, varying: Sequence[str]) -> str:
    return ", ".join(said(name, row.place[name]) for name in varying if row.place[name] != ABSENT) or "all"


def _lines(name: str, row: Row, found: Evidence, digits: int) -> list[Line]:
    """Ours, and the paper's below it where it prints any; bold is what the interval decides."""
    tests = row.tests.items()
    verdicts = (found.claim.verdict(metric, test) for metric, test in tests)
    decided = (place for place, verdict in enumerate(verdicts, start=1) if verdict in DECIDED)
    ours = Line((name,), (str(len(row.pairs)), *(_text(test, digits) for _, test in tests)), frozenset(decided))
    if all(map(math.isnan, row.printed.values())):
        return [ours]
    return [ours, Line(("paper",), ("", *(_printed(each, digits) for each in row.printed.values())))]


def _text(test: Paired, digits: int) -> str:
    interval = "" if math.isnan(test.low) else f" ({interval_text(test, digits)})"
    return signed(test.difference, digits) + interval


def _printed(difference: float, digits: int) -> str:
    return "" if math.isnan(difference) else signed(difference, digits)


def scope(found: Sequence[Evidence]) -> list[str]:
    """What is the same in all runs, in words."""
    runs = paired_runs(found)
    return in_words({name: runs[0][name] for name in PLACES if same(runs, name)}) if runs else []


def other_protocol(found: Sequence[Evidence]) -> list[str]:
    """What the runs did otherwise than the paper."""
    return sorted({told for record in paired_runs(found) for told in departures(record.settings)})


def paired_runs(found: Sequence[Evidence]) -> list[Record]:
    return [record for each in found for pair in each.together.pairs for record in pair]


def _tally(found: Sequence[Evidence]) -> Sheet:
    """How many verdicts there are of each kind, and how all of it is to be read."""
    every = [verdict for each in found for verdict in each.verdicts.values()]
    lines = [Line((verdict,), (str(every.count(verdict)),)) for verdict in VERDICTS]
    notes = [
        "differences in percentage points with 95\u00a0% intervals, which take pairs as independent; a claim holds"
        " where the interval of all pairs together lies on its side, and does not where it lies on the other"
    ]
    if told := scope(found):
        notes.insert(0, f"all of {', '.join(told)}")
    if any(not math.isnan(value) for each in found for value in each.together.printed.values()):
        other = other_protocol(found)
        notes.append("paper: the difference of its means, over the pairs that it compares too")
        notes += [f"another protocol than the paper's: {', '.join(other)}"] if other else []
    return Sheet(
        f"{counted(len(found), 'claim')} in {counted(len(every), 'metric')}",
        ("verdict",),
        (("metrics",),),
        tuple(lines),
        tuple(notes),
    )


# ---------------------------------------------------------------- CSV


def claims_csv(found: Sequence[Evidence], brief: bool = False) -> str:
    """A line for each claim, place and metric, with numbers in full; places are `together` in that of all pairs."""
    file = io.StringIO()
    names = ("claim", "runs", *PLACES, "metric", "difference", "low", "high", "p", "pairs", "paper", "verdict")
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    for each in found:
        for row in [*([] if brief else each.rows), each.together]:
            writer.writerows(_csv_lines(each, row))
    return file.getvalue()


def _csv_lines(found: Evidence, row: Row) -> list[Mapping[str, Value]]:
    told = {"claim": found.claim.says, "runs": found.claim.title, **(row.place or dict.fromkeys(PLACES, "together"))}
    return [
        {
            **told,
            "metric": metric,
            **{name: full(getattr(test, name)) for name in ("difference", "low", "high", "p")},
            "pairs": test.pairs,
            "paper": full(row.printed[metric]),
            "verdict": found.claim.verdict(metric, test),
        }
        for metric, test in row.tests.items()
    ]
