"""Rules for what covering a point is worth: purity asks whether its neighbours share its label, density how typical
it is of its class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .cover import one_view
from .geometry import TILE_ROWS, cloud, distance_rows, distance_tiles
from .inputs import Array, read_view
from .kernels import kernel
from .options import Cover
from .problem import make_problem
from .soft import soft_cover

NEIGHBOURS = 20
LEAST = 0.02  # so that a class whose points all lie among others is still worth covering
SETTINGS = ("point_weights", "point_power", "purity_view")


# ---------------------------------------------------------------- options with a rule, made options with numbers


def with_purity(named: Mapping[str, Array], labels: np.ndarray[Any, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` with the rule `purity` worked out over all classes at once; any others are left as they are."""
    given = dict(options)
    if not isinstance(given.get("point_weights"), str) or given["point_weights"] != "purity":
        return given
    cover = Cover(**{name: given[name] for name in SETTINGS if name in given})
    name = cover.purity_view_of(list(named))
    view = read_view(name, named[name])
    numbers = torch.from_numpy(np.unique(labels, return_inverse=True)[1]).to(view.device)
    return _with_numbers(given, purity(view, numbers) ** float(cover.point_power) + LEAST)


def with_density(
    views: dict[str, Tensor], budget: int, start: Tensor, options: Mapping[str, Any], one: bool
) -> dict[str, Any]:
    """`options` with a rule worked out that needs no labels. `one`: the method reads a single view."""
    given = dict(options)
    if not isinstance(given.get("point_weights"), str):
        return given
    cover = Cover(**{name: value for name, value in given.items() if name != "view"})
    if cover.point_weights == "purity":
        raise ValueError(
            "point_weights='purity' needs labels, and there are none in select and coverage; use select_per_class, "
            "or pass numbers, one a point"
        )
    read = one_view(views, given.get("view")) if one else views
    return _with_numbers(given, density(read, budget, start, cover) ** float(cover.point_power))


def _with_numbers(options: Mapping[str, Any], worth: Tensor) -> dict[str, Any]:
    return {**{name: value for name, value in options.items() if name not in SETTINGS}, "point_weights": worth}


# ---------------------------------------------------------------- the rules


def purity(view: Tensor, labels: Tensor) -> Tensor:
    """(n,) the share of each point's 20 nearest others, by cosine, that have its label; 1 for a lone point.

    Of others that are equally near the lower indices count; with fewer than 20 others all of them do.
    """
    count = min(NEIGHBOURS, len(view) - 1)
    if count == 0:
        return torch.ones(1, dtype=torch.float64)
    points, shares = cloud(view), []
    for rows in torch.arange(len(view), device=view.device).split(TILE_ROWS):
        distances = distance_rows(points, rows)
        distances.scatter_(1, rows[:, None], torch.inf)  # the point itself
        near = distances.topk(count + 1, largest=False)
        chosen = near.indices[:, :count]
        tied = near.values[:, count - 1] == near.values[:, count]  # topk takes any of those that are equally near
        if bool(tied.any()):
            chosen[tied] = distances[tied].sort(dim=1, stable=True).indices[:, :count]
        shares.append((labels[chosen] == labels[rows][:, None]).double().mean(1))
    return torch.cat(shares).cpu()


def density(views: dict[str, Tensor], budget: int, start: Tensor, cover: Cover) -> Tensor:
    """(n,) the mean over all points, itself among them, of a point's similarity in the fused kernel Σ α_m K_m, with
    the weights and bandwidths that soft cover of these views has at this budget."""
    others = {name: getattr(Cover, name) for name in ("point_power", "uncovered", "search", "epsilon", "on_pick")}
    plain = replace(cover, point_weights=None, **others)
    problem = make_problem(views, budget, start, plain)
    count = problem.count
    if count == 1:
        return torch.ones(1, dtype=torch.float64)
    found = soft_cover(views, 1, start[:0], replace(plain, neighbours=problem.k))
    total = torch.zeros(count, dtype=torch.float64, device=problem.views[0].device)
    for name, view in zip(problem.names, problem.views, strict=True):
        similar, weight = kernel(cover.kernel, cover.metric, found.scales[name]), found.weights[name]
        for rows, columns, tile in distance_tiles(cloud(view)):
            similar(tile)
            beyond = max(rows.stop, columns.start)  # what lies on the other side of the diagonal too
            total[rows] += weight * tile.sum(1, dtype=torch.float64)
            total[beyond : columns.stop] += weight * tile[:, beyond - columns.start :].sum(0, dtype=torch.float64)
    return (total / count).cpu()
