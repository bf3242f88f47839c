"""Cover without the matrix of distances: the same picks as with it, in every option, and how it is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import keepset
from keepset.selection import room, sampled, scales, streaming
from keepset.selection.geometry import cloud, pairwise
from keepset.selection.kernels import kernel
from keepset.selection.streaming import ExactSearch, Kernel, StochasticSearch, row_sums

ALWAYS_DENSE, NEVER_DENSE = 2**60, 1
COVER = ("probcover", "maxherding", "mers-probcover", "mers")
SOFT = ("maxherding", "mers")


def make_views(count: int, seed: int = 0) -> dict[str, Tensor]:
    """Clumps in one view, none in the other, and a pair of copies."""
    source = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(max(count // 20, 1), 24, generator=source)
    members = torch.randint(len(centres), (count,), generator=source)
    clumped = centres[members] + torch.randn(count, 24, generator=source)
    views = {"clumped": clumped, "spread": torch.randn(count, 10, generator=source)}
    for view in views.values():
        view[count // 2] = view[count // 3]
    return views


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks, and candidates left out of account, with few points too."""
    monkeypatch.setattr(streaming, "ROWS", 24)
    monkeypatch.setattr(streaming, "COLUMNS", 40)
    monkeypatch.setattr(streaming, "FIRST", 8)


def assert_agree(dense: keepset.Selection, streamed: keepset.Selection) -> None:
    assert dense.search == "dense"
    assert streamed.search == "streamed"
    assert streamed.k == dense.k
    assert streamed.weights == pytest.approx(dense.weights, rel=1e-6)
    assert streamed.scales == pytest.approx(dense.scales, rel=1e-6)
    assert streamed.objective == pytest.approx(dense.objective, rel=1e-6)
    assert list(streamed) == list(dense)
    assert np.asarray(streamed.gains) == pytest.approx(np.asarray(dense.gains), rel=1e-4, abs=1e-7)
    for name, share in dense.shares.items():
        assert np.asarray(streamed.shares[name]) == pytest.approx(np.asarray(share), abs=2e-3, nan_ok=True)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"bandwidth": "knn"},
    {"bandwidth": 0.4},
    {"bandwidth_scale": 0.5},
    {"fusion": "max-then-sum"},
    {"kernel": "laplace"},
    {"metric": "euclidean"},
    {"metric": "literal"},
    {"neighbours": 7},
    {"point_weights": np.linspace(0, 1, 450)},
    {"start": [3, 400, 11]},
    {"weights": "density"},
    {"weights": "equal"},
    {"weights": "inverse"},
]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "defaults")
@pytest.mark.parametrize("method", COVER)
def test_streamed__picks_as_with_the_matrix(method: str, options: dict[str, Any]) -> None:
    views = make_views(450)
    dense, streamed = (
        keepset.select(views, 20, method=method, memory=memory, **options) for memory in (ALWAYS_DENSE, NEVER_DENSE)
    )
    assert_agree(dense, streamed)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("method", ["probcover", "mers-probcover"])
def test_streamed__one_uncovered_set_shared_by_all_views(method: str) -> None:
    views = make_views(500)
    assert_agree(
        *(
            keepset.select(views, 200, method=method, uncovered="shared", memory=memory)
            for memory in (ALWAYS_DENSE, NEVER_DENSE)
        )
    )


@pytest.mark.usefixtures("small_blocks")
def test_streamed__a_view_that_one_pick_covers_and_another_that_none_does() -> None:
    """All but the first pick cover nothing in the first view."""
    views = make_views(100)
    views["clumped"] = torch.ones(100, 3)
    assert_agree(
        *(keepset.select(views, 20, method="mers-probcover", memory=memory) for memory in (ALWAYS_DENSE, NEVER_DENSE))
    )


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("method", SOFT)
def test_streamed__a_kernel_full_of_ties_reaches_the_same_coverage(method: str) -> None:
    views = make_views(600)
    dense, streamed = (
        keepset.select(views, 20, method=method, kernel="tophat", memory=memory)
        for memory in (ALWAYS_DENSE, NEVER_DENSE)
    )
    assert streamed.objective == pytest.approx(dense.objective, rel=1e-6)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("count", "seed"), [(300, 2), (900, 1)])
