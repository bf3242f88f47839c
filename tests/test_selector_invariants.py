"""What holds for every selector, whatever the data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import keepset
from keepset.selection import SELECTORS

Views = dict[str, NDArray[Any]]
COVER = ("probcover", "maxherding", "mers-probcover", "mers", "mers-pure")
BY_ITSELF = {"mers-pure": {"point_weights": None}}  # what keeps a selector from looking at the other classes
SEEDLESS = tuple(name for name in SELECTORS if name not in ("random", "teal"))
every_selector = pytest.mark.parametrize("method", list(SELECTORS))


@st.composite
def problems(draw: st.DrawFn, dtype: Any = np.float64) -> Views:
    """One to three views of one to forty points, some of them copies, some views collapsed towards one direction."""
    count = draw(st.integers(1, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    views: Views = {}
    for position in range(draw(st.integers(1, 3))):
        width = draw(st.integers(1, 8))
        view = random.standard_normal((count, width)) + draw(st.sampled_from([0.0, 1.0, 30.0]))
        if draw(st.booleans()):
            view = view[random.integers(0, max(1, count * 2 // 3), count)]
        views[f"v{position}"] = view.astype(dtype)
    return views


def plain_views(seed: int, count: int = 30) -> Views:
    """Two views of points in general position."""
    random = np.random.default_rng(seed)
    return {f"v{m}": random.standard_normal((count, 10 + 6 * m)) + 0.5 for m in range(2)}


def options_of(method: str, views: Mapping[str, Any]) -> dict[str, Any]:
    count = len(next(iter(views.values())))
    scores = np.random.default_rng(count).integers(0, 7, count) / 7
    return {"uncertainty": scores} if method == "rainbow" else {}


def choose(method: str, views: Any, budget: int, generator: Any = None, **options: Any) -> keepset.Selection:
    named = views if isinstance(views, dict) else {"v0": views}
    return keepset.select(views, budget, method=method, generator=generator, **{**options_of(method, named), **options})


def assert_same(one: keepset.Selection, other: keepset.Selection) -> None:
    """To the bit, but for the names of the views."""
    assert list(one) == list(other)
    np.testing.assert_array_equal(np.asarray(one.gains), np.asarray(other.gains))
    np.testing.assert_array_equal(list(one.weights.values()), list(other.weights.values()))
    np.testing.assert_array_equal(list(one.scales.values()), list(other.scales.values()))
    np.testing.assert_array_equal([one.objective], [other.objective])
    assert one.k == other.k


# ---------------------------------------------------------------- what comes out


@every_selector
@settings(max_examples=25)
@given(views=problems(), data=st.data())
def test_every_selector__picks_are_distinct_in_range_and_as_many_as_asked(
    method: str, views: Views, data: st.DataObject
) -> None:
    count = len(views["v0"])
    budget = data.draw(st.integers(1, count))
    chosen = choose(method, views, budget, generator=data.draw(st.integers(0, 99)))
    assert len(chosen) == budget == len(set(chosen))
    assert set(chosen) <= set(range(count))
    assert np.asarray(chosen.indices).dtype == np.int64
    assert len(chosen.gains) == budget
    assert chosen.method == method


@every_selector
@settings(max_examples=15)
@given(views=problems())
def test_every_selector__budget_of_all_points_returns_all(method: str, views: Views) -> None:
    count = len(views["v0"])
    assert sorted(choose(method, views, count)) == list(range(count))


@every_selector
def test_every_selector__one_point_is_returned(method: str) -> None:
    assert list(choose(method, {"v0": np.array([[2.0, 1.0]]), "v1": np.array([[-3.0]])}, 1)) == [0]


@every_selector
@settings(max_examples=15)
@given(views=problems(), data=st.data())
def test_every_selector__points_of_start_are_not_returned(method: str, views: Views, data: st.DataObject) -> None:
    count = len(views["v0"])
    assume(count > 1)
    start = data.draw(st.lists(st.integers(0, count - 1), unique=True, min_size=1, max_size=count - 1))
    chosen = choose(method, views, count - len(start), start=start)
    assert sorted([*start, *chosen]) == list(range(count))


@pytest.mark.parametrize("method", COVER)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=25)
@given(data=st.data())
def test_cover_methods__gains_never_increase_and_sum_to_the_objective(
    method: str, dtype: Any, data: st.DataObject
) -> None:
    views = data.draw(problems(dtype))
    chosen = choose(method, views, data.draw(st.integers(1, len(views["v0"]))))
    gains = np.asarray(chosen.gains)
    assert (np.diff(gains) <= 0).all()
    assert (gains >= 0).all()
    assert gains.sum() == pytest.approx(chosen.objective)
    assert 0 < chosen.objective <= 1 + 1e-6
    assert sum(chosen.weights.values()) == pytest.approx(1)


@pytest.mark.parametrize("method", COVER)
def test_cover_methods__gains_of_many_points_never_increase(method: str) -> None:
    """Enough points for the search that looks at the leading candidates alone."""
    views = {name: view.astype(np.float32) for name, view in plain_views(seed=4, count=900).items()}
    gains = np.asarray(choose(method, views, 300).gains)
    assert (np.diff(gains) <= 0).all()


@pytest.mark.parametrize("method", [name for name in SELECTORS if name not in COVER])
def test_methods_that_do_not_cover__gains_and_objective_are_nan(method: str) -> None:
    chosen = choose(method, plain_views(seed=0), 4)
    assert np.isnan(np.asarray(chosen.gains)).all()
    assert np.isnan(chosen.objective)


# ---------------------------------------------------------------- randomness


@every_selector
@settings(max_examples=10)
@given(views=problems(), seed=st.integers(0, 2**40))
def test_every_selector__same_seed_same_picks_whatever_else_is_drawn(method: str, views: Views, seed: int) -> None:
    budget = (len(views["v0"]) + 1) // 2
    first = choose(method, views, budget, generator=seed)
    torch.rand(7)
    before = torch.get_rng_state()
    second = choose(method, views, budget, generator=torch.Generator().manual_seed(seed))
    assert_same(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_random__another_seed_gives_other_picks() -> None:
    views = plain_views(seed=1)
    assert len({tuple(choose("random", views, 5, generator=seed)) for seed in range(20)}) > 15


def test_random__no_seed_is_seed_zero() -> None:
    views = plain_views(seed=1)
    assert list(choose("random", views, 5)) == list(choose("random", views, 5, generator=0))


def test_random__every_point_is_equally_likely() -> None:
    view = np.ones((5, 1))
    counts = np.bincount([i for seed in range(500) for i in keepset.select(view, 2, method="random", generator=seed)])
    assert (np.abs(counts - 200) < 60).all()  # more than five standard deviations


# ---------------------------------------------------------------- symmetries


@pytest.mark.parametrize("method", ["herding", "closest", "maxherding", "mers"])
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_permuting_the_points__permutes_the_picks(method: str, seed: int) -> None:
    """Uneven point weights: two points that are near each other alone would tie, whichever is taken."""
    views = plain_views(seed)
    random = np.random.default_rng(seed)
    order, worth = random.permutation(30), random.uniform(0.5, 1.5, 30)
    cover = method in COVER
    chosen = choose(method, views, 5, **({"point_weights": worth} if cover else {}))
    moved_views = {name: view[order] for name, view in views.items()}
    moved = choose(method, moved_views, 5, **({"point_weights": worth[order]} if cover else {}))
    assert order[list(moved)].tolist() == list(chosen)


def starry_view(lengths: tuple[float, float]) -> NDArray[np.float64]:
    """Four clumps of 9, 7, 5 and 3: a centre and satellites, each along an axis of its own. Only the centre is within
    reach of the whole clump: satellites are √2 as far from each other."""
    rows = []
    for clump, satellites in enumerate((8, 6, 4, 2)):
        centre = np.eye(12)[clump]
        steps = np.linspace(*lengths, satellites)
        rows += [centre, *(centre + step * np.eye(12)[4 + axis] for axis, step in enumerate(steps))]
    return np.stack(rows)


@pytest.mark.parametrize("method", ["probcover", "mers-probcover"])
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_permuting_the_points__permutes_the_picks_of_hard_cover_without_ties(method: str, seed: int) -> None:
    views = {"v0": starry_view((0.10, 0.12)), "v1": starry_view((0.23, 0.21))}
    order = np.random.default_rng(seed).permutation(24)
    moved = choose(method, {name: view[order] for name, view in views.items()}, 4, neighbours=2)
    assert order[list(moved)].tolist() == [0, 9, 16, 21]
    np.testing.assert_allclose(np.asarray(moved.gains), np.array([9, 7, 5, 3]) / 24, rtol=1e-12)


@every_selector
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@settings(max_examples=8)
@given(data=st.data())
def test_every_selector__scaling_by_a_power_of_two_changes_no_bit(method: str, dtype: Any, data: st.DataObject) -> None:
    views = data.draw(problems(dtype))
    powers = st.integers(-3, 4) if dtype is np.float16 else st.integers(-40, 40)
    scaled = {name: view * dtype(2.0 ** data.draw(powers)) for name, view in views.items()}
    assume(all((view.astype(float) != 0).all() and np.isfinite(view).all() for view in scaled.values()))
    assume(all((np.abs(view) > 1e-3).all() for view in views.values()))  # below this float16 loses bits
    budget = (len(views["v0"]) + 1) // 2
    assert_same(choose(method, views, budget), choose(method, scaled, budget))


@settings(max_examples=25)
@given(views=problems(), data=st.data())
def test_mers__of_one_view_is_maxherding(views: Views, data: st.DataObject) -> None:
    view = views["v0"]
    budget = data.draw(st.integers(1, len(view)))
    assert_same(keepset.select(view, budget), keepset.select(view, budget, method="maxherding"))
    assert_same(keepset.select(view, budget, method="mers-probcover"), keepset.select(view, budget, method="probcover"))
    assert_same(keepset.select(views, budget), keepset.select(views, budget, method="mers-maxherding"))


# ---------------------------------------------------------------- what goes in


def input_forms(view: NDArray[Any], folder: Path) -> dict[str, NDArray[Any]]:
    """The same numbers, lying differently in memory."""
    np.save(folder / "view.npy", view)
    wide = np.zeros((2 * len(view), 2 * view.shape[1]), view.dtype)
    wide[::2, ::2] = view
    read_only = view.copy()
    read_only.flags.writeable = False
    return {
        "memory-mapped": np.load(folder / "view.npy", mmap_mode="r"),
        "memory-mapped for writing": np.load(folder / "view.npy", mmap_mode="r+"),
        "Fortran order": np.asfortranarray(view),
        "every other row and column": wide[::2, ::2],
        "backwards": np.ascontiguousarray(view[::-1, ::-1])[::-1, ::-1],
        "big-endian": view.astype(view.dtype.newbyteorder(">")),
        "little-endian": view.astype(view.dtype.newbyteorder("<")),
        "read-only": read_only,
    }


@every_selector
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_selector__reads_every_form_of_array(method: str, dtype: Any, tmp_path: Path) -> None:
    view = plain_views(seed=12)["v0"].astype(dtype)
    expected = choose(method, view, 6)
    for form, given_view in input_forms(view, tmp_path).items():
        chosen = choose(method, given_view, 6)
        assert list(chosen) == list(expected), form
        np.testing.assert_allclose(np.asarray(chosen.gains), np.asarray(expected.gains), rtol=1e-5, atol=1e-7)
        assert isinstance(chosen.indices, np.ndarray), form


@every_selector
def test_every_selector__leaves_its_input_as_it_was(method: str, tmp_path: Path) -> None:
    view = plain_views(seed=12)["v0"]
    for dtype in (np.float16, np.float32, np.float64):
        forms = input_forms(view.astype(dtype), tmp_path)
        before = {form: given_view.tobytes() for form, given_view in forms.items()}
        choose(method, forms, 6)
        for form, given_view in forms.items():
            assert given_view.tobytes() == before[form], form


@every_selector
def test_every_selector__leaves_options_as_they_were(method: str) -> None:
    views = {name: torch.from_numpy(view) for name, view in plain_views(seed=12).items()}
    before = {name: view.clone() for name, view in views.items()}
    options: dict[str, Any] = {"start": torch.tensor([3, 1])}
    if method in COVER:
        options["point_weights"] = np.arange(30.0)
    if method == "rainbow":
        options["uncertainty"] = torch.arange(30.0)
    choose(method, views, 6, **options)
    for name, view in views.items():
        assert torch.equal(view, before[name])
    assert options["start"].tolist() == [3, 1]
    assert np.asarray(options.get("point_weights", np.arange(30.0))).tolist() == list(range(30))
    assert options.get("uncertainty", torch.arange(30.0)).tolist() == list(range(30))


@every_selector
def test_every_selector__returns_the_kind_that_was_passed(method: str) -> None:
    arrays = plain_views(seed=12)
    tensors = {name: torch.from_numpy(view) for name, view in arrays.items()}
    one, other = choose(method, arrays, 6), choose(method, tensors, 6)
    assert all(isinstance(x, np.ndarray) for x in (one.indices, one.gains, *one.shares.values()))
    assert all(isinstance(x, torch.Tensor) for x in (other.indices, other.gains, *other.shares.values()))
    assert_same(one, other)


@every_selector
def test_every_selector__reads_a_tensor_that_requires_a_gradient(method: str) -> None:
    view = torch.from_numpy(plain_views(seed=12)["v0"])
    assert_same(choose(method, view.clone().requires_grad_(), 6), choose(method, view, 6))


# ---------------------------------------------------------------- by class


@every_selector
@settings(max_examples=10)
@given(views=problems(), data=st.data())
def test_select_per_class__indices_belong_to_the_class(method: str, views: Views, data: st.DataObject) -> None:
    count = len(views["v0"])
    labels = np.array(data.draw(st.lists(st.integers(-2, 2), min_size=count, max_size=count)))
    budget = data.draw(st.integers(0, 5))
    found = keepset.select_per_class(views, labels, budget, method=method, **options_of(method, views))
    assert list(found) == sorted(set(labels.tolist()))
    for label, chosen in found.items():
        members = np.flatnonzero(labels == label)
        assert len(chosen) == len(set(chosen)) == min(budget, len(members))
        assert set(chosen) <= set(members.tolist())


@pytest.mark.parametrize("method", SEEDLESS)
@settings(max_examples=10)
@given(views=problems(), data=st.data())
def test_select_per_class__equals_select_on_the_slice(method: str, views: Views, data: st.DataObject) -> None:
    count = len(views["v0"])
    labels = np.array(data.draw(st.lists(st.sampled_from(["cat", "dog"]), min_size=count, max_size=count)))
    options = options_of(method, views)
    plain = BY_ITSELF.get(method, {})
    for label, chosen in keepset.select_per_class(views, labels, 4, method=method, **options, **plain).items():
        members = np.flatnonzero(labels == label)
        sliced = {name: view[members] for name, view in views.items()}
        own = {name: value[members] for name, value in options.items()}
        alone = keepset.select(sliced, min(4, len(members)), method=method, **own)
        assert members[list(alone)].tolist() == list(chosen)
        np.testing.assert_array_equal(np.asarray(alone.gains), np.asarray(chosen.gains))
        assert (alone.weights, alone.scales, alone.k) == (chosen.weights, chosen.scales, chosen.k)


@every_selector
def test_select_per_class__a_class_does_not_depend_on_the_others(method: str) -> None:
    views = plain_views(seed=5, count=60)
    labels = np.arange(60) % 3
    options, plain = options_of(method, views), BY_ITSELF.get(method, {})
    whole = keepset.select_per_class(views, labels, 4, method=method, generator=7, **options, **plain)
    some = labels != 1
    rows = np.flatnonzero(some)
    part = keepset.select_per_class(
        {name: view[some] for name, view in views.items()},
        labels[some],
        4,
        method=method,
        generator=7,
        **{name: value[some] for name, value in options.items()},
        **plain,
    )
    for label in (0, 2):
        assert rows[list(part[label])].tolist() == list(whole[label])


def test_select_per_class__budget_by_class_and_point_weights_are_sliced() -> None:
    views = plain_views(seed=5)
    labels = np.array(["a", "b", "a"] * 10)
    weights = np.random.default_rng(0).uniform(0, 1, 30)
    found = keepset.select_per_class(views, labels, {"a": 6, "b": 2}, point_weights=weights)
    for label, budget in (("a", 6), ("b", 2)):
        members = np.flatnonzero(labels == label)
        sliced = {name: view[members] for name, view in views.items()}
        alone = keepset.select(sliced, budget, point_weights=weights[members])
        assert members[list(alone)].tolist() == list(found[label])


def test_select_per_class__a_small_class_gives_all_it_has_and_says_so() -> None:
    view = plain_views(seed=5, count=7)["v0"]
    found = keepset.select_per_class(view, [0, 0, 0, 0, 0, 1, 1], 4)
    assert sorted(found[1]) == [5, 6]
    assert any("fewer than its budget 4" in note for note in found[1].notes)
    assert len(found[0]) == 4
    assert not found[0].notes
