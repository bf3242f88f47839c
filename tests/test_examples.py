"""Every example runs, and leaves the picture it promises."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from keepset.experiment.config import make_config
from keepset.selection import SELECTORS

EXAMPLES = Path(__file__).parent.parent / "examples"
PNG = b"\x89PNG"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_digits__a_row_for_every_selector_and_a_picture(tmp_path: Path, capsys: Any) -> None:
    load("digits").main(tmp_path / "digits.png")
    shown = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.split()[:1] and "0." in line}
    assert set(SELECTORS) <= set(rows)
    assert all(0 < float(value) <= 1 for name in SELECTORS for value in rows[name])
    assert (tmp_path / "digits.png").read_bytes().startswith(PNG)


def test_replay__a_row_for_every_selector_and_a_picture(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = load("replay")
    short = {"train": {"epochs": 1}, "simclr": {"epochs": 2, "warmup": 0}, "device": "cpu"}
    monkeypatch.setattr(replay, "make_config", lambda preset, flags: make_config(preset, flags={**flags, **short}))
    monkeypatch.setattr(replay, "SEEDS", (0, 1))
    replay.main(tmp_path / "replay.png", tmp_path / "runs")
    shown = capsys.readouterr().out
    assert all(
        any(line.split()[:1] == [name] and "±" in line for line in shown.splitlines()) for name in replay.SELECTORS
    )
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == 8
    assert (tmp_path / "replay.png").read_bytes().startswith(PNG)


def test_no_example_is_left_out() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"digits", "replay"}
