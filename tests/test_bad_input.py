"""Bad input: each case is a ValueError that names argument, range, value and remedy, or a documented result."""

import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

import keepset
from keepset.selection import SELECTORS

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(60, 4)).astype(np.float32)
LABELS = np.arange(60) % 3


def with_row(value: float) -> np.ndarray[Any, Any]:
    points = POINTS.copy()
    points[[7, 30]] = value
    return points


def options_for(method: str, count: int) -> dict[str, Any]:
    return {"uncertainty": np.linspace(0, 1, count)} if method == "rainbow" else {}


@pytest.mark.parametrize("method", SELECTORS)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, r"views\['a'\] must be finite, got NaN or infinite values in row 7 and 1 more; drop or repair"),
        (np.inf, r"views\['a'\] must be finite"),
        (-np.inf, r"views\['a'\] must be finite"),
        (0.0, r"views\['a'\] must have no zero vectors .* got zeros in row 7 and 1 more"),
    ],
)
def test_select__values_that_no_method_can_use(method: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        keepset.select({"a": with_row(value)}, 3, method=method, **options_for(method, 60))


def test_select_per_class__names_the_class_and_the_callers_own_row() -> None:
    points = POINTS.copy()
    points[30] = np.nan
    with pytest.raises(ValueError, match=r"class 0: .* in row 30"):
        keepset.select_per_class(points, LABELS, 3)


@pytest.mark.parametrize(
    ("views", "message"),
    [
        ({}, "at least one array, got none"),
        ([], "at least one array, got none"),
        ("abc", "views must be an array, a list of arrays or a mapping"),
        (None, "got NoneType"),
        ([POINTS, POINTS[:50]], "'view 0' has 60 and 'view 1' has 50"),
        ({"a": POINTS, "b": POINTS[:50]}, "'a' has 60 and 'b' has 50"),
        ({1: POINTS}, "strings for names, got 1"),
        (POINTS[:, :0], "at least one column"),
        (POINTS[:0], "at least one point"),
        (POINTS[0], r"shape \(points, columns\), got \(4,\)"),
        (POINTS.astype(int), "must be float16, float32, float64 or bfloat16, got int64; convert"),
        (torch.zeros(3, 2, dtype=torch.uint8), "got torch.uint8"),
        (POINTS.astype(complex), "got complex128"),
        ([[1.0, 2.0]], "must be a numpy array or torch tensor, got list"),
        ([POINTS, torch.zeros(60, 2, device="meta")], "one device"),
    ],
)
def test_select__views_of_the_wrong_form(views: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        keepset.select(views, 1)


@pytest.mark.parametrize("method", SELECTORS)
@pytest.mark.parametrize("budget", [0, -1, 61, 10**12])
def test_select__budget_out_of_range(method: str, budget: int) -> None:
    with pytest.raises(ValueError, match=rf"budget must be in 1..60 \(the number of candidates\), got {budget}"):
        keepset.select(POINTS, budget, method=method, **options_for(method, 60))


@pytest.mark.parametrize("budget", [2.5, 3.0, "3", None, True, {0: 3}, np.float64(3)])
def test_select__budget_not_whole(budget: Any) -> None:
    with pytest.raises(ValueError, match="budget must be a whole number, got"):
        keepset.select(POINTS, budget)


@pytest.mark.parametrize("budget", [np.int64(3), torch.tensor(3), np.uint8(3)])
def test_select__budget_may_be_any_integer_type(budget: Any) -> None:
    assert len(keepset.select(POINTS, budget)) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "merz"}, r"unknown selector 'merz'; did you mean 'mers'\? see keepset ls"),
        ({"method": "xyz"}, "choose from closest, herding"),
        ({"bandwith": 1}, r"unknown option 'bandwith' for mers; did you mean 'bandwidth'\?"),
        ({"method": "random", "view": "a"}, "option 'view' is not for random, but for herding"),
        ({"view": "a"}, "option 'view' is not for mers"),
        ({"method": "herding", "view": "pixel"}, "unknown view 'pixel'"),
        ({"method": "herding", "view": 2}, r"view must be in 0..0"),
        ({"weights": "print"}, r"unknown weights 'print'; did you mean 'printed'\?"),
        ({"weights": [1.0, 2.0]}, "weights must be one number a view"),
        ({"weights": [-1.0]}, "weights must be 0 or more, finite and not all 0"),
        ({"weights": [0.0]}, "not all 0"),
        ({"weights": [float("nan")]}, "weights must be 0 or more, finite"),
        ({"weights": ["x"]}, "weights must be numbers"),
        ({"weights": 3}, "weights must be a rule"),
        ({"weights": {"b": 1.0}}, "weights names an unknown view 'b'"),
        ({"weights": {}}, "weights must name every view, 'view 0' missing"),
        ({"bandwidth": "medium"}, r"did you mean 'median'\?"),
        ({"bandwidth": 0}, "bandwidth must be a positive number, got 0"),
        ({"bandwidth": -0.1}, "bandwidth must be a positive number"),
        ({"bandwidth": float("nan")}, "bandwidth must be a positive number"),
        ({"bandwidth": {"view 0": 0}}, "bandwidth must be a positive number"),
        ({"bandwidth": {"view 1": 1}}, "bandwidth names an unknown view"),
        ({"bandwidth": [0.0]}, "bandwidth must be a positive number, got 0.0"),
        ({"bandwidth": ["x"]}, "bandwidth must be a positive number, got 'x'"),
        ({"bandwidth": [1.0, 2.0]}, r"bandwidth must be one number a view \(view 0\), 1, got 2"),
        ({"bandwidth": b"1"}, "bandwidth must be a positive number, got b'1'"),
        ({"bandwidth_scale": 0}, "bandwidth_scale must be a positive number"),
        ({"bandwidth_scale": "2"}, "bandwidth_scale must be a positive number, got '2'"),
        ({"bandwidth_scale": True}, "bandwidth_scale must be a positive number, got True"),
        ({"bandwidth_scale": 10**400}, "bandwidth_scale must be a positive number"),
        ({"weights": np.array(1.0)}, "weights must be a rule .* or numbers by view"),
        ({"weights": [10**400]}, "weights must be numbers, one a view"),
        ({"on_pick": 3}, r"on_pick must be a function \(index, gain\), got 3"),
        ({"method": "maxherding", "view": ["a"]}, r"view must be a name or a position, got \['a'\]"),
        ({"metric": "cosin"}, r"did you mean 'cosine'\?"),
        ({"kernel": "gauss"}, "unknown kernel 'gauss'; choose from laplace, rbf, tophat"),
        ({"fusion": "max"}, "unknown fusion"),
        ({"uncovered": "share"}, "unknown uncovered 'share'"),
        ({"uncovered": "shared"}, "is for hard cover"),
        ({"neighbours": 0}, r"neighbours must be in 1..59 \(the other points\), got 0"),
        ({"neighbours": 60}, r"neighbours must be in 1..59"),
        ({"neighbours": 2.5}, "neighbours must be a whole number"),
        ({"point_weights": np.ones(59)}, r"point_weights must have shape \(60,\)"),
        ({"point_weights": -np.ones(60)}, "point_weights must be 0 or more and not all 0"),
        ({"point_weights": np.zeros(60)}, "not all 0"),
        ({"point_weights": np.full(60, np.nan)}, "point_weights must be finite"),
        ({"point_weights": ["a"] * 60}, "point_weights must be numbers"),
        ({"generator": "seed"}, "generator must be an int, a torch.Generator or None"),
        ({"generator": 1.5}, "generator must be an int"),
        ({"start": [60]}, r"start must be in 0..59 \(a row of the views\), got 60"),
        ({"start": [-1]}, r"start must be in 0..59"),
        ({"start": [3, 3]}, "start must not repeat an index, got 3"),
        ({"start": 3}, "start must be a sequence of indices"),
        ({"start": [0.5]}, "start must be a whole number"),
        ({"start": list(range(60))}, "start leaves no candidates"),
        ({"method": "rainbow"}, "rainbow needs uncertainty="),
        ({"method": "rainbow", "uncertainty": [1.0]}, r"uncertainty must have shape \(60,\)"),
        ({"method": 3}, "method must be a name or a function, got 3"),
    ],
)
def test_select__wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        keepset.select(POINTS, 3, **options)


