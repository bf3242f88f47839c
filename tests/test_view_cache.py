"""The cache of views: made once, by one process, read back to the bit, and never half of it."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from keepset.views import cache as module
from keepset.views.cache import Cache, Recipe, cache_folder, key_of

IMAGES = torch.arange(6 * 3 * 4 * 4, dtype=torch.uint8).reshape(6, 3, 4, 4)
FEATURES = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
RECIPE = Recipe("simclr", {"epochs": 3, "rate": 0.4}, 1)


def make(_: Path) -> Tensor:
    return FEATURES


def never(_: Path) -> Tensor:
    raise AssertionError("it was there already")


def fails(_: Path) -> Tensor:
    raise ZeroDivisionError


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "deep" / "views")


def names(cache: Cache) -> list[str]:
    return sorted(path.name.partition(".")[2] for path in cache.folder.iterdir())


def bits(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()


# ---------------------------------------------------------------- keys


def test_key__device_and_memory_layout_do_not_matter() -> None:
    key = key_of(IMAGES, RECIPE)
    assert len(key) == 32
    assert key_of(IMAGES.to(memory_format=torch.channels_last), RECIPE) == key
    assert key_of(torch.stack([IMAGES, IMAGES], dim=1)[:, 0], RECIPE) == key
    assert key_of(IMAGES, Recipe("simclr", {"rate": 0.4, "epochs": 3}, 1)) == key, "nor the order of the settings"


@pytest.mark.parametrize(
    ("images", "recipe"),
    [
        (IMAGES.flip(0), RECIPE),
        (IMAGES[:5], RECIPE),
        (IMAGES + (torch.arange(IMAGES.numel()) == 7).reshape(IMAGES.shape), RECIPE),
        (IMAGES.reshape(6, 3, 2, 8), RECIPE),
        (IMAGES, Recipe("vicreg", RECIPE.settings, 1)),
        (IMAGES, Recipe("simclr", {"epochs": 4, "rate": 0.4}, 1)),
        (IMAGES, Recipe("simclr", {"epochs": 3}, 1)),
        (IMAGES, Recipe("simclr", RECIPE.settings, 2)),
    ],
    ids=["order", "fewer", "one pixel", "shape", "encoder", "a setting", "a setting less", "version"],
)
def test_key__differs_with_whatever_changes_the_numbers(images: Tensor, recipe: Recipe) -> None:
    assert key_of(images.to(torch.uint8), recipe) != key_of(IMAGES, RECIPE)


def test_key__is_the_same_on_every_machine() -> None:
    assert key_of(IMAGES, RECIPE) == "2df41053fdcfa73f1b14a8b91e522488", (
        "written down, since a change of it empties everybody's cache"
    )


@pytest.mark.parametrize("images", [IMAGES.float(), IMAGES[:0], [1, 2], torch.tensor(3, dtype=torch.uint8)])
def test_key__images_that_are_none(images: Tensor) -> None:
    with pytest.raises(ValueError, match="images must be a uint8 tensor of at least one image, got "):
        key_of(images, RECIPE)


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), torch.ones(2)])
def test_key__settings_that_are_not_plain(value: object) -> None:
    with pytest.raises(ValueError, match="settings of simclr must be plain values"):
        key_of(IMAGES, Recipe("simclr", {"value": value}, 1))


def test_cache_folder__given_then_variable_then_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KEEPSET_CACHE", str(tmp_path / "variable"))
    assert cache_folder(tmp_path) == tmp_path
    assert cache_folder("~/x") == Path.home() / "x"
    assert cache_folder() == tmp_path / "variable"
    monkeypatch.delenv("KEEPSET_CACHE")
    monkeypatch.setenv("KEEPSET_DATA", str(tmp_path))  # says where data sets lie, not views
    assert cache_folder().parts[-2:] == ("keepset", "views")


# ---------------------------------------------------------------- getting


def test_get__is_made_once_and_read_back_to_the_bit(cache: Cache) -> None:
    odd = FEATURES.clone()
    odd[0, :4] = torch.tensor([-0.0, 1e-45, 3.4e38, -1e-40])  # signed zero, subnormal, nearly too large
    first = cache.get(IMAGES, RECIPE, lambda _: odd)
    second = cache.get(IMAGES.clone(), RECIPE, never)
    assert (first.made, second.made) == (True, False)
    assert first.key == second.key == key_of(IMAGES, RECIPE)
    assert bits(first.features) == bits(second.features) == bits(odd)
    assert names(cache) == ["lock", "safetensors"]


def test_get__another_layout_or_type_becomes_float32(cache: Cache) -> None:
    wide = FEATURES.double().t().contiguous().t().requires_grad_()
    made = cache.get(IMAGES, RECIPE, lambda _: wide).features
    found = cache.get(IMAGES, RECIPE, never).features
    assert made.dtype == found.dtype == torch.float32
    assert bits(made) == bits(found) == bits(FEATURES)
    assert not made.requires_grad


def test_get__metadata_says_how_it_came_about(cache: Cache) -> None:
    key = cache.get(IMAGES, RECIPE, make).key
    with safe_open(cache.folder / f"{key}.safetensors", "pt") as file:
        about = file.metadata()
    assert about["encoder"] == "simclr"
    assert json.loads(about["recipe"])["settings"] == {"epochs": 3, "rate": 0.4}
    assert json.loads(about["images"]) == [6, 3, 4, 4]
    assert about["torch"] == torch.__version__
    assert about["made"].endswith("+00:00")
    assert about["keepset"]


def test_get__checkpoints_are_removed_after_success_alone(cache: Cache) -> None:
    other = cache.get(IMAGES[:5], RECIPE, lambda _: FEATURES[:5]).key
    (cache.folder / f"{other}.checkpoint.safetensors").touch()  # of another entry, so none of ours

    def work(checkpoint: Path) -> Tensor:
        for ending in ("safetensors", "next.safetensors", "former.safetensors"):
            (checkpoint.parent / f"{checkpoint.name.removesuffix('safetensors')}{ending}").touch()
        return FEATURES

    def breaks_off(checkpoint: Path) -> Tensor:
        work(checkpoint)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.get(IMAGES, RECIPE, breaks_off)
    key = key_of(IMAGES, RECIPE)
    assert len(list(cache.folder.glob(f"{key}.checkpoint*"))) == 3
    (cache.folder / f".{key}.checkpoint.safetensors.x1.safetensors").touch()  # what a killed write leaves
    assert cache.get(IMAGES, RECIPE, work).made
    assert names(cache) == ["checkpoint.safetensors", "lock", "lock", "safetensors", "safetensors"]


def test_get__a_maker_that_fails_leaves_nothing_and_the_next_one_makes_it(cache: Cache) -> None:
    with pytest.raises(ZeroDivisionError):
        cache.get(IMAGES, RECIPE, fails)
    assert names(cache) == ["lock"]
    assert cache.entries() == []
    assert cache.get(IMAGES, RECIPE, make).made


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (FEATURES[:5], r"simclr must give features of shape \(6, d\), got \(5, 5\)"),
        (FEATURES[:, 0], r"got \(6,\)"),
        (FEATURES[:, :0], r"got \(6, 0\)"),
        (None, "got NoneType"),
        (FEATURES / (torch.arange(6) > 1)[:, None], "NaN or infinity in 2 of 6 rows"),
        (FEATURES.double() * 1e300, "NaN or infinity in 6 of 6 rows"),
    ],
    ids=["fewer rows", "one dimension", "no columns", "nothing", "infinite", "too large for float32"],
)
def test_get__features_that_cannot_be_used_are_not_kept(cache: Cache, features: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cache.get(IMAGES, RECIPE, lambda _: features)
    assert names(cache) == ["lock"]


# ---------------------------------------------------------------- damage


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def rewrite(path: Path, features: Tensor, **changed: str) -> None:
    """Another content with a header that is right but for `changed`."""
    with safe_open(path, "pt") as file:
        about = file.metadata()
    about["digest"] = module.digest_of(features)
    save_file({"features": features}, path, about | changed)


def drop_metadata(path: Path) -> None:
    save_file(load_file(path), path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "cut in the header": lambda path: path.write_bytes(path.read_bytes()[:20]),
    "empty": lambda path: path.write_bytes(b""),
    "foreign": lambda path: path.write_bytes(b"<html>not found</html>" * 20),
    "a bit of a feature": lambda path: flip(path, -1),
    "a bit of the header": lambda path: flip(path, 9),
    "no metadata": drop_metadata,
    "of another key": lambda path: rewrite(path, FEATURES, key="0" * 32),
    "fewer rows": lambda path: rewrite(path, FEATURES[:4]),
    "another type": lambda path: rewrite(path, FEATURES.double()),
    "another tensor": lambda path: save_file({"other": FEATURES}, path),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_get__a_damaged_entry_is_noticed_and_made_again(cache: Cache, damage: str) -> None:
    key = cache.get(IMAGES, RECIPE, make).key
    path = cache.folder / f"{key}.safetensors"
    DAMAGES[damage](path)
    with pytest.warns(RuntimeWarning, match=f"{key}.safetensors is damaged .*making it again") as warned:
        entry = cache.get(IMAGES, RECIPE, lambda _: FEATURES + 1)
    assert len(warned) == 1
    assert entry.made
    assert bits(cache.get(IMAGES, RECIPE, never).features) == bits(FEATURES + 1)


def test_get__a_folder_that_cannot_be_written_to(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.get(IMAGES, RECIPE, make)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(FileLock, "acquire", refuse)
    assert not cache.get(IMAGES, RECIPE, never).made, "reading needs no lock"
    with pytest.raises(ValueError, match=r"cannot write to the cache in .*views: Read-only.*\$KEEPSET_CACHE"):
        cache.get(IMAGES[:5], RECIPE, never)
    with pytest.raises(ValueError, match=r"cannot clear the cache in .*views: Read-only"):
        cache.clear()


def test_get__a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=r"cannot write to the cache in .*file.*\$KEEPSET_CACHE"):
            Cache(folder).get(IMAGES, RECIPE, never)


@pytest.mark.parametrize("when", ["before", "after"])
def test_get__a_full_disk(cache: Cache, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    written = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if when == "after" and "about" in path.name:
            return written(path, content)
        written(path, content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ValueError, match=r"No space left on device; make room .*views.*\$KEEPSET_CACHE"):
        cache.get(IMAGES, RECIPE, make if when == "after" else never)
    assert names(cache) == ["lock"]


# ---------------------------------------------------------------- several at once

WORKER = """
import sys, time
from pathlib import Path
import torch
from keepset.views.cache import Cache, Recipe

