"""What covering a point is worth by a rule: purity and density, against written-out loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import keepset
import reference
from keepset.selection import targets
from keepset.selection.geometry import Cloud, distance_rows
from keepset.selection.options import Cover

Vectors = NDArray[np.float64]
COVER = ("probcover", "maxherding", "mers-probcover", "mers")
LABELS = np.array(["cat", "dog", "eel"] * 14)


def three_classes(seed: int = 0, count: int = 42) -> dict[str, Vectors]:
    """Two views of points whose classes overlap, more so in the first."""
    draw = np.random.default_rng(seed)
    centres = np.eye(6)[np.arange(count) % 3]
    return {
        "wide": draw.standard_normal((count, 6)) + centres,
        "narrow": draw.standard_normal((count, 6)) + 3 * centres,
    }


# ---------------------------------------------------------------- slow references


def slow_purity(view: Vectors, labels: Any, neighbours: int = 20) -> list[float]:
    """Sorts all other points by their distance, then by their index."""
    distances, shares = reference.cosine(view), []
    for i in range(len(view)):
        others = sorted((float(distances[i, j]), j) for j in range(len(view)) if j != i)
        near = [j for _, j in others[:neighbours]]
        shares.append(sum(labels[j] == labels[i] for j in near) / len(near))
    return shares


def slow_density(views: Mapping[str, Vectors], k: int, **options: Any) -> list[float]:
    """Adds up a point's similarity to every point, itself among them, view by view."""
    soft = reference.soft(views, k, **options)
    count, means = len(next(iter(views.values()))), []
    for i in range(count):
        total = 0.0
        for weight, kernel in zip(soft.weights, soft.kernels, strict=True):
            for j in range(count):
                total += weight * float(kernel[i, j])
        means.append(total / count)
    return means


def density(views: Mapping[str, Vectors], budget: int, start: Any = (), **options: Any) -> Vectors:
    tensors = {name: torch.from_numpy(view) for name, view in views.items()}
    found = targets.density(tensors, budget, torch.tensor(start, dtype=torch.int64), Cover(**options))
    return found.numpy()


def assert_same(one: keepset.Selection, other: keepset.Selection) -> None:
    assert list(one) == list(other)
    np.testing.assert_allclose(np.asarray(one.gains), np.asarray(other.gains), rtol=1e-9, atol=1e-13)
    assert (one.weights, one.scales, one.k, one.notes) == (other.weights, other.scales, other.k, other.notes)


# ---------------------------------------------------------------- purity


@pytest.mark.parametrize("count", [2, 5, 20, 21, 22, 42])
@pytest.mark.parametrize("rows", [5, 512])
def test_purity__as_in_the_reference(count: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "TILE_ROWS", rows)
    for seed in range(3):
        view = three_classes(seed)["wide"][:count]
        found = targets.purity(torch.from_numpy(view), torch.arange(count) % 3)
        assert found.tolist() == slow_purity(view, np.arange(count) % 3)


def test_purity__of_equally_near_points_the_lower_indices_count() -> None:
    """Thirty copies of one point, ten of the first label: each sees the first twenty of the others."""
    labels = torch.tensor([0] * 10 + [1] * 20)
    found = targets.purity(torch.ones(30, 4), labels)
    assert found.tolist() == [9 / 20] * 10 + [10 / 20] * 20


def test_purity__of_a_lone_point_is_one() -> None:
    assert targets.purity(torch.ones(1, 4), torch.zeros(1)).tolist() == [1.0]
    chosen = keepset.select_per_class(np.ones((1, 4)), ["a"], 1, point_weights="purity")
    assert list(chosen["a"]) == [0]


def test_purity__holds_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    heights: list[int] = []

    def watched(points: Cloud, rows: torch.Tensor) -> torch.Tensor:
        heights.append(len(rows))
        return distance_rows(points, rows)

    monkeypatch.setattr(targets, "distance_rows", watched)
    targets.purity(torch.randn(1300, 3, generator=torch.Generator().manual_seed(0)), torch.arange(1300) % 2)
    assert heights == [512, 512, 276]


