"""Tables, their arithmetic against cases worked out by hand, the paired test, the paper's figures, and every format."""

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special, stats  # type: ignore[import-untyped]

from fake_results import run_identity, runs, write_result
from keepset.report.axes import usual_axes
from keepset.report.fields import flat_settings
from keepset.report.pairs import compare
from keepset.report.paper import departures, in_errors, printed_result, printed_results
from keepset.report.render import in_latex, latex, markdown, tidy_csv
from keepset.report.sheets import pairs_sheet, table_sheet
from keepset.report.statistics import incomplete_beta, paired_test, t_quantile, two_sided_p
from keepset.report.stored import Record, read_records
from keepset.report.tables import Table, best_places, metric_name, tabulate

SMALL = [
    *runs([10, 12], selector="random", capacity=100),
    *runs([20, 24, 22], selector="mers", capacity=100),
    *runs([30, 30], selector="random", capacity=500),
]


# ---------------------------------------------------------------- arithmetic


def test_tabulate__mean_and_standard_error_by_hand() -> None:
    table = tabulate(SMALL)
    assert table.rows == ((100,), (500,))
    assert table.columns == (("random",), ("mers",))
    cell = table.cells[(100,), ("random",)]
    assert (cell.mean, cell.error) == pytest.approx((11, 1))  # |12 − 10| / 2
    cell = table.cells[(100,), ("mers",)]
    assert (cell.mean, cell.error) == pytest.approx((22, 2 / math.sqrt(3)))  # deviation 2, three seeds
    assert ((500,), ("mers",)) not in table.cells


def test_tabulate__one_seed_has_no_error() -> None:
    cell = tabulate(runs([40])).cells[(50,), ("mers",)]
    assert cell.mean == pytest.approx(40)
    assert math.isnan(cell.error)


def test_tabulate__the_same_run_twice_counts_once() -> None:
    table = tabulate([*runs([10, 12]), *runs([10])])
    assert table.repeated == 1
    assert len(table.cells[(50,), ("mers",)].values) == 2


def test_tabulate__an_option_said_and_left_out_is_the_same_run() -> None:
    table = tabulate([*runs([10]), *runs([10], options={"weights": "printed"})])
    assert table.repeated == 1


def test_tabulate__metric_by_any_case_or_nearest() -> None:
    assert tabulate(SMALL, "faa").metric == "FAA"
    with pytest.raises(ValueError, match="unknown metric 'forgeting'; did you mean 'forgetting'"):
        metric_name("forgeting")


def test_tabulate__where_fixes_and_orders() -> None:
    table = tabulate(SMALL, where={"selector": ["mers-maxherding", "random"], "capacity": ["100"]})
    assert table.columns == (("mers",), ("random",))
    assert table.rows == ((100,),)
    assert tabulate(SMALL, where={"capacity": ["500", "100"]}).rows == ((500,), (100,))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"selector": ["merz"]}, "no run has selector 'merz'; did you mean 'mers'"),
        ({"capacity": ["7"]}, "no run has capacity '7'; choose from 100, 500"),
        ({"selecter": ["mers"]}, "unknown field 'selecter'; did you mean 'selector'"),
        ({"selector": ["mers"], "capacity": ["500"]}, "no run has all that --where asks for"),
    ],
)
def test_tabulate__where_that_fits_nothing(where: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tabulate(SMALL, where=where)


def test_tabulate__several_fields_on_an_axis() -> None:
    both = [*runs([10], learner="er"), *runs([20], learner="mir"), *runs([30], learner="er", capacity=9)]
    assert tabulate(both, rows=["learner", "capacity"]).rows == (("er", 9), ("er", 50), ("mir", 50))
    assert tabulate(both, rows=["capacity"], columns=["learner", "selector"]).columns == (
        ("er", "mers"),
        ("mir", "mers"),
    )


def test_tabulate__learners_that_read_different_settings_beside_each_other() -> None:
    names = ("er", "er-ace", "er-ace-star", "mir", "joint")
    table = tabulate([record for name in names for record in runs([10, 12], learner=name)], rows=("learner",))
    assert {row for (row,) in table.rows} == set(names)


def test_tabulate__a_rule_beside_none() -> None:
    plain, weighed = runs([10, 12]), runs([14, 15], options={"point_weights": "purity"})
    table = tabulate([*plain, *weighed], columns=("selector", "point_weights"))
    assert table.columns == (("mers", "none"), ("mers", "purity"))
    assert table.cells[(50,), ("mers", "none")].mean == pytest.approx(11)


def test_tabulate__bad_axes() -> None:
    with pytest.raises(ValueError, match="'capacity' is named twice"):
        tabulate(SMALL, columns=["capacity"])
    with pytest.raises(ValueError, match="at least one field"):
        tabulate(SMALL, rows=[])
    with pytest.raises(ValueError, match="no finished runs to tabulate"):
        tabulate([])


# ---------------------------------------------------------------- fields on neither axis


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"learner": "er"}, r"learner \(er, er-ace\)"),
        ({"train__epochs": 10}, r"epochs \(10, 100\)"),
        ({"options": {"weights": "equal"}}, r"options.weights \(equal, printed\)"),
        ({"views": ["supervised", "pixels"]}, r"views \(supervised\+pixels, supervised\+simclr\)"),
        ({"data__order": 42}, r"order \(42, canonical\)"),
        ({"train__momentum": 0.5}, r"train.momentum \(0.5, 0.9\)"),
    ],
)
def test_tabulate__refuses_what_varies_on_neither_axis(other: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"the runs differ in {told}.*--rows or --columns.*--where .*--over"):
        tabulate([*runs([10, 12]), *runs([20, 22], **other)])


