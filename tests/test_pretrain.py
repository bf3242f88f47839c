"""Self-supervised training on tiny images: the same bits always, taken up after a kill, and features that mean much."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from keepset.learning.augment import normalise
from keepset.views import pretrain
from keepset.views.pretrain import Method, Pretrainer, pretrained
from keepset.views.quality import neighbour_accuracy
from keepset.views.settings import Pretraining
from keepset.views.simclr import SimCLRAugmentation, SimCLRSettings, simclr, simclr_method
from keepset.views.vicreg import VICRegAugmentation, VICRegSettings, vicreg, vicreg_method

EPOCHS = 4
SIMCLR = SimCLRSettings(epochs=EPOCHS, batch=16, rate=2.0, warmup=1, hidden=32, output=16)
VICREG = VICRegSettings(epochs=EPOCHS, batch=16, rate=2.0, warmup=1, hidden=32, output=16)
Train = Callable[..., Tensor]
TRAININGS: list[tuple[Train, Any]] = [(simclr, SIMCLR), (vicreg, VICREG)]
both = pytest.mark.parametrize(("train", "settings"), TRAININGS, ids=["simclr", "vicreg"])


def method_of(settings: Any) -> Method:
    return simclr_method(settings) if isinstance(settings, SimCLRSettings) else vicreg_method(settings)


def make_images(count: int = 40, channels: int = 1, side: int = 8, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, channels, side, side), dtype=torch.uint8, generator=source)


class Killed(Exception):
    """As if from outside, between two epochs."""


def kill_after(epoch: int) -> Callable[[Mapping[str, Any]], None]:
    def on_epoch(told: Mapping[str, Any]) -> None:
        if told["epoch"] == epoch:
            raise Killed

    return on_epoch


# ---------------------------------------------------------------- the same bits


@both
def test_pretraining__same_settings_same_bits_whatever_else_is_drawn(train: Train, settings: Any) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = train(make_images(), settings)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(train(make_images(), settings, on_epoch=lambda _: torch.rand(3)), first)


@both
def test_pretraining__features_are_of_the_right_form(train: Train, settings: Any) -> None:
    images = make_images()
    kept = images.clone()
    features = train(images, settings)
    assert features.shape == (40, 128)
    assert features.dtype == torch.float32
    assert features.isfinite().all()
    assert not features.requires_grad
    assert torch.equal(images, kept)


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"epochs": EPOCHS + 1},
        {"rate": 1.0},
        {"warmup": 2},
        {"momentum": 0.5},
        {"eta": 0.01},
        {"weight_decay": 0.1},
        {"temperature": 0.5},
        {"hidden": 33},
        {"augmentation": SimCLRAugmentation(flip=0)},
    ],
    ids=str,
)
def test_pretraining__each_setting_moves_the_features(changes: dict[str, Any], trained: Tensor) -> None:
    assert not torch.equal(simclr(make_images(), replace(SIMCLR, **changes)), trained)


@pytest.mark.parametrize("name", ["invariance", "variance", "covariance", "hidden", "output"])
def test_pretraining__each_setting_of_vicreg_moves_the_features(name: str) -> None:
    changed = replace(VICREG, **{name: 2 * getattr(VICREG, name)})
    assert not torch.equal(vicreg(make_images(), changed), vicreg(make_images(), VICREG))


@pytest.fixture(scope="module")
def trained() -> Tensor:
    return simclr(make_images(), SIMCLR)


def test_pretraining__the_clip_holds_back_steps_that_would_be_larger() -> None:
    """A layer's step at eta 5 is above the learning rate, if nothing holds it back."""
    large = replace(SIMCLR, eta=5.0, rate=0.1)
    free, held = (simclr(make_images(), replace(large, clip=clip)) for clip in (False, True))
    assert not torch.allclose(free, held, rtol=0.1)


def test_pretraining__the_two_methods_draw_from_seeds_of_their_own() -> None:
    trainers = [Pretrainer(make_images(), settings, method_of(settings)) for settings in (SIMCLR, VICREG)]
    assert not torch.equal(*(trainer.features() for trainer in trainers))
    assert not torch.equal(*(trainer._drawn(0)["rows"] for trainer in trainers))


@both
def test_pretraining__works_without_grad_around_it(train: Train, settings: Any) -> None:
    expected = train(make_images(), settings)
    with torch.no_grad():
        assert torch.equal(train(make_images(), settings), expected)
        assert not torch.is_grad_enabled()


