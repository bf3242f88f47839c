"""Similarities kept in sixteen bits: bounds that are never too low, and the same picks as with the matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import keepset
from keepset.selection import kept, soft, streaming
from keepset.selection.geometry import cloud, pairwise
from keepset.selection.kept import KeptKernel, KeptSearch, kept_bytes
from keepset.selection.kernels import kernel
from keepset.selection.streaming import ExactSearch, Kernel
from test_streaming import ALWAYS_DENSE, NEVER_DENSE, OPTIONS, SOFT, assert_agree, count_values, make_views

NOBODY = torch.empty(0, dtype=torch.int64)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many strips, and candidates left out of account, with few points too."""
    monkeypatch.setattr(streaming, "ROWS", 24)
    monkeypatch.setattr(streaming, "COLUMNS", 40)
    monkeypatch.setattr(kept, "FIRST", 4)
    monkeypatch.setattr(kept, "PIECE", 300)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which searches are begun."""
    begun: list[str] = []
    for search in (KeptSearch, ExactSearch):

        def begin(*given: Any, search: Any = search) -> Any:
            begun.append(search.__name__)
            return search(*given)

        monkeypatch.setattr(soft, search.__name__, begin)
    return begun


def room_for(count: int, options: dict[str, Any]) -> int:
    return kept_bytes(count, 2 if options.get("fusion") == "max-then-sum" else 1)


def make_kernel(view: Tensor, name: str, bandwidth: float, worth: Tensor | None = None) -> Kernel:
    return Kernel([cloud(view)], [kernel(name, "cosine", bandwidth)], worth)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "defaults")
@pytest.mark.parametrize("method", SOFT)
def test_kept__picks_as_with_the_matrix(method: str, options: dict[str, Any], searches: list[str]) -> None:
    views = make_views(450)
    room = room_for(450, options if method == "mers" else {})
    dense, found = (
        keepset.select(views, 20, method=method, memory=memory, **options) for memory in (ALWAYS_DENSE, room)
    )
    assert_agree(dense, found)
    assert searches == ["KeptSearch"]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("options", [{}, {"fusion": "max-then-sum"}], ids=str)
def test_kept__a_byte_less_is_too_little(options: dict[str, Any], searches: list[str]) -> None:
    views, room = make_views(300), room_for(300, options)
    found, without = (keepset.select(views, 20, memory=memory, **options) for memory in (room, room - 1))
    assert searches == ["KeptSearch", "ExactSearch"]
    assert list(found) == list(without)
    assert found.search == without.search == "streamed"
    assert np.asarray(found.gains) == pytest.approx(np.asarray(without.gains), rel=1e-5)


def test_kept__by_default_in_half_of_what_is_free(searches: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    views = {"spread": make_views(2100)["spread"]}
    for free in (2 * kept_bytes(2100), 2 * kept_bytes(2100) - 2):
        monkeypatch.setattr("keepset.selection.problem.free_bytes", lambda _device, free=free: free)
        keepset.select(views, 2, method="maxherding")
    assert searches == ["KeptSearch", "ExactSearch"]


def test_kept__not_where_the_limit_is_more_than_is_free(searches: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepset.selection.problem.free_bytes", lambda _device: kept_bytes(300))
    keepset.select(make_views(300), 2, memory=kept_bytes(300))
    assert searches == ["ExactSearch"]


def test_kept__hard_cover_and_random_samples_keep_nothing(searches: list[str]) -> None:
    views = make_views(60)
    keepset.select(views, 50, method="probcover", memory=kept_bytes(60))
    assert searches == ["ExactSearch"]  # for the order of what is left
    keepset.select(views, 5, search="stochastic", memory=kept_bytes(60))
    assert searches == ["ExactSearch"]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
@pytest.mark.parametrize("bandwidth", [0.0, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("name", ["rbf", "laplace", "tophat"])
@pytest.mark.parametrize("weighs", [False, True])
def test_bounds__are_never_below_the_gains(name: str, bandwidth: float, wide: torch.dtype, weighs: bool) -> None:
    """Of all candidates, after each pick, and whether points were brought to account or not."""
    view = make_views(100)["clumped"].to(wide)
    worth = torch.linspace(0, 1, 100, dtype=wide) if weighs else None
    similar = make_kernel(view, name, bandwidth, worth)
    search = KeptSearch([similar], torch.tensor([7]))
    everyone = torch.arange(100)
    for _ in range(20):
        bounds, gains = search.bounds / kept.UNIT, similar.gains(everyone, search.covered[0])
        assert bool((bounds >= gains * (1 - 1e-7) - 1e-12).all())
        settled = search._settled()[:, 0]
        assert torch.allclose(settled[settled > -torch.inf], gains[settled > -torch.inf], rtol=1e-6, atol=1e-5)
        pick, parts = search.best()
        allowed = gains.masked_fill(~search.allowed, -torch.inf)
        assert float(parts) == pytest.approx(float(allowed.max()), rel=1e-5, abs=1e-5)
        search.take(pick)


@pytest.mark.usefixtures("small_blocks")
@given(seed=st.integers(0, 10**6), count=st.integers(2, 120), share=st.floats(0, 1))
def test_excess__is_that_of_values_rounded_up(seed: int, count: int, share: float) -> None:
    """Against the matrix, in whole numbers; few points are read one by one, many together."""
    source = torch.Generator().manual_seed(seed)
    view = torch.randn(count, 3, generator=source, dtype=torch.float64)
    values = kernel("rbf", "cosine", 0.7)(pairwise(cloud(view))).mul(kept.UNIT).sub(kept.NOTHING).ceil()
    found = KeptKernel(make_kernel(view, "rbf", 0.7))
    assert torch.allclose(found.sums, values.sum(1), rtol=1e-4)  # a product may round across a unit
    grows = torch.rand(count, generator=source) < share
    low = torch.randint(kept.UNIT, (count,), generator=source).short()
    high = torch.minimum(low + 900 * grows, torch.tensor(kept.UNIT)).short()
    expected = (torch.minimum(values, high) - torch.minimum(values, low)).sum(1)
    owed = found.excess((high > low).nonzero().flatten(), low, high)
    assert torch.allclose(owed, expected.double(), atol=count)
    assert bool((owed == owed.round()).all())


@pytest.mark.usefixtures("small_blocks")
@given(seed=st.integers(0, 10**6), count=st.integers(2, 60), budget=st.integers(1, 60), wide=st.booleans())
def test_kept__each_pick_is_the_best_there_is(seed: int, count: int, budget: int, wide: bool) -> None:
    """Against a search that looks at every candidate after each pick; to the last of them."""
    view = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    similar = make_kernel(view if wide else view.float(), "rbf", 0.4)
    search = KeptSearch([similar], NOBODY)
    picks = streaming.streamed_greedy(search, min(budget, count), float(count))
    covered = torch.zeros_like(similar.like)
    for pick in picks.indices:
        gains = similar.gains(torch.arange(count), covered)
        assert float(gains[pick]) == pytest.approx(float(gains.max()), rel=1e-9 if wide else 2e-6, abs=1e-5)
        covered = torch.maximum(covered, similar.highest(pick[None]))
    assert len(set(picks.indices.tolist())) == len(picks.indices)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("bandwidth", [0.02, 1.2])
@pytest.mark.parametrize("name", ["rbf", "tophat"])
def test_kept__ties_go_to_the_lowest_index(name: str, bandwidth: float) -> None:
    """All gains are one, or nothing is left to gain."""
    views = make_views(400)
    dense, found = (
        keepset.select(views, 50, kernel=name, bandwidth=bandwidth, memory=memory)
        for memory in (ALWAYS_DENSE, kept_bytes(400))
    )
    assert list(found) == list(dense)


@pytest.mark.usefixtures("small_blocks")
def test_kept__gains_that_stay_as_they_are_are_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points far apart: every candidate is as good as any other, in each of 40 picks."""
    looked = [0]
    written = Kernel.gains

    def counted(self: Kernel, rows: Tensor, *given: Any) -> Tensor:
        looked[0] += len(rows)
        return written(self, rows, *given)

    monkeypatch.setattr(Kernel, "gains", counted)
    search = KeptSearch([make_kernel(torch.eye(300), "rbf", 0.02)], NOBODY)
    picks = streaming.streamed_greedy(search, 40, 300.0)
    assert picks.indices.tolist() == list(range(40))
    assert looked[0] < 300 + 40 * 20


