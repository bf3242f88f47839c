"""What callers may pass, read into checked tensors. Every error names argument, range, value and remedy."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import Label, check_range, plain_label, whole_number
from .geometry import largest_entries

Array = np.ndarray[Any, Any] | Tensor
Views = Array | Sequence[Array] | Mapping[str, Array]

FLOATS = "float16, float32, float64 or bfloat16"


def name_views(views: Views) -> dict[str, Array]:
    """`views` as name -> array, shapes and kinds checked, values not yet looked at."""
    named: dict[str, Array]
    if isinstance(views, (np.ndarray, Tensor)):
        named = {"view 0": views}
    elif isinstance(views, Mapping):
        named = dict(views)
    elif isinstance(views, Sequence) and not isinstance(views, (str, bytes)):
        named = {f"view {position}": view for position, view in enumerate(views)}
    else:
        raise ValueError(
            f"views must be an array, a list of arrays or a mapping name -> array, got {type(views).__name__}"
        )
    if not named:
        raise ValueError("views must hold at least one array, got none")
    for name, view in named.items():
        _check_form(name, view)
    _check_agreement(named)
    return named


def _check_form(name: object, view: object) -> None:
    if not isinstance(name, str):
        raise ValueError(f"views must have strings for names, got {name!r}")
    if not isinstance(view, (np.ndarray, Tensor)):
        raise ValueError(
            f"views[{name!r}] must be a numpy array or torch tensor, got {type(view).__name__}; use numpy.asarray"
        )
    if isinstance(view, Tensor) and view.layout != torch.strided:
        raise ValueError(f"views[{name!r}] must be dense, got {view.layout}; use .to_dense()")
    if not is_float(view):
        raise ValueError(f"views[{name!r}] must be {FLOATS}, got {view.dtype}; convert it to float32 first")
    if view.ndim != 2:
        raise ValueError(
            f"views[{name!r}] must have shape (points, columns), got {tuple(view.shape)}; reshape it first"
        )
    if view.shape[0] == 0:
        raise ValueError(f"views[{name!r}] must have at least one point, got shape {tuple(view.shape)}")
    if view.shape[1] == 0:
        raise ValueError(f"views[{name!r}] must have at least one column, got shape {tuple(view.shape)}")


def _check_agreement(named: Mapping[str, Array]) -> None:
    first, reference = next(iter(named.items()))
    for name, view in named.items():
        if len(view) != len(reference):
            raise ValueError(
                f"views must have equally many rows, but {first!r} has {len(reference)} and {name!r} has {len(view)}"
            )
        if device_of(view) != device_of(reference):
            raise ValueError(
                f"views must be on one device, but {first!r} is on {device_of(reference)} and {name!r} on "
                f"{device_of(view)}; move one with .to()"
            )


def is_float(array: Array) -> bool:
    if isinstance(array, Tensor):
        return array.dtype in (torch.float16, torch.float32, torch.float64, torch.bfloat16)
    return array.dtype.kind == "f" and array.dtype.itemsize in (2, 4, 8)


def device_of(array: Array) -> torch.device:
    return array.device if isinstance(array, Tensor) else torch.device("cpu")


def as_tensor(array: Array) -> Tensor:
    """The same numbers as a tensor, without a copy where numpy's memory can be shared. It is not to be written to."""
    if isinstance(array, Tensor):
        return array.detach()
    mapped = isinstance(array, np.memmap)  # a file may be larger than memory: it is shared although it is read-only
    array = np.asarray(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    known = all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)
    if not (mapped or array.flags.writeable) or not known or not array.flags.aligned:
        array = array.copy()  # torch warns of read-only memory, and knows neither such strides nor fields of records
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def read_view(name: str, view: Array, rows: Tensor | None = None) -> Tensor:
    """One view as a float32 tensor (float64 stays), its values checked. `rows` are the caller's row numbers."""
    tensor = as_tensor(view)
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.float()
    largest = largest_entries(tensor)
    _refuse(
        ~torch.isfinite(largest), rows, f"views[{name!r}] must be finite", "NaN or infinite values", "drop or repair"
    )
    _refuse(
        largest == 0,
        rows,
        f"views[{name!r}] must have no zero vectors (they have no direction)",
        "zeros",
        "drop or repair",
    )
    return tensor


def _refuse(bad: Tensor, rows: Tensor | None, rule: str, what: str, remedy: str) -> None:
    where = bad.nonzero().flatten().cpu()
    if len(where):
        first = int(where[0]) if rows is None else int(rows[int(where[0])])
        more = f" and {len(where) - 1} more" if len(where) > 1 else ""
        raise ValueError(f"{rule}, got {what} in row {first}{more}; {remedy} such rows first")


def read_views(views: Views, rows: Tensor | None = None) -> dict[str, Tensor]:
    return {name: read_view(name, view, rows) for name, view in name_views(views).items()}


def read_vector(argument: str, values: object, length: int) -> Tensor:
    """One finite number a point, as a float64 tensor on the CPU."""
    try:
        if isinstance(values, (np.ndarray, Tensor)):
            tensor = as_tensor(values).to("cpu", torch.float64)
        else:
            tensor = torch.tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{argument} must be numbers, one a point, got {type(values).__name__}") from None
    if tensor.shape != (length,):
        raise ValueError(f"{argument} must have shape ({length},), one number a point, got {tuple(tensor.shape)}")
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{argument} must be finite, got NaN or infinite values")
    return tensor


def read_indices(argument: str, values: object, length: int) -> Tensor:
    """Distinct whole numbers in 0..length-1, as an int64 tensor on the CPU, in the order given."""
    numbers = values.tolist() if isinstance(values, (np.ndarray, Tensor)) else values
    if not isinstance(numbers, Iterable) or isinstance(numbers, (str, bytes)):
        raise ValueError(f"{argument} must be a sequence of indices, got {values!r}")
    found = [check_range(argument, number, 0, length - 1, "a row of the views") for number in numbers]
    if len(set(found)) < len(found):
        twice = next(number for position, number in enumerate(found) if number in found[:position])
        raise ValueError(f"{argument} must not repeat an index, got {twice} more than once")
    return torch.tensor(found, dtype=torch.int64)


def read_budgets(budget: object, classes: list[Label]) -> dict[Label, int]:
    """Class -> budget for every class there is, and no other; one number is for all."""
    if not isinstance(budget, Mapping):
        return dict.fromkeys(classes, _class_budget("budget", budget))
    given = {plain_label(label): value for label, value in budget.items()}
    for label in given:
        if label not in classes:
            raise ValueError(f"budget names class {label!r}, which has no points in labels; leave it out")
    for label in classes:
        if label not in given:
            raise ValueError(f"budget must name every class, {label!r} is missing; 0 keeps none of it")
    return {label: _class_budget(f"budget[{label!r}]", given[label]) for label in classes}


def _class_budget(argument: str, value: object) -> int:
    number = whole_number(argument, value)
    if number < 0:
        raise ValueError(f"{argument} must be 0 or more, got {number}")
    return number


def as_kind(tensor: Tensor, like: Array) -> Array:
    """`tensor` as numpy, or on the device of `like`: results are of the kind that was passed in."""
    return tensor.to(like.device) if isinstance(like, Tensor) else tensor.cpu().numpy()
