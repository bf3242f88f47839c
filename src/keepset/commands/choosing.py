"""How keepset select chooses: over all points, within each class, in parts on several machines; or only plans to."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from .arguments import named_arrays, named_shapes, named_shards
from .call import Call, read_budget
from .console import say, warn
from .progress import LateBar
from .unfinished import Unfinished, describe, exit_code, heeding_signals, side_file

if TYPE_CHECKING:
    from ..selection import Selection

Picked = Callable[[int, float], None]
PLANNED = ("memory", "search", "epsilon", "fusion")  # the options that a plan depends on


# ---------------------------------------------------------------- over all points


def choose_from_all(call: Call, resume: bool, deliver: Callable[[Selection], None]) -> None:
    """One choice, from reading to writing; its picks so far are kept if it is broken off."""
    from ..files import check_place
    from ..selection import select
    from ..selection.inputs import name_views

    if call.output is not None:
        check_place(side_file(call.output))
    named, options = named_arrays(call.specs), call.options()
    count = len(next(iter(name_views(named).values())))
    work = _unfinished(call, named, options)
    if not _ready(work, resume, count):
        return
    try:
        with heeding_signals():
            with _bar_of_picks(work) as bar:
                told = _told_of_picks(work, bar, "gained" if "start" in options else "coverage")
                options = _of_the_rest(work, options, count)
                if _tells_picks(call.method):
                    options["on_pick"] = told
                rest = select(named, work.missing, method=call.method, generator=work.generator, **options)
            deliver(work.whole(rest))
            work.finish()
    except KeyboardInterrupt as stop:
        _stop(stop, work.break_off())


def _unfinished(call: Call, named: Mapping[str, Any], options: Mapping[str, Any]) -> Unfinished:
    from ..checks import read_generator

    budget = call.number()
    # how much memory there is changes the way, not the choice
    typed = {"method": call.method, "budget": budget, "seed": call.seed, **call.flags, "memory": None}
    arrays = {name: options.get(name) for name in ("start", "point_weights", "uncertainty")}
    falling = options.get("search") != "stochastic"
    choice = describe(named, call.specs, arrays, typed)
    return Unfinished(call.output, budget, choice, read_generator(call.seed), falling=falling)


def _ready(work: Unfinished, resume: bool, count: int) -> bool:
    """Whether there is anything to do; says where the work begins."""
    file = work.output
    if file is None:
        return True
    if not resume:
        if side_file(file).is_file():
            warn(f"{file} holds an unfinished choice, which this one replaces; --resume would go on from it")
        return True
    if not file.is_file():
        warn(f"{file} is not there yet: starting anew")
        return True
    work.resume(count)
    if work.missing:
        warn(f"going on from {work.earlier} of {work.budget} picks in {file}")
        return True
    unknown = "" if side_file(file).is_file() else "; of a finished file it is not known how it was chosen"
    work.finish()
    say(f"{file} is finished, it holds all {work.budget} picks: nothing is left to do{unknown}")
    return False


def _of_the_rest(work: Unfinished, options: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The options that choose the picks after the earlier ones, as a call without a break would."""
    from ..selection.inputs import read_indices
    from ..selection.options import Cover

    if not work.earlier:
        return dict(options)
    start = read_indices("start", options.get("start", ()), count).tolist()
    rest = {**options, "start": [*start, *(index for index, _ in work.picks)]}
    if options.get("search") == "stochastic":  # samples of points / budget · ln(1 / epsilon), of the same size
        rest["epsilon"] = options.get("epsilon", Cover.epsilon) ** (work.missing / work.budget)
    return rest


def _tells_picks(method: str) -> bool:
    from ..selection.table import ALIASES, SELECTORS

    entry = SELECTORS.get(ALIASES.get(method, method))
    return entry is not None and "on_pick" in entry.options


def _bar_of_picks(work: Unfinished) -> LateBar:
    return LateBar("choosing", work.budget, work.earlier, "measuring distances")


def _told_of_picks(work: Unfinished, bar: LateBar, so_far: str) -> Picked:
    def told(index: int, gain: float) -> None:
        work.add(index, gain)
        done = len(work.picks)
        bar.update(done, f"{done:,}/{work.budget:,} picks, gain {gain:.2g}, {so_far} {work.gained:.4f}")

    return told


def _stop(stop: KeyboardInterrupt, message: str) -> NoReturn:
    warn(message)
    raise typer.Exit(exit_code(stop)) from None


# ---------------------------------------------------------------- within each class


