"""select, select_per_class and coverage."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import Label, check_range, nearest_name, own_function, read_generator, read_labels, whole_number
from .geometry import cloud
from .inputs import Array, Views, as_kind, name_views, read_budgets, read_indices, read_vector, read_view, read_views
from .kernels import median_bandwidth
from .options import Cover
from .own import Selector, call_own
from .result import Selection, uncovered_selection
from .table import ALIASES, PER_POINT, SELECTORS, Entry
from .targets import with_density, with_purity

Generator = int | torch.Generator | None
NO_LABELS = "there are no labels: every point counts alike"


def select(
    views: Views,
    budget: int,
    *,
    method: str | Selector = "mers",
    generator: Generator = None,
    start: Any = None,
    **options: Any,
) -> Selection:
    """Choose `budget` of the points that `views` describe.

    views: one (n, d) array, a list of them, or a mapping name -> array; numpy or torch, any float type.
    method: a name of `keepset ls`, or a function `(views, budget, *, generator, **options) -> Selection`, itself or as
    `module:function`.
    generator: an int or a torch.Generator; None is the seed 0.
    start: points already kept; they count as covered and are not returned.

    >>> import numpy
    >>> points = numpy.array([[1, 0.1], [1, 0], [1, -0.1], [-1, 0]])  # three close together and a lone one
    >>> select(points, budget=2).indices
    array([0, 3])
    """
    named, method = name_views(views), _method(method)
    count = len(next(iter(named.values())))
    kept = torch.empty(0, dtype=torch.int64) if start is None else read_indices("start", start, count)
    if len(kept) == count:
        raise ValueError(f"start leaves no candidates: it names all {count} points")
    wanted = check_range("budget", budget, 1, count - len(kept), "the number of candidates")
    read = read_views(_writable(named) if callable(method) else named)
    chosen = _call(method, read, wanted, read_generator(generator), kept, options)
    return _as_passed(chosen, next(iter(named.values())))


def select_per_class(
    views: Views,
    labels: Any,
    budget: int | Mapping[Any, int],
    *,
    method: str | Selector = "mers",
    generator: Generator = None,
    **options: Any,
) -> dict[Label, Selection]:
    """`select` within each class; the indices are rows of the arrays passed in.

    labels: (n,) integers or strings. budget: one number, or a mapping by class; 0 gives an empty Selection, and a class
    with fewer points than its budget gives all it has. Options with one value a point are sliced like the views.
    A class's picks depend on its own points and the seed alone, not on the other classes (but for bandwidth="episode"
    and point_weights="purity").

    >>> import numpy
    >>> points = numpy.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]])
    >>> {label: list(chosen) for label, chosen in select_per_class(points, ["a", "b", "a", "b"], budget=1).items()}
    {'a': [0], 'b': [1]}
    """
    named, method = name_views(views), _method(method)
    first = next(iter(named.values()))
    array = read_labels(labels)
    if len(array) != len(first):
        raise ValueError(f"labels must be one a point, {len(first)}, got {len(array)}")
    classes: list[Label] = np.unique(array).tolist()
    budgets = read_budgets(budget, classes)
    if options.get("bandwidth") == "episode" and not callable(method):
        options = {**options, "bandwidth": _episode_bandwidths(named, method, options)}
    if not callable(method):
        options = with_purity(named, array, SELECTORS[_known(method)].filled(options))
    seed = int(torch.randint(2**62, (), generator=read_generator(generator)))
    found: dict[Label, Selection] = {}
    for label in classes:
        rows = torch.from_numpy(np.flatnonzero(array == label))
        own = torch.Generator().manual_seed(seed ^ zlib.crc32(repr(label).encode()))
        try:
            chosen = _select_class(named, rows, budgets[label], method, own, options)
        except ValueError as error:
            raise ValueError(f"class {label!r}: {error}") from None
        found[label] = _as_passed(replace(chosen, indices=rows[torch.as_tensor(chosen.indices).cpu()]), first)
    return found


def coverage(views: Views, indices: Any, *, method: str = "mers", **options: Any) -> float:
    """The coverage F, in 0..1, that the points `indices` reach under a cover method and its options.

    The yardstick to compare any choices of the same size with.

    >>> import numpy
    >>> points = numpy.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]])
    >>> coverage(points, [0, 2]) > coverage(points, [0, 1])
    True
    """
    named = name_views(views)
    kept = read_indices("indices", indices, len(next(iter(named.values()))))
    if not len(kept):
        raise ValueError("indices must hold at least one point, got none")
    if callable(method) or "bandwidth" not in SELECTORS[_known(method)].options:
        known = [name for name, entry in SELECTORS.items() if "bandwidth" in entry.options]
        raise ValueError(f"method must be a cover method ({', '.join(known)}), got {method!r}")
    return _call(method, read_views(named), 0, read_generator(None), kept, options).objective


def is_own_selector(method: str) -> bool:
    """Whether `module:function` is meant, and not a selector's name, or `maxherding:simclr` as runs have it."""
    head, colon, _ = method.partition(":")
    return bool(colon) and head not in SELECTORS and head not in ALIASES


def own_selector(method: str) -> Selector:
    """The function behind `module:function`."""
    return own_function("selector", method, [*SELECTORS, *ALIASES])


# ---------------------------------------------------------------- the steps


