"""The paper's Gaussian model: its closed forms against sampling and linear algebra, and its propositions."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepset.report.theory import (
    TwoLevels,
    compressed_kl,
    compressed_proxy,
    diagonal_kl,
    equal_volume,
    fit_two_levels,
    gap_to_isotropic,
    gap_to_scaled,
    gaussian_kl,
    isotropic_kl,
    isotropic_proxy,
    narrow_enough,
    printed_compressed_kl,
    risk_gap_bound,
    scaled_kl,
    scaled_proxy,
)

numbers = st.floats(0.05, 20)
sizes = st.integers(2, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1)))


def some_covariance(size: int, seed: int = 0) -> np.ndarray[Any, Any]:
    mixing = np.random.default_rng(seed).normal(size=(size, size))
    return mixing @ mixing.T / size + 0.2 * np.eye(size)


def log_density(points: np.ndarray[Any, Any], covariance: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of N(0, covariance), but for the constant that all of them share."""
    solved = np.linalg.solve(covariance, points.T).T
    found: np.ndarray[Any, Any] = -0.5 * ((points * solved).sum(1) + math.log(np.linalg.det(covariance)))
    return found


SIGMA = some_covariance(5)
LOG_DET, TRACE = float(np.linalg.slogdet(SIGMA)[1]), float(np.trace(SIGMA))
FIRST = equal_volume(5, 2, 0.3, 0.6)
SECOND = equal_volume(5, 2, 0.3, 0.6, LOG_DET)
FORMS = {
    "scaled": (scaled_proxy(SIGMA, 0.6), scaled_kl(5, 0.6)),
    "isotropic": (isotropic_proxy(5, 0.6), isotropic_kl(5, 0.6, TRACE, LOG_DET)),
    "Eq. 7": (compressed_proxy(SIGMA, FIRST), printed_compressed_kl(FIRST, 0.6)),
    "Eq. 8": (compressed_proxy(SIGMA, SECOND), printed_compressed_kl(SECOND, 0.6, LOG_DET)),
    "any volume": (compressed_proxy(SIGMA, TwoLevels(5, 3, 0.4, -1.1)), compressed_kl(TwoLevels(5, 3, 0.4, -1.1))),
}


@pytest.mark.parametrize("form", FORMS)
def test_closed_form__is_the_average_log_ratio_of_sampled_points(form: str) -> None:
    proxy, expected = FORMS[form]
    points = np.random.default_rng(1).multivariate_normal(np.zeros(5), SIGMA, size=100_000)
    ratios = log_density(points, SIGMA) - log_density(points, proxy)
    error = ratios.std() / math.sqrt(len(points))
    assert abs(ratios.mean() - expected) < 4 * error
    assert error < 0.02 * expected, "or the line above would say little"


@pytest.mark.parametrize("form", FORMS)
def test_closed_form__is_the_general_formula(form: str) -> None:
    proxy, expected = FORMS[form]
    assert gaussian_kl(SIGMA, proxy) == pytest.approx(expected, rel=1e-10)


def test_gaussian_kl__one_dimension_by_hand() -> None:
    assert gaussian_kl(np.array([[1.0]]), np.array([[4.0]])) == pytest.approx(0.5 * (0.25 - 1 + math.log(4)))
    assert gaussian_kl(SIGMA, SIGMA) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="second must be positive definite"):
        gaussian_kl(np.eye(2), np.diag([1.0, -1.0]))


def test_equal_volume__determinants_agree_in_both_cases() -> None:
    assert np.linalg.det(compressed_proxy(SIGMA, FIRST)) == pytest.approx(np.linalg.det(0.6 * SIGMA))
    assert np.linalg.det(compressed_proxy(SIGMA, SECOND)) == pytest.approx(0.6**5)


def test_equal_volume__512_directions_stay_in_range() -> None:
    levels = equal_volume(512, 1, 1e-3, 0.5)
    assert levels.wide == math.inf
    assert compressed_kl(levels) == pytest.approx(printed_compressed_kl(levels, 0.5))
    assert printed_compressed_kl(levels, 0.5) == pytest.approx(0.5 * (511e3 - 512 + 512 * math.log(0.5)))


def test_printed_form__off_the_constraint_it_is_no_divergence() -> None:
    levels = TwoLevels(4, 2, math.log(2), math.log(1.5))
    assert printed_compressed_kl(levels, 0.5) < 0 < compressed_kl(levels)


@given(sizes, numbers, numbers)
def test_first_gap__difference_of_the_closed_forms_and_never_negative(
    size: tuple[int, int], narrow: float, scale: float
) -> None:
    levels = equal_volume(*size, narrow, scale)
    gap = gap_to_scaled(levels, scale)
    assert gap >= -1e-9 * size[0] / scale
    assert gap == pytest.approx(compressed_kl(levels) - scaled_kl(size[0], scale), rel=1e-6, abs=1e-6 * size[0] / scale)
    if abs(math.log(narrow / scale)) > 1e-3:
        assert gap > 0, "zero for α = β = σ alone"


