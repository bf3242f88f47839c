"""DINOv2 on a tiny model of random weights: the features, where the weights come from, and what can be wrong."""

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from keepset.views.cache import Recipe
from keepset.views.dinov2 import DINOv2Settings, dinov2, prepared, weights_recipe

CPU = torch.device("cpu")

transformers = pytest.importorskip("transformers")
IMAGES = torch.randint(0, 256, (7, 3, 32, 32), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def tiny(seed: int) -> Any:
    torch.manual_seed(seed)
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, patch_size=14, image_size=56
    )
    model = transformers.Dinov2Model(config).eval()
    for parameter in model.parameters():  # fresh norms are the identity, which would hide a missing one
        parameter.data += 0.1 * torch.randn(parameter.shape)
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny(0).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever tries to connect fails, and fails the test too if that is swallowed."""
    tried: list[str] = []

    def refuse(*arguments: object, **_: object) -> None:
        tried.append(str(arguments))
        raise OSError("no network here")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    yield
    assert tried == []


def settings(folder: Path, **others: Any) -> DINOv2Settings:
    return DINOv2Settings(**{"model": str(folder), "size": 28, **others})


# ---------------------------------------------------------------- features


def test_dinov2__is_the_normalised_class_token_of_the_model(saved: Path) -> None:
    found = dinov2(IMAGES, settings(saved, size=56))
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    inputs = []
    for image in IMAGES:
        # channel by channel in floating point, which Pillow does not round
        planes = [
            Image.fromarray(plane.float().numpy() / 255).resize((56, 56), Image.Resampling.BICUBIC) for plane in image
        ]
        inputs.append(
            torch.from_numpy((np.stack([np.asarray(plane) for plane in planes], axis=-1).clip(0, 1) - mean) / std)
            .permute(2, 0, 1)
            .float()
        )
    with torch.no_grad():
        model = tiny(0)
        expected = model.layernorm(model.encoder(model.embeddings(torch.stack(inputs))).last_hidden_state)[:, 0]
    assert found.shape == (7, 32)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_dinov2__on_a_gpu_in_bfloat16_nearly_the_same(saved: Path) -> None:
    expected, found = dinov2(IMAGES, settings(saved)), dinov2(IMAGES.cuda(), settings(saved))
    assert found.is_cuda
    assert found.dtype == torch.float32
    assert torch.cosine_similarity(found.cpu(), expected).min() > 0.99
    assert not torch.equal(found.cpu(), expected), "bfloat16 rounds"


@pytest.mark.parametrize("size", [14, 56])
def test_prepared__resizes_as_pillow_does(size: int) -> None:
    found = prepared(IMAGES[:1], size)[0, 1] * 0.224 + 0.456
    plane = Image.fromarray(IMAGES[0, 1].float().numpy() / 255)  # floating point, which Pillow does not round
    expected = torch.from_numpy(np.array(plane.resize((size, size), Image.Resampling.BICUBIC)).clip(0, 1))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_prepared__the_right_size_is_only_normalised() -> None:
    found = prepared(IMAGES, 32)
    expected = (IMAGES[:, 2] / 255 - 0.406) / 0.225
    torch.testing.assert_close(found[:, 2], expected)


def test_dinov2__the_batch_changes_nothing_beyond_rounding(saved: Path) -> None:
    told: list[tuple[int, int]] = []
    whole = dinov2(IMAGES, settings(saved))
    parts = dinov2(IMAGES, settings(saved, batch=3), lambda done, count: told.append((done, count)))
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)
    assert told == [(3, 7), (6, 7), (7, 7)]


def test_dinov2__grey_is_the_same_grey_in_three_channels(saved: Path) -> None:
    grey = IMAGES[:, :1]
    assert torch.equal(dinov2(grey, settings(saved)), dinov2(grey.repeat(1, 3, 1, 1), settings(saved)))


def test_dinov2__weights_in_half_precision_are_used_in_float32(folder: Path) -> None:
    tiny(0).half().save_pretrained(folder)
    found = dinov2(IMAGES, settings(folder))
    assert found.dtype == torch.float32
    assert not torch.equal(found, found.half().float()), "computed in float32, not converted at the end"


def test_dinov2__is_quiet_and_leaves_the_library_as_it_was(saved: Path, capfd: Any) -> None:
    logging = transformers.utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    dinov2(IMAGES[:1], settings(saved))
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert before[1]


@pytest.mark.parametrize("images", [IMAGES.float(), IMAGES[0], IMAGES[:0], IMAGES[:, :2]])
def test_dinov2__images_that_are_none(saved: Path, images: Tensor) -> None:
    with pytest.raises(ValueError, match=r"images must be uint8 of shape \(n, 1 or 3, h, w\)"):
        dinov2(images, settings(saved))


# ---------------------------------------------------------------- the recipe


def test_recipe__is_of_the_content_and_the_size_alone(saved: Path, folder: Path) -> None:
    first = weights_recipe(settings(saved), CPU)
    assert isinstance(first, Recipe)
    assert weights_recipe(settings(folder, batch=3, fetch=True), CPU) == first, "not of name, batch or fetch"
    assert weights_recipe(settings(saved, size=42), CPU) != first
    tiny(1).save_pretrained(folder)
    assert weights_recipe(settings(folder), CPU) != first


def test_recipe__another_config_is_another_model(saved: Path, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 0.1}))
    assert weights_recipe(settings(folder), CPU).text() != weights_recipe(settings(saved), CPU).text()


# ---------------------------------------------------------------- the hub, and never its network


def hub(saved: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...]) -> Path:
    """A hub's cache that holds `files` of somebody/tiny."""
    place = cache / "models--somebody--tiny"
    snapshot = place / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("a" * 40)
    for name in files:
        shutil.copy(saved / name, snapshot / name)
    monkeypatch.setattr(transformers.utils.hub.constants, "HF_HUB_CACHE", str(cache))
    return snapshot


