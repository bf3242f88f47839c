"""What a diagnosis of views holds, and the medians of several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median, median_low
from typing import Any

from ..checks import Label
from .theory import TwoLevels


@dataclass(frozen=True)
class View:
    """One view of one pool. None stands for what the points do not tell."""

    name: str
    columns: int
    """d"""
    median: float | None
    """Median cosine distance over the pairs: the bandwidth (σ) of selection."""
    weights: Mapping[str, float | None]
    """By rule: the weight (α) before it is divided by the sum; None where half of the points or more are copies."""
    shares: Mapping[str, float]
    """By rule: the weight as selection uses it; those of all views sum to 1."""
    rank: int
    """Directions with any spread at all."""
    effective_rank: float | None
    """e to the entropy of the shares of variance: how many directions it would be, were they all alike."""
    participation: float | None
    """(Σ λ)² / Σ λ²: the same idea, with more say for the large ones."""
    largest: float | None
    """Share of variance in the first direction."""
    kl: float | None
    """The KL term: ½ (Σ 1/d_i − n) of the leading n eigenvalues at volume 1; infinite where one of them is 0."""
    levels: TwoLevels | None
    """The paper's model fitted to them: m, α and β."""
    levels_kl: float | None
    """The Lemma's value for that fit."""
    spectrum: tuple[float, ...]
    """Share of variance of every direction, largest first."""


@dataclass(frozen=True)
class Pair:
    """The first view beside another one."""

    first: str
    second: str
    ratios: Mapping[str, float | None]
    """By rule: β = α of the first / α of the second (Eq. 6)."""
    overlap: float | None
    """Mean share of the k nearest neighbours that both views have in common."""
    chance: float | None
    """What two views that know nothing of each other would share: k / (n − 1)."""


@dataclass(frozen=True)
class Pool:
    """All that is told of one class, or of all points together (label None)."""

    label: Label | None
    points: int
    budget: int
    k: int
    directions: int
    """n of the KL term; 0 where there are too few points for it."""
    views: tuple[View, ...]
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class Diagnosis:
    classes: tuple[Pool, ...]
    """In the order of the labels; none without labels."""
    together: Pool
    medians: Pool | None
    """The median of each number over the classes that have it."""

    @property
    def typical(self) -> Pool:
        """What a verdict is made from: the medians over the classes, or all points where there are no classes."""
        return self.together if self.medians is None else self.medians

    def plain(self) -> dict[str, Any]:
        """As values that JSON knows; what is missing or infinite is None (a KL is infinite where rank < directions)."""
        found: dict[str, Any] = _plain(asdict(self))
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---------------------------------------------------------------- medians


def medians(pools: Sequence[Pool]) -> Pool:
    """The median of each number over the pools that have it; counts take the lower of the middle two."""
    first = pools[0]
    return Pool(
        label=None,
        points=median_low([pool.points for pool in pools]),
        budget=median_low([pool.budget for pool in pools]),
        k=median_low([pool.k for pool in pools]),
        directions=median_low([pool.directions for pool in pools]),
        views=tuple(_median_view([pool.views[place] for pool in pools]) for place in range(len(first.views))),
        pairs=tuple(_median_pair([pool.pairs[place] for pool in pools]) for place in range(len(first.pairs))),
    )


def _median_view(views: Sequence[View]) -> View:
    numbers = ("median", "effective_rank", "participation", "largest", "kl", "levels_kl")
    found = {name: _median(getattr(view, name) for view in views) for name in numbers}
    by_rule = {
        name: {rule: _median(getattr(view, name)[rule] for view in views) for rule in views[0].weights}
        for name in ("weights", "shares")
    }
    rank = median_low([view.rank for view in views])
    return replace(views[0], rank=rank, levels=None, spectrum=(), **found, **by_rule)  # type: ignore[arg-type]


def _median_pair(pairs: Sequence[Pair]) -> Pair:
    return replace(
        pairs[0],
        ratios={rule: _median(pair.ratios[rule] for pair in pairs) for rule in pairs[0].ratios},
        overlap=_median(pair.overlap for pair in pairs),
        chance=_median(pair.chance for pair in pairs),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
