"""Settings: defaults < preset < TOML < flags, and what names a run's folder."""

from pathlib import Path
from typing import Any

import pytest

from keepset.experiment.config import identity, make_config, run_hash


def test_make_config__the_later_wins(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('capacity = 7\nlearner = "er"\n[train]\nepochs = 3\n', encoding="utf-8")
    config = make_config("paper", file, {"capacity": 9})
    assert (config.capacity, config.learner, config.train.epochs) == (9, "er", 3)
    assert make_config("paper").train.epochs == 100
    assert make_config("fast").train.epochs == 10
    assert make_config("fast").train.batch == make_config("paper").train.batch == 10


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"capcity": 5}, r"unknown setting 'capcity'; did you mean 'capacity'\?"),
        ({"train": {"epoch": 5}}, r"unknown setting 'train.epoch'; did you mean 'epochs'\?"),
        ({"capacity": 0}, "capacity must be in 1"),
        ({"capacity": "many"}, "capacity"),
        ({"train": {"epochs": 0}}, "epochs must be in 1"),
        ({"train": {"precision": "half"}}, "precision"),
        ({"learner": "er-aces"}, r"did you mean 'er-ace'\?"),
        ({"selector": "merz"}, r"did you mean 'mers'\?"),
        ({"selector": "mers:pixels"}, "does not read a single view"),
        ({"selector": "maxherding:pixel"}, r"unknown view 'pixel'; did you mean 'pixels'\?"),
        ({"views": ["supervised", "pixles"]}, r"did you mean 'pixels'\?"),
        ({"options": {"bandwith": 1}}, r"did you mean 'bandwidth'\?"),
        ({"options": {"weights": "foo"}}, "unknown weights 'foo'"),
        ({"options": {"weights": [1.0]}}, "weights must be one number a view"),
        ({"selector": "rainbow", "options": {"uncertainty": 3}}, "unknown option 'uncertainty'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"seed": -1}, "seed must be in 0"),
        ({"capacity": True}, "capacity must not be true or false"),
    ],
)
def test_make_config__wrong_settings_name_the_nearest(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_config(flags=flags)


def test_make_config__unknown_preset_missing_and_broken_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown preset 'papper'; did you mean 'paper'\?"):
        make_config("papper")
    with pytest.raises(ValueError, match="cannot read"):
        make_config(file=tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("capacity = = 3", encoding="utf-8")
    with pytest.raises(ValueError, match="is no TOML"):
        make_config(file=tmp_path / "bad.toml")


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"capacity": 51},
        {"learner": "er"},
        {"selector": "maxherding"},
        {"views": ["pixels"]},
        {"train": {"epochs": 3}},
        {"data": {"order": 42}},
        {"device": "cuda"},
        {"train": {"precision": "bfloat16"}},
        {"learning": {"rate": 0.5}},
        {"model": {"width": 20}},
        {"data": {"episodes": 2}},
        {"options": {"weights": "equal"}},
    ],
    ids=str,
)
def test_run_hash__covers_what_changes_the_numbers(change: dict[str, Any]) -> None:
    assert run_hash(make_config(flags={"device": "cpu", **change})) != run_hash(make_config(flags={"device": "cpu"}))


def test_run_hash__not_folders_nor_views_that_are_not_read() -> None:
    assert run_hash(make_config(flags={"data": {"folder": "/elsewhere"}})) == run_hash(make_config())
    random = make_config(flags={"selector": "random"})
    assert run_hash(random) == run_hash(make_config(flags={"selector": "random", "views": ["pixels"]}))
    first = make_config(flags={"selector": "maxherding"})
    assert run_hash(first) == run_hash(make_config(flags={"selector": "maxherding:supervised", "views": ["pixels"]}))
    assert run_hash(make_config(flags={"selector": "mers-maxherding"})) == run_hash(make_config())
    assert identity(first)["views"] == ["supervised"]


def test_run_hash__rises_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_hash(make_config())
    monkeypatch.setattr("keepset.experiment.config.NUMBERS", 99)
    assert run_hash(make_config()) != before


def test_run_config__is_frozen_all_through() -> None:
    config = make_config(flags={"options": {"weights": "equal"}})
    with pytest.raises(AttributeError):
        config.seed = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.options["weights"] = "printed"  # type: ignore[index]
