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
    images: (n, …), numpy or torch; a batch goes to the module's device as it is, the result is of the same kind (numpy
    has no bfloat16: float32 there).

    >>> embed(torch.nn.Linear(4, 3), torch.zeros(10, 4), batch_size=4).shape
    torch.Size([10, 3])
    """
    if not isinstance(images, (np.ndarray, Tensor)):
        raise ValueError(f"images must be a numpy array or torch tensor, got {type(images).__name__}")
    if images.ndim == 0 or len(images) == 0:
        raise ValueError(f"images must hold at least one image, got shape {tuple(images.shape)}")
    batch_size = check_range("batch_size", batch_size, 1, 2**31, "images")
    module = model if model is not None else _module_of(function)
    device = next((parameter.device for parameter in module.parameters()), None) if module is not None else None
    features: list[Tensor] = []
    with _evaluating(module), torch.no_grad():
        for first in range(0, len(images), batch_size):
            batch = images[first : first + batch_size]
            tensor = _tensor(batch) if isinstance(batch, np.ndarray) else batch
            features.append(_checked(function(tensor.to(device)), len(batch), features[:1]))
    result = torch.cat(features)
    if isinstance(images, Tensor):
        return result
    return (result.float() if result.dtype == torch.bfloat16 else result).cpu().numpy()


def _tensor(batch: np.ndarray[Any, Any]) -> Tensor:
    try:
        return torch.from_numpy(np.array(batch))
    except (TypeError, ValueError):
        raise ValueError(
            f"images must be of a type that torch has too, got {batch.dtype}; convert them first"
        ) from None


def _checked(features: object, count: int, first: list[Tensor]) -> Tensor:
    """What the function returned for a batch of `count`, if it goes with what it returned first."""
    if not isinstance(features, Tensor):
        raise ValueError(f"function must return a tensor, got {type(features).__name__}")
    if features.ndim != 2 or len(features) != count:
        raise ValueError(
            f"function must return shape ({count}, d) for a batch of {count}, got {tuple(features.shape)}; "
            "flatten(1) what comes after the batch"
        )
    for other in first:
        if features.shape[1] != other.shape[1]:
            raise ValueError(
                f"function must return as many columns for every batch, got {other.shape[1]} and {features.shape[1]}; "
                "bring the images to one size first"
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
