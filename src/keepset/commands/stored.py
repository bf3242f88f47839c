"""Stored runs as commands read them: where they lie, what is passed over, and `--where`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .arguments import listed
from .console import warn

if TYPE_CHECKING:
    from ..report.stored import Record

PACKED = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2")

Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="FOLDER...", help="Folders of runs, of such folders, or one run's; or a .tar or .zip of them."
    ),
]


def finished_runs(folders: Sequence[Path]) -> list[Record]:
    """All that are finished; the others are counted on the error stream."""
    from ..report.stored import read_records

    found = read_records(folders)
    counts = {"unfinished": found.unfinished, "damaged": found.damaged}
    told = [f"{len(paths)} {word} (such as {paths[0]})" for word, paths in counts.items() if paths]
    if told:
        warn(f"runs passed over: {', '.join(told)}")
    if not found.records:
        packed = [str(file) for folder in folders for file in sorted(folder.glob("*")) if file.name.endswith(PACKED)]
        remedy = f"to read what is packed there, name {' '.join(packed)}" if packed else "see keepset run --out"
        raise ValueError(f"there are no finished runs in {', '.join(map(str, folders))}; {remedy}")
    return found.records


def conditions(texts: Sequence[str]) -> dict[str, list[str]]:
    """`learner=er,er-ace` -> the field and its values."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or not values:
            raise ValueError(f"--where must be field=value or field=value,value, got {text!r}")
        if name in found:
            raise ValueError(f"--where names {name} twice; list its values: {name}={','.join(found[name])},{values}")
        found[name] = listed(values) or []
    return found