def test_tabulate__refuses_episodes_of_other_sizes_though_there_are_as_many() -> None:
    sized = runs([20, 22], data__episodes=[1, *[11] * 9])
    with pytest.raises(ValueError, match=r"the runs differ in data\.episodes \(1 11 .* 11, equal\).*--where 'data"):
        tabulate([*runs([10, 12]), *sized])
    assert tabulate([*runs([10, 12]), *sized], where={"data.episodes": ["equal"]}).repeated == 0


def with_setting(name: str, records: list[Record]) -> list[Record]:
    return [replace(record, settings={**record.settings, name: 1}) for record in records]


def test_tabulate__refuses_an_option_that_some_runs_of_a_cell_were_given() -> None:
    both = [*runs([10, 12]), *with_setting("options.own", runs([20, 22]))]
    with pytest.raises(ValueError, match=r"the runs differ in options\.own \(1, –\).*--where options\.own=1\)"):
        tabulate(both)
    assert tabulate(both, columns=["selector", "options.own"]).repeated == 0
    over = ["seed", "selector", "method", "views"]
    averaged = tabulate([*runs([10]), *runs([20], selector="random")], columns=["learner"], over=over)
    assert averaged.cells[(50,), ("er-ace",)].mean == pytest.approx(15), "options go with what is averaged over"


def test_tabulate__a_setting_that_older_runs_do_not_know_is_no_difference() -> None:
    table = tabulate([*runs([10, 12]), *with_setting("train.newer", runs([10, 12, 14]))])
    assert len(table.cells[(50,), ("mers",)].values) == 3


def test_tabulate__what_a_refusal_suggests_is_one_word_of_a_shell() -> None:
    both = [*runs([10], data__name="a.npz 01c5"), *runs([20], data__name="b.npz")]
    with pytest.raises(ValueError, match=r"fix it \(--where 'dataset=a\.npz 01c5'\)"):
        tabulate(both)


def test_tabulate__refuses_epochs_that_go_with_the_selector() -> None:
    """A mean is sound in each cell, but the comparison would not be."""
    with pytest.raises(ValueError, match="the runs differ in epochs"):
        tabulate([*runs([10], selector="random", train__epochs=10), *runs([20])])


def test_tabulate__views_and_encoders_may_go_with_the_selector() -> None:
    table = tabulate([*runs([10], selector="random"), *runs([20], selector="maxherding:simclr"), *runs([30])])
    assert table.columns == (("random",), ("maxherding:simclr",), ("mers",))
    assert table.varying == {}


def test_tabulate__settings_that_go_with_the_cells_are_told() -> None:
    table = tabulate([*runs([10], selector="random", train__momentum=0.5), *runs([20])])
    assert table.varying == {"train.momentum": (0.5, 0.9)}
    assert "not the same in all cells: train.momentum (0.5, 0.9)" in table_sheet(table).notes[0]


