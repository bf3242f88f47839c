"""Results as a run writes them, in folders or as records, without the run."""

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keepset.experiment.config import make_config
from keepset.experiment.identity import identity
from keepset.metrics import NAMES, all_metrics, average_accuracies
from keepset.report.fields import flat_settings
from keepset.report.stored import Record


@functools.cache
def _identity(flags: str) -> str:
    return json.dumps(identity(make_config("paper", None, json.loads(flags))))


def run_identity(**given: Any) -> dict[str, Any]:
    """The identity of a run on CIFAR-100; settings by name, those of a part with a double underline (data__order)."""
    flags: dict[str, Any] = {"device": "cpu", "data": {"name": "cifar100"}}
    for name, value in given.items():
        part, _, inner = name.partition("__")
        if inner:
            flags.setdefault(part, {})[inner] = value
        else:
            flags[part] = value
    seed = flags.pop("seed", 0)
    found: dict[str, Any] = json.loads(_identity(json.dumps(flags)))
    return {**found, "seed": seed}


def runs(finals: list[float], **given: Any) -> list[Record]:
    """A run a seed, with these values in per cent in every metric."""
    settings = flat_settings(run_identity(**given), 10)
    values = [final / 100 for final in finals]
    return [Record(Path("run"), settings, seed, [[v]], dict.fromkeys(NAMES, v)) for seed, v in enumerate(values)]


def matrix(final: float, episodes: int = 10) -> list[list[float]]:
    """A matrix of which every row has the same accuracies, and the last has the mean `final`."""
    return [[final] * number for number in range(1, episodes + 1)]


def write_result(
    out: Path, accuracy: Sequence[Sequence[float]] | float = 0.5, folder: str | None = None, **given: Any
) -> Path:
    """A finished run's folder with one pick a class, named by a counter if no name is given."""
    told = run_identity(**given)
    rows = matrix(accuracy) if isinstance(accuracy, float) else [list(row) for row in accuracy]
    kept = {"rows": [3, 1], "gains": [0.5, 0.25], "weights": {}, "scales": {}, "k": 5, "objective": 0.5, "notes": []}
    result: Mapping[str, Any] = {
        "accuracy": rows,
        "AA": average_accuracies(rows),
        "metrics": {name: None if value != value else value for name, value in all_metrics(rows).items()},
        "picks": [{str(10 * number): kept} for number in range(len(rows))],
        "views": [],
        "seconds": {"train": 1.0},
        "versions": {"python": "3"},
        "identity": told,
    }
    path = out / (folder or f"{len(list(out.glob('*'))):016x}")
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"identity": told, "config": {}}, indent=1) + "\n", encoding="utf-8")
    (path / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path
