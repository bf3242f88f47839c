"""Run an encoder over images in batches."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from .checks import check_range

Images = TypeVar("Images", "np.ndarray[Any, Any]", Tensor)


def embed(
    function: Callable[..., Tensor],
    images: Images,
    batch_size: int = 256,
    *,
    model: torch.nn.Module | None = None,
) -> Images:
    """(n, d) features of `images` by `function`, in eval mode and without gradient; the mode is as before afterwards.

    function: a module, a method of one (`model.features`), or any function of a batch. A function that hides its module
    inside needs `model=` too, or the module's mode and device are left alone.
    images: (n, …), numpy or torch; a batch goes to the module's device as it is, the result is of the same kind.

    >>> embed(torch.nn.Linear(4, 3), torch.zeros(10, 4), batch_size=4).shape
    torch.Size([10, 3])
    """
    if not isinstance(images, (np.ndarray, Tensor)):
        raise ValueError(f"images must be a numpy array or torch tensor, got {type(images).__name__}")
    if images.ndim == 0 or len(images) == 0:
        raise ValueError(f"images must hold at least one image, got shape {tuple(images.shape)}")
    check_range("batch_size", batch_size, 1, 2**31, "images")
    module = model if model is not None else _module_of(function)
    device = next((parameter.device for parameter in module.parameters()), None) if module is not None else None
    features = []
    with _evaluating(module), torch.no_grad():
        for first in range(0, len(images), batch_size):
            batch = images[first : first + batch_size]
            tensor = torch.from_numpy(np.array(batch)) if isinstance(batch, np.ndarray) else batch
            features.append(_checked(function(tensor.to(device)), len(batch)))
    result = torch.cat(features)
    return result.cpu().numpy() if isinstance(images, np.ndarray) else result


def _checked(features: object, count: int) -> Tensor:
    if not isinstance(features, Tensor):
        raise ValueError(f"function must return a tensor, got {type(features).__name__}")
    if features.ndim != 2 or len(features) != count:
        raise ValueError(
            f"function must return shape ({count}, d) for a batch of {count}, got {tuple(features.shape)}; "
            "flatten(1) what comes after the batch"
        )
    return features


def _module_of(function: object) -> torch.nn.Module | None:
    """The module that is, owns, or lies inside `function`, if it can be told."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", function)
    return owner if isinstance(owner, torch.nn.Module) else None


@contextlib.contextmanager
def _evaluating(module: torch.nn.Module | None) -> Iterator[None]:
    """Eval mode inside; afterwards every submodule has its own mode again, also one that was frozen by itself."""
    modes = {part: part.training for part in module.modules()} if module is not None else {}
    try:
        if module is not None:
            module.eval()
        yield
    finally:
        for part, training in modes.items():
            part.training = training
