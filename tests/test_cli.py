"""The command line: what it reads, writes and prints, and how it fails."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import keepset
from keepset import cli
from keepset.selection import SELECTORS

RNG = np.random.default_rng(0)
A = RNG.normal(size=(60, 8)).astype(np.float32)
B = RNG.normal(size=(60, 5))
LABELS = np.array(["cat", "dog", "eel"])[np.arange(60) % 3]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "b.npy", B)
    np.save(tmp_path / "y.npy", LABELS)
    np.save(tmp_path / "numbers.npy", np.arange(60) % 3)
    np.savez(tmp_path / "both.npz", a=A, b=B)
    np.savez(tmp_path / "one.npz", only=A)
    save_file({"a": torch.from_numpy(A).bfloat16(), "b": torch.from_numpy(B)}, tmp_path / "t.safetensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def run(*arguments: str, capsys: Any, monkeypatch: Any) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["keepset", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture
def call(folder: Path, capsys: Any, monkeypatch: Any) -> Any:
    return lambda *arguments: run(*arguments, capsys=capsys, monkeypatch=monkeypatch)


def test_ls__names_every_selector_and_option(call: Any) -> None:
    code, out, _ = call("ls")
    assert code == 0
    assert all(name in out for name in SELECTORS)
    assert "bandwidth_scale" in out
    assert "mers-maxherding" in out


@pytest.mark.parametrize("arguments", [[], ["--help"], ["ls", "--help"], ["select", "--help"]])
def test_help__has_examples(call: Any, arguments: list[str]) -> None:
    code, out, _ = call(*arguments)
    assert code == 0
    assert "Example" in out
    assert "  keepset " in out


def test_version(call: Any) -> None:
    assert call("--version") == (0, f"{keepset.__version__}\n", "")


@pytest.mark.parametrize(
    "views",
    [["a.npy", "b.npy"], ["both.npz:a", "both.npz:b"], ["one.npz", "t.safetensors:b"]],
)
def test_select__npy_holds_the_picks_of_the_classes_in_turn(call: Any, views: list[str]) -> None:
    code, out, _ = call("select", *views, "--labels", "y.npy", "--budget", "4", "-o", "keep.npy")
    assert (code, out) == (0, "12 indices written to keep.npy\n")
    expected = keepset.select_per_class([A, B], LABELS, 4)
    assert np.load("keep.npy").tolist() == [index for chosen in expected.values() for index in chosen]


def test_select__bfloat16_from_safetensors(call: Any) -> None:
    assert call("select", "t.safetensors:a", "--budget", "3", "-o", "keep.npy")[0] == 0
    assert np.load("keep.npy").tolist() == list(keepset.select(torch.from_numpy(A).bfloat16(), 3))


def test_select__csv_and_json_hold_class_rank_index_gain(call: Any) -> None:
    for output in ("keep.csv", "keep.json"):
        assert call("select", "a.npy", "--labels", "y.npy", "--budget", "cat=2,dog=0,eel=1", "-o", output)[0] == 0
    expected = keepset.select_per_class(A, LABELS, {"cat": 2, "dog": 0, "eel": 1})
    rows = [line.split(",") for line in Path("keep.csv").read_text(encoding="utf-8").splitlines()]
    assert rows[0] == ["class", "rank", "index", "gain"]
    assert [(row[0], int(row[1]), int(row[2])) for row in rows[1:]] == [
        ("cat", 1, expected["cat"][0]),
        ("cat", 2, expected["cat"][1]),
        ("eel", 1, expected["eel"][0]),
    ]
    records = json.loads(Path("keep.json").read_text(encoding="utf-8"))
    assert records[1] == {
        "class": "cat",
        "rank": 2,
        "index": expected["cat"][1],
        "gain": float(expected["cat"].gains[1]),
    }


def test_select__methods_without_gains_write_none(call: Any) -> None:
    assert call("select", "a.npy", "--budget", "2", "--method", "random", "--seed", "3", "-o", "keep.json")[0] == 0
    records = json.loads(Path("keep.json").read_text(encoding="utf-8"))
    assert [record["index"] for record in records] == list(keepset.select(A, 2, method="random", generator=3))
    assert {record["gain"] for record in records} == {None}
    assert {record["class"] for record in records} == {None}


def test_select__labels_that_look_like_markup_are_shown_as_they_are(call: Any) -> None:
    names = ["[red]a[/red]", "[/x]", "[b]"]
    np.save("y.npy", np.array(names)[np.arange(60) % 3])
    code, out, _ = call("select", "a.npy", "--labels", "y.npy", "--budget", "2")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == sorted(names)


def test_select__integer_classes_by_name(call: Any) -> None:
    assert call("select", "a.npy", "--labels", "numbers.npy", "--budget", "0=1,1=2,2=3", "-o", "keep.npy")[0] == 0
    assert len(np.load("keep.npy")) == 6


def test_select__a_table_on_the_terminal(call: Any) -> None:
    code, out, _ = call("select", "a.npy", "b.npy", "--labels", "y.npy", "--budget", "2")
    expected = keepset.select_per_class([A, B], LABELS, 2)
    assert code == 0
    for label, chosen in expected.items():
        line = next(line for line in out.splitlines() if line.startswith(str(label)))
        assert line.split() == [str(label), "2", f"{chosen.objective:.4f}", *map(str, chosen)]
    assert call("select", "a.npy", "--budget", "2")[1].startswith("rank  index")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--weights", "2,1"], {"weights": [2, 1]}),
        (["--weights", "b=1,a=2"], {"weights": [2, 1]}),
        (["--weights", "equal", "--metric", "euclidean"], {"weights": "equal", "metric": "euclidean"}),
        (["--bandwidth", "0.3"], {"bandwidth": 0.3}),
        (["--bandwidth", "a=0.3,b=0.4"], {"bandwidth": {"a": 0.3, "b": 0.4}}),
        (["--bandwidth", "0.3,0.4"], {"bandwidth": {"a": 0.3, "b": 0.4}}),
        (["--bandwidth", "knn", "--neighbours", "4"], {"bandwidth": "knn", "neighbours": 4}),
        (["--bandwidth-scale", "0.5", "--kernel", "laplace"], {"bandwidth_scale": 0.5, "kernel": "laplace"}),
        (["--fusion", "max-then-sum"], {"fusion": "max-then-sum"}),
        (["--method", "mers-probcover", "--uncovered", "shared"], {"method": "mers-probcover", "uncovered": "shared"}),
        (["--method", "maxherding", "--view", "b"], {"method": "maxherding", "view": "b"}),
        (
            ["--method", "rainbow", "--uncertainty", "u.npy"],
            {"method": "rainbow", "uncertainty": np.linspace(0, 1, 60)},
        ),
        (["--point-weights", "u.npy"], {"point_weights": np.linspace(0, 1, 60)}),
        (["--point-weights", "density"], {"point_weights": "density"}),
        (["--point-weights", "density", "--point-power", "4"], {"point_weights": "density", "point_power": 4}),
        (["--start", "s.npy"], {"start": [3, 5]}),
        (["--method", "teal", "--seed", "7"], {"method": "teal", "generator": 7}),
    ],
)
def test_select__options_reach_the_library(call: Any, arguments: list[str], options: dict[str, Any]) -> None:
    np.save("u.npy", np.linspace(0, 1, 60))
    np.save("s.npy", np.array([3, 5]))
    assert call("select", "a.npy", "b.npy", "--budget", "9", *arguments, "-o", "keep.npy")[0] == 0
    assert np.load("keep.npy").tolist() == list(keepset.select({"a": A, "b": B}, 9, **options))


def test_select__purity_goes_with_labels(call: Any) -> None:
    arguments = ("select", "a.npy", "b.npy", "--budget", "4", "--point-weights", "purity")
    given = ("--purity-view", "a", "--point-power", "3")
    cases: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), {}), (given, {"purity_view": 0, "point_power": 3})]
    for more, options in cases:
        assert call(*arguments, *more, "--labels", "y.npy", "-o", "keep.npy")[0] == 0
        expected = keepset.select_per_class([A, B], LABELS, 4, point_weights="purity", **options)
        assert np.load("keep.npy").tolist() == [index for chosen in expected.values() for index in chosen]
    code, _, err = call(*arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert "--point-weights purity needs --labels" in err


def test_select__files_of_one_name_are_told_apart(call: Any, folder: Path) -> None:
    (folder / "other").mkdir()
    np.save(folder / "other" / "a.npy", B)
    out = call("select", "a.npy", "other/a.npy", "--budget", "2")[1]
    assert "share of a.npy" in out
    assert "share of other/a.npy" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["selct"], r"Did you mean 'select'?"),
        (["select", "a.npy", "--budgt", "3"], "--budget"),
        (["select", "a.npy"], "Missing option '--budget'"),
        (["select", "--budget", "3"], "Missing argument"),
        (["select", "a.npy", "--budget", "90"], "budget must be in 1..60 (the number of candidates), got 90"),
        (["select", "a.npy", "--budget", "x"], "--budget must be a whole number"),
        (["select", "a.npy", "--budget", "2.5"], "--budget must be a whole number"),
        (["select", "a.npy", "--budget", "cat=2"], "--budget by class needs --labels"),
        (["select", "a.npy", "--budget", "2", "--method", "merz"], "unknown selector 'merz'; did you mean 'mers'?"),
        (["select", "a.npy", "--budget", "2", "--weights", "1,x"], "'x' in '1,x' must be a number"),
        (["select", "a.npy", "--budget", "2", "--kernel", "rfb"], "did you mean 'rbf'?"),
        (["select", "a.npy", "--budget", "2", "--point-weights", "pure"], "did you mean 'purity'?"),
        (["select", "a.npy", "--budget", "2", "--point-power", "4"], "point_power=4.0 is for point_weights"),
        (["select", "a.npy", "--budget", "2", "--labels", "a.npy"], "labels must be integers or strings"),
        (
            ["select", "a.npy", "--budget", "2", "--labels", "y.npy", "--start", "y.npy"],
            "leave out --labels or --start",
        ),
        (["select", "a.npy", "--labels", "y.npy", "--budget", "cat=1,cat=2"], "names 'cat' twice; name each once"),
        (["select", "a.npy", "--labels", "numbers.npy", "--budget", "1=1,01=2"], "names 1 twice"),
        (["select", "a.npy", "--budget", "2", "--weights", "a=1,a=2"], "names 'a' twice"),
        (["select", "none.npy", "--budget", "2"], "no such file: none.npy"),
        (["select", "a.txt", "--budget", "2"], "a.txt must end in .npy, .npz"),
        (["select", "y.npy", "--budget", "2"], "must be float16"),
        (["select", "both.npz", "--budget", "2"], "both.npz holds 2 arrays; name one as both.npz:KEY (a, b)"),
        (["select", "both.npz:aa", "--budget", "2"], "both.npz has no array 'aa'; did you mean 'a'?"),
        (["select", "t.safetensors:c", "--budget", "2"], "t.safetensors has no array 'c'"),
        (["select", "a.npy", "--budget", "2", "-o", "keep.txt"], "--output must end in .npy, .csv or .json"),
        (["select", "a.npy", "--budget", "2", "-o", "gone/keep.npy"], "the folder gone does not exist"),
    ],
)
def test_bad_input__one_line_and_exit_code_2(call: Any, folder: Path, arguments: list[str], message: str) -> None:
    before = sorted(folder.iterdir())
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("ending", ["npy", "npz", "safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "foreign", "empty"])
def test_select__damaged_files_are_named(call: Any, folder: Path, ending: str, damage: str) -> None:
    whole = {"npy": "a.npy", "npz": "one.npz", "safetensors": "t.safetensors"}[ending]
    content = (folder / whole).read_bytes()
    damaged = {"truncated": content[: len(content) // 2], "foreign": b"hello, this is no array", "empty": b""}
    (folder / f"bad.{ending}").write_bytes(damaged[damage])
    code, _, err = call("select", f"bad.{ending}", "--budget", "2")
    assert code == 2
    assert err.startswith(f"keepset: bad.{ending} ")
    assert err.count("\n") == 1


def header(text: str) -> bytes:
    """The beginning of an .npy file of that header, and a few numbers."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(64)


