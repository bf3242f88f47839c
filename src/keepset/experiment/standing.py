"""How the runs of a grid stand, as their folders tell: what is done, what is left, and how long that may take."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .config import RunConfig
from .grid import Planned
from .identity import identity
from .locks import Locks
from .results import ERROR
from .work import failed, finished

ENOUGH = 5  # finished runs of a kind that are looked into
TAIL = 8192  # bytes from the end of metrics.jsonl that hold its last line


class Standing:
    """Looked at again and again; a run that was seen finished stays so."""

    def __init__(self, runs: Sequence[Planned], out: str | Path) -> None:
        self.runs, self.out, self._locks = runs, Path(out), Locks(out)
        self._done: set[str] = set()
        self._begin = time.perf_counter(), self.steps_done()

    def done(self) -> list[Planned]:
        self._done |= {run.name for run in self.runs if run.name not in self._done and finished(self.out, run.name)}
        return [run for run in self.runs if run.name in self._done]

    def failed(self) -> list[Planned]:
        return [run for run in self.runs if run.name not in self._done and failed(self.out, run.name)]

    def left(self) -> list[Planned]:
        """Neither done nor failed."""
        self.done()
        broken = {run.name for run in self.failed()}
        return [run for run in self.runs if run.name not in self._done | broken]

    def any_free(self) -> bool:
        """Whether a run that is left has nobody who does it."""
        return any(self._locks.free(run.name) for run in self.left())

    def forget_failures(self) -> None:
        """A new grid tries again what failed in the one before."""
        for run in self.failed():
            (self.out / run.name / ERROR).unlink(missing_ok=True)

    def error_of(self, run: Planned) -> str:
        """The last line of what is in its folder."""
        lines = (self.out / run.name / ERROR).read_text(encoding="utf-8").strip().splitlines()
        return lines[-1] if lines else "unknown"

    # ------------------------------------------------------------ how long

    def steps_done(self) -> float:
        """Steps behind all runs, those under way included."""
        names = {run.name for run in self.done()}
        return sum(run.steps * (1.0 if run.name in names else _share(self.out / run.name, run)) for run in self.runs)

    def seconds_left(self) -> float | None:
        """At the pace since this object was made; None while there is none."""
        began, steps = self._begin
        behind = self.steps_done()
        total = sum(run.steps for run in self.runs)
        pace = (behind - steps) / max(time.perf_counter() - began, 1e-9)
        return (total - behind) / pace if pace > 0 else None

    def recorded_seconds_left(self) -> float | None:
        """By what finished runs of the same kinds took one after the other; None if there is a kind without any."""
        left = self.left()
        kinds = {run.name: kind_of(identity(run.config)) for run in left}
        spent = _spent(self.out, set(kinds.values()))
        if any(not spent.get(kind) for kind in kinds.values()):
            return None
        return sum(sum(spent[kind]) / len(spent[kind]) for kind in kinds.values())


def kind_of(told: Mapping[str, Any]) -> str:
    """What a run's duration depends on most, from its identity."""
    parts = [told.get(name) for name in ("learner", "train", "model", "device")]
    return json.dumps([told["data"]["name"], *parts], sort_keys=True)


def _spent(out: Path, kinds: set[str]) -> dict[str, list[float]]:
    """Kind -> the seconds of some finished runs; the small config.json is read first, the result only if it counts."""
    spent: dict[str, list[float]] = {kind: [] for kind in kinds}
    for path in sorted(out.glob("*/result.json")) if kinds else []:
        try:
            found = spent.get(
                kind_of(json.loads((path.parent / "config.json").read_text(encoding="utf-8"))["identity"])
            )
            if found is not None and len(found) < ENOUGH:
                found.append(sum(json.loads(path.read_text(encoding="utf-8"))["seconds"].values()))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue  # not one of ours, or damaged: it tells nothing about time
    return spent


def _share(folder: Path, run: Planned) -> float:
    """How much of a run that is not finished is over, by its last record."""
    config: RunConfig = run.config
    try:
        with (folder / "metrics.jsonl").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            record = json.loads(file.read().splitlines()[-1])
        return float((record["episode"] - 1 + record["epoch"] / config.train.epochs) / record["episodes"])
    except (OSError, ValueError, LookupError, TypeError):  # not begun, or a line that is just being written
        return 0.0
