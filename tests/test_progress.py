"""How long work is shown: a few lines in a log, bars on a terminal."""

import io
import re
import sys
from typing import Any

import pytest

from keepset.commands.progress import RunDisplay, bars, quality_line, told_of_views, view_name
from keepset.experiment.config import make_config
from keepset.experiment.side_by_side import Pace

CONFIGS = [make_config(flags={"seed": seed, "train": {"epochs": 3}, "device": "cpu"}) for seed in (0, 1)]


def learned(epoch: int, epochs: int, **more: Any) -> dict[str, Any]:
    return {"view": "simclr", "epoch": epoch, "epochs": epochs, "loss": 1.25, "seconds left": 7.4, **more}


def trained(episode: int, epoch: int, accuracies: list[float]) -> dict[str, Any]:
    told = {"episode": episode, "epoch": epoch, "episodes": 2, "loss": 0.5, "steps a second": 12.6}
    return {**told, "average accuracies": accuracies}


# ---------------------------------------------------------------- a log


@pytest.mark.parametrize(
    ("epochs", "lines"),
    [(1, [1]), (3, [1, 2, 3]), (10, list(range(1, 11))), (25, [3, 5, 8, 10, 13, 15, 18, 20, 23, 25])],
)
def test_log__a_line_for_every_tenth_of_the_epochs(capsys: Any, epochs: int, lines: list[int]) -> None:
    told = told_of_views(None)
    for epoch in range(1, epochs + 1):
        told(learned(epoch, epochs))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [f"simclr: {epoch}/{epochs} loss 1.250, 7 s left" for epoch in lines]


def test_log__a_thousand_epochs_are_ten_lines(capsys: Any) -> None:
    told = told_of_views(None)
    for epoch in range(1, 1001):
        told(learned(epoch, 1000, episode=3))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("simclr of episode 3: 100/1000 loss")


def test_log__images_that_come_in_batches_are_told_too(capsys: Any) -> None:
    """A frozen encoder tells how many images are done: 128 more each time, so that few tenths are met exactly."""
    told = told_of_views(None)
    for done in (*range(128, 5000, 128), 5000):
        told({"view": "dinov2", "epoch": done, "epochs": 5000})
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "dinov2: 512/5000"
    assert lines[-1] == "dinov2: 5000/5000"
    assert len(lines) == 10


def test_log__a_second_view_begins_its_tenths_anew(capsys: Any) -> None:
    told = told_of_views(None)
    for episode in (1, 2):
        for epoch in (1, 2):
            told(learned(epoch, 2, episode=episode))
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_log__the_quality_of_a_view_with_an_entry(capsys: Any) -> None:
    told = told_of_views(None)
    record = {"episode": 2, "episodes": 5, "view": "simclr", "entry": "0123456789abcdef", "neighbour accuracy": 0.875}
    told(record)
    assert capsys.readouterr().err == "simclr of episode 2: 20-NN accuracy 87.5 %, cache entry 01234567\n"
    told({**record, "view": "supervised", "entry": None})
    assert capsys.readouterr().err == "", "the learner's own is no news"
    assert quality_line({**record, "neighbour accuracy": None}) == "simclr of episode 2: cache entry 01234567"


def test_log__waiting_is_told(capsys: Any) -> None:
    told_of_views(None)({"episode": 1, "waiting": "another process is making simclr of 6 images; waiting for it"})
    assert capsys.readouterr().err == "another process is making simclr of 6 images; waiting for it\n"


def test_log__the_last_epoch_of_an_episode(capsys: Any) -> None:
    told = RunDisplay(None, CONFIGS).watch(1)["on_epoch"]
    for episode, accuracies in ((1, []), (2, [0.75])):
        for epoch in (1, 2, 3):
            told(trained(episode, epoch, accuracies))
    assert capsys.readouterr().err.splitlines() == [
        "er-ace mers |M|=50 seed 1: episode 1/2 epoch 3 13 steps/s  loss 0.500",
        "er-ace mers |M|=50 seed 1: episode 2/2 epoch 3 13 steps/s AA 75.0 after episode 1 loss 0.500",
    ]


def test_view_name__with_and_without_an_episode() -> None:
    assert view_name({"view": "simclr"}) == "simclr"
    assert view_name({"view": "simclr", "episode": 4}) == "simclr of episode 4"


def test_bars__none_in_a_log(capsys: Any) -> None:
    with bars() as progress:
        assert progress is None
    assert capsys.readouterr() == ("", "")


# ---------------------------------------------------------------- a terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called inside a test: between its fixtures and itself pytest puts its own stream back."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return screen


def shown(screen: Terminal) -> str:
    """What was written, without colours and moves."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())


def test_terminal__one_bar_that_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with bars() as progress:
        assert progress is not None
        told = told_of_views(progress)
        told(learned(1, 4, episode=1))
        told(learned(2, 4, episode=1))
        (task,) = progress.tasks
        assert (task.completed, task.total, task.description) == (2, 4, "simclr of episode 1")
        progress.refresh()
        assert "simclr of episode 1" in shown(screen)
        assert "loss 1.250" in shown(screen)
        told({"episode": 1, "view": "simclr", "entry": "0123456789abcdef", "neighbour accuracy": 0.5})
        assert progress.tasks == []
        told({"view": "dinov2", "epoch": 128, "epochs": 500, "episode": 2})
        (task,) = progress.tasks
        assert (task.completed, task.total, task.description) == (128, 500, "dinov2 of episode 2")
    assert "1/4" not in shown(screen), "no lines of a log"


def test_terminal__a_second_view_takes_the_bar_over(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch)
    with bars() as progress:
        assert progress is not None
        told = told_of_views(progress)
        told(learned(4, 4))
        told({**learned(1, 10), "view": "vicreg"})
        (task,) = progress.tasks
        assert (task.completed, task.total, task.description) == (1, 10, "vicreg")


def test_terminal__waiting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with bars() as progress:
        told_of_views(progress)({"episode": 1, "waiting": "another process is making simclr of 6 images"})
    assert "another process is making simclr of 6 images" in shown(screen)


def test_terminal__a_bar_for_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with bars() as progress:
        assert progress is not None
        display = RunDisplay(progress, CONFIGS)
        assert [task.description for task in progress.tasks] == ["all runs"], "none for a run that is read back"
        display.watch(1)["on_epoch"](trained(2, 1, [0.75]))
        display.pace(Pace(runs=2, run_steps=300, seconds=0.5))
        all_runs, task = progress.tasks
        assert (task.completed, task.total) == (4, 6)
        assert task.description == "2/2 er-ace mers |M|=50 seed 1"
        assert (all_runs.completed, all_runs.total) == (1, 12)
        progress.refresh()
    assert "episode 2/2 epoch 1 13 steps/s AA 75.0 after episode 1" in shown(screen)
    assert "2 side by side, 600 run-steps/s" in shown(screen)


def test_terminal__one_run_has_no_bar_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch)
    with bars() as progress:
        assert progress is not None
        display = RunDisplay(progress, CONFIGS[:1])
        display.pace(Pace(runs=1, run_steps=300, seconds=0.5))
        assert progress.tasks == []
