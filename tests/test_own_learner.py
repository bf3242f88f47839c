"""A learner of the caller's, as `module:function`, in a run."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepset.experiment.config import make_config
from keepset.experiment.identity import identity, run_hash
from keepset.experiment.run import run
from keepset.experiment.shared import first_key
from keepset.experiment.side_by_side import run_all
from keepset.learning import LearnerSettings, learner

MODULE = """
import torch
from keepset.learning import Descent, Learner, cross_entropy
from keepset.learning.er_ace import er_ace_loss

def half(model, new, memory, seen):
    return er_ace_loss(model, new, memory, seen) / 2

def as_er_ace(settings):
    return Learner("whatever", Descent(er_ace_loss), (settings.memory_batch,), 0.01, holds_new_classes=True)

def halved(settings):
    return Learner("halved", Descent(half), (settings.memory_batch,), 0.01, holds_new_classes=True)

def first(model, new, memory, seen):
    return er_ace_loss(model, new, memory, seen) if memory else 1 / 0

def fails_first(settings):
    return Learner("fails", Descent(first), [settings.memory_batch], 0.01)

def second(model, new, memory, seen):
    return er_ace_loss(model, new, memory, seen) if not memory else next(iter([]))

def stops(settings):
    return Learner("stops", Descent(second), [settings.memory_batch], 0.01)

def by_setting(settings):
    def gradients(model, new, memory, seen):
        loss = cross_entropy(model(new.images), new.labels, seen) * settings.mir_candidates / 100
        loss.backward()
        return loss.detach()
    return Learner("by", gradients, (), 0.01)

def nothing(settings):
    return None

def too_many(settings, more):
    return None
"""


@pytest.fixture(autouse=True)
def _mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the caller's."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_learners.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "broken_learners.py").write_text("lost", encoding="utf-8")
    monkeypatch.delitem(sys.modules, "my_learners", raising=False)


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    labels = np.arange(80) % 4
    images = (generator.integers(0, 60, size=(80, 8, 8)) + 40 * labels[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "data.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    data = {"name": str(tmp_path / "data.npz"), "episodes": 2}
    return {"data": data, "train": {"epochs": 3}, "capacity": 8, "device": "cpu", "views": ["supervised"]}


def test_learner__by_its_name() -> None:
    found = learner("my_learners:as_er_ace", LearnerSettings(memory_batch=7))
    assert (found.name, found.draws, found.rate) == ("my_learners:as_er_ace", (7,), 0.01)
    assert learner("my_learners:as_er_ace", LearnerSettings(rate=0.3)).rate == 0.3
    steady = learner("my_learners:as_er_ace-star")
    assert (steady.name, steady.draws) == ("my_learners:as_er_ace-star", (10, 10))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_learners:nothing", "must return a keepset.learning.Learner, got NoneType"),
        ("my_learners:too_many", "must be a function of the settings, LearnerSettings: .*'more'"),
        ("broken_learners:mine", r"cannot import broken_learners \(name 'lost' is not defined\); it fails by itself"),
        ("my_learners:lost", "my_learners has no function 'lost'"),
        ("yours:mine", r"cannot import yours .* is it on PYTHONPATH\?"),
        ("er-aec:mine", r"did you mean 'er-ace'\?"),
        ("er-aec", r"unknown learner 'er-aec'; did you mean 'er-ace'\?"),
    ],
)
def test_learner__that_is_none(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learner(name)
    with pytest.raises(ValueError, match=message):
        make_config(flags={"learner": name})


@pytest.mark.parametrize("end", ["", "-star"])
def test_run__one_like_er_ace_has_its_numbers(given: dict[str, Any], tmp_path: Path, end: str) -> None:
    names = [f"er-ace{end}", f"my_learners:as_er_ace{end}", f"my_learners:halved{end}"]
    theirs, same, other = (run(make_config(flags={**given, "learner": name}), tmp_path / "runs") for name in names)
    assert same["accuracy"] == theirs["accuracy"]
    assert same["picks"] == theirs["picks"]
    assert other["picks"] != theirs["picks"]


def test_run__an_error_that_looks_like_the_end_is_none(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        run(make_config(flags={**given, "learner": "my_learners:stops"}), tmp_path / "runs")
    assert not list((tmp_path / "runs").glob("*/result.json"))


@pytest.mark.parametrize("end", ["", "-star"])
def test_first_episode__is_trained_by_its_own_loss(given: dict[str, Any], tmp_path: Path, end: str) -> None:
    config = make_config(flags={**given, "learner": f"my_learners:fails_first{end}"})
    with pytest.raises(ZeroDivisionError):
        run(config, tmp_path)


def test_first_episode__is_not_taken_for_another_s(given: dict[str, Any], tmp_path: Path) -> None:
    """Side by side with ER-ACE, whose rate they have, and with each other."""
    names = ["er-ace", "my_learners:halved", "my_learners:by_setting", "my_learners:by_setting"]
    settings = [{}, {}, {"mir_candidates": 1}, {"mir_candidates": 50}]
    given = {**given, "selector": "closest"}
    configs = [
        make_config(flags={**given, "learner": name, "learning": more})
        for name, more in zip(names, settings, strict=True)
    ]
    assert len({first_key(config) for config in configs}) == 4
    alone = [run(config, tmp_path / "alone")["picks"] for config in configs]
    assert all(alone[0][0] != other[0] for other in alone[1:])
    together = run_all(configs, tmp_path / "together", side_by_side=4)
    assert [result["picks"] for result in together if isinstance(result, dict)] == alone


def test_stacked__is_refused(given: dict[str, Any], tmp_path: Path) -> None:
    given = {**given, "train": {"stacked": True}, "learner": "my_learners:as_er_ace"}
    with pytest.raises(ValueError, match=r"stacked is for the learners er and er-ace, got my_learners:as_er_ace"):
        run(make_config(flags=given), tmp_path)


def test_identity__is_the_name_and_all_settings(given: dict[str, Any]) -> None:
    configs = [
        make_config(flags={**given, "learner": "my_learners:halved", "learning": {"mir_candidates": n}}) for n in (5, 6)
    ]
    assert identity(configs[0])["learner"] == "my_learners:halved"
    assert run_hash(configs[0]) != run_hash(configs[1])
