"""torch.compile, once for each function of a process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from .aside import KEPT

Given = ParamSpec("Given")
Result = TypeVar("Result")


def compiled(
    function: Callable[Given, Result], wanted: bool = True, *, small: bool = False, aside: bool = False
) -> Callable[Given, Result]:
    """The function compiled, if that is wanted; models of one shape share what was compiled.

    small: its kernels are so small that launching them counts, so that those which need not wait for each other are
    put together. Of large ones that makes slow ones: a sum over 67 MB took 0.30 ms instead of 0.05.
    aside: gradients of weights are taken on the side stream.
    """
    return _compiled(function, small, aside) if wanted else function


@functools.cache
def _compiled(function: Callable[Given, Result], small: bool, aside: bool) -> Callable[Given, Result]:
    from torch._inductor import config

    options: dict[str, Any] = dict(KEPT) if aside else {}
    if small and hasattr(config, "combo_kernels"):  # since torch 2.5
        options["combo_kernels"] = True
    return torch.compile(function, dynamic=False, options=options or None)
