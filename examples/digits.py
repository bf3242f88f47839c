"""Choose exemplars of scikit-learn's handwritten digits under two views, and look at them.

python examples/digits.py [PICTURE]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

import keepset
from keepset.selection import SELECTORS

BUDGET = 5
SHOWN = ("random", "maxherding", "mers")


def train(images: Tensor, labels: Tensor) -> nn.Sequential:
    """A small classifier; what its last hidden layer sees is the supervised view."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(20):
        for batch in torch.randperm(len(images)).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimiser.step()
    return network


def choose_with_every_selector(
    views: Mapping[str, Tensor], labels: Tensor, uncertainty: Tensor
) -> dict[str, dict[int | str, keepset.Selection]]:
    kept = {}
    for name in SELECTORS:
        options: dict[str, Any] = {"uncertainty": uncertainty} if name == "rainbow" else {}
        kept[name] = keepset.select_per_class(dict(views), labels, BUDGET, method=name, **options)
    return kept


def mean_coverage(views: Mapping[str, Tensor], labels: Tensor, chosen: Mapping[int | str, keepset.Selection]) -> float:
    """Coverage within each class, averaged over the classes."""
    covered = []
    for label, selection in chosen.items():
        rows = torch.isin(labels, torch.tensor(label)).nonzero().flatten()
        within = torch.searchsorted(rows, torch.as_tensor(selection.indices))
        covered.append(keepset.coverage({name: view[rows] for name, view in views.items()}, within))
    return sum(covered) / len(covered)


def compare(
    views: Mapping[str, Tensor], labels: Tensor, kept: Mapping[str, Mapping[int | str, keepset.Selection]]
) -> Table:
    table = Table(
        title=f"Coverage of {len(labels)} digits by {BUDGET} exemplars a class", box=None, header_style="bold"
    )
    for column in ("selector", "both views", *views):
        table.add_column(column, justify="left" if column == "selector" else "right")
    for name, chosen in kept.items():
        single = [mean_coverage({view: views[view]}, labels, chosen) for view in views]
        values = [mean_coverage(views, labels, chosen), *single]
        table.add_row(name, *(f"{value:.3f}" for value in values))
    return table


def draw(images: Tensor, kept: Mapping[str, Mapping[int | str, keepset.Selection]], picture: Path) -> None:
    """A panel a selector, a row a class, in the order picked."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(SHOWN), figsize=(3.1 * len(SHOWN), 6.2), layout="constrained")
    for axis, name in zip(axes, SHOWN, strict=True):
        rows = [np.hstack([_framed(images[index]) for index in selection]) for selection in kept[name].values()]
        axis.imshow(np.vstack(rows), cmap="gray_r", interpolation="nearest", vmin=0, vmax=16)
        axis.set_title(name)
        axis.set_xticks([4.5 + 10 * rank for rank in range(BUDGET)], [str(rank + 1) for rank in range(BUDGET)])
        axis.set_yticks([4.5 + 10 * row for row in range(len(rows))], [str(label) for label in kept[name]])
        axis.set_xlabel("order picked")
        axis.tick_params(length=0)
        for spine in axis.spines.values():
            spine.set_visible(False)
    figure.suptitle(f"The {BUDGET} exemplars kept of each digit")
    figure.savefig(picture, dpi=150)


def _framed(image: Tensor) -> np.ndarray:
    return np.pad(image.reshape(8, 8).numpy(), 1)


def main(picture: Path) -> None:
    console = Console()
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32), torch.tensor(digits.target)
    with console.status("training a small classifier for the supervised view"):
        network = train(images, labels)
    views = {"supervised": keepset.embed(network[:-1], images), "pixels": images}
    uncertainty = 1 - keepset.embed(network, images).softmax(1).amax(1)
    with console.status("choosing with every selector"):
        kept = choose_with_every_selector(views, labels, uncertainty)
        table = compare(views, labels, kept)
    console.print(table)
    console.print("\nWhy the first zeros were kept by mers:")
    console.print(kept["mers"][0].table(), highlight=False)
    draw(images, kept, picture)
    console.print(f"\nThe kept images of {', '.join(SHOWN)} are in {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "digits.png"))
