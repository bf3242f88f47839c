"""Claims held against runs: verdicts worked out by hand, which runs are pairs, the files, and the command."""

import csv
import dataclasses
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_results import runs, write_result
from keepset import cli
from keepset.experiment.grid import read_grids
from keepset.experiment.identity import identity
from keepset.metrics import NAMES
from keepset.report.claims import DOES_NOT, HOLDS, NOT_SHOWN, NOT_TESTED, Claim, read_claims
from keepset.report.evidence import Evidence, evidence
from keepset.report.fields import ABSENT, flat_settings
from keepset.report.forest import draw_claims
from keepset.report.paper import printed_result
from keepset.report.statistics import paired_test
from keepset.report.stored import Record, planned_record
from keepset.report.style import COLOURS, GREY
from keepset.report.verdicts import brief_sheet, claim_sheets, claims_csv

ROOT = Path(__file__).parent.parent
SHIPPED = sorted((ROOT / "experiments" / "claims").glob("*.toml"))
BETTER = Claim("mers is better", {"variant": "mers"}, {"variant": "random"}, ("FAA",))


def one(records: list[Record], claim: Claim = BETTER) -> Evidence:
    (found,) = evidence([claim], records)
    return found


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("differences", "metric", "within", "verdict"),
    [
        ([1.0, 1.2, 1.4], "FAA", None, HOLDS),
        ([-1.0, -1.2, -1.4], "FAA", None, DOES_NOT),
        ([1.0, -1.2, 1.4], "FAA", None, NOT_SHOWN),
        ([-1.0, -1.2, -1.4], "forgetting", None, HOLDS),
        ([1.0, 1.2, 1.4], "forgetting", None, DOES_NOT),
        ([5.0], "FAA", None, NOT_SHOWN),  # one pair tells nothing
        ([], "FAA", None, NOT_TESTED),
        ([0.1, -0.1, 0.0], "FAA", 1.0, HOLDS),
        ([0.9, 0.9, 0.9], "FAA", 1.0, HOLDS),
        ([0.7, 0.9, 1.1], "FAA", 1.0, NOT_SHOWN),  # 0.9 ± 0.5
        ([2.0, 2.1, 2.2], "FAA", 1.0, DOES_NOT),
        ([-2.0, -2.1, -2.2], "forgetting", 1.0, DOES_NOT),
        ([5.0, -5.0], "FAA", 1.0, NOT_SHOWN),
    ],
)
def test_verdict__by_the_interval_alone(
    differences: list[float], metric: str, within: float | None, verdict: str
) -> None:
    claim = Claim("", {}, {}, (metric,), within=within)
    assert claim.verdict(metric, paired_test(differences, [0.0] * len(differences))) == verdict


def test_sentence__names_metrics_where_they_fare_differently() -> None:
    claim = Claim("", {"variant": "mers"}, {"variant": "random"}, ("FAA", "AAA", "forgetting"))
    records = [*runs([31, 32, 33], selector="mers"), *runs([30, 31, 32], selector="random")]
    found = one(records, claim)
    assert found.sentence == "holds in FAA and AAA; does not hold in forgetting"
    assert one(records).sentence == "holds"
    assert one(records[:3]).sentence == "not yet tested"


# ---------------------------------------------------------------- pairs


def test_evidence__runs_are_paired_by_seed_in_each_place_by_hand() -> None:
    records = [
        *runs([31, 33, 35], selector="mers", capacity=100),
        *runs([30, 30], selector="random", capacity=100),
        *runs([42], selector="mers", capacity=500),
        *runs([40, 50], selector="random", capacity=500),
        *runs([60, 60], selector="mers", capacity=2000),
    ]
    found = one(records)
    assert [row.place["capacity"] for row in found.rows] == [100, 500]
    assert found.rows[0].tests["FAA"].differences == pytest.approx((1, 3))
    assert found.rows[1].tests["FAA"].differences == pytest.approx((2,))
    assert found.together.tests["FAA"].difference == pytest.approx(2)
    assert found.together.tests["FAA"].low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-5)  # deviation 1


def test_evidence__other_settings_must_agree_but_for_those_of_the_selection() -> None:
    """And for those that mean nothing to one of the two, as SimCLR's to random choice."""
    records = [
        *runs([31, 32], selector="mers", learner="er"),
        *runs([30, 30], selector="random"),
        *runs([35, 36], selector="mers", simclr__epochs=50),
    ]
    found = one(records)
    assert [row.place["learner"] for row in found.rows] == ["er-ace"]
    assert found.together.tests["FAA"].differences == pytest.approx((5, 6))