def test_tabulate__method_and_views_in_place_of_the_selector() -> None:
    both = [*runs([10], selector="maxherding"), *runs([20], selector="maxherding:simclr")]
    assert tabulate(both, columns=["views"], where={"method": ["maxherding"]}).columns == (("simclr",), ("supervised",))
    with pytest.raises(ValueError, match="the runs differ in selector"):
        tabulate([*both, *runs([30])], columns=["views"])


def test_tabulate__over_averages_more_than_seeds() -> None:
    both = [*runs([10, 12]), *runs([20, 22], data__order=42)]
    table = tabulate(both, over=["seed", "order"])
    assert table.cells[(50,), ("mers",)].mean == pytest.approx(16)
    assert len(table.cells[(50,), ("mers",)].values) == 4


def test_tabulate__seeds_on_an_axis_or_not_averaged() -> None:
    assert tabulate(runs([10, 12]), rows=["seed"]).rows == ((0,), (1,))
    with pytest.raises(ValueError, match=r"the runs differ in seed \(0, 1\)"):
        tabulate(runs([10, 12]), over=[])
    mixed = [*runs([1, 2]), *runs([3, 4, 5], options={"weights": "equal"})]
    with pytest.raises(ValueError, match=r"options\.weights"):
        tabulate(mixed, rows=["seed"])


def test_tabulate__what_is_shared_is_told_above() -> None:
    settings = "FAA, cifar100, er-ace, order canonical, 10 episodes, 100 epochs"
    seeds = "mean ± standard error over 2 to 3 seeds, per cent"
    assert table_sheet(tabulate(SMALL)).caption == f"{settings}, {seeds}"
    alone = table_sheet(tabulate(runs([10], capacity=7, model__width=20), rows=["learner"])).caption
    assert "|M| = 7" in alone
    assert "width 20" in alone
    assert "one seed a cell" in alone
    assert ", 10 episodes, 1 epoch, " in table_sheet(tabulate(runs([10], train__epochs=1))).caption


def test_flat_settings__a_selector_by_its_name_or_by_its_options_is_one() -> None:
    three, options = ["supervised", "simclr", "previous"], {"point_weights": "purity", "bandwidth_scale": 0.5}
    named = runs([10], selector="mers-pure")[0].settings
    assert (named["variant"], named["views"]) == ("mers-pure", "supervised+simclr+previous")
    assert runs([10], views=three, options=options)[0].settings == named
    assert runs([10], views=three, options={**options, "purity_view": "simclr"})[0].settings == named

    def variant(**given: Any) -> Any:
        return runs([10], **given)[0].settings["variant"]

    assert (
        variant(options=options)
        == variant(selector="mers-pure", views=three[:2])
        == ("mers-pure views=supervised+simclr")
    )
    assert variant(views=three, options={**options, "purity_view": "previous"}) == "mers-pure purity_view=previous"
    assert variant(selector="mers-pure", options={"point_power": 3.0}) == "mers-pure point_power=3"
    assert variant(selector="mers-pure", options={"bandwidth_scale": 0.5}) == "mers-pure"
    assert variant(selector="mers-pure", options={"bandwidth_scale": 1.0}) == "mers-pure bandwidth_scale=1"
    table = tabulate([*runs([10, 12]), *runs([13, 14], selector="mers-pure")])
    assert table.columns == (("mers",), ("mers-pure",))
    assert table.varying == {}, "the name tells what is different"
    assert variant(selector="maxherding", options=options) == "maxherding bandwidth_scale=0.5 point_weights=purity"


# ---------------------------------------------------------------- axes that nobody named

VARIANTS = [
    *runs([10, 12], selector="random", capacity=100),
    *runs([20, 22], capacity=100),
    *runs([30, 34], capacity=100, options={"point_weights": "purity", "bandwidth_scale": 0.25}),
    *runs([24, 26], capacity=500, views=["supervised", "simclr", "previous"]),
]