def test_streamed__once_all_is_covered_the_lowest_indices_are_left(count: int, seed: int) -> None:
    """A bandwidth so wide that few points cover all; what rounding leaves, above or below nothing, is no gain."""
    views = make_views(count, seed)
    dense, streamed = (
        keepset.select(views, 60, kernel="tophat", bandwidth=1.2, memory=memory)
        for memory in (ALWAYS_DENSE, NEVER_DENSE)
    )
    assert list(streamed) == list(dense)
    assert min(streamed.gains) == streamed.gains[-1] == 0
    assert streamed.objective == pytest.approx(1, abs=1e-6)


@pytest.mark.usefixtures("small_blocks")
@given(seed=st.integers(0, 10**6), count=st.integers(2, 90), budget=st.integers(1, 20))
def test_streamed__each_pick_is_the_best_there_is(seed: int, count: int, budget: int) -> None:
    """Against a search that looks at every candidate, in float64, after each pick."""
    view = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    chosen = keepset.select(view, min(budget, count), method="maxherding", memory=NEVER_DENSE)
    similarity = kernel("rbf", "cosine", next(iter(chosen.scales.values())))(pairwise(cloud(view)))
    covered = torch.zeros(count, dtype=torch.float64)
    for pick, gain in zip(chosen, chosen.gains, strict=True):
        gains = (similarity - covered).clamp(min=0).sum(1) / count
        assert float(gains[pick]) == pytest.approx(float(gains.max()), rel=1e-9, abs=1e-12)
        assert float(gain) == pytest.approx(float(gains[pick]), rel=1e-6, abs=1e-9)
        covered = torch.maximum(covered, similarity[pick])


def test_streamed__in_float32_as_exact_as_with_the_matrix() -> None:
    """Gains of a thousandth of the first are what is left of sums thousands of times as large."""
    view = torch.randn(3000, 64, generator=torch.Generator().manual_seed(1))
    chosen = keepset.select(view, 60, method="maxherding", memory=NEVER_DENSE)
    exact = keepset.select(view.double(), 60, method="maxherding", memory=ALWAYS_DENSE)
    assert list(chosen) == list(exact)


