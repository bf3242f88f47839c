"""keepset cache, as a user calls it."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from torch import Tensor

from keepset import cli
from keepset.views.cache import Cache, Recipe

IMAGES = torch.zeros(6, 3, 4, 4, dtype=torch.uint8)


@pytest.fixture
def call(tmp_path: Path, capsys: Any, monkeypatch: Any) -> Any:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("KEEPSET_CACHE", str(tmp_path / "views"))

    def run(*arguments: str, answer: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keepset", "cache", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def fill(folder: Path) -> list[str]:
    """Two whole entries of 100000 numbers and an unfinished one: their keys."""
    cache = Cache(folder)

    def breaks_off(checkpoint: Path) -> Tensor:
        checkpoint.write_bytes(bytes(5270))
        raise ZeroDivisionError

    keys = [
        cache.get(IMAGES[:5], Recipe("simclr", {"epochs": 200}, version), lambda _: torch.ones(5, 20000)).key
        for version in (1, 2)
    ]
    with pytest.raises(ZeroDivisionError):
        cache.get(IMAGES, Recipe("vicreg", {"epochs": 100}, 1), breaks_off)
    (last,) = (entry.key for entry in cache.entries() if entry.key not in keys)
    return [*keys, last]


def kept(folder: Path) -> set[str]:
    return {entry.key for entry in Cache(folder).entries()}


def test_ls__empty(call: Any, tmp_path: Path) -> None:
    code, out, err = call("ls")
    assert (code, err) == (0, "")
    assert out == f"no views in {tmp_path / 'views'}; they come with keepset encode and keepset run\n"


def test_ls__a_line_an_entry_and_the_total(call: Any, tmp_path: Path) -> None:
    keys = fill(tmp_path / "views")
    code, out, err = call("ls")
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert set(lines) == {"entry", "3", *(key[:12] for key in keys)}
    made = Cache().entries()[-1].made[:10]
    for key in keys[:2]:
        assert lines[key[:12]].split()[1:-1] == ["simclr", "5", "of", "3×4×4", "20000", "200", "400", "kB", made]
    assert lines[keys[2][:12]].split()[1:] == ["vicreg", "6", "of", "3×4×4", "100", "5.4", "kB", "unfinished"]
    assert lines["3"] == f"3 entries, 806 kB in {tmp_path / 'views'}"


def test_ls__the_folder_given(call: Any, tmp_path: Path) -> None:
    key = fill(tmp_path / "elsewhere")[0]
    assert key[:12] in call("ls", "--folder", str(tmp_path / "elsewhere"))[1]


def test_clear__asks_and_takes_no_for_an_answer(call: Any, tmp_path: Path) -> None:
    keys = fill(tmp_path / "views")
    code, out, err = call("clear", answer="n\n")
    assert code == 0
    assert "nothing removed" in out
    assert f"Remove 3 entries, 806 kB from {tmp_path / 'views'}?" in err
    assert kept(tmp_path / "views") == set(keys)
    code, _, err = call("clear", answer="")
    assert code == 2
    assert "nobody is there to answer, and nothing was removed; say --yes" in err
    assert kept(tmp_path / "views") == set(keys)


def test_clear__yes_by_answer_or_flag(call: Any, tmp_path: Path) -> None:
    keys = fill(tmp_path / "views")
    code, out, err = call("clear", keys[0], answer="y\n")
    assert (code, out.strip()) == (0, "one entry removed, 400 kB freed")
    assert "Remove one entry, 400 kB from" in err
    assert kept(tmp_path / "views") == set(keys[1:])
    assert call("clear", "--yes") == (0, "2 entries removed, 406 kB freed\n", "")
    assert call("clear") == (0, f"nothing to clear in {tmp_path / 'views'}\n", "")


def test_clear__unfinished_alone(call: Any, tmp_path: Path) -> None:
    keys = fill(tmp_path / "views")
    assert call("clear", "--unfinished", "--yes")[1].startswith("one entry removed")
    assert kept(tmp_path / "views") == set(keys[:2])
    assert call("clear", "--unfinished", keys[0])[1].startswith("nothing to clear")


def test_clear__a_beginning_that_is_unique(call: Any, tmp_path: Path) -> None:
    keys = fill(tmp_path / "views")
    assert call("clear", keys[1][:8], keys[2][:8], "--yes", "--folder", str(tmp_path / "views"))[0] == 0
    assert kept(tmp_path / "views") == {keys[0]}


@pytest.mark.parametrize("length", [6, 32])
def test_clear__a_beginning_that_is_unknown(call: Any, tmp_path: Path, length: int) -> None:
    keys = fill(tmp_path / "views")
    wrong = keys[0][: length - 1] + "x"
    code, _, err = call("clear", wrong, keys[1], "--yes")
    assert code == 2
    assert err == f"keepset: unknown entry {wrong!r}; did you mean {keys[0][:length]!r}? see keepset cache ls\n"
    assert kept(tmp_path / "views") == set(keys), "nothing is removed if one name is wrong"


def test_clear__a_beginning_of_several_or_an_empty_cache(call: Any, tmp_path: Path) -> None:
    assert "unknown entry 'ab'; the cache is empty" in call("clear", "ab")[2]
    (tmp_path / "views").mkdir()
    for last in "ab":
        (tmp_path / "views" / f"{'0' * 31}{last}.safetensors").touch()
    code, _, err = call("clear", "000", "--yes")
    assert code == 2
    assert "entry '000' is the beginning of 2: " in err


def test_clear__what_another_is_making_is_left_alone(call: Any, tmp_path: Path) -> None:
    keys = fill(tmp_path / "views")
    with FileLock(tmp_path / "views" / f"{keys[2]}.lock"):
        code, out, err = call("clear", "--yes")
    assert (code, out) == (0, "2 entries removed, 801 kB freed\n")
    assert err == f"{keys[2]} is just being made by another process and was left alone\n"
    assert kept(tmp_path / "views") == {keys[2]}


@pytest.mark.parametrize("verb", [(), ("ls",), ("clear",)])
def test_help__has_examples(call: Any, verb: tuple[str, ...]) -> None:
    code, out, _ = call(*verb, "--help")
    assert code == 0
    assert "  keepset cache " in out
