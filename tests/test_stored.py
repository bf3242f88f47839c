"""Reading stored results: their fields, where they lie, and what is passed over."""

import json
import math
import shutil
import time
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fake_results import matrix, run_identity, write_result
from keepset.experiment.config import make_config
from keepset.experiment.results import Progress, RunFolder
from keepset.report import stored
from keepset.report.fields import default_options, field_name, flat_settings
from keepset.report.stored import read_record, read_records


def test_read_records__of_a_folder_as_a_run_finishes_it(tmp_path: Path) -> None:
    config = make_config("paper", None, {"device": "cpu", "data": {"name": "cifar100", "order": 42}, "seed": 7})
    folder = RunFolder(tmp_path, config)
    folder.prepare()
    picks = [{str(label): {"rows": list(range(300)), "notes": ['\n "identity": {}']} for label in range(40)}]
    folder.finish(Progress(accuracy=[[0.5], [0.25, 0.75]], picks=picks))
    assert (folder.path / "result.json").stat().st_size > 2 * stored.END, "so that its ends are read, and no more"
    (record,) = read_records([tmp_path]).records
    assert (record["dataset"], record["order"], record["seed"], record["episodes"]) == ("cifar100", 42, 7, 2)
    assert (record["selector"], record["views"], record["epochs"]) == ("mers", "supervised+simclr", 100)
    assert record.accuracy == [[0.5], [0.25, 0.75]]
    assert record.averages == [0.5, 0.5]
    assert record.metrics == {"FAA": 0.5, "AAA": 0.5, "forgetting": 0.25, "stability": 0.25}


def test_read_record__another_layout_gives_the_same(tmp_path: Path) -> None:
    usual = read_record(write_result(tmp_path, 0.3, capacity=500, seed=3))
    path = usual.folder / "result.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(content.items()))))
    other = read_record(usual.folder)
    assert (other.settings, other.seed, other.metrics) == (usual.settings, 3, usual.metrics)


def test_read_record__metrics_come_from_the_matrix_where_they_are_not_stored(tmp_path: Path) -> None:
    path = write_result(tmp_path, [[0.5], [0.25, 0.75]]) / "result.json"
    content = json.loads(path.read_text())
    del content["metrics"]
    path.write_text(json.dumps(content))
    assert read_record(path.parent).metrics["forgetting"] == 0.25


def test_read_record__one_episode_has_no_forgetting(tmp_path: Path) -> None:
    record = read_record(write_result(tmp_path, matrix(0.5, 1)))
    assert math.isnan(record.metrics["forgetting"])
    assert record.metrics["FAA"] == 0.5


def test_read_records__settings_are_one_object_for_all_seeds(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_result(tmp_path, seed=seed)
    write_result(tmp_path, capacity=7)
    first, second, third = read_records([tmp_path]).records
    assert first.settings is second.settings
    assert first.settings is not third.settings
    assert (first["seed"], second["seed"]) == (0, 1)


def test_read_records__in_the_folder_one_below_and_two_below(tmp_path: Path) -> None:
    run = write_result(tmp_path / "runs" / "grid", seed=1)
    write_result(tmp_path / "runs", seed=2, folder="plain")
    assert sorted(record.seed for record in read_records([tmp_path / "runs"]).records) == [1, 2]
    assert [record.seed for record in read_records([run]).records] == [1]
    assert len(read_records([tmp_path / "runs" / "grid", f"{tmp_path}/runs/./grid"]).records) == 1
    assert read_records([tmp_path.parent / tmp_path.name]).records != []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        '{"accuracy": [[0.5]]}',
        '{"accuracy": [[0.5, 0.5]], "identity": {"seed": 0}}',
        '{"accuracy": [], "identity": {"seed": 0}}',
        '{"accuracy": [[0.5]], "identity": 3}',
        '{"accuracy": [[0.5]], "identity": {"seed": 0}}',
        '{"accuracy": 1, "identity": {"seed": 0}}',
        '{"accuracy": [[0.5]], "identity": {"seed": Infinity}}',
        '{"accuracy": [[1.5]], "identity": {"seed": 0, "data": {}}}',
        '{"accuracy": [[null]], "identity": {"seed": 0}}',
        f'{{"accuracy": [[1{400 * "0"}]], "identity": {{"seed": 0}}}}',
        9999 * "[",
        "\x00\xff",
    ],
)
def test_read_records__damaged_results_are_passed_over(text: str, tmp_path: Path) -> None:
    write_result(tmp_path, seed=1)
    folder = write_result(tmp_path, seed=2)
    (folder / "result.json").write_text(text, encoding="latin-1")
    found = read_records([tmp_path])
    assert [record.seed for record in found.records] == [1]
    assert found.damaged == [folder]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_read_records__a_torn_result_is_damaged(share: float, tmp_path: Path) -> None:
    path = write_result(tmp_path) / "result.json"
    text = path.read_text()
    path.write_text(text[: int(share * len(text)) - 1])
    assert read_records([tmp_path]).damaged == [path.parent]


