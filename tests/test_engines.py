"""Engines: workers here, by Ray and by submitit, of which one is killed; the runs are as alone all the same."""

import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepset.experiment import launch as launching
from keepset.experiment.engine_local import LocalCrew
from keepset.experiment.engine_ray import RayCrew
from keepset.experiment.engine_slurm import SlurmCrew
from keepset.experiment.grid import Grid, read_grids
from keepset.experiment.launch import How, drive, launch
from keepset.experiment.locks import Locks
from keepset.experiment.run import run
from keepset.experiment.standing import Standing

GRID = """
learner = "er"
device = "cpu"
views = ["deadly:pixels"]
capacity = 8
[data]
name = "small.npz"
episodes = 2
[train]
epochs = 2
[grid]
selector = ["random", "maxherding"]
seed = [0, 1]
"""
DEADLY = '''
import os, signal
from pathlib import Path

def pixels(images):
    """A view of a run's images. The process that finds a file `kill` beside this one dies, and takes it along."""
    try:
        Path(__file__).with_name("kill").unlink()
    except FileNotFoundError:
        return images.flatten(1).float() + 1
    os.kill(os.getpid(), signal.SIGKILL)
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, importable: Path) -> Path:
    """A small data set, a grid of four runs, and the results of each of them alone."""
    folder = tmp_path_factory.mktemp("engines")
    generator = np.random.default_rng(0)
    labels = np.arange(80) % 4
    images = (generator.integers(0, 60, size=(80, 8, 8)) + 40 * labels[:, None, None]).astype(np.uint8)
    np.savez(folder / "small.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    (folder / "grid.toml").write_text(GRID, encoding="utf-8")
    (importable / "deadly.py").write_text(DEADLY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(importable)
        for planned in read_grids(["grid.toml"]).runs:
            run(planned.config, "alone")
    return folder


@pytest.fixture
def grid(place: Path, importable: Path, monkeypatch: pytest.MonkeyPatch) -> Grid:
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(importable)
    monkeypatch.setenv("PYTHONPATH", str(importable), prepend=os.pathsep)  # for the processes that are started
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # bits may depend on the threads, and the tests have one
    monkeypatch.setattr(launching, "PAUSE", 0.1)
    return read_grids(["grid.toml"])


def results(grid: Grid, out: str | Path) -> list[Any]:
    read = [json.loads((Path(out) / run.name / "result.json").read_text(encoding="utf-8")) for run in grid.runs]
    return [{name: result[name] for name in ("accuracy", "AA", "metrics", "picks", "views")} for result in read]


# ---------------------------------------------------------------- local


def test_local__a_killed_worker_is_replaced_and_the_numbers_are_as_alone(
    grid: Grid, importable: Path, tmp_path: Path
) -> None:
    (importable / "kill").touch()
    standing = launch(grid, tmp_path, How(workers=2))
    assert not (importable / "kill").exists(), "one has died of it"
    assert len(standing.done()) == 4
    assert results(grid, tmp_path) == results(grid, "alone")
    assert not multiprocessing.active_children()


def test_local__workers_share_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    assert LocalCrew("", 3).threads == 2
    assert LocalCrew("", 20).threads == 1


# ---------------------------------------------------------------- any crew


class Dying:
    """Workers that die at once; the third, if there is one, does a run first."""

    size = 2

    def __init__(self, does: Callable[[int], object] = lambda _: None) -> None:
        self.started, self.stopped, self.does = 0, False, does

    def start(self) -> None:
        self.started += 1
        self.does(self.started)

    def alive(self) -> int:
        return 0

    def stop(self) -> None:
        self.stopped = True


def test_drive__gives_up_after_some_deaths_without_a_finished_run(grid: Grid, tmp_path: Path) -> None:
    crew, standing = Dying(), Standing(grid.runs, tmp_path)
    drive(crew, standing, lambda _: None)
    assert crew.started == 2 + launching.PATIENCE
    assert crew.stopped
    assert len(standing.left()) == 4


def test_drive__a_finished_run_renews_its_patience(grid: Grid, tmp_path: Path) -> None:
    def does(number: int) -> None:
        if number in (4, 5):
            (tmp_path / grid.runs[number - 4].name).mkdir()
            (tmp_path / grid.runs[number - 4].name / "result.json").write_text("{}")

    crew = Dying(does)
    drive(crew, Standing(grid.runs, tmp_path), lambda _: None)
    assert crew.started == 5 + launching.PATIENCE


def test_drive__starts_nobody_for_runs_that_others_do(grid: Grid, tmp_path: Path) -> None:
    others = Locks(tmp_path)
    for each in grid.runs:
        others.take(each.name)
    looks: list[int] = []

    def look(standing: Standing) -> None:
        looks.append(len(standing.left()))
        if len(looks) == 3:
            raise KeyboardInterrupt

    crew = Dying()
    with pytest.raises(KeyboardInterrupt):
        drive(crew, Standing(grid.runs, tmp_path), look)
    assert crew.started == 2, "those at the beginning"
    assert crew.stopped, "also when it is broken off"


# ---------------------------------------------------------------- clusters


@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore")
def test_ray__a_killed_worker_is_replaced_and_the_numbers_are_as_alone(
    grid: Grid, importable: Path, tmp_path: Path
) -> None:
    (importable / "kill").touch()
    standing = launch(grid, tmp_path, How("ray", workers=2))
    assert not (importable / "kill").exists(), "one has died of it"
    assert len(standing.done()) == 4
    assert results(grid, tmp_path) == results(grid, "alone")


@pytest.mark.filterwarnings("ignore")
def test_slurm__two_jobs_of_submitit(grid: Grid, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    standing = launch(grid, tmp_path, How("slurm", workers=2, slurm={"cluster": "local", "timeout_min": 5}))
    assert len(standing.done()) == 4
    assert results(grid, tmp_path) == results(grid, "alone")
    assert len(list((tmp_path / ".slurm").glob("*_submitted.pkl"))) == 2


class FakeRay:
    """A cluster that takes tasks and does nothing; it tells what it was asked for."""

    def __init__(self, **resources: float) -> None:
        self.resources, self.asked, self.calls = resources, dict[str, Any](), list[Any]()
        self.running = False

    def is_initialized(self) -> bool:
        return self.running

    def init(self, **given: Any) -> None:
        self.running, self.given = True, given

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def remote(self, **asked: Any) -> Any:
        self.asked = asked
        return lambda _: self

    def cancel(self, *_: Any, **__: Any) -> None: ...

    def shutdown(self) -> None:
        self.running = False


@pytest.mark.parametrize(
    ("resources", "cuda", "workers", "size", "needs"),
    [
        ({"CPU": 16.0, "GPU": 4.0}, True, None, 4, {"num_gpus": 1}),
        ({"CPU": 16.0, "GPU": 4.0}, True, 2, 2, {"num_gpus": 1}),
        ({"CPU": 16.0}, False, None, 8, {"num_cpus": 1}),
        ({"CPU": 1.0}, False, None, 1, {"num_cpus": 1}),
    ],
)
def test_ray__what_a_worker_is_given(
    resources: Any, cuda: bool, workers: int | None, size: int, needs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRay(**resources)
    monkeypatch.setitem(sys.modules, "ray", fake)
    crew = RayCrew("", workers, cuda, "head:6379")
    assert crew.size == size
    assert needs.items() <= fake.asked.items()
    assert len(needs) == len({"num_gpus", "num_cpus"} & fake.asked.keys())
    assert fake.given["address"] == "head:6379"
    crew.stop()
    assert not fake.running


def test_ray__gpus_that_are_not_there_or_not_used_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(CPU=4.0)
    monkeypatch.setitem(sys.modules, "ray", fake)
    with pytest.raises(ValueError, match="the Ray cluster has no GPU"):
        RayCrew("", None, True, "")
    assert not fake.running, "what was started is stopped"
    fake.resources["GPU"] = 1.0
    with pytest.warns(UserWarning, match="say --set device=cuda"):
        RayCrew("", None, False, "")
    fake.running = True
    crew = RayCrew("", None, True, "")
    crew.stop()
    assert fake.running, "a connection of the caller's stays"


def test_slurm__a_gpu_where_the_runs_want_one(tmp_path: Path) -> None:
    given = {"cluster": "local", "timeout_min": 7, "partition": "big"}
    assert SlurmCrew("", tmp_path, 1, True, given).executor.parameters["gpus_per_node"] == 1
    parameters = SlurmCrew("", tmp_path, 1, False, given).executor.parameters
    assert "gpus_per_node" not in parameters
    assert parameters["timeout_min"] == 7


@pytest.mark.parametrize(
    ("slurm", "message"),
    [
        ({"cluster": "local", "partitoin": "gpu"}, "partitoin"),
        ({"cluster": "local", "timeout_min": "long"}, "timeout_min"),
        ({"cluster": "slrm"}, "slrm"),
        ({}, "cannot send jobs to slurm"),
    ],
)
def test_slurm__bad_parameters_are_refused_before_anything_is_sent(
    grid: Grid, tmp_path: Path, slurm: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "")  # where there is a Slurm, it is not found
    with pytest.raises(ValueError, match=message):
        launch(grid, tmp_path, How("slurm", slurm=slurm))
    assert not list(tmp_path.glob("*/result.json"))


@pytest.mark.parametrize(("engine", "module"), [("ray", "ray"), ("slurm", "submitit")])
def test_cluster__without_its_extra_says_what_to_install(
    grid: Grid, tmp_path: Path, engine: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=rf"pip install keepset\[{engine}\]"):
        launch(grid, tmp_path, How(engine))