def test_pretraining__bfloat16_is_near_float32_and_not_the_same(trained: Tensor) -> None:
    found = simclr(make_images(), replace(SIMCLR, precision="bfloat16"))
    assert found.dtype == torch.float32
    assert not torch.equal(found, trained)
    assert float((found - trained).norm() / trained.norm()) < 0.2


def test_pretraining__auto_precision_is_float32_on_the_cpu(trained: Tensor) -> None:
    assert torch.equal(simclr(make_images(), replace(SIMCLR, precision="float32")), trained)


# ---------------------------------------------------------------- features


def test_features__in_eval_mode_whoever_is_beside() -> None:
    """Each image's features by itself, and again; batch-norm must neither look at the batch nor go on learning."""
    trainer = Pretrainer(make_images(), SIMCLR, simclr_method(SIMCLR))
    trainer.train_epoch()
    features = trainer.features()
    assert torch.equal(trainer.features(), features)
    trainer.network.eval()
    with torch.no_grad():
        alone = [trainer.network.features(normalise(one[None], trainer.mean, trainer.std)) for one in trainer.images]
    torch.testing.assert_close(torch.cat(alone), features)


def test_features__asked_for_on_the_way_they_change_nothing() -> None:
    trainer = Pretrainer(make_images(), SIMCLR, simclr_method(SIMCLR))
    for _ in range(EPOCHS):
        trainer.train_epoch()
        found = trainer.features()
        trainer.network.eval()  # as a caller may leave it
    assert torch.equal(found, simclr(make_images(), SIMCLR))


def test_features__are_the_backbone_s_and_not_the_projections() -> None:
    trainer = Pretrainer(make_images(), SIMCLR, simclr_method(SIMCLR))
    assert trainer.network.head(trainer.features()).shape == (40, SIMCLR.output)


