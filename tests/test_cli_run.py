"""keepset run and keepset show, as a user calls them."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepset import cli
from keepset.experiment.config import make_config


@pytest.fixture
def call(tmp_path: Path, capsys: Any, monkeypatch: Any) -> Any:
    generator = np.random.default_rng(0)
    labels = np.arange(80) % 4
    images = (generator.integers(0, 60, size=(80, 8, 8)) + 40 * labels[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "small.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("KEEPSET_DATA", str(tmp_path / "none"))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keepset", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


PLAIN = ("run", "small.npz", "--episodes", "2", "--epochs", "1", "--capacity", "8", "--device", "cpu")
QUICK = (*PLAIN, "--views", "supervised,pixels")


def test_run__lists_end_with_a_table_of_mean_and_error(call: Any, tmp_path: Path) -> None:
    code, out, err = call(*QUICK, "--selector", "random,mers", "--seed", "0,1")
    assert code == 0
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) == 4
    results = [json.loads((folder / "result.json").read_text()) for folder in folders]
    final = [r["metrics"]["FAA"] for r in results if r["identity"]["selector"] == "mers"]
    line = next(line for line in out.splitlines() if line.startswith("mers"))
    mean, error = 50 * sum(final), 50 * abs(final[0] - final[1])
    assert line.split()[1:4] == [f"{mean:.1f}", "±", f"{error:.1f}"]
    assert "er-ace, |M| = 8, 2 seeds" in out
    assert err.count("\n") == 8, "a plain line an episode, since this is no terminal"


def test_run__finished_runs_are_not_run_again(call: Any) -> None:
    call(*QUICK)
    assert call(*QUICK)[2] == ""
    assert call(*QUICK, "--again")[2] != ""


def test_show__tells_one_run(call: Any, tmp_path: Path) -> None:
    call(*QUICK, "--views", "pixels")
    folder = next((tmp_path / "runs").iterdir())
    code, out, _ = call("show", str(folder))
    result = json.loads((folder / "result.json").read_text())
    assert code == 0
    assert "er-ace, mers on pixels" in out
    assert f"{100 * result['accuracy'][1][0]:.1f}" in out
    assert " ".join(map(str, result["picks"][0]["0"]["rows"])) in out


def test_show__what_is_set_otherwise(call: Any, tmp_path: Path) -> None:
    call(*QUICK, "--selector", "random")
    plain = call("show", str(next((tmp_path / "runs").iterdir())))[1]
    assert "an episode, on cpu\ndata.episodes=2\n\naccuracy on each" in plain
    settings = {
        "quota": "fixed",
        "data.order": 3,
        "data.episodes": 2,
        "model.name": "small",
        "model.head": "grown",
        "train.decay_at": 0.4,
        "learning.memory_batch": 5,
        "options.weights": "equal",
        "simclr.epochs": 1,
        "simclr.augmentation.crop": "[0.5, 1.0]",
    }
    more = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    assert call(*QUICK, *more, "--views", "pixels,simclr", "--out", "others")[0] == 0
    out = call("show", str(next((tmp_path / "others").glob("*/config.json")).parent))[1]
    assert ", ".join(f"{name}={value}" for name, value in settings.items()) + "\n" in out


def test_run__settings_from_a_file_and_by_set(call: Any, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('learner = "er"\ncapacity = 4\n[train]\nepochs = 1\n', encoding="utf-8")
    assert call(*QUICK, "--config", "run.toml", "--set", "options.weights=equal", "--set", "train.momentum=0.5")[0] == 0
    config = json.loads(next((tmp_path / "runs").glob("*/config.json")).read_text())["config"]
    assert (config["learner"], config["capacity"]) == ("er", 8), "flags win over the file"
    assert config["options"] == {"weights": "equal"}
    (tmp_path / "data.toml").write_text('device = "cpu"\n[data]\nname = "small.npz"\nepisodes = 4\n', encoding="utf-8")
    code, out, _ = call("run", "--config", "data.toml", "--epochs", "1", "--selector", "random", "--out", "others")
    assert code == 0
    assert out.startswith("small.npz")
    assert config["train"]["momentum"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "cifar100"], "run `keepset data get cifar100"),
        (["run", "digts"], "unknown data set 'digts'; did you mean 'digits'?"),
        (["run", "small.npz"], "episodes must be given for small.npz"),
        (["run", "small.npz", "--episodes", "3"], "episodes must divide the 4 classes, got 3"),
        (["run", "digits", "--learner", "er-aces"], "unknown learner 'er-aces'; did you mean 'er-ace'?"),
        (["run", "digits", "--selector", "mers,merz"], "unknown selector 'merz'; did you mean 'mers'?"),
        (["run", "digits", "--capacity", "0"], "capacity must be in 1"),
        (["run", "digits", "--capacity", "many"], "capacity"),
        (["run", "digits", "--preset", "papers"], "did you mean 'paper'?"),
        (["run", "digits", "--set", "train.epoch=3"], "unknown setting 'train.epoch'; did you mean 'epochs'?"),
        (["run", "digits", "--set", "seed"], "--set must be key=value"),
        (["run", "digits", "--set", "data.name.x=3"], "unknown setting 'data.name.x'"),
        (["run", "digits", "--order", "kanonical"], "order must be 'canonical'"),
        (["run", "digits", "--config", "none.toml"], "cannot read none.toml"),
        (["show", "nowhere"], "nowhere holds no finished run"),
        (["data", "get", "cifar10"], "did you mean 'cifar100'?"),
    ],
)
def test_bad_input__one_line_exit_code_2_and_no_folder(
    call: Any, tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, _, err = call(*arguments)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("verb", ["run", "show", "data", "data get"])
def test_help__has_examples(call: Any, verb: str) -> None:
    code, out, _ = call(*verb.split(), "--help")
    assert code == 0
    assert "Example" in out


def test_make_config__without_the_extra_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ValueError, match=r"pip install keepset\[experiments\]"):
        make_config()
