"""Against other people's code: scikit-activeml for the cover methods, scikit-learn for k-means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from skactiveml.pool import MaxHerding, ProbCover
from sklearn.cluster import KMeans

import keepset
import reference
from keepset.selection.teal import Points, kmeans

COUNT = 60
Vectors = NDArray[np.float64]
Utilities = Callable[[Sequence[int]], NDArray[np.float64]]


def clumpy_view(seed: int) -> Vectors:
    draw = np.random.default_rng(seed)
    return draw.standard_normal((6, 10))[draw.integers(0, 6, COUNT)] + 0.4 * draw.standard_normal((COUNT, 10))


def unlabelled(but: Sequence[int] = ()) -> Vectors:
    """The labels as the oracles read them: NaN for every candidate, 0 for what is kept already."""
    labels = np.full(COUNT, np.nan)
    labels[list(but)] = 0
    return labels


def assert_follows(chosen: keepset.Selection, utilities: Utilities, start: Sequence[int] = ()) -> None:
    """Each pick has the oracle's largest utility, given those before; that utility is the gain, up to one factor.

    The oracle draws among ties and averages over its candidates alone, so it is asked anew before every pick.
    """
    taken = list(start)
    for pick, gain in zip(chosen, np.asarray(chosen.gains), strict=True):
        found = utilities(taken)
        assert found[pick] == pytest.approx(np.nanmax(found), rel=1e-10)
        assert gain * COUNT == pytest.approx(found[pick], rel=1e-9)
        taken.append(pick)


# ---------------------------------------------------------------- MaxHerding


def herding_utilities(view: Vectors, **settings: Any) -> Utilities:
    def utilities(taken: Sequence[int]) -> NDArray[np.float64]:
        strategy = MaxHerding(missing_label=np.nan, random_state=0, **settings)
        _, found = strategy.query(view, unlabelled(but=taken), batch_size=1, return_utilities=True)
        return np.asarray(found[0]) * (COUNT - len(taken))

    return utilities


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bandwidth", [0.3, 0.5**0.5, 2.0])
def test_maxherding__gaussian_kernel_as_scikit_activeml(seed: int, bandwidth: float) -> None:
    """exp(−γd²) with γ = 1/2σ²; σ = √½ is the kernel of the method's own authors."""
    view = clumpy_view(seed)
    oracle = MaxHerding(missing_label=np.nan, random_state=0, metric_dict={"gamma": 1 / (2 * bandwidth**2)})
    chosen = keepset.select(view, 8, method="maxherding", metric="euclidean", bandwidth=bandwidth)
    assert list(chosen) == oracle.query(view, unlabelled(), batch_size=8).tolist()
    assert_follows(chosen, herding_utilities(view, metric_dict={"gamma": 1 / (2 * bandwidth**2)}))


@pytest.mark.parametrize("kernel", ["rbf", "laplace", "tophat"])
def test_maxherding__cosine_kernels_as_scikit_activeml(kernel: str) -> None:
    view = clumpy_view(seed=4)
    chosen = keepset.select(view, 6, method="maxherding", kernel=kernel, neighbours=5)
    (width,) = chosen.scales.values()

    def similarity(x: Vectors, y: Vectors) -> float:
        distance = max(0.0, 1 - float(x @ y))
        shapes = {"rbf": np.exp(-(distance**2) / (2 * width**2)), "laplace": np.exp(-distance / width)}
        return float(shapes.get(kernel, distance <= width))

    assert_follows(chosen, herding_utilities(view, metric=similarity))


def test_maxherding__start_as_labelled_points_of_scikit_activeml() -> None:
    view, start = clumpy_view(seed=7), [3, 59, 20]
    settings = {"metric_dict": {"gamma": 1.5}}
    chosen = keepset.select(view, 6, method="maxherding", metric="euclidean", bandwidth=3**-0.5, start=start)
    oracle = MaxHerding(missing_label=np.nan, random_state=0, **settings)
    assert list(chosen) == oracle.query(view, unlabelled(but=start), batch_size=6).tolist()
    assert_follows(chosen, herding_utilities(view, **settings), start)


# ---------------------------------------------------------------- ProbCover


def cover_utilities(view: Vectors, radius: float) -> Utilities:
    """With a single radius to choose from, the oracle takes it, and warns that it did not look further."""
    vectors = view / np.linalg.norm(view, axis=1, keepdims=True)

    def utilities(taken: Sequence[int]) -> NDArray[np.float64]:
        strategy = ProbCover(missing_label=np.nan, random_state=0, n_classes=2, deltas=[radius])
        with pytest.warns(UserWarning, match="maximum purity"):
            _, found = strategy.query(vectors, unlabelled(but=taken), batch_size=1, return_utilities=True)
        return np.asarray(found[0])

    return utilities


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("neighbours", [4, 10])
@pytest.mark.parametrize("start", [(), (5, 17)])
def test_probcover__as_scikit_activeml_with_ties_to_the_lowest(
    seed: int, neighbours: int, start: tuple[int, ...]
) -> None:
    """An even number of neighbours and of points: no distance is exactly the radius, which is a mean of two."""
    view = clumpy_view(seed)
    chosen = keepset.select(view, 6, method="probcover", neighbours=neighbours, start=start)
    utilities = cover_utilities(view, next(iter(chosen.scales.values())))
    assert_follows(chosen, utilities, start)
    for position, pick in enumerate(chosen):
        assert pick == np.nanargmax(utilities([*start, *chosen[:position]]))


# ---------------------------------------------------------------- k-means


def inertia(view: Vectors, clusters: NDArray[np.int64]) -> float:
    members = [view[clusters == cluster] for cluster in np.unique(clusters)]
    return float(sum(((own - own.mean(axis=0)) ** 2).sum() for own in members))


@pytest.mark.parametrize("clusters", [1, 3, 12, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kmeans__on_average_as_tight_as_scikit_learn(clusters: int, dtype: torch.dtype) -> None:
    """One start each, over ten seeds: a single start of either can end in a poor minimum."""
    draw = np.random.default_rng(clusters)
    view = draw.standard_normal((12, 8))[draw.integers(0, 12, 300)] + 0.6 * draw.standard_normal((300, 8))
    view = reference.unit(view)
    points = Points(torch.from_numpy(view).to(dtype))
    found = [kmeans(points, clusters, torch.Generator().manual_seed(seed)).numpy() for seed in range(10)]
    oracle = [KMeans(clusters, n_init=1, random_state=seed).fit(view).inertia_ for seed in range(10)]
    assert all(len(np.unique(own)) == clusters for own in found)
    assert np.mean([inertia(view, own) for own in found]) == pytest.approx(np.mean(oracle), rel=0.03)


def test_kmeans__every_point_is_with_its_nearest_centre() -> None:
    view = reference.unit(clumpy_view(seed=2))
    found = kmeans(Points(torch.from_numpy(view)), 5, torch.Generator().manual_seed(3)).numpy()
    centres = np.stack([view[found == cluster].mean(axis=0) for cluster in range(5)])
    distances = ((view[:, None] - centres) ** 2).sum(axis=2)
    assert np.array_equal(distances.argmin(axis=1), found)


def test_kmeans__fewer_places_than_clusters_leaves_clusters_empty() -> None:
    view = torch.eye(3, dtype=torch.float64).repeat(5, 1)
    found = kmeans(Points(view), 7, torch.Generator().manual_seed(0))
    assert len(found.unique()) == 3
    assert torch.equal(found[:3].repeat(5), found)