def test_usual_axes__variants_where_selectors_were_set_in_several_ways() -> None:
    assert usual_axes(SMALL) == (("capacity",), ("selector",))
    rows, columns = usual_axes(VARIANTS)
    assert (rows, columns) == (("variant",), ("capacity",))
    table = tabulate(VARIANTS, "FAA", rows, columns)
    assert table.rows == (
        ("random",),
        ("mers",),
        ("mers bandwidth_scale=0.25 point_weights=purity",),
        ("mers views=supervised+simclr+previous",),
    )
    assert [table.cells[row, (100,)].mean for row in table.rows[:3]] == pytest.approx([11, 21, 32])
    assert table.varying == {}, "the variants tell all of it"
    assert bold(table) == {("mers bandwidth_scale=0.25 point_weights=purity", 100)}


@pytest.mark.parametrize(
    "where",
    [
        {"point_weights": ["purity"]},
        {"variant": ["mers bandwidth_scale=0.25 point_weights=purity"]},
        {"variant": ["mers", "random"]},
    ],
    ids=str,
)
def test_usual_axes__a_variant_alone_is_not_called_like_its_selector(where: Any) -> None:
    assert usual_axes(VARIANTS, where) == (("variant",), ("capacity",))
    rows = tabulate(VARIANTS, "FAA", *usual_axes(VARIANTS, where), where).rows
    assert rows == tuple((each,) for each in where.get("variant", ["mers bandwidth_scale=0.25 point_weights=purity"]))


def test_usual_axes__other_views_alone_are_no_variant() -> None:
    pixels = runs([10, 12], views=["supervised", "pixels"])
    assert usual_axes([*pixels, *runs([9, 9], selector="random")]) == (("capacity",), ("selector",))


def test_usual_axes__what_is_averaged_over_is_on_no_axis() -> None:
    both = [*runs([10, 12]), *runs([20, 22], data__order=42)]
    assert usual_axes(both) == (("order", "variant"), ("capacity",))
    assert usual_axes(both, over=["seed", "order"]) == (("capacity",), ("selector",))
    with pytest.raises(ValueError, match="the runs differ in seed"):
        tabulate(both[:2], "FAA", *usual_axes(both[:2], over=["order"]), over=["order"])


def test_tabulate__a_refusal_of_options_names_the_variant() -> None:
    with pytest.raises(ValueError, match=r"--rows or --columns \(variant tells all that was set of a selector\)"):
        tabulate(VARIANTS)


def test_usual_axes__what_else_differs_comes_first() -> None:
    more = [*VARIANTS, *runs([5, 6], learner="er"), *runs([7, 8], learner="er", simclr__epochs=50)]
    rows, columns = usual_axes(more)
    assert (rows, columns) == (("learner", "simclr.epochs", "variant"), ("capacity",))
    assert tabulate(more, "FAA", rows, columns).repeated == 0
    assert usual_axes(more, {"learner": ["er"], "simclr.epochs": ["50"]}) == (("capacity",), ("selector",))
    assert usual_axes(more, {"learner": ["er"]}) == (("simclr.epochs", "variant"), ("capacity",))
    with pytest.raises(ValueError, match="no finished runs"):
        usual_axes([])


def test_compare__settings_that_mean_nothing_to_one_of_them_part_nobody() -> None:
    """Digits have a SimCLR of their own, of which random knows nothing."""
    digits = [*runs([9, 8], data__name="digits"), *runs([5, 6], selector="random", data__name="digits")]
    both = [*digits, *runs([10, 12]), *runs([6, 7], selector="random")]
    table = tabulate(both, "FAA", *usual_axes(both))
    assert "simclr.epochs" in table.row_fields
    told = {place[0][0]: test.difference for place, test in compare(table, "mers").items()}
    assert told == {"digits": pytest.approx(-3), "cifar100": pytest.approx(-4.5)}
    several = [*runs([10, 12]), *runs([14], simclr__epochs=50), *runs([6, 7], selector="random")]
    table = tabulate(several, "FAA", ["selector", "simclr.epochs"], ["capacity"])
    assert compare(table, "mers") == {}, "which of the two is not known"


def test_compare__variants_with_the_plain_selector() -> None:
    table = tabulate(VARIANTS, "FAA", ["variant"], ["capacity"])
    tests = compare(table, "mers")
    assert {place: test.difference for place, test in tests.items()} == {
        (("random",), (100,)): pytest.approx(-10),
        (("mers bandwidth_scale=0.25 point_weights=purity",), (100,)): pytest.approx(11),
    }
    with pytest.raises(ValueError, match="names no variant of this table: 'teal'; choose from"):
        compare(table, "teal")


