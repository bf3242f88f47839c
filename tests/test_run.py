"""The episode loop: what it keeps, resumes and repeats."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from keepset.experiment.config import make_config
from keepset.experiment.identity import run_hash
from keepset.experiment.results import CHECKPOINT, FORMER, RunFolder
from keepset.experiment.run import run
from keepset.experiment.world import World
from keepset.learning import LEARNERS
from keepset.learning.plan import batch_sizes, generator_of, plan_epoch
from keepset.learning.resnet import INITIALISATIONS, resnet18, small_net
from keepset.selection import SELECTORS

QUICK: dict[str, Any] = {
    "train": {"epochs": 2},
    "capacity": 12,
    "device": "cpu",
    "simclr": {"epochs": 2, "hidden": 32, "output": 16},
}


@pytest.fixture(autouse=True)
def _checkpoint_after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long writing takes."""
    monkeypatch.setattr("keepset.experiment.world.SAVING_SHARE", 0)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four easy classes of 8 × 8 images in a file: each is bright in a quarter of its own."""
    generator = np.random.default_rng(0)

    def images(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        labels = np.arange(count) % 4
        pictures = generator.integers(0, 90, size=(count, 8, 8))
        for picture, label in zip(pictures, labels, strict=True):
            picture[4 * (label // 2) :][:4, 4 * (label % 2) :][:, :4] += 120
        return pictures.astype(np.uint8), labels

    train, test = images(160), images(80)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, train_images=train[0], train_labels=train[1], test_images=test[0], test_labels=test[1])
    return str(path)


def flags(small: str, **more: Any) -> dict[str, Any]:
    return {**QUICK, "data": {"name": small, "episodes": 2}, **more}


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("learner", LEARNERS)
def test_run__every_learner_with_every_selector(small: str, tmp_path: Path, learner: str, selector: str) -> None:
    config = make_config(flags=flags(small, learner=learner, selector=selector, train={"epochs": 1}))
    result = run(config, tmp_path)
    assert [len(row) for row in result["accuracy"]] == [1, 2]
    assert [sorted(episode) for episode in result["picks"]] == [["0", "1"], ["2", "3"]]
    assert [len(kept["rows"]) for kept in result["picks"][1].values()] == [3, 3]


def test_run__folder_holds_config_result_and_metrics(small: str, tmp_path: Path) -> None:
    config = make_config(flags=flags(small))
    seen: list[Any] = []
    result = run(config, tmp_path, on_epoch=seen.append)
    folder = tmp_path / run_hash(config)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "metrics.jsonl", "result.json", "views"]
    assert json.loads((folder / "result.json").read_text())["accuracy"] == result["accuracy"]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines == [dict(record) for record in seen]
    assert [(line["episode"], line["epoch"]) for line in lines] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert {"train", "embed", "select", "evaluate"} <= set(result["seconds"])
    assert {"keepset", "torch", "numpy", "python", "commit"} <= set(result["versions"])


def test_run__finished_runs_are_read_back_unless_again(small: str, tmp_path: Path) -> None:
    config = make_config(flags=flags(small))
    first = run(config, tmp_path)
    calls: list[Any] = []
    assert run(config, tmp_path, on_epoch=calls.append) == first
    assert not calls
    second = run(config, tmp_path, again=True, on_epoch=calls.append)
    assert len(calls) == 4
    assert second["accuracy"] == first["accuracy"]


def test_run__same_seed_same_bits_whatever_ran_before(small: str, tmp_path: Path) -> None:
    config = make_config(flags=flags(small, learner="er-ace-star"))
    first = run(config, tmp_path / "a")
    torch.manual_seed(99)
    torch.rand(1000)
    run(make_config(flags=flags(small, seed=5)), tmp_path / "b")
    second = run(config, tmp_path / "c")
    assert first["accuracy"] == second["accuracy"]
    assert first["picks"] == second["picks"]
    assert run(make_config(flags=flags(small, seed=1)), tmp_path / "d")["picks"] != first["picks"]


class Stopped(Exception):
    pass


@pytest.mark.parametrize("learner", ["er-ace", "mir", "er-star", "joint", "er with a grown head"])
@pytest.mark.parametrize("epochs_done", [1, 2, 3])
def test_run__resumed_after_any_epoch_ends_with_the_same_bits(
    small: str, tmp_path: Path, learner: str, epochs_done: int
) -> None:
    model = {"head": "grown" if "grown" in learner else "whole"}
    config = make_config(flags=flags(small, learner=learner.split()[0], model=model))
    expected = run(config, tmp_path / "whole")
    count = 0

    def stop(record: Any) -> None:
        nonlocal count
        count += 1
        if count == epochs_done:
            raise Stopped

    with pytest.raises(Stopped):
        run(config, tmp_path / "broken", on_epoch=stop)
    resumed: list[Any] = []
    found = run(config, tmp_path / "broken", on_epoch=resumed.append)
    assert len(resumed) == 4 - epochs_done
    assert found["accuracy"] == expected["accuracy"]
    assert found["picks"] == expected["picks"]


KILLED = """
import json, os, signal, sys, threading
from keepset.experiment.config import make_config
from keepset.experiment.run import run

