"""torch.compile, once for each function of a process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Result = TypeVar("Result")


def compiled(function: Callable[Given, Result], wanted: bool = True) -> Callable[Given, Result]:
    """The function compiled, if that is wanted; models of one shape share what was compiled."""
    return _compiled(function) if wanted else function


@functools.cache
def _compiled(function: Callable[Given, Result]) -> Callable[Given, Result]:
    return torch.compile(function, dynamic=False)
