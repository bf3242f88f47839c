"""The file a choice is written to: .npy, .csv or .json, written and read again."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..selection import Selection

ENDINGS = (".npy", ".csv", ".json")
COLUMNS = ("class", "rank", "index", "gain")


def check_output(output: Path | None) -> None:
    from ..files import check_place

    if output is None:
        return
    if output.suffix not in ENDINGS:
        raise ValueError(f"--output must end in .npy, .csv or .json, got {output}")
    check_place(output)


def write_chosen(output: Path, chosen: dict[Any, Selection]) -> None:
    """Class -> Selection in the form that the file's ending names, whole or not at all."""
    import numpy as np

    from ..files import write_atomically

    def write(path: Path) -> None:
        if output.suffix == ".npy":
            np.save(path, np.concatenate([np.asarray(selection) for selection in chosen.values()]))
        elif output.suffix == ".json":
            path.write_text(json.dumps(_records(chosen), indent=1) + "\n", encoding="utf-8")
        else:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, COLUMNS)
                writer.writeheader()
                writer.writerows(_records(chosen))

    write_atomically(output, write)


def _records(chosen: dict[Any, Selection]) -> list[dict[str, Any]]:
    return [
        {
            "class": label,
            "rank": row["rank"],
            "index": row["index"],
            "gain": None if math.isnan(row["gain"]) else row["gain"],
        }
        for label, selection in chosen.items()
        for row in selection.rows()
    ]


# ---------------------------------------------------------------- reading


def read_chosen(path: Path, count: int) -> list[tuple[int, float]]:
    """(index, gain) of each pick of a choice over all of `count` points; NaN where the file has no gain."""
    from ..files import UNREADABLE

    try:
        picks = _picks_of(path)
    except (*UNREADABLE, csv.Error) as error:
        raise ValueError(f"{path} holds no choice that keepset select wrote ({error}); name another file") from None
    seen: set[int] = set()
    for index, _ in picks:
        if not 0 <= index < count:
            raise ValueError(f"{path} holds another choice: index {index} is not in 0..{count - 1}; name another file")
        if index in seen:
            raise ValueError(f"{path} holds another choice: index {index} is there twice; name another file")
        seen.add(index)
    return picks


def _picks_of(path: Path) -> list[tuple[int, float]]:
    import numpy as np

    if path.suffix == ".npy":
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(f"an array of {array.dtype}, shape {array.shape}")
        return [(index, math.nan) for index in array.tolist()]
    text = path.read_text(encoding="utf-8")
    records = json.loads(text) if path.suffix == ".json" else list(csv.DictReader(text.splitlines()))
    if any(record["class"] not in (None, "") for record in records):
        raise ValueError("it was made by class")
    return [(int(record["index"]), _gain(record["gain"])) for record in records]


def _gain(value: Any) -> float:
    return math.nan if value in (None, "") else float(value)