def test_pretrainer__normalises_by_the_images_own_statistics() -> None:
    images = make_images(channels=3)
    images[:, 1] //= 4
    images[:, 2] = 7  # one value: a spread of one
    trainer = Pretrainer(images, SIMCLR, simclr_method(SIMCLR))
    pixels = (images.double() / 255).transpose(0, 1).flatten(1)
    torch.testing.assert_close(trainer.mean.double(), pixels.mean(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(trainer.std[:2].double(), pixels.std(1, correction=0)[:2], rtol=1e-6, atol=0)
    assert trainer.std[2] == 1


# ---------------------------------------------------------------- after a kill


@pytest.fixture
def saving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch is saved."""
    monkeypatch.setattr(pretrain, "SAVE_EVERY", -1.0)


@pytest.mark.usefixtures("saving")
@both
@pytest.mark.parametrize("epoch", [1, 3])
def test_resume__the_bits_of_an_unbroken_training(train: Train, settings: Any, epoch: int, tmp_path: Path) -> None:
    checkpoint = tmp_path / "state"
    told: list[Mapping[str, Any]] = []
    with pytest.raises(Killed):
        train(make_images(), settings, checkpoint=checkpoint, on_epoch=kill_after(epoch))
    torch.rand(5)
    found = train(make_images(), settings, checkpoint=checkpoint, on_epoch=told.append)
    assert [record["epoch"] for record in told] == list(range(epoch + 1, EPOCHS + 1))
    assert torch.equal(found, train(make_images(), settings))


@pytest.mark.usefixtures("saving")
def test_resume__killed_again_and_again(tmp_path: Path, trained: Tensor) -> None:
    for epoch in range(1, EPOCHS):
        with pytest.raises(Killed):
            simclr(make_images(), SIMCLR, checkpoint=tmp_path / "state", on_epoch=kill_after(epoch))
    assert torch.equal(simclr(make_images(), SIMCLR, checkpoint=tmp_path / "state"), trained)


def test_resume__into_a_trainer_that_had_gone_on(tmp_path: Path, trained: Tensor) -> None:
    """Nothing that was drawn ahead, and no momentum, is left from before the load."""
    trainer = Pretrainer(make_images(), SIMCLR, simclr_method(SIMCLR))
    trainer.train_epoch()
    trainer.save(tmp_path / "state")
    trainer.train_epoch()
    trainer.train_epoch()
    trainer.load(tmp_path / "state")
    while trainer.epoch < EPOCHS:
        trainer.train_epoch()
    assert torch.equal(trainer.features(), trained)


def test_checkpoint__is_written_only_so_often(tmp_path: Path) -> None:
    """A training shorter than the time between two checkpoints leaves none."""
    simclr(make_images(), SIMCLR, checkpoint=tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("saving")
def test_checkpoint__the_last_epoch_has_no_need_of_one(tmp_path: Path) -> None:
    simclr(make_images(), replace(SIMCLR, epochs=1), checkpoint=tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("saving")
def test_checkpoint__without_one_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    simclr(make_images(), SIMCLR)
    assert list(tmp_path.iterdir()) == []


def truncate(checkpoint: Path) -> None:
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: len(content) // 2])


def empty(checkpoint: Path) -> None:
    checkpoint.write_bytes(b"")


def of_another_form(checkpoint: Path) -> None:
    other = replace(SIMCLR, hidden=24)
    Pretrainer(make_images(), other, simclr_method(other)).save(checkpoint)


def of_another_method(checkpoint: Path) -> None:
    Pretrainer(make_images(), VICREG, vicreg_method(VICREG)).save(checkpoint)


@pytest.mark.usefixtures("saving")
@pytest.mark.parametrize("damage", [truncate, empty, of_another_form, of_another_method])
def test_checkpoint__an_unfit_one_is_warned_of_and_training_begins_again(
    damage: Callable[[Path], None], tmp_path: Path, trained: Tensor
) -> None:
    checkpoint = tmp_path / "state"
    told: list[Mapping[str, Any]] = []
    with pytest.raises(Killed):
        simclr(make_images(), SIMCLR, checkpoint=checkpoint, on_epoch=kill_after(2))
    damage(checkpoint)
    with pytest.warns(RuntimeWarning, match=r"state cannot be used .*; training from the beginning"):
        found = simclr(make_images(), SIMCLR, checkpoint=checkpoint, on_epoch=told.append)
    assert [record["epoch"] for record in told] == list(range(1, EPOCHS + 1))
    assert torch.equal(found, trained)


# ---------------------------------------------------------------- learning rate and batches


def rates(count: int = 40, **changes: Any) -> list[float]:
    settings = replace(SIMCLR, **changes)
    trainer = Pretrainer(make_images(count), settings, simclr_method(settings))
    return [trainer.rate(step) for step in range(settings.epochs * trainer.steps)]


def test_rate__up_in_a_line_and_down_like_a_cosine() -> None:
    """40 images of batch 16 are 2 steps an epoch: 6 of 20 steps go up."""
    found, highest = rates(epochs=10, warmup=3, rate=0.8), 0.8 * 16 / 256
    assert found[:6] == pytest.approx([highest * step / 6 for step in range(1, 7)])
    assert found[6:] == pytest.approx([highest * (1 + math.cos(math.pi * step / 14)) / 2 for step in range(14)])
    assert max(found) == found[5] == pytest.approx(highest)
    assert sorted(found[5:], reverse=True) == found[5:]


def test_rate__ends_near_zero_but_above() -> None:
    assert 0 < rates(epochs=100, warmup=3, rate=1.0)[-1] < 1e-3 * 16 / 256


def test_rate__without_warmup_begins_at_the_top() -> None:
    assert rates(epochs=5, warmup=0, rate=0.8)[0] == pytest.approx(0.8 * 16 / 256)


@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_rate__warmup_longer_than_the_training_leaves_one_epoch_to_fall(epochs: int) -> None:
    found, highest = rates(epochs=epochs, warmup=50, rate=0.8), 0.8 * 16 / 256
    warm = 2 * (epochs - 1)
    expected = [highest * step / warm for step in range(1, warm + 1)] + [highest, highest / 2]
    assert found == pytest.approx(expected)


def test_rate__grows_with_the_batch_that_is_really_taken() -> None:
    assert max(rates(batch=32)) == pytest.approx(2 * max(rates(batch=16)))
    assert max(rates(batch=1000)) == pytest.approx(max(rates(batch=40)))


def test_rate__is_what_the_steps_take(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(SIMCLR, epochs=5, warmup=2)
    trainer = Pretrainer(make_images(), settings, simclr_method(settings))
    taken: list[float] = []
    step = trainer.optimiser.step

    def watched(rate: Tensor) -> None:
        taken.append(float(rate))
        step(rate)

    monkeypatch.setattr(trainer.optimiser, "step", watched)
    for _ in range(5):
        trainer.train_epoch()
    assert taken == pytest.approx([trainer.rate(step) for step in range(10)])


def test_epoch__each_image_once_and_the_rest_dropped() -> None:
    trainer = Pretrainer(make_images(), SIMCLR, simclr_method(SIMCLR))
    plans = [trainer._drawn(epoch) for epoch in (0, 1)]
    orders = [plan["rows"] for plan in plans]
    for rows in orders:
        assert rows.shape == (2, 16)
        assert len(rows.unique()) == 32
        assert 0 <= int(rows.min()) <= int(rows.max()) < 40
    assert not torch.equal(*orders)
    assert not torch.equal(*(plan["contrast"] for plan in plans))  # the augmentation is drawn anew too


def projections_of_a_step(**augmentation: float) -> Tensor:
    """(32, 128): what the loss is given in the first step, where images are changed in the named ways alone."""
    seen: list[Tensor] = []

    def loss(projections: Tensor) -> Tensor:
        seen.append(projections.detach())
        return projections.square().mean()

    still: dict[str, Any] = {"crop": (1, 1), "ratio": (1, 1), "jitter": 0, "grey": 0, "flip": 0}
    settings = replace(SIMCLR, augmentation=SimCLRAugmentation(**still | augmentation))
    Pretrainer(make_images(), settings, Method("bare", lambda _: nn.Identity(), loss)).train_epoch()
    assert len(seen) == 2
    return seen[0]


def test_step__the_loss_sees_two_copies_of_each_image() -> None:
    """Unchanged, each row's only match is the one a batch further on."""
    projections = projections_of_a_step()
    assert projections.shape == (32, 128)
    alike = torch.cdist(projections, projections, compute_mode="donot_use_mm_for_euclid_dist") < 1e-4
    assert torch.equal(alike, torch.eye(16).repeat(2, 2).bool())


def test_step__the_two_copies_are_changed_independently() -> None:
    """Mirrored or not: half of the pairs agree, and half of them do not."""
    first, second = projections_of_a_step(flip=0.5).chunk(2)
    agree = int(((first - second).norm(dim=1) < 1e-4).sum())
    assert 3 <= agree <= 13


# ---------------------------------------------------------------- few images, bad ones


@both
@pytest.mark.parametrize("count", [2, 5, 15])
def test_pretraining__fewer_images_than_a_batch(train: Train, settings: Any, count: int) -> None:
    features = train(make_images(count), settings)
    assert features.shape == (count, 128)
    assert features.isfinite().all()
    assert not torch.equal(features, train(make_images(count), replace(settings, epochs=EPOCHS - 1)))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (make_images(1), "images must hold at least 2, .* got 1"),
        (make_images(0), "images must hold at least 2, .* got 0"),
        (
            make_images().float(),
            r"images must be uint8 of shape \(n, 1 or 3 channels, height, width\), got torch.float32",
        ),
        (make_images()[:, 0], r"images must be uint8 .* got torch.uint8 of shape \(40, 8, 8\)"),
        (
            make_images(channels=2),
            r"images must be uint8 of shape \(n, 1 or 3 channels, .* got torch.uint8 of shape \(40, 2, 8, 8\)",
        ),
    ],
    ids=["one", "none", "float", "flat", "two channels"],
)
def test_pretraining__bad_images_are_refused(images: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simclr(images, SIMCLR)


@pytest.mark.usefixtures("saving")
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_pretraining__a_loss_that_is_no_number_ends_it_unsaved(bad: float, tmp_path: Path) -> None:
    told: list[Mapping[str, Any]] = []
    method = replace(simclr_method(SIMCLR), loss=lambda projections: projections.sum() * bad)
    with pytest.raises(ValueError, match=r"simclr: the loss is (nan|inf|-inf) after epoch 1; lower its rate"):
        pretrained(make_images(), SIMCLR, method, checkpoint=tmp_path / "state", on_epoch=told.append)
    assert told == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (Pretraining, {"epochs": 0}, r"epochs must be in 1\.\."),
        (Pretraining, {"batch": 1}, r"batch must be in 2\.\."),
        (Pretraining, {"warmup": -1}, r"warmup must be in 0\.\."),
        (Pretraining, {"width": 0}, r"width must be in 1\.\."),
        (Pretraining, {"seed": -1}, r"seed must be in 0\.\."),
        (Pretraining, {"model": "resnet"}, "unknown model 'resnet'; did you mean 'resnet18'"),
        (Pretraining, {"precision": "float16"}, "unknown precision 'float16'; did you mean"),
        (Pretraining, {"rate": 0}, "rate must be a positive number, got 0"),
        (Pretraining, {"eta": math.inf}, "eta must be a positive number, got inf"),
        (Pretraining, {"momentum": 1.0}, r"momentum must be at least 0 and below 1, got 1\.0"),
        (Pretraining, {"weight_decay": -0.1}, r"weight_decay must be at least 0 and below 1, got -0\.1"),
        (SimCLRSettings, {"temperature": 0}, "temperature must be a positive number, got 0"),
        (SimCLRSettings, {"hidden": 0}, r"hidden must be in 1\.\."),
        (SimCLRSettings, {"output": 0}, r"output must be in 1\.\."),
        (SimCLRSettings, {"epochs": 0}, r"epochs must be in 1\.\."),
        (VICRegSettings, {"output": 1}, r"output must be in 2\.\."),
        (VICRegSettings, {"hidden": 0}, r"hidden must be in 1\.\."),
        (VICRegSettings, {"covariance": math.nan}, "covariance must be at least 0, got nan"),
        (VICRegSettings, {"variance": -1}, "variance must be at least 0, got -1"),
        (VICRegSettings, {"invariance": math.inf}, "invariance must be at least 0, got inf"),
        (VICRegSettings, {"batch": 1}, r"batch must be in 2\.\."),
    ],
    ids=str,
)
def test_settings__bad_ones_are_named(kind: type[Pretraining], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**changes)


