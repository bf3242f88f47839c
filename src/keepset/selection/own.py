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
    if len(start):
        if "start" not in inspect.signature(method).parameters:
            raise ValueError(
                f"start= was given, but the selector {name} takes no such argument; add it or leave start out"
            )
        options = {**options, "start": start}
    result = method(views, budget, generator=generator, **options)
    count = len(next(iter(views.values())))
    picked = result.indices if isinstance(result, Selection) else result
    indices = read_indices(f"what the selector {name} returned", picked, count)
    if len(indices) != budget:
        raise ValueError(f"the selector {name} must return {budget} indices (the budget), got {len(indices)}")
    if isinstance(result, Selection):
        return replace(result, indices=indices, method=result.method or name)
    return uncovered_selection(indices, name)


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
        signature.bind({}, 1, generator=None, **options)
    except TypeError as error:
        raise ValueError(f"{name} must be a function (views, budget, *, generator, **options): {error}") from None