@pytest.mark.parametrize("fetch", [False, True])
def test_hub__weights_that_are_here_are_used_without_network(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetch: bool
) -> None:
    hub(saved, tmp_path, monkeypatch, ("config.json", "model.safetensors"))
    given = DINOv2Settings("somebody/tiny", size=28, fetch=fetch)
    assert torch.equal(dinov2(IMAGES, given), dinov2(IMAGES, settings(saved)))
    assert weights_recipe(given, CPU) == weights_recipe(settings(saved), CPU)


@pytest.mark.parametrize("files", [(), ("config.json",)])
def test_hub__weights_that_are_not_here(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...]
) -> None:
    hub(saved, tmp_path, monkeypatch, files)
    for function in (lambda given: dinov2(IMAGES, given), lambda given: weights_recipe(given, CPU)):
        with pytest.raises(
            ValueError, match=r"no weights of somebody/tiny: looked for .*--fetch .*dinov2.fetch=true"
        ) as told:
            function(DINOv2Settings("somebody/tiny"))
        assert str(tmp_path) in str(told.value)


def test_hub__fetch_gets_what_is_not_here(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = hub(saved, tmp_path, monkeypatch, ())

    def fetched(model: str, name: str) -> str:
        assert model == "somebody/tiny"
        return str(shutil.copy(saved / name, snapshot / name))

    monkeypatch.setattr(transformers.utils.hub, "cached_file", fetched)
    given = DINOv2Settings("somebody/tiny", fetch=True)
    assert (
        weights_recipe(given, CPU).settings["model.safetensors"]
        == weights_recipe(settings(saved), CPU).settings["model.safetensors"]
    )


def test_hub__fetch_that_fails(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(model: str, name: str) -> str:
        raise OSError("We couldn't connect")

    hub(saved, tmp_path, monkeypatch, ())
    monkeypatch.setattr(transformers.utils.hub, "cached_file", fails)
    with pytest.raises(ValueError, match=r"cannot fetch somebody/tiny: We couldn't connect"):
        weights_recipe(DINOv2Settings("somebody/tiny", fetch=True), CPU)


def test_dinov2__a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no weights of .*nothing/here: looked for a folder of that name"):
        dinov2(IMAGES, DINOv2Settings(str(tmp_path / "nothing" / "here")))


def test_dinov2__without_the_extra_says_what_to_install(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    for given in (settings(saved), DINOv2Settings(fetch=True)):
        with pytest.raises(ValueError, match=r"^the view dinov2 needs transformers; pip install keepset\[dinov2\]"):
            dinov2(IMAGES, given)


# ---------------------------------------------------------------- damage


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def narrower(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({name: tensor[..., :-1].contiguous() for name, tensor in load_file(path).items()}, path, {"format": "pt"})


def lacking(folder: Path) -> None:
    path = folder / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(path).items() if "layernorm" not in name}
    save_file(kept, path, {"format": "pt"})


def foreign(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "vit"}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, r"model.safetensors is damaged or does not fit config.json"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"<html>"), r"model.safetensors is damaged"),
        (narrower, r"model.safetensors is damaged or does not fit config.json"),
        (lacking, r"model.safetensors lacks 2 weights of DINOv2, such as layernorm.bias"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config.json is damaged"),
        (lambda folder: (folder / "config.json").write_text("[1]"), r"config.json is damaged"),
        (foreign, r"config.json must be of the model type dinov2, got 'vit'"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"no model.safetensors in .*put both"),
        (lambda folder: (folder / "config.json").unlink(), r"no config.json in .*put both"),
    ],
    ids=[
        "cut",
        "foreign file",
        "shapes",
        "lacking",
        "config cut",
        "config a list",
        "config foreign",
        "none",
        "no config",
    ],
)
def test_dinov2__damaged_files(folder: Path, damage: Any, message: str) -> None:
    damage(folder)
    with pytest.raises(ValueError, match=message):
        dinov2(IMAGES, settings(folder))


def test_dinov2__pickled_weights_are_not_read(folder: Path) -> None:
    torch.save(tiny(0).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"no model.safetensors in"):
        dinov2(IMAGES, settings(folder))


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 225}, "size must be a multiple of 14, the model's patch size, got 225; take 224"),
        ({"size": 13}, "size must be in 14"),
        ({"size": 224.0}, "size must be a whole number"),
        ({"batch": 0}, "batch must be in 1"),
        ({"model": ""}, "model must be a name of the hub or a folder, got ''"),
    ],
)
def test_settings__bad_values(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DINOv2Settings(**given)


def test_dinov2__a_size_that_does_not_fit_the_patches_of_this_model(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"patch_size": 16}))
    with pytest.raises(ValueError, match="size must be a multiple of 16, the model's patch size, got 28; take 32"):
        dinov2(IMAGES, settings(folder))
