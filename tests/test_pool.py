"""Images without a split: folders as they lie on a disk, and arrays in files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from keepset.data.pool import Pool, read_pool, read_targets
from keepset.files import array_names

GENERATOR = np.random.default_rng(0)
GREY = GENERATOR.integers(0, 256, size=(6, 8, 8), dtype=np.uint8)
COLOUR = GENERATOR.integers(0, 256, size=(6, 8, 9, 3), dtype=np.uint8)
LABELS = np.array(["dog", "cat", "eel", "cat", "dog", "dog"])
NUMBERS = [1, 0, 2, 0, 1, 1]


def paint(path: Path, level: int, size: tuple[int, int] = (8, 8)) -> None:
    """An image of one colour, by which it is told from others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level, 2 * level, 255 - level)).save(path)


def levels(pool: Pool) -> list[int]:
    return [int(image[0].float().mean().round()) for image in pool.images]


# ---------------------------------------------------------------- folders


def test_folder__flat_images_have_no_labels(tmp_path: Path) -> None:
    for place, name in enumerate(["c.png", "a.png", "B.bmp"]):
        paint(tmp_path / name, 10 * place)
    pool = read_pool(str(tmp_path), 8)
    assert pool.names == ("B.bmp", "a.png", "c.png")
    assert levels(pool) == [20, 10, 0]
    assert pool.labels is None
    assert pool.images.dtype == torch.uint8
    assert pool.images.shape == (3, 3, 8, 8)
    assert pool.images[0, :, 0, 0].tolist() == [20, 40, 235], "red, green, blue"
    assert pool.mirrored


def test_folder__the_folder_of_a_class_is_its_label(tmp_path: Path) -> None:
    for place, name in enumerate(["eel/1.png", "cat/2.png", "cat/1.png", "dog/1.png"]):
        paint(tmp_path / name, 10 * place)
    pool = read_pool(str(tmp_path), 8)
    assert pool.names == ("cat/1.png", "cat/2.png", "dog/1.png", "eel/1.png")
    assert levels(pool) == [20, 10, 30, 0]
    assert pool.labels is not None
    assert pool.labels.tolist() == [0, 0, 1, 2]
    assert pool.labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["all/1.png", "all/2.png"], None),
        (["1.png", "cat/1.png", "dog/1.png"], None),
        (["animals/cat/1.png", "animals/dog/1.png", "tools/saw/1.png"], [0, 1, 2]),
        (["test/cat/1.png", "test/dog/1.png", "train/cat/1.png", "train/dog/1.png"], [0, 1, 0, 1]),
    ],
    ids=["one folder", "an image beside the folders", "nested folders", "train and test"],
)
def test_folder__which_folders_are_classes(tmp_path: Path, names: list[str], labels: list[int] | None) -> None:
    for name in names:
        paint(tmp_path / name, 10)
    pool = read_pool(str(tmp_path), 8)
    assert pool.names == tuple(names)
    assert (None if pool.labels is None else pool.labels.tolist()) == labels


def test_folder__other_endings_and_hidden_files_are_passed_over(tmp_path: Path) -> None:
    paint(tmp_path / "photo.JPG", 10)
    paint(tmp_path / ".hidden.png", 20)
    (tmp_path / "notes.txt").write_text("no image", encoding="utf-8")
    (tmp_path / "named_like_one.png").mkdir()
    assert read_pool(str(tmp_path), 8).names == ("photo.JPG",)


def test_folder__hidden_folders_are_passed_over(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png", 10)
    paint(tmp_path / ".thumbnails" / "1.png", 20)
    paint(tmp_path / "a" / ".trash" / "1.png", 30)
    pool = read_pool(str(tmp_path), 8)
    assert pool.names == ("a/1.png",)
    assert pool.labels is None


def test_folder__below_a_hidden_one_is_read_if_it_is_named(tmp_path: Path) -> None:
    paint(tmp_path / ".mine" / "1.png", 10)
    assert read_pool(str(tmp_path / ".mine"), 8).names == ("1.png",)


def test_folder__images_of_any_size_become_squares(tmp_path: Path) -> None:
    paint(tmp_path / "1.png", 10, (40, 20))
    paint(tmp_path / "2.png", 20, (5, 5))
    pool = read_pool(str(tmp_path), 16)
    assert pool.images.shape == (2, 3, 16, 16)
    assert levels(pool) == [10, 20]


@pytest.mark.parametrize("size", [0, -1, 5000])
def test_folder__image_size_out_of_range(tmp_path: Path, size: int) -> None:
    paint(tmp_path / "1.png", 10)
    with pytest.raises(ValueError, match=rf"image_size must be in 1\.\.4096 \(pixels a side\), got {size}"):
        read_pool(str(tmp_path), size)


def test_folder__a_broken_image_is_named(tmp_path: Path) -> None:
    paint(tmp_path / "1.png", 10)
    (tmp_path / "2.png").write_bytes((tmp_path / "1.png").read_bytes()[:40])
    with pytest.raises(ValueError, match=r"2\.png is damaged or no image .*; replace it or take it out"):
        read_pool(str(tmp_path), 8)


def test_folder__without_images(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no image", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no images"):
        read_pool(str(tmp_path), 8)


# ---------------------------------------------------------------- files


def saved(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "images.npz", **arrays)
    return str(folder / "images.npz")


@pytest.mark.parametrize(("images", "labels"), [("images", "labels"), ("train_images", "train_labels")])
def test_npz__images_with_labels_by_their_usual_names(tmp_path: Path, images: str, labels: str) -> None:
    pool = read_pool(saved(tmp_path, **{labels: LABELS, "other": np.ones(3), images: GREY}), 99)
    assert torch.equal(pool.images, torch.from_numpy(GREY).unsqueeze(1))
    assert pool.labels is not None
    assert pool.labels.tolist() == NUMBERS
    assert pool.names == ("0", "1", "2", "3", "4", "5")


def test_npz__images_come_before_train_images(tmp_path: Path) -> None:
    pool = read_pool(saved(tmp_path, train_images=GREY, train_labels=LABELS, images=GREY[:2]), 8)
    assert len(pool.images) == 2
    assert pool.labels is None, "labels of other images are none of these"


def test_npz__one_array_of_any_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "unnamed.npz", COLOUR)
    pool = read_pool(str(tmp_path / "unnamed.npz"), 8)
    assert torch.equal(pool.images, torch.from_numpy(COLOUR).permute(0, 3, 1, 2))
    assert pool.labels is None


