"""Selectors of the caller's: what they may be called with, and what they may return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..checks import nearest_name
from .inputs import Array, read_indices
from .result import Selection, uncovered_selection

Selector = Callable[..., Selection | Sequence[int] | Array]


def call_own(
    method: Selector,
    views: dict[str, Tensor],
    budget: int,
    generator: torch.Generator,
    start: Tensor,
    options: Mapping[str, Any],
) -> Selection:
    """Its choice; it may return a Selection or any sequence of indices, which is checked."""
    name = getattr(method, "__name__", type(method).__name__)
    check_own_options(method, name, options)
    takes, needs = _start_of(method)
    if len(start) and not takes:
        raise ValueError(f"start= was given, but the selector {name} takes no such argument; add it or leave start out")
    if len(start) or needs:
        options = {**options, "start": start}
    result = method(views, budget, generator=generator, **options)
    count = len(next(iter(views.values())))
    picked = result.indices if isinstance(result, Selection) else result
    indices = read_indices(f"what the selector {name} returned", picked, count)
    if len(indices) != budget:
        raise ValueError(f"the selector {name} must return {budget} indices (the budget), got {len(indices)}")
    if bool(torch.isin(indices, start).any()):
        again = sorted({*indices.tolist()} & {*start.tolist()})
        raise ValueError(f"the selector {name} must return none of the points of start=, got {again}")
    if isinstance(result, Selection):
        return replace(result, indices=indices, gains=_gains(name, result.gains, budget), method=result.method or name)
    return uncovered_selection(indices, name)


def _gains(name: str, gains: object, count: int) -> Tensor:
    """(count,) as they were returned; a selector that does not cover has NaN there."""
    try:
        found = torch.as_tensor(gains, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        found = torch.zeros(0)
    if found.shape != (count,):
        raise ValueError(
            f"the gains that the selector {name} returned must be {count} numbers, one a pick, got {gains!r}"
        )
    return found


def _start_of(method: Selector) -> tuple[bool, bool]:
    """Whether it takes start=, and whether it cannot do without."""
    try:
        takes = inspect.signature(method).parameters
    except (TypeError, ValueError):  # some builtins do not tell
        return True, False
    named = takes.get("start")
    anything = any(entry.kind is inspect.Parameter.VAR_KEYWORD for entry in takes.values())
    return named is not None or anything, named is not None and named.default is inspect.Parameter.empty


def check_own_options(method: Selector, name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that a function of the caller's does not take, or lacks."""
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # some builtins do not tell
        return
    takes = signature.parameters
    if not any(entry.kind is inspect.Parameter.VAR_KEYWORD for entry in takes.values()):
        known = [option for option in list(takes)[2:] if option not in ("generator", "start")]
        for option in options:
            if option not in known:
                remedy = nearest_name(option, known) if known else "it takes none"
                raise ValueError(f"unknown option {option!r} for {name}; {remedy}")
    try:
        given = {"start": None} if _start_of(method)[1] else {}
        signature.bind({}, 1, generator=None, **given, **options)
    except TypeError as error:
        raise ValueError(f"{name} must be a function (views, budget, *, generator, **options): {error}") from None
