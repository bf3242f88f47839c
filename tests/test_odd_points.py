"""Points and numbers that are rare in features and common in other data: equal distances, copies, odd layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import keepset

DENSE, STREAMED = 2**60, 1
COVER = ("probcover", "maxherding", "mers-probcover", "mers")
SOFT = ("maxherding", "mers")
ARRAY = np.random.default_rng(0).normal(size=(20, 4))


@pytest.mark.parametrize("method", COVER)
def test_column_major__with_copies_as_row_major(method: str) -> None:
    view = ARRAY.copy()
    view[7] = view[3]
    expected = keepset.select(view, 6, method=method)
    for same in (np.asfortranarray(view), np.repeat(view, 2, axis=1)[:, ::2]):
        assert list(keepset.select(same, 6, method=method)) == list(expected)


@pytest.mark.parametrize("memory", [DENSE, STREAMED])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("copies", [0, 1])
@pytest.mark.parametrize("count", [5, 13, 20, 300])
def test_hard_cover__points_that_are_equally_far_lie_in_every_ball(
    count: int, copies: int, dtype: Any, memory: int
) -> None:
    """One pick covers all; computed in several ways, the same distance differs in its last digit."""
    view = np.eye(count, dtype=dtype)
    chosen = keepset.select(np.concatenate([view, view[:copies]]), 4, method="probcover", memory=memory)
    assert chosen.indices[0] == 0
    assert list(chosen.gains) == pytest.approx([1, 0, 0, 0])
    assert chosen.objective == pytest.approx(1)


@pytest.mark.parametrize("options", [{}, {"kernel": "tophat"}, {"kernel": "laplace"}, {"metric": "euclidean"}])
@pytest.mark.parametrize("spread", [1e-4, 3e-5])
def test_soft_cover__a_tight_clump_among_others_is_covered_alike_without_the_matrix(
    spread: float, options: dict[str, Any]
) -> None:
    """The bandwidth is that of the clump, below what rounding makes of a point's distance to itself."""
    source = np.random.default_rng(0)
    clump = np.eye(16)[0] + spread * source.normal(size=(400, 16))
    view = np.concatenate([clump, source.normal(size=(100, 16))]).astype(np.float32)
    assert keepset.coverage(view, range(500), memory=STREAMED, **options) == pytest.approx(1)
    dense, streamed = (keepset.select(view, 100, memory=memory, **options) for memory in (DENSE, STREAMED))
    assert streamed.objective == pytest.approx(dense.objective, rel=1e-3)


def test_streamed__gains_above_what_rounding_leaves_of_a_few_worthy_points_count() -> None:
    source = np.random.default_rng(0)
    view = (3 * source.normal(size=(20, 8)))[source.integers(20, size=600)] + 0.3 * source.normal(size=(600, 8))
    weights = np.full(600, 1e-3)
    weights[:5] = 1
    dense, streamed = (
        keepset.select(view.astype(np.float32), 60, point_weights=weights, memory=memory)
        for memory in (DENSE, STREAMED)
    )
    counting = int((dense.gains * weights.sum() > 1e-6).sum())
    assert counting > 30
    assert (streamed.gains[:counting] > 0).all()
    assert list(streamed)[:counting] == list(dense)[:counting]


@pytest.mark.parametrize("memory", [DENSE, STREAMED])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [3, 64, 512])
@pytest.mark.parametrize("method", COVER)
def test_multiples_of_one_vector__coincide(method: str, columns: int, dtype: Any, memory: int) -> None:
    """Divided by their lengths they differ in their last digits alone, which are no scale."""
    source = np.random.default_rng(columns)
    view = (source.normal(size=columns) * source.uniform(0.5, 3, size=(30, 1))).astype(dtype)
    chosen = keepset.select(view, 4, method=method, memory=memory)
    assert list(chosen) == [0, 1, 2, 3]
    assert list(chosen.gains) == [1, 0, 0, 0]
    assert chosen.scales == {"view 0": 0}
    assert "its points coincide" in chosen.notes[0]


def test_herding__of_a_collapsed_class_keeps_its_digits() -> None:
    """A thousand times as far from zero as it is wide: in float32 the mean must still be met, not as if by chance."""
    view = np.random.default_rng(0).normal(size=(500, 64)) + 1000
    unit = view / np.linalg.norm(view, axis=1, keepdims=True)

    def gap(picks: Any) -> float:
        return float(np.linalg.norm(unit[list(picks)].mean(axis=0) - unit.mean(axis=0)))

    fine, coarse = (gap(keepset.select(view.astype(kind), 100, method="herding")) for kind in (np.float64, np.float32))
    assert coarse < 2 * fine < gap(range(100)) / 2