def test_evidence__what_lies_in_two_folders_counts_once() -> None:
    records = [*runs([31, 32], selector="mers"), *runs([30, 30], selector="random")]
    assert one([*records, *records]) == one(records)


def test_evidence__a_run_with_two_partners_is_refused_and_where_chooses() -> None:
    records = [
        *runs([31, 32], selector="mers", simclr__epochs=50),
        *runs([33, 34], selector="mers", simclr__epochs=200),
        *runs([30, 30], selector="random"),
    ]
    message = r"claim 'mers is better': its runs differ in simclr.epochs \(50, 200\); choose among them with where"
    with pytest.raises(ValueError, match=message):
        one(records)
    chosen = Claim("", BETTER.of, BETTER.against, ("FAA",), {"simclr.epochs": (200,)})
    assert one(records, chosen).together.tests["FAA"].differences == pytest.approx((3, 4))


def test_evidence__other_arms_of_both_are_not_averaged_unawares() -> None:
    records = [
        each
        for rate in (0.1, 0.3)
        for name in ("mers", "random")
        for each in runs([30, 31], selector=name, train__decay=rate)
    ]
    with pytest.raises(ValueError, match=r"differ in train.decay \(0.1, 0.3\)"):
        one(records)


def test_evidence__any_field_may_be_claimed_of() -> None:
    claim = Claim("", {"selector": "mers", "simclr.epochs": 50}, {"selector": "mers", "simclr.epochs": 200}, ("FAA",))
    records = [
        *runs([31, 32], selector="mers", simclr__epochs=50),
        *runs([33, 37], selector="mers", simclr__epochs=200),
    ]
    assert one(records, claim).together.tests["FAA"].differences == pytest.approx((-2, -5))
    assert claim.title == "mers, simclr.epochs=50 less mers, simclr.epochs=200"
    assert one(runs([30], selector="random"), claim).sentence == NOT_TESTED  # which have no such field


def test_evidence__unknown_fields_are_told() -> None:
    claim = Claim("", {"selector": "mers", "capcity": 50}, {"selector": "random", "capcity": 50})
    with pytest.raises(ValueError, match="unknown field 'capcity'; did you mean 'capacity'"):
        one(runs([30]), claim)


def test_evidence__the_papers_difference_over_the_pairs_of_which_it_prints_both() -> None:
    records = [
        *runs([31, 32], selector="mers", capacity=500),
        *runs([30, 30], selector="random", capacity=500),
        *runs([31], selector="mers", capacity=2000),
        *runs([30], selector="random", capacity=2000),
        *runs([31], selector="mers", capacity=123),  # of which it prints nothing
        *runs([30], selector="random", capacity=123),
    ]
    found = one(records)
    printed = {}
    for record in records:
        result = printed_result("FAA", record.settings)
        if result is not None:
            printed[record["selector"], record["capacity"]] = result.mean
    by_capacity = {capacity: printed["mers", capacity] - printed["random", capacity] for capacity in (500, 2000)}
    assert {row.place["capacity"]: row.printed["FAA"] for row in found.rows} == pytest.approx(
        {**by_capacity, 123: math.nan}, nan_ok=True
    )
    assert found.together.printed["FAA"] == pytest.approx((2 * by_capacity[500] + by_capacity[2000]) / 3)


@pytest.mark.parametrize(
    ("name", "values", "against", "compared"),
    [
        ("train.statistics", ("first", "first"), "random", True),
        ("train.statistics", ("first", "batch"), "random", False),
        ("train.statistics", ("first", "batch"), "mers", False),
        ("model.head", ("grown", "whole"), "random", True),  # of which the paper says nothing
        ("model.head", ("grown", "whole"), "mers", False),
        ("simclr.epochs", (50, 200), "mers", False),
    ],
)
def test_evidence__the_paper_compares_neither_a_cell_with_itself_nor_its_training_with_another(
    name: str, values: tuple[Any, Any], against: str, compared: bool
) -> None:
    selectors = ("mers", against)
    sides: list[dict[str, Any]] = [{"selector": each, name: v} for each, v in zip(selectors, values, strict=True)]
    places: list[dict[str, Any]] = [
        {"selector": side["selector"], name.replace(".", "__"): side[name], "capacity": 500} for side in sides
    ]
    records = [*runs([31, 32], **places[0]), *runs([30, 30], **places[1])]
    found = one(records, Claim("", sides[0], sides[1], ("FAA",))).together
    assert found.tests["FAA"].pairs == 2
    assert math.isnan(found.printed["FAA"]) != compared


