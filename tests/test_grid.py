"""Grids: what they expand to, who does which run, and that each run is as alone."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepset import cli
from keepset.experiment import side_by_side
from keepset.experiment.config import RunConfig, make_config
from keepset.experiment.grid import Planned, combinations, command_of, read_grids
from keepset.experiment.identity import hash_of, run_hash
from keepset.experiment.launch import How, launch
from keepset.experiment.locks import Locks
from keepset.experiment.results import RunFolder
from keepset.experiment.run import run
from keepset.experiment.standing import Standing
from keepset.experiment.work import Job, read_job, work_on, write_error
from keepset.experiment.world import World

TINY = """
learner = "er"
device = "cpu"
views = ["pixels", "supervised"]
capacity = 8
[data]
name = "small.npz"
episodes = 2
[train]
epochs = 2
"""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a small data set, in which grids are written."""
    generator = np.random.default_rng(0)
    labels = np.arange(80) % 4
    images = (generator.integers(0, 60, size=(80, 8, 8)) + 40 * labels[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "small.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "grid.toml") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def tiny(block: str = '[grid]\nselector = ["random", "maxherding"]\nseed = [0, 1]\n', **flags: Any) -> list[Planned]:
    return list(read_grids([written(TINY + block)], None, flags).runs)


def numbers(result: Any) -> Any:
    return {name: result[name] for name in ("accuracy", "AA", "metrics", "picks", "views")}


def read(name: str, out: str = "runs") -> Any:
    return json.loads((Path(out) / name / "result.json").read_text(encoding="utf-8"))


# ---------------------------------------------------------------- what a grid is


def test_read_grids__all_combinations_in_the_order_written() -> None:
    runs = tiny('[grid]\ncapacity = [4, 8]\n"data.order" = ["canonical", 42]\nseed = [0, 1]\n')
    found = [(run.config.capacity, run.config.data.order, run.config.seed) for run in runs]
    assert found == [(c, o, s) for c in (4, 8) for o in ("canonical", 42) for s in (0, 1)]
    assert all(run.name == run_hash(run.config) for run in runs)


def test_read_grids__a_key_with_dots_needs_no_quotes() -> None:
    quoted, plain = tiny('[grid]\n"data.order" = [1, 2]\n'), tiny("[grid]\ndata.order = [1, 2]\n")
    assert [run.name for run in quoted] == [run.name for run in plain]
    assert len(plain) == 2


def test_read_grids__blocks_are_a_union_and_settings_of_a_block_stay_in_it() -> None:
    runs = tiny('[[grid]]\nselector = "random"\nseed = [0, 1]\n[[grid]]\nlearner = "er-ace"\nseed = [1, 2, 3]\n')
    found = [(run.config.learner, run.config.selector, run.config.seed) for run in runs]
    assert found == [("er", "random", 0), ("er", "random", 1), *(("er-ace", "mers", seed) for seed in (1, 2, 3))]


def test_read_grids__the_same_run_comes_once() -> None:
    views = 'views = [["pixels"], ["supervised"], ["pixels", "supervised"]]\n'
    assert len(tiny(f'[grid]\nselector = "random"\n{views}')) == 1, "random reads no view"
    assert len(tiny(f'[grid]\nselector = "maxherding"\n{views}')) == 2, "maxherding reads the first"
    assert len(tiny(f'[grid]\nselector = "mers"\n{views}')) == 3
    file = written(TINY + "[grid]\nseed = [0, 1]\n", "other.toml")
    assert len(read_grids([file, file]).runs) == 2


def test_read_grids__without_lists_it_is_one_run() -> None:
    assert len(tiny("")) == 1


def test_read_grids__preset_below_the_file_below_the_grid_below_flags() -> None:
    file = written('device = "cpu"\n[grid]\nseed = [0, 1]\nselector = "random"\n')
    assert {run.config.train.epochs for run in read_grids([file], "fast").runs} == {10}
    assert {run.config.train.epochs for run in read_grids([written(TINY)], "fast").runs} == {2}
    fixed = read_grids([file], "fast", {"seed": 7}).runs
    assert [run.config.seed for run in fixed] == [7]


def test_read_grids__slurm_table_is_no_setting() -> None:
    grid = read_grids([written(TINY + '[slurm]\npartition = "gpu"\n')])
    assert grid.slurm == {"partition": "gpu"}
    assert grid.runs[0].name == tiny("")[0].name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[grid]\nlerner = ["er"]\n', "grid.toml: unknown setting 'lerner'; did you mean 'learner'?"),
        ('[grid]\n"data.ordr" = [1]\n', "unknown setting 'data.ordr'; did you mean 'order'?"),
        ('[grid]\nselector = ["mers", "merz"]\n', "unknown selector 'merz'; did you mean 'mers'?"),
        ("[gird]\nseed = [1]\n", "unknown setting 'gird'; did you mean 'grid'?"),
        ("[grid]\nseed = []\n", "grid.seed must list at least one value"),
        ("grid = 3\n", "grid must be a table"),
        ('[data]\nname = "digts"\n', "unknown data set 'digts'; did you mean 'digits'?"),
        ('[data]\nname = "cifar100"\norder = "kanonical"\n', "order must be 'canonical'"),
        ('[data]\nname = "cifar100"\nepisodes = 3\n', "episodes must divide the 100 classes, got 3"),
        ("seed = [\n", "grid.toml is no TOML"),
    ],
)
def test_read_grids__what_is_wrong_is_said_before_anything_runs(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        read_grids([written(text)])
    assert message in str(error.value)


def test_combinations__a_mapping_in_a_list_is_a_value() -> None:
    found = list(combinations({"options": {"weights": [{"a": 1, "b": 2}, "equal"]}}))
    assert found == [{"options": {"weights": {"a": 1, "b": 2}}}, {"options": {"weights": "equal"}}]


def test_steps__are_those_that_are_trained() -> None:
    """By the records of real runs: 40 images an episode of which 13 steps of 3 are whole; joint sees all so far."""
    found = {run.config.learner: run for run in tiny('[grid]\nlearner = ["er", "joint"]\ntrain.batch = 3\n')}
    assert found["er"].steps == 2 * (13 + 13)
    assert found["joint"].steps == 2 * (13 + 26)
    assert [run.steps for run in read_grids([written('[data]\nname = "cifar100"\n')]).runs] == [500_000]
    assert [run.steps for run in read_grids([written('[data]\nname = "tinyimagenet"\n')], "fast").runs] == [100_000]


# ---------------------------------------------------------------- as commands


def parsed_back(command: str, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """The config that the command line makes of it."""
    caught: list[RunConfig] = []

    def instead(configs: list[RunConfig], *_: Any, **__: Any) -> None:
        caught.extend(configs)
        raise ValueError("caught")

    monkeypatch.setattr(side_by_side, "run_all", instead)
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit):
        cli.main()
    (config,) = caught
    return config


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"selector": "maxherding:supervised", "seed": 3, "learner": "er-ace-star"},
        {"options": {"weights": {"pixels": 1.0, "supervised": 0.25}, "bandwidth": 1.0, "metric": "euclidean"}},
        {"options": {"weights": [1, 2.5]}, "keep_views": True, "quota": "fixed"},
        {"data": {"order": [3, 1, 0, 2], "episodes": [1, 3], "folder": "a folder's name"}},
        {"data": {"order": 42}, "train": {"weight_decay": 1e-5, "precision": "float32"}, "learning": {"rate": 0.3}},
        {"selector": "mers", "views": ["supervised", "simclr"], "simclr": {"augmentation": {"crop": [0.5, 1.0]}}},
        {"data": {"name": "digits", "episodes": 5}, "views": ["simclr"], "view_preset": "desk", "model": {"width": 8}},
    ],
)
def test_command_of__parsed_back_is_the_same_run(flags: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (planned,) = tiny("", **flags)
    back = parsed_back(command_of(planned.config, "some runs"), monkeypatch)
    assert run_hash(back) == planned.name
    assert back == planned.config, "also where the hash does not look"


def test_job__read_back_anywhere_is_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tiny('[grid]\noptions.weights = [{pixels = 1, supervised = 2}, "equal"]\nkeep_views = [true, false]\n')
    text = Job(runs, Path("runs"), 3).text()
    here = Path.cwd()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    monkeypatch.setenv("KEEPSET_CACHE", "another")
    job = read_job(text)
    assert [run_hash(run.config) for run in job.runs] == [run.name for run in runs]
    assert [(run.name, run.steps) for run in job.runs] == [(run.name, run.steps) for run in runs]
    assert (job.out, job.side_by_side) == (here / "runs", 3)
    assert "another" not in job.runs[0].config.cache


def test_read_job__a_machine_on_which_it_is_another_run_is_refused() -> None:
    (planned,) = tiny("")
    text = Job([planned], Path("runs")).text()
    labels = np.arange(40) % 4
    images = np.zeros((40, 8, 8), dtype=np.uint8)
    np.savez("small.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    with pytest.raises(ValueError, match="give every machine the same keepset, data and weights"):
        read_job(text)


# ---------------------------------------------------------------- locks


def test_locks__one_at_a_time() -> None:
    first, second = Locks("runs"), Locks("runs")
    assert first.free("a")
    assert first.take("a")
    assert first.take("a"), "ours already"
    assert not second.take("a")
    assert not second.free("a")
    assert second.take("b")
    first.let_go("a")
    assert second.take("a")
    second.let_go_all()
    assert first.free("a")
    assert first.free("b")


def test_locks__a_killed_holder_lets_go() -> None:
    code = "import time; from keepset.experiment.locks import Locks; locks = Locks('runs')"
    code += "; print(locks.take('a'), flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        held = not Locks("runs").take("a")
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert held
    assert Locks("runs").take("a")


# ---------------------------------------------------------------- work


def test_work__data_that_are_touched_meanwhile_do_not_make_it_run_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run once, where the grid looks for it."""
    runs, ended = tiny(), list[str]()
    finish = RunFolder.finish

    def touching(self: RunFolder, *given: Any) -> Any:
        ended.append(self.path.name)
        Path("small.npz").write_bytes(Path("small.npz").read_bytes() + b" ")
        return finish(self, *given)

    monkeypatch.setattr(RunFolder, "finish", touching)
    work_on(Job(runs, Path("runs")))
    assert sorted(ended) == sorted(each.name for each in runs)
    for each in runs:
        assert hash_of(read(each.name)["identity"]) == each.name, "as it was planned, and as it was run"


def test_work__every_run_as_alone_and_none_again() -> None:
    runs = tiny()
    for planned in runs:
        run(planned.config, "alone")
    standing = launch(read_grids(["grid.toml"]), "runs", How(workers=1))
    assert len(standing.done()) == 4
    assert not standing.failed() + standing.left()
    assert [numbers(read(each.name)) for each in runs] == [numbers(read(each.name, "alone")) for each in runs]
    before = {path: path.stat().st_mtime_ns for path in Path("runs").glob("*/*")}
    launch(read_grids(["grid.toml"]), "runs", How(workers=1))
    assert {path: path.stat().st_mtime_ns for path in Path("runs").glob("*/*")} == before


@pytest.mark.parametrize("left", [0, 1, 40])
def test_launch__a_result_that_was_cut_off_is_not_taken_for_one(left: int) -> None:
    runs = tiny()
    launch(read_grids(["grid.toml"]), "runs", How(workers=1))
    path = Path("runs") / runs[0].name / "result.json"
    path.write_bytes(path.read_bytes()[:left])
    standing = launch(read_grids(["grid.toml"]), "runs", How(workers=1))
    assert len(standing.done()) == 3
    assert [each.name for each in standing.failed()] == [runs[0].name]
    assert "is damaged" in (path.parent / "error.txt").read_text(encoding="utf-8")
    path.unlink()
    assert len(launch(read_grids(["grid.toml"]), "runs", How(workers=1)).done()) == 4


def test_work__what_another_has_is_left_to_it() -> None:
    runs = tiny()
    other = Locks("runs")
    other.take(runs[1].name)
    work_on(Job(runs, Path("runs")))
    standing = Standing(runs, "runs")
    assert [each.name for each in standing.left()] == [runs[1].name]
    assert not standing.any_free()
    other.let_go_all()
    assert standing.any_free()
    work_on(Job(runs, Path("runs")))
    assert not standing.left()


def test_work__claims_are_let_go_of_as_runs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held by a finished run they would add up, and a process may open only so many files."""
    most: list[int] = []
    take = Locks.take

    def counted(self: Locks, name: str) -> bool:
        most.append(len(self._held))
        return take(self, name)

    monkeypatch.setattr(Locks, "take", counted)
    work_on(Job(tiny(), Path("runs"), 2))
    assert max(most) <= 1


def test_work__failed_with_another_between_looking_and_claiming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers of one grid do not both try it."""
    (planned,) = tiny("")
    take = Locks.take

    def late(self: Locks, name: str) -> bool:
        write_error(Path("runs") / name, ValueError("theirs"))
        return take(self, name)

    monkeypatch.setattr(Locks, "take", late)
    work_on(Job([planned], Path("runs")))
    assert [path.name for path in (Path("runs") / planned.name).iterdir()] == ["error.txt"]


def test_work__finished_by_another_between_looking_and_claiming(monkeypatch: pytest.MonkeyPatch) -> None:
    (planned,) = tiny("")
    take, result = Locks.take, Path("runs") / planned.name / "result.json"
    ended: list[int] = []

    def late(self: Locks, name: str) -> bool:
        run(planned.config, "runs")
        ended.append(result.stat().st_ino)
        return take(self, name)

    monkeypatch.setattr(Locks, "take", late)
    work_on(Job([planned], Path("runs")))
    assert ended == [result.stat().st_ino], "not written again"
    assert take(Locks("runs"), planned.name), "and let go of"


def test_launch__a_failure_has_its_log_and_the_next_grid_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tiny()
    with monkeypatch.context() as patched:
        patched.setattr("keepset.experiment.world.World.evaluate", _failing_evaluate)
        standing = launch(read_grids(["grid.toml"]), "runs", How(workers=1))
    assert [each.config.seed for each in standing.done()] == [0, 0]
    assert [each.config.seed for each in standing.failed()] == [1, 1]
    assert not standing.left()
    log = (Path("runs") / standing.failed()[0].name / "error.txt").read_text(encoding="utf-8")
    assert "Traceback" in log
    assert "_failing_evaluate" in log
    assert standing.error_of(standing.failed()[0]) == "ZeroDivisionError: a bad day"
    again = launch(read_grids(["grid.toml"]), "runs", How(workers=1))
    assert len(again.done()) == 4
    assert not list(Path("runs").glob("*/error.txt"))
    run(runs[1].config, "alone")
    assert numbers(read(runs[1].name)) == numbers(read(runs[1].name, "alone"))


EVALUATE = World.evaluate


def _failing_evaluate(world: Any, number: int) -> None:
    if world.config.seed == 1 and number == 1:
        raise ZeroDivisionError("a bad day")
    EVALUATE(world, number)


def test_launch__waits_for_what_another_grid_does_and_takes_it_up_if_that_dies() -> None:
    runs = tiny()
    other = Locks("runs")
    other.take(runs[2].name)
    looks: list[int] = []

    def look(standing: Standing) -> None:
        looks.append(len(standing.left()))
        other.let_go_all()

    standing = launch(read_grids(["grid.toml"]), "runs", How(workers=1), look)
    assert looks[0] == 1
    assert len(standing.done()) == 4


def test_launch__data_that_are_not_there_leave_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPSET_DATA", str(Path.cwd()))
    grid = read_grids([written('device = "cpu"\n[data]\nname = "cifar100"\n')])
    with pytest.raises(ValueError, match="keepset data get cifar100"):
        launch(grid, "runs", How())
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "rey"}, "unknown engine 'rey'; did you mean 'ray'?"),
        ({"workers": 0}, "workers must be in 1"),
        ({"side_by_side": 0}, "side_by_side must be in 1"),
        ({"side_by_side": "many"}, "side_by_side must be a whole number"),
    ],
)
def test_how__bad_values(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        How(**given)


# ---------------------------------------------------------------- how long


def test_recorded_seconds__from_runs_of_the_same_kind_alone() -> None:
    runs = tiny("[grid]\nseed = [0, 1, 2, 3]\n")
    other = tiny("", learner="er-ace")[0]
    standing = Standing(runs, "runs")
    assert standing.recorded_seconds_left() is None
    pretend(other, 1000.0)
    assert standing.recorded_seconds_left() is None, "another learner is another kind"
    pretend(runs[0], 10.0)
    pretend(runs[1], 20.0)
    assert standing.recorded_seconds_left() == 2 * 15.0


def pretend(planned: Planned, seconds: float) -> None:
    folder = RunFolder("runs", planned.config)
    folder.prepare()
    told = {"seconds": {"train": seconds - 1, "embed": 1.0}}
    (folder.path / "result.json").write_text(json.dumps(told), encoding="utf-8")


def test_steps_done__counts_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tiny("[grid]\nseed = [0, 1, 2]\n")
    clock = [0.0]
    monkeypatch.setattr("keepset.experiment.standing.time.perf_counter", lambda: clock[0])
    standing = Standing(runs, "runs")
    assert standing.seconds_left() is None, "no pace yet"
    pretend(runs[0], 1.0)
    folder = RunFolder("runs", runs[1].config)
    folder.prepare()
    folder.record({"episode": 2, "epoch": 1, "episodes": 2})
    assert standing.steps_done() == runs[0].steps + 0.75 * runs[1].steps
    clock[0] = 7.0
    assert standing.seconds_left() == pytest.approx(5.0), "1.75 of 3 runs in 7 seconds"


def test_make_config__of_a_grid_is_that_of_a_run() -> None:
    plain = make_config(None, written(TINY, "run.toml"))
    assert tiny("")[0].config == plain
