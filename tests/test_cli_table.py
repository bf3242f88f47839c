"""keepset table, as a user calls it."""

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_results import write_result
from keepset import cli


@pytest.fixture
def call(tmp_path: Path, capsys: Any, monkeypatch: Any) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keepset", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two selectors, two seeds, two capacities; the last cell is not there."""
    out = tmp_path / "runs"
    for seed, lift in enumerate((0.0, 0.02)):
        write_result(out, 0.36 + lift, selector="random", capacity=500, seed=seed)
        write_result(out, 0.45 + 2 * lift, selector="mers", capacity=500, seed=seed)
        write_result(out, 0.50 + lift, selector="random", capacity=2000, seed=seed)
    return out


def test_table__in_the_terminal(call: Any, runs: Path) -> None:
    code, out, err = call("table", "runs")
    assert code == 0
    assert err == ""
    lines = [line.split() for line in out.splitlines()]
    assert out.startswith("FAA, cifar100, er-ace, order canonical, 10 episodes, 100 epochs, ")
    assert ["capacity", "random", "mers"] in lines
    assert ["500", "37.0", "±", "1.0", "47.0", "±", "2.0"] in lines
    assert ["2000", "51.0", "±", "1.0", "–"] in lines


def test_table__variants_by_themselves(call: Any, runs: Path) -> None:
    for seed in (0, 1):
        options = {"point_weights": "purity", "bandwidth_scale": 0.25, "purity_view": "simclr"}
        write_result(runs, 0.5 + 0.02 * seed, selector="mers", capacity=500, seed=seed, options=options)
    code, out, err = call("table", "runs", "--against", "mers")
    assert (code, err) == (0, "")
    first, second = out.split("FAA less that of mers")
    assert re.search(r"\nmers bandwidth_scale=0.25 +51.0 ± 1.0 +–\n  point_weights=purity +\n  purity_view", first)
    lines = [line.split() for line in second.splitlines()]
    assert lines[2:4] == [["95", "%"], ["variant", "capacity", "difference", "interval", "p", "pairs"]]
    assert ["mers", "bandwidth_scale=0.25", "500", "+4.0", "−8.7", "to", "+16.7", "0.156"] in [
        line[:8] for line in lines
    ]


def test_table__variants_across_take_a_line_for_each_setting(call: Any, runs: Path) -> None:
    write_result(runs, 0.5, selector="mers", capacity=500, options={"point_weights": "purity", "bandwidth_scale": 0.25})
    out = call("table", "runs", "--columns", "variant")[1]
    heads = [line.split() for line in out.splitlines()[2:5]]
    assert heads == [["mers"], ["bandwidth_scale=0.25"], ["capacity", "random", "mers", "point_weights=purity"]]


@pytest.mark.parametrize("given", [("--rows", "selector"), ("--columns", "capacity")])
def test_table__the_axis_that_is_not_named_is_the_other_one(given: tuple[str, str], call: Any, runs: Path) -> None:
    code, out, err = call("table", "runs", *given)
    assert (code, err) == (0, "")
    assert ["selector", "500", "2000"] in [line.split() for line in out.splitlines()]


def test_table__names_in_heads_of_rows_stay_whole(call: Any, runs: Path) -> None:
    long = "my_package.selectors.of_mine:a_rather_long_function_name"
    path = write_result(runs, 0.5, selector="mers", capacity=500)
    for file in (path / "config.json", path / "result.json"):
        file.write_text(file.read_text().replace('"selector": "mers"', f'"selector": "{long}"'))
    assert f"\n{long} " in call("table", "runs", "--rows", "selector", "--columns", "capacity")[1]


def test_table__figures_stay_whole_beside_long_heads(call: Any, runs: Path) -> None:
    options = {"point_weights": "purity", "bandwidth_scale": 0.25, "purity_view": "simclr", "point_power": 4.0}
    for seed in (0, 1):
        write_result(runs, 0.5 + 0.02 * seed, selector="mers", capacity=500, seed=seed, options=options)
    out = call("table", "runs", "--rows", "dataset,learner,order,quota,variant", "--columns", "capacity")[1]
    assert "…" not in out
    assert "51.0 ± 1.0" in out
    assert "37.0 ± 1.0" in out


def test_table__bold_where_the_terminal_can(call: Any, runs: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    out = call("table", "runs")[1]
    assert "\x1b[1m47.0 ± 2.0\x1b[0m" in out
    assert "\x1b[1m37.0" not in out


def test_table__two_metrics_paper_and_test(call: Any, runs: Path) -> None:
    code, out, _ = call("table", "runs", "--metric", "FAA,aaa", "--paper", "--against", "random", "--digits", "2")
    assert code == 0
    assert out.count("less that of random, paired by seed") == 2
    assert "AAA, cifar100" in out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "paper 36.29 ± 0.52 45.26 ± 0.19" in lines
    # (37 − 36.29) / √(1 + 0.52²) and (47 − 45.26) / √(4 + 0.19²)
    assert "in s.e. +0.6 +0.9" in lines
    assert any(line.startswith("500 mers +10.00 −2.71 to +22.71 0.063 2") for line in lines), "t(1) = 12.706"


def test_table__wide_tables_are_cut_into_blocks(call: Any, tmp_path: Path) -> None:
    capacities = range(1000, 1010)
    for capacity in capacities:
        for seed in (0, 1):
            write_result(tmp_path / "runs", 0.5 + seed / 100, capacity=capacity, seed=seed)
    code, out, _ = call("table", "runs", "--rows", "selector", "--columns", "capacity")
    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines()[1:])
    assert out.count("50.5 ± 0.5") == len(capacities)
    assert all(str(capacity) in out for capacity in capacities)
    assert out.count("selector") == 2