def test_teal__of_two_tight_clumps_takes_the_most_typical() -> None:
    """Of vectors in float32: their distances must not come from products that round at their length."""
    source = np.random.default_rng(0)
    direction = source.normal(size=64)
    clumps = [side * direction + 1e-3 * source.normal(size=(150, 64)) for side in (1, -1)]
    view = np.concatenate(clumps).astype(np.float32)
    picks = [list(keepset.select(view.astype(kind), 2, method="teal")) for kind in (np.float32, np.float64)]
    assert picks[0] == picks[1]


@pytest.mark.parametrize(("method", "options"), [("probcover", {}), ("maxherding", {"kernel": "tophat"})])
@pytest.mark.parametrize("seed", range(5))
def test_codes__of_zeros_and_ones_are_covered_alike_with_and_without_the_matrix(
    seed: int, method: str, options: dict[str, Any]
) -> None:
    codes = np.random.default_rng(seed).integers(0, 2, size=(200, 8)).astype(float)
    codes = np.c_[np.ones(200), codes]
    dense, streamed = (
        keepset.select(codes, 12, method=method, memory=memory, **options).objective for memory in (DENSE, STREAMED)
    )
    assert streamed == pytest.approx(dense, rel=1e-9)
    assert dense <= 1 + 1e-12


@pytest.mark.parametrize("memory", [DENSE, STREAMED])
@pytest.mark.parametrize("seed", range(40))
def test_hard_cover__weights_of_forty_digits_repeat_no_point(seed: int, memory: int) -> None:
    source = np.random.default_rng(seed)
    view = source.normal(size=(40, 4))
    weights = 10.0 ** source.uniform(-40, 0, size=40)
    chosen = keepset.select([view, view[:, :2]], 25, method="mers-probcover", point_weights=weights, memory=memory)
    assert len(set(chosen)) == 25
    assert min(chosen.gains) >= 0


@pytest.mark.parametrize("memory", [DENSE, STREAMED])
@pytest.mark.parametrize("kernel", ["rbf", "laplace"])
@pytest.mark.parametrize("bandwidth", [1e-40, 1e-320])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", SOFT)
def test_bandwidth__too_small_for_its_inverse_is_that_of_copies_alone(
    method: str, dtype: Any, bandwidth: float, kernel: str, memory: int
) -> None:
    view = ARRAY.astype(dtype)
    chosen = keepset.select(view, 4, method=method, bandwidth=bandwidth, kernel=kernel, memory=memory)
    assert list(chosen) == [0, 1, 2, 3]
    assert chosen.objective == pytest.approx(4 / 20)


def test_episode_bandwidth__no_view_named_is_the_first() -> None:
    given: dict[str, Any] = {"method": "maxherding", "bandwidth": "episode"}
    labels = np.arange(20) % 2
    expected = keepset.select_per_class(ARRAY, labels, 2, **given)[0].scales
    assert keepset.select_per_class(ARRAY, labels, 2, view=None, **given)[0].scales == expected


def test_numbers_in_a_list__are_read_like_those_in_an_array() -> None:
    uncertainty = 1 + 1e-9 * np.random.default_rng(1).permutation(20)
    expected = keepset.select(ARRAY, 5, method="rainbow", uncertainty=uncertainty)
    assert list(keepset.select(ARRAY, 5, method="rainbow", uncertainty=uncertainty.tolist())) == list(expected)


@pytest.mark.parametrize("metric", ["euclidean", "literal"])
@pytest.mark.parametrize("memory", [DENSE, STREAMED])
def test_kept_points__are_covered_by_themselves(metric: str, memory: int) -> None:
    view = ARRAY.astype(np.float32)
    given: dict[str, Any] = {"metric": metric, "kernel": "laplace", "bandwidth": 1e-3, "memory": memory}
    assert keepset.coverage(view, range(20), **given) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [3, 5, 64, 100])
def test_herding__of_copies_the_lowest_index_comes_first(columns: int, dtype: Any) -> None:
    view = np.tile(np.random.default_rng(0).normal(size=(1, columns)), (9, 1)).astype(dtype)
    assert list(keepset.select(view, 9, method="herding")) == list(range(9))
    assert list(keepset.select(view, 3, method="herding", start=[1, 0])) == [2, 3, 4]


def test_weights__whose_sum_is_beyond_all_numbers() -> None:
    chosen = keepset.select([ARRAY, ARRAY[:, :2]], 3, weights=[1e308, 1e308])
    assert list(chosen.weights.values()) == [0.5, 0.5]
    assert list(chosen) == list(keepset.select([ARRAY, ARRAY[:, :2]], 3, weights="equal"))
