"""Runs that read views of their own making: what they tell, keep, share and take up again."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import keepset
from keepset import cli, embed
from keepset.data import Episode, load, split
from keepset.experiment.config import RunConfig, make_config
from keepset.experiment.identity import run_hash
from keepset.experiment.run import run
from keepset.experiment.side_by_side import run_all
from keepset.experiment.world import World
from keepset.report.kept import read_kept_views
from keepset.selection import select_per_class
from keepset.views import ENCODERS, directed, neighbour_accuracy, pixels, supervised
from keepset.views.cache import Cache, key_of

QUICK: dict[str, Any] = {
    "train": {"epochs": 1},
    "capacity": 8,
    "device": "cpu",
    "simclr": {"epochs": 2, "hidden": 16, "output": 8},
    "vicreg": {"epochs": 2, "hidden": 16, "output": 8},
}


def arrays(channels: int) -> dict[str, Any]:
    """Four classes of 8 x 8 images, each a little brighter in a quarter of its own."""
    generator = np.random.default_rng(0)
    labels = np.arange(80) % 4
    images = generator.integers(0, 90, size=(80, channels, 8, 8))
    for image, label in zip(images, labels, strict=True):
        image[:, 4 * (label // 2) :][:, :4, 4 * (label % 2) :][..., :4] += 15
    images = images.astype(np.uint8)
    return {"train_images": images, "train_labels": labels, "test_images": images[:20], "test_labels": labels[:20]}


@pytest.fixture(autouse=True)
def _checkpoint_after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long writing takes."""
    monkeypatch.setattr("keepset.experiment.world.SAVING_SHARE", 0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, channels in (("grey", 1), ("colour", 3), ("clear", 4)):
        np.savez(folder / f"{name}.npz", **arrays(channels))
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPSET_CACHE", str(tmp_path / "cache"))


def config_of(data: Path, name: str = "grey", **more: Any) -> RunConfig:
    return make_config(flags={**QUICK, "data": {"name": str(data / f"{name}.npz"), "episodes": 2}, **more})


def entries(folder: str | Path = "") -> list[str]:
    return sorted(entry.key for entry in Cache(folder).entries())


def episodes_of(config: RunConfig) -> list[Episode]:
    return split(load(config.data), config.data)


def cached(entry: str) -> Tensor:
    return load_file(Cache().folder / f"{entry}.safetensors")["features"]


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """No view may be trained from here on."""

    def fail(*_: object) -> float:
        raise AssertionError("a view was trained again")

    monkeypatch.setattr("keepset.views.pretrain.Pretrainer.train_epoch", fail)


# ---------------------------------------------------------------- what a run tells


def test_default_views__are_supervised_and_simclr() -> None:
    assert make_config().views == ("supervised", "simclr")
    assert make_config().used_views() == ("supervised", "simclr")


def test_directed__images_that_no_feature_answers_to_get_a_direction_of_their_own() -> None:
    features = torch.tensor([[3.0, 0], [0, 0], [0, 2], [0, 0]])
    found = directed(features)
    assert found.tolist() == [[3, 0, 0], [0, 0, 1], [0, 2, 0], [0, 0, 1]]
    assert directed(features[::2]).tolist() == [[3, 0], [0, 2]], "as they are"
    assert keepset.select(found, 3, method="maxherding")


def test_run__of_blank_images_which_no_view_tells_apart(tmp_path: Path) -> None:
    """A class an episode, so that each encoder sees the same image again and again."""
    labels = np.repeat([0, 1], 20)
    images = np.zeros((40, 8, 8), np.uint8)
    np.savez(tmp_path / "blank.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    for view in ("simclr", "vicreg"):
        config = config_of(tmp_path, "blank", views=["supervised", view])
        assert len(run(config, tmp_path)["picks"]) == 2


def test_run__an_episode_of_one_image(tmp_path: Path) -> None:
    labels = np.array([0] * 6 + [1] * 6 + [2])
    images = np.random.default_rng(0).integers(0, 255, size=(13, 8, 8)).astype(np.uint8)
    np.savez(tmp_path / "one.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    given: dict[str, Any] = {"data": {"name": str(tmp_path / "one.npz"), "episodes": [2, 1]}, "train": {"batch": 1}}
    result = run(make_config(flags={**QUICK, **given, "views": ["supervised", "pixels"]}), tmp_path)
    assert [told["pixels"]["neighbour accuracy"] is None for told in result["views"]] == [False, True]
    with pytest.raises(ValueError, match="the view simclr is learned from 2 images or more, episode 2 has 1"):
        run(make_config(flags={**QUICK, **given}), tmp_path)


@pytest.mark.parametrize("selector", ["mers", "herding", "teal", "probcover"])
def test_run__goes_on_with_a_learner_that_answers_to_few_images(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, selector: str
) -> None:
    def few(*given: Any, **more: Any) -> Tensor:
        found: Tensor = embed(*given, **more)
        return found * (torch.arange(40) % 7 == 0)[:, None]

    monkeypatch.setitem(supervised.__globals__, "embed", few)
    result = run(config_of(data, views=["supervised", "pixels"], selector=selector), tmp_path)
    assert [len(chosen["rows"]) for episode in result["picks"] for chosen in episode.values()] == [4, 4, 2, 2]


@pytest.mark.parametrize("name", ["grey", "colour"])
def test_result__tells_entry_and_quality_of_every_view(data: Path, tmp_path: Path, name: str) -> None:
    config = config_of(data, name, views=["supervised", "simclr", "vicreg"])
    told = run(config, tmp_path)["views"]
    assert [list(episode) for episode in told] == [["supervised", "simclr", "vicreg"]] * 2
    mirrored = name == "colour"
    for number, episode in enumerate(episodes_of(config)):
        kept, _ = read_kept_views(tmp_path / run_hash(config), number + 1)
        assert told[number]["supervised"]["entry"] is None
        own = neighbour_accuracy(kept["supervised"], episode.train_labels)
        assert told[number]["supervised"]["neighbour accuracy"] == pytest.approx(own, abs=0.06)
        for view in ("simclr", "vicreg"):
            settings = getattr(config, view)
            flip = settings.augmentation.flip if mirrored else 0.0
            augmentation = dataclasses.replace(settings.augmentation, flip=flip)
            settings = dataclasses.replace(settings, augmentation=augmentation)
            recipe = ENCODERS[view].recipe(settings, torch.device("cpu"))
            assert told[number][view]["entry"] == key_of(episode.train_images, recipe)
            quality = neighbour_accuracy(cached(told[number][view]["entry"]), episode.train_labels)
            assert told[number][view]["neighbour accuracy"] == quality < 1
    assert len(entries()) == 4


def test_on_view__every_epoch_and_then_the_quality(data: Path, tmp_path: Path) -> None:
    told: list[Mapping[str, Any]] = []
    result = run(config_of(data), tmp_path, on_view=told.append)
    steps = [(record["episode"], record["view"], record.get("epoch")) for record in told]
    assert steps == [
        (number, *step)
        for number in (1, 2)
        for step in [("supervised", None), ("simclr", 1), ("simclr", 2), ("simclr", None)]
    ]
    assert [record["entry"] for record in told if "entry" in record and record["view"] == "simclr"] == entries_of(
        result
    )


def entries_of(result: Mapping[str, Any]) -> list[str]:
    return [episode["simclr"]["entry"] for episode in result["views"]]


def test_a_selector_without_views__makes_and_tells_none(data: Path, tmp_path: Path) -> None:
    config = config_of(data, selector="random")
    assert run(config, tmp_path)["views"] == [{}, {}]
    assert entries() == []
    assert not (tmp_path / run_hash(config) / "views").exists()


# ---------------------------------------------------------------- made once


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"learner": "er"},
        {"selector": "maxherding:simclr"},
        {"capacity": 12},
        {"train": {"epochs": 2}},
        {"options": {"weights": "equal"}},
    ],
    ids=str,
)
def test_another_run__reads_the_views_of_the_first(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    first = run(config_of(data), tmp_path)
    before = entries()
    assert len(before) == 2
    forbid(monkeypatch)
    assert run_hash(config_of(data, **change)) != run_hash(config_of(data))
    assert entries_of(run(config_of(data, **change), tmp_path)) == entries_of(first)
    assert entries() == before


@pytest.mark.parametrize("mixed", [False, True])
def test_runs_side_by_side__read_a_view_once_an_episode(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mixed: bool
) -> None:
    configs = [config_of(data, selector="maxherding:simclr"), config_of(data), config_of(data, seed=1)]
    if mixed:  # with views of the same name that are others: of other settings, and of other episodes
        ordered = make_config(flags={**QUICK, "data": {"name": str(data / "grey.npz"), "episodes": 2, "order": 42}})
        configs[1:1] = [config_of(data, simclr={**QUICK["simclr"], "seed": 1}), ordered]
    alone = [run(config, tmp_path / "alone") for config in configs]
    get, looked = Cache.get, list[str]()

    def look(cache: Cache, images: Tensor, recipe: Any, *rest: Any) -> Any:
        looked.append(key_of(images, recipe))
        return get(cache, images, recipe, *rest)

    monkeypatch.setattr(Cache, "get", look)
    together = run_all(configs, tmp_path / "together", side_by_side=4)
    for name in ("views", "picks"):
        assert [each[name] for each in together if isinstance(each, dict)] == [each[name] for each in alone]
    assert set(looked) == set(entries())
    assert mixed or len(looked) == 2


def test_another_setting_of_the_view__is_another_view(data: Path, tmp_path: Path) -> None:
    first = run(config_of(data), tmp_path)
    second = run(config_of(data, simclr={**QUICK["simclr"], "seed": 1}), tmp_path)
    assert not set(entries_of(first)) & set(entries_of(second))
    assert len(entries()) == 4


def test_the_cache__is_where_the_config_says(data: Path, tmp_path: Path) -> None:
    config = config_of(data, cache=str(tmp_path / "elsewhere"))
    run(config, tmp_path)
    assert len(entries(tmp_path / "elsewhere")) == 2
    assert not (tmp_path / "cache").exists()
    assert run_hash(config) == run_hash(config_of(data)), "where views lie changes no number"


def test_a_cache_that_cannot_be_written_to__is_refused_before_training(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    nowhere = str(tmp_path / "file" / "views")
    with pytest.raises(ValueError, match=r"cannot write to the cache in .*views: Not a directory.*\$KEEPSET_CACHE"):
        run(config_of(data, cache=nowhere), tmp_path / "runs", on_epoch=lambda _: pytest.fail("trained"))
    assert not (tmp_path / "runs").exists()
    assert run(config_of(data, cache=nowhere, selector="maxherding"), tmp_path)["picks"], "which needs no cache"


def test_a_cache_that_cannot_be_written_to__serves_where_it_holds_all_that_is_wanted(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(config_of(data), tmp_path)

    def refuse(**_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("keepset.views.cache.tempfile.TemporaryFile", refuse)
    assert run(config_of(data, seed=1), tmp_path)["picks"]
    with pytest.raises(ValueError, match=r"cannot write to the cache in .*: Read-only file system"):
        run(config_of(data, simclr={**QUICK["simclr"], "seed": 1}), tmp_path)


def test_maxherding_of_simclr__selects_by_the_cached_view(data: Path, tmp_path: Path) -> None:
    config = config_of(data, selector="maxherding:simclr")
    result = run(config, tmp_path)
    assert [list(episode) for episode in result["views"]] == [["simclr"], ["simclr"]]
    for number, episode in enumerate(episodes_of(config)):
        features = cached(result["views"][number]["simclr"]["entry"])
        chosen = select_per_class({"simclr": features}, episode.train_labels, 4 - 2 * number, method="maxherding")
        found = {int(label): kept["rows"] for label, kept in result["picks"][number].items()}
        assert found == {label: episode.train_rows[list(picks)].tolist() for label, picks in chosen.items()}


@pytest.mark.parametrize(
    "options",
    [
        {"bandwidth_scale": 0.5},
        {"point_weights": "purity"},
        {"point_weights": "purity", "purity_view": "pixels", "point_power": 3, "bandwidth_scale": 0.5},
        {"point_weights": "density", "point_power": 4},
    ],
    ids=str,
)
def test_options__are_those_of_the_selection(data: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    config = config_of(data, views=["pixels", "simclr"], options=options)
    result, plain = run(config, tmp_path), run(config_of(data, views=["pixels", "simclr"]), tmp_path)
    for number, episode in enumerate(episodes_of(config)):
        simclr = cached(result["views"][number]["simclr"]["entry"])
        views = {"pixels": pixels(episode.train_images), "simclr": simclr}
        chosen = select_per_class(views, episode.train_labels, 4 - 2 * number, **options)
        for label, picks in chosen.items():
            kept, usual = (each["picks"][number][str(label)] for each in (result, plain))
            assert kept["rows"] == episode.train_rows[list(picks)].tolist()
            half = {name: usual["scales"][name] * options.get("bandwidth_scale", 1) for name in views}
            assert kept["scales"] == pytest.approx(half)


TWO_AT_ONCE = """
import json, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from keepset.experiment.config import make_config
from keepset.experiment.run import run
config = make_config(flags=json.loads(sys.argv[1]))
folder = Path(sys.argv[2])
(folder / f"ready {config.seed}").touch()
while not (folder / "go").exists():
    time.sleep(0.005)
told = []
run(config, folder, on_view=told.append)
print(json.dumps(told))
"""


def test_two_processes__train_each_view_once(data: Path, tmp_path: Path) -> None:
    given = {**QUICK, "data": {"name": str(data / "grey.npz"), "episodes": 2}}
    given["simclr"] = {**QUICK["simclr"], "epochs": 30}
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_AT_ONCE, json.dumps({**given, "seed": seed}), str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        for seed in (0, 1)
    ]
    until = time.monotonic() + 120
    while not all((tmp_path / f"ready {seed}").exists() for seed in (0, 1)):
        assert time.monotonic() < until
        assert all(program.poll() is None for program in programs)
        time.sleep(0.01)
    (tmp_path / "go").touch()
    told = [record for program in programs for record in json.loads(program.communicate(timeout=120)[0])]
    trained = sorted((record["episode"], record["epoch"]) for record in told if "epoch" in record)
    assert trained == [(episode, epoch) for episode in (1, 2) for epoch in range(1, 31)]
    assert len(entries()) == 2
    found = [run(make_config(flags={**given, "seed": seed}), tmp_path) for seed in (0, 1)]
    assert entries_of(found[0]) == entries_of(found[1])


# ---------------------------------------------------------------- taken up again


class Stopped(Exception):
    pass


def stop_at(episode: int, epoch: int) -> Any:
    def told(record: Mapping[str, Any]) -> None:
        if (record["episode"], record.get("epoch"), record["view"]) == (episode, epoch, "simclr"):
            raise Stopped

    return told


def test_broken_off_inside_a_view__goes_on_with_the_same_bits(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keepset.views.pretrain.SAVE_EVERY", 0)
    simclr = {**QUICK["simclr"], "epochs": 4}
    expected = run(config_of(data, simclr=simclr, cache=str(tmp_path / "other")), tmp_path / "whole")
    config = config_of(data, simclr=simclr)
    with pytest.raises(Stopped):
        run(config, tmp_path, on_view=stop_at(2, 3))
    assert [entry.state for entry in Cache().entries()].count("unfinished") == 1
    epochs: list[Any] = []
    learned: list[Mapping[str, Any]] = []
    found = run(config, tmp_path, on_epoch=epochs.append, on_view=learned.append)
    assert epochs == [], "the learner had finished its episode"
    assert [(record["episode"], record["epoch"]) for record in learned if "epoch" in record] == [(2, 4)]
    for part in ("accuracy", "picks", "views"):
        assert found[part] == expected[part]
    assert [entry.state for entry in Cache().entries()] == ["whole", "whole"]
    folders = [place / run_hash(config) / "views" for place in (tmp_path, tmp_path / "whole")]
    for name in ("1.safetensors", "2.safetensors"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_broken_off_after_a_view__tells_the_views_of_all_episodes(data: Path, tmp_path: Path) -> None:
    expected = run(config_of(data), tmp_path / "whole")
    with pytest.raises(Stopped):
        run(config_of(data), tmp_path, on_view=stop_at(2, None))  # type: ignore[arg-type]
    assert run(config_of(data), tmp_path)["views"] == expected["views"]


# ---------------------------------------------------------------- kept features


def test_kept_views__are_what_the_selection_read(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[dict[str, Tensor]] = []
    select = World.select

    def watched(self: World, number: int, views: dict[str, Tensor]) -> Any:
        read.append(dict(views))
        return select(self, number, views)

    monkeypatch.setattr(World, "select", watched)
    config = config_of(data)
    run(config, tmp_path)
    for number, (views, episode) in enumerate(zip(read, episodes_of(config), strict=True), start=1):
        kept, labels = read_kept_views(tmp_path / run_hash(config), number)
        assert set(kept) == set(views) == {"supervised", "simclr"}
        for name, view in views.items():
            assert kept[name].dtype == torch.float16
            assert torch.equal(kept[name], view.half())
        assert torch.equal(labels, episode.train_labels)


def test_kept_views__as_asked_or_where_they_are_small(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept(place: str, given: bool | None) -> bool:
        config = config_of(data, selector="maxherding:pixels", keep_views=given)
        run(config, tmp_path / place)
        return (tmp_path / place / run_hash(config) / "views" / "2.safetensors").exists()

    size = 80 * 64 * 2  # bytes of the pixels of all training images
    monkeypatch.setattr("keepset.experiment.episode_views.SMALL", size)
    assert kept("a", None)
    assert not kept("b", False)
    monkeypatch.setattr("keepset.experiment.episode_views.SMALL", size - 1)
    assert not kept("c", None)
    assert kept("d", True)


@pytest.mark.parametrize(("name", "factor"), [("tiny_view", 1e-9), ("huge_view", 1e9)])
def test_kept_views__of_a_range_that_half_precision_lacks_stay_as_they_are(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, factor: float
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{name}.py").write_text(f"def view(images): return images.flatten(1).float() * {factor}")
    config = config_of(data, selector="maxherding", views=[f"{name}:view"])
    run(config, tmp_path / "runs")
    kept, _ = read_kept_views(tmp_path / "runs" / run_hash(config), 1)
    assert torch.equal(kept[f"{name}:view"], episodes_of(config)[0].train_images.flatten(1).float() * factor)


def test_kept_views__do_not_make_another_run(data: Path) -> None:
    assert run_hash(config_of(data, keep_views=True)) == run_hash(config_of(data, keep_views=False))


def test_kept_views__large_numbers_stay_finite(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def large(images):\n    return 1e4 * images.flatten(1).float() + 1\n"
    (tmp_path / "views_with_large_numbers.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = config_of(data, selector="maxherding:views_with_large_numbers:large")
    run(config, tmp_path)
    kept, _ = read_kept_views(tmp_path / run_hash(config), 1)
    assert kept["views_with_large_numbers:large"].isfinite().all()


# ---------------------------------------------------------------- the command line


@pytest.fixture
def call(data: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> Any:
    for name in ("grey", "colour", "clear"):
        (tmp_path / f"{name}.npz").symlink_to(data / f"{name}.npz")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the command sets its own; put back afterwards

    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keepset", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return called


PLAIN = ("--episodes", "2", "--epochs", "1", "--capacity", "8", "--device", "cpu")
SMALL = ("--set", "simclr.epochs=2", "--set", "simclr.hidden=16", "--set", "simclr.output=8")


def only_run() -> str:
    (folder,) = Path("runs").iterdir()
    return str(folder)


def test_cli__run_show_and_views_of_the_default(call: Any) -> None:
    code, _, err = call("run", "grey.npz", *PLAIN, *SMALL)
    assert code == 0
    result = json.loads((Path(only_run()) / "result.json").read_text())
    for number, told in enumerate(result["views"], start=1):
        accuracy, entry = 100 * told["simclr"]["neighbour accuracy"], told["simclr"]["entry"]
        assert f"simclr of episode {number}: 20-NN accuracy {accuracy:.1f} %, cache entry {entry[:8]}\n" in err
    code, out, _ = call("show", only_run())
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert "grey.npz" in out.splitlines()[0]
    for number, told in enumerate(result["views"], start=1):
        for view, mark in (("supervised", "–"), ("simclr", told["simclr"]["entry"][:8])):
            assert [str(number), view, f"{100 * told[view]['neighbour accuracy']:.1f}", mark] in lines
    assert "dinov2" not in out
    code, out, _ = call("views", only_run())
    assert code == 0
    assert "simclr beside supervised" in out
    code, out, _ = call("views", only_run(), "--episode", "2")
    assert code == 0
    leads = {line.split()[0] for line in out.splitlines() if " supervised " in line}
    assert {"2", "3"} <= leads
    assert not {"0", "1"} & leads, "classes of the first episode"


def test_cli__dropped_views_say_how_to_keep_them(call: Any) -> None:
    flags = ("run", "grey.npz", *PLAIN, *SMALL)
    call(*flags, "--drop-views")
    code, _, err = call("views", only_run())
    assert code == 2
    assert "did not keep its views; run it again with --keep-views --again" in err
    call(*flags, "--keep-views", "--again")
    assert call("views", only_run())[0] == 0


def test_cli__again_clears_what_was_kept(call: Any) -> None:
    flags = ("run", "grey.npz", *PLAIN, *SMALL)
    call(*flags, "--keep-views")
    assert len(list((Path(only_run()) / "views").iterdir())) == 2
    call(*flags, "--drop-views", "--again")
    assert not list((Path(only_run()) / "views").glob("*"))
    assert "--keep-views --again" in call("views", only_run())[2]


def test_cli__a_preset_of_the_views(call: Any) -> None:
    call("run", "grey.npz", *PLAIN, *SMALL, "--view-preset", "solo-learn")
    identity = json.loads((Path(only_run()) / "result.json").read_text())["identity"]
    assert (identity["simclr"]["rate"], identity["simclr"]["epochs"], identity["simclr"]["clip"]) == (0.4, 2, True)
    code, _, err = call("run", "grey.npz", *PLAIN, "--view-preset", "sololearn")
    assert (code, err) == (2, "keepset: unknown view_preset 'sololearn'; did you mean 'solo-learn'?\n")


def test_cli__the_augmentation_by_set(call: Any) -> None:
    call("run", "grey.npz", *PLAIN, *SMALL, "--set", "simclr.augmentation.hue=0.05")
    identity = json.loads((Path(only_run()) / "result.json").read_text())["identity"]
    assert identity["simclr"]["augmentation"]["hue"] == 0.05
    code, _, err = call("run", "grey.npz", *PLAIN, "--set", "simclr.augmentation.heu=0.05")
    assert (code, err) == (2, "keepset: unknown setting 'simclr.augmentation.heu'; did you mean 'hue'?\n")


def test_cli__an_own_encoder_by_flag_and_by_file(call: Any, tmp_path: Path) -> None:
    (tmp_path / "views_of_mine.py").write_text(
        "def halves(images):\n    return images.flatten(1)[:, ::2].float() + 1\n"
    )
    (tmp_path / "run.toml").write_text('views = ["views_of_mine:halves", "pixels"]\n')
    assert call("run", "grey.npz", *PLAIN, "--views", "views_of_mine:halves,pixels")[0] == 0
    first = only_run()
    assert call("run", "grey.npz", *PLAIN, "--config", "run.toml")[0] == 0
    assert only_run() == first, "the same run"
    kept, _ = read_kept_views(first, 1)
    assert kept["views_of_mine:halves"].shape == (40, 32)
    assert call("views", first)[0] == 0
    assert "views_of_mine:halves" in call("show", first)[1]


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ("views_gone_wrong:nothing", "views_gone_wrong has no function 'nothing'"),
        ("views_not_there:f", "cannot import views_not_there"),
        ("views_torn:f", "cannot import views_torn (broken on purpose); it fails by itself"),
        ("simclear", "unknown view 'simclear'; did you mean 'simclr'?"),
    ],
)
def test_cli__an_own_encoder_that_is_none_is_refused_at_once(
    call: Any, tmp_path: Path, view: str, message: str
) -> None:
    (tmp_path / "views_gone_wrong.py").write_text("def flat(images):\n    return images.float()\n")
    (tmp_path / "views_torn.py").write_text("raise RuntimeError('broken on purpose')\n")
    code, _, err = call("run", "grey.npz", *PLAIN, "--views", f"supervised,{view}")
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_cli__an_own_encoder_of_the_wrong_shape(call: Any, tmp_path: Path) -> None:
    (tmp_path / "views_of_a_wrong_shape.py").write_text("def flat(images):\n    return images.float()\n")
    code, _, err = call("run", "grey.npz", *PLAIN, "--views", "views_of_a_wrong_shape:flat")
    assert code == 2
    assert "view 'views_of_a_wrong_shape:flat' must be a tensor of shape (40, d), got (40, 1, 8, 8)" in err


def test_run__four_channels_are_refused_before_training_by_a_view_that_cannot_read_them(
    data: Path, tmp_path: Path
) -> None:
    trained: list[Any] = []
    with pytest.raises(ValueError, match=r"simclr.*channels"):
        run(config_of(data, "clear"), tmp_path, on_epoch=trained.append)
    assert trained == []
    run(config_of(data, "clear", views=["supervised", "pixels"]), tmp_path)


# ---------------------------------------------------------------- DINOv2


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    settings = transformers.Dinov2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, patch_size=14, image_size=28
    )
    folder = tmp_path_factory.mktemp("weights")
    transformers.Dinov2Model(settings).save_pretrained(folder)
    return str(folder)


def test_dinov2__without_weights_fails_before_any_training(call: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    flags = ("--views", "supervised,dinov2", "--set", "dinov2.model=none/of-this-name")
    code, out, err = call("run", "grey.npz", *PLAIN, *flags)
    assert (code, out) == (2, "")
    assert "no weights of none/of-this-name" in err
    assert "dinov2.fetch=true in a config" in err
    assert not Path("runs").exists()
    assert call("run", "grey.npz", *PLAIN, *flags, "--selector", "maxherding")[0] == 0, "which does not read it"


def test_dinov2__a_run_says_that_it_has_seen_other_data(call: Any, weights: str) -> None:
    flags = ("--views", "supervised,dinov2", "--set", f"dinov2.model={weights}", "--set", "dinov2.size=28")
    code, out, err = call("run", "colour.npz", *PLAIN, *flags)
    assert code == 0
    assert "dinov2 has seen other data than these" in out
    assert "dinov2 of episode 1: 40/40\n" in err
    result = json.loads((Path(only_run()) / "result.json").read_text())
    assert [episode["dinov2"]["entry"] for episode in result["views"]] != [None, None]
    assert len(entries()) == 2
    assert "dinov2 has seen other data than these" in call("show", only_run())[1]
    code, _, err = call("run", "colour.npz", *PLAIN, *flags, "--seed", "1")
    assert code == 0
    assert "40/40" not in err, "taken from the cache"
    assert len(entries()) == 2
