"""A finished run, read back; torch is not needed for that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

IDENTITY = {"data", "learner", "selector", "views", "capacity", "seed", "train"}  # what every result tells of its run


def read_result(folder: Path) -> dict[str, Any]:
    path = folder / "result.json"
    if folder.is_file():
        raise ValueError(f"{folder} is a file; unpack it, if runs are packed in it, and name the folder of one")
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise ValueError(f"{folder} holds no finished run: there is no result.json in it") from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); delete it, or run it again with --again") from None
    told = found.get("identity") if isinstance(found, dict) and "accuracy" in found else None
    if not isinstance(told, dict) or not told.keys() >= IDENTITY:
        raise ValueError(f"{path} is no result of keepset run; run it again with --again")
    return found
