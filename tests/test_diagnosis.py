"""The diagnosis of views, on clouds whose answers are known."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import keepset
from keepset.report.diagnosis import diagnose
from keepset.report.findings import Diagnosis, Pool, View, medians
from keepset.report.picture import draw
from keepset.report.theory import equal_volume, printed_compressed_kl
from keepset.report.verdict import agreement, verdict

Points = np.ndarray[Any, Any]


def cloud(variances: Points | list[float], points: int, seed: int = 0, far: float = 30.0) -> Points:
    """Points whose covariance is exactly diag(variances), far from the origin along one more axis, so that the unit
    vectors spread as they do."""
    spread = np.random.default_rng(seed).normal(size=(points, len(variances)))
    white = np.linalg.svd(spread - spread.mean(0), full_matrices=False)[0] * math.sqrt(points)
    return np.concatenate([np.full((points, 1), far), white * np.sqrt(np.asarray(variances))], axis=1)


def ring(points: int) -> Points:
    angles = 2 * np.pi * np.arange(points) / points
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def pool_of(*views: Points, budget: int = 10, **options: Any) -> Pool:
    return diagnose(list(views), budget=budget, **options).together


def one(view: Points, **options: Any) -> View:
    return pool_of(view, **options).views[0]


# ---------------------------------------------------------------- a view


def test_spread__a_ring_is_even_in_two_directions() -> None:
    found = one(ring(40))
    assert found.rank == 2
    assert found.effective_rank == pytest.approx(2)
    assert found.participation == pytest.approx(2)
    assert found.largest == pytest.approx(0.5)
    assert found.kl is None, "two columns leave one direction on the sphere"
    assert found.median == pytest.approx(1.0), "half of the pairs are more than a quarter turn apart"


def test_spread__two_directions_of_unequal_variance_by_hand() -> None:
    axes = np.array([[1, 3, 0], [1, -3, 0], [1, 0, 1], [1, 0, -1]]) * [1000.0, 1, 1]  # variances 4.5 and 0.5
    found = one(np.repeat(axes, 3, axis=0))  # 12 points: two directions
    assert found.largest == pytest.approx(0.9, rel=1e-4)
    assert found.effective_rank == pytest.approx(math.exp(-0.9 * math.log(0.9) - 0.1 * math.log(0.1)), rel=1e-4)
    assert found.participation == pytest.approx(1 / 0.82, rel=1e-4)
    assert found.kl == pytest.approx(0.5 * (1 / 3 + 3 - 2), rel=1e-3), "d = 3 and 1/3 at volume 1"
    assert found.rank == 3, "the unit vectors curve a little"


@pytest.mark.parametrize("points", [60, 700])  # fewer points than columns, and more
def test_spectrum__is_that_of_the_covariance_of_unit_vectors(points: int) -> None:
    view = np.random.default_rng(3).normal(size=(points, 200)) * np.linspace(0.1, 2, 200)
    unit = view / np.linalg.norm(view, axis=1, keepdims=True)
    values = np.linalg.eigvalsh(np.cov(unit.T))[::-1][: min(points - 1, 200)]
    found = one(view)
    assert found.spectrum == pytest.approx((values / values.sum()).tolist(), rel=1e-8)
    assert found.rank == min(points - 1, 200)


def test_kl__collapsed_class_gives_the_lemma_for_its_two_levels() -> None:
    levels = equal_volume(8, 3, 0.1, 1.0)
    pool = pool_of(cloud(np.exp(levels.logs), 400, far=3000.0), cloud([1.0] * 8, 400, seed=1, far=3000.0))
    assert pool.directions == 8
    collapsed, even = pool.views
    assert collapsed.kl == pytest.approx(printed_compressed_kl(levels, 1.0), rel=1e-3)
    assert collapsed.levels is not None
    assert collapsed.levels.kept == 3
    assert collapsed.levels.narrow == pytest.approx(0.1, rel=1e-3)
    assert collapsed.levels_kl == pytest.approx(collapsed.kl, rel=1e-3)
    assert even.kl == pytest.approx(0, abs=1e-3)
    assert even.effective_rank == pytest.approx(8, rel=1e-3)


def test_kl__round_cloud_gives_what_sampling_alone_gives() -> None:
    found = [one(np.random.default_rng(seed).normal(size=(400, 33))) for seed in range(3)]
    floor = 32**2 / (4 * 400)
    for view in found:
        assert view.kl is not None
        assert 0.7 * floor < view.kl < 1.4 * floor


@pytest.mark.parametrize(("points", "directions"), [(8, 0), (9, 2), (129, 32), (300, 32)])
def test_kl__directions_are_what_the_points_can_carry(points: int, directions: int) -> None:
    view = np.random.default_rng(0).normal(size=(points, 40))
    pool = pool_of(view, view[:, :35])
    assert pool.directions == directions
    assert (pool.views[0].kl is None) == (directions == 0)


def test_kl__directions_are_one_fewer_than_the_columns() -> None:
    view = np.random.default_rng(0).normal(size=(300, 40))
    assert pool_of(view, view[:, :7]).directions == 6
    assert pool_of(view[:, :2]).directions == 0


def test_kl__no_spread_in_a_direction_is_infinite() -> None:
    flat = cloud([1.0, 0.5, 0.0, 0.0, 0.0, 0.0], 80)
    pool = pool_of(flat.astype(np.float32), np.random.default_rng(0).normal(size=(80, 7)))
    assert pool.directions == 6
    assert pool.views[0].rank == 3
    assert pool.views[0].kl == math.inf
    assert pool.views[0].levels is None
    assert diagnose(flat).plain()["together"]["views"][0]["kl"] is None


def test_even_view__beats_the_collapsed_one_in_every_number() -> None:
    narrow, even = pool_of(cloud([4, 4] + [0.05] * 10, 300), cloud([1.0] * 12, 300)).views
    assert narrow.effective_rank is not None
    assert even.effective_rank is not None
    assert narrow.kl is not None
    assert even.kl is not None
    assert narrow.effective_rank < 4 < 9 < even.effective_rank
    assert narrow.kl > 4 > 0.1 > even.kl


# ---------------------------------------------------------------- weights and neighbours, as selection has them


@pytest.mark.parametrize("rule", ["printed", "inverse", "density", "equal"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_weights_and_medians__are_those_of_a_selection(rule: str, kind: type) -> None:
    generator = np.random.default_rng(5)
    views: dict[str, Points] = {
        "a": generator.normal(size=(90, 8)).astype(kind),
        "b": cloud([3.0, 0.1, 0.1], 90).astype(kind),
    }
    labels = np.arange(90) % 2
    chosen = keepset.select_per_class(views, labels, 4, weights=rule)
    found = diagnose(views, labels, 4)
    for pool in found.classes:
        assert pool.label in chosen
        selection = chosen[pool.label]
        assert pool.k == selection.k
        assert {view.name: view.shares[rule] for view in pool.views} == dict(selection.weights)
        assert {view.name: view.median for view in pool.views} == dict(selection.scales)
        ratio = selection.weights["a"] / selection.weights["b"]
        assert pool.pairs[0].ratios[rule] == pytest.approx(ratio)


def test_neighbours__fixed_k_is_used_and_clamped() -> None:
    view = np.random.default_rng(0).normal(size=(30, 4))
    assert pool_of(view, neighbours=7).k == 7
    assert pool_of(view, neighbours=70).k == 29
    with pytest.raises(ValueError, match="neighbours must be 1 or more, got 0"):
        diagnose(view, neighbours=0)


def test_overlap__the_same_view_shares_all_and_an_unrelated_one_what_chance_gives() -> None:
    view = np.random.default_rng(0).normal(size=(600, 6))
    other = np.random.default_rng(1).normal(size=(600, 6))
    same, unrelated = pool_of(view, -2 * view, other, budget=20).pairs
    assert (same.overlap, same.chance) == (1.0, 30 / 599)
    assert unrelated.overlap == pytest.approx(30 / 599, abs=0.01)
    assert same.ratios == {"printed": 1.0, "inverse": 1.0, "density": 1.0, "equal": 1.0}


def test_overlap__counted_slowly() -> None:
    points = 700  # more than the 512 rows of a block
    generator = np.random.default_rng(2)
    first = generator.normal(size=(points, 3))
    second = first + 0.4 * generator.normal(size=(points, 3))
    pair = pool_of(first, second, neighbours=9).pairs[0]

    def nearest(view: Points, row: int) -> set[int]:
        unit = view / np.linalg.norm(view, axis=1, keepdims=True)
        return set(np.argsort(-unit @ unit[row])[:10].tolist()) - {row}

    common = [len(nearest(first, row) & nearest(second, row)) / 9 for row in range(points)]
    assert pair.overlap == pytest.approx(np.mean(common))


# ---------------------------------------------------------------- awkward pools


def test_one_point__has_nothing_to_tell() -> None:
    pool = pool_of(np.ones((1, 3)), np.ones((1, 2)))
    view, pair = pool.views[0], pool.pairs[0]
    assert (pool.k, pool.directions, view.rank) == (0, 0, 0)
    assert (view.median, view.effective_rank, view.kl, view.weights["printed"]) == (None, None, None, None)
    assert (pair.overlap, pair.chance, pair.ratios["printed"]) == (None, None, None)


def test_two_points__one_direction_and_one_neighbour() -> None:
    pool = pool_of(np.eye(2), np.eye(2))
    assert pool.views[0].effective_rank == pytest.approx(1)
    assert pool.views[0].weights["printed"] == pytest.approx(1)
    assert (pool.pairs[0].overlap, pool.pairs[0].chance) == (1.0, 1.0)
    assert agreement(pool.pairs[0]) is None


def test_copies__no_weight_but_selections_share() -> None:
    generator = np.random.default_rng(0)
    copied = np.repeat(generator.normal(size=(20, 5)), 2, axis=0)
    pool = pool_of(copied, generator.normal(size=(40, 5)))
    chosen = keepset.select([copied, generator.normal(size=(40, 5))], 10)
    assert chosen.notes, "selection sees the copies as well"
    assert pool.views[0].weights["printed"] is None
    assert pool.pairs[0].ratios["printed"] is None
    other = pool.views[1].weights["printed"]
    assert other is not None
    assert pool.views[0].shares["printed"] == pytest.approx(1 / (1 + other))
    assert pool.pairs[0].overlap is not None


def test_all_points_alike__dashes_and_no_overlap() -> None:
    pool = pool_of(np.ones((30, 4)), np.random.default_rng(0).normal(size=(30, 4)))
    assert (pool.views[0].rank, pool.views[0].effective_rank, pool.views[0].median) == (0, None, 0.0)
    assert pool.views[0].kl == math.inf
    assert pool.pairs[0].overlap is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
def test_bad_rows__are_refused_as_in_a_selection(bad: float) -> None:
    view = np.ones((5, 2))
    view[3] = bad
    with pytest.raises(ValueError, match="row 3") as here:
        diagnose(view)
    with pytest.raises(ValueError, match="row 3") as there:
        keepset.select(view, 2)
    assert str(here.value) == str(there.value)


# ---------------------------------------------------------------- classes


def test_classes__each_is_as_if_alone_and_all_points_keep_k() -> None:
    generator = np.random.default_rng(0)
    views = {"a": generator.normal(size=(120, 6)), "b": generator.normal(size=(120, 9))}
    labels = np.array(["owl", "cat", "dog"])[np.arange(120) % 3]
    found = diagnose(views, labels, 4)
    assert [pool.label for pool in found.classes] == ["cat", "dog", "owl"]
    alone = diagnose({name: view[labels == "dog"] for name, view in views.items()}, budget=4).together
    assert replace(found.classes[1], label=None) == alone
    assert (found.together.budget, found.together.k, found.together.points) == (12, 10, 120)
    ranks = [pool.views[1].effective_rank for pool in found.classes]
    assert found.medians is not None
    assert found.medians.views[1].effective_rank == sorted(ranks, key=float)[1]  # type: ignore[arg-type]


def test_medians__skip_what_is_missing() -> None:
    view = np.random.default_rng(0).normal(size=(40, 5))
    large, lone = diagnose([view, view]).together, diagnose([view[:1], view[:1]]).together
    found = medians([large, lone, lone])
    assert found.points == 1
    assert found.views[0].kl == large.views[0].kl
    assert found.pairs[0].overlap == 1.0
    assert medians([lone]).views[0].effective_rank is None


def test_budget__by_class() -> None:
    view, labels = np.random.default_rng(0).normal(size=(60, 5)), torch.arange(60) % 2
    assert [pool.k for pool in diagnose(view, labels, {0: 3, 1: 10}).classes] == [10, 3]
    with pytest.raises(ValueError, match="budget must name every class"):
        diagnose(view, labels, {0: 3})
    with pytest.raises(ValueError, match=r"budget must be in 1\.\."):
        diagnose(view, labels, 0)
    with pytest.raises(ValueError, match="labels must be one a point, 60, got 5"):
        diagnose(view, [1, 2, 3, 4, 5])


def test_plain__is_json_and_holds_every_number() -> None:
    found = diagnose(np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 2)
    plain = json.loads(json.dumps(found.plain(), allow_nan=False))
    assert plain["classes"][1]["views"][0]["kl"] == found.classes[1].views[0].kl
    assert len(plain["together"]["views"][0]["spectrum"]) == 5


# ---------------------------------------------------------------- verdict and picture


def found_with(noise: float) -> Diagnosis:
    generator = np.random.default_rng(0)
    view = generator.normal(size=(400, 5))
    return diagnose({"one": view, "two": view + noise * generator.normal(size=(400, 5))}, budget=20)


@pytest.mark.parametrize(
    ("noise", "said"), [(0.01, "it adds little"), (0.5, "adds something of its own"), (1000.0, "wholly new, or noise")]
)
def test_verdict__by_the_neighbours_shared(noise: float, said: str) -> None:
    found = found_with(noise)
    (sentence,) = verdict(found)
    overlap = found.together.pairs[0].overlap
    assert overlap is not None
    assert sentence.startswith(f"two beside one: {100 * overlap:.0f} % of the neighbours are shared (5 % by chance)")
    assert said in sentence


def test_verdict__says_which_is_more_even_and_when_nothing_can_be_said() -> None:
    narrow, even = cloud([4, 4] + [0.05] * 10, 300), cloud([1.0] * 12, 300, seed=1)
    assert "more evenly than one (effective rank" in verdict(diagnose({"one": narrow, "two": even}))[0]
    assert "less evenly than two" in verdict(diagnose({"two": even, "one": narrow}))[0]
    assert "too few points" in verdict(diagnose([np.ones((1, 2)), np.ones((1, 2))]))[0]
    assert verdict(diagnose(narrow)) == []


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ((4.4, 3.6), "less evenly than one (effective rank 3.6 against 4.4)"),
        ((12.0, 4.0), "less evenly than one (effective rank 4 against 12)"),
        ((4.1, 3.9), "about as evenly as one (effective rank 4 against 4)"),
    ],
)
def test_verdict__ranks_that_differ_look_different(ranks: tuple[float, float], said: str) -> None:
    found = found_with(0.5)
    views = [replace(view, effective_rank=rank) for view, rank in zip(found.together.views, ranks, strict=True)]
    (sentence,) = verdict(replace(found, together=replace(found.together, views=tuple(views))))
    assert said in sentence


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_picture__is_written_whole(tmp_path: Path, ending: str) -> None:
    labels = np.arange(400) % 3
    views = {"narrow": cloud([1.0, 0.0, 0.0], 400), "even": cloud([1.0] * 3, 400), "x" * 40: ring(400)}
    draw(diagnose(views, labels).classes, tmp_path / f"views.{ending}", "three classes")
    content = (tmp_path / f"views.{ending}").read_bytes()
    assert content.startswith({"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[ending])
    assert [path.name for path in tmp_path.iterdir()] == [f"views.{ending}"]


@pytest.mark.parametrize("views", [[np.ones((1, 3))], [np.ones((1, 3)), np.ones((1, 2))], [ring(30)]])
def test_picture__of_pools_with_little_to_show(tmp_path: Path, views: list[Points]) -> None:
    draw([diagnose(views).together], tmp_path / "views.png")
    assert (tmp_path / "views.png").stat().st_size > 1000


def test_picture__refuses_other_endings_and_no_pools(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.png, \.pdf, \.svg, got .*views\.gif"):
        draw([diagnose(ring(9)).together], tmp_path / "views.gif")
    with pytest.raises(ValueError, match="at least one pool"):
        draw([], tmp_path / "views.png")


def test_picture__tells_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"pip install keepset\[plots\]"):
        draw([diagnose(ring(9)).together], tmp_path / "views.png")
