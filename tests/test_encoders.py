"""The encoders' recipes and presets, and a view that is made once and then read."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from keepset.experiment.config import make_config
from keepset.views import ENCODERS, PRESETS, DINOv2Settings, Material, SimCLRSettings, VICRegSettings, make_view
from keepset.views.cache import Cache, key_of
from keepset.views.encoders import Encoder, encode, without_mirroring

CPU = torch.device("cpu")
IMAGES = torch.randint(256, (12, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
SIMCLR = SimCLRSettings(epochs=2, batch=6, hidden=16, output=8)
VICREG = VICRegSettings(epochs=2, batch=6, hidden=16, output=8)
TRAINED: dict[str, Any] = {"simclr": SIMCLR, "vicreg": VICREG}


def key(name: str, settings: Any, images: Tensor = IMAGES, device: torch.device = CPU) -> str:
    return key_of(images, ENCODERS[name].recipe(settings, device))


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 3},
        {"batch": 4},
        {"rate": 0.2},
        {"warmup": 1},
        {"momentum": 0.8},
        {"eta": 0.01},
        {"clip": True},
        {"weight_decay": 0.0},
        {"model": "small"},
        {"width": 20},
        {"precision": "bfloat16"},
        {"seed": 1},
        {"hidden": 17},
        {"output": 9},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", TRAINED)
def test_key__every_setting_of_a_training_makes_another(name: str, change: dict[str, Any]) -> None:
    assert key(name, dataclasses.replace(TRAINED[name], **change)) != key(name, TRAINED[name])


@pytest.mark.parametrize("change", [{"hue": 0.15}, {"crop": (0.1, 1.0)}, {"flip": 0.0}, {"sigma": (0.1, 1.0)}], ids=str)
def test_key__every_value_of_the_augmentation_makes_another(change: dict[str, Any]) -> None:
    augmentation = dataclasses.replace(SIMCLR.augmentation, **change)
    assert key("simclr", dataclasses.replace(SIMCLR, augmentation=augmentation)) != key("simclr", SIMCLR)


def test_key__of_what_one_method_alone_has() -> None:
    assert key("simclr", dataclasses.replace(SIMCLR, temperature=0.3)) != key("simclr", SIMCLR)
    assert key("vicreg", dataclasses.replace(VICREG, covariance=2.0)) != key("vicreg", VICREG)
    assert key("simclr", SIMCLR) != key("vicreg", VICREG)


@pytest.mark.parametrize("name", TRAINED)
def test_recipe__is_called_like_its_encoder(name: str) -> None:
    assert ENCODERS[name].recipe(TRAINED[name], CPU).encoder == name


def test_key__compiling_changes_nothing() -> None:
    assert key("simclr", dataclasses.replace(SIMCLR, compile=False)) == key("simclr", SIMCLR)


def test_key__precision_counts_as_it_turns_out() -> None:
    assert key("simclr", dataclasses.replace(SIMCLR, precision="float32")) == key("simclr", SIMCLR)
    cuda = torch.device("cuda")
    half = dataclasses.replace(SIMCLR, precision="bfloat16")
    assert key("simclr", SIMCLR, device=cuda) == key("simclr", half) != key("simclr", SIMCLR)


def test_key__other_images_or_another_order() -> None:
    assert len({key("simclr", SIMCLR, images) for images in (IMAGES, IMAGES.flip(0), IMAGES[:11])}) == 3


def test_key__a_rate_written_as_a_whole_number_is_the_same_rate() -> None:
    """--set simclr.rate=1 and simclr.rate=1.0 mean one view."""
    keys = {key("simclr", make_config(flags={"simclr": {"rate": rate}}).simclr) for rate in (1, 1.0)}
    assert len(keys) == 1


def test_key__the_augmentation_from_a_file_is_the_one_from_python() -> None:
    """Lists, as TOML has them, and tuples are one setting."""
    found = make_config(flags={"view_preset": "desk", "simclr": {"augmentation": {"crop": [0.2, 1]}}}).simclr
    expected = SimCLRSettings()
    expected = dataclasses.replace(expected, augmentation=dataclasses.replace(expected.augmentation, crop=(0.2, 1.0)))
    assert key("simclr", found) == key("simclr", expected)


def test_key__dinov2_by_its_weights_and_size_alone(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}", encoding="utf-8")
        (tmp_path / name / "model.safetensors").write_bytes(name.encode())
    shutil.copytree(tmp_path / "first", tmp_path / "moved")
    first = DINOv2Settings(model=str(tmp_path / "first"), size=28)
    assert key("dinov2", dataclasses.replace(first, batch=3, fetch=True)) == key("dinov2", first)
    assert key("dinov2", dataclasses.replace(first, model=str(tmp_path / "moved"))) == key("dinov2", first)
    assert key("dinov2", dataclasses.replace(first, model=str(tmp_path / "second"))) != key("dinov2", first)
    assert key("dinov2", dataclasses.replace(first, size=42)) != key("dinov2", first)


# ---------------------------------------------------------------- presets


@pytest.mark.parametrize("preset", PRESETS)
def test_presets__set_what_there_is_to_set(preset: str) -> None:
    """A wrong name or value in the table would be refused here."""
    config = make_config(flags={"view_preset": preset})
    for encoder, values in PRESETS[preset].items():
        for name, value in values.items():
            found = getattr(getattr(config, encoder), name)
            assert {key: getattr(found, key) for key in value} == value if name == "augmentation" else found == value


def test_presets__differ_as_they_say() -> None:
    desk, long, digits = (make_config(flags={"view_preset": name}) for name in ("desk", "solo-learn", "digits"))
    assert (desk.simclr, desk.vicreg, desk.dinov2) == (SimCLRSettings(), VICRegSettings(), DINOv2Settings())
    assert (desk.simclr.epochs, desk.vicreg.epochs) == (200, 200)
    assert (long.simclr.epochs, long.vicreg.epochs) == (1000, 1000)
    assert max(digits.simclr.epochs, digits.vicreg.epochs) < 200
    assert (desk.simclr.rate, long.simclr.rate) == (0.1, 0.4)
    assert (desk.simclr.clip, long.simclr.clip, long.vicreg.clip) == (False, True, True)
    assert (desk.simclr.augmentation.blur, long.simclr.augmentation.blur) == (0.0, 0.5)
    assert digits.simclr.augmentation.flip == digits.vicreg.augmentation.flip == 0.0
    assert digits.vicreg.augmentation.solarise == desk.vicreg.augmentation.solarise == 0.1, "the rest is as it was"


# ---------------------------------------------------------------- making and reading


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "views")


def forbid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fail(*_: object) -> Tensor:
        raise AssertionError("made again")

    changed = dataclasses.replace(ENCODERS[name], make=fail)
    monkeypatch.setitem(dict_of_encoders(), name, changed)


def dict_of_encoders() -> dict[str, Encoder]:
    assert isinstance(ENCODERS, dict)
    return ENCODERS


@pytest.mark.parametrize("name", TRAINED)
def test_encode__with_and_without_a_cache_the_same_bits(
    name: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = encode(name, IMAGES, TRAINED[name], None)
    first = encode(name, IMAGES, TRAINED[name], cache)
    assert alone.made
    assert first.made
    assert alone.key == first.key == key(name, TRAINED[name])
    assert alone.features.dtype == torch.float32
    assert torch.equal(alone.features, first.features)
    forbid(monkeypatch, name)
    second = encode(name, IMAGES, TRAINED[name], cache)
    assert not second.made
    assert torch.equal(second.features, first.features)
    with pytest.raises(AssertionError, match="made again"):
        encode(name, IMAGES.flip(0), TRAINED[name], cache)


def test_encode__tells_every_epoch(cache: Cache) -> None:
    told: list[Any] = []
    encode("vicreg", IMAGES, VICREG, cache, on_epoch=told.append)
    assert [(record["view"], record["epoch"], record["epochs"]) for record in told] == [
        ("vicreg", 1, 2),
        ("vicreg", 2, 2),
    ]
    encode("vicreg", IMAGES, VICREG, cache, on_epoch=told.append)
    assert len(told) == 2, "nothing is learned the second time"


def test_encode__writes_its_checkpoint_into_the_cache(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepset.views.pretrain.SAVE_EVERY", 0)
    seen: list[list[str]] = []
    encode("simclr", IMAGES, SIMCLR, cache, on_epoch=lambda _: seen.append(_suffixes(cache.folder)))
    assert seen[0] == ["about.json", "checkpoint.safetensors", "lock"]
    assert _suffixes(cache.folder) == ["lock", "safetensors"]


def _suffixes(folder: Path) -> list[str]:
    return sorted(path.name.split(".", 1)[1] for path in folder.iterdir())


def test_without_mirroring__changes_that_alone() -> None:
    for settings in TRAINED.values():
        found: Any = without_mirroring(settings)
        assert found.augmentation.flip == 0.0
        assert type(found) is type(settings)
        assert dataclasses.replace(found, augmentation=settings.augmentation) == settings
        assert dataclasses.replace(found.augmentation, flip=settings.augmentation.flip) == settings.augmentation
    assert without_mirroring(DINOv2Settings()) == DINOv2Settings()


def test_encoder_settings__of_images_that_may_not_be_mirrored() -> None:
    config = make_config(flags={"view_preset": "desk"})
    settings: dict[str, Any] = dict(config.encoder_settings(mirrored=False))
    assert set(settings) == set(ENCODERS)
    assert (settings["simclr"].augmentation.flip, settings["vicreg"].augmentation.flip) == (0.0, 0.0)
    plain: Any = config.encoder_settings(mirrored=True)["simclr"]
    assert plain.augmentation.flip == 0.5


# ---------------------------------------------------------------- by name


def test_make_view__by_name(cache: Cache) -> None:
    made = make_view("simclr", IMAGES, Material(settings=TRAINED, cache=cache))
    assert made.entry == key("simclr", SIMCLR)
    assert torch.equal(made.features, encode("simclr", IMAGES, SIMCLR, None).features)
    pixels = make_view("pixels", IMAGES, Material())
    assert pixels.entry is None
    assert torch.equal(pixels.features, (IMAGES.flatten(1).float() + 1) / 256)
    with pytest.raises(ValueError, match="the view 'supervised' is a learner's; it is made in keepset run"):
        make_view("supervised", IMAGES, Material())


OWN = """
import numpy, torch
weight = torch.ones(64, 5, requires_grad=True)
def trained(images): return images.flatten(1).float() @ weight
def double(images): return images.flatten(1).double()
def half(images): return images.flatten(1).bfloat16()
def whole(images): return images.flatten(1).int()
def flat(images): return images.flatten().float()
def short(images): return images[1:].flatten(1).float()
def array(images): return images.flatten(1).numpy()
value = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_encoders.py").write_text(OWN, encoding="utf-8")
    (tmp_path / "own_broken.py").write_text("import no_such_module_anywhere\n", encoding="utf-8")
    (tmp_path / "own_torn.py").write_text("def (\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("function", ["trained", "double", "half", "whole"])
def test_make_view__an_own_encoder_s_features_are_plain_float32(function: str) -> None:
    features = make_view(f"own_encoders:{function}", IMAGES, Material()).features
    assert features.dtype == torch.float32
    assert not features.requires_grad


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("flat", r"must be a tensor of shape \(12, d\), got \(768,\)"),
        ("short", r"must be a tensor of shape \(12, d\), got \(11, 64\)"),
        ("array", r"must be a tensor of shape \(12, d\), got ndarray"),
        ("value", "own_encoders has no function 'value'"),
        ("none", "own_encoders has no function 'none'"),
    ],
)
def test_make_view__an_own_encoder_that_gives_something_else(function: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"view 'own_encoders:{function}'.*{message}"):
        make_view(f"own_encoders:{function}", IMAGES, Material())


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "own_broken:f",
            r"cannot import own_broken \(No module named 'no_such_module_anywhere'\); it fails by itself",
        ),
        ("own_torn:f", "cannot import own_torn"),
        ("own_missing:f", "cannot import own_missing"),
        (":f", "cannot import"),
    ],
)
def test_make_view__a_module_that_cannot_be_imported(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"view '{name}': {message}"):
        make_view(name, IMAGES, Material())


def test_make_view__an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(
        ValueError, match=r"unknown view 'simclear'; did you mean 'simclr'\? or name your own as module:f"
    ):
        make_view("simclear", IMAGES, Material())
