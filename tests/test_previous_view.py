"""The view `previous`: what the learner makes of an episode's images before it is trained on them."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from keepset.data import DataSettings, load, split
from keepset.experiment.config import RunConfig, make_config
from keepset.experiment.identity import run_hash
from keepset.experiment.results import CHECKPOINT, FORMER
from keepset.experiment.run import run
from keepset.experiment.side_by_side import run_all
from keepset.learning.models import make_model
from keepset.learning.plan import generator_of
from keepset.report.kept import read_kept_views
from keepset.views import Material, make_view

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


@pytest.fixture(autouse=True)
def _checkpoint_after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long writing takes."""
    monkeypatch.setattr("keepset.experiment.world.SAVING_SHARE", 0)


@pytest.fixture(scope="module", autouse=True)
def _few_digits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A file of 300 digits in the folder of these tests."""
    digits = load(DataSettings("digits"))
    arrays = {name: getattr(digits, name)[:300].numpy() for name in ARRAYS}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("digits"))
        np.savez("few.npz", **arrays)
        yield


def config_of(**more: Any) -> RunConfig:
    given = {"data": {"name": "few.npz", "episodes": 5}, "train": {"epochs": 2}, "capacity": 20, "device": "cpu"}
    return make_config(flags={**given, "views": ["supervised", "pixels", "previous"], **more})


class Stopped(Exception):
    pass


def stop_after(episode: int, epoch: int) -> Callable[[Mapping[str, Any]], None]:
    def told(record: Mapping[str, Any]) -> None:
        if (record["episode"], record["epoch"]) == (episode, epoch):
            raise Stopped

    return told


def fresh_model(config: RunConfig) -> nn.Module:
    return make_model(config.model.name, 10, (1, 8, 8), config.model.width, generator_of(config.seed, "model"))


def by_hand(model: nn.Module, config: RunConfig, number: int) -> Tensor:
    """The features of episode `number`, counted from 1, batch by batch."""
    data = load(config.data)
    images = split(data, config.data)[number - 1].train_images
    mean, std = (torch.tensor(values)[:, None, None] for values in (data.mean, data.std))
    model.eval()
    with torch.no_grad():
        return torch.cat([model.features((part / 255 - mean) / std) for part in images.split(256)])  # type: ignore[operator]


def kept(out: Path, config: RunConfig, number: int) -> Tensor:
    return read_kept_views(out / run_hash(config), number)[0]["previous"]


def test_previous__is_the_model_as_it_was_before_the_episode(tmp_path: Path) -> None:
    config = config_of()
    with pytest.raises(Stopped):
        run(config, tmp_path, on_epoch=stop_after(2, 1))
    folder = tmp_path / run_hash(config)
    before, during = (load_file(folder / name) for name in (FORMER, CHECKPOINT))
    model = fresh_model(config)
    first = by_hand(model, config, 1)
    model.load_state_dict({name[6:]: value for name, value in before.items() if name.startswith("model.")})
    second = by_hand(model, config, 2)
    torch.testing.assert_close(during["previous"], second, rtol=1e-5, atol=1e-6)
    model.load_state_dict({name[6:]: value for name, value in during.items() if name.startswith("model.")})
    assert not torch.allclose(by_hand(model, config, 2), second, rtol=0.01), "an epoch changes it"
    assert "previous" not in before, "the episode was over"
    result = run(config, tmp_path)
    assert [list(episode) for episode in result["views"]] == [["supervised", "pixels", "previous"]] * 5
    for number, expected in ((1, first), (2, second)):
        torch.testing.assert_close(kept(tmp_path, config, number).float(), expected, rtol=1e-3, atol=1e-4)
    assert all(set(chosen["weights"]) == set(config.views) for chosen in result["picks"][1].values())


@pytest.mark.parametrize(("episode", "epoch"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)])
def test_previous__is_the_same_to_the_bit_after_a_break(
    tmp_path: Path, episode: int, epoch: int, whole: tuple[Path, dict[str, Any]]
) -> None:
    config, (place, expected) = config_of(), whole
    with pytest.raises(Stopped):
        run(config, tmp_path, on_epoch=stop_after(episode, epoch))
    found = run(config, tmp_path)
    for part in ("accuracy", "picks", "views"):
        assert found[part] == expected[part]
    for number in range(1, 6):
        assert torch.equal(kept(tmp_path, config, number), kept(place, config, number))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run that nothing breaks off."""
    place = tmp_path_factory.mktemp("whole")
    return place, run(config_of(), place)


def test_previous__the_former_checkpoint_of_the_same_episode_has_it_too(
    tmp_path: Path, whole: tuple[Path, dict[str, Any]]
) -> None:
    """The newest is damaged: the run goes on from the middle of the episode before that."""
    config, (_, expected) = config_of(), whole
    with pytest.raises(Stopped):
        run(config, tmp_path, on_epoch=stop_after(2, 2))
    (tmp_path / run_hash(config) / CHECKPOINT).write_bytes(b"torn")
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert run(config, tmp_path)["picks"] == expected["picks"]


@pytest.mark.parametrize("side_by_side", [1, 3])
def test_previous__of_a_first_episode_that_another_run_trained(
    tmp_path: Path, side_by_side: int, whole: tuple[Path, dict[str, Any]]
) -> None:
    config, (place, expected) = config_of(), whole
    others = [config_of(selector="random"), config_of(selector="maxherding:previous")]
    results = run_all([others[0], config, others[1]], tmp_path, side_by_side=side_by_side)
    assert isinstance(results[1], dict)
    assert '"shared": true' in (tmp_path / run_hash(config) / "metrics.jsonl").read_text()
    for part in ("accuracy", "picks", "views"):
        assert results[1][part] == expected[part]
    for each in (config, others[1]):
        assert torch.equal(kept(tmp_path, each, 1), kept(place, config, 1))


def test_previous__is_neither_made_nor_saved_where_no_selector_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Tensor:
        raise AssertionError("made for nothing")

    monkeypatch.setattr("keepset.experiment.episode_views.supervised", fail)
    for config in (config_of(views=["supervised", "pixels"]), config_of(selector="random"), config_of(selector="teal")):
        with pytest.raises(Stopped):
            run(config, tmp_path, on_epoch=stop_after(2, 1))
        assert "previous" not in load_file(tmp_path / run_hash(config) / CHECKPOINT)
    with pytest.raises(AssertionError, match="made for nothing"):
        run(config_of(), tmp_path)


def test_previous__with_purity_of_another_view(tmp_path: Path) -> None:
    plain, weighed = (
        run(config_of(train={"epochs": 1}, options=options), tmp_path)
        for options in ({}, {"point_weights": "purity", "purity_view": "pixels"})
    )
    assert weighed["views"][0] == plain["views"][0], "the first episode is the same"
    assert weighed["picks"][0] != plain["picks"][0]


def test_make_view__previous_is_what_a_run_says_it_is() -> None:
    images, features = torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.rand(3, 5)
    assert torch.equal(make_view("previous", images, Material(previous=features)).features, features)
    with pytest.raises(ValueError, match="the view 'previous' is a learner's; it is made in keepset run"):
        make_view("previous", images, Material())
    with pytest.raises(ValueError, match=r"view 'previous' must be a tensor of shape \(3, d\)"):
        make_view("previous", images, Material(previous=features[:2]))
