"""keepset views, as a user calls it: on files, and on the folder of a run that kept its views."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fake_results import run_identity
from keepset import cli
from keepset.report.diagnosis import diagnose

GENERATOR = np.random.default_rng(0)
NARROW = GENERATOR.normal(size=(120, 8)) * np.array([3, 3, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2])
EVEN = GENERATOR.normal(size=(120, 6))
LABELS = np.array(["cat", "dog", "eel"])[np.arange(120) % 3]


@pytest.fixture
def call(tmp_path: Path, capsys: Any, monkeypatch: Any) -> Any:
    np.save(tmp_path / "narrow.npy", NARROW)
    np.save(tmp_path / "even.npy", EVEN)
    np.save(tmp_path / "y.npy", LABELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keepset", "views", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def kept_run(folder: Path, names: tuple[str, ...] = ("narrow", "even"), **options: Any) -> Path:
    """A run of two episodes, as keepset run leaves it; the file of views has them in the order of the alphabet."""
    (folder / "views").mkdir(parents=True)
    numbers = torch.arange(120) % 3
    picks = []
    for episode in (0, 1):
        rows = torch.arange(120) if episode == 0 else torch.arange(0, 120, 2)
        kept = {"narrow": NARROW[rows], "even": EVEN[rows]}
        tensors = {f"view.{name}": torch.from_numpy(kept[name]).half() for name in names}
        save_file({**tensors, "labels": numbers[rows]}, folder / "views" / f"{episode + 1}.safetensors")
        picks.append({str(label): {"rows": list(range(4 + episode)), "k": 10} for label in range(3)})
    identity = {**run_identity(), "views": list(names), "options": options}
    result = {"accuracy": [[1.0], [0.5, 0.5]], "picks": picks, "identity": identity}
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return folder


def lines_of(out: str, start: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines() if line.startswith(start)]


# ---------------------------------------------------------------- files


def test_files__a_row_for_every_class_and_view(call: Any) -> None:
    code, out, _ = call("narrow.npy", "even.npy", "--labels", "y.npy", "--budget", "5")
    found = diagnose({"narrow": NARROW, "even": EVEN}, LABELS, 5)
    assert code == 0
    view, pair = found.classes[1].views[0], found.classes[1].pairs[0]
    first, second = lines_of(out, "dog")
    weights = [f"{view.shares[rule]:.3f}" for rule in ("printed", "inverse", "density")]
    spread = [f"{view.effective_rank:.1f}", f"{100 * (view.largest or 0):.1f}%", f"{view.kl:.1f}"]
    assert first == ["dog", "40", "8", "narrow", f"{view.median:.3f}", *spread]
    assert second == ["dog", "narrow", *weights]
    ratios = [f"{pair.ratios[rule]:.2f}" for rule in ("printed", "inverse", "density")]
    shared = [f"{100 * (pair.overlap or 0):.1f}%", "20.5%"]
    lines = out.splitlines()
    below = lines[1 + next(place for place, line in enumerate(lines) if line.split() == second)].split()
    assert below[0] == "even"
    assert below[4:] == [*ratios, *shared], "the other view's own row has its ratios to the first"
    assert [len(lines_of(out, start)) for start in ("cat", "eel", "median", "all")] == [2, 2, 2, 2]
    assert "more evenly than narrow" in out
    assert all(len(line) <= 80 for line in lines if "beside narrow:" not in line)


def test_files__without_labels_one_pool_and_budget_ten(call: Any) -> None:
    code, out, _ = call("narrow.npy", "even.npy")
    assert code == 0
    share = diagnose({"narrow": NARROW, "even": EVEN}).together.views[0].shares["printed"]
    assert [line[:3] for line in lines_of(out, "all")] == [["all", "120", "12"], ["all", "narrow", f"{share:.3f}"]]
    assert "median" not in out


def test_files__one_view_tells_what_it_can(call: Any) -> None:
    code, out, _ = call("narrow.npy", "--labels", "y.npy", "-o", "views.png")
    assert code == 0
    assert "beside" not in out
    assert len(lines_of(out, "cat")) == 1
    assert Path("views.png").read_bytes().startswith(b"\x89PNG")


def test_files__a_class_of_one_point_and_one_of_copies_have_dashes(call: Any) -> None:
    np.save("odd.npy", np.concatenate([NARROW[:1], np.repeat(NARROW[1:11], 2, axis=0)]))
    np.save("even.npy", EVEN[:21])
    np.save("z.npy", np.array(["lone"] + ["twin"] * 20))
    code, out, _ = call("odd.npy", "even.npy", "--labels", "z.npy")
    assert code == 0
    assert lines_of(out, "lone")[0][4:] == ["–"] * 4
    assert lines_of(out, "lone")[1][2:] == ["0.500"] * 3
    lines = out.splitlines()
    beside = lines[1 + next(place for place, line in enumerate(lines) if line.split()[:2] == ["twin", "odd"])].split()
    assert beside[4:6] == ["–", "–"], "printed and inverse; density looks beyond the copy"


@pytest.mark.parametrize("arguments", [["-o", "found.json"], ["--json", "found.json"]])
def test_files__json_holds_all_numbers(call: Any, arguments: list[str]) -> None:
    assert call("narrow.npy", "even.npy", "--labels", "y.npy", "-o", "views.svg", *arguments)[0] == 0
    found = json.loads(Path("found.json").read_text(encoding="utf-8"))
    assert found == json.loads(json.dumps(diagnose({"narrow": NARROW, "even": EVEN}, LABELS).plain()))
    assert Path("views.svg").exists()


@pytest.mark.parametrize("arguments", [["--json", "no/x"], ["-o", "no/x.json"], ["-o", "a.svg", "-o", "no/x.png"]])
def test_files__an_output_without_a_folder_is_refused_before_the_work(call: Any, arguments: list[str]) -> None:
    code, out, err = call("narrow.npy", "even.npy", *arguments)
    assert (code, out) == (2, "")
    assert "the folder no does not exist; make it first" in err
    assert not Path("a.svg").exists()


# ---------------------------------------------------------------- a run


def test_run__medians_of_each_episode_with_the_views_in_the_order_of_the_run(call: Any, tmp_path: Path) -> None:
    code, out, _ = call(str(kept_run(tmp_path / "run")))
    assert code == 0
    assert lines_of(out, "1 ")[0][:4] == ["1", "40", "10", "narrow"], "4 of 40 were kept"
    assert lines_of(out, "2 ")[0][:4] == ["2", "20", "4", "narrow"], "5 of 20"
    assert lines_of(out, "2 ")[1][:2] == ["2", "narrow"]
    assert len(lines_of(out, "all")) == 2
    assert "--episode 1..2 tells the classes" in out


def test_run__one_episode_class_by_class(call: Any, tmp_path: Path) -> None:
    code, out, _ = call(str(kept_run(tmp_path / "run")), "--episode", "2", "-o", "found.json", "-o", "views.pdf")
    found = json.loads(Path("found.json").read_text(encoding="utf-8"))["episodes"]
    assert code == 0
    assert list(found) == ["2"]
    assert [pool["label"] for pool in found["2"]["classes"]] == [0, 1, 2]
    assert lines_of(out, "1 ")[0][1:4] == ["20", "4", "narrow"]


def test_run__fixed_neighbours_are_those_of_the_run(call: Any, tmp_path: Path) -> None:
    out = call(str(kept_run(tmp_path / "run", neighbours=6)))[1]
    assert lines_of(out, "1 ")[0][1:3] == ["40", "6"]


def test_run__a_view_alone(call: Any, tmp_path: Path) -> None:
    code, out, _ = call(str(kept_run(tmp_path / "run", ("even",))), "-o", "views.png")
    assert code == 0
    assert "narrow" not in out


def spoil(folder: Path, how: str) -> None:
    file = folder / "views" / "2.safetensors"
    if how == "none kept":
        for each in (folder / "views").iterdir():
            each.unlink()
        (folder / "views").rmdir()
    elif how == "one missing":
        file.unlink()
    elif how == "damaged":
        file.write_bytes(file.read_bytes()[:50])
    elif how == "foreign":
        save_file({"other": torch.ones(2)}, file)
    else:
        (folder / "result.json").unlink()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("none kept", "did not keep its views; run it again with --keep-views --again"),
        ("one missing", "did not keep the views of episode 2; run it again with --keep-views --again"),
        ("damaged", "2.safetensors is damaged"),
        ("foreign", "2.safetensors holds no views with labels; run it again with --keep-views --again"),
        ("unfinished", "holds no finished run"),
    ],
)
def test_run__without_its_views_it_says_what_to_do(call: Any, tmp_path: Path, how: str, message: str) -> None:
    spoil(kept_run(tmp_path / "run"), how)
    code, out, err = call("run")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--episode", "3"], "--episode must be in 1..2 (the episodes of the run), got 3"),
        (["run", "--budget", "3"], "a run knows its views, labels and budgets"),
        (["run", "even.npy"], "a run knows its views, labels and budgets"),
        (["rnu"], "there is no run's folder rnu"),
        (["even.npy", "--episode", "1"], "--episode is for a run's folder"),
        (["even.npy", "-o", "views.gif"], "--output must end in .png, .pdf, .svg or .json, got views.gif"),
        (["even.npy", "--budget", "0"], "budget must be in 1.."),
        (["even.npy", "--labels", "even.npy"], "labels must be integers or strings"),
        (["even.npy", "none.npy"], "no such file: none.npy"),
        (["even.npy", "even.npy"], "even.npy is named twice"),
    ],
)
def test_bad_arguments__one_line_and_nothing_written(
    call: Any, tmp_path: Path, arguments: list[str], message: str
) -> None:
    kept_run(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_help__has_examples(call: Any) -> None:
    code, out, _ = call("--help")
    assert code == 0
    assert "  keepset views supervised.npy simclr.npy --labels y.npy --budget 10" in out