def count_values(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many similarities are computed from now on, in its only place."""
    computed = [0]
    written = Kernel.to

    def counted(self: Kernel, columns: Kernel) -> Tensor:
        computed[0] += len(self) * len(columns)
        return written(self, columns)

    monkeypatch.setattr(Kernel, "to", counted)
    return computed


@pytest.mark.usefixtures("small_blocks")
def test_streamed__most_candidates_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """All gains anew for each of 30 picks would be 30 passes over the kernel."""
    computed = count_values(monkeypatch)
    keepset.select(make_views(900), 30, memory=NEVER_DENSE)
    assert computed[0] < 8 * 900**2


def test_row_sums__keep_the_digits_of_small_differences() -> None:
    block = torch.rand(5, 1000, generator=torch.Generator().manual_seed(0))
    worth = torch.rand(1000, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(row_sums(block, worth), block.double() @ worth.double(), rtol=1e-7)


# ---------------------------------------------------------------- a random sample of candidates


@pytest.mark.parametrize("method", SOFT)
def test_stochastic__close_to_exact_and_the_same_for_a_seed(method: str) -> None:
    views = make_views(400)
    exact = keepset.select(views, 20, method=method)
    first, second, other = (
        keepset.select(views, 20, method=method, search="stochastic", epsilon=0.05, generator=seed)
        for seed in (1, 1, 2)
    )
    assert first.search == "stochastic"
    assert list(first) == list(second)
    assert list(first) != list(other)
    assert 0.95 * exact.objective < first.objective < exact.objective
    assert first.objective == pytest.approx(keepset.coverage(views, list(first), method=method), rel=1e-6)
    assert len(set(first)) == 20


def test_stochastic__of_several_large_views_covers_what_it_says() -> None:
    """With so many points a matrix would make do with the memory of one view."""
    views = [make_views(2100, seed)["clumped"] for seed in (0, 1)]
    chosen = keepset.select(views, 10, search="stochastic")
    assert chosen.objective == pytest.approx(keepset.coverage(views, chosen.indices), rel=1e-6)


def test_stochastic__looks_at_the_sample_that_the_bound_asks_for() -> None:
    points = cloud(torch.randn(500, 4, generator=torch.Generator().manual_seed(0)))
    similar = Kernel([points], [kernel("rbf", "cosine", 0.5)], torch.ones(500))
    none = torch.empty(0, dtype=torch.int64)
    search = StochasticSearch([similar], none, 10, 0.1, torch.Generator().manual_seed(0))
    assert search.size == 116  # 500 / 10 · ln 10 = 115.1
    pick, gains = search.best()
    everyone = ExactSearch([similar], none)
    assert float(gains.sum()) == pytest.approx(float(everyone.bounds[pick].sum()), rel=1e-6)


def test_stochastic__with_a_tiny_epsilon_every_candidate_is_looked_at() -> None:
    views = make_views(60)
    exact = keepset.select(views, 5)
    assert list(keepset.select(views, 5, search="stochastic", epsilon=1e-6)) == list(exact)


# ---------------------------------------------------------------- which way


def test_memory__auto_goes_by_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    views = make_views(2500)
    needed = 2500**2 * 4
    monkeypatch.setattr("keepset.selection.problem.free_bytes", lambda _device: 2 * needed + 8)
    assert keepset.select(views, 2).search == "dense"
    assert keepset.select(views, 2, fusion="max-then-sum").search == "streamed"
    assert keepset.select(views, 2, method="probcover").search == "streamed"
    monkeypatch.setattr("keepset.selection.problem.free_bytes", lambda _device: 2 * needed - 8)
    assert keepset.select(views, 2).search == "streamed"
    assert keepset.select({name: view[:400] for name, view in views.items()}, 2).search == "dense"


def test_memory__a_number_is_a_limit_to_the_byte() -> None:
    view = make_views(100)["clumped"]
    assert keepset.select(view, 2, method="maxherding", memory=40_000).search == "dense"
    assert keepset.select(view, 2, method="maxherding", memory=39_999).search == "streamed"


def test_free_bytes__is_told_or_without_limit() -> None:
    assert room.free_bytes(torch.device("cpu")) > 2**20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memory": 0}, "memory must be in 1"),
        ({"memory": "lots"}, "memory"),
        ({"memory": -5}, "memory must be in 1"),
        ({"search": "lazy"}, "search"),
        ({"search": "stochastic", "epsilon": 1.0}, "epsilon must be above 0 and below 1"),
        ({"search": "stochastic", "epsilon": 0}, "epsilon"),
        ({"epsilon": 0.2}, "is for search='stochastic'"),
    ],
    ids=str,
)
def test_wrong_settings__are_refused_by_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        keepset.select(make_views(20), 2, **options)


def test_hard_cover__has_no_stochastic_search() -> None:
    with pytest.raises(ValueError, match="is for soft cover"):
        keepset.select(make_views(20), 2, method="probcover", search="stochastic")


# ---------------------------------------------------------------- scales


@pytest.mark.parametrize("method", COVER)
def test_scales__of_a_sample_are_near_and_say_so(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    views = make_views(1500)
    exact = keepset.select(views, 30, method=method)
    monkeypatch.setattr(sampled, "EXACT", 1000)
    monkeypatch.setattr(sampled, "SAMPLED", 800)
    found = keepset.select(views, 30, method=method, memory=NEVER_DENSE)
    assert found.scales == pytest.approx(exact.scales, rel=0.05)
    assert found.weights == pytest.approx(exact.weights, rel=0.1)
    assert found.scales != exact.scales
    what = "radius" if "probcover" in method else "bandwidth"
    assert any(f"{what} from a sample of 800 of 1,500 points, standard error" in note for note in found.notes)
    assert not exact.notes


@pytest.mark.parametrize("k", [1, 20, 599])
def test_scales__neighbours_by_faiss_are_those_of_all_distances(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(sampled, "EXACT", 500)
    monkeypatch.setattr(sampled, "SAMPLED", 256)
    view = make_views(600)["clumped"].float()
    view[100:140] = view[7]  # copies, at a distance of exactly 0
    found = sampled.Scales(cloud(view), k)
    monkeypatch.setattr(sampled, "find_spec", lambda _: None)
    expected = sampled.Scales(cloud(view), k)
    near, plain = found._near(found.sample), expected._near(expected.sample)
    for name in ("mean", "nearest", "median"):
        torch.testing.assert_close(getattr(near, name), getattr(plain, name), rtol=1e-4, atol=1e-4)
        assert torch.equal(getattr(near, name) == 0, getattr(plain, name) == 0)
    assert (near.nearest == 0).any()


def test_scales__faiss_is_asked_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(sampled, "EXACT", 500)
    monkeypatch.setattr(sampled.Scales, "_rows", None)  # not needed
    for rule in ("printed", "inverse", "density"):
        assert sampled.Scales(cloud(make_views(600)["clumped"].float()), 20).weight(rule) is not None
    assert sampled.Scales(cloud(make_views(600)["clumped"].float()), 20).bandwidth("knn", "euclidean") > 0


def test_scales__the_standard_error_is_the_spread_over_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 40 sets of points the medians of samples lie about their own medians as the notes say."""
    monkeypatch.setattr(sampled, "EXACT", 500)
    monkeypatch.setattr(sampled, "SAMPLED", 256)
    off, told = [], []
    for seed in range(40):
        points = cloud(make_views(600, seed)["clumped"])
        own = sampled.Scales(points, 20)
        found, exact = own.bandwidth("median", "cosine"), scales.middle_distances(points)[0]
        off.append(found / exact - 1)
        told.append(float(own.notes[0].rpartition(" ")[2].rstrip("%")) / 100)
    spread = float(np.sqrt(np.mean(np.square(off))))
    assert 0.3 * spread < np.mean(told) < 3 * spread


def test_middle_distances__narrowed_by_counting_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    points = cloud(make_views(2000)["clumped"])
    expected = scales.middle_distances(points)
    monkeypatch.setattr(scales, "MANY", 10)
    assert scales.middle_distances(points) == expected


def test_on_pick__what_hard_cover_has_left_gains_nothing() -> None:
    told: list[tuple[int, float]] = []
    chosen = keepset.select(make_views(40), 39, method="probcover", on_pick=lambda *pick: told.append(pick))
    assert [pick for pick, _ in told] == list(chosen)
    assert told[-1][1] == 0


def test_on_pick__is_told_of_every_pick_in_order() -> None:
    views = make_views(300)
    for method in COVER:
        for memory in (ALWAYS_DENSE, NEVER_DENSE):
            told: list[tuple[int, float]] = []
            chosen = keepset.select(
                views, 5, method=method, memory=memory, on_pick=lambda *pick, told=told: told.append(pick)
            )
            assert [pick for pick, _ in told] == list(chosen)
            assert [gain for _, gain in told] == pytest.approx(np.asarray(chosen.gains), rel=1e-5)


def test_on_pick__density_of_points_is_not_a_pick() -> None:
    told: list[int] = []
    chosen = keepset.select(make_views(80), 4, point_weights="density", on_pick=lambda pick, _: told.append(pick))
    assert told == list(chosen)


def test_mapped_file__a_selector_of_ones_own_may_write_to_what_it_gets(tmp_path: Path) -> None:
    np.save(tmp_path / "view.npy", make_views(30)["spread"].numpy())
    mapped = np.load(tmp_path / "view.npy", mmap_mode="r")

    def last(views: dict[str, Tensor], budget: int, *, generator: torch.Generator) -> list[int]:
        for view in views.values():
            view.zero_()
        return list(range(30))[-budget:]

    assert list(keepset.select(mapped, 2, method=last)) == [28, 29]
    assert np.asarray(mapped).any()
