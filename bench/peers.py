"""The other libraries, each behind one function (pool, budget) -> picks. They are imported when they are called."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import numpy as np

import keepset
from pools import Pool, kernel_matrix

Choose = Callable[[Pool, int], list[int]]


@dataclass(frozen=True)
class Peer:
    """One way to choose, and how to read its row."""

    name: str
    module: str
    choose: Choose
    slow_from: int | None = None
    """From so many points on it takes minutes, and is run only when asked for."""
    own_kernel: bool = False
    """Whether it computes a kernel of another shape, so that its coverage is compared in that one."""

    @property
    def installed(self) -> bool:
        return find_spec(self.module) is not None


def keepset_picks(pool: Pool, budget: int) -> list[int]:
    return list(keepset.select(pool.points, budget, method="maxherding", bandwidth=pool.bandwidth))


def keepset_picks_euclidean(pool: Pool, budget: int) -> list[int]:
    """Under the kernel exp(−D/2σ) = exp(−D/h²), h = √(2σ): the one scikit-activeml is given."""
    bandwidth = math.sqrt(2 * pool.bandwidth)
    return list(keepset.select(pool.points, budget, method="maxherding", metric="euclidean", bandwidth=bandwidth))


def apricot_picks(pool: Pool, budget: int) -> list[int]:
    """Two-stage: at n = 5,000 faster than lazy and naive (compiled once); all three reached the same coverage."""
    apricot = import_module("apricot")
    selector = apricot.FacilityLocationSelection(budget, metric="precomputed", optimizer="two-stage")
    selector.fit(kernel_matrix(pool).numpy())
    return [int(index) for index in selector.ranking]


@functools.cache
def _compiled_once() -> dict[str, Any]:
    """apricot's compiled functions, kept between calls."""
    module = import_module("apricot.functions.facilityLocation")
    return {name: functools.cache(getattr(module, name)) for name in ("calculate_gains", "calculate_gains_sieve")}


def apricot_compiled_picks(pool: Pool, budget: int) -> list[int]:
    """apricot hands its loops to the compiler again in every call, for a second or more. Here it does so once."""
    with patch.multiple("apricot.functions.facilityLocation", **_compiled_once()):
        return apricot_picks(pool, budget)


def submodlib_picks(pool: Pool, budget: int) -> list[int]:
    submodlib = import_module("submodlib")
    count = len(pool)
    function = submodlib.FacilityLocationFunction(
        n=count, mode="dense", separate_rep=False, sijs=kernel_matrix(pool).numpy()
    )
    found = function.maximize(budget=budget, optimizer="LazyGreedy", show_progress=False)
    return [int(index) for index, _ in found]


def skactiveml_picks(pool: Pool, budget: int) -> list[int]:
    """Its own kernel exp(−γ d²) on unit vectors; d² = 2D, so γ = 1/4σ meets exp(−D²/2σ²) at D = σ."""
    pool_module = import_module("skactiveml.pool")
    query = pool_module.MaxHerding(metric="rbf", metric_dict={"gamma": 1 / (4 * pool.bandwidth)}, random_state=0)
    unlabelled = np.full(len(pool), np.nan)
    return [int(index) for index in query.query(pool.points.numpy(), unlabelled, batch_size=budget)]


PEERS = (
    Peer("apricot, as it comes", "apricot", apricot_picks),
    Peer("apricot, compiled once", "apricot", apricot_compiled_picks),
    Peer("submodlib, LazyGreedy", "submodlib", submodlib_picks),
    Peer("scikit-activeml, MaxHerding", "skactiveml", skactiveml_picks, slow_from=20_000, own_kernel=True),
)
PACKAGES = ("apricot-select", "submodlib-py", "scikit-activeml", "numba")


def quiet() -> None:
    """Peers warn about themselves: nothing that the reader of a table could act on."""
    warnings.filterwarnings("ignore", module=r"(apricot|submodlib|skactiveml|sklearn|numba|scipy)\b")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
