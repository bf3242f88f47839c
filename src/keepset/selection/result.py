"""What a selection returns: the indices, and how they came about."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from .inputs import Array


@dataclass(frozen=True, eq=False)
class Selection(Sequence[int]):
    """The chosen points: a sequence of their indices, in the order picked.

    >>> import numpy, keepset
    >>> chosen = keepset.select(numpy.eye(4), budget=2)
    >>> list(chosen), len(chosen), chosen[0]
    ([0, 1], 2, 0)
    """

    indices: Array
    """(budget,) int64, into the arrays passed in, in the order picked; numpy or torch, as they were."""
    gains: Array
    """(budget,) float64: the coverage each pick added. NaN for methods that do not cover."""
    method: str = ""
    """The name of the selector, or of the function that was passed."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weight (α) of each view; they sum to one."""
    scales: Mapping[str, float] = field(default_factory=dict)
    """The bandwidth (σ, soft cover) or radius (δ, hard cover) of each view."""
    k: int | None = None
    """The number of neighbours behind weights and radius."""
    objective: float = math.nan
    """The coverage F reached, in 0..1, points of `start=` included. NaN for methods that do not cover."""
    shares: Mapping[str, Array] = field(default_factory=dict)
    """(budget,) for each view: its share of each gain; they sum to one. A view can lose what another gains."""
    search: str = ""
    """How a cover was found: `dense` and `streamed` (without the matrix of all distances) are exact, `stochastic` and
    `distributed` are not."""
    notes: tuple[str, ...] = ()
    """What was done about input with no scale, too few points and the like, in words."""

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, position: int) -> int: ...
    @overload
    def __getitem__(self, position: slice) -> list[int]: ...
    def __getitem__(self, position: int | slice) -> int | list[int]:
        return self._list()[position]

    def __iter__(self) -> Iterator[int]:
        return iter(self._list())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self._list(), dtype=dtype or np.int64)

    def __repr__(self) -> str:
        covered = "" if math.isnan(self.objective) else f", coverage {self.objective:.4f}"
        return f"<Selection by {self.method}: {len(self)} points{covered}>"

    def _list(self) -> list[int]:
        indices: list[int] = self.indices.tolist()
        return indices

    def rows(self) -> list[dict[str, int | float]]:
        """One record a pick: rank, index, gain, coverage so far, and `share of NAME` for each view.

        >>> import numpy, keepset
        >>> keepset.select(numpy.eye(2), budget=1).rows()[0]["index"]
        0
        """
        gains = [float(gain) for gain in self.gains]
        covered = self.objective - sum(gains)
        records: list[dict[str, int | float]] = []
        for position, (index, gain) in enumerate(zip(self, gains, strict=True)):
            covered += gain
            shares = {f"share of {name}": float(share[position]) for name, share in self.shares.items()}
            records.append({"rank": position + 1, "index": index, "gain": gain, "coverage": covered, **shares})
        return records

    def table(self) -> str:
        """Why each point was kept, as text: `print(selection.table())`."""
        records = self.rows()
        heads = list(records[0]) if records else ["rank", "index", "gain", "coverage"]
        cells = [heads] + [[_cell(head, record[head]) for head in heads] for record in records]
        widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([*lines, *self.notes])


def _cell(head: str, value: int | float) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "–"
    return f"{value:.0%}" if head.startswith("share") else f"{value:.6f}"


def uncovered_selection(indices: Tensor, method: str, notes: tuple[str, ...] = ()) -> Selection:
    """The result of a method that does not cover: its gains are NaN."""
    gains = torch.full((len(indices),), math.nan, dtype=torch.float64)
    return Selection(indices=indices, gains=gains, method=method, notes=notes)