def test_evidence__without_a_selector_in_the_claim_it_is_the_same_on_both_sides() -> None:
    claim = Claim("", {"capacity": 500}, {"capacity": 100}, ("FAA",))
    records = [
        *runs([40, 42], selector="random", capacity=500),
        *runs([20, 21], selector="random", capacity=100),
        *runs([30, 31], selector="herding", capacity=100),
        *runs([25, 26], capacity=100, options={"weights": "equal"}),
        *runs([45, 46], capacity=500),
    ]
    found = one(records, claim)
    assert found.together.tests["FAA"].differences == pytest.approx((20, 21))
    assert found.rows[0].place["capacity"] == ABSENT, "of which there are two"
    more = [*records, *runs([50, 50], selector="herding", capacity=500)]
    with pytest.raises(ValueError, match=r"its runs differ in selector \(random, herding\)"):
        one(more, claim)


def test_evidence__an_option_in_the_claim_leaves_the_others_as_they_are() -> None:
    claim = Claim("", {"options.weights": "equal"}, {"options.weights": "printed"}, ("FAA",))
    records = [
        *runs([40, 42], options={"weights": "equal"}),
        *runs([30, 31]),
        *runs([20, 21], options={"bandwidth": 1.0}),
        *runs([20, 21], selector="mers-probcover"),
    ]
    assert one(records, claim).together.tests["FAA"].differences == pytest.approx((10, 11))


@pytest.mark.parametrize("where", [{"simclr.epoch": (50,)}, {"train.epoch": (50,)}, {"simclir.epochs": (50,)}])
def test_evidence__a_misspelt_part_is_no_setting_that_runs_lack(where: dict[str, tuple[int]]) -> None:
    with pytest.raises(ValueError, match="unknown field"):
        one(runs([30]), Claim("", BETTER.of, BETTER.against, where=where))


# ---------------------------------------------------------------- files


def write(path: Path, **entries: str) -> Path:
    given = {"says": '"s"', "of": '"mers"', "against": '"random"', **entries}
    path.write_text(
        "[[claim]]\n" + "".join(f"{name} = {value}\n" for name, value in given.items() if value), encoding="utf-8"
    )
    return path


def test_read_claims__values_and_fields_as_runs_have_them(tmp_path: Path) -> None:
    entries = {
        "says": '"""two\nlines"""',
        "of": '"mers-maxherding weights=equal bandwidth=1.0 metric=cosine"',
        "where": "{ data.order = 42, train.epochs = 10, simclr.clip = false }",
    }
    (found,) = read_claims(write(tmp_path / "claims.toml", **entries))
    assert found.says == "two lines"
    assert found.of == {"variant": "mers bandwidth=1 weights=equal"}
    assert found.where == {"order": (42,), "epochs": (10,), "simclr.clip": ("no",)}


