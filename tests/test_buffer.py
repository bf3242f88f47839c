"""The buffer: quotas, prefixes, sampling, saving."""

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import keepset
from keepset import Buffer


def filled(**rule: int) -> Buffer:
    """Three classes of four rows each; rows hold their own number."""
    buffer = Buffer(**rule)
    buffer.update(torch.arange(12), [0] * 4 + [1] * 4 + [2] * 4, {0: [3, 1, 0, 2], 1: [4, 5, 6, 7], 2: [11, 10, 9, 8]})
    return buffer


@pytest.mark.parametrize("rule", [{}, {"capacity": 5, "per_class": 5}])
def test_buffer__needs_exactly_one_rule(rule: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"give one of capacity= .* and per_class="):
        Buffer(**rule)


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "5"])
def test_buffer__refuses_sizes_that_are_no_whole_positive_number(value: Any) -> None:
    with pytest.raises(ValueError, match="capacity must be"):
        Buffer(capacity=value)
    with pytest.raises(ValueError, match="per_class must be"):
        Buffer(per_class=value)


def test_quota__counts_the_new_classes_and_gives_the_remainder_to_the_earliest() -> None:
    buffer = Buffer(capacity=10)
    assert buffer.quota([1, 0, 1, 2]) == {0: 4, 1: 3, 2: 3}
    buffer.update(torch.arange(2), [5, 5], {5: [0, 1]})
    assert buffer.quota([1, 0]) == {0: 3, 1: 3}, "class 5 came first and has the remainder"
    assert buffer.quota() == {5: 10}
    assert Buffer(per_class=3).quota(["a", "b"]) == {"a": 3, "b": 3}


def test_quota__capacity_below_the_number_of_classes_leaves_some_with_none() -> None:
    buffer = Buffer(capacity=2)
    assert buffer.quota([0, 1, 2]) == {0: 1, 1: 1, 2: 0}
    buffer.update(torch.arange(3), [0, 1, 2], {0: [0], 1: [1], 2: [2]})
    assert len(buffer) == 2
    assert buffer.classes == [0, 1, 2], "a class that holds nothing has been seen all the same"


def test_buffer_update__quota_shrinks_to_prefix() -> None:
    buffer = Buffer(capacity=4)
    buffer.update(torch.arange(6), [0] * 6, {0: [5, 2, 0, 1]})
    assert buffer[0].tolist() == [5, 2, 0, 1]
    buffer.update(torch.arange(100, 104), [1] * 4, {1: [3, 0, 1]})
    assert buffer[0].tolist() == [5, 2]
    assert buffer[1].tolist() == [103, 100]


def test_buffer_update__capacity_is_never_exceeded_over_many_episodes() -> None:
    buffer = Buffer(capacity=17)
    for episode in range(12):
        labels = [2 * episode] * 30 + [2 * episode + 1] * 30
        picks = keepset.select_per_class(
            np.random.default_rng(episode).normal(size=(60, 3)), labels, buffer.quota(labels)
        )
        buffer.update(torch.arange(60), labels, picks)
        assert len(buffer) == min(17, 60 * (episode + 1))
        assert {label: len(buffer[label]) for label in buffer.classes} == buffer.quota()


def test_buffer_update__replaces_a_class_already_stored() -> None:
    buffer = filled(per_class=3)
    buffer.update(torch.arange(50, 54), [1] * 4, {1: [2]})
    assert buffer[1].tolist() == [52]
    assert buffer[0].tolist() == [3, 1, 0]
    assert buffer.classes == [0, 1, 2]


def test_buffer_update__takes_a_selection_and_a_mapping_of_tensors() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 4))
    labels = np.array(["cat", "dog"] * 10)
    picks = keepset.select_per_class(rows, labels, 3)
    buffer = Buffer(per_class=3)
    buffer.update({"image": torch.from_numpy(rows), "row": np.arange(20)}, labels, picks)
    held = buffer["dog"]
    assert isinstance(held, dict)
    assert held["row"].tolist() == list(picks["dog"])
    assert torch.equal(held["image"], torch.from_numpy(rows)[list(picks["dog"])])


