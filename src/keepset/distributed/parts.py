"""The first round: each part of the rows keeps its own, as a task of Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..selection.api import select
from ..selection.inputs import as_tensor, read_view
from ..selection.room import SHARE, free_bytes
from .shards import Rows, View

RETRIES = 3  # of a task whose process or machine is lost
OnPart = Callable[[int, int], object]
Kept = tuple[Rows, dict[str, Rows]]  # row numbers in the order picked, and their rows in each view


def first_round(
    ray: Any, views: dict[str, View], split: list[Rows], how: tuple[int, str, int, dict[str, Any]], told: OnPart | None
) -> list[Kept]:
    """What each part keeps."""
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(select_part)
    shared = ray.put(views)
    pending = {task.remote(shared, rows, *how): part for part, rows in enumerate(split)}
    kept: dict[int, Kept] = {}
    try:
        while pending:
            done = ray.wait(list(pending), num_returns=1)[0][0]
            part = pending.pop(done)
            kept[part] = _result(ray, done, f"part {part + 1} of {len(split)}")
            if told is not None:
                told(len(kept), len(split))
    finally:
        for left in pending:
            ray.cancel(left, force=True)
    return [kept[part] for part in range(len(split))]


def _result(ray: Any, done: Any, part: str) -> Kept:
    try:
        found: Kept = ray.get(done)
        return found
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, ValueError):
            raise ValueError(f"{part}: {cause}") from None
        raise RuntimeError(f"{part} failed: {type(cause).__name__}: {cause}") from None
    except ray.exceptions.RayError as error:
        raise RuntimeError(
            f"{part} was lost with its worker, {RETRIES + 1} times ({type(error).__name__}); if memory ran out, "
            "smaller parts need less of it: raise parts="
        ) from None


def select_part(
    views: dict[str, View], rows: Rows, budget: int, method: str, seed: int, options: Mapping[str, Any]
) -> Kept:
    """One part's choice among its own rows."""
    if isinstance(options.get("memory", "auto"), str):  # each core may have a task like this one
        options = {**options, "memory": max(1, int(SHARE * free_bytes(torch.device("cpu"))) // (os.cpu_count() or 1))}
    read = {name: read_view(name, view.rows(rows), as_tensor(rows)) for name, view in views.items()}
    own = torch.Generator().manual_seed(seed ^ int(rows[0]))
    picks = torch.as_tensor(select(read, budget, method=method, generator=own, **options).indices)
    return rows[picks.numpy()], {name: view[picks].numpy() for name, view in read.items()}
