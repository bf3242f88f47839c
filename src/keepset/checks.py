"""Small checks that every room shares. Every error names argument, range, value and remedy.

torch is loaded by those that meet tensors, when they do: tables and help need none of it.
"""

from __future__ import annotations

import difflib
import importlib
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

Label = int | str


def nearest_name(name: object, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the closest known one, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(known)}"


def check_choice(argument: str, value: object, known: Iterable[str]) -> None:
    known = list(known)
    if value not in known:
        raise ValueError(f"unknown {argument} {value!r}; {nearest_name(value, known)}")


def own_function(argument: str, name: str, known: Iterable[str] = ()) -> Callable[..., Any]:
    """The function behind `module:function`; known: names that may have been meant instead of the module's."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function, None)
    except Exception as error:  # a module of the caller's may fail in any way
        close = difflib.get_close_matches(module, known, n=1)
        missing = isinstance(error, ModuleNotFoundError) and error.name in (module, module.partition(".")[0])
        remedy = "is it on PYTHONPATH?" if missing or not module else "it fails by itself"
        remedy = f"did you mean {close[0]!r}?" if close and missing else remedy
        raise ValueError(f"{argument} {name!r}: cannot import {module} ({error}); {remedy}") from None
    if not callable(found):
        raise ValueError(f"{argument} {name!r}: {module} has no function {function!r}")
    own: Callable[..., Any] = found
    return own


def whole_number(argument: str, value: object) -> int:
    """`value` as an int; floats and booleans are refused rather than rounded."""
    if isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{argument} must be a whole number, got {value!r}")
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{argument} must be a whole number, got {value!r}; round it yourself") from None


def check_range(argument: str, value: object, low: int, high: int, meaning: str) -> int:
    number = whole_number(argument, value)
    if not low <= number <= high:
        raise ValueError(f"{argument} must be in {low}..{high} ({meaning}), got {number}")
    return number


def positive_number(argument: str, value: object) -> float:
    """`value` as a float; strings and booleans are refused, since callers go on with what they were given."""
    try:
        number = 0.0 if isinstance(value, (str, bytes, bool, np.bool_)) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise ValueError(f"{argument} must be a positive number, got {value!r}") from None
    if not 0 < number < float("inf"):
        raise ValueError(f"{argument} must be a positive number, got {value!r}")
    return number


def read_generator(generator: int | torch.Generator | None) -> torch.Generator:
    """A CPU generator, so that a seed means the same on every device. None is seed 0: no hidden randomness."""
    import torch

    if isinstance(generator, torch.Generator):
        if generator.device.type == "cpu":
            return generator
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        return torch.Generator().manual_seed(seed)
    if generator is None:
        return torch.Generator().manual_seed(0)
    try:
        seed = whole_number("generator", generator)
    except ValueError:
        raise ValueError(f"generator must be an int, a torch.Generator or None, got {generator!r}") from None
    return torch.Generator().manual_seed(check_range("generator", seed, -(2**63), 2**63 - 1, "a 64-bit seed"))


def read_labels(labels: object) -> np.ndarray[Any, Any]:
    """Integer or string labels as a 1-D numpy array; mixtures are refused, since 1 and '1' would be two classes."""
    from torch import Tensor

    if isinstance(labels, Tensor):
        try:
            array = labels.detach().cpu().numpy()
        except (TypeError, RuntimeError):  # of a type that numpy does not have, such as bfloat16
            raise ValueError(f"labels must be integers or strings, got {labels.dtype}; convert them first") from None
    elif isinstance(labels, np.ndarray) and labels.dtype != object:
        array = labels
    else:
        array = _label_array(labels)
    if array.size and array.dtype.kind not in "iuU":
        raise ValueError(f"labels must be integers or strings, got {array.dtype}; convert them first")
    if array.ndim != 1:
        raise ValueError(f"labels must be one a point, got shape {array.shape}")
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        raise ValueError(f"labels must be below 2**63, got {int(array.max())}; use strings instead")
    return array


def _label_array(labels: object) -> np.ndarray[Any, Any]:
    if not isinstance(labels, Iterable) or isinstance(labels, (str, bytes)):
        raise ValueError(f"labels must be a sequence of integers or strings, got {labels!r}")
    values = [plain_label(label) for label in labels]
    kinds = {type(value) for value in values}
    if not (kinds <= {int} or kinds <= {str}):
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"labels must be all integers or all strings, got {found}; convert them first")
    return np.array(values)


def plain_label(label: Any) -> Any:
    """A label as a Python int or str, where it is a number of numpy or torch."""
    from torch import Tensor

    return label.item() if isinstance(label, np.generic) or (isinstance(label, Tensor) and label.ndim == 0) else label