def _method(method: str | Selector) -> str | Selector:
    return own_selector(method) if isinstance(method, str) and is_own_selector(method) else method


def _writable(named: Mapping[str, Array]) -> dict[str, Array]:
    """Maps of files as arrays in memory: a selector of the caller's may write to what it gets."""
    return {name: np.array(view) if isinstance(view, np.memmap) else view for name, view in named.items()}


def _known(method: str) -> str:
    if not isinstance(method, str):
        raise ValueError(f"method must be a name or a function, got {method!r}")
    method = ALIASES.get(method, method)
    if method not in SELECTORS:
        raise ValueError(f"unknown selector {method!r}; {nearest_name(method, [*SELECTORS, *ALIASES])} see keepset ls")
    return method


def _call(
    method: str | Selector,
    views: dict[str, Tensor],
    budget: int,
    generator: torch.Generator,
    start: Tensor,
    options: Mapping[str, Any],
) -> Selection:
    if callable(method):
        return call_own(method, views, budget, generator, start, options)
    name, entry = _checked(method, options)
    options, notes = _without_labels(entry, options)
    options = with_density(views, budget, start, options, one=entry.views == "one")
    chosen = entry.function(views, budget, generator=generator, start=start, **options)
    return replace(chosen, method=name, notes=(*chosen.notes, *notes))


def _without_labels(entry: Entry, options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Options that are filled; where purity was not asked for by name, all points are of one class, and as pure."""
    filled = entry.filled(options)
    if "point_weights" in options or entry.defaults.get("point_weights") != "purity":
        return filled, []
    return {**filled, "point_weights": None}, [NO_LABELS]


def _checked(method: str, options: Mapping[str, Any]) -> tuple[str, Entry]:
    """The selector of that name, if these are options of its."""
    name = _known(method)
    entry = SELECTORS[name]
    for option in options:
        if option not in entry.options:
            raise ValueError(_unknown_option(name, option))
    return name, entry


def _unknown_option(name: str, option: str) -> str:
    others = [other for other, entry in SELECTORS.items() if option in entry.options]
    if others:
        return f"option {option!r} is not for {name}, but for {', '.join(others)}; leave it out or choose one of these"
    known = SELECTORS[name].options
    return f"unknown option {option!r} for {name}; {nearest_name(option, known) if known else 'it takes none'}"


def _as_passed(chosen: Selection, like: Array) -> Selection:
    """The result's arrays as numpy or torch, like the views."""
    return replace(
        chosen,
        indices=as_kind(torch.as_tensor(chosen.indices), like),
        gains=as_kind(torch.as_tensor(chosen.gains), like),
        shares={name: as_kind(torch.as_tensor(share), like) for name, share in chosen.shares.items()},
    )


def _select_class(
    named: Mapping[str, Array],
    rows: Tensor,
    budget: int,
    method: str | Selector,
    generator: torch.Generator,
    options: Mapping[str, Any],
) -> Selection:
    """One class: views and per-point options sliced to its rows; the indices returned count within the class."""
    count = len(rows)
    options, notes = dict(options), []
    if budget > count:
        notes.append(f"the class has {count} points, fewer than its budget {budget}: all are kept")
    k = None if callable(method) else options.get("neighbours")
    if k is not None and whole_number("neighbours", k) > count - 1:
        notes.append(f"neighbours {k} clamped to {count - 1}, the other points of the class")
        options["neighbours"] = count - 1 or None
    total = len(next(iter(named.values())))
    for option, value in options.items():
        if option in PER_POINT and value is not None and not isinstance(value, str):
            options[option] = read_vector(option, value, total)[rows]
        elif callable(method) and isinstance(value, (np.ndarray, Tensor)) and value.shape[:1] == (total,):
            options[option] = value[_index(rows, value)]
        elif callable(method) and isinstance(value, (list, tuple)) and len(value) == total:
            options[option] = [value[row] for row in rows.tolist()]
    views = {name: read_view(name, view[_index(rows, view)], rows) for name, view in named.items()}
    if budget == 0:
        name = getattr(method, "__name__", type(method).__name__) if callable(method) else _checked(method, options)[0]
        return uncovered_selection(rows[:0], name, ("the budget is 0: nothing is kept",))
    none = torch.empty(0, dtype=torch.int64)
    chosen = _call(method, views, min(budget, count), generator, none, options)
    return replace(chosen, notes=(*chosen.notes, *notes))


def _index(rows: Tensor, array: Array) -> Any:
    return rows.to(array.device) if isinstance(array, Tensor) else rows.numpy()


def _episode_bandwidths(named: Mapping[str, Array], method: str, options: Mapping[str, Any]) -> dict[str, float] | str:
    """The median over all points given, by view, for the views that the method reads."""
    entry = SELECTORS[_known(method)]
    if "bandwidth" not in entry.options:
        return "episode"  # refused later, by name
    names = list(named)
    if entry.views == "one":
        view = 0 if options.get("view") is None else options["view"]
        names = [names[view]] if isinstance(view, int) and view < len(names) else [n for n in names if n == view]
    metric = Cover(**{k: v for k, v in options.items() if k in ("bandwidth", "metric")}).metric
    found = {name: median_bandwidth(cloud(read_view(name, named[name])), metric) for name in names}
    if not all(found.values()):
        raise ValueError(
            "bandwidth='episode' has no scale: half of all pairs of points coincide; give a number instead"
        )
    return found or "episode"
