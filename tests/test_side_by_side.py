"""Many runs of one command: each as it is alone, a first episode trained once, and failures that stay their own."""

import contextlib
import gc
import json
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from keepset import cli
from keepset.experiment.config import RunConfig, make_config
from keepset.experiment.identity import run_hash
from keepset.experiment.results import RunFolder
from keepset.experiment.run import run
from keepset.experiment.shared import first_key
from keepset.experiment.side_by_side import Failure, Pace, run_all
from keepset.learning import fleet
from keepset.learning.stack import Stacks
from keepset.learning.trainer import Trainer

SHARE = "keepset.experiment.world.SAVING_SHARE"  # of the time between checkpoints; 0: one after every epoch


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four classes of 8 × 8 images, each bright in a quarter of its own."""
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 4
    images = generator.integers(0, 90, size=(120, 8, 8))
    for image, label in zip(images, labels, strict=True):
        image[4 * (label // 2) :][:4, 4 * (label % 2) :][:, :4] += 120
    images = images.astype(np.uint8)
    file = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(file, train_images=images[:80], train_labels=labels[:80], test_images=images[80:], test_labels=labels[80:])
    return str(file)


def config(file: str, episodes: int = 2, order: int | str = "canonical", **more: Any) -> RunConfig:
    data = {"name": file, "episodes": episodes, "order": order}
    given = {"data": data, "train": {"epochs": 2}, "capacity": 8, "device": "cpu", "learner": "er"}
    return make_config(flags={**given, "views": ["supervised", "pixels"], **more})


MIX: list[dict[str, Any]] = [
    {"learner": "er-ace", "selector": "mers"},
    {"learner": "er-ace", "selector": "mers", "seed": 1},
    {"learner": "er-ace-star", "selector": "random"},
    {"learner": "er", "selector": "rainbow", "capacity": 12},
    {"learner": "mir", "selector": "maxherding:pixels"},
    {"learner": "er", "selector": "rainbow", "capacity": 6, "train": {"epochs": 3}},
    {"learner": "joint", "selector": "random", "episodes": 4},
]


def mixed(data: str) -> list[RunConfig]:
    return [config(data, **more) for more in MIX]


def records(out: Path, each: RunConfig) -> list[dict[str, Any]]:
    path = out / run_hash(each) / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbers(out: Path, each: RunConfig) -> dict[str, Any]:
    """All that a run tells but for its seconds, the losses of its epochs included."""
    result = json.loads((out / run_hash(each) / "result.json").read_text())
    lines = [(line["episode"], line["epoch"], line["loss"], line["rate"]) for line in records(out, each)]
    return {**{name: result[name] for name in ("accuracy", "AA", "metrics", "picks", "views")}, "losses": lines}


@pytest.fixture(scope="module")
def alone(data: str, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The numbers of each run of the mix by itself."""
    out = tmp_path_factory.mktemp("alone")
    for each in mixed(data):
        run(each, out)
    return [numbers(out, each) for each in mixed(data)]


def finished(outcomes: Sequence[Any]) -> list[bool]:
    return [not isinstance(outcome, Failure) for outcome in outcomes]


class Raised(Exception):
    """Neither an error of ours nor of torch."""


Told = dict[str, Callable[[Any], None]]


def raises_at(error: BaseException, number: int, episode: int, epoch: int) -> Callable[[int], Told]:
    """Watchers of which that of one run raises after an epoch."""

    def watch(which: int) -> Told:
        def told(record: Any) -> None:
            if which == number and (record["episode"], record["epoch"]) == (episode, epoch):
                raise error

        return {"on_epoch": told}

    return watch


# ---------------------------------------------------------------- as alone


