"""keepset encode, as a user calls it: a folder of photographs, arrays, a data set."""

import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open

from keepset import cli
from keepset.data import DataSettings, load, split
from keepset.experiment.config import make_config
from keepset.experiment.run import run
from keepset.views import SimCLRSettings, VICRegSettings, neighbour_accuracy, simclr, vicreg
from keepset.views.cache import Cache

QUICK = ("--epochs", "1", "--set", "simclr.hidden=16", "--set", "simclr.output=8", "--device", "cpu")
VICREG = ("--epochs", "1", "--set", "vicreg.hidden=16", "--set", "vicreg.output=8", "--device", "cpu")
NAMES = ("cat/1.png", "cat/2.png", "dog/1.png", "dog/3.jpg", "eel/1.png", "eel/2.png")


@pytest.fixture
def call(tmp_path: Path, capsys: Any, monkeypatch: Any) -> Any:
    generator = np.random.default_rng(0)
    for name in NAMES:
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, size=(10, 12, 3), dtype=np.uint8)).save(tmp_path / "photos" / name)
    labels = np.arange(24) % 3
    grey = (generator.integers(0, 60, size=(24, 8, 8)) + 60 * labels[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "grey.npz", images=grey, labels=labels)
    np.savez(tmp_path / "plain.npz", pictures=grey)
    np.save(tmp_path / "y.npy", np.array(["a", "b", "c"])[labels])
    (tmp_path / "encoders_of_mine.py").write_text("def mean(images):\n    return images.float().mean((2, 3)) + 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("KEEPSET_CACHE", str(tmp_path / "views"))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the command sets its own; put back afterwards

    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keepset", "encode", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return called


def entries() -> list[str]:
    return sorted(entry.key for entry in Cache().entries())


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be trained from here on."""

    def fail(*_: object, **__: object) -> None:
        raise ValueError("trained again")

    monkeypatch.setattr("keepset.views.pretrain.Pretrainer.train_epoch", fail)


# ---------------------------------------------------------------- folders and files


def test_folder__embedding_names_and_accuracy(call: Any, tmp_path: Path) -> None:
    code, out, err = call(
        "photos", "--encoder", "simclr", "-o", "z.npy", "--names", "z.txt", *QUICK, "--image-size", "8"
    )
    assert code == 0
    found = np.load(tmp_path / "z.npy")
    assert found.dtype == np.float32
    (entry,) = Cache().entries()
    assert (entry.encoder, entry.count, entry.shape, entry.epochs) == ("simclr", 6, (3, 8, 8), 1)
    assert found.shape == (6, entry.d)
    features = torch.from_numpy(found)
    accuracy = 100 * neighbour_accuracy(features, torch.tensor([0, 0, 1, 1, 2, 2]))
    assert out.splitlines() == [
        f"6 x {entry.d} written to z.npy, cache entry {entry.key[:8]}",
        f"20-NN accuracy {accuracy:.1f} %",
    ]
    assert re.fullmatch(r"simclr: 1/1 loss \d+\.\d{3}, 0 s left\n", err)
    assert (tmp_path / "z.txt").read_text(encoding="utf-8").splitlines() == list(NAMES)


def test_folder__is_32_pixels_a_side_and_mirrored_unless_told(call: Any, tmp_path: Path) -> None:
    assert call("photos", "--encoder", "simclr", "-o", "z.npy", *QUICK, "--set", "simclr.width=2")[0] == 0
    (entry,) = Cache().entries()
    assert entry.shape == (3, 32, 32)
    with safe_open(tmp_path / "views" / f"{entry.key}.safetensors", "pt") as file:
        assert json.loads(file.metadata()["recipe"])["settings"]["augmentation"]["flip"] == 0.5


@pytest.mark.parametrize(("encoder", "flags"), [("simclr", QUICK), ("vicreg", VICREG)])
def test_npz__is_what_the_function_gives_and_grey_is_not_mirrored(
    call: Any, tmp_path: Path, encoder: str, flags: tuple[str, ...]
) -> None:
    code, out, _ = call("grey.npz", "--encoder", encoder, "-o", "z.npy", *flags)
    assert code == 0
    images = torch.from_numpy(np.load("grey.npz")["images"]).unsqueeze(1)
    kind: Any = {"simclr": SimCLRSettings, "vicreg": VICRegSettings}[encoder]
    small = kind(epochs=1, hidden=16, output=8)
    flipless = kind(**{**vars(small), "augmentation": type(small.augmentation)(flip=0.0)})
    features = simclr(images, flipless) if encoder == "simclr" else vicreg(images, flipless)
    assert np.array_equal(np.load(tmp_path / "z.npy"), features.numpy())
    accuracy = 100 * neighbour_accuracy(features, torch.from_numpy(np.load("grey.npz")["labels"]))
    assert f"20-NN accuracy {accuracy:.1f} %" in out


def test_npz__labels_beside_it_and_none(call: Any) -> None:
    plain = call("plain.npz", "--encoder", "simclr", "-o", "z.npy", *QUICK)
    assert plain[0] == 0
    assert "accuracy" not in plain[1]
    _, with_labels, _ = call("plain.npz:pictures", "--encoder", "simclr", "-o", "z.npy", "--labels", "y.npy", *QUICK)
    _, own_labels, _ = call("grey.npz", "--encoder", "simclr", "-o", "z.npy", *QUICK)
    assert with_labels.splitlines()[1] == own_labels.splitlines()[1]
    assert len(entries()) == 1, "one entry for the same images, wherever they lie"


def test_again__takes_the_cache_entry_and_says_the_same(call: Any, tmp_path: Path, monkeypatch: Any) -> None:
    first = call("grey.npz", "--encoder", "simclr", "-o", "z.npy", *QUICK)
    content = (tmp_path / "z.npy").read_bytes()
    forbid(monkeypatch)
    second = call("grey.npz", "--encoder", "simclr", "-o", "z.npy", *QUICK)
    assert (second[0], second[1], second[2]) == (0, first[1], "")
    assert (tmp_path / "z.npy").read_bytes() == content
    assert (
        "trained again" in call("grey.npz", "--encoder", "simclr", "-o", "z.npy", *QUICK, "--set", "simclr.seed=1")[2]
    )


def test_cache__in_a_folder_of_one_s_own(call: Any, tmp_path: Path) -> None:
    assert call("grey.npz", "--encoder", "simclr", "-o", "z.npy", *QUICK, "--cache", "kept/here")[0] == 0
    assert len(Cache(tmp_path / "kept" / "here").entries()) == 1
    assert not (tmp_path / "views").exists()


def test_pixels__and_an_own_encoder_are_not_cached(call: Any, tmp_path: Path) -> None:
    code, out, err = call("grey.npz", "--encoder", "pixels", "-o", "z.npy")
    assert (code, out.splitlines()[0], err) == (0, "24 x 64 written to z.npy", "")
    images = np.load("grey.npz")["images"]
    assert np.array_equal(np.load(tmp_path / "z.npy"), (images.reshape(24, 64).astype(np.float32) + 1) / 256)
    code, out, _ = call("grey.npz", "--encoder", "encoders_of_mine:mean", "-o", "z.npy")
    assert (code, out.splitlines()[0]) == (0, "24 x 1 written to z.npy")
    np.testing.assert_allclose(np.load(tmp_path / "z.npy")[:, 0], images.mean((1, 2)) + 1, rtol=1e-6)
    assert entries() == []


def test_own_encoder__with_weights_that_are_trained(call: Any, tmp_path: Path) -> None:
    """Whoever forgets torch.no_grad, or computes in another precision, gets an embedding all the same."""
    text = "import torch\nlayer = torch.nn.Linear(64, 3)\n"
    text += "def linear(images):\n    return layer(images.flatten(1) / 255)\n"
    text += "def half(images):\n    return images.flatten(1).bfloat16()\n"
    (tmp_path / "encoders_with_grad.py").write_text(text)
    for function, size in (("linear", 3), ("half", 64)):
        code, out, err = call("grey.npz", "--encoder", f"encoders_with_grad:{function}", "-o", "z.npy")
        assert (code, err) == (0, "")
        assert out.startswith(f"24 x {size} written")
        assert np.load(tmp_path / "z.npy").dtype == np.float32


# ---------------------------------------------------------------- data sets


def test_digits__a_row_for_every_episode_and_their_mean(call: Any) -> None:
    pair = ("--encoder", "simclr,pixels", "--set", "data.episodes=2", "--set", "data.order=[1,0,2,3,4,5,6,7,8,9]")
    code, out, err = call("digits", *pair, *QUICK)
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert out.startswith("digits, 20-NN accuracy inside each episode, leaving one out, per cent\n")
    assert lines[1] == ["episode", "simclr", "pixels"]
    assert [line[0] for line in lines[2:]] == ["1", "2", "mean"]
    table = np.array([[float(cell) for cell in line[1:]] for line in lines[2:]])
    np.testing.assert_allclose(table[2], table[:2].mean(0), atol=0.051)
    episodes = split(load(DataSettings()), DataSettings(episodes=2))
    pixels = [100 * neighbour_accuracy(each.train_images.flatten(1) + 1.0, each.train_labels) for each in episodes]
    np.testing.assert_allclose(table[:2, 1], pixels, atol=0.051)
    assert len(entries()) == 2
    assert f"simclr of episode 2: 20-NN accuracy {lines[3][1]} %, cache entry " in err
    assert call("digits", *pair, *QUICK)[1] == out
    assert len(entries()) == 2


def test_digits__have_a_preset_of_their_own(call: Any) -> None:
    call("digits", "--encoder", "simclr", "--episode", "1", "--epochs", "1", "--device", "cpu")
    first = entries()
    flags = ("--encoder", "simclr", "--episode", "1", "--epochs", "1", "--device", "cpu")
    call("digits", *flags, "--preset", "digits")
    assert entries() == first, "digits is what digits get unasked"
    small = ("--set", "simclr.hidden=16", "--set", "simclr.output=8")
    call("digits", *flags, *small, "--preset", "desk")
    call("digits", *flags, *small)
    assert len(entries()) == 3


def test_digits__a_run_finds_what_was_encoded(call: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Also where the preset would mirror images and the data set forbids it."""
    assert call("digits", "--encoder", "simclr", "--preset", "desk", "--set", "data.episodes=2", *QUICK)[0] == 0
    forbid(monkeypatch)
    small = {"epochs": 1, "hidden": 16, "output": 8}
    given = {"data": {"episodes": 2}, "train": {"epochs": 1, "batch": 50}, "device": "cpu", "learner": "finetune"}
    config = make_config(flags={**given, "selector": "maxherding:simclr", "view_preset": "desk", "simclr": small})
    result = run(config, tmp_path / "runs")
    assert sorted(episode["simclr"]["entry"] for episode in result["views"]) == entries()


def test_digits__one_episode_to_a_file(call: Any, tmp_path: Path) -> None:
    code, out, _ = call("digits", "--encoder", "simclr", "--episode", "2", "-o", "z.npy", *QUICK)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["2"], "no mean of one"
    episode = split(load(DataSettings()), DataSettings())[1]
    (entry,) = Cache().entries()
    assert np.load(tmp_path / "z.npy").shape == (len(episode.train_images), entry.d)
    assert entry.count == len(episode.train_images)
    code, _, _ = call("digits", "--encoder", "pixels", "--episode", "2", "-o", "p.npy")
    assert np.array_equal(np.load("p.npy"), ((episode.train_images.flatten(1).float() + 1) / 256).numpy())


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("grey.npz --encoder simclr", "-o must name a file for the embedding, such as -o simclr.npy"),
        ("grey.npz --encoder simclr,pixels -o z.npy", "--encoder must be one for a folder or file, got simclr, pixels"),
        ("grey.npz --encoder simclr -o z.csv", "--output must end in .npy, got z.csv"),
        ("grey.npz --encoder simclear -o z.npy", "unknown view 'simclear'; did you mean 'simclr'?"),
        ("grey.npz --encoder supervised -o z.npy", "the view 'supervised' is a learner's own; keepset run makes it"),
        ("grey.npz --encoder previous -o z.npy", "the view 'previous' is a learner's own; keepset run makes it"),
        ("grey.npz --encoder simclr -o z.npy --episode 1", "--episode means nothing of a folder or file; leave it out"),
        ("grey.npz --encoder simclr -o z.npy --preset dsk", "unknown view_preset 'dsk'; did you mean 'desk'?"),
        ("grey.npz --encoder simclr -o z.npy --epochs 0", "epochs must be in 1..1000000"),
        ("grey.npz --encoder simclr -o z.npy --model x/", "--model is for dinov2, got --encoder simclr; leave it out"),
        ("digits --encoder vicreg,pixels --fetch", "--fetch is for dinov2, got --encoder vicreg,pixels; leave it out"),
        ("grey.npz --encoder pixels -o z.npy --epochs 5", "--epochs is for simclr and vicreg, got --encoder pixels"),
        ("digits --encoder dinov2 --preset desk", "--preset is for simclr and vicreg, got --encoder dinov2"),
        ("grey.npz --encoder simclr -o z.npy --set simclr.rat=1", "unknown setting 'simclr.rat'; did you mean 'rate'?"),
        ("grey.npz --encoder simclr -o z.npy --labels none.npy", "no such file: none.npy"),
        ("grey.npz --encoder simclr -o z.npy --device gpu", "unknown device 'gpu'"),
        ("grey.npz --encoder none_of_mine:f -o z.npy", "view 'none_of_mine:f': cannot import none_of_mine"),
        ("grey.npz --encoder encoders_of_mine:men -o z.npy", "encoders_of_mine has no function 'men'"),
        ("nowhere --encoder simclr -o z.npy", "nowhere must be a data set of keepset ls, a folder of images, .npy"),
        ("y.npy --encoder simclr -o z.npy", "y.npy must be uint8"),
        ("photos --encoder simclr -o z.npy --image-size 0", "image_size must be in 1..4096"),
        ("photos --encoder dinov2 -o z.npy --model none/", "no weights of none/"),
        ("digits --encoder simclr --labels y.npy", "--labels means nothing of the data set digits; leave it out"),
        ("digits --encoder simclr --names z.txt", "--names means nothing of the data set digits; leave it out"),
        ("digits --encoder simclr -o z.npy", "-o holds one embedding; name one --encoder and one --episode"),
        ("digits --encoder simclr,pixels --episode 1 -o z.npy", "-o holds one embedding"),
        ("digits --encoder simclr --episode 6", "--episode must be in 1..5 (episodes of this data set), got 6"),
        ("digits --encoder simclr --episode 0", "--episode must be in 1..5"),
        ("digits --encoder simclr,vicrec", "unknown view 'vicrec'; did you mean 'vicreg'?"),
        ("digits --encoder supervised", "keepset run makes it"),
        ("digits --encoder simclr --episode 1 -o z.txt", "--output must end in .npy, got z.txt"),
    ],
)
def test_errors__one_line_before_any_work(
    call: Any, tmp_path: Path, monkeypatch: Any, arguments: str, message: str
) -> None:
    forbid(monkeypatch)
    code, out, err = call(*arguments.split())
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "z.npy").exists()
    assert not (tmp_path / "views").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("grey.npz --encoder simclr -o none/z.npy", "cannot write none/z.npy: the folder none does not exist"),
        ("grey.npz --encoder simclr -o folder.npy", "cannot write folder.npy: it is a folder; name a file"),
        ("grey.npz --encoder simclr -o z.npy --names none/z.txt", "cannot write none/z.txt: the folder none does not"),
        ("digits --encoder simclr --episode 1 -o none/z.npy", "cannot write none/z.npy: the folder none does not"),
    ],
)
def test_errors__an_output_that_cannot_be_written_is_refused_before_training(
    call: Any, tmp_path: Path, monkeypatch: Any, arguments: str, message: str
) -> None:
    (tmp_path / "folder.npy").mkdir()
    forbid(monkeypatch)
    code, out, err = call(*arguments.split(), *QUICK)
    assert (code, out) == (2, "")
    assert message in err


