"""A selector of the caller's, as `module:function`: in choices, in runs and in their tables."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import keepset
from keepset import cli
from keepset.distributed import select_distributed
from keepset.experiment.config import make_config
from keepset.experiment.identity import identity, run_hash
from keepset.experiment.run import run

MODULE = '''
import torch

seen = []

def last(views, budget, *, generator, skip=0):
    """The last rows but `skip`."""
    seen.append({name: tuple(view.shape) for name, view in views.items()})
    count = len(next(iter(views.values())))
    return torch.arange(count - skip - budget, count - skip)

def needy(views, budget, *, generator, share):
    return list(range(budget))

def luckless(views, budget):
    return list(range(budget))

def near(views, budget, *, generator, neighbours=0.5):
    assert neighbours == 0.25
    return list(range(budget))

def anything(views, budget, *, generator, **options):
    return list(range(budget))

number = 3
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the caller's."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    import mine  # type: ignore[import-not-found]

    return mine


def test_select__by_its_name_as_by_itself(mine: Any) -> None:
    points, labels = np.random.default_rng(0).normal(size=(12, 3)), np.arange(12) % 2
    assert list(keepset.select(points, 3, method="mine:last", skip=2)) == [7, 8, 9]
    named, itself = (keepset.select_per_class(points, labels, 2, method=method) for method in ("mine:last", mine.last))
    assert {label: list(chosen) for label, chosen in named.items()} == {0: [8, 10], 1: [9, 11]}
    assert named[0].method == itself[0].method == "last"


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("mine:lost", "selector 'mine:lost': mine has no function 'lost'"),
        ("mine:number", "selector 'mine:number': mine has no function 'number'"),
        ("yours:last", r"cannot import yours \(No module named 'yours'\); is it on PYTHONPATH\?"),
        ("maxhreding:simclr", r"cannot import maxhreding .* did you mean 'maxherding'\?"),
        (":last", "cannot import "),
        ("mers:pixels", "unknown selector 'mers:pixels'|mers does not read a single view"),
    ],
)
def test_names__that_lead_nowhere(method: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        keepset.select(np.eye(3), 1, method=method)
    with pytest.raises(ValueError, match=message):
        make_config(flags={"selector": method})


@pytest.mark.usefixtures("mine")
def test_config__takes_the_options_that_the_function_takes() -> None:
    assert make_config(flags={"selector": "mine:last", "options": {"skip": 1}}).options == {"skip": 1}
    assert make_config(flags={"selector": "mine:anything", "options": {"whatever": "x"}}).options == {"whatever": "x"}
    with pytest.raises(ValueError, match=r"unknown option 'skpi' for mine:last; did you mean 'skip'\?"):
        make_config(flags={"selector": "mine:last", "options": {"skpi": 1}})
    with pytest.raises(ValueError, match="unknown option 'start' for mine:last"):
        make_config(flags={"selector": "mine:last", "options": {"start": [1]}})


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("mine:needy", {}, r"needy must be a function .*: missing a required .*argument: 'share'"),
        ("mine:luckless", {}, r"luckless must be a function \(views, budget, \*, generator, .*'generator'"),
        ("mine:last", {"neighbours": 3}, r"unknown option 'neighbours' for .*last; choose from skip"),
    ],
)
def test_options__lacking_or_unknown_are_refused_at_once(method: str, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_config(flags={"selector": method, "options": options})
    with pytest.raises(ValueError, match=message):
        keepset.select(np.eye(3), 1, method=method, **options)


@pytest.mark.usefixtures("mine")
def test_options__called_like_one_of_ours_are_left_as_they_are() -> None:
    chosen = keepset.select_per_class(np.eye(4), [0, 0, 1, 1], 1, method="mine:near", neighbours=0.25)
    assert {label: list(picks) for label, picks in chosen.items()} == {0: [0], 1: [2]}


@pytest.mark.usefixtures("mine")
def test_config__is_known_by_the_name_and_reads_all_views() -> None:
    config = make_config(flags={"selector": "mine:last", "views": ["supervised", "pixels"]})
    assert config.used_views() == ("supervised", "pixels")
    assert identity(config)["selector"] == "mine:last"
    other = make_config(flags={"selector": "mine:anything", "views": ["supervised", "pixels"]})
    assert run_hash(config) != run_hash(other)


@pytest.fixture
def data(tmp_path: Path) -> str:
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 255, size=(80, 8, 8)).astype(np.uint8), np.arange(80) % 4
    np.savez(tmp_path / "data.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    return str(tmp_path / "data.npz")


def test_run__keeps_what_it_says(mine: Any, data: str, tmp_path: Path) -> None:
    given = {"data": {"name": data, "episodes": 2}, "train": {"epochs": 1}, "capacity": 8, "device": "cpu"}
    config = make_config(flags={**given, "selector": "mine:last", "views": ["pixels"], "options": {"skip": 3}})
    found = run(config, tmp_path / "runs")
    assert mine.seen == [{"pixels": (20, 64)}] * 4, "once for each class of each episode"
    assert [{label: kept["rows"] for label, kept in episode.items()} for episode in found["picks"]] == [
        {"0": [52, 56, 60, 64], "1": [53, 57, 61, 65]},
        {"2": [62, 66], "3": [63, 67]},
    ]


# ---------------------------------------------------------------- start, gains and options of every point


def rest(views: Any, budget: int, *, generator: Any, start: Any) -> list[int]:
    """The first rows that are not there yet."""
    count = len(next(iter(views.values())))
    return [row for row in range(count) if row not in start.tolist()][:budget]


def with_anything(views: Any, budget: int, *, generator: Any, **options: Any) -> list[int]:
    return rest(views, budget, generator=generator, start=options["start"])


def forgetful(_views: Any, budget: int, *, generator: Any, start: Any = None) -> list[int]:
    return list(range(budget))


POINTS = np.random.default_rng(0).normal(size=(6, 2))


@pytest.mark.parametrize("method", [rest, with_anything])
def test_start__reaches_a_function_by_name_or_among_its_options(method: Any) -> None:
    assert list(keepset.select(POINTS, 2, method=method, start=[0, 2])) == [1, 3]


def test_start__is_empty_for_a_function_that_needs_one() -> None:
    assert list(keepset.select(POINTS, 2, method=rest)) == [0, 1]


def test_start__must_not_be_returned() -> None:
    assert list(keepset.select(POINTS, 2, method=forgetful)) == [0, 1]
    with pytest.raises(ValueError, match=r"forgetful must return none of the points of start=, got \[1\]"):
        keepset.select(POINTS, 2, method=forgetful, start=[1, 4])


@pytest.mark.parametrize("gains", [None, [0.5], "many"])
def test_gains__must_be_one_a_pick(gains: Any) -> None:
    def gaining(_views: Any, budget: int, *, generator: Any) -> keepset.Selection:
        return keepset.Selection(indices=np.arange(budget), gains=gains)

    with pytest.raises(ValueError, match="the selector gaining returned must be 2 numbers, one a pick"):
        keepset.select(POINTS, 2, method=gaining)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_options__with_one_value_a_point_are_sliced_by_class(kind: Any) -> None:
    seen = []

    def scored(_views: Any, budget: int, *, generator: Any, scores: Any) -> list[int]:
        seen.append(list(scores))
        return list(range(budget))

    keepset.select_per_class(POINTS, [0, 1] * 3, 1, method=scored, scores=kind([0, 1, 2, 3, 4, 5]))
    assert seen == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.usefixtures("mine")
def test_commands__run_table_and_select(data: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["keepset", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        assert not ended.value.code, captured.err
        return str(captured.out)

    monkeypatch.chdir(tmp_path)
    settings = ["--epochs", "1", "--capacity", "8", "--views", "pixels", "--set", "data.episodes=2", "--device", "cpu"]
    assert "mine:last" in call("run", data, "--selector", "mine:last,random", *settings, "--out", "runs")
    told = call("table", "runs")
    assert "capacity  random  :last" in told, "after those of keepset"
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(9, 3)))
    call("select", "points.npy", "--budget", "2", "--method", "mine:last", "-o", "keep.npy")
    assert np.load(tmp_path / "keep.npy").tolist() == [7, 8]
    assert "module:function" in call("ls").split("cover options")[0]


@pytest.mark.usefixtures("mine")
def test_distributed__is_for_soft_cover() -> None:
    with pytest.raises(ValueError, match=r"method must be one of .* \(soft cover\), got 'mine:last'"):
        select_distributed({"a": np.eye(3)}, 1, method="mine:last")