folder = Path(sys.argv[1])

def make(checkpoint):
    checkpoint.write_bytes(b"half way")
    (folder / "making").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    return torch.randn(6, 5)

images = torch.arange(6 * 3 * 4 * 4, dtype=torch.uint8).reshape(6, 3, 4, 4)
entry = Cache(folder / "views").get(images, Recipe("simclr", {"epochs": 3, "rate": 0.4}, 1), make)
print(entry.made, entry.features.numpy().tobytes().hex())
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process, inside make."""
    started = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (tmp_path / "making").exists():
        assert started.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    yield started
    started.kill()
    started.communicate(timeout=60)


def test_get__waits_for_the_process_that_makes_it(tmp_path: Path, worker: "subprocess.Popen[str]") -> None:
    cache, told = Cache(tmp_path / "views"), []

    def on_wait(message: str) -> None:
        told.append(message)
        (entry,) = cache.entries()
        assert (entry.state, entry.encoder, entry.count, entry.epochs) == ("unfinished", "simclr", 6, 3)
        assert cache.clear() == module.Cleared(0, 0, (entry.key,)), "what is being made is left alone"
        (tmp_path / "go").touch()

    entry = cache.get(IMAGES, RECIPE, never, on_wait)
    made, features = worker.communicate(timeout=60)[0].split()
    assert told == ["another process is making simclr of 6 images; waiting for it"]
    assert (made, entry.made) == ("True", False)
    assert features == bits(entry.features).hex()


def test_get__takes_over_from_a_process_that_was_killed(tmp_path: Path, worker: "subprocess.Popen[str]") -> None:
    cache = Cache(tmp_path / "views")

    def resume(checkpoint: Path) -> Tensor:
        assert checkpoint.read_bytes() == b"half way"
        return FEATURES

    assert cache.get(IMAGES, RECIPE, resume, lambda _: worker.kill()).made
    assert names(cache) == ["lock", "safetensors"]


def test_get__of_many_threads_one_makes_it(cache: Cache) -> None:
    makes, results = [], []
    ready = threading.Barrier(8)

    def slowly(_: Path) -> Tensor:
        makes.append(1)
        time.sleep(0.05)
        return torch.randn(6, 5)

    def ask() -> None:
        ready.wait()
        results.append(cache.get(IMAGES, RECIPE, slowly))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(makes) == 1
    assert sum(entry.made for entry in results) == 1
    assert len({bits(entry.features) for entry in results}) == 1
    assert len(results) == 8


# ---------------------------------------------------------------- listing and clearing


def filled(cache: Cache) -> dict[str, str]:
    """A whole, an unfinished and a damaged entry: state -> key."""

    def breaks_off(checkpoint: Path) -> Tensor:
        checkpoint.write_bytes(bytes(1000))
        raise ZeroDivisionError

    damaged = cache.get(IMAGES[:2], RECIPE, lambda _: FEATURES[:2]).key
    path = cache.folder / f"{damaged}.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    os.utime(path, (1, 1))
    whole = cache.get(IMAGES, RECIPE, make).key
    with pytest.raises(ZeroDivisionError):
        cache.get(IMAGES[:3], Recipe("vicreg", {}, 1), breaks_off)
    unfinished = key_of(IMAGES[:3], Recipe("vicreg", {}, 1))
    for path in cache.folder.glob(f"{unfinished}.*"):
        os.utime(path, (4e9, 4e9))
    return {"unfinished": unfinished, "whole": whole, "damaged": damaged}


def test_entries__newest_first_with_what_their_headers_say(cache: Cache) -> None:
    assert cache.entries() == [], "the folder is not even there"
    keys = filled(cache)
    (cache.folder / "notes.txt").touch()
    listed = cache.entries()
    assert {entry.state: entry.key for entry in listed} == keys
    assert [entry.state for entry in listed] == ["unfinished", "whole", "damaged"]
    unfinished, whole, _ = listed
    assert (whole.encoder, whole.count, whole.shape, whole.d, whole.epochs) == ("simclr", 6, (3, 4, 4), 5, 3)
    assert whole.size == (cache.folder / f"{whole.key}.safetensors").stat().st_size
    assert (unfinished.encoder, unfinished.count, unfinished.d, unfinished.epochs) == ("vicreg", 3, 0, None)
    assert unfinished.size > 1000


def test_entries__an_unfinished_one_that_says_nothing_is_listed_too(cache: Cache) -> None:
    key = filled(cache)["unfinished"]
    (cache.folder / f"{key}.about.json").write_text("[")
    assert (cache.entries()[0].state, cache.entries()[0].encoder) == ("unfinished", "")


def test_entries__a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cannot read the cache in .*file"):
        Cache(tmp_path / "file").entries()


def test_clear__all(cache: Cache) -> None:
    filled(cache)
    (cache.folder / "notes.txt").touch()
    size = sum(entry.size for entry in cache.entries())
    assert cache.clear() == module.Cleared(3, size, ())
    assert cache.entries() == []
    assert names(cache) == ["lock", "lock", "lock", "txt"], "locks stay, and what is not ours"
    assert cache.get(IMAGES, RECIPE, make).made


def test_clear__by_key_or_the_unfinished_alone(cache: Cache) -> None:
    keys = filled(cache)
    assert cache.clear([keys["whole"]], unfinished=True).count == 0
    assert cache.clear([keys["whole"], "0" * 32]).count == 1
    assert cache.clear(unfinished=True).count == 1
    assert [entry.key for entry in cache.entries()] == [keys["damaged"]]


def test_clear__one_that_was_finished_since_it_was_listed_is_kept(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = cache.get(IMAGES, RECIPE, make).key
    monkeypatch.setattr(cache, "entries", lambda: [module.Listed(key, "unfinished", 1, "")])
    assert cache.clear(unfinished=True) == module.Cleared(0, 0, ())
    assert not cache.get(IMAGES, RECIPE, never).made