def test_npz__several_arrays_and_a_key(tmp_path: Path) -> None:
    path = saved(tmp_path, first=GREY, second=GREY[::-1])
    assert torch.equal(read_pool(f"{path}:second", 8).images[0, 0], torch.from_numpy(GREY[5]))
    with pytest.raises(ValueError, match=r"holds 2 arrays; name one as .*images\.npz:KEY \(first, second\)"):
        read_pool(path, 8)
    with pytest.raises(ValueError, match=r"has no array 'secnd'; did you mean 'second'\?"):
        read_pool(f"{path}:secnd", 8)


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (GREY, (6, 1, 8, 8)),
        (COLOUR, (6, 3, 8, 9)),
        (COLOUR.transpose(0, 3, 1, 2), (6, 3, 8, 9)),
        (GREY[..., None], (6, 1, 8, 8)),
    ],
)
def test_npy__every_layout(tmp_path: Path, array: Any, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "images.npy", array)
    pool = read_pool(str(tmp_path / "images.npy"), 99)
    assert pool.images.shape == shape
    expected = COLOUR[2, 5, 7] if shape[1] == 3 else GREY[2, 5, 7:8]
    assert pool.images[2, :, 5, 7].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (GREY.astype(np.float32) / 255, r"must be uint8, got float32; scale them to 0\.\.255"),
        (GREY.astype(np.int64), "must be uint8, got int64"),
        (GREY[0], r"must be \(n, h, w\), \(n, h, w, c\) or \(n, c, h, w\), got \(8, 8\)"),
        (COLOUR[..., :2], r"got \(6, 8, 9, 2\); with \(1, 3, 4\) channels"),
        (COLOUR[:, :3], r"got \(6, 3, 9, 3\); where the channels are cannot be told"),
    ],
)
def test_npy__what_is_no_images(tmp_path: Path, array: Any, message: str) -> None:
    np.save(tmp_path / "images.npy", array)
    with pytest.raises(ValueError, match=r"images\.npy .*" + message):
        read_pool(str(tmp_path / "images.npy"), 8)


def test_mirrored__grey_is_not(tmp_path: Path) -> None:
    assert not read_pool(saved(tmp_path, images=GREY), 8).mirrored
    assert read_pool(saved(tmp_path, images=COLOUR), 8).mirrored


def test_npz__a_label_for_each_image(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"images\.npz:labels must hold a label an image \(6\), got 5"):
        read_pool(saved(tmp_path, images=GREY, labels=LABELS[:5]), 8)


def test_targets__are_numbered_in_sorted_order(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.array([40, -3, 40, 7]))
    assert read_targets(str(tmp_path / "y.npy"), 4).tolist() == [2, 0, 2, 1]
    np.save(tmp_path / "y.npy", np.array([0.5, 1.5]))
    with pytest.raises(ValueError, match="labels must be integers or strings, got float64"):
        read_targets(str(tmp_path / "y.npy"), 2)


@pytest.mark.parametrize("source", ["photos", "cifar10", "images.txt", "images.safetensors"])
def test_source__of_no_known_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=rf"{source} must be a data set of keepset ls, a folder of images, \.npy"):
        read_pool(source, 8)


@pytest.mark.parametrize("source", ["none.npz", "none.npz:images", "none.npy"])
def test_source__a_file_that_is_not_there(tmp_path: Path, source: str) -> None:
    with pytest.raises(ValueError, match=r"no such file: .*none\.np"):
        read_pool(str(tmp_path / source), 8)


def test_source__in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    paint(tmp_path / "photos" / "1.png", 10)
    saved(tmp_path, images=GREY)
    assert len(read_pool("~/photos", 8).images) == 1
    assert len(read_pool("~/images.npz", 8).images) == 6
    assert len(read_pool("~/images.npz:images", 8).images) == 6


# ---------------------------------------------------------------- names of arrays


def test_array_names__of_a_file_and_of_what_is_none(tmp_path: Path) -> None:
    assert array_names(saved(tmp_path, b=GREY, a=LABELS)) == ["b", "a"]
    with pytest.raises(ValueError, match="no such file"):
        array_names(tmp_path / "none.npz")
    whole = (tmp_path / "images.npz").read_bytes()
    np.save(tmp_path / "one.npy", GREY)
    for content in (b"", b"no zip", whole[: len(whole) // 2], (tmp_path / "one.npy").read_bytes()):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.npz (is damaged or not readable|holds Python objects)"):
            array_names(tmp_path / "bad.npz")
