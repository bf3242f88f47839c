"""What several commands read from their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def named_arrays(specs: Sequence[str]) -> dict[str, Any]:
    """Name -> array of files as `files.read_array` takes them; those of one name are told apart by what was typed."""
    from ..files import read_array

    for spec in specs:
        if specs.count(spec) > 1:
            raise ValueError(f"{spec} is named twice; name each view once")
    read = [read_array(spec) for spec in specs]
    names = [name for name, _ in read]
    return {(name if names.count(name) == 1 else spec): array for spec, (name, array) in zip(specs, read, strict=True)}