@pytest.mark.parametrize("method", COVER)
@pytest.mark.parametrize("power", [None, 0.5, 3])
def test_select_per_class__purity_is_the_array_by_hand(method: str, power: float | None) -> None:
    views = three_classes()
    options: dict[str, Any] = {} if power is None else {"point_power": power}
    by_hand = np.array(slow_purity(views["narrow"], LABELS)) ** (power or 2) + 0.02
    found = keepset.select_per_class(views, LABELS, 5, method=method, point_weights="purity", **options)
    expected = keepset.select_per_class(views, LABELS, 5, method=method, point_weights=by_hand)
    for label, chosen in found.items():
        assert_same(chosen, expected[label])


def test_purity_view__by_name_by_position_and_the_second_by_default() -> None:
    views = three_classes()

    def picks(**options: Any) -> list[list[int]]:
        chosen = keepset.select_per_class(views, LABELS, 5, **options)
        return [list(each) for each in chosen.values()]

    for name, position in (("wide", 0), ("narrow", 1)):
        by_hand = np.array(slow_purity(views[name], LABELS)) ** 2 + 0.02
        expected = picks(point_weights=by_hand)
        assert picks(point_weights="purity", purity_view=name) == expected
        assert picks(point_weights="purity", purity_view=position) == expected
    assert picks(point_weights="purity") == expected != picks(point_weights="purity", purity_view=0)
    views["third"] = views["wide"]
    three = picks(point_weights="purity")
    assert three == picks(point_weights="purity", purity_view="narrow") != picks(point_weights="purity", purity_view=2)


def test_purity__may_look_at_a_view_that_the_method_does_not_read() -> None:
    views = three_classes()
    by_hand = np.array(slow_purity(views["narrow"], LABELS)) ** 2 + 0.02
    options: dict[str, Any] = {"method": "maxherding", "view": "wide"}
    found = keepset.select_per_class(views, LABELS, 5, point_weights="purity", purity_view="narrow", **options)
    expected = keepset.select_per_class({"wide": views["wide"]}, LABELS, 5, method="maxherding", point_weights=by_hand)
    assert [list(chosen) for chosen in found.values()] == [list(chosen) for chosen in expected.values()]


def test_purity__what_lies_among_another_class_is_left() -> None:
    """The larger clump of class 0 lies where class 1 is: the smaller one is taken first."""
    draw = np.random.default_rng(0)
    axes = np.repeat([0, 1, 0], [30, 24, 60])
    view = np.eye(4)[axes] + 0.05 * draw.standard_normal((114, 4))
    labels = np.repeat([0, 0, 1], [30, 24, 60])
    options: dict[str, Any] = {"bandwidth": 0.1}
    assert keepset.select_per_class(view, labels, 1, **options)[0][0] < 30
    assert 30 <= keepset.select_per_class(view, labels, 1, point_weights="purity", **options)[0][0] < 54


@pytest.mark.parametrize("method", COVER)
def test_purity__without_labels_is_refused(method: str) -> None:
    views = three_classes()
    message = "point_weights='purity' needs labels.*use select_per_class"
    with pytest.raises(ValueError, match=message):
        keepset.select(views, 3, method=method, point_weights="purity")
    with pytest.raises(ValueError, match=message):
        keepset.coverage(views, [0], method=method, point_weights="purity")


