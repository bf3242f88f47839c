"""The cover methods on points whose geometry is told, and what each option changes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import keepset

Vectors = NDArray[np.float64]
COVER = ("probcover", "maxherding", "mers-probcover", "mers")
SOFT = ("maxherding", "mers")


def on_circle(*degrees: float) -> Vectors:
    """Unit vectors in the plane at these angles."""
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def clumps(*sizes: int, spread: float = 0.05) -> Vectors:
    """Clumps of these sizes, each around an axis of its own."""
    draw = np.random.default_rng(len(sizes))
    width = max(4, len(sizes))
    return np.concatenate(
        [np.eye(width)[axis] + spread * draw.standard_normal((size, width)) for axis, size in enumerate(sizes)]
    )


def two_views(seed: int, count: int = 24) -> dict[str, Vectors]:
    draw = np.random.default_rng(seed)
    return {"wide": draw.standard_normal((count, 12)), "narrow": draw.standard_normal((count, 3)) + 1}


# ---------------------------------------------------------------- goldens


@pytest.mark.parametrize("method", COVER)
def test_two_clumps_of_three_and_a_far_point__budget_two_takes_one_of_each_clump(method: str) -> None:
    """The middle one of each clump covers all of it; the far point covers itself alone."""
    view = on_circle(-3, 0, 3, 86, 90, 94, 225)
    assert list(keepset.select(view, 2, method=method, neighbours=2, bandwidth=0.01)) == [1, 4]


@pytest.mark.parametrize("method", COVER)
def test_two_clumps_of_three_and_a_far_point__budget_three_takes_the_far_point_too(method: str) -> None:
    view = on_circle(-3, 0, 3, 86, 90, 94, 225)
    assert list(keepset.select(view, 3, method=method, neighbours=2, bandwidth=0.01)) == [1, 4, 6]


@pytest.mark.parametrize("method", COVER)
def test_clumps_of_unequal_size__the_largest_is_covered_first(method: str) -> None:
    view = clumps(3, 9, 5, 7)
    owner = np.repeat([0, 1, 2, 3], [3, 9, 5, 7])
    chosen = keepset.select(view, 4, method=method, neighbours=8, bandwidth=0.1)
    assert owner[list(chosen)].tolist() == [1, 3, 2, 0]
    if method in SOFT:
        np.testing.assert_allclose(np.asarray(chosen.gains) * 24, [9, 7, 5, 3], rtol=0.01)


def test_mers__takes_the_point_that_is_central_in_both_views() -> None:
    """Point 0 is best in the first view alone, point 4 in the second; point 2 is good in both."""
    first = on_circle(0, 10, -10, 20, -80, -20)
    second = on_circle(80, 20, 10, -20, 0, -10)
    assert keepset.select(first, 1)[0] == 0
    assert keepset.select(second, 1)[0] == 4
    assert keepset.select([first, second], 1, weights="equal")[0] == 2


def test_select__start_counts_as_covered() -> None:
    """With the clump of four kept already, the next pick is in the clump of three."""
    view = clumps(4, 3)
    assert keepset.select(view, 1)[0] < 4
    for method in COVER:
        assert keepset.select(view, 1, method=method, start=[2], neighbours=3)[0] >= 4


FOUR_COPIES = np.array([[1.0, 0], [1, 0], [1, 0], [1, 0], [0, 1]])


@pytest.mark.parametrize("method", COVER)
def test_select__points_that_coincide_have_no_scale_and_say_so(method: str) -> None:
    """Four copies and another point: six of ten distances are 0."""
    chosen = keepset.select(FOUR_COPIES, 3, method=method)
    assert list(chosen) == [0, 4, 1]
    assert chosen.scales["view 0"] == 0
    assert any("coincide" in note for note in chosen.notes)
    np.testing.assert_allclose(np.asarray(chosen.gains), [0.8, 0.2, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_select__points_that_differ_in_signs_alone_are_no_copies(dtype: Any) -> None:
    """The eight corners of a cube: each is at the same distances from the others, none is at 0."""
    corners = np.array([[x, y, z] for x in (1, -1) for y in (1, -1) for z in (1, -1)], dtype)
    tight = keepset.select(corners, 3, bandwidth=0.01)
    np.testing.assert_allclose(np.asarray(tight.gains), [1 / 8] * 3, rtol=1e-6)
    assert keepset.select(corners, 8, method="probcover").scales["view 0"] == pytest.approx((4 / 3) ** 0.5)


@pytest.mark.parametrize("listed", [[0.3, 0.02], (0.3, 0.02), np.array([0.3, 0.02])])
def test_bandwidth__in_the_order_of_the_views_as_by_name(listed: Any) -> None:
    draw = np.random.default_rng(0)
    views = {"first": draw.standard_normal((40, 3)), "second": draw.standard_normal((40, 5))}
    chosen = keepset.select(views, 6, bandwidth=listed)
    assert chosen.scales == {"first": 0.3, "second": 0.02}
    assert list(chosen) == list(keepset.select(views, 6, bandwidth={"second": 0.02, "first": 0.3}))
    assert list(chosen) != list(keepset.select(views, 6, bandwidth=[0.02, 0.3]))


def test_weights__a_view_of_copies_weighs_one_and_says_so() -> None:
    """Half of the points of the second view have a copy: its density has no limit."""
    draw = np.random.default_rng(0)
    views = {"plain": draw.standard_normal((8, 3)), "copies": draw.standard_normal((4, 3)).repeat(2, axis=0)}
    chosen = keepset.select(views, 2)
    assert any("'copies'" in note and "weight is 1" in note for note in chosen.notes)
    alone = keepset.select({"plain": views["plain"], "other": draw.standard_normal((8, 3))}, 2)
    assert not alone.notes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_soft_cover__of_two_copies_the_lower_index_is_taken_first(dtype: Any) -> None:
    """Each point is there twice, in any order: copies tie."""
    for seed in range(20):
        draw = np.random.default_rng(seed)
        source = draw.permutation(np.repeat(np.arange(15), 2))
        view = draw.standard_normal((15, 7))[source].astype(dtype)
        chosen = list(keepset.select(view, 15))
        for position, pick in enumerate(chosen):
            twin = next(i for i in range(30) if source[i] == source[pick] and i != pick)
            assert pick < twin or twin in chosen[:position]


# ---------------------------------------------------------------- what each option changes


def test_weights__all_on_one_view_selects_by_that_view() -> None:
    views = two_views(seed=1)
    for method, single in (("mers", "maxherding"), ("mers-probcover", "probcover")):
        for name, weights in (("wide", [1, 0]), ("narrow", [0, 2.5])):
            chosen = keepset.select(views, 5, method=method, weights=weights)
            alone = keepset.select(views[name], 5, method=single)
            assert list(chosen) == list(alone)
            assert chosen.weights == {"wide": float(name == "wide"), "narrow": float(name == "narrow")}
            assert chosen.objective == pytest.approx(alone.objective)


def test_weights__each_rule_weighs_differently_and_sums_to_one() -> None:
    views = two_views(seed=1)
    found = {
        rule: keepset.select(views, 5, weights=rule).weights for rule in ("printed", "inverse", "density", "equal")
    }
    assert found["equal"] == {"wide": 0.5, "narrow": 0.5}
    assert len({weights["wide"] for weights in found.values()}) == 4
    for weights in found.values():
        assert sum(weights.values()) == pytest.approx(1)


def test_weights__numbers_in_order_and_by_name_are_the_same() -> None:
    views = two_views(seed=1)
    by_order = keepset.select(views, 5, weights=[3, 1])
    for weights in ({"narrow": 1, "wide": 3}, np.array([3.0, 1.0]), (0.75, 0.25)):
        other = keepset.select(views, 5, weights=weights)
        assert list(other) == list(by_order)
        assert other.weights == by_order.weights == {"wide": 0.75, "narrow": 0.25}


def test_bandwidth__median_knn_and_numbers_are_reported_as_scales() -> None:
    """At 0, 10 and 30 degrees: pairs 10, 20 and 30 apart; the nearest neighbours 10, 10 and 20 apart."""
    view = on_circle(0, 10, 30)
    ten, twenty = (math.radians(x) for x in (10, 20))
    cases: list[tuple[dict[str, Any], float]] = [
        ({}, 1 - math.cos(twenty)),
        ({"metric": "literal"}, 1 - math.cos(twenty)),
        ({"metric": "euclidean"}, 2 * math.sin(twenty / 2)),
        ({"bandwidth": "knn"}, 1 - math.cos(ten)),
        ({"bandwidth": "knn", "metric": "literal"}, 1 - math.cos(ten)),
        ({"bandwidth": "knn", "metric": "euclidean"}, 2 * math.sin(ten / 2)),
        ({"bandwidth": 0.7}, 0.7),
        ({"bandwidth": {"view 0": 0.2}}, 0.2),
        ({"bandwidth": 0.7, "bandwidth_scale": 2}, 1.4),
        ({"bandwidth_scale": 0.5}, (1 - math.cos(twenty)) / 2),
    ]
    for options, expected in cases:
        chosen = keepset.select(view, 1, neighbours=1, **options)
        assert chosen.scales["view 0"] == pytest.approx(expected, rel=1e-12), options


def test_bandwidth_scale__narrow_covers_less() -> None:
    view = two_views(seed=2)["wide"]
    reached = [keepset.select(view, 4, bandwidth_scale=scale).objective for scale in (0.1, 0.5, 1, 3)]
    assert reached == sorted(reached)
    assert reached[0] == pytest.approx(4 / 24, rel=0.05)  # each covers itself alone
    assert reached[-1] > 0.9


def test_kernel__of_one_pair_at_the_bandwidth() -> None:
    """Two points: their one distance is the bandwidth, so the kernel is told at 1."""
    view = on_circle(0, 30)
    for metric in ("cosine", "euclidean"):
        for kernel, value in (("rbf", math.exp(-0.5)), ("laplace", math.exp(-1)), ("tophat", 1.0)):
            chosen = keepset.select(view, 1, kernel=kernel, metric=metric)
            assert chosen.objective == pytest.approx((1 + value) / 2, rel=1e-12)
    distance, bandwidth = 2 * math.sin(math.radians(15)), 1 - math.cos(math.radians(30))
    literal = keepset.select(view, 1, metric="literal").objective
    assert literal == pytest.approx((1 + math.exp(-((distance / bandwidth) ** 2) / 2)) / 2, rel=1e-10)


def test_bandwidth__by_episode_is_the_median_over_all_classes() -> None:
    view = clumps(8, 8)
    labels = np.repeat([0, 1], 8)
    pooled = keepset.select(view, 1).scales["view 0"]
    for metric in ("cosine", "euclidean"):
        expected = keepset.select(view, 1, metric=metric).scales["view 0"]
        found = keepset.select_per_class(view, labels, 2, bandwidth="episode", metric=metric)
        assert [chosen.scales["view 0"] for chosen in found.values()] == [expected, expected]
    own = keepset.select_per_class(view, labels, 2)
    assert all(chosen.scales["view 0"] < pooled / 10 for chosen in own.values())


def test_neighbours__more_of_them_widen_the_radius() -> None:
    views = two_views(seed=3)
    radii = [keepset.select(views, 3, method="mers-probcover", neighbours=k).scales["wide"] for k in (1, 5, 12, 23)]
    assert radii == sorted(radii)
    assert len(set(radii)) == 4


def test_uncovered__shared_forgets_what_one_view_has_not_covered() -> None:
    """Points 0 to 3 are one place in the first view; in the second 0 is with 6 and 7, and 1 to 3 are a place of their
    own. Once 0 is taken, 1 to 3 are still worth covering in the second view, unless the views share what is covered."""
    first, second = np.eye(3)[[0, 0, 0, 0, 1, 1, 2, 2]], np.eye(3)[[0, 1, 1, 1, 2, 2, 0, 0]]
    options: dict[str, Any] = {"method": "mers-probcover", "neighbours": 1, "weights": [1, 3]}
    each = keepset.select([first, second], 2, uncovered="each", **options)
    shared = keepset.select([first, second], 2, uncovered="shared", **options)
    assert list(each) == [0, 1]
    assert list(shared) == [0, 4]
    np.testing.assert_allclose(np.asarray(each.gains) * 32, [4 + 9, 9])
    np.testing.assert_allclose(np.asarray(shared.gains) * 32, [4 + 9, 2 + 6])


def test_fusion__the_sum_of_best_lets_two_points_share_the_work() -> None:
    """A sum of maxima is at least the maximum of sums, for the same points."""
    views = two_views(seed=4)
    chosen = keepset.select(views, 5)
    other = keepset.coverage(views, list(chosen), fusion="max-then-sum")
    assert other > chosen.objective + 1e-6


def test_point_weights__worth_nothing_is_not_covered() -> None:
    """The larger clump is worth nothing: the other one is taken."""
    view = clumps(9, 4)
    weights = np.repeat([0.0, 1.0], [9, 4])
    for method in COVER:
        assert keepset.select(view, 1, method=method, neighbours=3)[0] < 9
        chosen = keepset.select(view, 1, method=method, point_weights=weights, neighbours=3, bandwidth=0.1)
        assert chosen[0] >= 9


def test_point_weights__a_whole_number_is_as_many_copies() -> None:
    view = np.random.default_rng(5).standard_normal((12, 4))
    times = np.random.default_rng(5).integers(1, 4, 12)
    chosen = keepset.select(view, 4, point_weights=times, bandwidth=0.4)
    repeated = keepset.select(view.repeat(times, axis=0), 4, bandwidth=0.4)
    owner = np.repeat(np.arange(12), times)
    assert owner[list(repeated)].tolist() == list(chosen)
    np.testing.assert_allclose(np.asarray(chosen.gains), np.asarray(repeated.gains), rtol=1e-9)


def test_point_weights__scale_does_not_matter() -> None:
    view = two_views(seed=5)["wide"]
    weights = np.random.default_rng(5).uniform(0, 1, 24)
    for method in COVER:
        one, other = (keepset.select(view, 6, method=method, point_weights=weights * x) for x in (1, 1024))
        assert list(one) == list(other)
        assert one.objective == pytest.approx(other.objective, rel=1e-12)


# ---------------------------------------------------------------- coverage


@pytest.mark.parametrize("method", COVER)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"metric": "euclidean", "kernel": "laplace"},
        {"weights": "inverse", "bandwidth": "knn"},
        {"neighbours": 3, "fusion": "max-then-sum"},
        {"point_weights": np.arange(24.0)},
    ],
    ids=lambda options: " ".join(options) or "defaults",
)
def test_coverage__of_its_own_picks_is_the_objective(method: str, options: dict[str, Any]) -> None:
    views = two_views(seed=6)
    chosen = keepset.select(views, 6, method=method, **options)
    found = keepset.coverage(views, chosen.indices, method=method, **options)
    assert found == pytest.approx(chosen.objective, rel=1e-12)
    assert found == pytest.approx(keepset.coverage(views, list(chosen)[::-1], method=method, **options), rel=1e-12)


def test_coverage__of_shared_uncovered_sets_is_the_objective() -> None:
    views = two_views(seed=6)
    chosen = keepset.select(views, 4, method="mers-probcover", uncovered="shared", neighbours=3)
    found = keepset.coverage(views, list(chosen), method="mers-probcover", uncovered="shared", neighbours=3)
    assert found == pytest.approx(chosen.objective, rel=1e-12)


def test_coverage__of_all_points_is_one() -> None:
    views = two_views(seed=6)
    for method in COVER:
        assert keepset.coverage(views, range(24), method=method) == pytest.approx(1)


def test_coverage__refuses_a_method_that_does_not_cover_and_an_empty_choice() -> None:
    views = two_views(seed=6)
    with pytest.raises(ValueError, match="method must be a cover method"):
        keepset.coverage(views, [0], method="herding")
    with pytest.raises(ValueError, match="at least one point"):
        keepset.coverage(views, [])


# ---------------------------------------------------------------- rows and table


@pytest.mark.parametrize("method", COVER)
@pytest.mark.parametrize("fusion", ["sum-then-max", "max-then-sum"])
def test_rows__shares_sum_to_one_and_coverage_adds_up(method: str, fusion: str) -> None:
    views = two_views(seed=7)
    start = [5, 9]
    chosen = keepset.select(views, 6, method=method, fusion=fusion, start=start, neighbours=3)
    rows = chosen.rows()
    assert [row["index"] for row in rows] == list(chosen)
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5, 6]
    names = [key for key in rows[0] if key.startswith("share of ")]
    assert names == [f"share of {name}" for name in chosen.weights]
    for position, row in enumerate(rows):
        kept = [*start, *chosen[: position + 1]]
        expected = keepset.coverage(views, kept, method=method, fusion=fusion, neighbours=3)
        assert row["coverage"] == pytest.approx(expected, rel=1e-10)
        assert row["gain"] == float(chosen.gains[position])
        if row["gain"] > 0:
            assert sum(row[name] for name in names) == pytest.approx(1)
    assert rows[-1]["coverage"] == pytest.approx(chosen.objective, rel=1e-12)


def test_rows__shares_tell_which_view_a_pick_is_for() -> None:
    """In the first view points 0 to 4 are one clump, in the second all seven lie apart: the first pick gains mostly
    in the first view, and a point from outside the clump gains in both alike."""
    first = on_circle(0, 1, 2, -1, -2, 120, 240)
    second = on_circle(0, 51, 103, 154, 206, 257, 309)
    chosen = keepset.select([first, second], 3, bandwidth=0.01, weights="equal")
    assert sorted(chosen) == [0, 5, 6]
    shares = np.asarray(chosen.shares["view 0"])
    assert shares[0] == pytest.approx(5 / 6, abs=0.02)
    np.testing.assert_allclose(shares[1:], 0.5, atol=0.02)


def test_table__has_a_line_a_pick_and_the_notes() -> None:
    chosen = keepset.select(FOUR_COPIES, 3)
    lines = chosen.table().splitlines()
    assert lines[0].split()[:4] == ["rank", "index", "gain", "coverage"]
    assert lines[1].split() == ["1", "0", "0.800000", "0.800000", "100%"]
    assert lines[2].split() == ["2", "4", "0.200000", "1.000000", "100%"]
    assert lines[3].split() == ["3", "1", "0.000000", "1.000000", "–"]  # nothing gained, nothing to share
    assert lines[4:] == list(chosen.notes)


def test_table__of_a_method_that_does_not_cover_shows_dashes() -> None:
    lines = keepset.select(np.eye(4), 2, method="herding").table().splitlines()
    assert lines[1].split()[2:] == ["–", "–"]


@pytest.mark.parametrize("method", ["mers", "mers-probcover"])
def test_many_points__sparing_memory_changes_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    views = {"a": generator.normal(size=(2100, 6)), "b": generator.normal(size=(2100, 6))}
    spared = keepset.select(views, 8, method=method)
    monkeypatch.setattr("keepset.selection.problem.KEPT_POINTS", 10**9)
    kept = keepset.select(views, 8, method=method)
    assert list(spared) == list(kept)
    assert spared.scales == kept.scales
    assert spared.weights == kept.weights
    np.testing.assert_allclose(spared.gains, kept.gains, rtol=1e-12)
    for name in views:
        np.testing.assert_allclose(spared.shares[name], kept.shares[name], rtol=1e-9)