def test_run_all__data_that_change_meanwhile_are_not_taken_for_the_new_ones(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run would be trained on what was loaded for the first, and lie in the folder of what is there now."""
    file, finish = tmp_path / "mine.npz", RunFolder.finish
    file.write_bytes(Path(data).read_bytes())
    configs = [config(str(file), seed=seed) for seed in (0, 1)]
    before = [run_hash(each) for each in configs]

    def changing(folder: RunFolder, progress: Any) -> dict[str, Any]:
        arrays = dict(np.load(data))
        np.savez(file, **{**arrays, "test_labels": arrays["test_labels"][::-1]})
        return finish(folder, progress)

    monkeypatch.setattr(RunFolder, "finish", changing)
    first, second = run_all(configs, tmp_path / "runs", side_by_side=1)
    assert isinstance(second, Failure)
    assert not isinstance(first, Failure)
    assert "mine.npz changed since the first run began; the same command does" in str(second.error)
    assert [path.parent.name for path in (tmp_path / "runs").glob("*/result.json")] == before[:1]


@pytest.mark.parametrize("side_by_side", [1, 2, 3, 8, "auto"])
def test_run_all__every_run_as_alone(data: str, alone: Any, tmp_path: Path, side_by_side: int | str) -> None:
    configs = mixed(data)
    results = run_all(configs, tmp_path, side_by_side=side_by_side)
    assert [numbers(tmp_path, each) for each in configs] == alone
    assert [result["picks"] for result in results if not isinstance(result, Failure)] == [n["picks"] for n in alone]
    assert not list(tmp_path.glob("*/checkpoint*"))


def test_run_all__order_of_the_configs_changes_only_that_of_the_results(data: str, alone: Any, tmp_path: Path) -> None:
    configs = mixed(data)[::-1]
    results = run_all(configs, tmp_path, side_by_side=3)
    assert [result["accuracy"] for result in results if isinstance(result, dict)] == [
        expected["accuracy"] for expected in alone[::-1]
    ]


def test_run_all__finished_runs_are_read_back_unless_again(data: str, alone: Any, tmp_path: Path) -> None:
    configs, calls = mixed(data)[:4], Counter[int]()

    def watch(number: int) -> Told:
        return {"on_epoch": lambda _: calls.update([number])}

    kept = [run(configs[place], tmp_path) for place in (1, 3)]
    results = run_all(configs, tmp_path, side_by_side=2, watch=watch)
    assert [results[1], results[3]] == kept
    assert calls == {0: 4, 2: 4}, "a watcher is told its own run's epochs"
    assert run_all(configs, tmp_path, side_by_side=2, watch=watch) == results
    assert calls.total() == 8
    run_all(configs, tmp_path, side_by_side=2, watch=watch, again=True)
    assert calls == {0: 8, 1: 4, 2: 8, 3: 4}
    assert [numbers(tmp_path, each) for each in configs] == alone[:4]


def test_run_all__nothing_to_run(tmp_path: Path) -> None:
    assert run_all([], tmp_path) == []


def test_run_all__inside_no_grad_trains_all_the_same(data: str, alone: Any, tmp_path: Path) -> None:
    with torch.no_grad():
        run_all(mixed(data)[:3], tmp_path, side_by_side=3)
    assert [numbers(tmp_path, each) for each in mixed(data)[:3]] == alone[:3]


@pytest.mark.parametrize("wrong", [0, -1, 2000, "many", 1.5, True, [2, 3]])
def test_run_all__a_number_that_is_none_is_refused_before_anything_is_written(
    data: str, tmp_path: Path, wrong: Any
) -> None:
    with pytest.raises(ValueError, match=r"side_by_side must be (in 1\.\.1024 \(runs at a time, or auto\)|a whole)"):
        run_all(mixed(data), tmp_path, side_by_side=wrong)
    assert not list(tmp_path.iterdir())


def test_run_all__tells_its_pace(data: str, tmp_path: Path) -> None:
    """Two seeds of 4 steps an epoch; the longer one is alone in the end."""
    configs = [config(data), config(data, seed=1, train={"epochs": 3})]
    paces: list[Pace] = []
    run_all(configs, tmp_path, side_by_side=2, on_pace=paces.append)
    assert [(pace.runs, pace.run_steps) for pace in paces] == [(2, 8)] * 4 + [(1, 4)] * 2
    assert all(pace.seconds > 0 for pace in paces)


def test_run_all__no_more_at_a_time_than_asked_for(data: str, tmp_path: Path) -> None:
    paces: list[Pace] = []
    run_all([config(data, seed=seed) for seed in range(5)], tmp_path, side_by_side=2, on_pace=paces.append)
    assert [pace.runs for pace in paces] == [2] * 8 + [1] * 4


# ---------------------------------------------------------------- the first episode


def count_steps(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[bool, int]]:
    """Steps taken, by whether there is a memory and by the run's seed."""
    found, step = Counter[tuple[bool, int]](), Trainer._step

    def counted(trainer: Trainer) -> None:
        found[len(trainer.sizes) > 1, int(trainer.episode.seed[0])] += 1  # type: ignore[call-overload]
        step(trainer)

    monkeypatch.setattr(Trainer, "_step", counted)
    return found


@pytest.mark.parametrize("side_by_side", [1, 2, 4])
def test_first_episode__is_trained_once_for_runs_that_agree_on_it(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side_by_side: int
) -> None:
    steps = count_steps(monkeypatch)
    configs = [config(data, selector=name, seed=seed) for seed in (0, 1) for name in ("random", "mers", "closest")]
    run_all(configs, tmp_path, side_by_side=side_by_side)
    assert steps == {(False, 0): 8, (False, 1): 8, (True, 0): 24, (True, 1): 24}
    taken = [[bool(line.get("shared")) for line in records(tmp_path, each)] for each in configs]
    assert taken == 2 * [[False] * 4, *2 * [[True, True, False, False]]]


def test_first_episode__runs_of_equal_rate_share_it(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("er-ace", "er-ace-star", "er-star", "er", "mir", "joint", "finetune")
    run_all([config(data, learner=name, selector="random") for name in names], tmp_path / "all", side_by_side=3)
    for name in names:
        each = config(data, learner=name, selector="random")
        run(each, tmp_path / "alone")
        assert numbers(tmp_path / "all", each) == numbers(tmp_path / "alone", each), name
        shared = "shared" in records(tmp_path / "all", each)[0]
        assert shared == (name not in ("er-ace", "er")), name


@pytest.mark.parametrize(
    ("more", "same"),
    [
        ({"learner": "mir"}, True),
        ({"selector": "random"}, True),
        ({"capacity": 20, "quota": "fixed"}, True),
        ({"views": ["pixels"]}, True),
        ({"learning": {"memory_batch": 3}}, True),
        ({"learner": "er-ace", "learning": {"rate": 0.1}}, True),
        ({"learner": "er-ace"}, False),
        ({"learning": {"rate": 0.2}}, False),
        ({"seed": 1}, False),
        ({"train": {"epochs": 3}}, False),
        ({"train": {"epochs": 2, "precision": "bfloat16"}}, False),
        ({"model": {"name": "resnet18"}}, False),
        ({"model": {"initialisation": "torch"}}, False),
        ({"model": {"head": "grown"}}, True),
        ({"order": 3}, False),
        ({"episodes": 4}, False),
    ],
    ids=str,
)
def test_first_key__what_the_first_episode_depends_on(data: str, more: dict[str, Any], same: bool) -> None:
    assert (first_key(config(data, **more)) == first_key(config(data))) == same


@pytest.mark.parametrize("side_by_side", [1, 3])
def test_first_episode__if_the_run_that_trains_it_fails_another_takes_over(
    data: str, tmp_path: Path, side_by_side: int
) -> None:
    configs, error = [config(data, selector=name) for name in ("random", "mers", "closest")], Raised()
    watch = raises_at(error, 0, 1, 1)
    outcomes = run_all(configs, tmp_path, side_by_side=side_by_side, watch=watch)
    assert outcomes[0] == Failure(configs[0], error)
    for each in configs[1:]:
        run(each, tmp_path / "alone")
        assert numbers(tmp_path, each) == numbers(tmp_path / "alone", each)
    assert ["shared" in records(tmp_path, each)[0] for each in configs[1:]] == [False, True]


def test_first_episode__resumed_in_its_middle(
    data: str, alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two has an epoch behind it: it goes on from there, in front of the other or after it."""
    monkeypatch.setattr(SHARE, 0)
    configs = [config(data, learner="er-ace", selector=name) for name in ("mers", "random")]
    with pytest.raises(Raised):
        run(configs[0], tmp_path, on_epoch=raises_at(Raised(), 0, 1, 1)(0)["on_epoch"])
    for order in (configs, configs[::-1]):
        out = tmp_path / order[0].selector
        out.mkdir()
        before = tmp_path / run_hash(configs[0])
        (out / before.name).mkdir()
        for file in before.iterdir():
            (out / before.name / file.name).write_bytes(file.read_bytes())
        run_all(order, out, side_by_side=2)
        assert numbers(out, configs[0]) == alone[0]
        run(configs[1], tmp_path / "alone")
        assert numbers(out, configs[1]) == numbers(tmp_path / "alone", configs[1])
        assert [(line["episode"], line["epoch"]) for line in records(out, configs[0])] == [
            (1, 1),
            (1, 2),
            (2, 1),
            (2, 2),
        ]


# ---------------------------------------------------------------- failures


def test_failure__a_loss_that_is_no_number(data: str, alone: Any, tmp_path: Path) -> None:
    broken = config(data, learner="er-ace", learning={"rate": 1e30})
    configs = [*mixed(data)[:1], broken, *mixed(data)[1:3]]
    outcomes = run_all(configs, tmp_path, side_by_side=4)
    assert finished(outcomes) == [True, False, True, True]
    assert isinstance(failure := outcomes[1], Failure)
    assert failure.config == broken
    assert "after epoch 1 of episode 1; lower learning.rate" in str(failure.error)
    assert [numbers(tmp_path, each) for each in mixed(data)[:3]] == alone[:3]


def test_failure__data_that_cannot_be_read(data: str, tmp_path: Path) -> None:
    (tmp_path / "torn.npz").write_bytes(Path(data).read_bytes()[:500])
    names = [str(tmp_path / "none.npz"), data, str(tmp_path / "torn.npz")]
    outcomes = run_all([config(name) for name in names], tmp_path / "runs", side_by_side=2)
    assert finished(outcomes) == [False, True, False]
    for outcome, name in zip(outcomes, names, strict=True):
        assert not isinstance(outcome, Failure) or Path(name).name in str(outcome.error)
    assert len(list((tmp_path / "runs").iterdir())) == 1, "a run that cannot begin writes nothing"


def test_failure__a_batch_larger_than_an_episode(data: str, tmp_path: Path) -> None:
    outcomes = run_all([config(data, train={"batch": 50}), config(data, train={"epochs": 1})], tmp_path)
    assert finished(outcomes) == [False, True]


def test_failure__an_own_view_that_raises_in_the_second_episode(
    data: str, alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "calls = []\ndef fragile(images):\n    calls.append(1)\n    if len(calls) == 2: raise KeyError('gone')\n"
    (tmp_path / "fragile_views.py").write_text(text + "    return images.flatten(1).float()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    broken = config(data, learner="er-ace", selector="maxherding", views=["fragile_views:fragile"])
    configs = [broken, *mixed(data)[:3]]
    outcomes = run_all(configs, tmp_path / "runs", side_by_side=3)
    assert finished(outcomes) == [False, True, True, True]
    assert isinstance(failure := outcomes[0], Failure)
    assert "gone" in str(failure.error)
    assert [numbers(tmp_path / "runs", each) for each in configs[1:]] == alone[:3]
    later = run_all(configs, tmp_path / "runs", side_by_side=3)
    assert finished(later) == [True] * 4
    run(broken, tmp_path / "alone")
    assert numbers(tmp_path / "runs", broken) == numbers(tmp_path / "alone", broken), "it goes on where it failed"


def out_of_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second step of all fails; runs that wait for ever are found out."""
    step, train_epoch, count = Trainer._step, fleet.train_epoch, Counter[str]()

    def fragile(trainer: Trainer) -> None:
        count["steps"] += 1
        if count["steps"] == 2:
            raise torch.cuda.OutOfMemoryError("out of memory")
        step(trainer)

    def bounded(trainers: Sequence[Trainer], stacks: Stacks | None = None) -> list[float | Exception]:
        count["epochs"] += 1
        if count["epochs"] > 100:
            pytest.fail("runs wait for ever")
        return train_epoch(trainers, stacks)

    monkeypatch.setattr(Trainer, "_step", fragile)
    monkeypatch.setattr(fleet, "train_epoch", bounded)


@pytest.mark.parametrize("side_by_side", [1, 2])
def test_failure__a_step_out_of_memory(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side_by_side: int
) -> None:
    configs = [config(data, selector="random", seed=seed) for seed in (0, 1)]
    out_of_memory_once(monkeypatch)
    outcomes = run_all(configs, tmp_path, side_by_side=side_by_side)
    assert finished(outcomes).count(False) == 1
    (failure,) = (outcome for outcome in outcomes if isinstance(outcome, Failure))
    assert isinstance(failure.error, torch.cuda.OutOfMemoryError)
    monkeypatch.undo()
    assert finished(run_all(configs, tmp_path)) == [True, True], "it can be taken up again"


@pytest.mark.parametrize("side_by_side", [1, 2])
def test_failure__out_of_memory_in_a_first_episode_that_others_wait_for(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side_by_side: int
) -> None:
    configs = [config(data, selector=name) for name in ("random", "mers", "closest")]
    out_of_memory_once(monkeypatch)
    outcomes = run_all(configs, tmp_path, side_by_side=side_by_side)
    assert finished(outcomes) == [False, True, True]
    for each in configs[1:]:
        run(each, tmp_path / "alone")
        assert numbers(tmp_path, each) == numbers(tmp_path / "alone", each)


def test_failure__lets_go_of_the_run(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed run holds of the GPU is needed by those after it."""
    made: list[weakref.ref[Trainer]] = []
    start = Trainer.__init__

    def noted(trainer: Trainer, *given: Any) -> None:
        made.append(weakref.ref(trainer))
        start(trainer, *given)

    monkeypatch.setattr(Trainer, "__init__", noted)
    out_of_memory_once(monkeypatch)
    outcomes = run_all([config(data, selector="random", seed=seed) for seed in (0, 1)], tmp_path, side_by_side=1)
    assert finished(outcomes) == [False, True]
    gc.collect()
    assert [trainer() for trainer in made] == [None, None]


def test_failure__a_result_that_cannot_be_written(
    data: str, alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs, finish = mixed(data)[:3], RunFolder.finish

    def full(folder: RunFolder, progress: Any) -> dict[str, Any]:
        if folder.config == configs[0]:
            raise ValueError("cannot write result.json: No space left on device")
        return finish(folder, progress)

    monkeypatch.setattr(RunFolder, "finish", full)
    assert finished(run_all(configs, tmp_path, side_by_side=2)) == [False, True, True]
    assert [numbers(tmp_path, each) for each in configs[1:]] == alone[1:3]


def test_run_all__a_run_that_is_named_twice(data: str, alone: Any, tmp_path: Path) -> None:
    """It may be refused or run once, but not twice into one folder."""
    first = mixed(data)[0]
    with contextlib.suppress(ValueError):
        run_all([first, first], tmp_path, side_by_side=2)
        assert numbers(tmp_path, first) == alone[0]


# ---------------------------------------------------------------- broken off


@pytest.mark.parametrize("share", [0, 1e9], ids=["saved-every-epoch", "saved-seldom"])
@pytest.mark.parametrize(("number", "episode", "epoch"), [(0, 1, 1), (2, 1, 2), (0, 2, 1), (2, 2, 2)])
def test_break__goes_on_with_the_same_bits(
    data: str,
    alone: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    episode: int,
    epoch: int,
    share: float,
) -> None:
    monkeypatch.setattr(SHARE, share)
    configs = mixed(data)[:5]
    watch = raises_at(KeyboardInterrupt(), number, episode, epoch)
    with pytest.raises(KeyboardInterrupt):
        run_all(configs, tmp_path, side_by_side=3, watch=watch)
    assert not (tmp_path / run_hash(configs[number]) / "result.json").exists()
    assert finished(run_all(configs, tmp_path, side_by_side=2)) == [True] * 5
    assert [numbers(tmp_path, each) for each in configs] == alone[:5]


@pytest.mark.parametrize(("share", "saves"), [(1e12, 1), (0, 2 * 2 + 2)])
def test_checkpoints__after_epochs_and_episodes_as_long_as_they_pay(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, saves: int
) -> None:
    monkeypatch.setattr(SHARE, share)
    save, written = RunFolder.save, Counter[Path]()

    def counted(folder: RunFolder, *rest: Any) -> None:
        written[folder.path] += 1
        save(folder, *rest)

    monkeypatch.setattr(RunFolder, "save", counted)
    run(config(data), tmp_path)
    assert written.total() == saves, "the first one is not known to be dear"


def test_break__a_run_under_way_is_not_begun_anew(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SHARE, 0)
    configs, told = [config(data, seed=seed) for seed in (0, 1)], Counter[int]()
    with pytest.raises(KeyboardInterrupt):
        run_all(configs, tmp_path, side_by_side=2, watch=raises_at(KeyboardInterrupt(), 1, 2, 1))
    run_all(configs, tmp_path, watch=lambda number: {"on_epoch": lambda _: told.update([number])})
    assert told == {0: 1, 1: 1}


# ---------------------------------------------------------------- the command


@pytest.fixture
def call(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keepset", "run", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return command


def quick(data: str, *more: str) -> tuple[str, ...]:
    shape = ("--episodes", "2", "--epochs", "1", "--capacity", "8", "--device", "cpu", "--views", "supervised,pixels")
    return (data, *shape, *more)


def table(out: str) -> list[str]:
    return [line for line in out.splitlines() if "±" in line]


def test_command__the_same_table_side_by_side_and_plain(call: Any, data: str) -> None:
    lists = ("--selector", "random,mers", "--seed", "0,1")
    code, expected, _ = call(*quick(data, *lists))
    assert code == 0
    assert len(table(expected)) == 2
    for number, more in enumerate((["--side-by-side", "2"], ["--side-by-side", "8", "--plain"], ["--plain"])):
        code, out, err = call(*quick(data, *lists, *more, "--out", f"others{number}"))
        assert code == 0
        assert table(out) == table(expected)
        assert err.count("episode 2/2") == 4, "a line for every run"


def test_command__one_of_several_runs_fails(
    call: Any, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def broken(images):\n    raise ValueError('no such luck')\n"
    (tmp_path / "broken_views.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    lists = ("--selector", "random,maxherding:broken_views:broken", "--seed", "0,1", "--side-by-side", "2")
    code, out, err = call(*quick(data, *lists))
    assert code == 2
    assert [line.split()[0] for line in table(out)] == ["random"]
    last = err.splitlines()[-1]
    assert "2 of 4 runs failed" in last
    assert "er-ace maxherding:broken_views:broken |M|=8 seed 1: " in last
    assert "no such luck" in last
    assert "random" not in last
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == 2
    (written,) = re.findall(r"seed 1: .*\((.*error\.txt)\)", last)
    assert "raise ValueError('no such luck')" in Path(written).read_text(encoding="utf-8")


def test_command__if_all_runs_fail_all_are_told(
    call: Any, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_views.py").write_text("def one(images):\n    return 1 / 0\ndef other(images):\n    return 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    code, _, err = call(*quick(data, "--selector", "maxherding:failing_views:one,maxherding:failing_views:other"))
    assert code == 2
    last = err.splitlines()[-1]
    assert "2 of 2 runs failed" in last
    assert "seed 0: ZeroDivisionError: division by zero" in last
    assert "must be a tensor" in last


def test_command__all_fail_is_the_error_itself(call: Any, data: str, tmp_path: Path) -> None:
    code, out, err = call(*quick(data, "--seed", "0,1", "--set", "train.batch=1000"))
    assert (code, out) == (2, "")
    assert err == "keepset: train.batch must be at most 40, the images of episode 1, got 1000\n"


@pytest.mark.parametrize("wrong", ["0", "many", "-3", "2,3", "1.5", ""])
def test_command__a_number_that_is_none(call: Any, data: str, tmp_path: Path, wrong: str) -> None:
    code, _, err = call(*quick(data, "--side-by-side", wrong))
    assert code == 2
    assert "side_by_side must be" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()
