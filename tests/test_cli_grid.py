"""keepset grid, as a user calls it, and as it is killed."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepset import cli
from keepset.commands.grid import duration
from keepset.experiment.grid import read_grids
from keepset.experiment.locks import Locks
from keepset.experiment.results import RunFolder
from keepset.experiment.run import run
from keepset.report.stored import read_records

GRID = """
learner = "er"
device = "cpu"
views = ["pixels"]
capacity = 8
[data]
name = "small.npz"
episodes = 2
[train]
epochs = 1
[grid]
selector = ["random", "maxherding"]
seed = [0, 1]
"""


@pytest.fixture
def call(tmp_path: Path, capsys: Any, monkeypatch: Any) -> Any:
    generator = np.random.default_rng(0)
    labels = np.arange(80) % 4
    images = (generator.integers(0, 60, size=(80, 8, 8)) + 40 * labels[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "small.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    (tmp_path / "grid.toml").write_text(GRID, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEEPSET_DATA", str(tmp_path / "none"))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keepset", "grid", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def numbers(folder: Path) -> Any:
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return {name: result[name] for name in ("accuracy", "AA", "metrics", "picks", "views")}


def test_grid__says_what_is_left_and_does_it(call: Any) -> None:
    code, out, err = call("grid.toml", "--workers", "1")
    assert code == 0
    assert out == "4 of 4 runs finished in runs\n"
    assert err.splitlines()[0] == "4 runs, 0 finished, 4 left: 32 steps, time unknown yet"
    assert err.splitlines()[-1] == "4 of 4 runs finished"
    code, out, err = call("grid.toml", "--workers", "1", "--set", "capacity=9", "--set", "seed=0")
    assert code == 0
    assert err.startswith("2 runs, 0 finished, 2 left: 16 steps, about ")
    code, out, err = call("grid.toml")
    assert err == "4 runs, 4 finished, nothing left to do\n"


def test_dry_run__a_command_for_every_run_that_is_left(call: Any, tmp_path: Path) -> None:
    runs = read_grids(["grid.toml"]).runs
    run(runs[2].config, "runs")
    code, out, err = call("grid.toml", "--dry-run")
    assert code == 0
    assert err.startswith("4 runs, 1 finished, 3 left: 24 steps, about ")
    lines = [shlex.split(line) for line in out.splitlines()]
    assert [line[:3] for line in lines] == [["keepset", "run", "small.npz"]] * 3
    assert [line[line.index("--seed") + 1] for line in lines] == ["0", "1", "1"]
    assert len(list(tmp_path.glob("runs/*"))) == 1, "nothing was run"


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (["seed=1"], ["random 1", "maxherding 1"]),
        (["selector=maxherding:pixels"], ["maxherding 0", "maxherding 1"]),
        (["method=maxherding,random", "seed=0", "episodes=2"], ["random 0", "maxherding 0"]),
        (["bandwidth=-"], ["random 0", "random 1"]),
        (["bandwidth=median"], ["maxherding 0", "maxherding 1"]),
    ],
)
def test_where__only_these_runs_in_the_order_of_the_file(call: Any, where: list[str], left: list[str]) -> None:
    code, out, err = call("grid.toml", "--dry-run", *(word for each in where for word in ("--where", each)))
    assert code == 0
    assert err.startswith(f"{len(left)} runs, 0 finished, {len(left)} left")
    lines = [shlex.split(line) for line in out.splitlines()]
    found = [f"{line[line.index('--selector') + 1]} {line[line.index('--seed') + 1]}" for line in lines]
    assert [each.replace(":pixels", "") for each in found] == left


def test_where__names_runs_as_tables_do(call: Any) -> None:
    assert call("grid.toml", "--workers", "1", "--where", "method=maxherding", "--where", "seed=0")[0] == 0
    (stored,) = read_records(["runs"]).records
    assert (stored["method"], stored["seed"]) == ("maxherding", 0)
    for name, value in stored.settings.items():
        assert " 1 finished" in call("grid.toml", "--dry-run", "--where", f"{name}={value}")[2], name


def test_grid__preset_is_the_fast_twin(call: Any, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRID.replace("[train]\nepochs = 1\n", ""), encoding="utf-8")
    assert "4 left: 3,200 steps" in call("grid.toml", "--dry-run")[2]
    assert "4 left: 320 steps" in call("grid.toml", "--dry-run", "--preset", "fast")[2]


def test_grid__failures_are_told_at_the_end_and_the_others_done(call: Any, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRID + "learning.rate = [0.1, 1e30]\n", encoding="utf-8")
    code, out, err = call("grid.toml", "--workers", "1", "--set", "seed=0")
    assert code == 2
    assert out == "2 of 4 runs finished in runs\n"
    assert "2 runs failed: ValueError: the loss is nan" in err
    assert err.splitlines()[-1] == "keepset: 2 of 4 runs failed; the same command tries them again"
    logs = sorted(tmp_path.glob("runs/*/error.txt"))
    assert len(logs) == 2
    assert all(str(log.relative_to(tmp_path)) in err for log in logs)
    bad = [make_each(log.parent) for log in logs]
    assert bad == [1e30, 1e30]


def make_each(folder: Path) -> float:
    return float(json.loads((folder / "config.json").read_text(encoding="utf-8"))["config"]["learning"]["rate"])


def test_grid__broken_off_goes_on_and_lets_go_of_its_claims(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunFolder, "finish", broken_off)
    monkeypatch.setattr(sys, "argv", ["keepset", "grid", "grid.toml", "--workers", "1"])
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        cli.main()
    assert all(Locks("runs").free(each.name) for each in read_grids(["grid.toml"]).runs)


def broken_off(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.toml"], "cannot read none.toml"),
        (["grid.toml", "--set", "lerner=er"], "unknown setting 'lerner'; did you mean 'learner'?"),
        (["grid.toml", "--engine", "slum"], "unknown engine 'slum'; did you mean 'slurm'?"),
        (["grid.toml", "--preset", "fats"], "did you mean 'fast'?"),
        (["grid.toml", "--side-by-side", "0"], "side_by_side must be in 1"),
        (["grid.toml", "--workers", "0"], "workers must be in 1"),
        (["grid.toml", "--engine", "slurm", "--set-slurm", "partition"], "--set-slurm must be key=value"),
        (["grid.toml", "--set-slurm", "partition=gpu"], "--set-slurm goes with --engine slurm, got --engine local"),
        (["grid.toml", "--address", "auto"], "--address goes with --engine ray, got --engine local"),
        (["grid.toml", "--where", "lerner=er"], "unknown field 'lerner'; did you mean 'learner'?"),
        (["grid.toml", "--where", "capacity=5"], "no run has capacity '5'; choose from 8"),
        (["grid.toml", "--where", "capacity"], "--where must be field=value"),
        (["grid.toml", "--set", "data.episodes=3"], "episodes must divide the 4 classes"),
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


def test_help__has_examples(call: Any) -> None:
    assert "Examples" in call("--help")[1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (119, "119 s"),
        (120, "2.0 min"),
        (700, "12 min"),
        (7200, "2.0 h"),
        (90000, "25 h"),
        (1e6, "12 days"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# ---------------------------------------------------------------- killed


def started(*arguments: str) -> subprocess.Popen[bytes]:
    code = "from keepset.cli import main; main()"
    command = [sys.executable, "-c", code, "grid", "grid.toml", *arguments]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def finished(tmp_path: Path) -> dict[Path, int]:
    """Result -> its inode, which changes whenever it is written."""
    return {path: path.stat().st_ino for path in tmp_path.glob("runs/*/result.json")}


DEADLY = '''
import multiprocessing, os, signal, time
from pathlib import Path

def pixels(images):
    """A view; once there are as many results as the file `kill` says, the grid is killed in the middle of a run."""
    kill = Path("kill")
    if kill.exists() and len(list(Path("runs").glob("*/result.json"))) >= int(kill.read_text()):
        grid = multiprocessing.parent_process()
        os.kill(grid.pid if grid else os.getpid(), signal.SIGKILL)
        time.sleep(60)  # a worker ends with its grid
    return images.flatten(1).float() + 1
'''


def test_killed_twice__the_third_call_finishes_and_nothing_finished_is_run_again(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "deadly.py").write_text(DEADLY, encoding="utf-8")
    text = GRID.replace("pixels", "deadly:pixels").replace("[0, 1]", "[0, 1, 2]")
    (tmp_path / "grid.toml").write_text(text, encoding="utf-8")
    planned = read_grids(["grid.toml"]).runs
    assert len(planned) == 6
    seen: dict[Path, int] = {}
    for workers in ("2", "1"):
        (tmp_path / "kill").write_text(str(len(seen) + 1))
        with started("--workers", workers) as process:
            assert process.wait(timeout=60) == -signal.SIGKILL
        wait_until(lambda: all(Locks("runs").free(each.name) for each in planned), "a worker outlived its grid")
        assert seen.items() < finished(tmp_path).items()
        seen = finished(tmp_path)
    (tmp_path / "kill").unlink()
    assert len(seen) < 6
    assert call("grid.toml", "--workers", "1")[0] == 0
    assert seen.items() < finished(tmp_path).items()
    for each in planned:
        run(each.config, "alone")
        assert numbers(tmp_path / "runs" / each.name) == numbers(tmp_path / "alone" / each.name)


@pytest.mark.usefixtures("call")
def test_two_grids_at_once__each_run_is_done_once(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRID.replace("epochs = 1", "epochs = 20"), encoding="utf-8")
    with started("--workers", "1") as first, started("--workers", "1") as second:
        assert first.wait(timeout=100) == second.wait(timeout=100) == 0
    lines = [path.read_text(encoding="utf-8").splitlines() for path in tmp_path.glob("runs/*/metrics.jsonl")]
    trained = [[json.loads(line)["epoch"] for line in told] for told in lines]
    assert trained == [[*range(1, 21), *range(1, 21)]] * 4, "two at once would both write"