# ---------------------------------------------------------------- the best


def bold(table: Table) -> set[tuple[Any, ...]]:
    return {(*row, *column) for row, column in best_places(table)}


def test_best__and_all_within_its_standard_error() -> None:
    """The best has mean 31 and error 1: 30 is within it, 29.9 is not, whatever errors the others have."""
    table = tabulate(
        [
            *runs([30, 32], selector="mers"),
            *runs([20, 40], selector="maxherding"),
            *runs([19.9, 39.9], selector="random"),
        ]
    )
    assert bold(table) == {(50, "mers"), (50, "maxherding")}


def test_best__forgetting_is_best_where_low() -> None:
    table = tabulate([*runs([30, 32], selector="mers"), *runs([20, 21], selector="random")], "forgetting")
    assert bold(table) == {(50, "random")}


def test_best__one_seed_has_no_error_to_lie_within() -> None:
    assert bold(tabulate([*runs([30]), *runs([29.99], selector="random")])) == {(50, "mers")}


def test_best__a_lone_cell_is_the_best_of_nothing() -> None:
    assert bold(tabulate(SMALL)) == {(100, "mers")}


def test_best__selectors_are_compared_wherever_they_stand() -> None:
    both = [*SMALL, *runs([80, 80], selector="random", capacity=100, learner="er")]
    assert bold(tabulate(SMALL, rows=["selector"], columns=["capacity"])) == {("mers", 100)}
    assert bold(tabulate(both, columns=["learner", "selector"])) == {(100, "er-ace", "mers")}


def test_best__without_selectors_the_cells_of_a_row() -> None:
    both = [*runs([10], learner="er"), *runs([20], learner="mir"), *runs([99], learner="er", capacity=9)]
    assert bold(tabulate(both, columns=["learner"])) == {(50, "mir")}


# ---------------------------------------------------------------- statistics


@given(st.floats(0.5, 60), st.floats(0.5, 60), st.floats(0, 1))
def test_incomplete_beta__as_scipy(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-9, abs=1e-12)


@example(5.960464477539063e-08, 5)  # where 1 − ν / (ν + t²) has few digits
@given(st.floats(-40, 40), st.integers(1, 200))
def test_two_sided_p__as_scipy(t: float, freedom: int) -> None:
    # scipy itself is off by 5e-9 at one degree of freedom near t = 0, see the next test
    assert two_sided_p(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), rel=1e-7)


@given(st.floats(0, 40))
def test_two_sided_p__one_degree_of_freedom_in_closed_form(t: float) -> None:
    assert two_sided_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-12)


def test_t_quantile__as_scipy() -> None:
    for freedom in (1, 2, 3, 4, 9, 100):
        for level in (0.5, 0.9, 0.975, 0.995):
            assert t_quantile(level, freedom) == pytest.approx(stats.t.ppf(level, freedom), rel=1e-9, abs=1e-12)
    with pytest.raises(ValueError, match="level must be in"):
        t_quantile(0.2, 3)


@pytest.mark.parametrize("count", [2, 3, 5, 30])
def test_paired_test__as_scipy(count: int) -> None:
    generator = np.random.default_rng(count)
    ours, theirs = generator.normal(1, 1, count), generator.normal(0, 1, count)
    found, known = paired_test(ours.tolist(), theirs.tolist()), stats.ttest_rel(ours, theirs)
    low, high = known.confidence_interval(0.95)
    assert (found.p, found.low, found.high) == pytest.approx((known.pvalue, low, high), rel=1e-9)
    assert found.difference == pytest.approx((ours - theirs).mean())
    assert found.pairs == count


def test_paired_test__too_few_pairs_and_pairs_all_alike() -> None:
    one = paired_test([3.0], [1.0])
    assert (one.difference, one.pairs) == (2, 1)
    assert math.isnan(one.p)
    assert math.isnan(one.low)
    assert math.isnan(paired_test([], []).difference)
    same = paired_test([3.0, 4.0], [1.0, 2.0])
    assert (same.low, same.high, same.p) == (2, 2, 0)
    assert math.isnan(paired_test([1.0, 2.0], [1.0, 2.0]).p)


