"""torch.compile, once for each function of a process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Result = TypeVar("Result")


def compiled(function: Callable[Given, Result], wanted: bool = True, *, small: bool = False) -> Callable[Given, Result]:
    """The function compiled, if that is wanted; models of one shape share what was compiled.

    small: its kernels are so small that launching them counts, so that those which need not wait for each other are
    put together. Of large ones that makes slow ones: a sum over 67 MB took 0.30 ms instead of 0.05.
    """
    return _compiled(function, small) if wanted else function


@functools.cache
def _compiled(function: Callable[Given, Result], small: bool) -> Callable[Given, Result]:
    from torch._inductor import config

    together = small and hasattr(config, "combo_kernels")  # since torch 2.5
    return torch.compile(function, dynamic=False, options={"combo_kernels": True} if together else None)
