"""Does a second view add anything? What can be read off the views of a pool of points, before anything is trained.

Distances, medians, neighbours and weights are those of selection, from its own functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import Label, check_range, plain_label, read_labels, whole_number
from ..selection.geometry import TILE_ROWS, Cloud, cloud, pairwise
from ..selection.inputs import Views, read_views
from ..selection.kernels import median_bandwidth
from ..selection.options import WEIGHTS
from ..selection.problem import normal
from ..selection.scales import euclidean, neighbour_count, neighbours, weight
from .findings import Diagnosis, Pair, Pool, View, medians
from .theory import compressed_kl, diagonal_kl, fit_two_levels

# The KL term reads the n leading directions, the same n for all views of a pool: at most so many, and no more than the
# points can carry. Sampling alone spreads the eigenvalues of a round cloud: with p points the term comes to about
# n²/4p where it should be 0 (½ at n = 32, p = 500), and it grows without bound as n nears p. One column fewer than the
# view has: unit vectors lie on a sphere, and a tight class has next to no spread along its radius, whatever the view.
MOST_DIRECTIONS = 32
POINTS_A_DIRECTION = 4

Values = np.ndarray[Any, Any]


def diagnose(
    views: Views, labels: object = None, budget: int | Mapping[Any, int] = 10, neighbours: int | None = None
) -> Diagnosis:
    """Measure every class, and all points together.

    views: one or more arrays (n, d) of the same points; the first is what the others are held against. labels: (n,).
    budget: points to keep of a class, which sets k = points / budget, as in selection; a mapping by class, if they
    differ. All points together have the sum of the budgets, so about the same k. `neighbours` fixes k instead.

    >>> import numpy
    >>> points = numpy.random.default_rng(0).normal(size=(200, 8))
    >>> found = diagnose({"a": points, "b": 2 * points}, budget=20)
    >>> found.together.pairs[0].overlap, found.together.pairs[0].ratios["printed"]
    (1.0, 1.0)
    """
    named = _one_type(read_views(views))
    count = len(next(iter(named.values())))
    rows = _rows_by_class(labels, count)
    budgets = _budgets(budget, list(rows))
    if neighbours is not None and whole_number("neighbours", neighbours) < 1:
        raise ValueError(f"neighbours must be 1 or more, got {neighbours}")
    classes = []
    for label, where in rows.items():
        inside = {name: view[where.to(view.device)] for name, view in named.items()}
        classes.append(_pool(label, inside, budgets[label], neighbours))
    together = _pool(None, named, sum(pool.budget for pool in classes) or budgets[None], neighbours)
    return Diagnosis(tuple(classes), together, medians(classes) if classes else None)


# ---------------------------------------------------------------- arguments


def _one_type(views: dict[str, Tensor]) -> dict[str, Tensor]:
    """As in a selection: one view in float64 makes all of them so."""
    wide = torch.float64 if any(view.dtype == torch.float64 for view in views.values()) else torch.float32
    return {name: view.to(wide) for name, view in views.items()}


def _rows_by_class(labels: object, count: int) -> dict[Label, Tensor]:
    if labels is None:
        return {}
    array = read_labels(labels)
    if len(array) != count:
        raise ValueError(f"labels must be one a point, {count}, got {len(array)}")
    return {label: torch.from_numpy(np.flatnonzero(array == label)) for label in np.unique(array).tolist()}


def _budgets(budget: int | Mapping[Any, int], classes: Sequence[Label]) -> dict[Label | None, int]:
    """Class -> budget; without classes the one key is None."""
    keys: list[Any] = list(classes) or [None]
    if not isinstance(budget, Mapping):
        return dict.fromkeys(keys, check_range("budget", budget, 1, 2**62, "the points to keep of a class"))
    given = {plain_label(label): value for label, value in budget.items()}
    if set(given) != set(classes):
        raise ValueError(f"budget must name every class and no other, {sorted(map(str, classes))}, got {list(given)}")
    return {key: check_range(f"budget[{key!r}]", given[key], 1, 2**62, "the points to keep of it") for key in keys}


# ---------------------------------------------------------------- one pool


def _pool(label: Label | None, views: Mapping[str, Tensor], budget: int, fixed: int | None) -> Pool:
    count = len(next(iter(views.values())))
    budget = min(budget, count)
    k = neighbour_count(count, budget) if fixed is None else min(fixed, count - 1)
    directions = min(
        MOST_DIRECTIONS, (count - 1) // POINTS_A_DIRECTION, *(view.shape[1] - 1 for view in views.values())
    )
    directions = directions if directions > 1 else 0
    found, nearest, scratch = [], [], None
    for name, view in views.items():
        points = cloud(view)
        scratch = pairwise(points, out=scratch)  # (n, n), in the same memory for every view
        found.append(_view(name, points, scratch, k, directions))
        nearest.append(_nearest(scratch, k) if found[-1].median else None)
    _share_weights(found)
    pairs = [
        _pair(found[0], other, _overlap(nearest[0], near), k / (count - 1) if count > 1 else None)
        for other, near in zip(found[1:], nearest[1:], strict=True)
    ]
    return Pool(label, count, budget, k, directions, tuple(found), tuple(pairs))


def _view(name: str, points: Cloud, distances: Tensor, k: int, directions: int) -> View:
    """All but the shares of the weights, which need the other views. `distances`: (n, n)."""
    alone = len(points) == 1
    near = neighbours(distances, k, euclidean)
    values, rank = _eigenvalues(points)
    shares = values / values.sum() if rank else values
    logs = np.log(values[:directions]) - np.log(values[:directions]).mean() if rank >= directions > 0 else None
    levels = None if logs is None else fit_two_levels(logs)
    return View(
        name=name,
        columns=points.centred.shape[1],
        median=None if alone else median_bandwidth(points, "cosine", distances),
        weights={rule: None if alone else weight(rule, near) for rule in WEIGHTS},
        shares={},
        rank=rank,
        effective_rank=float(np.exp(-(shares[:rank] * np.log(shares[:rank])).sum())) if rank else None,
        participation=float(1 / (shares**2).sum()) if rank else None,
        largest=float(shares[0]) if rank else None,
        kl=(None if not directions else math.inf) if logs is None else diagonal_kl(logs),
        levels=levels,
        levels_kl=None if levels is None else compressed_kl(levels),
        spectrum=tuple(shares.tolist()),
    )


def _eigenvalues(points: Cloud) -> tuple[Values, int]:
    """(min(n − 1, d),) eigenvalues of the covariance of the unit vectors, largest first, and how many are not 0.

    From the smaller of the two products, (n, n) or (d, d), in float64: the others are 0.
    """
    count, columns = points.centred.shape
    centre = points.centred.mean(0, dtype=torch.float64)  # what float32 left over
    if count <= columns:
        centred = points.centred.double() - centre
        product = centred @ centred.T
    else:
        product = centre.new_zeros(columns, columns)
        for rows in points.centred.split(TILE_ROWS):
            centred = rows.double() - centre
            product.addmm_(centred.T, centred)
    values = torch.linalg.eigvalsh(product).flip(0).clamp_(min=0).cpu().numpy()[: min(count - 1, columns)] / count
    if not len(values):
        return values, 0
    # unit vectors are rounded to eps, so variances below eps² are rounding; and eigvalsh has its own error
    rounding = torch.finfo(points.centred.dtype).eps ** 2
    rank = int((values > max(rounding, values[0] * len(product) * 2.0**-52)).sum())
    values[rank:] = 0
    return values, rank


def _nearest(distances: Tensor, k: int) -> Tensor:
    """(n, k) the k nearest of each point, itself left out. Overwrites the diagonal of `distances`."""
    distances.fill_diagonal_(math.inf)
    return torch.cat([rows.topk(k, largest=False, sorted=False).indices.int() for rows in distances.split(TILE_ROWS)])


def _overlap(first: Tensor | None, second: Tensor | None) -> float | None:
    """Mean share of common entries in the rows of two (n, k); None where a view has no neighbours to tell."""
    if first is None or second is None:
        return None
    common = 0
    for one, other in zip(first.split(TILE_ROWS), second.split(TILE_ROWS), strict=True):
        mask = torch.zeros(len(one), len(first), dtype=torch.bool, device=one.device)
        common += int(mask.scatter_(1, one.long(), True).gather(1, other.long()).sum())
    return common / first.numel()


def _share_weights(views: list[View]) -> None:
    """As selection does: a weight that cannot be told counts as 1, and all are divided by their sum."""
    shares: dict[str, list[float]] = {}
    for rule in WEIGHTS:
        found = [view.weights[rule] for view in views]
        shares[rule] = normal([1.0 if value is None else value for value in found])
    for position, view in enumerate(views):
        views[position] = replace(view, shares={rule: shares[rule][position] for rule in WEIGHTS})


def _pair(first: View, second: View, overlap: float | None, chance: float | None) -> Pair:
    ratios = {rule: _ratio(first.weights[rule], second.weights[rule]) for rule in WEIGHTS}
    return Pair(first.name, second.name, ratios, overlap, chance)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