# ---------------------------------------------------------------- density


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weights": "inverse", "bandwidth": "knn"},
        {"weights": [2.0, 1.0], "bandwidth": 0.4},
        {"bandwidth_scale": 0.5, "neighbours": 3},
        {"metric": "euclidean", "kernel": "laplace"},
        {"metric": "literal", "fusion": "max-then-sum"},
        {"kernel": "tophat", "weights": "equal"},
    ],
    ids=lambda options: " ".join(options) or "defaults",
)
def test_density__as_in_the_reference(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    views = {name: view[:20] for name, view in three_classes(1).items()}  # 190 pairs: none lies exactly at a median
    slow = {name: value for name, value in options.items() if name != "neighbours"}
    for budget, start in ((4, []), (3, [7, 2])):
        k = options.get("neighbours") or reference.neighbour_count(20, budget + len(start))
        expected = slow_density(views, k, **slow)
        np.testing.assert_allclose(density(views, budget, start, **options), expected, rtol=1e-9)
        with monkeypatch.context() as patched:
            patched.setattr("keepset.selection.geometry.TILE_ROWS", 4)
            patched.setattr("keepset.selection.geometry.TILE_COLUMNS", 6)
            np.testing.assert_allclose(density(views, budget, start, **options), expected, rtol=1e-9)


def test_density__of_three_points_by_hand() -> None:
    """Two at one place and one across: with a tophat they see 2, 2 and 1 of 3."""
    view = np.array([[1.0, 0], [1, 0], [0, 1]])
    np.testing.assert_allclose(density({"a": view}, 1, kernel="tophat", bandwidth=0.5), [2 / 3, 2 / 3, 1 / 3])


@pytest.mark.parametrize("method", COVER)
@pytest.mark.parametrize("power", [None, 4])
def test_select__density_is_the_array_by_hand(method: str, power: float | None) -> None:
    """The one kernel of soft cover, also where hard cover reads the weights."""
    views = {name: view[:20] for name, view in three_classes(2).items()}
    read = views if method.startswith("mers") else {"wide": views["wide"]}
    options: dict[str, Any] = {} if power is None else {"point_power": power}
    for start in ([], [3, 11]):
        k = reference.neighbour_count(20, 4 + len(start))
        by_hand = np.array(slow_density(read, k)) ** (power or 2)
        found = keepset.select(views, 4, method=method, start=start, point_weights="density", **options)
        assert_same(found, keepset.select(views, 4, method=method, start=start, point_weights=by_hand))


@pytest.mark.parametrize("method", ["maxherding", "mers"])
def test_select_per_class__density_is_that_within_each_class(method: str) -> None:
    views = three_classes(3)
    found = keepset.select_per_class(views, LABELS, 3, method=method, point_weights="density")
    for label, chosen in found.items():
        members = np.flatnonzero(label == LABELS)
        own = {name: view[members] for name, view in views.items()}
        alone = keepset.select(own, 3, method=method, point_weights="density")
        assert members[list(alone)].tolist() == list(chosen)


def test_select_per_class__density_with_the_bandwidth_of_the_episode() -> None:
    views = three_classes(3)
    scales = keepset.select(views, 1, bandwidth="median").scales
    found, expected = (
        keepset.select_per_class(views, LABELS, 3, bandwidth=bandwidth, point_weights="density")
        for bandwidth in ("episode", dict(scales))
    )
    for label, chosen in found.items():
        assert_same(chosen, expected[label])


def test_density__a_lone_point_and_copies() -> None:
    assert list(keepset.select(np.ones((1, 3)), 1, point_weights="density")) == [0]
    copies = np.repeat(np.eye(3), [3, 1, 2], axis=0)
    assert list(keepset.select(copies, 3, point_weights="density")) == [0, 4, 3]


@pytest.mark.parametrize("method", COVER)
def test_coverage__by_density_is_the_objective(method: str) -> None:
    views = three_classes(4)
    options: dict[str, Any] = {"method": method, "point_weights": "density", "point_power": 3}
    chosen = keepset.select(views, 5, **options)
    assert keepset.coverage(views, list(chosen), **options) == pytest.approx(chosen.objective, rel=1e-12)


def test_density__a_clump_before_a_star() -> None:
    """The centre of the star sees its six, its satellites only themselves and the centre; each of the four of the clump
    sees all four. Of ten: 6 against 4 points, but 36 + 5 · 4 against 4 · 16 of their squares."""
    star = np.eye(8)[0] + 0.5 * np.concatenate([np.zeros((1, 8)), np.eye(8)[1:6]])
    clump = np.eye(8)[6] + 0.01 * np.random.default_rng(0).standard_normal((4, 8))
    view = np.concatenate([star, clump])
    options: dict[str, Any] = {"kernel": "tophat", "bandwidth": 0.15}
    np.testing.assert_allclose(density({"a": view}, 1, **options), np.repeat([0.6, 0.2, 0.4], [1, 5, 4]))
    assert keepset.select(view, 1, **options)[0] == 0
    chosen = keepset.select(view, 1, point_weights="density", **options)
    assert chosen[0] == 6
    assert chosen.objective == pytest.approx(64 / 120)


# ---------------------------------------------------------------- wrong settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"point_weights": "purety"}, r"unknown point_weights 'purety'; did you mean 'purity'\?"),
        ({"point_weights": "purity", "point_power": 0}, "point_power must be a positive number, got 0"),
        ({"point_weights": "density", "point_power": float("nan")}, "point_power must be a positive number"),
        ({"point_power": 4}, "point_power=4 is for point_weights 'purity' or 'density'; set one, or leave it out"),
        ({"point_weights": np.ones(42), "point_power": 4}, "point_power=4 is for point_weights"),
        ({"purity_view": "wide"}, "purity_view='wide' is for point_weights 'purity'; leave it out"),
        ({"point_weights": "density", "purity_view": 0}, "purity_view=0 is for point_weights 'purity'"),
        ({"point_weights": "purity", "purity_view": "wyde"}, r"unknown purity_view 'wyde'; did you mean 'wide'\?"),
        ({"point_weights": "purity", "purity_view": 2}, r"purity_view must be in 0\.\.1 .*, got 2"),
        ({"point_weights": "purity", "purity_view": 0.5}, "purity_view must be a whole number, got 0.5"),
        ({"method": "herding", "point_weights": "purity"}, "option 'point_weights' is not for herding"),
        ({"method": "random", "point_weights": "density"}, "option 'point_weights' is not for random"),
    ],
)
def test_rules__wrong_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        keepset.select_per_class(three_classes(), LABELS, 3, **options)


