"""Selectors less one of them, drawn: where seeds, means and intervals lie."""

from typing import Any

import pytest
from matplotlib.colors import to_hex

from fake_results import runs
from keepset.report.differences import draw_differences
from keepset.report.statistics import paired_test
from keepset.report.style import COLOURS

SOME = [
    *runs([20, 22, 21], capacity=100),
    *runs([10, 11, 12], selector="random", capacity=100),
    *runs([22, 24.5, 23.5], capacity=100, options={"bandwidth_scale": 0.5}),
    *runs([30, 31], capacity=500),
    *runs([33], selector="random", capacity=500),
    *runs([40], selector="random", capacity=2000),
]
NARROW = "mers bandwidth_scale=0.5"


def names(figure: Any) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def marks(axes: Any, marker: str) -> list[list[float]]:
    """Where marks of a kind lie along the axis, from the top."""
    lines = [line for line in axes.get_lines() if line.get_marker() == marker]
    return [[float(x) for x in line.get_xdata()] for line in lines]


def bars(axes: Any) -> list[tuple[float, float]]:
    lines = [line for line in axes.get_lines() if line.get_marker() == "None" and line.get_linewidth() > 2]
    return [tuple(map(float, line.get_xdata())) for line in lines]  # type: ignore[misc]


def test_draw_differences__seeds_means_and_intervals_from_the_best_down() -> None:
    figure = draw_differences(SOME, "FAA", "mers")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["|M| = 100", "|M| = 500"], "nothing at 2000"
    left, right = figure.axes
    assert names(figure) == [NARROW, "random"]
    assert marks(left, "D") == [pytest.approx([7 / 3]), pytest.approx([-10])]
    assert marks(left, "o") == [pytest.approx([2, 2.5, 2.5]), pytest.approx([-10, -11, -9])]
    known = [paired_test([22, 24.5, 23.5], [20, 22, 21]), paired_test([10, 11, 12], [20, 22, 21])]
    assert bars(left) == [pytest.approx((each.low, each.high)) for each in known]
    assert marks(right, "D") == [pytest.approx([3])]
    assert bars(right) == [], "one pair has no interval"
    assert "cifar100, er-ace" in figure.get_suptitle()


def test_draw_differences__blue_where_nought_lies_outside() -> None:
    level = runs([20, 22.5, 20.4], selector="teal", capacity=100)
    (axes,) = draw_differences([*SOME[:9], *level], "FAA", "mers").axes
    colours = [to_hex(line.get_color()) for line in axes.get_lines() if line.get_marker() == "D"]
    blue = COLOURS[0].lower()
    assert [colour == blue for colour in colours] == [True, False, True]


def test_draw_differences__the_least_forgetting_is_on_top() -> None:
    assert names(draw_differences(SOME, "forgetting", "mers")) == ["random", NARROW]


def test_draw_differences__of_selectors_alone() -> None:
    plain = [*SOME[:6], *runs([25, 26, 27], selector="teal", capacity=100)]
    assert names(draw_differences(plain, "AAA", "random")) == ["teal", "mers"]


def test_draw_differences__other_settings_are_refused_by_name() -> None:
    other = runs([10, 11, 12], selector="random", capacity=100, train__batch=32)
    with pytest.raises(ValueError, match=r"the runs differ in train.batch \(10, 32\); choose among them with --where"):
        draw_differences([*SOME[:3], *other], "FAA", "mers")


def test_draw_differences__with_nothing_beside_it() -> None:
    with pytest.raises(ValueError, match="nothing to compare mers with"):
        draw_differences(SOME[:3], "FAA", "mers")
    with pytest.raises(ValueError, match="did you mean 'mers'"):
        draw_differences(SOME, "FAA", "merz")