def choose_by_class(call: Call, labels: str) -> dict[Any, Selection]:
    import numpy as np

    from ..checks import read_labels
    from ..files import read_array
    from ..selection import select_per_class

    named, options = named_arrays(call.specs), call.options()
    array = read_labels(read_array(labels)[1])
    budget = read_budget(call.budget, array[:1].tolist())
    sizes = dict(zip(*(found.tolist() for found in np.unique(array, return_counts=True)), strict=True))
    try:
        with heeding_signals(), LateBar("choosing", len(sizes), state="measuring distances") as bar:
            if _tells_picks(call.method):
                options["on_pick"] = _told_of_classes(sizes, budget, bar)
            return dict(select_per_class(named, array, budget, method=call.method, generator=call.seed, **options))
    except KeyboardInterrupt as stop:
        _stop(stop, "broken off; a choice by class is written once it is whole, so nothing of it is kept")


def _told_of_classes(sizes: Mapping[Any, int], budget: Any, bar: LateBar) -> Picked:
    """Picks are counted to know which class they are of: one class comes after the other."""
    wanted = [min(size, budget.get(label, 0) if isinstance(budget, dict) else budget) for label, size in sizes.items()]
    ends, total = list(itertools.accumulate(wanted)), sum(wanted)
    counter = itertools.count(1)

    def told(*_: object) -> None:
        picks = min(next(counter), total)
        done = bisect.bisect_right(ends, picks)
        bar.update(done, f"{done:,}/{len(sizes):,} classes, {picks:,}/{total:,} picks")

    return told


# ---------------------------------------------------------------- in parts


def choose_by_parts(call: Call, parts: int | None, address: str) -> Selection:
    from ..distributed import select_distributed

    budget, options, sources = call.number(), call.options(), named_shards(call.specs)
    how: dict[str, Any] = {"method": call.method, "parts": parts, "address": address, "generator": call.seed}
    try:
        with heeding_signals(), LateBar("choosing", parts, state="measuring distances") as bar:

            def told(done: int, total: int) -> None:
                bar.update(done, f"{done:,}/{total:,} parts", total)

            return select_distributed(sources, budget, on_part=told, **how, **options)
    except KeyboardInterrupt as stop:
        _stop(stop, "broken off; a choice in parts is written once it is whole, so nothing of it is kept")


# ---------------------------------------------------------------- planning


def planned(call: Call) -> str:
    """What the choice would take; nothing but the heads of the views is looked at."""
    from ..checks import check_choice
    from ..selection.inputs import name_views
    from ..selection.planning import plan

    budget, shapes, options = call.number(), named_shapes(call.specs), call.options()
    types = dict(zip(shapes, map(_dtype, call.specs), strict=True))
    name_views({name: _hollow(shape, types[name]) for name, shape in shapes.items()})
    read = list(shapes)
    if call.flags["view"] is not None:
        check_choice("--view", call.flags["view"], shapes)
        read = [call.flags["view"]]
    (count, _), *_ = shapes.values()
    reckoned = {name: value for name, value in options.items() if name in PLANNED}
    reckoned |= {"device": "cpu", "dtype": [types[name] for name in read]}
    told = str(plan(count, [shapes[name][1] for name in read], budget, method=call.method, **reckoned))
    _try_options(call.method, list(shapes), count, options)
    return told


def _dtype(spec: str) -> Any:
    """The type of the numbers in a file; what is not mapped is read no further than its head."""
    import zipfile

    import numpy as np

    from ..files import array_names, read_array

    head, _, key = spec.rpartition(".npz")
    if not head or key[:1] not in ("", ":"):
        return read_array(spec)[1].dtype
    path = f"{head}.npz"
    with zipfile.ZipFile(path) as archive, archive.open(f"{key[1:] or array_names(path)[0]}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return read(file)[2]


def _hollow(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of that form and type, without its numbers."""
    import numpy as np
    import torch

    if isinstance(dtype, torch.dtype):
        return torch.zeros((), dtype=dtype).expand(shape)
    return np.broadcast_to(np.zeros((), dtype), shape)


def _try_options(method: str, names: Sequence[str], count: int, options: Mapping[str, Any]) -> None:
    """Refuse what the choice itself would refuse: options that count points here, the rest by one of three points."""
    import numpy as np

    from ..selection import select
    from ..selection.inputs import read_indices, read_vector
    from ..selection.options import Cover

    rest = dict(options)
    Cover(neighbours=rest.pop("neighbours", None)).check_neighbours(count)
    read_indices("start", rest.pop("start", ()), count)
    if not isinstance(rest.get("point_weights", ""), str):
        read_vector("point_weights", rest.pop("point_weights"), count)
    points = np.array([[1.0, 0.0], [0.9, 0.2], [0.3, 0.8]])
    select(dict.fromkeys(names, points), 1, method=method, **rest)