@pytest.mark.parametrize(
    ("labels", "budget", "message"),
    [
        (LABELS[:59], 3, "labels must be one a point, 60, got 59"),
        (LABELS.astype(float), 3, "labels must be integers or strings, got float64"),
        (torch.zeros(60, dtype=torch.bfloat16), 3, "labels must be integers or strings, got torch.bfloat16; convert"),
        (LABELS[:, None], 3, "labels must be one a point, got shape"),
        ([0] * 30 + ["a"] * 30, 3, "all integers or all strings, got int, str"),
        ("a" * 60, 3, "labels must be a sequence"),
        (None, 3, "labels must be a sequence"),
        (np.full(60, 2**63, np.uint64), 3, r"labels must be below 2\*\*63, got 9223372036854775808; use strings"),
        (LABELS, -1, "budget must be 0 or more, got -1"),
        (LABELS, 2.5, "budget must be a whole number, got 2.5"),
        (LABELS, {0: 1, 1: 1}, "budget must name every class, 2 is missing"),
        (LABELS, {0: 1, 1: 1, 2: 1, 9: 1}, "budget names class 9, which has no points in labels"),
        (LABELS, {0: 1, 1: 1, 2: -1}, r"budget\[2\] must be 0 or more, got -1"),
        (LABELS, {"0": 1, "1": 1, "2": 1}, "budget names class '0'"),
    ],
)
def test_select_per_class__labels_and_budgets(labels: Any, budget: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        keepset.select_per_class(POINTS, labels, budget)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"method": "merz"}, r"did you mean 'mers'\?"), ({"wieghts": "equal"}, r"did you mean 'weights'\?")],
)
def test_select_per_class__a_wrong_name_is_refused_at_budget_0_too(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        keepset.select_per_class(POINTS, LABELS, 0, **options)


def test_coverage__of_a_function_is_not_known() -> None:
    with pytest.raises(ValueError, match="method must be a cover method"):
        keepset.coverage(POINTS, [0], method=lambda *_: [0])  # type: ignore[arg-type]


def test_select__numbers_of_small_types_are_as_good_as_others() -> None:
    expected = keepset.select(POINTS, 5, bandwidth_scale=0.5, neighbours=3)
    for half, three in ((np.float16(0.5), np.int8(3)), (Decimal("0.5"), torch.tensor(3))):
        found = keepset.select(POINTS, 5, bandwidth_scale=half, neighbours=three)
        assert list(found) == list(expected)
        assert found.scales == expected.scales


def test_select__a_sparse_view() -> None:
    with pytest.raises(ValueError, match=r"views\['view 0'\] must be dense, got torch.sparse_coo; use .to_dense\(\)"):
        keepset.select(torch.from_numpy(POINTS).to_sparse(), 3)


def test_select__a_field_of_records_is_read() -> None:
    records = np.zeros(60, dtype=[("flag", np.int8), ("point", np.float64, POINTS.shape[1])])
    records["point"] = POINTS
    assert list(keepset.select(records["point"], 5)) == list(keepset.select(POINTS, 5))


def test_select_per_class__budget_0_is_an_empty_selection() -> None:
    chosen = keepset.select_per_class(POINTS, LABELS, {0: 2, 1: 0, 2: 3})
    assert {label: len(selection) for label, selection in chosen.items()} == {0: 2, 1: 0, 2: 3}
    assert chosen[1].notes == ("the budget is 0: nothing is kept",)
    assert chosen[1].table().startswith("rank")


@pytest.mark.parametrize("method", SELECTORS)
def test_select_per_class__a_small_class_gives_all_it_has_and_says_so(method: str) -> None:
    labels = np.array([0] * 57 + [1, 2, 2])
    chosen = keepset.select_per_class(POINTS, labels, 5, method=method, **options_for(method, 60))
    assert [len(selection) for selection in chosen.values()] == [5, 1, 2]
    assert "the class has 2 points, fewer than its budget 5: all are kept" in chosen[2].notes
    assert not chosen[0].notes


def test_select_per_class__neighbours_are_clamped_and_the_result_says_so() -> None:
    labels = np.array([0] * 50 + [1] * 10)
    chosen = keepset.select_per_class(POINTS, labels, 3, neighbours=20)
    assert (chosen[0].k, chosen[1].k) == (20, 9)
    assert chosen[1].notes == ("neighbours 20 clamped to 9, the other points of the class",)


@pytest.mark.parametrize("method", SELECTORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_select__all_points_identical(method: str, dtype: Any) -> None:
    points = np.tile(RNG.normal(size=(1, 7)), (30, 1)).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = keepset.select([points, 2 * points], 4, method=method, **options_for(method, 30))
    assert len(set(chosen)) == 4
    if "cover" in method or method in ("mers", "maxherding"):
        assert list(chosen) == [0, 1, 2, 3], "one covers all, the rest are ties"
        assert chosen.gains.tolist() == [1, 0, 0, 0]
        assert chosen.objective == 1
        assert any("coincide" in note for note in chosen.notes)


@pytest.mark.parametrize("method", SELECTORS)
def test_select__one_point(method: str) -> None:
    chosen = keepset.select(POINTS[:1], 1, method=method, **options_for(method, 1))
    assert list(chosen) == [0]


@pytest.mark.parametrize("method", ["mers", "maxherding", "probcover", "mers-probcover"])
def test_select__copies_never_gain_and_never_come_twice(method: str) -> None:
    points = np.repeat(POINTS[:6], 10, axis=0)
    chosen = keepset.select([points, np.repeat(RNG.normal(size=(6, 9)), 10, axis=0)], 60, method=method)
    assert sorted(chosen) == list(range(60))
    assert {index // 10 for index in chosen[:6]} == set(range(6)), "one of each before any copy"
    assert np.all(np.asarray(chosen.gains[6:]) == 0)


def test_select__half_or_more_copies_weigh_1_with_a_note() -> None:
    copies = np.vstack([POINTS[:15], POINTS[:15], POINTS[30:]])
    chosen = keepset.select({"copies": copies, "plain": RNG.normal(size=(60, 5))}, 5)
    assert any("'copies'" in note and "weight is 1" in note for note in chosen.notes)


def test_select__values_near_the_limits_of_the_type_do_not_overflow() -> None:
    expected = list(keepset.select(POINTS.astype(np.float64), 5))
    assert list(keepset.select(POINTS * np.float32(1e37), 5)) == expected
    assert list(keepset.select(POINTS * np.float32(1e-35), 5)) == expected
    assert list(keepset.select(POINTS.astype(np.float64) * 1e300, 5)) == expected


def test_select__own_function_is_checked() -> None:
    def first(views: Any, budget: int, *, generator: Any) -> list[int]:
        return list(range(budget))

    def twice(views: Any, budget: int, *, generator: Any) -> list[int]:
        return [0] * budget

    def short(views: Any, budget: int, *, generator: Any, length: int = 1) -> torch.Tensor:
        return torch.arange(length)

    assert list(keepset.select(POINTS, 3, method=first)) == [0, 1, 2]
    assert keepset.select(POINTS, 3, method=first).method == "first"
    assert list(keepset.select_per_class(POINTS, LABELS, 2, method=first)[1]) == [1, 4]
    assert list(keepset.select(POINTS, 3, method=short, length=3)) == [0, 1, 2]
    with pytest.raises(ValueError, match="what the selector twice returned must not repeat an index"):
        keepset.select(POINTS, 3, method=twice)
    with pytest.raises(ValueError, match=r"the selector short must return 3 indices \(the budget\), got 1"):
        keepset.select(POINTS, 3, method=short)
    with pytest.raises(ValueError, match="takes no such argument"):
        keepset.select(POINTS, 3, method=first, start=[1])


def test_select__own_function_gets_the_views_and_per_point_options_of_the_class() -> None:
    seen = []

    def own(views: Any, budget: int, *, generator: torch.Generator, scores: Any) -> keepset.Selection:
        seen.append((list(views), views["a"].shape, scores.tolist()))
        return keepset.select(views, budget, method="closest", generator=generator)

    found = keepset.select_per_class({"a": POINTS}, LABELS, 2, method=own, scores=np.arange(60.0))
    assert seen[1] == (["a"], (20, 4), list(range(1, 60, 3)))
    expected = keepset.select_per_class(POINTS, LABELS, 2, method="closest")
    assert [list(found[c]) for c in found] == [list(expected[c]) for c in expected]


def test_coverage__refuses_what_does_not_cover() -> None:
    with pytest.raises(ValueError, match="method must be a cover method"):
        keepset.coverage(POINTS, [1], method="random")
    with pytest.raises(ValueError, match="indices must hold at least one point"):
        keepset.coverage(POINTS, [])