def test_rules__a_function_of_the_caller_gets_its_options_as_they_are() -> None:
    seen: list[Any] = []

    def own(views: Any, budget: int, *, generator: Any, point_weights: Any) -> list[int]:
        seen.append(point_weights)
        return list(range(budget))

    keepset.select_per_class(three_classes(), LABELS, 2, method=own, point_weights="purity")
    assert seen == ["purity"] * 3


# ---------------------------------------------------------------- mers-pure


@pytest.mark.parametrize("third", [False, True])
def test_mers_pure__as_the_reference(third: bool) -> None:
    views = three_classes(2)
    if third:
        views["third"] = three_classes(7)["wide"]
    worth = np.array(slow_purity(views["narrow"], LABELS)) ** 2 + 0.02
    for label, chosen in keepset.select_per_class(views, LABELS, 4, method="mers-pure").items():
        members = np.flatnonzero(label == LABELS)
        sliced = {name: view[members] for name, view in views.items()}
        expected = reference.mers(sliced, 4, bandwidth_scale=0.5, point_weights=worth[members])
        assert list(chosen) == members[expected.indices].tolist()
        np.testing.assert_allclose(chosen.gains, expected.gains)
        assert list(chosen.scales.values()) == pytest.approx(expected.scales)
        assert (chosen.method, chosen.notes) == ("mers-pure", ())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"purity_view": "wide"},
        {"point_power": 3},
        {"bandwidth_scale": 1.0},
        {"point_weights": "density"},
        {"point_weights": None},
        {"bandwidth": "episode"},
    ],
    ids=str,
)
def test_mers_pure__is_mers_with_two_settings_and_takes_others(options: dict[str, Any]) -> None:
    views, own = three_classes(), {"bandwidth_scale": 0.5, "point_weights": "purity"}
    found = keepset.select_per_class(views, LABELS, 5, method="mers-pure", **options)
    expected = keepset.select_per_class(views, LABELS, 5, method="mers", **{**own, **options})
    for label, chosen in found.items():
        assert_same(chosen, expected[label])


def test_mers_pure__without_labels_every_point_counts_alike_and_the_result_says_so() -> None:
    views = three_classes()
    chosen = keepset.select(views, 5, method="mers-pure")
    assert chosen.notes == ("there are no labels: every point counts alike",)
    narrow = keepset.select(views, 5, bandwidth_scale=0.5)
    one = keepset.select_per_class(views, ["all"] * 42, 5, method="mers-pure")["all"]
    assert list(chosen) == list(narrow) == list(one)
    assert keepset.coverage(views, list(chosen), method="mers-pure") == pytest.approx(chosen.objective)
    with pytest.raises(ValueError, match="point_weights='purity' needs labels"):
        keepset.select(views, 5, method="mers-pure", point_weights="purity")


# ---------------------------------------------------------------- on a GPU


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("rule", ["purity", "density"])
@pytest.mark.parametrize("method", COVER)
def test_rules__on_the_gpu_as_on_the_cpu(method: str, rule: str) -> None:
    views = {name: torch.from_numpy(view) for name, view in three_classes(5).items()}
    expected = keepset.select_per_class(views, LABELS, 4, method=method, point_weights=rule)
    on_gpu = {name: view.cuda() for name, view in views.items()}
    found = keepset.select_per_class(on_gpu, LABELS, 4, method=method, point_weights=rule)
    assert [list(chosen) for chosen in found.values()] == [list(chosen) for chosen in expected.values()]