def test_settings__cannot_be_changed_afterwards() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SIMCLR.epochs = 5  # type: ignore[misc]


# ---------------------------------------------------------------- what it tells, and what it learns


@both
def test_on_epoch__is_told_where_it_stands(train: Train, settings: Any) -> None:
    told: list[Mapping[str, Any]] = []
    train(make_images(), settings, on_epoch=told.append)
    assert [record["epoch"] for record in told] == [1, 2, 3, 4]
    assert {record["epochs"] for record in told} == {EPOCHS}
    assert {record["view"] for record in told} == {train.__name__}
    assert all(math.isfinite(record["loss"]) for record in told)
    assert all(record["seconds left"] > 0 for record in told[:-1])
    assert told[-1]["seconds left"] == 0


def test_train_epoch__gives_the_mean_loss_of_its_steps() -> None:
    seen: list[float] = []
    method = simclr_method(SIMCLR)

    def loss(projections: Tensor) -> Tensor:
        found = method.loss(projections)
        seen.append(float(found.detach()))
        return found

    trainer = Pretrainer(make_images(), SIMCLR, replace(method, loss=loss))
    for epoch in range(2):
        assert trainer.train_epoch() == pytest.approx(sum(seen[2 * epoch :]) / 2)
    assert len(seen) == 4