def test_read_claims__every_entry(tmp_path: Path) -> None:
    entries = {"metrics": '["faa", "Forgetting"]', "within": "1", "where": "{ epochs = 10, simclr.epochs = [50, 200] }"}
    (found,) = read_claims(write(tmp_path / "claims.toml", **entries))
    where = {"epochs": (10,), "simclr.epochs": (50, 200)}
    assert found == Claim("s", {"variant": "mers"}, {"variant": "random"}, ("FAA", "forgetting"), where, 1.0)
    (found,) = read_claims(write(tmp_path / "claims.toml"))
    assert found == Claim("s", {"variant": "mers"}, {"variant": "random"})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"of": '"merz"'}, "claim 1: unknown selector 'merz'; did you mean 'mers'?"),
        ({"metrics": '["FFA"]'}, "claim 1: unknown metric 'FFA'; did you mean 'FAA'?"),
        ({"metrics": '"FAA"'}, "metrics must be a list of"),
        ({"metrics": "[]"}, "metrics must be a list of"),
        ({"metrics": "3"}, "metrics must be a list of"),
        ({"metric": '["FAA"]'}, "unknown entry 'metric'; did you mean 'metrics'?"),
        ({"against": ""}, "against is missing"),
        ({"against": '"mers"'}, "the same runs"),
        ({"against": "{ selector = 'random' }"}, "must name the same fields, got of variant and against selector"),
        ({"against": "3"}, "against must be a table of fields and values, got 3"),
        ({"within": "-1"}, "within must be a positive number, got -1"),
        ({"where": '"FAA"'}, "where must be a table of fields and values, got 'FAA'"),
        ({"of": "["}, "is no TOML"),
        ({"of": "[" * 5000}, "is no TOML"),
        ({"of": '"mers-maxherding"', "against": '"mers"'}, "the same runs"),
        ({"of": "{ capacity = 500 }", "against": '{ capacity = "500" }'}, "the same runs"),
        ({"of": "{ }"}, "of must name at least one field"),
        (
            {"of": "{ learner = ['er'], variant = ['mers', 'random'] }"},
            "of.variant must be one value, got ['mers', 'random']",
        ),
        ({"where": "{ epochs = 1979-05-27 }"}, "where.epochs must be a text, a number, true or false"),
        ({"where": "{ epochs = [[10]] }"}, "where.epochs must be a text, a number, true or false"),
        ({"of": '"mers metrc=euclidean"'}, "mers has no option 'metrc'; did you mean 'metric'?"),
        ({"says": "3"}, "says must be the claim in words, got 3"),
        ({"says": '" "'}, "says must be the claim in words"),
    ],
)
def test_read_claims__bad_files_are_told(entries: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_claims(write(tmp_path / "claims.toml", **entries))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no claim; begin each with [[claim]]"),
        ("claim = 3", "there is no claim"),
        ("[claim]\nsays = 3", "there is no claim"),
        ("[[claims]]\nsays = 3", "unknown table 'claims'; did you mean 'claim'?"),
    ],
)
def test_read_claims__files_without_claims_are_told(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "claims.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(message)):
        read_claims(tmp_path / "claims.toml")


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_claims__are_of_runs_that_the_experiments_make(file: Path) -> None:
    """A variant that no run can have would never be tested."""
    known = []
    for stem in (
        "claims_cifar100",
        "ablations_cifar100",
        "past_mers_cifar100",
        "bandwidth_cifar100",
        "probcover_cifar100",
        "learner_cifar100",
    ):
        for run in read_grids([ROOT / "experiments" / f"{stem}.toml"], "fast", {"seed": 0}).runs:
            known.append(flat_settings(identity(run.config), 10))
    for claim in read_claims(file):
        for side in (claim.of, claim.against):
            found = [each for each in known if all(each.get(name) == value for name, value in side.items())]
            assert found, side


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
@pytest.mark.parametrize("every", [["full_cifar100", "full_learner_cifar100"], None], ids=["full", "fast"])
def test_shipped_claims__take_all_that_the_experiments_of_one_length_make(file: Path, every: list[str] | None) -> None:
    """Nothing is refused as several experiments in one place, if what other claims vary is left out."""
    stems = every or [path.stem for path in (ROOT / "experiments").glob("*_cifar100*.toml")]
    stems = [stem for stem in stems if "dinov2" not in stem and "small" not in stem and (every or "full" not in stem)]
    planned = read_grids([ROOT / "experiments" / f"{stem}.toml" for stem in stems], None if every else "fast").runs
    records = [planned_record(run.name, identity(run.config), run.episodes) for run in planned]
    records = [dataclasses.replace(record, metrics=dict.fromkeys(NAMES, 0.5)) for record in records]
    for name, usual, stem in (
        ("simclr.epochs", 200, "simclr"),
        ("simclr.seed", 0, ""),
        ("train.statistics", "batch", "training"),
    ):
        if file.stem != stem:
            records = [record for record in records if record[name] in (usual, ABSENT)]
    found = evidence(read_claims(file), records)
    assert every or all(each.together.pairs for each in found)


# ---------------------------------------------------------------- sheets and the command


@pytest.fixture
def call(tmp_path: Path, capsys: Any, monkeypatch: Any) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for seed in (0, 1, 2):
        for capacity in (500, 2000):
            write_result(tmp_path / "runs", 0.36 + seed / 100, selector="random", capacity=capacity, seed=seed)
            write_result(tmp_path / "runs", 0.42 + seed / 99, selector="mers", capacity=capacity, seed=seed)
    write(tmp_path / "claims.toml", metrics='["FAA"]', says='"MERS is above random choice"')

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keepset", "claims", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def test_claims__in_the_terminal(call: Any) -> None:
    code, out, err = call("claims.toml", "runs")
    assert (code, err) == (0, "")
    assert out.startswith("1. MERS is above random choice: holds (mers less random)\n")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "|M| = 500 3 +6.0 (+6.0 to +6.0)" in lines
    assert "paper +9.0" in lines
    assert "together 6 +6.0 (+6.0 to +6.0)" in lines
    assert "1 claim in 1 metric" in lines
    assert "holds 1" in lines
    assert "all of cifar100, er-ace, order canonical, 10 episodes, 100 epochs" in lines
    assert max(map(len, out.splitlines()[:12])) <= 80


def test_claims__brief_and_where(call: Any) -> None:
    code, out, err = call("claims.toml", "runs", "--brief", "--where", "capacity=500", "--format", "markdown")
    assert (code, err) == (0, "")
    assert "| 1. MERS is above random choice | holds | 3 | **+6.01 (+5.99 to +6.04)** | +8.97 |" in out


def test_claims__csv_has_a_line_for_each_place(call: Any) -> None:
    code, _, err = call("claims.toml", "runs", "-o", "claims.csv")
    assert (code, err) == (0, "")
    with Path("claims.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["capacity"] for line in lines] == ["500", "2000", "together"]
    assert {line["verdict"] for line in lines} == {"holds"}
    assert float(lines[2]["difference"]) == pytest.approx(6 + 100 * (1 / 99 - 1 / 100))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.toml", "runs"], "cannot read nowhere.toml"),
        (["claims.toml", "nowhere"], "there is no folder or file nowhere"),
        (["claims.toml", "runs", "--where", "capacity=7"], "no run has capacity '7'"),
        (["claims.toml", "runs", "--format", "html"], "unknown --format 'html'"),
        (["claims.toml", "runs", "-o", "claims.txt"], "--output must end in"),
        (["claims.toml", "runs", "--brief", "-o", "claims.png"], "a picture has neither --format nor --brief"),
        (["claims.toml", "runs", "-o", "missing/claims.png"], "the folder missing does not exist"),
        (["claims.toml", "runs", "--digits", "9"], "--digits must be in 0..6"),
    ],
)
def test_claims__bad_input_ends_with_a_remedy(call: Any, arguments: list[str], message: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_claims__brief_csv_is_of_all_together(call: Any) -> None:
    out = call("claims.toml", "runs", "--brief", "--format", "csv")[1]
    assert [line["capacity"] for line in csv.DictReader(out.splitlines())] == ["together"]


def test_claims__a_field_that_the_chosen_runs_lack_is_known_by_the_others(call: Any, tmp_path: Path) -> None:
    write(tmp_path / "claims.toml", of='"random"', against='"herding"', where='{ weights = "printed" }')
    code, out, _ = call("claims.toml", "runs", "--where", "selector=random")
    assert code == 0
    assert "not yet tested" in out


def test_sheets__nothing_tested_yet() -> None:
    found = evidence([BETTER], runs([30]))
    first, tally = claim_sheets(found)
    assert [line.cells for line in first.lines] == [("0", "–")]
    assert [line.cells for line in tally.lines] == [("0",), ("0",), ("0",), ("1",)]
    assert brief_sheet(found).lines[0].cells == ("not yet tested", "0", "–")
    assert claims_csv(found).splitlines()[1:] == [
        "mers is better,mers less random," + "together," * 8 + "FAA,,,,,0,,not yet tested"
    ]


def test_claims__drawn(call: Any) -> None:
    code, out, err = call("claims.toml", "runs", "-o", "claims.svg")
    assert (code, out, err) == (0, "1 claim drawn in claims.svg\n", "")
    assert Path("claims.svg").read_bytes().startswith(b"<?xml")


def test_draw_claims__means_intervals_and_the_papers_in_the_verdicts_colour() -> None:
    records = [
        *runs([31.5, 32.5, 32], selector="mers", capacity=500),
        *runs([30, 30, 30], selector="random", capacity=500),
    ]
    worse = Claim("random is better", BETTER.against, BETTER.of, ("FAA",))
    alike = Claim("they are alike", BETTER.of, BETTER.against, ("AAA",), within=3)
    untested = Claim("teal is better", {"variant": "teal"}, BETTER.of, ("FAA",))
    found = evidence([BETTER, worse, alike, untested], records)
    faa, aaa = draw_claims(found).axes
    marks = [line for line in faa.get_lines() if line.get_marker() == "D"]
    assert [float(line.get_xdata()[0]) for line in marks] == pytest.approx([2, -2])
    assert [line.get_color() for line in marks] == [COLOURS[0], COLOURS[1]]
    rings = [float(line.get_xdata()[0]) for line in faa.get_lines() if line.get_marker() == "o"]
    assert rings == pytest.approx([45.26 - 36.29, 36.29 - 45.26])
    bars = [
        list(map(float, line.get_xdata()))
        for line in aaa.get_lines()
        if line.get_linewidth() > 2 and line.get_marker() == "None"
    ]
    reach = 4.302653 / 2 / math.sqrt(3)
    assert bars == [[-3, 3], pytest.approx([2 - reach, 2 + reach], abs=1e-5)]
    assert not faa.get_yticklabels()[0].get_parse_math(), "a price of $5 is no formula"
    names = faa.get_yticklabels()
    assert [name.get_text() for name in names] == [f"{i}. {each.claim.says}" for i, each in enumerate(found, 1)]
    assert [name.get_color() for name in names] == ["black"] * 3 + [GREY]
