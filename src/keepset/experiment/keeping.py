"""A run's buffer, new or from a checkpoint, and what a result tells of the picks in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..buffer import Buffer
from ..selection import Selection
from .config import RunConfig
from .results import json_number


def empty_buffer(config: RunConfig, classes: int) -> Buffer:
    if config.quota == "adaptive":
        return Buffer(capacity=config.capacity)
    if config.capacity < classes:
        raise ValueError(f"capacity must be at least {classes} (one a class) with quota=fixed, got {config.capacity}")
    return Buffer(per_class=config.capacity // classes)


def buffer_state(buffer: Buffer, counts: list[list[Any]], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    data = {name.removeprefix("buffer."): tensor for name, tensor in tensors.items() if name.startswith("buffer.")}
    saved = {"counts": counts, "data": data, "generator": tensors["buffer-generator"]}
    return {**buffer.state_dict(), **saved}


def told(selection: Selection, rows: Tensor) -> dict[str, Any]:
    """What was kept of a class, as rows of the training images, and how it came about."""
    return {
        "rows": rows[list(selection)].tolist(),
        "gains": [json_number(gain) for gain in map(float, selection.gains)],
        "weights": {str(view): json_number(float(weight)) for view, weight in selection.weights.items()},
        "scales": {str(view): json_number(float(scale)) for view, scale in selection.scales.items()},
        "k": None if selection.k is None else int(selection.k),
        "objective": json_number(float(selection.objective)),
        "notes": list(map(str, selection.notes)),
    }
