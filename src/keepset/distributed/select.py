"""Soft cover of more rows than one process holds: each part keeps its own, on Ray, and the best of these are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..checks import check_range, read_generator
from ..cluster import connected, import_ray
from ..selection.api import NO_LABELS, Generator, is_own_selector, select
from ..selection.options import Cover
from ..selection.result import Selection
from ..selection.scales import neighbour_count
from ..selection.table import SELECTORS
from .merge import second_round
from .parts import OnPart, first_round
from .sample import draw, measure
from .shards import Rows, Source, View, open_views

METHODS = ("mers", "mers-pure", "maxherding")
SCALES = ("weights", "bandwidth", "bandwidth_scale", "neighbours")  # what is handed to the parts as numbers
NOT_HERE = {
    "start": "choose on one machine with keepset.select",
    "point_weights": "choose on one machine with keepset.select, or by 'purity' with keepset.select_per_class",
    "point_power": "it goes with point_weights, which is not either",
    "purity_view": "it goes with point_weights, which is not either",
    "on_pick": "on_part is told of each part that is done",
}


def select_distributed(
    sources: Mapping[str, Source],
    budget: int,
    *,
    method: str = "mers",
    parts: int | None = None,
    address: str = "",
    generator: Generator = 0,
    on_part: OnPart | None = None,
    **options: Any,
) -> Selection:
    """Choose `budget` of the rows of `sources` by soft cover, in two rounds, the first of them on a Ray cluster.

    sources: view name -> a numpy array, a file .npy or .parquet, or a list of these, one after the other.
    method: `mers`, `maxherding`, or `mers-pure` as `select` has it without labels: `mers` at half the bandwidth. The
    options are those of `select`, but for a few, which are refused by name.
    parts: how many parts the rows are split into at random; None for as many as the cluster has cores, at least 2.
    address: of the cluster; without it $RAY_ADDRESS, or else one is started on this machine.
    on_part: called with the number of parts done and that of all whenever one is done.

    The indices are row numbers. Gains and coverage are those of the candidates and a sample of all rows.
    """
    views = open_views(sources)
    count = len(next(iter(views.values())))
    if count < 2:
        raise ValueError("sources must have at least 2 rows, got 1; there is nothing to choose")
    wanted = check_range("budget", budget, 1, count, "the number of rows")
    asked = None if parts is None else check_range("parts", parts, 1, count, "the number of rows")
    name, read, cover, k = _read_options(views, wanted, method, options)
    seed = int(torch.randint(2**62, (), generator=read_generator(generator)))
    ray = import_ray("select_distributed")

    sample = draw(read, count, seed)
    measured = measure({view: points[~sample.fresh] for view, points in sample.views.items()}, cover, k, count)
    settings = {option: value for option, value in options.items() if option not in ("view", *SCALES, *NOT_HERE)}
    settings |= {"weights": measured.weights, "bandwidth": measured.bandwidths, "bandwidth_scale": 1.0}
    with connected(ray, address):
        split, fewer = _split(count, wanted, asked or max(2, int(ray.cluster_resources().get("CPU", 1))), seed)
        kept = first_round(ray, read, split, (wanted, name, seed, settings), on_part)
    chosen = second_round(kept, sample, wanted, measured, count)
    alike = [NO_LABELS] if SELECTORS[name].defaults.get("point_weights") == "purity" else []
    return replace(chosen, method=name, k=k, notes=(*alike, *fewer, *measured.notes, *chosen.notes))


# ---------------------------------------------------------------- what was asked for


def _read_options(
    views: dict[str, View], budget: int, method: str, options: Mapping[str, Any]
) -> tuple[str, dict[str, View], Cover, int]:
    """The method's own name, the views that it reads, its settings and k; `select` itself refuses what is wrong."""
    for option, remedy in NOT_HERE.items():
        if options.get(option) is not None:
            raise ValueError(f"{option} is not for select_distributed; {remedy}")
    if not isinstance(method, str) or is_own_selector(method) or (method in SELECTORS and method not in METHODS):
        raise ValueError(
            f"method must be one of {', '.join(METHODS)} (soft cover), got {method!r}; keepset.select takes the others"
        )
    given = {option: value for option, value in options.items() if option not in NOT_HERE}
    k = given.pop("neighbours", None)
    tried = select({name: np.eye(2) for name in views}, 1, method=method, **given)  # on two points, for its checks
    count = len(next(iter(views.values())))
    k = neighbour_count(count, budget) if k is None else check_range("neighbours", k, 1, count - 1, "the other points")
    given.pop("view", None)
    defaults = {option: value for option, value in SELECTORS[tried.method].defaults.items() if option not in NOT_HERE}
    return tried.method, {name: views[name] for name in tried.weights}, Cover(**{**defaults, **given}), k


def _split(count: int, least: int, parts: int, seed: int) -> tuple[list[Rows], list[str]]:
    """The row numbers of each part, ascending: every row goes to any of the parts, independently of the others.

    Where a part came out with fewer than `least` rows there are fewer parts.
    """
    number = min(parts, count // least)
    while True:
        owners = np.random.default_rng([seed, number]).integers(number, size=count, dtype=np.int32)
        sizes = np.bincount(owners, minlength=number)
        if sizes.min() >= least:
            break
        number -= max(1, number // 20)
    notes = [f"{number} of {parts} parts: each must hold as many rows as the budget, {least}"] if number < parts else []
    return np.split(np.argsort(owners, kind="stable"), np.cumsum(sizes)[:-1]), notes