def test_errors__labels_of_other_images(call: Any) -> None:
    code, _, err = call("photos", "--encoder", "pixels", "-o", "z.npy", "--labels", "y.npy")
    assert (code, err) == (2, "keepset: y.npy must hold a label an image (6), got 24\n")


def test_errors__images_with_transparency_say_what_to_do(call: Any, tmp_path: Path, monkeypatch: Any) -> None:
    np.save(tmp_path / "clear.npy", np.zeros((5, 8, 8, 4), np.uint8))
    code, _, err = call("clear.npy", "--encoder", "simclr", "-o", "z.npy", *QUICK)
    assert code == 2
    assert "(5, 4, 8, 8)" in err, "the images as they are, not as they were doubled"


def test_one_image__has_no_accuracy_but_an_embedding(call: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", images=np.ones((1, 8, 8), np.uint8), labels=np.array([3]))
    code, out, err = call("one.npz", "--encoder", "pixels", "-o", "z.npy")
    assert (code, err) == (0, "")
    assert out.startswith("1 x 64 written to z.npy")


def test_interrupted__leaves_the_old_output_and_goes_on_later(call: Any, tmp_path: Path, monkeypatch: Any) -> None:
    flags = (*QUICK[2:], "--epochs", "3")
    np.save(tmp_path / "z.npy", np.zeros(3))
    before = (tmp_path / "z.npy").read_bytes()
    monkeypatch.setattr("keepset.views.pretrain.SAVE_EVERY", 0)
    with monkeypatch.context() as patch:
        patch.setattr("keepset.commands.encode.told_of_views", lambda _: interrupt_at(2))
        code, out, _ = call("grey.npz", "--encoder", "simclr", "-o", "z.npy", "--names", "z.txt", *flags)
    assert (code, out) == (130, "")
    assert (tmp_path / "z.npy").read_bytes() == before
    assert not (tmp_path / "z.txt").exists()
    assert not list(tmp_path.glob(".z.*"))
    (entry,) = Cache().entries()
    assert entry.state == "unfinished"
    code, _, err = call("grey.npz", "--encoder", "simclr", "-o", "z.npy", *flags)
    assert code == 0
    assert [line.split()[1] for line in err.splitlines()] == ["3/3"], "the epochs before are not trained again"
    resumed = np.load(tmp_path / "z.npy")
    Cache().clear()
    call("grey.npz", "--encoder", "simclr", "-o", "z.npy", *flags)
    assert np.array_equal(resumed, np.load(tmp_path / "z.npy"))


def interrupt_at(epoch: int) -> Any:
    def told(record: Any) -> None:
        if record["epoch"] == epoch:
            raise KeyboardInterrupt

    return told


def test_help__has_examples(call: Any) -> None:
    code, out, _ = call("--help")
    assert code == 0
    assert "keepset encode photos/ --encoder simclr -o simclr.npy" in out
    assert "--image-size" in out