@pytest.mark.usefixtures("small_blocks")
def test_kept__given_up_where_it_does_not_tell_candidates_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "UNIT", 4)  # hardly a bound at all
    monkeypatch.setattr(kept, "TOO_MANY", 1)
    similar = make_kernel(make_views(300)["spread"], "rbf", 0.5)
    search = KeptSearch([similar], NOBODY)
    found = streaming.streamed_greedy(search, 30, 300.0)
    assert search.instead is not None
    expected = streaming.streamed_greedy(ExactSearch([similar], NOBODY), 30, 300.0)
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.gains.numpy() == pytest.approx(expected.gains.numpy(), rel=1e-6)


@pytest.mark.usefixtures("small_blocks")
def test_kept__the_same_to_the_bit_again_and_its_sums_with_any_number_of_threads() -> None:
    views, room = make_views(500), kept_bytes(500)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 2):
            torch.set_num_threads(threads)
            found.append(KeptKernel(make_kernel(views["clumped"], "rbf", 0.5)).sums)
            found.append(torch.as_tensor(keepset.select(views, 30, memory=room).gains))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(found[2:4], found[4:], strict=True))
    assert torch.equal(found[0], found[2])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("method", SOFT)
def test_kept__goes_on_from_a_start_as_if_never_broken_off(method: str) -> None:
    views, room = make_views(600), kept_bytes(600)
    whole = keepset.select(views, 24, method=method, memory=room)
    fixed = (
        {"weights": dict(whole.weights), "bandwidth": dict(whole.scales)}
        if method == "mers"
        else {"bandwidth": next(iter(whole.scales.values()))}
    )
    rest = keepset.select(views, 14, method=method, start=list(whole)[:10], memory=room, **fixed)
    assert list(rest) == list(whole)[10:]


@pytest.mark.usefixtures("small_blocks")
def test_kept__few_similarities_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = count_values(monkeypatch)
    seen = []
    for memory in (kept_bytes(900), NEVER_DENSE):
        computed[0] = 0
        keepset.select(make_views(900), 30, memory=memory)
        seen.append(computed[0] / 900**2)
    assert seen[0] < 1.2 < seen[1]
