"""The paper's printed results, and which of them a cell of ours may stand beside."""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .fields import Value, default_options

FILE = Path(__file__).with_name("paper.csv")
KEYS = ("metric", "dataset", "learner", "order", "capacity", "method", "views")
PROTOCOL = {
    "epochs": 100,
    "width": 64,
    "episodes": 10,
    "quota": "adaptive",
    "train.batch": 10,
    "train.momentum": 0.9,
    "train.weight_decay": 2e-4,
    "train.decay": 0.3,
    "train.decay_at": 0.66,
    "train.statistics": "batch",
    "learning.memory_batch": 10,
    "learning.rate": "auto",
}
"""What the paper did, by our fields."""


@dataclass(frozen=True)
class Printed:
    """Mean and standard error over five runs, in per cent."""

    mean: float
    error: float


@functools.cache
def printed_results() -> Mapping[tuple[str, ...], Printed]:
    """(metric, dataset, learner, order, capacity, method, views) -> the paper's figure."""
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = csv.DictReader(lines)
    keys = [("selector" if key == "method" else key) for key in KEYS]
    return {tuple(row[key] for key in keys): Printed(float(row["mean"]), float(row["error"])) for row in rows}


def printed_result(metric: str, fields: Mapping[str, Value]) -> Printed | None:
    """The figure of the same data set, learner, class order, capacity, selector and views, if the paper prints it.

    It has none of a selector whose options are not at their defaults.
    """
    for name, default in default_options(str(fields.get("method"))).items():
        if fields.get(f"options.{name}", default) != default:
            return None
    return printed_results().get((metric, *(str(fields.get(key)) for key in KEYS[1:])))


def departures(fields: Mapping[str, Value]) -> list[str]:
    """What a run did otherwise than the paper, in words: these make it another protocol."""
    found = [f"{name} {fields[name]}" for name, printed in PROTOCOL.items() if fields.get(name, printed) != printed]
    if fields.get("data.episodes", "equal") != "equal":
        found.append("episodes of unequal sizes")
    return [*found, "the small net"] if fields.get("model.name") == "small" else found


def in_errors(mean: float, error: float, printed: Printed) -> float:
    """(ours − the paper's) / √(s.e.² + s.e.²); NaN if ours has no error."""
    spread = math.hypot(error, printed.error)
    return (mean - printed.mean) / spread if spread else math.nan
