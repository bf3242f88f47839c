"""TEAL's stages, clusters and typicality; Rainbow Memory's even spacing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import keepset
import keepset.selection.teal as teal_module
import reference
from keepset.selection.teal import cluster_count, stages, typicality

Clustering = Callable[[Tensor, int, torch.Generator], Tensor]


def fixed_clusters(labels: list[int]) -> Clustering:
    """A clustering that always gives these clusters, however many it was asked for."""
    return lambda _vectors, _count, _generator: torch.tensor(labels)


def sectors(count: int, number: int) -> list[int]:
    """Points 0..count−1 dealt to uneven clusters."""
    return [(i * i + i // 3) % number for i in range(count)]


# ---------------------------------------------------------------- stages


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (1, [1]),
        (2, [2]),
        (3, [3]),
        (4, [3, 4]),
        (5, [3, 5]),
        (10, [3, 5, 7, 10]),
        (11, [3, 5, 7, 10, 11]),
        (50, [3, 5, 7, 10, 14, 20, 28, 40, 50]),
    ],
)
def test_stages__grow_by_two_fifths_up_to_the_budget(budget: int, expected: list[int]) -> None:
    assert stages(budget) == expected == reference.teal_stages(budget)


@pytest.mark.parametrize(
    ("size", "count", "expected"),
    [
        (10, 51, 10),  # fewer than a fifth of the points: a cluster each
        (10, 50, 2),  # just a fifth: a cluster for five
        (10, 10, 2),
        (14, 20, 2),
        (3, 10, 1),  # never none
        (700, 10_000, 500),
        (4000, 5000, 500),
    ],
)
def test_cluster_count__one_each_or_one_for_five(size: int, count: int, expected: int) -> None:
    assert cluster_count(size, count) == expected


# ---------------------------------------------------------------- typicality


def squares(view: Tensor) -> Tensor:
    """Squared distances of all pairs."""
    return (view[:, None] - view).square().sum(2)


def test_typicality__of_a_lone_member_is_zero() -> None:
    assert typicality(torch.zeros(1, 1)).tolist() == [0.0]


def test_typicality__of_three_looks_at_the_nearest_one() -> None:
    """At 0, 1 and 3 on a line: squared distances to the nearest 1, 1 and 4."""
    found = typicality(squares(torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)))
    np.testing.assert_allclose(found.numpy(), [1 / (1 + 1e-5), 1 / (1 + 1e-5), 1 / (4 + 1e-5)], rtol=1e-12)


def test_typicality__of_many_looks_at_the_nearest_twenty() -> None:
    squared = squares(torch.from_numpy(np.random.default_rng(0).standard_normal((50, 3))))
    nearest = np.sort(squared.numpy(), axis=1)[:, 1:21]
    np.testing.assert_allclose(typicality(squared).numpy(), 1 / (nearest.mean(axis=1) + 1e-5), rtol=1e-12)


def test_typicality__of_copies_is_the_largest_there_is() -> None:
    found = typicality(torch.zeros(4, 4, dtype=torch.float64))
    np.testing.assert_allclose(found.numpy(), 1e5, rtol=1e-12)


# ---------------------------------------------------------------- the whole of TEAL


@pytest.mark.parametrize("count", [12, 45, 90])
@pytest.mark.parametrize("seed", range(3))
def test_teal__as_the_reference_with_the_same_clusters(count: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    view = np.random.default_rng(seed).standard_normal((count, 4))
    monkeypatch.setattr(
        teal_module, "kmeans", lambda _vectors, number, _generator: torch.tensor(sectors(count, number))
    )
    for budget in (1, 3, 10, count):
        expected = reference.teal(view, budget, lambda number: sectors(count, number))
        assert list(keepset.select(view, budget, method="teal")) == expected
    start = [4, 0, 7]
    expected = reference.teal(view, 6, lambda number: sectors(count, number), start)
    assert list(keepset.select(view, 6, method="teal", start=start)) == expected


@pytest.mark.parametrize("copies", [1, 2])
def test_teal__picks_alike_whether_distances_are_kept_or_not(copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    view = np.random.default_rng(3).standard_normal((60, 5)).repeat(copies, axis=0)
    kept = keepset.select(view, 20, method="teal", generator=0)
    monkeypatch.setattr(teal_module, "ALL_PAIRS", 0)
    assert list(keepset.select(view, 20, method="teal", generator=0)) == list(kept)


def pick(monkeypatch: pytest.MonkeyPatch, labels: list[int], budget: int, **options: Any) -> list[int]:
    monkeypatch.setattr(teal_module, "kmeans", fixed_clusters(labels))
    view = np.random.default_rng(1).standard_normal((len(labels), 3))
    return list(keepset.select(view, budget, method="teal", **options))


def test_teal__the_largest_cluster_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = [0] * 7 + [1] * 9 + [2] * 8
    assert [labels[i] for i in pick(monkeypatch, labels, 3)] == [1, 2, 0]


def test_teal__clusters_of_five_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = [0] * 5 + [1] * 6 + [2] * 5
    assert {labels[i] for i in pick(monkeypatch, labels, 6)} == {1}


def test_teal__if_all_clusters_are_small_all_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = [0] * 3 + [1] * 5 + [2] * 4
    assert [labels[i] for i in pick(monkeypatch, labels, 3)] == [1, 2, 0]


def test_teal__exhausted_clusters_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters of 6 and 30, twenty picks: the small cluster gives all its 6, the other the rest."""
    labels = [0] * 6 + [1] * 30
    found = pick(monkeypatch, labels, 20)
    assert len(set(found)) == 20
    assert [labels[i] for i in found].count(0) == 6