@pytest.mark.parametrize(
    ("data", "labels", "picks", "message"),
    [
        (torch.arange(4), [0, 0, 1], {0: [0]}, "labels must be one a row of data, 4, got 3"),
        (torch.arange(3), [0, 0, 1], {0: [2]}, "row 2 has label 1"),
        (torch.arange(3), [0, 0, 1], {0: [3]}, r"picks\[0\] must be in 0..2 \(rows of data\), got 3"),
        (torch.arange(3), [0, 0, 1], {0: [1, 1]}, "must not repeat a row"),
        (torch.arange(3), [0, 0, 1], {0: [0.5]}, "must be a whole number"),
        (torch.arange(3), ["a", "a", "b"], {"a": [0]}, "all integers or all strings"),
        (torch.arange(3), [0, "a", 1], {0: [0]}, "all integers or all strings"),
        (torch.arange(3.0), [0, 0, 1], {0: [0]}, "data must look like what is held"),
        (torch.zeros(3, 2, dtype=torch.int64), [0, 0, 1], {0: [0]}, "data must look like what is held"),
        ({"x": torch.arange(3)}, [0, 0, 1], {0: [0]}, "data must have the parts that are held, one tensor, got 'x'"),
        ([1, 2, 3], [0, 0, 1], {0: [0]}, "data must be a tensor"),
        (np.array(["a", "b", "c"]), [0, 0, 1], {0: [0]}, "data must be of a type that torch has too, got <U1"),
        (np.array([{}, {}, {}]), [0, 0, 1], {0: [0]}, "data must be of a type that torch has too, got object"),
        ({"x": np.zeros(3, np.longdouble)}, [0, 0, 1], {0: [0]}, r"data\['x'\] must be of a type that torch has too"),
        (torch.arange(3), [0, 0, 1], [0, 1], r"picks must be a mapping class -> indices, .* got \[0, 1\]"),
        (torch.arange(3), [0, 0, 1], None, "picks must be a mapping class -> indices, .* got None"),
        (torch.arange(3), [0, 0, 1], {0: 1}, r"picks\[0\] must be a sequence, got 1"),
        (torch.arange(3), [0, 0, 1], {0: torch.tensor(1)}, r"picks\[0\] must be a sequence"),
        (torch.arange(3), [0, 0, 1], {7: [], "a": []}, "all integers or all strings"),
    ],
)
def test_buffer_update__bad_input_changes_nothing(data: Any, labels: Any, picks: Any, message: str) -> None:
    buffer = filled(capacity=6)
    before, _ = buffer.contents()
    with pytest.raises(ValueError, match=message):
        buffer.update(data, labels, picks)
    after, _ = buffer.contents()
    assert torch.equal(before, after)
    assert buffer.classes == [0, 1, 2]


