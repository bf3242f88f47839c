"""Selectors less one of them, drawn: where seeds, means and intervals lie."""

import itertools
from typing import Any

import pytest
from matplotlib.colors import to_hex

from fake_results import runs
from keepset.report.differences import draw_differences
from keepset.report.statistics import paired_test
from keepset.report.stored import Record
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


def of_both(value: float, **given: Any) -> list[Record]:
    """A run of mers and one of random."""
    return [each for name in ("mers", "random") for each in runs([value], selector=name, capacity=100, **given)]


def test_draw_differences__numbers_are_told_with_their_names() -> None:
    plain = SOME[:6]
    epochs = names(draw_differences([*plain, *of_both(8, train__epochs=10)], "FAA", "mers"))
    assert epochs == ["random, 10 epochs", "random, 100 epochs"]
    orders = [*plain, *of_both(8, data__order=42)]
    assert names(draw_differences(orders, "FAA", "mers")) == ["random, order 42", "random, order canonical"]
    batches = names(draw_differences([*orders, *of_both(9, train__batch=32)], "FAA", "mers"))
    assert {*batches} == {
        "random, order 42, train.batch=10",
        "random\norder\u00a0canonical, train.batch=10",
        "random\norder\u00a0canonical, train.batch=32",
    }


def test_draw_differences__learners_and_data_are_told_by_theirs() -> None:
    more = [*of_both(9, data__name="digits"), *of_both(8, learner="er")]
    found = names(draw_differences([*SOME[:6], *more], "FAA", "mers"))
    assert {*found} == {"random, cifar100, er-ace", "random, digits, er-ace", "random, cifar100, er"}


def test_draw_differences__a_setting_is_never_broken_but_shortened() -> None:
    views = ("supervised", "simclr", "previous")
    long = [
        *runs([20, 22], capacity=100, data__order=[*reversed(range(100))]),
        *runs([21, 24], capacity=100, data__order=[*reversed(range(100))], views=views),
    ]
    short = [*runs([20, 22], capacity=100), *runs([30, 32], capacity=100, options={"bandwidth_scale": 0.5})]
    figure = draw_differences([*long, *short], "FAA", "mers")
    first, second = names(figure)
    assert first == "mers bandwidth_scale=0.5\norder\u00a0canonical"
    assert second.startswith("mers views=supervised+simclr+\nprevious\norder\u00a099\u00a098\u00a097")
    assert second.endswith("…")
    assert max(map(len, second.split("\n"))) <= 36


def test_draw_differences__names_of_many_lines_keep_clear_of_titles_and_of_each_other() -> None:
    options = {"bandwidth_scale": 0.5, "fusion": "max-then-sum", "kernel": "laplace", "metric": "euclidean"}
    options |= {"point_weights": "density", "point_power": 3, "weights": "equal"}
    tall = [*SOME[:6], *runs([40, 41, 42], capacity=100, options=options)]
    tall += of_both(9, data__order=42, model__width=32, quota="fixed", train__batch=32, train__momentum=0.5)
    figure = draw_differences(tall, "FAA", "mers")
    figure.canvas.draw()
    (axes,) = figure.axes
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert axes.get_yticklabels()[0].get_text().count("\n") == 6
    assert boxes[0].y1 <= axes.bbox.y1
    assert all(upper.y0 > lower.y1 for upper, lower in itertools.pairwise(boxes))
    assert boxes[-1].y0 >= axes.bbox.y0


def test_draw_differences__other_settings_are_refused_by_name() -> None:
    other = runs([10, 11, 12], selector="random", capacity=100, train__batch=32)
    with pytest.raises(ValueError, match=r"the runs differ in train.batch \(10, 32\); choose among them with --where"):
        draw_differences([*SOME[:3], *other], "FAA", "mers")


def test_draw_differences__with_nothing_beside_it() -> None:
    with pytest.raises(ValueError, match="nothing to compare mers with"):
        draw_differences(SOME[:3], "FAA", "mers")
    with pytest.raises(ValueError, match="did you mean 'mers'"):
        draw_differences(SOME, "FAA", "merz")
