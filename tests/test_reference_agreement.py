"""The package against the slow reference, and against the best that any subset can do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import keepset
import reference
from keepset.selection.geometry import Cloud, cloud, pairwise
from keepset.selection.kernels import median_bandwidth
from keepset.selection.scales import SMALL, middle_distances

COUNT = 20  # 190 pairs: an even number, so that no pair lies exactly at a median
Vectors = NDArray[np.float64]
REFERENCES = {
    "mers": reference.mers,
    "maxherding": reference.maxherding,
    "mers-probcover": reference.mers_probcover,
    "probcover": reference.probcover,
}
SOFT = ("mers", "maxherding")


def random_views(seed: int, count: int = COUNT, number: int = 2) -> dict[str, Vectors]:
    """Views that differ in width and in how far their points lie from a common centre."""
    draw = np.random.default_rng(seed)
    return {f"v{m}": draw.standard_normal((count, 4 + 4 * m)) + draw.uniform(0, 2, 4 + 4 * m) for m in range(number)}


def assert_agrees(chosen: keepset.Selection, expected: reference.Found, start: Sequence[int] = ()) -> None:
    """Equal picks and gains; where the picks part, it must be at a tie that rounding decides.

    Such ties are real: two points that are near each other alone gain 1 − c_i + K_ij − c_j, whichever is taken.
    """
    np.testing.assert_allclose(list(chosen.weights.values()), expected.weights, rtol=1e-10)
    np.testing.assert_allclose(list(chosen.scales.values()), expected.scales, rtol=1e-10)
    assert chosen.k == expected.k
    gains = np.asarray(chosen.gains)
    if list(chosen) == expected.indices:
        np.testing.assert_allclose(gains, expected.gains, rtol=1e-9, atol=1e-13)
        assert chosen.objective == pytest.approx(expected.objective, rel=1e-10)
    elif expected.later is None:
        np.testing.assert_allclose(gains, steps_up(list(chosen), expected.cover, start), rtol=1e-9, atol=1e-13)
        assert chosen.objective == pytest.approx(expected.cover([*start, *chosen]), rel=1e-10)
    else:
        covering = int(np.count_nonzero(gains))
        assert chosen[:covering] == expected.indices[:covering]
        np.testing.assert_allclose(gains, expected.gains, rtol=1e-9, atol=1e-13)
        steps_up(chosen[covering:], expected.later, [*start, *chosen[:covering]])


def steps_up(picks: list[int], cover: Callable[[list[int]], float], start: Sequence[int]) -> list[float]:
    """What each pick adds; none may be taken twice, and none may add less than another would have."""
    taken, gains = list(start), []
    for pick in picks:
        reached = [cover([*taken, j]) for j in range(COUNT)]
        assert pick not in taken
        assert reached[pick] == pytest.approx(max(reached), rel=1e-13)
        gains.append(reached[pick] - cover(taken))
        taken.append(pick)
    return gains


# ---------------------------------------------------------------- soft cover

BANDWIDTHS: tuple[Any, ...] = ("median", "knn", 0.4, {"v0": 0.3, "v1": 0.7})
WEIGHTS: tuple[Any, ...] = ("printed", "inverse", "density", "equal", (1, 3), {"v1": 2.0, "v0": 0.5})


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "literal"])
@pytest.mark.parametrize("bandwidth", BANDWIDTHS, ids=str)
@pytest.mark.parametrize("kernel", ["rbf", "laplace"])
@pytest.mark.parametrize("fusion", ["sum-then-max", "max-then-sum"])
def test_mers__kernel_options_as_in_the_reference(metric: str, bandwidth: Any, kernel: str, fusion: str) -> None:
    options = {"metric": metric, "bandwidth": bandwidth, "kernel": kernel, "fusion": fusion}
    views = random_views(seed=len(metric) + len(str(bandwidth)))
    assert_agrees(keepset.select(views, 5, **options), reference.mers(views, 5, **options))


@pytest.mark.parametrize("method", ["mers", "mers-probcover"])
@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@pytest.mark.parametrize("neighbours", [None, 1, 4, COUNT - 1])
def test_two_views__weights_and_neighbours_as_in_the_reference(
    method: str, weights: Any, neighbours: int | None
) -> None:
    views = random_views(seed=3)
    options = {"weights": weights, "neighbours": neighbours}
    chosen = keepset.select(views, 6, method=method, **options)
    assert_agrees(chosen, REFERENCES[method](views, 6, **options))


@pytest.mark.parametrize("method", list(REFERENCES))
@pytest.mark.parametrize("seed", range(6))
def test_cover__point_weights_scale_and_start_as_in_the_reference(method: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    views = random_views(seed)
    options: dict[str, Any] = {
        "point_weights": draw.uniform(0, 3, COUNT) * (draw.uniform(size=COUNT) < 0.8),
        "bandwidth_scale": float(draw.uniform(0.3, 3)),
        "start": draw.permutation(COUNT)[: seed % 4].tolist(),
    }
    chosen = keepset.select(views, 4, method=method, **options)
    assert_agrees(chosen, REFERENCES[method](views, 4, **options), options["start"])


@pytest.mark.parametrize("method", list(REFERENCES))
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("budget", [1, 3, 8, COUNT])
def test_cover__defaults_as_in_the_reference(method: str, number: int, budget: int) -> None:
    views = random_views(seed=10 * budget + number, number=number)
    assert_agrees(keepset.select(views, budget, method=method), REFERENCES[method](views, budget))


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "literal"])
@pytest.mark.parametrize("fusion", ["sum-then-max", "max-then-sum"])
@pytest.mark.parametrize("method", SOFT)
def test_tophat__ties_go_to_the_lowest_index_as_in_the_reference(metric: str, fusion: str, method: str) -> None:
    """Weights of a half each are exact, so that equal counts are equal to the bit."""
    options: dict[str, Any] = {"metric": metric, "fusion": fusion, "kernel": "tophat", "weights": "equal"}
    for seed in range(4):
        views = random_views(seed)
        if method == "maxherding":
            options["weights"] = "printed"
        chosen = keepset.select(views, 7, method=method, **options)
        assert_agrees(chosen, REFERENCES[method](views, 7, **options))


def test_select__view_names_the_one_that_a_single_view_method_reads() -> None:
    views = random_views(seed=8)
    for method in ("maxherding", "probcover"):
        expected = REFERENCES[method]({"v1": views["v1"]}, 5)
        assert_agrees(keepset.select(views, 5, method=method, view="v1"), expected)
        assert_agrees(keepset.select(views, 5, method=method, view=1), expected)


@pytest.mark.parametrize(("count", "budget", "k"), [(10, 4, 2), (14, 4, 4), (15, 4, 4), (6, 1, 5), (3, 3, 1)])
def test_select__k_is_points_by_budget_rounded_half_to_even(count: int, budget: int, k: int) -> None:
    views = random_views(seed=1, count=count)
    assert reference.neighbour_count(count, budget) == k
    assert keepset.select(views, budget).k == k


def test_select__medians_average_the_middle_two() -> None:
    """Four points at 0, 20, 50 and 90 degrees: six pairs, the middle ones 40 and 50 degrees apart."""
    angles = np.radians([0, 20, 50, 90])
    view = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    middle = (1 - math.cos(math.radians(40)) + 1 - math.cos(math.radians(50))) / 2
    assert keepset.select(view, 1).scales["view 0"] == pytest.approx(middle, rel=1e-12)


# ---------------------------------------------------------------- hard cover


@pytest.mark.parametrize("uncovered", ["each", "shared"])
@pytest.mark.parametrize("weights", ["printed", "inverse", "density", "equal"])
@pytest.mark.parametrize("seed", range(4))
def test_mers_probcover__uncovered_sets_as_in_the_reference(uncovered: str, weights: str, seed: int) -> None:
    views = random_views(seed)
    options: dict[str, Any] = {"uncovered": uncovered, "weights": weights, "neighbours": 3}
    chosen = keepset.select(views, 9, method="mers-probcover", **options)
    assert_agrees(chosen, reference.mers_probcover(views, 9, **options))


@pytest.mark.parametrize("method", ["probcover", "mers-probcover"])
def test_hard_cover__three_views_take_a_largest_gain_each_time(method: str) -> None:
    """Thirds are not exact, so that tied candidates may fall either way: what is gained must be the most there is."""
    for seed in range(5):
        views = random_views(seed, number=3)
        chosen = keepset.select(views, 6, method=method, weights="equal", neighbours=4)
        shown = views if method == "mers-probcover" else {"v0": views["v0"]}
        cover = reference.hard(shown, 4, "equal")
        for position, gain in enumerate(np.asarray(chosen.gains)):
            taken = chosen[:position]
            best = max(cover([*taken, j]) for j in range(COUNT)) - cover(taken)
            assert gain == pytest.approx(best, abs=1e-12)
        assert chosen.objective == pytest.approx(cover(list(chosen)), rel=1e-12)


def test_hard_cover__once_all_is_covered_the_rest_come_by_soft_gain() -> None:
    """Two clumps: two balls cover everything, and the other picks gain nothing but are as soft cover orders them."""
    draw = np.random.default_rng(5)
    view = np.concatenate([draw.normal(0, 0.05, (10, 4)) + centre for centre in np.eye(4)[:2]])
    chosen = keepset.select(view, COUNT, method="probcover", neighbours=9)
    covering = int(np.count_nonzero(np.asarray(chosen.gains)))
    assert 2 <= covering < COUNT - 5
    assert not np.asarray(chosen.gains)[covering:].any()
    assert chosen.objective == pytest.approx(1)
    assert sorted(chosen) == list(range(COUNT))
    later = keepset.select(view, COUNT - covering, method="maxherding", neighbours=9, start=chosen[:covering])
    assert chosen[covering:] == list(later)
    assert_agrees(chosen, reference.probcover({"view 0": view}, COUNT, neighbours=9))


# ---------------------------------------------------------------- as good as theory says


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fusion", ["sum-then-max", "max-then-sum"])
def test_mers__reaches_its_share_of_the_best_subset(seed: int, fusion: str) -> None:
    views = random_views(seed, count=10)
    for budget in (2, 3, 4):
        k = reference.neighbour_count(10, budget)
        best = reference.best_subset(reference.soft(views, k, fusion=fusion), 10, budget)
        reached = keepset.select(views, budget, fusion=fusion).objective
        assert (1 - 1 / math.e) * best <= reached <= best + 1e-12


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("neighbours", [1, 2, None])
def test_mers_probcover__reaches_its_share_of_the_best_subset(seed: int, neighbours: int | None) -> None:
    views = random_views(seed, count=10)
    for budget in (2, 3, 4):
        k = neighbours or reference.neighbour_count(10, budget)
        best = reference.best_subset(reference.hard(views, k), 10, budget)
        reached = keepset.select(views, budget, method="mers-probcover", neighbours=neighbours).objective
        assert (1 - 1 / math.e) * best <= reached <= best + 1e-12


# ---------------------------------------------------------------- the others


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("budget", [1, 6, COUNT - 3])
def test_plain_methods__picks_as_in_the_reference(seed: int, budget: int) -> None:
    view = random_views(seed)["v0"]
    start = np.random.default_rng(seed).permutation(COUNT)[: seed % 4].tolist()
    scores = np.random.default_rng(seed).integers(0, 5, COUNT).astype(float)
    assert list(keepset.select(view, budget, method="herding", start=start)) == reference.herding(view, budget, start)
    assert list(keepset.select(view, budget, method="closest", start=start)) == reference.closest(view, budget, start)
    chosen = keepset.select(view, budget, method="rainbow", uncertainty=scores, start=start)
    assert list(chosen) == reference.rainbow(scores.tolist(), budget, start)


# ---------------------------------------------------------------- kinds of numbers


def test_select__every_float_type_gives_the_picks_of_its_values_in_float64() -> None:
    """In these views no two candidates come closer than 0.001 in gain, so that rounding cannot swap them."""
    views = random_views(seed=14)
    for dtype, method in itertools.product((np.float16, np.float32), REFERENCES):
        narrow = {name: view.astype(dtype) for name, view in views.items()}
        wide = {name: view.astype(np.float64) for name, view in narrow.items()}
        chosen, expected = (keepset.select(given, 5, method=method) for given in (narrow, wide))
        assert list(chosen) == list(expected)
        np.testing.assert_allclose(np.asarray(chosen.gains), np.asarray(expected.gains), rtol=1e-4, atol=1e-7)
        assert chosen.objective == pytest.approx(expected.objective, rel=1e-5)


def test_select__bfloat16_gives_the_picks_of_its_values_in_float32() -> None:
    narrow = {name: torch.from_numpy(view).bfloat16() for name, view in random_views(seed=14).items()}
    wide = {name: view.float() for name, view in narrow.items()}
    for method in REFERENCES:
        chosen, expected = (keepset.select(given, 5, method=method) for given in (narrow, wide))
        assert list(chosen) == list(expected)
        assert torch.equal(torch.as_tensor(chosen.gains), torch.as_tensor(expected.gains))


def test_select__numpy_and_torch_agree_to_the_bit() -> None:
    views = random_views(seed=6)
    tensors = {name: torch.from_numpy(view) for name, view in views.items()}
    for method in REFERENCES:
        one, other = (keepset.select(given, 5, method=method) for given in (views, tensors))
        assert list(one) == list(other)
        assert np.array_equal(np.asarray(one.gains), np.asarray(other.gains))
        assert (one.weights, one.scales, one.objective) == (other.weights, other.scales, other.objective)


# ---------------------------------------------------------------- going on


@pytest.mark.parametrize("method", [*REFERENCES, "herding", "closest"])
@pytest.mark.parametrize("cut", [1, 4, 7])
def test_select__start_goes_on_as_one_longer_selection(method: str, cut: int) -> None:
    """The number of neighbours is fixed: it would follow the budget otherwise, and weights and radius with it."""
    views = random_views(seed=11)
    options: dict[str, Any] = {"neighbours": 2} if method in REFERENCES else {}
    whole = keepset.select(views, 8, method=method, **options)
    first = keepset.select(views, cut, method=method, **options)
    second = keepset.select(views, 8 - cut, method=method, start=list(first), **options)
    assert [*first, *second] == list(whole)
    if method in REFERENCES:
        gains = np.concatenate([np.asarray(first.gains), np.asarray(second.gains)])
        np.testing.assert_allclose(gains, np.asarray(whole.gains), rtol=1e-9, atol=1e-13)
        assert second.objective == pytest.approx(whole.objective, rel=1e-12)


# ---------------------------------------------------------------- medians of very many pairs

LARGE = 1600
SAMPLED = np.linspace(0, LARGE - 1, 1024, dtype=np.float32).astype(int)  # the points that the bracket is read off


def middle_two(points: Cloud) -> tuple[float, float]:
    """By a full sort."""
    matrix = pairwise(points).numpy()
    values = np.sort(matrix[np.triu_indices(len(matrix), 1)])
    return float(values[(len(values) - 1) // 2]), float(values[len(values) // 2])


def large_view(case: str) -> Vectors:
    draw = np.random.default_rng(0)
    view = draw.standard_normal((LARGE, 5))
    others = np.setdiff1d(np.arange(LARGE), SAMPLED)
    if case == "many copies":
        view = view[draw.integers(0, 40, LARGE)]
    elif case == "three points, many copies":
        view = view[draw.integers(0, 3, LARGE)]
    elif case == "nearly all one point":
        view[: LARGE * 4 // 5] = view[0]
    elif case == "the middle is above the bracket":  # the points that are not sampled are opposite
        view[:, 0] = 3 + np.abs(view[:, 0])
        view[others] *= -1
    elif case == "the middle is below the bracket":  # the points that are not sampled lie together, between the others
        view[:, 0] = np.abs(view[:, 0])
        view[others] = np.array([9, 0, 0, 0, 0]) + 0.01 * draw.standard_normal((len(others), 5))
    return view


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "case",
    [
        "plain",
        "many copies",
        "three points, many copies",
        "nearly all one point",
        "the middle is above the bracket",
        "the middle is below the bracket",
    ],
)
def test_median__exact_for_more_pairs_than_are_sorted_at_once(case: str, dtype: Any) -> None:
    points = cloud(torch.from_numpy(large_view(case).astype(dtype)))
    assert len(points) * (len(points) - 1) // 2 > SMALL
    expected = middle_two(points)
    assert middle_distances(points) == expected
    assert middle_distances(points, pairwise(points)) == expected
    low, high = expected
    assert median_bandwidth(points, "cosine") == (low + high) / 2
    assert median_bandwidth(points, "euclidean") == (math.sqrt(2 * low) + math.sqrt(2 * high)) / 2


def test_select__many_pairs_give_the_median_of_plain_differences() -> None:
    view = large_view("plain")
    vectors = view / np.linalg.norm(view, axis=1, keepdims=True)
    found = [((vectors[i + 1 :] - vectors[i]) ** 2).sum(1) / 2 for i in range(LARGE)]
    assert keepset.select(view, 1).scales["view 0"] == pytest.approx(float(np.median(np.concatenate(found))), rel=1e-9)