def stripes(count: int) -> tuple[Tensor, Tensor]:
    """Vertical and horizontal ones of random phase, faint on a random colour: (count, 3, 8, 8) and their kind."""
    source = torch.Generator().manual_seed(0)
    kinds = torch.arange(count) % 2
    phase = torch.rand(count, 1, 1, 1, generator=source)
    wave = torch.sin(2 * math.pi * (torch.arange(8) / 4 + phase)).expand(-1, 1, 8, 8)
    wave = torch.where(kinds[:, None, None, None] == 0, wave, wave.mT)
    colour = 0.2 + 0.6 * torch.rand(count, 3, 1, 1, generator=source)
    noise = 0.03 * torch.randn(count, 3, 8, 8, generator=source)
    return (255 * (colour + 0.1 * wave + noise).clamp(0, 1)).to(torch.uint8), kinds


JITTER: dict[str, Any] = {"crop": (0.5, 1), "grey": 0.5, "hue": 0.5, "brightness": 0.5, "contrast": 0.5}
SHARED: dict[str, Any] = {"epochs": 16, "batch": 100, "rate": 2.0, "warmup": 2, "hidden": 128, "output": 32}


@pytest.mark.parametrize(
    "settings",
    [
        SimCLRSettings(augmentation=SimCLRAugmentation(**JITTER), **SHARED),
        VICRegSettings(augmentation=VICRegAugmentation(**JITTER), **SHARED),
    ],
    ids=["simclr", "vicreg"],
)
def test_pretraining__learns_the_kind_of_stripes_and_forgets_the_colour(settings: Any) -> None:
    images, kinds = stripes(200)
    trainer = Pretrainer(images, settings, method_of(settings))
    untrained = neighbour_accuracy(trainer.features(), kinds, 5)
    losses = [trainer.train_epoch() for _ in range(settings.epochs)]
    assert untrained < 0.8
    assert neighbour_accuracy(images.flatten(1).float(), kinds, 5) < 0.95
    assert neighbour_accuracy(trainer.features(), kinds, 5) > 0.97
    assert losses[-1] < 0.95 * losses[0]
    assert sum(losses[-4:]) < sum(losses[4:8]) < sum(losses[:4])