def test_paired_test__a_difference_of_rounding_is_none() -> None:
    one, other = 100 * sum([0.1, 0.2, 0.3]) / 3, 100 * sum([0.3, 0.2, 0.1]) / 3
    assert one != other
    found = paired_test([other, other], [one, one])
    assert [str(value) for value in (found.difference, found.low, found.high)] == ["0.0"] * 3, "nor -0.0"
    assert math.isnan(found.p)
    assert str(paired_test([other], [one]).difference) == "0.0"
    assert str(paired_test([0.1, 0.2, 1.0], [0.2, 0.4, 0.7]).difference) == "0.0", "a mean of -2e-17"


# ---------------------------------------------------------------- against a selector


PAIRED = [
    *runs([10, 12, 20], selector="maxherding"),
    *runs([11, 14, 23], selector="mers"),
    *runs([5, 6], selector="random"),
    *runs([50, 60], selector="mers", capacity=100),
]


def test_compare__by_seed_within_a_row() -> None:
    tests = compare(tabulate(PAIRED), "maxherding")
    assert set(tests) == {((50,), ("mers",)), ((50,), ("random",))}
    known = stats.ttest_rel([11, 14, 23], [10, 12, 20])
    found = tests[(50,), ("mers",)]
    assert (found.difference, found.p, found.pairs) == pytest.approx((2, known.pvalue, 3))
    assert tests[(50,), ("random",)].pairs == 2, "the third seed has no partner"
    assert compare(tabulate(PAIRED), "random")[(50,), ("mers",)].pairs == 2


def test_compare__selectors_down_the_rows_are_the_same() -> None:
    across, down = tabulate(PAIRED), tabulate(PAIRED, rows=["selector"], columns=["capacity"])
    turned = {(row, column): test for (column, row), test in compare(down, "maxherding").items()}
    assert turned == compare(across, "maxherding")


def test_compare__options_of_the_other_are_its_own() -> None:
    """On an axis of weights random has none, and stands against all; maxherding stands against its like."""
    several = [
        *runs([10, 11], selector="random"),
        *runs([20, 22], selector="maxherding"),
        *runs([20, 23], selector="maxherding", options={"weights": "equal"}),
        *runs([30, 32]),
        *runs([40, 42], options={"weights": "equal"}),
    ]
    table = tabulate(several, rows=["weights"])
    assert len(compare(table, "random")) == 4
    tests = compare(table, "maxherding")
    assert tests[("printed",), ("mers",)].difference == pytest.approx(10)
    assert tests[("equal",), ("mers",)].difference == pytest.approx(19.5)
    assert (("–",), ("random",)) not in tests


def test_compare__needs_a_selector_that_is_there() -> None:
    with pytest.raises(ValueError, match="'maxherdin'; did you mean 'maxherding'"):
        compare(tabulate(PAIRED), "maxherdin")
    with pytest.raises(ValueError, match="put selector on an axis"):
        compare(tabulate(PAIRED, columns=["learner"], where={"selector": ["mers"]}), "mers")


def test_pairs_sheet__fewer_than_two_pairs_are_told() -> None:
    table = tabulate([*runs([10]), *runs([12], selector="random")])
    sheet = pairs_sheet(table, compare(table, "mers"), "mers")
    assert sheet.lines[0].cells == ("+2.0", "–", "–", "1")
    assert "fewer than two pairs" in sheet.notes[0]
    alone = tabulate(runs([10]))
    assert "nothing to compare" in pairs_sheet(alone, compare(alone, "mers"), "mers").notes[0]


def test_pairs_sheet__by_hand() -> None:
    """Differences 1, 2, 3: mean 2, error 1/√3, and t(2) = 4.303 at 95 %."""
    table = tabulate(PAIRED)
    line = pairs_sheet(table, compare(table, "maxherding"), "maxherding", 2).lines[1]
    assert line.heads == ("50", "mers")
    assert line.cells == ("+2.00", "−0.48 to +4.48", "0.074", "3")


def test_pairs_sheet__nothing_has_no_sign() -> None:
    table = tabulate([*runs([10, 12], selector="random"), *runs([10.01, 11.98])])
    line = pairs_sheet(table, compare(table, "random"), "random").lines[0]
    assert line.cells[:2] == ("0.0", "−0.2 to +0.2")