@given(sizes, numbers)
def test_first_gap__zero_where_all_are_alike(size: tuple[int, int], scale: float) -> None:
    levels = equal_volume(*size, scale, scale)
    assert levels.wide == pytest.approx(scale)
    assert gap_to_scaled(levels, scale) == pytest.approx(0, abs=1e-9 * size[0] / scale)


@given(st.lists(numbers, min_size=2, max_size=20), st.data(), numbers)
def test_second_gap__positive_below_beta_0_and_not_above(values: list[float], data: Any, scale: float) -> None:
    kept = data.draw(st.integers(1, len(values) - 1))
    log_det, trace = float(np.log(values).sum()), sum(values)

    def gap(narrow: float) -> float:
        return gap_to_isotropic(equal_volume(len(values), kept, narrow, scale, log_det), scale, trace)

    border, equal = narrow_enough(values, kept, scale), scale / math.exp(log_det / len(values))
    assert 0 < border <= equal * (1 + 1e-9)
    for factor in (0.999, 0.9, 0.3, 1e-3):
        assert gap(factor * border) > 0
    slack = 1e-7 * trace / scale
    assert abs(gap(border)) <= slack
    for share in (0.2, 0.6, 1.0):
        assert gap(border ** (1 - share) * equal**share) <= slack


def test_second_gap__supervised_is_the_closer_one_between_beta_0_and_alpha() -> None:
    values = [4.0, 1.0, 1.0, 0.25]
    border = narrow_enough(values, 2, 0.5)
    assert border < 0.5
    inside = equal_volume(4, 2, (border + 0.5) / 2, 0.5)
    assert inside.wide > inside.narrow, "still the model of the paper"
    covariance = np.diag(values)
    supervised = gaussian_kl(covariance, compressed_proxy(covariance, inside))
    assert supervised < gaussian_kl(covariance, isotropic_proxy(4, 0.5))


def test_beta_0__round_class_needs_no_compression() -> None:
    assert narrow_enough([2.0, 2.0, 2.0], 1, 0.5) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="positive numbers"):
        narrow_enough([1.0, 0.0], 1, 0.5)


@pytest.mark.parametrize("log_det", [0.0, LOG_DET])
def test_gaps__grow_without_bound_as_beta_vanishes(log_det: float) -> None:
    found = [compressed_kl(equal_volume(5, 2, 10.0**-power, 0.6, log_det)) for power in range(1, 7)]
    assert np.diff(np.log10(found))[-1] == pytest.approx(1, abs=0.01), "like (n − m) / 2β"


def test_diagonal_kl__a_direction_without_spread_is_infinite() -> None:
    assert diagonal_kl([0.0, -math.inf]) == math.inf
    assert diagonal_kl([0.0, -800.0]) == math.inf
    assert diagonal_kl([math.log(2), -math.log(2)]) == pytest.approx(0.5 * (0.5 + 2 - 2))


def test_risk_gap__root_and_share_and_no_more_than_the_share() -> None:
    assert risk_gap_bound(0.08, 0.1) == pytest.approx(0.02)
    assert risk_gap_bound(50, 0.1) == 0.1
    assert risk_gap_bound(1e-6, 0.1) > 1e-6, "the main text's KL alone would promise more than is proved"
    with pytest.raises(ValueError, match="kl must be 0 or more"):
        risk_gap_bound(-1, 0.1)
    with pytest.raises(ValueError, match=r"share must be in 0\.\.1"):
        risk_gap_bound(1, 1.1)


def test_two_levels__found_again() -> None:
    levels = equal_volume(9, 3, 0.2, 1.0)
    found = fit_two_levels(levels.logs)
    assert (found.directions, found.kept) == (9, 3)
    assert found.wide == pytest.approx(levels.wide)
    assert found.narrow == pytest.approx(0.2)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=12))
def test_two_levels__best_split_same_volume_and_no_larger_divergence(logs: list[float]) -> None:
    logs = sorted(logs, reverse=True)
    found = fit_two_levels(logs)

    def error(split: int) -> float:
        return sum(float(((part - part.mean()) ** 2).sum()) for part in np.split(np.array(logs), [split]))

    assert error(found.kept) <= min(error(split) for split in range(1, len(logs))) + 1e-9
    assert found.logs.sum() == pytest.approx(sum(logs), abs=1e-9)
    assert compressed_kl(found) <= diagonal_kl(logs) * (1 + 1e-9) + 1e-9


def test_bad_numbers__are_named() -> None:
    with pytest.raises(ValueError, match=r"kept must be in 1\.\.4"):
        equal_volume(5, 5, 0.1, 0.5)
    with pytest.raises(ValueError, match="narrow must be a positive number, got 0"):
        equal_volume(5, 2, 0, 0.5)
    with pytest.raises(ValueError, match="falling order"):
        fit_two_levels([0.0, 1.0])
