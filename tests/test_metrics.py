"""The numbers of a run, against values worked out by hand."""

import math
from typing import Any

import pytest

from keepset import metrics

MATRIX = [[0.9], [0.5, 0.8], [0.6, 0.4, 1.0]]


def test_metrics__three_episodes_by_hand() -> None:
    found = metrics.all_metrics(MATRIX)
    averages = [0.9, 0.65, 2 / 3]
    assert metrics.average_accuracies(MATRIX) == pytest.approx(averages)
    assert found["FAA"] == pytest.approx(2 / 3)
    assert found["AAA"] == pytest.approx(sum(averages) / 3)
    assert found["forgetting"] == pytest.approx(((0.9 - 0.6) + (0.8 - 0.4)) / 2)
    assert found["stability"] == pytest.approx((0.5 + (0.6 + 0.4) / 2) / 2)


def test_forgetting__accuracy_that_rises_again_counts_from_its_best() -> None:
    assert metrics.forgetting([[0.5], [0.7, 1.0], [0.6, 1.0, 1.0]]) == pytest.approx((0.1 + 0.0) / 2)


def test_one_episode__forgetting_and_stability_are_undefined() -> None:
    found = metrics.all_metrics([[0.5]])
    assert found["FAA"] == found["AAA"] == 0.5
    assert math.isnan(found["forgetting"])
    assert math.isnan(found["stability"])


@pytest.mark.parametrize("matrix", [[], [[0.5, 0.5]], [[0.5], [0.5]], [[1.5]], [[-0.1]], [[math.nan]]])
def test_metrics__a_matrix_of_the_wrong_form_is_refused(matrix: Any) -> None:
    with pytest.raises(ValueError, match="accuracy matrix"):
        metrics.all_metrics(matrix)


def test_mean_and_error__of_one_value_there_is_none() -> None:
    assert metrics.mean_and_error([1.0, 2.0, 6.0]) == pytest.approx((3.0, math.sqrt(7 / 3)))
    assert math.isnan(metrics.mean_and_error([1.0])[1])