# ---------------------------------------------------------------- the paper


@pytest.mark.parametrize(
    ("key", "figure"),
    [
        (("FAA", "cifar100", "er-ace", "canonical", "500", "mers", "supervised+simclr"), (45.26, 0.19)),
        (("FAA", "cifar100", "er-ace", "canonical", "100", "random", "none"), (21.80, 0.34)),
        (("FAA", "cifar100", "er", "canonical", "2000", "rainbow", "none"), (38.40, 0.22)),
        (("AAA", "cifar100", "er-ace-star", "canonical", "2000", "teal", "supervised"), (67.57, 0.07)),
        (("FAA", "cifar100", "er", "42", "5000", "maxherding", "simclr"), (56.49, 0.21)),
        (("FAA", "tinyimagenet", "er-ace", "35", "6000", "mers-probcover", "supervised+simclr"), (26.53, 0.13)),
        (("AAA", "tinyimagenet", "er", "35", "200", "mers", "supervised+simclr"), (21.16, 0.12)),
    ],
)
def test_paper__cells_as_printed(key: tuple[str, ...], figure: tuple[float, float]) -> None:
    found = printed_results()[key]
    assert (found.mean, found.error) == figure
    assert len(printed_results()) == 757


def test_paper__only_comparable_cells() -> None:
    def found(**other: Any) -> bool:
        settings = flat_settings(run_identity(**{"capacity": 500, **other}), 10)
        return printed_result("FAA", settings) is not None

    assert found()
    assert found(data__order=42)
    assert found(selector="maxherding:simclr", data__order=42)
    assert not found(selector="maxherding:simclr")
    assert not found(capacity=501)
    assert not found(data__order=43)
    assert not found(learner="mir")
    assert not found(views=["supervised", "vicreg"])
    assert not found(options={"bandwidth_scale": 0.25}), "the paper has no such variant"
    assert found(options={"bandwidth_scale": 1.0})
    assert not found(views=["simclr", "supervised"])


def test_paper__other_protocols_are_named() -> None:
    def told(**other: Any) -> list[str]:
        return departures(flat_settings(run_identity(**other), 10))

    assert told() == []
    assert told(selector="random") == []
    assert told(train__epochs=10) == ["epochs 10"]
    assert told(train__epochs=1, model__width=20) == ["epochs 1", "width 20"]
    assert told(data__episodes=[50, 10, 5, 5, 5, 5, 5, 5, 5, 5]) == ["episodes of unequal sizes"]
    assert told(data__episodes=[10] * 10) == []
    assert told(model__name="small") == ["the small net"]
    assert told(train__statistics="first", train__decay_at=0.33) == ["train.decay_at 0.33", "train.statistics first"]
    assert told(learning__rate=0.02, learning__memory_batch=20) == ["learning.memory_batch 20", "learning.rate 0.02"]


def test_paper__beside_ours_in_standard_errors() -> None:
    """Paper 45.26 ± 0.19; ours 46 ± 1: (46 − 45.26) / √(1 + 0.19²) = 0.73."""
    sheet = table_sheet(
        tabulate([*runs([45, 47], capacity=500), *runs([40], capacity=500, selector="random")]), 2, True
    )
    assert [line.heads for line in sheet.lines] == [("500",), ("paper",), ("in s.e.",)]
    assert sheet.lines[1].cells == ("36.29 ± 0.52", "45.26 ± 0.19")
    assert sheet.lines[2].cells == ("–", "+0.7"), "one run has no error"
    assert in_errors(
        46, 1, printed_results()[("FAA", "cifar100", "er-ace", "canonical", "500", "mers", "supervised+simclr")]
    ) == pytest.approx(0.74 / math.hypot(1, 0.19))
    assert not any("another protocol" in note for note in sheet.notes)


def test_paper__fast_protocol_is_marked() -> None:
    sheet = table_sheet(tabulate(runs([45, 47], capacity=500, train__epochs=10)), 2, True)
    assert sheet.lines[1].cells == ("45.26 ± 0.19†",)
    assert "† another protocol than the paper's: epochs 10" in sheet.notes


