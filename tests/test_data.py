"""Data: files to tensors, class orders, episodes, and files that are broken. Every file is made here, and small."""

import io
import json
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from torch import Tensor

from keepset.data import DATASETS, Dataset, DataSettings, check_outside, cifar100, content, load, split, tinyimagenet
from keepset.data.archive import data_folder
from keepset.data.dataset import build, channel_statistics, every_fifth
from keepset.data.episodes import class_order, episodes, split_classes

CIFAR_CLASSES = 100


def check_dataset(data: Dataset) -> None:
    """What every data set keeps to."""
    for images, labels in ((data.train_images, data.train_labels), (data.test_images, data.test_labels)):
        assert images.dtype == torch.uint8
        assert images.is_contiguous()
        assert images.ndim == 4
        assert labels.dtype == torch.int64
        assert labels.shape == (len(images),)
        assert labels.unique().tolist() == list(range(data.classes))
    assert data.train_images.shape[1:] == data.test_images.shape[1:]
    assert len(data.mean) == len(data.std) == data.train_images.shape[1]
    assert min(data.std) > 0


# ---------------------------------------------------------------- orders and episodes


def test_class_order__canonical_counts_up() -> None:
    assert class_order(5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", [42, 35])
def test_class_order__seed_is_that_of_torch_and_leaves_its_generator_alone(seed: int) -> None:
    torch.manual_seed(seed)
    expected = torch.randperm(100).tolist()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    assert class_order(100, seed) == expected
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("order", [[2, 0, 1], (2, 0, 1), np.array([2, 0, 1]).tolist()])
def test_class_order__list_is_taken_as_it_is(order: Sequence[int]) -> None:
    assert class_order(3, order) == [2, 0, 1]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("canonic", "order must be 'canonical', a seed or a list of class ids, got 'canonic'"),
        (1.5, "order must be a whole number"),
        (True, "order must be a whole number"),
        ([0, 1, 1], "must name every class once, got class 1 twice"),
        ([0, 2], "must name all 3 classes, got 2; class 1 is missing"),
        ([0, 1, 3], r"a class id in order must be in 0\.\.2"),
    ],
)
def test_class_order__bad_input(order: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        class_order(3, order)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [(5, 4, 3, 2, 1, 0)]),
        (3, [(5, 4), (3, 2), (1, 0)]),
        (6, [(5,), (4,), (3,), (2,), (1,), (0,)]),
        ([3, 1, 2], [(5, 4, 3), (2,), (1, 0)]),
        ((6,), [(5, 4, 3, 2, 1, 0)]),
    ],
)
def test_split_classes__equal_and_uneven(count: Any, expected: list[tuple[int, ...]]) -> None:
    assert split_classes([5, 4, 3, 2, 1, 0], count) == expected


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (4, "episodes must divide the 6 classes, got 4; choose from 1, 2, 3, 6, or give a list of sizes"),
        (0, r"episodes must be in 1\.\.6"),
        (7, r"episodes must be in 1\.\.6"),
        (2.0, "episodes must be a whole number"),
        ("3", "must be a number or a list of sizes, got '3'"),
        ([3, 2], r"must add up to the 6 classes, got \[3, 2\]: 5"),
        ([6, 0], r"a size in episodes must be in 1\.\.6"),
        ([], r"must add up to the 6 classes, got \[\]: 0"),
    ],
)
def test_split_classes__bad_input(count: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_classes([0, 1, 2, 3, 4, 5], count)


def test_episodes__every_image_once_with_its_own_label_and_row() -> None:
    data = load(DataSettings())
    cut = episodes(data, order=3, episodes=[1, 4, 5])
    assert [len(episode.classes) for episode in cut] == [1, 4, 5]
    assert [label for episode in cut for label in episode.classes] == class_order(10, 3)
    assert torch.equal(torch.cat([e.train_rows for e in cut]).sort().values, torch.arange(len(data.train_images)))
    assert sum(len(episode.test_images) for episode in cut) == len(data.test_images)
    for episode in cut:
        assert torch.equal(episode.train_rows, episode.train_rows.sort().values)
        assert torch.equal(episode.train_images, data.train_images[episode.train_rows])
        assert torch.equal(episode.train_labels, data.train_labels[episode.train_rows])
        assert (
            sorted(episode.classes) == episode.train_labels.unique().tolist() == episode.test_labels.unique().tolist()
        )


def test_split__the_data_sets_own_number_of_episodes(tmp_path: Path) -> None:
    data = load(DataSettings())
    assert [episode.classes for episode in split(data, DataSettings())] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert len(split(data, DataSettings(episodes=2))) == 2
    assert {name: entry.episodes for name, entry in DATASETS.items()} == {
        "digits": 5,
        "cifar100": 10,
        "tinyimagenet": 10,
    }
    with pytest.raises(ValueError, match=r"episodes must be given for mine\.npz: a number that divides its 10 classes"):
        split(data, DataSettings(name="mine.npz"))


# ---------------------------------------------------------------- the parts every data set shares


def test_every_fifth__of_each_class_in_order() -> None:
    labels = np.array([0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0])  # class 0: rows 0 2 3 4 5 10; class 1: rows 1 6 7 8 9
    assert np.flatnonzero(every_fifth(labels)).tolist() == [5, 9]


def test_channel_statistics__against_floating_point() -> None:
    images = torch.randint(256, (7, 3, 5, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images[:, 2] = 51
    mean, std = channel_statistics(images)
    scaled = images.double() / 255
    assert mean == pytest.approx(scaled.mean((0, 2, 3)).tolist())
    assert std[:2] == pytest.approx(scaled.std((0, 2, 3), correction=0).tolist()[:2])
    assert std[2] == 1.0, "a constant channel must not divide by zero"


def test_build__foreign_test_class_and_missing_ones() -> None:
    images = torch.zeros(3, 1, 2, 2, dtype=torch.uint8)
    both = np.array(["a", "b", "b"])
    with pytest.raises(ValueError, match="no train image of class 'c', which has test images"):
        build("mine", (images, both), (images, np.array(["a", "b", "c"])), padding=0, flip=False)
    with pytest.raises(ValueError, match="no test image of class 'b', which has train images"):
        build("mine", (images, both), (images, np.array(["a", "a", "a"])), padding=0, flip=False)
    with pytest.raises(ValueError, match="2 test labels for 3 test images"):
        build("mine", (images, both), (images, both[:2]), padding=0, flip=False)
    with pytest.raises(ValueError, match="there are no test images"):
        build("mine", (images, both), (images[:0], both[:0]), padding=0, flip=False)
    with pytest.raises(ValueError, match="both be integers or both strings"):
        build("mine", (images, both), (images, np.array([0, 1, 1])), padding=0, flip=False)


def test_data_folder__given_then_variable_then_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KEEPSET_DATA", str(tmp_path / "variable"))
    assert data_folder(str(tmp_path)) == tmp_path
    assert data_folder() == tmp_path / "variable"
    monkeypatch.delenv("KEEPSET_DATA")
    assert data_folder().name == "keepset"
    assert data_folder("~/x") == Path.home() / "x"


def test_load__unknown_name() -> None:
    with pytest.raises(ValueError, match="unknown data set 'cifar10'; did you mean 'cifar100'"):
        load(DataSettings(name="cifar10"))


# ---------------------------------------------------------------- digits


def test_digits__shapes_scale_and_split() -> None:
    from sklearn.datasets import load_digits

    data = load(DataSettings())
    check_dataset(data)
    assert data.train_images.shape == (1442, 1, 8, 8)
    assert data.test_images.shape == (355, 1, 8, 8)
    assert int(data.train_images.max()) == 255
    assert not data.flip
    bundle = load_digits()
    fifth = np.flatnonzero(bundle.target == 0)[4]
    expected = torch.from_numpy(np.rint(bundle.images[fifth] * 255 / 16)).to(torch.uint8)
    assert torch.equal(data.test_images[data.test_labels == 0][0, 0], expected)


# ---------------------------------------------------------------- CIFAR-100


def cifar_records(count: int, seed: int) -> np.ndarray[Any, Any]:
    """Records of coarse label, fine label and pixels: a class after the other."""
    records = np.random.default_rng(seed).integers(0, 256, (count, 3074), dtype=np.uint8)
    records[:, 1] = np.arange(count) % CIFAR_CLASSES
    records[:, 0] = records[:, 1] // 5
    return records


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with cifar-100-binary/: two training images and a test image a class."""
    monkeypatch.setattr(cifar100, "TRAIN", 200)
    monkeypatch.setattr(cifar100, "TEST", 100)
    unpacked = tmp_path / "cifar-100-binary"
    unpacked.mkdir()
    (unpacked / "train.bin").write_bytes(cifar_records(200, 0).tobytes())
    (unpacked / "test.bin").write_bytes(cifar_records(100, 1).tobytes())
    (unpacked / "fine_label_names.txt").write_text("\n".join(f"name{label}" for label in range(100)) + "\n\n")
    return tmp_path


def pack(folder: Path) -> Path:
    """Pack cifar-100-binary/ as the official archive is, and take the folder away."""
    packed = folder / "cifar-100-binary.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(folder / "cifar-100-binary", "cifar-100-binary")
    for file in (folder / "cifar-100-binary").iterdir():
        file.unlink()
    (folder / "cifar-100-binary").rmdir()
    return packed


def cifar_settings(folder: Path) -> DataSettings:
    return DataSettings(name="cifar100", folder=str(folder))


@pytest.mark.parametrize("packed", [False, True])
def test_cifar100__fine_labels_and_planes(cifar: Path, packed: bool) -> None:
    if packed:
        pack(cifar)
    data = load(cifar_settings(cifar))
    check_dataset(data)
    records = cifar_records(200, 0)
    assert data.train_images.shape == (200, 3, 32, 32)
    assert data.train_labels.tolist() == records[:, 1].tolist()
    row, column = 4, 9  # one pixel of image 5: red, green and blue lie 1024 bytes apart
    expected = records[5, [2 + plane * 1024 + row * 32 + column for plane in range(3)]]
    assert data.train_images[5, :, row, column].tolist() == expected.tolist()
    assert data.class_names[99] == "name99"
    assert data.padding == 4
    assert data.flip


def test_cifar100__names_are_numbers_without_the_file(cifar: Path) -> None:
    (cifar / "cifar-100-binary" / "fine_label_names.txt").unlink()
    assert load(cifar_settings(cifar)).class_names[99] == "99"


def test_cifar100__missing_says_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"no cifar100 in .*; run `keepset data get cifar100 --folder .*`"):
        load(cifar_settings(tmp_path))
    monkeypatch.setenv("KEEPSET_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"no cifar100 in .*; run `keepset data get cifar100`"):
        load(DataSettings(name="cifar100"))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: data[:-1], r"train\.bin holds 614799 bytes instead of 614800"),
        (lambda data: data + b"\0", r"train\.bin holds 614801 bytes"),
        (lambda data: data[:0], r"train\.bin holds 0 bytes"),
        (lambda data: b"\x14" + data[1:], r"coarse labels must be in 0\.\.19, got 20"),
        (lambda data: b"\x00\x64" + data[2:], r"train\.bin is no CIFAR-100: fine labels must be in 0\.\.99, got 100"),
    ],
)
def test_cifar100__broken_file_is_named(cifar: Path, packed: bool, spoil: Any, message: str) -> None:
    train = cifar / "cifar-100-binary" / "train.bin"
    train.write_bytes(spoil(train.read_bytes()))
    if packed:
        pack(cifar)
    with pytest.raises(ValueError, match=message) as caught:
        load(cifar_settings(cifar))
    assert str(caught.value).endswith(f"delete it and run `keepset data get cifar100 --folder {cifar}`")


def test_cifar100__missing_member(cifar: Path) -> None:
    (cifar / "cifar-100-binary" / "test.bin").unlink()
    with pytest.raises(ValueError, match=r"cifar-100-binary holds no test\.bin; delete it and run"):
        load(cifar_settings(cifar))


@pytest.mark.parametrize("content", [b"", b"not an archive", None])
def test_cifar100__broken_archive_is_named(cifar: Path, content: bytes | None) -> None:
    packed = pack(cifar)
    packed.write_bytes(packed.read_bytes()[:-5000] if content is None else content)
    with pytest.raises(ValueError, match=r"cifar-100-binary\.tar\.gz cannot be read .*`keepset data get cifar100 "):
        load(cifar_settings(cifar))


# ---------------------------------------------------------------- TinyImageNet

WNIDS = ["n03", "n01", "n02"]  # not in sorted order: class ids follow the file


def jpeg(colour: tuple[int, int, int], size: int = 64, mode: str = "RGB", kind: str = "JPEG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (size, size), colour).convert(mode).save(file, kind)
    return file.getvalue()


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with tiny-imagenet-200/: three classes, two training images each (red = 40 x id), four val."""
    monkeypatch.setattr(tinyimagenet, "CLASSES", 3)
    monkeypatch.setattr(tinyimagenet, "TRAIN_PER_CLASS", 2)
    monkeypatch.setattr(tinyimagenet, "TEST", 4)
    root = tmp_path / "tiny-imagenet-200"
    for label, wnid in enumerate(WNIDS):
        folder = root / "train" / wnid / "images"
        folder.mkdir(parents=True)
        for number in range(2):
            (folder / f"{wnid}_{number}.JPEG").write_bytes(jpeg((40 * label, 100 * number, 0)))
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
    (root / "val" / "images").mkdir(parents=True)
    (root / "val" / "images" / "val_0.JPEG").write_bytes(jpeg((200, 200, 200), mode="L"))
    for number in range(1, 4):
        (root / "val" / "images" / f"val_{number}.JPEG").write_bytes(jpeg((0, 0, 50 * number)))
    lines = [f"val_{number}.JPEG\t{WNIDS[number % 3]}\t0\t0\t62\t62" for number in range(4)]
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (root / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    return tmp_path


def zip_up(folder: Path) -> Path:
    root, packed = folder / "tiny-imagenet-200", folder / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(packed, "w") as file:
        for path in sorted(root.rglob("*")):
            file.write(path, path.relative_to(folder))
    root.rename(folder / "away")
    return packed


def tiny_settings(folder: Path) -> DataSettings:
    return DataSettings(name="tinyimagenet", folder=str(folder))


@pytest.mark.parametrize("packed", [False, True])
def test_tinyimagenet__class_ids_follow_wnids_and_val_is_the_test(tiny: Path, packed: bool) -> None:
    if packed:
        zip_up(tiny)
    data = load(tiny_settings(tiny))
    check_dataset(data)
    assert data.class_names == tuple(WNIDS)
    assert data.train_labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.test_labels.tolist() == [0, 1, 2, 0]
    assert data.train_images.shape == (6, 3, 64, 64)
    reds = data.train_images[:, 0].float().mean((1, 2)) / 40
    assert reds.round().tolist() == [0, 0, 1, 1, 2, 2]
    assert data.test_images[0].unique().tolist() == [200], "a grey image must become three equal channels"


def test_tinyimagenet__second_load_reads_the_decoded_file(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(tiny_settings(tiny))
    (tiny / "tiny-imagenet-200").rename(tiny / "away")
    monkeypatch.setattr(tinyimagenet, "decode", None)
    second = load(tiny_settings(tiny))
    check_dataset(second)
    assert second.class_names == first.class_names
    for name in tinyimagenet.TENSORS:
        assert torch.equal(getattr(second, name), getattr(first, name))


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_tinyimagenet__damaged_decoded_file_is_made_again_or_named(tiny: Path, content: bytes | None) -> None:
    expected = load(tiny_settings(tiny))
    cache = tiny / tinyimagenet.CACHE
    cache.write_bytes(cache.read_bytes()[:-100] if content is None else content)
    assert torch.equal(load(tiny_settings(tiny)).train_images, expected.train_images)
    with safe_open(cache, "pt") as file:
        assert file.get_tensor("test_labels").tolist() == [0, 1, 2, 0]
    cache.write_bytes(b"nonsense")
    (tiny / "tiny-imagenet-200").rename(tiny / "away")
    with pytest.raises(ValueError, match=r"tiny-imagenet-200\.safetensors is damaged .*keepset data get tinyimagenet"):
        load(tiny_settings(tiny))


def test_tinyimagenet__foreign_tensors_are_not_taken_for_the_images(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(tiny_settings(tiny))
    (tiny / "tiny-imagenet-200").rename(tiny / "away")
    monkeypatch.setattr(tinyimagenet, "TEST", 5)
    with pytest.raises(ValueError, match=r"safetensors holds other tensors than the decoded images"):
        load(tiny_settings(tiny))


def test_tinyimagenet__cannot_keep_the_decoded_file(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, write: object) -> None:
        raise ValueError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(tinyimagenet, "write_atomically", full)
    with pytest.warns(UserWarning, match="decoded again next time: cannot write .*No space left"):
        check_dataset(load(tiny_settings(tiny)))
    assert not (tiny / tinyimagenet.CACHE).exists()


def test_tinyimagenet__missing_says_the_command(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no tinyimagenet in .*; run `keepset data get tinyimagenet "):
        load(tiny_settings(tmp_path))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("wnids.txt", b"n01\n", r"wnids\.txt names 1 classes instead of 3"),
        ("wnids.txt", None, r"wnids\.txt is missing or cannot be read"),
        ("train/n01/images/n01_0.JPEG", None, r"train.n01 holds 1 images instead of 2"),
        ("train/n01/images/n01_0.JPEG", b"", r"n01_0\.JPEG is damaged or no image"),
        ("train/n01/images/n01_0.JPEG", jpeg((0, 0, 0))[:300], r"n01_0\.JPEG is damaged or no image"),
        ("train/n01/images/n01_0.JPEG", jpeg((0, 0, 0), size=32), r"n01_0\.JPEG must be 64 x 64, got \(32, 32\)"),
        ("val/images/val_2.JPEG", None, r"val_2\.JPEG is missing or cannot be read"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn01\n", r"val_annotations\.txt must name 4 images"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn09\n" * 4, r"val_annotations\.txt must name 4 images and a class"),
    ],
)
def test_tinyimagenet__broken_file_is_named(
    tiny: Path, packed: bool, file: str, content: bytes | None, message: str
) -> None:
    path = tiny / "tiny-imagenet-200" / file
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    if packed:
        zip_up(tiny)
    with pytest.raises(ValueError, match=message) as caught:
        load(tiny_settings(tiny))
    assert str(caught.value).endswith(f"delete it and run `keepset data get tinyimagenet --folder {tiny}`")
    assert not (tiny / tinyimagenet.CACHE).exists()


def test_tinyimagenet__broken_archive_is_named(tiny: Path) -> None:
    packed = zip_up(tiny)
    packed.write_bytes(packed.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"tiny-imagenet-200\.zip is damaged"):
        load(tiny_settings(tiny))


def test_tinyimagenet__is_complete_counts_the_images(tiny: Path) -> None:
    root = tiny / "tiny-imagenet-200"
    assert tinyimagenet.is_complete(root)
    (root / "val" / "images" / "val_0.JPEG").unlink()
    assert not tinyimagenet.is_complete(root)
    assert not tinyimagenet.is_complete(tiny / "nowhere")


# ---------------------------------------------------------------- a folder of images


def save(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (20, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def test_folder__train_and_test_resized(tmp_path: Path) -> None:
    for part in ("train", "test"):
        save(tmp_path / part / "dog" / "1.png", (0, 200, 0))
        save(tmp_path / part / "cat" / "1.PNG", (200, 0, 0), (7, 90))
        (tmp_path / part / "cat" / "notes.txt").write_text("passed over")
        (tmp_path / part / "cat" / ".hidden.png").write_text("passed over")
    data = load(DataSettings(name=str(tmp_path), image_size=16))
    check_dataset(data)
    assert data.class_names == ("cat", "dog")
    assert data.train_images.shape == (2, 3, 16, 16)
    assert data.train_images[0, :, 3, 3].tolist() == [200, 0, 0]
    assert data.train_images[1, :, 3, 3].tolist() == [0, 200, 0]


def test_folder__every_fifth_is_test_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for number in range(11):
            save(tmp_path / name / f"{number:02}.png", (20 * number, 0, 0))
    data = load(DataSettings(name=str(tmp_path), image_size=8))
    check_dataset(data)
    assert (data.test_images[:, 0, 0, 0] // 20).tolist() == [4, 9, 4, 9]
    assert (data.train_images[:, 0, 0, 0] // 20).tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 10] * 2


def test_folder__bicubic_upright_and_rgb(tmp_path: Path) -> None:
    """A photograph lying on its side, with its camera's note, comes out upright; one with transparency as RGB."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 3), dtype=np.uint8)
    turned = Image.fromarray(np.rot90(pixels).copy())  # to be turned by 90 degrees clockwise: orientation 6
    note = Image.Exif()
    note[0x0112] = 6
    for part in ("train", "test"):
        (tmp_path / part / "a").mkdir(parents=True)
        turned.save(tmp_path / part / "a" / "1.png", exif=note)
        Image.fromarray(pixels).convert("RGBA").save(tmp_path / part / "a" / "2.png")
    data = load(DataSettings(name=str(tmp_path), image_size=6))
    expected = Image.fromarray(pixels).resize((6, 6), Image.Resampling.BICUBIC)
    for image in data.train_images:
        assert np.array_equal(image.permute(1, 2, 0).numpy(), np.asarray(expected))


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_folder__sixteen_bits_of_grey_become_eight(tmp_path: Path, ending: str) -> None:
    levels = np.array([[0, 257, 128], [40_000, 65_535, 60_000]], dtype=np.uint16)
    for part in ("train", "test"):
        (tmp_path / part / "a").mkdir(parents=True)
        Image.fromarray(np.kron(levels[:, :2], np.ones((4, 4), np.uint16))).save(tmp_path / part / "a" / f"1.{ending}")
    image = load(DataSettings(name=str(tmp_path), image_size=8)).train_images[0]
    assert image[:, ::4, ::4].tolist() == [[[0, 1], [156, 255]]] * 3


def test_folder__floating_point_levels_are_refused(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / part / "a").mkdir(parents=True)
        Image.fromarray(np.ones((8, 8), np.float32)).save(tmp_path / part / "a" / "1.tif")
    with pytest.raises(ValueError, match=r"1\.tif is damaged or no image \(floating-point levels; save it with 8"):
        load(DataSettings(name=str(tmp_path), image_size=8))


@pytest.mark.parametrize("parts", [["train", "test"], ["."]])
def test_content__of_a_folder_is_that_of_its_images(
    tmp_path: Path, parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "photos"
    for part in parts:
        for number in range(5):
            save(folder / part / "cat" / f"{number}.png", (number, 0, 0), (4, 4))
    settings = DataSettings(name=str(folder))
    before = content(settings)
    (folder / ".DS_Store").write_text("a desktop's")
    (folder / parts[0] / "cat" / "notes.txt").write_text("passed over")
    assert content(settings) == before
    monkeypatch.chdir(folder)
    assert content(DataSettings(name=".")) == before
    save(folder / parts[0] / "cat" / "1.png", (9, 0, 0), (4, 4))
    assert content(settings) != before


def test_check_outside__results_among_the_images_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "photos" / "cat" / "1.png", (1, 0, 0))
    settings = DataSettings(name=str(tmp_path / "photos"))
    with pytest.raises(ValueError, match=r"out must not lie in the folder of the images, .*photos, got .*runs"):
        check_outside(settings, tmp_path / "photos" / "runs")
    check_outside(settings, tmp_path / "runs")
    check_outside(DataSettings(), Path())


def test_folder__bad_input(tmp_path: Path) -> None:
    def loads(image_size: int = 8) -> Dataset:
        return load(DataSettings(name=str(tmp_path), image_size=image_size))

    with pytest.raises(ValueError, match="holds no folders; put the images of each class into a folder of its own"):
        loads()
    (tmp_path / "cat").mkdir()
    with pytest.raises(ValueError, match=r"cat holds no images; known endings are \.bmp"):
        loads()
    for number in range(5):
        save(tmp_path / "cat" / f"{number}.png", (0, 0, 0))
    save(tmp_path / "dog" / "1.png", (0, 0, 0))
    with pytest.raises(ValueError, match="dog holds 1 images; every fifth is a test image"):
        loads()
    for number in range(5):
        save(tmp_path / "dog" / f"{number}.png", (0, 0, 0))
    check_dataset(loads())
    with pytest.raises(ValueError, match=r"image_size must be in 1\.\.4096"):
        loads(image_size=0)
    (tmp_path / "dog" / "3.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"3\.png is damaged or no image .*; replace it or take it out"):
        loads()


# ---------------------------------------------------------------- arrays


def write_arrays(path: Path, **changed: Any) -> DataSettings:
    """Four images of 6 x 5 with three channels for training, the first two for testing."""
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)
    arrays: dict[str, Any] = {
        "train_images": images,
        "train_labels": np.array(["ox", "cow", "ox", "cow"]),
        "test_images": images[:2],
        "test_labels": np.array(["ox", "cow"]),
    }
    arrays.update(changed)
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return DataSettings(name=str(path))


def channels_last() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)


@pytest.mark.parametrize("layout", ["last", "first", "grey"])
def test_arrays__layouts(tmp_path: Path, layout: str) -> None:
    last = channels_last()
    given = {"last": last, "first": last.transpose(0, 3, 1, 2), "grey": last[..., 0]}[layout]
    data = load(write_arrays(tmp_path / "mine.npz", train_images=given, test_images=given[:2]))
    check_dataset(data)
    expected: Tensor = torch.from_numpy(last.transpose(0, 3, 1, 2).copy())
    assert torch.equal(data.train_images, expected[:, :1] if layout == "grey" else expected)
    assert data.class_names == ("cow", "ox")
    assert data.train_labels.tolist() == [1, 0, 1, 0]
    assert data.flip == (layout != "grey")


def test_arrays__numbers_are_renumbered(tmp_path: Path) -> None:
    labels = np.array([40, -3, 40, -3])
    data = load(write_arrays(tmp_path / "mine.npz", train_labels=labels, test_labels=labels[:2].astype(np.int8)))
    assert data.class_names == ("-3", "40")
    assert data.train_labels.tolist() == [1, 0, 1, 0]
    assert data.test_labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_images": channels_last() / 255}, r"mine\.npz:train_images must be uint8, got float64; scale them"),
        ({"train_images": channels_last()[..., :2]}, r"must be \(n, h, w\), .* got \(4, 6, 5, 2\)"),
        ({"train_images": channels_last()[:, :3]}, r"got \(4, 3, 5, 3\); where the channels are cannot be told"),
        ({"train_images": channels_last()[0, 0]}, r"must be \(n, h, w\), .* got \(5, 3\)"),
        ({"test_images": channels_last()[:2, :5]}, "must have one shape"),
        ({"train_labels": np.zeros(4)}, r"mine\.npz:train_labels: labels must be integers or strings, got float64"),
        ({"train_labels": np.zeros((4, 1), dtype=int)}, r"train_labels: labels must be one a point"),
        ({"train_labels": np.array([None] * 4)}, r"mine\.npz holds Python objects"),
        ({"train_labels": np.array(["ox", "cow"])}, "2 train labels for 4 train images"),
        ({"test_images": None}, r"mine\.npz has no array 'test_images'; did you mean"),
    ],
)
def test_arrays__bad_input(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(write_arrays(tmp_path / "mine.npz", **changed))


@pytest.mark.parametrize("content", [None, b"", b"foreign", "truncated"])
def test_arrays__broken_file_is_named(tmp_path: Path, content: Any) -> None:
    settings = write_arrays(tmp_path / "mine.npz")
    path = tmp_path / "mine.npz"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-300] if content == "truncated" else content)
    with pytest.raises(ValueError, match=r"mine\.npz"):
        load(settings)


def test_settings__are_plain_values() -> None:
    assert json.loads(json.dumps(vars(DataSettings()))) == vars(DataSettings())