@pytest.mark.parametrize("ending", ["md", "tex", "csv"])
def test_table__written_by_ending(ending: str, call: Any, runs: Path, tmp_path: Path) -> None:
    code, out, _ = call("table", "runs", "-o", f"table.{ending}", "--paper", "--against", "random")
    assert code == 0
    assert out == f"written to table.{ending}\n"
    text = (tmp_path / f"table.{ending}").read_text(encoding="utf-8")
    starts = {"md": "FAA, cifar100", "tex": "% needs \\usepackage{booktabs}\n\\begin{table}", "csv": "metric,dataset"}
    assert text.startswith(starts[ending])
    bold = {"md": "**47.00 ± 2.00**", "tex": r"\textbf{47.00 $\pm$ 2.00}", "csv": ",47,2,2,45.26,0.19,"}
    assert bold[ending] in text


def test_table__format_to_the_output(call: Any, runs: Path) -> None:
    out = call("table", "runs", "--format", "csv")[1]
    assert [row["n"] for row in csv.DictReader(out.splitlines())] == ["2", "2", "2", "0"]
    assert "| 500 | 37.00 ± 1.00 | **47.00 ± 2.00** |" in call("table", "runs", "--format", "markdown")[1]


def test_table__skipped_and_repeated_runs_are_told(call: Any, runs: Path, tmp_path: Path) -> None:
    (write_result(runs, 0.1, seed=9, capacity=500) / "result.json").write_text("{")
    (write_result(runs, 0.1, seed=8, capacity=500) / "result.json").unlink()
    write_result(tmp_path / "more", 0.36, selector="random", capacity=500, seed=0)
    code, out, err = call("table", "runs", "more")
    assert code == 0
    assert "1 unfinished (such as runs" in err
    assert "1 damaged (such as runs" in err
    assert "1 of the runs are there twice and count once" in err
    assert "47.0 ± 2.0" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "there is no folder or file none"),
        (["empty"], "there are no finished runs in empty; see keepset run --out"),
        (["runs", "--metric", "FAB"], "unknown metric 'FAB'; did you mean 'FAA'?"),
        (["runs", "--metric", ""], "unknown metric ''"),
        (["runs", "--rows", "capacty"], "unknown field 'capacty'; did you mean 'capacity'?"),
        (["runs", "--over", "seeds"], "unknown field 'seeds'; did you mean 'seed'?"),
        (["runs", "--where", "selector"], "--where must be field=value"),
        (["runs", "--where", "selector=mer"], "no run has selector 'mer'; did you mean 'mers'?"),
        (["runs", "--where", "seed=0", "--where", "seed=1"], "--where names seed twice; list its values: seed=0,1"),
        (["runs", "--against", "mer"], "'mer'; did you mean 'mers'?"),
        (["runs", "--columns", "learner"], "the runs differ in selector (random, mers); put it on an axis"),
        (["runs", "--format", "html"], "unknown --format 'html'"),
        (["runs", "-o", "table.html"], "--output must end in .md, .tex or .csv, got table.html"),
        (["runs", "-o", "no/table.md"], "the folder no does not exist"),
        (["runs", "-o", "table.md", "--format", "terminal"], "--format terminal writes no file"),
        (["runs", "--digits", "9"], "--digits must be in 0..6 (decimals), got 9"),
    ],
)
def test_table__errors(arguments: list[str], message: str, call: Any, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, out, err = call("table", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_table__of_runs_that_were_run(call: Any, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(80) % 4
    images = (generator.integers(0, 60, size=(80, 8, 8)) + 40 * labels[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "small.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    plain = ("run", "small.npz", "--episodes", "2", "--epochs", "1", "--capacity", "8", "--device", "cpu")
    assert call(*plain, "--views", "supervised,pixels", "--selector", "random,mers,maxherding:pixels")[0] == 0
    results = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/result.json")]
    finals = {result["identity"]["selector"]: 100 * result["metrics"]["FAA"] for result in results}
    code, out, err = call("table", "runs", "--format", "csv")
    assert (code, err) == (0, "")
    rows = {row["selector"]: row for row in csv.DictReader(out.splitlines())}
    assert set(rows) == {"random", "mers", "maxherding:pixels"}
    assert float(rows["mers"]["mean"]) == pytest.approx(finals["mers"])
    assert float(rows["maxherding:pixels"]["mean"]) == pytest.approx(finals["maxherding"])
    assert rows["mers"]["dataset"].startswith("small.npz ")
    assert ", 2 episodes, 1 epoch, " in call("table", "runs")[1]
    assert "1 epoch an episode, on cpu\n" in call("show", str(next((tmp_path / "runs").glob("*"))))[1]