def test_read_records__unfinished_runs_are_told_apart(tmp_path: Path) -> None:
    folder = write_result(tmp_path)
    (folder / "result.json").unlink()
    (tmp_path / "no run").mkdir()
    found = read_records([tmp_path])
    assert (found.records, found.unfinished, found.damaged) == ([], [folder], [])


# ---------------------------------------------------------------- archives


def packed(folder: Path, kind: str) -> Path:
    return Path(shutil.make_archive(str(folder), kind, folder.parent, folder.name))


def zip_of(path: Path, contents: Sequence[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that come twice
        for name, content in contents:
            file.writestr(name, content)
    return path


@pytest.mark.parametrize("kind", ["zip", "tar", "gztar", "xztar", "bztar"])
def test_read_records__of_an_archive_are_those_of_the_folder(kind: str, tmp_path: Path) -> None:
    for seed in (0, 1):
        write_result(tmp_path / "runs" / "deep", 0.5 + seed / 10, seed=seed)
    (write_result(tmp_path / "runs", seed=2) / "result.json").unlink()
    (write_result(tmp_path / "runs", seed=3) / "result.json").write_text("{")
    write_result(tmp_path / "runs" / ".former", seed=4)
    (tmp_path / "runs" / "notes.txt").write_text("no run")
    inside = packed(tmp_path / "runs", kind)
    plain, found = read_records([tmp_path / "runs"]), read_records([inside])
    assert len(plain.records) == 2
    by_seed = {each.seed: (each.settings, each.accuracy, each.metrics) for each in found.records}
    assert by_seed == {each.seed: (each.settings, each.accuracy, each.metrics) for each in plain.records}
    assert found.unfinished == [inside / each.relative_to(tmp_path) for each in plain.unfinished] != []
    assert found.damaged == [inside / each.relative_to(tmp_path) for each in plain.damaged] != []


def test_read_records__of_a_long_result_in_an_archive(tmp_path: Path) -> None:
    folder = write_result(tmp_path / "runs", 0.25, seed=4)
    content = json.loads((folder / "result.json").read_text())
    content["picks"] = [{"0": {"rows": list(range(2 * stored.END))}}]
    (folder / "result.json").write_text(json.dumps(content, indent=1))
    (record,) = read_records([packed(tmp_path / "runs", "xztar")]).records
    assert (record.seed, record.metrics["FAA"]) == (4, 0.25)


@pytest.mark.parametrize("kind", ["zip", "tar", "gztar", "xztar"])
def test_read_records__an_archive_that_was_cut_off_is_refused(kind: str, tmp_path: Path) -> None:
    write_result(tmp_path / "runs")
    path = packed(tmp_path / "runs", kind)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"cannot read .*runs\.\S+ \(.*\); name a folder of runs, or a whole \.zip or"):
        read_records([path])


def test_read_records__a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = write_result(tmp_path) / "result.json"
    with pytest.raises(
        ValueError, match=r"cannot read .*result\.json \(it is no \.zip, and no \.tar, .*name a folder of"
    ):
        read_records([path])


def test_read_records__of_files_that_are_there_twice_the_later_counts(tmp_path: Path) -> None:
    former, later = ((write_result(tmp_path, final) / "result.json").read_bytes() for final in (0.25, 0.75))
    appended = zip_of(tmp_path / "a.zip", [("runs/0/result.json", former), ("runs/0/result.json", later)])
    mended = zip_of(tmp_path / "b.zip", [("runs/0/result.json", later[:50]), ("runs/0/result.json", later)])
    for path in (appended, mended):
        found = read_records([path])
        assert [record.metrics["FAA"] for record in found.records] == [0.75]
        assert found.damaged == []


def test_read_records__names_as_other_systems_have_them(tmp_path: Path) -> None:
    result = (write_result(tmp_path) / "result.json").read_bytes()
    names = ["/runs/0/result.json", "./runs/1/result.json", "runs\\2\\result.json", "../3/result.json", "result.json"]
    path = zip_of(tmp_path / "a.zip", [(name, result) for name in [*names, "__MACOSX/runs/0/._result.json"]])
    found = [str(record.folder.relative_to(path)) for record in read_records([path]).records]
    assert found == ["runs/0", "runs/1", "runs/2", "../3", "."]


def test_read_records__names_in_an_archive_do_not_move_the_cursor(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", [("\x1b[2J\n/config.json", b"{}")])
    assert read_records([path]).unfinished == [path / "?[2J?"]


def test_read_records__other_files_in_an_archive_may_be_anything(tmp_path: Path) -> None:
    (write_result(tmp_path / "runs", folder="0") / "latest").symlink_to("nowhere")
    assert len(read_records([packed(tmp_path / "runs", "tar")]).records) == 1


def test_read_records__missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no folder or file .*none; name one that holds runs"):
        read_records([tmp_path / "none"])


# ---------------------------------------------------------------- fields


@pytest.mark.parametrize(
    ("given", "selector", "method", "views"),
    [
        ({"selector": "random"}, "random", "random", "none"),
        ({"selector": "maxherding"}, "maxherding", "maxherding", "supervised"),
        ({"selector": "maxherding:simclr"}, "maxherding:simclr", "maxherding", "simclr"),
        ({"selector": "maxherding", "views": ["pixels"]}, "maxherding:pixels", "maxherding", "pixels"),
        ({"selector": "mers-maxherding"}, "mers", "mers", "supervised+simclr"),
        ({"selector": "mers", "views": ["simclr"]}, "mers", "mers", "simclr"),
    ],
)
def test_settings__selector_names_a_view_that_is_not_the_learners(
    given: Any, selector: str, method: str, views: str
) -> None:
    found = flat_settings(run_identity(**given), 10)
    assert (found["selector"], found["method"], found["views"]) == (selector, method, views)


@pytest.mark.parametrize(
    ("given", "variant"),
    [
        ({"selector": "random"}, "random"),
        ({"selector": "mers", "options": {"weights": "printed", "bandwidth_scale": 1.0}}, "mers"),
        ({"selector": "maxherding:simclr"}, "maxherding:simclr"),
        ({"selector": "maxherding", "options": {"bandwidth": "knn"}}, "maxherding bandwidth=knn"),
        ({"selector": "mers", "views": ["simclr"]}, "mers views=simclr"),
        (
            {
                "selector": "mers",
                "views": ["supervised", "pixels"],
                "options": {"weights": [2.0, 1.0], "neighbours": 7},
            },
            "mers views=supervised+pixels neighbours=7 weights=2.0 1.0",
        ),
        ({"selector": "mers", "options": {"bandwidth_scale": 2}}, "mers bandwidth_scale=2"),
        ({"selector": "mers", "options": {"bandwidth_scale": 2.0}}, "mers bandwidth_scale=2"),
        ({"selector": "mers", "options": {"bandwidth_scale": 0.1 + 0.2}}, "mers bandwidth_scale=0.3"),
    ],
)
def test_settings__a_variant_is_the_selector_with_what_was_set_of_it(given: Any, variant: str) -> None:
    assert flat_settings(run_identity(**given), 10)["variant"] == variant


def test_settings__a_variant_has_no_comma_which_would_end_it_in_a_list() -> None:
    own = {**run_identity(selector="mers"), "selector": "mine:choose", "options": {"names": "a,b"}}
    assert flat_settings(own, 10)["variant"] == "mine:choose names=a;b"


def test_settings__options_left_out_have_their_defaults() -> None:
    plain = flat_settings(run_identity(), 10)
    assert (plain["options.weights"], plain["options.neighbours"]) == ("printed", "auto")
    assert flat_settings(run_identity(options={"weights": "printed"}), 10) == plain
    assert flat_settings(run_identity(options={"weights": [2.0, 1.0]}), 10)["options.weights"] == "2.0 1.0"
    given = flat_settings(run_identity(options={"bandwidth": {"simclr": 0.5, "supervised": 1}}), 10)
    assert given["options.bandwidth"] == "simclr:0.5 supervised:1"
    assert not [name for name in flat_settings(run_identity(selector="random"), 10) if name.startswith("options")]
    assert default_options("herding") == {}


def test_settings__episodes_are_counted_and_their_sizes_kept() -> None:
    plain, said = flat_settings(run_identity(), 10), flat_settings(run_identity(data__episodes=10), 10)
    assert plain == said
    assert plain["episodes"] == 10
    assert flat_settings(run_identity(data__episodes=[10] * 10), 10) == plain
    assert plain["data.episodes"] == "equal"
    assert flat_settings(run_identity(data__episodes=[60, 40]), 2)["data.episodes"] == "60 40"


def test_field_name__by_the_end_of_a_dotted_name() -> None:
    known = ["capacity", "options.weights", "simclr.rate", "learning.rate"]
    assert field_name("capacity", known) == "capacity"
    assert field_name("weights", known) == "options.weights"
    assert field_name("simclr.rate", known) == "simclr.rate"
    with pytest.raises(ValueError, match=r"'rate' may be learning\.rate or simclr\.rate"):
        field_name("rate", known)
    with pytest.raises(ValueError, match="unknown field 'capasity'; did you mean 'capacity'"):
        field_name("capasity", known)


def test_read_records__three_hundred_are_quick(tmp_path: Path) -> None:
    for number in range(300):
        write_result(tmp_path, folder=str(number), capacity=100 + number % 3, seed=number)
    begin = time.process_time()
    assert len(read_records([tmp_path]).records) == 300
    assert time.process_time() - begin < 1, "ten thousand must not take more than a few seconds"


def test_flat_settings__what_an_identity_leaves_unsaid_is_there_with_its_default() -> None:
    """Else runs that differ in it would be taken for one kind."""
    from keepset.learning.trainer import TrainSettings

    flat = flat_settings(run_identity(), 10)
    for field in fields(TrainSettings):
        if field.name != "stacked":  # which is no difference
            assert flat.get(f"train.{field.name}", flat.get(field.name)) == field.default, field.name
    assert flat_settings(run_identity(train__statistics="first"), 10)["train.statistics"] == "first"