epochs = int(sys.argv[3])
def count(_):
    global epochs
    epochs -= 1
    if not epochs:  # somewhere in the next epoch
        threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGKILL)).start()

run(make_config(flags=json.loads(sys.argv[1])), sys.argv[2], on_epoch=count)
"""


def test_run__killed_by_the_system_goes_on(small: str, tmp_path: Path) -> None:
    given = flags(small, train={"epochs": 12})
    config = make_config(flags=given)
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    for epochs in (3, 12):  # in the first episode, and in the second
        command = [sys.executable, "-c", KILLED, json.dumps(given), str(tmp_path), str(epochs)]
        assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    found, whole = run(config, tmp_path), run(config, tmp_path / "whole")
    assert found["accuracy"] == whole["accuracy"]
    assert found["picks"] == whole["picks"]
    lines = (tmp_path / run_hash(config) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    trained = [(record["episode"], record["epoch"]) for record in map(json.loads, lines)]
    assert trained == [(episode, epoch) for episode in (1, 2) for epoch in range(1, 13)]


@pytest.mark.parametrize("damage", ["cut", "a flipped bit"])
def test_run__a_damaged_checkpoint_is_named_and_the_former_one_used(damage: str, small: str, tmp_path: Path) -> None:
    config = make_config(flags=flags(small))
    expected = run(config, tmp_path / "whole")

    def stop(record: Any) -> None:
        if (record["episode"], record["epoch"]) == (2, 1):
            raise Stopped

    with pytest.raises(Stopped):
        run(config, tmp_path, on_epoch=stop)
    folder = RunFolder(tmp_path, config)
    content = (folder.path / CHECKPOINT).read_bytes()
    broken = bytearray(content[: len(content) // 2] if damage == "cut" else content)
    broken[-1] ^= 1
    (folder.path / CHECKPOINT).write_bytes(broken)
    progress, _ = folder.resume()
    assert (progress.episode, progress.epoch) == (1, 0)
    assert CHECKPOINT in progress.warnings[0]
    assert not (folder.path / CHECKPOINT).exists(), "a damaged one must not take the place of a good one"
    (folder.path / FORMER).write_bytes(b"")
    with pytest.warns(RuntimeWarning, match=r"checkpoint.*safetensors cannot be read"):
        found = run(config, tmp_path)
    assert found["accuracy"] == expected["accuracy"]


def test_run__a_full_disk_leaves_the_last_good_state(small: str, tmp_path: Path, monkeypatch: Any) -> None:
    config = make_config(flags=flags(small))
    expected = run(config, tmp_path / "whole")
    written = Path.write_bytes
    count = 0

    def full(self: Path, data: Any) -> int:
        nonlocal count
        count += 1
        if count == 3:
            raise OSError(28, "No space left on device")
        return written(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ValueError, match="No space left on device"):
        run(config, tmp_path)
    monkeypatch.undo()
    assert RunFolder(tmp_path, config).resume()[0].epoch > 0
    assert run(config, tmp_path)["accuracy"] == expected["accuracy"]


def train(world: World, number: int) -> None:
    """All epochs of an episode."""
    epochs = world.train(number)
    trainer = next(epochs)
    with contextlib.suppress(StopIteration):
        while True:
            trainer = epochs.send(trainer.train_epoch())


def test_world__memory_before_during_and_after_each_episode(small: str, tmp_path: Path) -> None:
    for learner, new_held in (("er", 0), ("er-ace", 3)):
        config = make_config(flags=flags(small, learner=learner, train={"epochs": 1}))
        world = World(config, RunFolder(tmp_path / learner, config))
        world.begin()
        assert len(world._memory(0)) == 0
        train(world, 0)
        assert len(world.buffer) == 0, "no replay in the first episode"
        chosen = world.select(0, world.embed(0))
        world.keep(0, chosen)
        assert {label: len(world.buffer[label]["row"]) for label in (0, 1)} == {0: 6, 1: 6}
        assert world.buffer[0]["row"].tolist() == world.episodes[0].train_rows[list(chosen[0])].tolist()
        world.evaluate(0)
        world.next_episode(chosen)
        train(world, 1)
        held = {label: len(world.buffer[label]["row"]) for label in world.buffer.classes}
        assert held == ({0: 3, 1: 3, 2: 3, 3: 3} if new_held else {0: 6, 1: 6})
        assert world.buffer[0]["row"].tolist() == world.episodes[0].train_rows[list(chosen[0])[: held[0]]].tolist()
        chosen = world.select(1, world.embed(1))
        world.keep(1, chosen)
        assert {label: len(world.buffer[label]["row"]) for label in world.buffer.classes} == dict.fromkeys(range(4), 3)
        assert world.buffer[2]["row"].tolist() == world.episodes[1].train_rows[list(chosen[2])].tolist()


@pytest.mark.parametrize("initialisation", INITIALISATIONS)
@pytest.mark.parametrize("name", ["small", "resnet18"])
def test_world__its_network_begins_as_the_settings_say(
    small: str, tmp_path: Path, name: str, initialisation: str
) -> None:
    model = {"name": name, "width": 8, "initialisation": initialisation}
    config = make_config(flags=flags(small, seed=5, model=model))
    found = World(config, RunFolder(tmp_path, config)).model.state_dict()
    build: Any = small_net if name == "small" else functools.partial(resnet18, width=8)
    wanted = build(4, channels=1, generator=generator_of(5, "model"), initialisation=initialisation).state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[each], wanted[each]) for each in wanted)


def test_world__a_grown_head_has_units_drawn_as_their_classes_come(small: str, tmp_path: Path) -> None:
    """Steps of no length leave them as they were drawn."""
    still = {"train": {"epochs": 1}, "learning": {"rate": 1e-30}}
    worlds = {}
    for head, seed in (("whole", 0), ("grown", 0), ("grown", 1)):
        config = make_config(flags=flags(small, selector="random", model={"head": head}, seed=seed, **still))
        worlds[head, seed] = World(config, RunFolder(tmp_path / head, config))
        worlds[head, seed].begin()
    whole, grown, other = (world.model.head.state_dict() for world in worlds.values())
    for number in (0, 1):
        for world in worlds.values():
            train(world, number)
            chosen = world.select(number, world.embed(number))
            world.keep(number, chosen)
            world.evaluate(number)
            world.next_episode(chosen)
        for name in whole:
            assert torch.equal(whole[name][:2], grown[name][:2]), "those that are there stay"
            assert torch.equal(whole[name][2:], grown[name][2:]) == (number == 0)
    assert not torch.equal(grown["weight"][2:], other["weight"][2:]), "each seed draws its own"


def test_run__replay_beats_finetune_and_stays_below_joint(tmp_path: Path) -> None:
    reached = {}
    for learner in ("finetune", "er-ace", "joint"):
        flags = {"learner": learner, "selector": "maxherding", "capacity": 50, "device": "cpu"}
        config = make_config("fast", flags={**flags, "train": {"epochs": 3}})
        reached[learner] = run(config, tmp_path)["metrics"]["FAA"]
    assert reached["finetune"] + 0.2 < reached["er-ace"] < reached["joint"]
    assert reached["joint"] > 0.9


def test_run__an_own_view_by_import_path(small: str, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "my_views.py").write_text("def halves(images):\n    return images.flatten(1)[:, ::2].float() + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = run(make_config(flags=flags(small, views=["supervised", "my_views:halves"])), tmp_path)
    assert set(result["picks"][0]["0"]["weights"]) == {"supervised", "my_views:halves"}
    with pytest.raises(ValueError, match="has no function 'thirds'"):
        make_config(flags=flags(small, views=["my_views:thirds"]))


@pytest.mark.parametrize(("epochs", "first_late"), [(1, 1), (5, 4), (10, 7), (100, 66)], ids=lambda number: str(number))
def test_trainer__rate_drops_once_two_thirds_are_over(small: str, tmp_path: Path, epochs: int, first_late: int) -> None:
    config = make_config(flags=flags(small, train={"epochs": epochs}))
    world = World(config, RunFolder(tmp_path, config))
    rates = [world.trainer.rate(epoch) for epoch in range(epochs)]
    assert rates == [0.01] * first_late + [pytest.approx(0.003)] * (epochs - first_late)


def test_run__again_keeps_the_result_until_the_new_run_can_begin(small: str, tmp_path: Path) -> None:
    file = tmp_path / "moved.npz"
    file.write_bytes(Path(small).read_bytes())
    config = make_config(flags={**flags(small), "data": {"name": str(file), "episodes": 2}})
    result = run(config, tmp_path)
    folder = tmp_path / run_hash(config)
    broken = make_config(flags={**flags(small), "data": {"name": str(file), "episodes": 2}, "train": {"batch": 1000}})
    with pytest.raises(ValueError, match=r"train\.batch must be at most 80, the images of episode 1, got 1000"):
        run(broken, tmp_path, again=True)
    assert json.loads((folder / "result.json").read_text())["accuracy"] == result["accuracy"]
    assert not (tmp_path / run_hash(broken)).exists(), "nothing is written before a run can begin"


def test_run__again_spares_what_is_not_its_own(small: str, tmp_path: Path) -> None:
    config = make_config(flags=flags(small))
    result, folder = run(config, tmp_path), tmp_path / run_hash(config)
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".result.json.x1.json").touch()
    assert run(config, tmp_path, again=True)["accuracy"] == result["accuracy"]
    assert (folder / ".ipynb_checkpoints").is_dir()
    assert not (folder / ".result.json.x1.json").exists(), "left by a write that was killed"


@pytest.mark.parametrize("line", [b"3", b"{}", b"[1, 2]", b"\xff\xfe", b'{"episode": "x", "epoch": 1}'])
def test_run__a_damaged_record_is_forgotten(small: str, tmp_path: Path, line: bytes) -> None:
    config = make_config(flags=flags(small))
    folder = tmp_path / run_hash(config)

    def damage(_: Any) -> None:
        with (folder / "metrics.jsonl").open("ab") as file:
            file.write(line + b"\n")
        raise Stopped

    with pytest.raises(Stopped):
        run(config, tmp_path, on_epoch=damage)
    run(config, tmp_path)
    records = [json.loads(each) for each in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(record["episode"], record["epoch"]) for record in records] == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_run_hash__follows_the_content_of_a_file_and_not_its_place(small: str, tmp_path: Path) -> None:
    copy = tmp_path / "small.npz"
    copy.write_bytes(Path(small).read_bytes())
    first = run_hash(make_config(flags={"data": {"name": small, "episodes": 2}}))
    assert run_hash(make_config(flags={"data": {"name": str(copy), "episodes": 2}})) == first
    copy.write_bytes(Path(small).read_bytes() + b" ")
    assert run_hash(make_config(flags={"data": {"name": str(copy), "episodes": 2}})) != first


def test_plan__memory_draws_are_endless_passes_and_candidates_a_subset() -> None:
    new, memory = torch.arange(100), torch.arange(1000, 1012)

    def drawn(held: int, epoch: int) -> list[torch.Tensor]:
        sizes = batch_sizes(10, (10, 50), held)
        plan = plan_epoch(new, memory[:held], sizes, padding=1, flip=False, seed=(0,), epoch=epoch)
        assert sorted(plan.rows[:, :10].flatten().tolist()) == list(range(100)), "each new image once"
        return list(plan.rows.split(sizes, dim=1)[1:])

    plan = drawn(12, 0)
    assert [rows.shape for rows in plan] == [(10, 10), (10, 12)]
    first = plan[0].flatten().tolist()
    assert sorted(first[:12]) == sorted(first[12:24]) == memory.tolist(), "each once before any comes again"
    assert all(sorted(rows.tolist()) == memory.tolist() for rows in plan[1])
    later = drawn(12, 1)[0].flatten().tolist()
    assert sorted([*first[96:], *later[:8]]) == memory.tolist(), "the pass goes on over the end of an epoch"
    assert [rows.shape for rows in drawn(3, 0)] == [(10, 10), (10, 10)]
    assert batch_sizes(10, (10, 50), 0) == (10,), "nothing is drawn from an empty memory"


def test_run__fixed_quota_gives_each_class_its_share_of_all_classes(small: str, tmp_path: Path) -> None:
    result = run(make_config(flags=flags(small, quota="fixed")), tmp_path)
    assert [len(kept["rows"]) for episode in result["picks"] for kept in episode.values()] == [3, 3, 3, 3]
    with pytest.raises(ValueError, match=r"capacity must be at least 4 \(one a class\) with quota=fixed, got 3"):
        run(make_config(flags=flags(small, quota="fixed", capacity=3)), tmp_path)


def test_run__inside_no_grad_trains_all_the_same(small: str, tmp_path: Path) -> None:
    config = make_config(flags=flags(small))
    expected = run(config, tmp_path / "plain")
    with torch.no_grad():
        found = run(config, tmp_path / "inside")
    assert found["accuracy"] == expected["accuracy"]


@pytest.mark.parametrize("shape", [(1, 8), (8, 1)])
def test_images__one_pixel_wide_are_refused_at_once(tmp_path: Path, shape: tuple[int, int]) -> None:
    images, labels = np.zeros((20, *shape), np.uint8), np.arange(20) % 2
    file = str(tmp_path / "thin.npz")
    np.savez(file, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    with pytest.raises(ValueError, match=r"images must have 2 pixels a side or more, got \d x \d"):
        run(make_config(flags=flags(file)), tmp_path)


@pytest.mark.parametrize(
    ("learner", "sizes", "refused"),
    [
        ("er", {"train": {"batch": 1}}, True),
        ("er-ace", {"learning": {"memory_batch": 1}}, True),
        ("er-star", {"learning": {"memory_batch": 1}}, True),
        ("er", {"learning": {"memory_batch": 1}}, False),
        ("er-ace", {}, False),
    ],
)
def test_batches__of_one_image_that_batch_norm_cannot_take_are_refused_at_once(
    small: str, tmp_path: Path, learner: str, sizes: Any, refused: bool
) -> None:
    given = flags(small, learner=learner, model={"name": "resnet18", "width": 4}, selector="random")
    config = make_config(flags={**given, **sizes, "train": {"epochs": 1, **sizes.get("train", {})}})
    if refused:
        with pytest.raises(ValueError, match="a batch of 1 image of 8 x 8 pixels leaves batch normalisation one value"):
            run(config, tmp_path)
        assert not list(tmp_path.glob("*")), "nothing is written before a run can begin"
    else:
        assert run(config, tmp_path)["accuracy"]