def test_sample__no_exemplar_twice_before_all_have_come_once() -> None:
    buffer = filled(per_class=2)
    for seed in range(5):
        data, labels = buffer.sample(9, seed)
        assert isinstance(data, torch.Tensor)
        assert isinstance(labels, torch.Tensor)
        assert len(set(data[:6].tolist())) == 6
        assert len(set(data[6:].tolist())) == 3
        assert labels.tolist() == [row // 4 for row in data.tolist()]


def test_sample__all_exemplars_are_equally_likely() -> None:
    buffer = filled(per_class=2)
    generator = torch.Generator().manual_seed(1)
    drawn = torch.cat([buffer.sample(1, generator)[0] for _ in range(3000)])
    counts = torch.unique(drawn, return_counts=True)[1]
    assert len(counts) == 6
    assert counts.min() > 400, "500 expected of each; 400 is five standard deviations below"


def test_sample__from_some_classes_alone() -> None:
    labels = filled(per_class=4).sample(50, 0, classes=[2, 0])[1]
    assert set(labels.tolist()) == {0, 2}


def test_sample__a_class_named_twice_counts_once() -> None:
    data, _ = filled(per_class=4).sample(4, 0, classes=[0, 0])
    assert sorted(data.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("classes", [0, torch.tensor(0)])
def test_sample__classes_that_are_no_sequence(classes: Any) -> None:
    with pytest.raises(ValueError, match="classes must be a sequence, got"):
        filled(per_class=4).sample(1, classes=classes)


def test_sample__own_generator_goes_on_and_ignores_the_global_one() -> None:
    first, second = filled(per_class=4), filled(per_class=4)
    torch.manual_seed(7)
    one = [first.sample(5)[0].tolist() for _ in range(3)]
    torch.manual_seed(8)
    other = [second.sample(5)[0].tolist() for _ in range(3)]
    assert one == other
    assert one[0] != one[1]
    assert first.sample(5, 3)[0].tolist() == first.sample(5, 3)[0].tolist()


def test_sample__numbers_of_small_types_draw_as_others() -> None:
    first, second = (keepset.Buffer(capacity=300) for _ in range(2))
    for each in (first, second):
        each.update(torch.arange(300.0)[:, None], torch.zeros(300, dtype=torch.int64), {0: range(300)})
    for count in (200, 200):
        assert torch.equal(first.sample(count)[0], second.sample(np.uint8(count))[0])  # type: ignore[arg-type]


def test_getitem__by_a_label_as_it_is_sampled() -> None:
    buffer = keepset.Buffer(capacity=2)
    buffer.update(torch.ones(4, 1), torch.tensor([3, 3, 5, 5]), {3: [0], 5: [2]})
    for label in buffer.sample(2)[1]:
        assert len(buffer[label]) == len(buffer[int(label)]) == 1


def test_sample__string_labels_come_back_as_a_list() -> None:
    buffer = Buffer(per_class=1)
    buffer.update(torch.arange(2), ["a", "b"], {"a": [0], "b": [1]})
    data, labels = buffer.sample(2, 0)
    assert sorted(zip(data.tolist(), labels, strict=True)) == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("n", [0, -3, 1.5])
def test_sample__refuses_a_wrong_number(n: Any) -> None:
    with pytest.raises(ValueError, match="n must be"):
        filled(per_class=4).sample(n)


def test_sample__empty_buffer_or_unknown_class() -> None:
    with pytest.raises(ValueError, match="nothing to sample"):
        Buffer(capacity=3).sample(1)
    with pytest.raises(ValueError, match="7 has not"):
        filled(capacity=3).sample(1, classes=[7])
    with pytest.raises(ValueError, match=r"\[0\] has not"):
        filled(capacity=3).sample(1, classes=[[0]])
    with pytest.raises(KeyError, match="has not been seen"):
        filled(capacity=3)[9]


def test_describe__tells_rule_quota_and_bytes() -> None:
    text = filled(capacity=7).describe()
    assert "capacity=7: shared among the classes seen" in text
    assert "2 to 3 a class, 3 classes seen" in text
    assert "7 exemplars in all, 56 bytes" in text
    assert "per_class=2: a fixed quota" in filled(per_class=2).describe()
    assert "nothing yet" in Buffer(capacity=3).describe()


def test_save_and_load__everything_comes_back_and_sampling_goes_on(tmp_path: Path) -> None:
    buffer = Buffer(capacity=5)
    buffer.update({"x": torch.rand(4, 3).half(), "row": torch.arange(4)}, ["a", "a", "b", "b"], {"a": [1, 0], "b": [3]})
    buffer.sample(2)
    buffer.save(tmp_path / "buffer.safetensors")
    loaded = Buffer.load(tmp_path / "buffer.safetensors")
    assert loaded.describe() == buffer.describe()
    assert loaded.classes == ["a", "b"]
    assert loaded.sample(2)[0]["row"].tolist() == buffer.sample(2)[0]["row"].tolist()
    assert loaded["a"]["x"].dtype == torch.float16


def test_save_and_load__sizes_may_be_any_integer_type(tmp_path: Path) -> None:
    for buffer in (filled(capacity=np.int64(4)), filled(per_class=np.int64(4))):  # type: ignore[arg-type]
        buffer.save(tmp_path / "buffer.safetensors")
        assert Buffer.load(tmp_path / "buffer.safetensors").describe() == buffer.describe()


def test_save__a_type_that_the_file_cannot_hold(tmp_path: Path) -> None:
    buffer = Buffer(per_class=1)
    buffer.update({"x": torch.zeros(1, dtype=torch.complex128)}, [0], {0: [0]})
    with pytest.raises(ValueError, match=r"data must be .* got data\['x'\] of torch\.complex128"):
        buffer.save(tmp_path / "buffer.safetensors")
    assert not list(tmp_path.iterdir())


def test_save_and_load__an_empty_buffer(tmp_path: Path) -> None:
    Buffer(per_class=2).save(tmp_path / "empty.safetensors")
    assert len(Buffer.load(tmp_path / "empty.safetensors")) == 0


def test_state_dict__survives_torch_save(tmp_path: Path) -> None:
    torch.save(filled(capacity=7).state_dict(), tmp_path / "state.pt")
    other = Buffer(per_class=1)
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert other.describe() == filled(capacity=7).describe()
    with pytest.raises(ValueError, match="counts, data"):
        other.load_state_dict({"capacity": 3, "per_class": None, "generator": 0})


def test_load__truncated_foreign_or_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "buffer.safetensors"
    with pytest.raises(ValueError, match="no such file"):
        Buffer.load(path)
    filled(capacity=7).save(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="is damaged or no safetensors file"):
        Buffer.load(path)
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match=r"was not written by Buffer\.save"):
        Buffer.load(path)


def damaged_states() -> dict[str, dict[str, Any]]:
    return {
        "negative": {"counts": [(0, 9), (1, -2)]},
        "too many": {"capacity": 6},
        "too many of a class": {"capacity": None, "per_class": 2},
        "twice": {"counts": [(0, 4), (0, 3)]},
        "mixed": {"counts": [(0, 4), ("a", 3)]},
        "no pairs": {"counts": [7]},
        "no data": {"data": {}},
        "other rows": {"data": {"": torch.zeros(3)}},
        "a number": {"data": {"": 3}},
        "short generator": {"generator": torch.zeros(3, dtype=torch.uint8)},
        "no generator": {"generator": None},
    }


@pytest.mark.parametrize("damage", damaged_states())
def test_load_state_dict__a_damaged_state_changes_nothing(damage: str) -> None:
    state = {**filled(capacity=7).state_dict(), **damaged_states()[damage]}
    buffer = Buffer(per_class=1)
    with pytest.raises(ValueError, match="state is damaged: "):
        buffer.load_state_dict(state)
    assert (buffer.per_class, buffer.classes) == (1, [])
    with pytest.raises(ValueError, match=r"state must come from Buffer\.state_dict, got list"):
        buffer.load_state_dict(cast("Any", []))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{", ["generator"]),
        ("[]", ["generator"]),
        ("{}", ["generator"]),
        ('{"capacity": 3, "per_class": null}', ["generator"]),
        ('{"capacity": 3, "per_class": null, "counts": []}', []),
        ('{"capacity": 3, "per_class": null, "counts": [[0, 5]]}', ["generator"]),
    ],
)
def test_load__a_damaged_head_is_named(tmp_path: Path, text: str, parts: list[str]) -> None:
    from safetensors.torch import save_file

    tensors = {"data.": torch.zeros(5), "generator": torch.Generator().get_state()}
    held = {name: tensor for name, tensor in tensors.items() if name == "data." or name in parts}
    save_file(held, tmp_path / "buffer.safetensors", {"keepset.Buffer": text})
    with pytest.raises(ValueError, match=r"buffer\.safetensors is damaged \(.*\); save the buffer again"):
        Buffer.load(tmp_path / "buffer.safetensors")


FULL_DISK = """
import resource, sys, torch
from keepset import Buffer
buffer = Buffer(capacity=1000)
buffer.update(torch.zeros(1000, 1000), [0] * 1000, {0: range(1000)})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    buffer.save(sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""


def test_save__a_full_disk_leaves_the_former_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "buffer.safetensors"
    filled(capacity=7).save(path)
    before = path.read_bytes()
    ended = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True)
    assert "cannot write" in ended.stdout, ended.stdout + ended.stderr
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_to__moves_everything() -> None:
    buffer = filled(capacity=7).to("meta")
    assert buffer[0].device.type == "meta"