def test_teal__small_clusters_give_the_rest_when_the_large_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = [0] * 2 + [1] * 6 + [2] * 3
    found = pick(monkeypatch, labels, 11)
    assert sorted(found) == list(range(11))
    assert {labels[i] for i in found[:6]} == {1}


def test_teal__a_cluster_that_holds_a_choice_already_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = [0] * 9 + [1] * 7
    assert labels[pick(monkeypatch, labels, 1)[0]] == 0
    assert labels[pick(monkeypatch, labels, 1, start=[2])[0]] == 1


def test_teal__takes_the_middle_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five points on an arc: to the nearest two it is least far from the third."""
    angles = np.radians([-20, -10, 0, 9, 21])
    view = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    monkeypatch.setattr(teal_module, "kmeans", fixed_clusters([0] * 5))
    assert list(keepset.select(view, 1, method="teal")) == [2]


def test_teal__two_far_clumps_each_give_one() -> None:
    """Budget 3 of 40 points asks for three clusters; two clumps of 20 opposite each other."""
    draw = np.random.default_rng(3)
    view = np.concatenate([sign * (np.array([5.0, 0, 0]) + 0.1 * draw.standard_normal((20, 3))) for sign in (1, -1)])
    for seed in range(5):
        assert {i // 20 for i in keepset.select(view, 3, method="teal", generator=seed)} == {0, 1}


def test_teal__another_seed_may_give_other_clusters() -> None:
    view = np.random.default_rng(3).standard_normal((80, 6))
    assert len({tuple(keepset.select(view, 8, method="teal", generator=seed)) for seed in range(6)}) > 1


# ---------------------------------------------------------------- Rainbow Memory

Scores = NDArray[np.float64]


def rainbow(scores: Any, budget: int, **options: Any) -> list[int]:
    view = np.ones((len(scores), 1))
    return list(keepset.select(view, budget, method="rainbow", uncertainty=scores, **options))


def test_rainbow__takes_every_nth_from_certain_to_uncertain() -> None:
    assert rainbow([0.7, 0.1, 0.5, 0.3, 0.9, 0.2], 3) == [1, 3, 0]


def test_rainbow__leftover_points_are_the_most_uncertain() -> None:
    """Seven points, budget 3: every second, and the seventh is not reached."""
    assert rainbow(np.arange(7) / 7, 3) == [0, 2, 4]


def test_rainbow__more_than_half_takes_the_most_certain() -> None:
    assert rainbow([3, 2, 1, 0], 3) == [3, 2, 1]


def test_rainbow__ties_go_to_the_lowest_index() -> None:
    assert rainbow([1, 0, 1, 0, 1, 0], 6) == [1, 3, 5, 0, 2, 4]
    assert rainbow([0.5] * 9, 3) == [0, 3, 6]


def test_rainbow__points_of_start_are_left_out_before_spacing() -> None:
    assert rainbow(np.arange(8.0), 3, start=[0, 1]) == [2, 4, 6]


def test_rainbow__reads_lists_arrays_and_tensors_alike() -> None:
    scores: Scores = np.random.default_rng(0).uniform(size=20)
    expected = rainbow(scores.tolist(), 5)
    assert rainbow(scores, 5) == rainbow(torch.from_numpy(scores), 5) == expected


def test_rainbow__without_uncertainty_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match=r"rainbow needs uncertainty="):
        keepset.select(np.ones((4, 1)), 2, method="rainbow")


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0.1, 0.2], r"uncertainty must have shape \(4,\)"),
        ([0.1, 0.2, float("nan"), 0.4], "uncertainty must be finite"),
        (["a", "b", "c", "d"], "uncertainty must be numbers"),
    ],
)
def test_rainbow__refuses_wrong_uncertainty(scores: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        keepset.select(np.ones((4, 1)), 2, method="rainbow", uncertainty=scores)