@pytest.mark.parametrize("plan", [[], ["--plan"]])
@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, ",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3 4)}",
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**31}, 3)}}",
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**62}, 3)}}",
    ],
)
def test_select__damaged_headers_are_named(call: Any, folder: Path, text: str, plan: list[str]) -> None:
    (folder / "bad.npy").write_bytes(header(text))
    code, out, err = call("select", "bad.npy", "--budget", "2", *plan)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("keepset: bad.npy is damaged or not readable (")


@pytest.mark.parametrize("plan", [[], ["--plan"]])
@pytest.mark.parametrize(("place", "value"), [(6, 99), (8, 1), (10, 77)], ids=["version", "encrypted", "compression"])
def test_select__archives_that_cannot_be_read_are_named(
    call: Any, folder: Path, place: int, value: int, plan: list[str]
) -> None:
    content = bytearray((folder / "one.npz").read_bytes())
    content[content.rfind(b"PK\x01\x02") + place] = value
    (folder / "bad.npz").write_bytes(content)
    code, out, err = call("select", "bad.npz", "--budget", "2", *plan)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("keepset: bad.npz is damaged or not readable (")


def test_select__an_archive_named_npy_is_named(call: Any, folder: Path) -> None:
    (folder / "one.npz").rename("bad.npy")
    for arguments in (["bad.npy"], ["bad.npy", "--plan"], ["a.npy", "--start", "bad.npy"]):
        code, _, err = call("select", *arguments, "--budget", "2")
        assert (code, err.count("\n")) == (2, 1)
        assert err.startswith("keepset: bad.npy is damaged or not readable (")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--start"], "start must be a sequence of indices"),
        (["--point-weights"], "point_weights must have shape (60,)"),
        (["--method", "rainbow", "--uncertainty"], "uncertainty must have shape (60,)"),
    ],
)
def test_select__a_lone_number_where_numbers_are_needed(call: Any, arguments: list[str], message: str) -> None:
    save_file({"x": torch.tensor(3)}, "lone.safetensors")
    code, _, err = call("select", "a.npy", "--budget", "2", *arguments, "lone.safetensors")
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.npy", "-o", "k" * 300 + ".npy"], "File name too long; name another file"),
        (["a.npy", "-o", "k" * 240 + ".npy"], ".npy.partial.json: File name too long; name another file"),
        (["k" * 300 + ".npy"], "File name too long"),
        (["k" * 300 + ".npz", "--plan"], "File name too long"),
    ],
)
def test_select__long_names_are_one_line(call: Any, arguments: list[str], message: str) -> None:
    code, out, err = call("select", "--budget", "2", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_select__a_long_name_that_can_be_written(call: Any) -> None:
    assert call("select", "a.npy", "--budget", "2", "-o", "k" * 238 + ".npy")[0] == 0
    assert call("select", "a.npy", "--labels", "y.npy", "--budget", "2", "-o", "k" * 251 + ".npy")[0] == 0
    assert len(np.load("k" * 251 + ".npy")) == 6


def test_select__pickled_objects_are_not_read(call: Any) -> None:
    np.save("objects.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    code, _, err = call("select", "objects.npy", "--budget", "1")
    assert code == 2
    assert "holds Python objects" in err


@pytest.mark.parametrize("program", [[str(Path(sys.executable).parent / "keepset")], [sys.executable, "-m", "keepset"]])
def test_keepset_command__runs_as_a_program_without_a_traceback(program: list[str], folder: Path) -> None:
    command = [*program, "select", "a.npy", "--budget", "100"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert ended.returncode == 2
    assert ended.stderr == "keepset: budget must be in 1..60 (the number of candidates), got 100\n"


def test_select__an_output_that_cannot_be_written_leaves_the_former_file(
    call: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "keep.csv").write_text("former", encoding="utf-8")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    code, _, err = call("select", "a.npy", "--budget", "2", "-o", "keep.csv")
    assert code == 2
    assert err == "keepset: cannot write keep.csv: No space left on device\n"
    assert (folder / "keep.csv").read_text(encoding="utf-8") == "former"
    assert not list(folder.glob(".keep*"))