def test_paper__nothing_to_stand_beside() -> None:
    sheet = table_sheet(tabulate(runs([45, 47], capacity=501)), 2, True)
    assert len(sheet.lines) == 1
    assert sheet.notes == ("the paper prints none of these cells",)
    orders = table_sheet(tabulate(runs([45, 47], capacity=500, data__order=42)), 2, True)
    assert any("does not say how it drew its class orders" in note for note in orders.notes)


# ---------------------------------------------------------------- formats


def test_markdown__bold_and_missing_cells() -> None:
    text = markdown([table_sheet(tabulate(SMALL), 1)])
    assert "| capacity | random | mers |\n| --- | ---: | ---: |\n" in text
    assert "| 100 | 11.0 ± 1.0 | **22.0 ± 1.2** |\n| 500 | 30.0 ± 0.0 | – |\n" in text


def test_markdown__signs_of_its_own_are_escaped() -> None:
    text = markdown([table_sheet(tabulate(runs([10], data__name="a|b_*"), rows=["dataset"]), 1)])
    assert r"| a\|b\_\* | 10.0 |" in text


def test_latex__structure() -> None:
    table = tabulate([*runs([45, 47], capacity=500), *runs([40], capacity=500, selector="random", train__momentum=0.5)])
    text = latex([table_sheet(table, 2, True), pairs_sheet(table, compare(table, "mers"), "mers", 2)])
    for name in ("table", "tabular"):
        assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == 2
    for name in ("toprule", "midrule", "bottomrule"):
        assert text.count(rf"\{name}") == 2
    assert r"\textbf{46.00 $\pm$ 1.00}" in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert text.replace(r"\$", "").count("$") % 2 == 0
    assert text.isascii(), "nothing that pdflatex would have to be taught"
    for kind, body in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert lines
        assert all(len(re.findall(r"(?<!\\)&", line)) == len(kind) - 1 for line in lines)


def test_latex__several_fields_have_several_head_lines() -> None:
    table = tabulate([*runs([10], learner="er"), *runs([20], learner="mir")], columns=["learner", "selector"])
    assert "& er & mir \\\\\ncapacity & mers & mers \\\\\n" in latex([table_sheet(table)])


def test_latex__every_special_sign_is_escaped() -> None:
    assert in_latex(r"50% a_b & c#$ {x} ~ ^ \ ± − – < > |") == (
        r"50\% a\_b \& c\#\$ \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} $\pm$ $-$ -- $<$ $>$ $|$"
    )


def test_csv__a_line_a_cell() -> None:
    table = tabulate(SMALL)
    rows = list(csv.DictReader(io.StringIO(tidy_csv([table, tabulate(SMALL, "AAA")]))))
    assert len(rows) == 8
    first = rows[0]
    assert (first["metric"], first["dataset"], first["learner"]) == ("FAA", "cifar100", "er-ace")
    assert (first["capacity"], first["selector"], first["n"]) == ("100", "random", "2")
    assert (float(first["mean"]), float(first["error"])) == pytest.approx((11, 1))
    assert (rows[3]["selector"], rows[3]["mean"], rows[3]["n"]) == ("mers", "", "0")
    assert "paper_mean" not in first
    assert "p" not in first


def test_csv__with_the_paper_and_a_test() -> None:
    table = tabulate([*runs([45, 47], capacity=500), *runs([40, 41], capacity=500, selector="random")])
    text = tidy_csv([table], paper=True, tests=[compare(table, "random")], against="random")
    random, mers = csv.DictReader(io.StringIO(text))
    assert (random["against"], random["p"], random["paper_mean"]) == ("", "", "36.29")
    assert (mers["against"], mers["pairs"], mers["protocol"]) == ("random", "2", "the paper's")
    assert float(mers["difference"]) == pytest.approx(5.5)
    assert float(mers["p"]) == pytest.approx(stats.ttest_rel([45, 47], [40, 41]).pvalue, rel=1e-6)


def test_tabulate__from_folders(tmp_path: Path) -> None:
    for seed, final in enumerate((0.1, 0.3)):
        write_result(tmp_path, final, seed=seed)
    cell = tabulate(read_records([tmp_path]).records).cells[(50,), ("mers",)]
    assert (cell.mean, cell.error) == pytest.approx((20, 10))
