"""Learn scikit-learn's digits two classes at a time with a small memory, and compare what to keep in it.

python examples/replay.py [PICTURE] [RUNS]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from keepset.experiment.config import make_config
from keepset.experiment.run import run
from keepset.metrics import NAMES, average_accuracies, mean_and_error

SELECTORS = ("random", "herding", "maxherding", "mers")
SEEDS = (0, 1, 2)
CAPACITY = 20
COLOURS = ("#999999", "#E69F00", "#56B4E9", "#009E73")  # told apart by the colour-blind too
MARKERS = ("o", "s", "^", "D")


def run_all(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Finished runs are read back; others go on where they were."""
    results: dict[str, list[dict[str, Any]]] = {}
    with Progress(transient=True) as progress:
        task = progress.add_task("running", total=len(SELECTORS) * len(SEEDS))
        for selector in SELECTORS:
            for seed in SEEDS:
                progress.update(task, description=f"{selector}, seed {seed}")
                config = make_config("fast", flags={"selector": selector, "seed": seed, "capacity": CAPACITY})
                results.setdefault(selector, []).append(run(config, out))
                progress.advance(task)
    return results


def compare(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    table = Table(title=f"Digits, 5 episodes, {CAPACITY} exemplars, {len(SEEDS)} seeds, %", box=None)
    table.add_column("selector")
    for name in NAMES:
        table.add_column(name, justify="right")
    for selector, runs in results.items():
        cells = (mean_and_error([100 * found["metrics"][name] for found in runs]) for name in NAMES)
        table.add_row(selector, *(f"{mean:.1f} ± {error:.1f}" for mean, error in cells))
    return table


def draw(results: Mapping[str, Sequence[Mapping[str, Any]]], picture: Path) -> None:
    """Average accuracy after each episode, with the standard error over seeds as a band."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for (selector, runs), colour, marker in zip(results.items(), COLOURS, MARKERS, strict=True):
        curves = [average_accuracies(found["accuracy"]) for found in runs]
        points = [mean_and_error([100 * value for value in after]) for after in zip(*curves, strict=True)]
        episodes = range(1, len(points) + 1)
        axis.plot(episodes, [mean for mean, _ in points], color=colour, marker=marker, label=selector)
        low, high = [mean - error for mean, error in points], [mean + error for mean, error in points]
        axis.fill_between(episodes, low, high, color=colour, alpha=0.2, linewidth=0)
    axis.set(xlabel="after episode", ylabel="average accuracy over the episodes so far, %", xticks=list(episodes))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, title=f"{CAPACITY} exemplars kept by")
    figure.savefig(picture, dpi=150)


def main(picture: Path, out: Path) -> None:
    console = Console()
    results = run_all(out)
    console.print(compare(results))
    draw(results, picture)
    console.print(f"\nAverage accuracy after each episode is drawn in {picture}; the runs are in {out}")


if __name__ == "__main__":
    places = [Path(argument) for argument in sys.argv[1:]]
    main(*(places + [Path("replay.png"), Path("runs/demo")][len(places) :]))
